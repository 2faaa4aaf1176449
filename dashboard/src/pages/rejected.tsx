/**
 * Rejected users, grouped by reason: how many, since when, how to mend it, and for the chosen reason the users as they
 * were sent, with the part marked that failed. What was sent is shown as text and nothing else.
 */

import { useState } from 'react';
import { ApiError, get } from '../api.ts';
import { Link, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { adviceFor } from '../rejection-advice.ts';
import { formatNumber, Time } from '../time.tsx';
import type { Rejection, RejectionReason } from '../types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { Code, Json } from '../ui/code.tsx';
import { Empty } from '../ui/empty.tsx';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import '../styles/rejected.css';

const RELOAD_MS = 10_000;
const PAGE_USERS = 20;

interface RejectionPage {
  readonly rejections: Rejection[];
  readonly next_cursor: string | null;
}

export default function RejectedPage() {
  const { data, error, reload } = useData<{ reasons: RejectionReason[] }>('/rejections/reasons', {
    everyMs: RELOAD_MS,
  });
  const [reason, setReason] = useQueryValue('reason');
  const reasons = data?.reasons;
  const chosen = reason !== '' ? reason : reasons?.[0]?.reason;
  return (
    <Page title="Rejected">
      <p className="lead">
        Users that failed a check and were not stored. They are kept for 7 days, unless SLUICE_REJECTION_RETENTION says
        otherwise. The others of the same request were stored all the same.
      </p>
      {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
      {reasons === undefined && error === undefined && <Loading what="rejected users" />}
      {reasons?.length === 0 && reason === '' && (
        <Empty title="Nothing was rejected">
          <p>Every user that came in during that time was valid.</p>
        </Empty>
      )}
      {reasons !== undefined && chosen !== undefined && (
        <div className="rejected">
          <ReasonList reasons={reasons} chosen={chosen} onChoose={setReason} />
          <RejectedUsers key={chosen} reason={chosen} />
        </div>
      )}
    </Page>
  );
}

interface ReasonListProps {
  readonly reasons: readonly RejectionReason[];
  readonly chosen: string;
  readonly onChoose: (reason: string) => void;
}

function ReasonList({ reasons, chosen, onChoose }: ReasonListProps) {
  const most = Math.max(1, ...reasons.map(({ users }) => users));
  return (
    <nav className="reasons" aria-label="Reasons">
      {reasons.map(({ reason, users, last_at }) => (
        <button
          key={reason}
          type="button"
          className="reason"
          aria-current={reason === chosen ? 'true' : undefined}
          onClick={() => onChoose(reason)}
        >
          <span className="reason-text">{reason}</span>
          <span className="reason-figures">
            <strong>{formatNumber(users)}</strong> {users === 1 ? 'user' : 'users'}, last <Time at={last_at} relative />
          </span>
          <span className="reason-bar" aria-hidden="true">
            <span style={{ width: `${(100 * users) / most}%` }} />
          </span>
        </button>
      ))}
    </nav>
  );
}

function RejectedUsers({ reason }: { reason: string }) {
  const environment = useEnvironment();
  const path = `/rejections?limit=${PAGE_USERS}&reason=${encodeURIComponent(reason)}`;
  const { data, error, reload } = useData<RejectionPage>(path);
  const [more, setMore] = useState<RejectionPage[]>([]);
  const [isBusy, setBusy] = useState(false);
  const [moreError, setMoreError] = useState<ApiError>();
  const pages = data === undefined ? [] : [data, ...more];
  const cursor = pages.at(-1)?.next_cursor ?? null;
  const { mend } = adviceFor(reason);
  const loadMore = async (): Promise<void> => {
    setBusy(true);
    setMoreError(undefined);
    try {
      const next = await get<RejectionPage>(environment, `${path}&cursor=${encodeURIComponent(cursor ?? '')}`);
      setMore((before) => [...before, next]);
    } catch (cause) {
      setMoreError(cause instanceof ApiError ? cause : new ApiError('They could not be read.', 0, null));
    }
    setBusy(false);
  };
  const users = pages.flatMap(({ rejections }) => rejections);
  return (
    <section className="rejected-users" aria-label="Rejected users">
      <h2 className="rejected-title">{reason}</h2>
      {mend !== '' && (
        <Notice tone="quiet" title="How to mend it">
          {mend}
        </Notice>
      )}
      {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading what="what was sent" />}
      {data !== undefined && users.length === 0 && (
        <Empty title="None any more">What there was is no longer kept.</Empty>
      )}
      {users.map((user) => (
        <RejectedUser key={`${user.trace_id}.${user.userIndex}`} user={user} />
      ))}
      {moreError !== undefined && <ErrorNotice error={moreError} />}
      {cursor !== null && (
        <Button busy={isBusy} onClick={() => void loadMore()}>
          Show more
        </Button>
      )}
    </section>
  );
}

function RejectedUser({ user }: { user: Rejection }) {
  const environment = useEnvironment();
  const { trace_id: traceId, userIndex, received_at: receivedAt, message, payload, payload_is_cut: isCut } = user;
  const { path } = adviceFor(message);
  return (
    <Card>
      <header className="rejected-head">
        <Time at={receivedAt} />
        <span className="muted">user {userIndex} of its request</span>
        <Link to={`${viewPath(environment, 'traces')}/${traceId}`}>trace {traceId.slice(0, 8)}…</Link>
      </header>
      <p className="rejected-message">
        <Badge tone="bad">Rejected</Badge> {message}
      </p>
      {isCut ? (
        <>
          <p className="muted">It was too large to keep whole. The beginning of it:</p>
          <Code text={String(payload)} />
        </>
      ) : (
        <Json value={payload} {...(path !== null && { mark: path })} />
      )}
    </Card>
  );
}
