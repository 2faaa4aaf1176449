/**
 * Rejected users, grouped by reason: how many, the last one, and for the reason that is open how to fix it and the users
 * as they were sent, each folded until it is opened, with the part marked that failed; those that were fixed are left
 * out. Reason and range stand in the address. What was sent is shown as text and nothing else. Below are dead letters,
 * and the jobs that resubmit and retry.
 */

import { useId, useState } from 'react';
import { Link, useAddress, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { fromQuery, REJECTED_RANGES, type RejectedRange, rejectedRangeOf } from '../rejected-range.ts';
import { adviceFor } from '../rejection-advice.ts';
import { formatNumber, Time, useNow } from '../time.tsx';
import type { Rejection, RejectionPage, RejectionReason, RejectionReasons } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Code, Json } from '../ui/code.tsx';
import { Empty } from '../ui/empty.tsx';
import { Icon } from '../ui/icons.tsx';
import { ListEnd } from '../ui/list-end.tsx';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { usePages } from '../use-pages.ts';
import { DeadLetters } from './dead-letters.tsx';
import { FixDialog } from './fix-dialog.tsx';
import { JobList } from './jobs.tsx';
import '../styles/rejected.css';
import '../styles/switch.css';

const RELOAD_MS = 10_000;
const PAGE_USERS = 20;

/** What the server gives of reasons. */
const REASONS_MAX = 100;
/** Ids of the same minute begin alike; the end distinguishes them. */
const TRACE_END_CHARACTERS = 12;
/** In the address: no reason is open. */
const NONE_OPEN = 'none';

export default function RejectedPage() {
  const [reason, setReason] = useQueryValue('reason');
  const [rangeValue] = useQueryValue('range');
  const range = rejectedRangeOf(rangeValue);
  const from = fromQuery(range, useNow());
  const { data, error, reload } = useData<RejectionReasons>(`/rejections/reasons?${from}`, { everyMs: RELOAD_MS });
  const [jobsMade, setJobsMade] = useState(0);
  /** The list of jobs is read again, and watched while one runs. */
  const startWatching = (): void => setJobsMade((count) => count + 1);
  const reasons = data?.reasons;
  const chosen = reason !== '' ? reason : reasons?.[0]?.reason;
  // One that was shared and is not among those of the range any more.
  const isMissing = reason !== '' && reason !== NONE_OPEN && reasons?.every((one) => one.reason !== reason) === true;
  return (
    <Page title="Rejected" actions={<RangeSwitch range={range} />}>
      <p className="lead">
        Users that failed a check and were not stored. They are kept for 7 days, unless SLUICE_REJECTION_RETENTION says
        otherwise. Fix them here and resubmit them: they are stored as if they had been sent like this.
      </p>
      {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
      {reasons === undefined && error === undefined && <Loading what="rejected users" />}
      {reasons?.length === 0 && reason === '' && (
        <Empty title="Nothing was rejected">
          <p>Every user received {range.words} was valid.</p>
        </Empty>
      )}
      {reasons !== undefined && reasons.length > 0 && <Total reasons={reasons} range={range} />}
      {reasons !== undefined && (
        <ul className="reasons" aria-label="Reasons">
          {reasons.map((one) => (
            <ReasonGroup
              key={one.reason}
              group={one}
              most={Math.max(...reasons.map(({ users }) => users))}
              range={range}
              isOpen={one.reason === chosen}
              onOpen={(isOpen) => setReason(isOpen ? one.reason : NONE_OPEN, { replace: true })}
              onFixed={() => {
                startWatching();
                reload();
              }}
            />
          ))}
        </ul>
      )}
      {isMissing && (
        <Empty title={`None ${range.words}`}>
          <p>
            No user was rejected with <q>{reason}</q>. There may have been some before: they are kept for a limited
            time.
          </p>
        </Empty>
      )}
      <DeadLetters onJob={startWatching} />
      <JobList key={jobsMade} onEnd={reload} />
    </Page>
  );
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

interface ReasonGroupProps {
  readonly group: RejectionReason;
  /** Users of the most frequent reason. */
  readonly most: number;
  readonly range: RejectedRange;
  readonly isOpen: boolean;
  readonly onOpen: (isOpen: boolean) => void;
  /** Some of them were resubmitted. */
  readonly onFixed: () => void;
}

function ReasonGroup({ group, most, range, isOpen, onOpen, onFixed }: ReasonGroupProps) {
  const { reason, users, resubmitted, last_at: lastAt } = group;
  const id = useId();
  return (
    <li className="reason-group">
      <button
        type="button"
        className="reason"
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => onOpen(!isOpen)}
      >
        <Icon name="next" />
        <span className="reason-text">{reason}</span>
        <span className="reason-figures">
          <strong>{formatNumber(users)}</strong> {users === 1 ? 'user' : 'users'}
          {resubmitted > 0 && `, ${formatNumber(resubmitted)} fixed`}, last <Time at={lastAt} relative />
        </span>
        <span className="reason-bar" aria-hidden="true">
          <span style={{ width: `${(100 * (users - resubmitted)) / most}%` }} />
        </span>
      </button>
      {isOpen && (
        <div id={id}>
          <RejectedUsers key={range.value} reason={reason} range={range} left={users - resubmitted} onFixed={onFixed} />
        </div>
      )}
    </li>
  );
}

interface RejectedUsersProps {
  readonly reason: string;
  readonly range: RejectedRange;
  /** How many are not fixed yet. */
  readonly left: number;
  readonly onFixed: () => void;
}

function RejectedUsers({ reason, range, left, onFixed }: RejectedUsersProps) {
  const [fixing, setFixing] = useState<Rejection>();
  // Of when it was opened: a list that is read page by page must not move.
  const [from] = useState(() => fromQuery(range, Date.now()));
  const path = `/rejections?limit=${PAGE_USERS}&resubmitted=false&reason=${encodeURIComponent(reason)}&${from}`;
  const since = new URLSearchParams(from).get('from');
  const list = usePages<RejectionPage>(path);
  const { fix } = adviceFor(reason);
  const users = list.pages.flatMap(({ rejections }) => rejections);
  return (
    <section className="rejected-users" aria-label="Rejected users">
      {fix !== '' && (
        <Notice tone="quiet" title="How to fix it">
          {fix}
        </Notice>
      )}
      {list.isLoading && <Loading what="what was sent" />}
      {users.map((user) => (
        <RejectedUser key={user.id} user={user} onFix={() => setFixing(user)} />
      ))}
      <ListEnd
        list={list}
        more="Show more"
        end={users.length === 0 ? `None ${range.words} are left to fix.` : 'That is every user that is left to fix.'}
      />
      <FixDialog
        rejection={fixing}
        filter={since === null ? { reason } : { reason, from: since }}
        count={left}
        onClose={() => setFixing(undefined)}
        onChange={() => {
          list.reload();
          onFixed();
        }}
      />
    </section>
  );
}

/** The reason is said above, without indexes: what is left is where in this user, which a message begins with. */
function placeIn(message: string): string {
  return (message.split(' ', 1)[0] ?? '').replace(/:$/, '');
}

function RejectedUser({ user, onFix }: { user: Rejection; onFix: () => void }) {
  const environment = useEnvironment();
  const { trace_id: traceId, userIndex, received_at: receivedAt, message, payload, payload_is_cut: isCut } = user;
  const { path } = adviceFor(message);
  return (
    <details className="rejected-sample">
      <summary>
        <Time at={receivedAt} /> <code className="muted">users[{userIndex}]</code>{' '}
        {message !== user.reason && <code className="rejected-place">{placeIn(message)}</code>}
      </summary>
      <p>
        <Link to={`${viewPath(environment, 'traces')}/${traceId}`} title={traceId}>
          trace <span className="mono">…{traceId.slice(-TRACE_END_CHARACTERS)}</span>
        </Link>
      </p>
      {isCut ? (
        <>
          <p className="muted">
            It was too large to keep whole, or a person was erased while it was waiting, so it cannot be changed here:
            send it corrected with <code>POST /rejections/{user.id}/resubmit</code>. What was kept:
          </p>
          <Code text={String(payload)} />
        </>
      ) : (
        <>
          <Json value={payload} {...(path !== null && { mark: path })} />
          <p>
            <Button onClick={onFix}>Fix and resubmit</Button>
          </p>
        </>
      )}
    </details>
  );
}
