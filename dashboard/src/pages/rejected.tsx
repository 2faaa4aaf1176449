/**
 * Rejected users, grouped by reason: how many, since when, how to mend it, and for the chosen reason the users as they
 * were sent, with the part marked that failed. Reason and range stand in the address. What was sent is shown as text
 * and nothing else.
 */

import { type Ref, useRef, useState } from 'react';
import { ApiError, get } from '../api.ts';
import { Link, useAddress, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { fromQuery, REJECTED_RANGES, type RejectedRange, rejectedRangeOf } from '../rejected-range.ts';
import { adviceFor } from '../rejection-advice.ts';
import { formatNumber, Time, useNow } from '../time.tsx';
import type { Rejection, RejectionPage, RejectionReason, RejectionReasons } from '../types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { Code, Json } from '../ui/code.tsx';
import { Empty } from '../ui/empty.tsx';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import '../styles/rejected.css';
import '../styles/switch.css';

const RELOAD_MS = 10_000;
const PAGE_USERS = 20;

/** What the server keeps of one request, and gives of reasons. */
const REQUEST_KEPT_MAX = 100;
const REASONS_MAX = 100;
/** Ids of the same minute begin alike; the end tells them apart. */
const TRACE_END_CHARACTERS = 12;
/** As in rejected.css. */
const ONE_COLUMN = '(max-width: 52rem)';

export default function RejectedPage() {
  const [reason, setReason] = useQueryValue('reason');
  const [rangeValue] = useQueryValue('range');
  const range = rejectedRangeOf(rangeValue);
  const from = fromQuery(range, useNow());
  const { data, error, reload } = useData<RejectionReasons>(`/rejections/reasons?${from}`, { everyMs: RELOAD_MS });
  const title = useRef<HTMLHeadingElement>(null);
  const reasons = data?.reasons;
  const chosen = reason !== '' ? reason : reasons?.[0]?.reason;
  const choose = (next: string): void => {
    setReason(next);
    // In one column the details are below all reasons, out of sight.
    if (matchMedia(ONE_COLUMN).matches) requestAnimationFrame(() => showDetails(title.current));
  };
  return (
    <Page title="Rejected" actions={<RangeSwitch range={range} />}>
      <p className="lead">
        Users that failed a check and were not stored. They are kept for 7 days, unless SLUICE_REJECTION_RETENTION says
        otherwise; of one request at most {REQUEST_KEPT_MAX}. The others of the same request were stored all the same.
      </p>
      {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
      {reasons === undefined && error === undefined && <Loading what="rejected users" />}
      {reasons?.length === 0 && reason === '' && (
        <Empty title="Nothing was rejected">
          <p>Every user that came in {range.words} was valid.</p>
        </Empty>
      )}
      {reasons !== undefined && reasons.length > 0 && <Total reasons={reasons} range={range} />}
      {reasons !== undefined && chosen !== undefined && (
        <div className="rejected">
          <ReasonList reasons={reasons} chosen={chosen} onChoose={choose} />
          <RejectedUsers key={`${range.value} ${chosen}`} reason={chosen} range={range} title={title} />
        </div>
      )}
    </Page>
  );
}

function showDetails(title: HTMLElement | null): void {
  title?.focus({ preventScroll: true });
  title?.scrollIntoView();
}

function RangeSwitch({ range }: { range: RejectedRange }) {
  const { path, query } = useAddress();
  const pathOf = (value: string): string => {
    const changed = new URLSearchParams(query);
    if (value === '') changed.delete('range');
    else changed.set('range', value);
    return changed.size === 0 ? path : `${path}?${changed}`;
  };
  return (
    <nav className="switch" aria-label="Range">
      {REJECTED_RANGES.map(({ value, label }) => (
        <Link
          key={value}
          className="switch__choice"
          to={pathOf(value)}
          aria-current={value === range.value ? 'true' : undefined}
        >
          {label}
        </Link>
      ))}
    </nav>
  );
}

function Total({ reasons, range }: { reasons: readonly RejectionReason[]; range: RejectedRange }) {
  const users = reasons.reduce((sum, one) => sum + one.users, 0);
  const isCut = reasons.length >= REASONS_MAX;
  return (
    <p className="rejected-total">
      <strong>
        {isCut && 'At least '}
        {formatNumber(users)} {users === 1 ? 'user' : 'users'}
      </strong>{' '}
      {range.words}, for {isCut && 'more than '}
      {formatNumber(reasons.length)} {reasons.length === 1 ? 'reason' : 'reasons'}.
    </p>
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

interface RejectedUsersProps {
  readonly reason: string;
  readonly range: RejectedRange;
  readonly title: Ref<HTMLHeadingElement>;
}

function RejectedUsers({ reason, range, title }: RejectedUsersProps) {
  const environment = useEnvironment();
  // Of when it was opened: a list that is read page by page must not move.
  const [from] = useState(() => fromQuery(range, Date.now()));
  const path = `/rejections?limit=${PAGE_USERS}&reason=${encodeURIComponent(reason)}&${from}`;
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
      <h2 className="rejected-title" tabIndex={-1} ref={title}>
        {reason}
      </h2>
      {mend !== '' && (
        <Notice tone="quiet" title="How to mend it">
          {mend}
        </Notice>
      )}
      {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading what="what was sent" />}
      {data !== undefined && users.length === 0 && (
        <Empty title={`None ${range.words}`}>
          <p>There may have been some before. What was rejected is kept for a limited time.</p>
        </Empty>
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
        <code className="muted">users[{userIndex}]</code>
        <Link to={`${viewPath(environment, 'traces')}/${traceId}`} title={traceId}>
          trace <span className="mono">…{traceId.slice(-TRACE_END_CHARACTERS)}</span>
        </Link>
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
