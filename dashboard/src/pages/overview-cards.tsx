/**
 * The smaller cards of the overview: the most frequent event names and reasons of rejection, whether the server keeps
 * up, and whether every event is accounted for. Each loads its own data and shows its own error. Names and
 * reasons hold what clients sent, and are shown as text.
 */

import type { ReactNode } from 'react';
import type { ApiError } from '../api.ts';
import { type CountPiece, countPieces, type Range, type RangeName, timesQuery } from '../overview-range.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { formatBytes, formatDuration, formatNumber, Time } from '../time.tsx';
import type { CountBucket, Counts, Health, Ledger, LedgerSums, RejectionReasons } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Card } from '../ui/card.tsx';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { type Data, useData } from '../use-data.ts';
import { Meter } from './meter.tsx';
import { differenceWords, topNames } from './overview-figures.ts';
import { refusalWords } from './request-outcomes.ts';

const HEALTH_RELOAD_MS = 5_000;
const LISTS_RELOAD_MS = 10_000;
const NAMES_MAX = 8;
const REASONS_MAX = 6;

/** The counts by name of a range, in as few questions as give them exactly; undefined while not all are there. */
function useNames(range: Range): { readonly buckets: CountBucket[] | undefined; readonly data: Data<Counts> } {
  const pieces = countPieces(range);
  const options = { everyMs: LISTS_RELOAD_MS, isMoving: true };
  const pathOf = (piece: CountPiece | undefined): string | null =>
    piece === undefined ? null : `/events/counts?interval=${piece.interval}&group_by=event_name&${timesQuery(piece)}`;
  // Always three, of which those without a piece ask nothing.
  const first = useData<Counts>(pathOf(pieces[0]), options);
  const second = useData<Counts>(pathOf(pieces[1]), options);
  const third = useData<Counts>(pathOf(pieces[2]), options);
  const asked = [first, second, third].slice(0, pieces.length);
  const found = asked.flatMap(({ data }) => (data === undefined ? [] : [data.buckets]));
  const failed = asked.find(({ error }) => error !== undefined);
  return { buckets: found.length === asked.length ? found.flat() : undefined, data: failed ?? first };
}

export function NamesCard({ range }: { range: Range }): ReactNode {
  const environment = useEnvironment();
  const { buckets, data } = useNames(range);
  const { error, readAt, reload } = data;
  const names = topNames(buckets ?? [], NAMES_MAX);
  const most = names[0]?.events ?? 1;
  return (
    <Card title="Top events">
      {error !== undefined && <CardError error={error} readAt={readAt} onRetry={reload} />}
      {buckets === undefined && error === undefined && <Loading what="event names" />}
      {buckets !== undefined && names.length === 0 && <p className="muted">No events in this time.</p>}
      <ol className="ranking">
        {names.map(({ name, events }) => (
          <li key={name} className="ranking__row">
            <Link className="ranking__name" to={`${viewPath(environment, 'live')}?name=${encodeURIComponent(name)}`}>
              {name}
            </Link>
            <span className="ranking__count">{formatNumber(events)}</span>
            <span className="ranking__bar" aria-hidden="true">
              <span style={{ width: `${(100 * events) / most}%` }} />
            </span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

/** The range of the page of rejected users that has all of these in it. */
const REJECTED_RANGE: Readonly<Record<RangeName, string>> = {
  '1h': '1h',
  '24h': '24h',
  '7d': 'all',
  '30d': 'all',
  '90d': 'all',
  custom: 'all',
};

export function ReasonsCard({ range }: { range: Range }): ReactNode {
  const environment = useEnvironment();
  const { data, error, readAt, reload } = useData<RejectionReasons>(`/rejections/reasons?${timesQuery(range)}`, {
    everyMs: LISTS_RELOAD_MS,
    isMoving: true,
  });
  const reasons = data?.reasons.slice(0, REASONS_MAX) ?? [];
  const most = reasons[0]?.users ?? 1;
  const rejectedPath = `${viewPath(environment, 'rejected')}?range=${REJECTED_RANGE[range.name]}`;
  return (
    <Card title="Why users were rejected" actions={<Link to={rejectedPath}>All rejected</Link>}>
      {error !== undefined && <CardError error={error} readAt={readAt} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading what="reasons" />}
      {data !== undefined && reasons.length === 0 && (
        <p className="muted">No rejected users are kept from this time.</p>
      )}
      <ol className="ranking ranking--bad">
        {reasons.map(({ reason, users, last_at: lastAt }) => (
          <li key={reason} className="ranking__row">
            <Link className="ranking__name" to={`${rejectedPath}&reason=${encodeURIComponent(reason)}`}>
              {reason}
            </Link>
            <span className="ranking__count">{formatNumber(users)}</span>
            <span className="ranking__bar" aria-hidden="true">
              <span style={{ width: `${(100 * users) / most}%` }} />
            </span>
            <span className="ranking__detail">
              last <Time at={lastAt} relative />
            </span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

/** Whether the server processes events as fast as it receives them. */
export function FlowCard(): ReactNode {
  const environment = useEnvironment();
  const { data, error, readAt, reload } = useData<Health>('/health', { everyMs: HEALTH_RELOAD_MS });
  return (
    <Card title="Processing" actions={<Link to={viewPath(environment, 'health')}>Health</Link>}>
      {error !== undefined && <CardError error={error} readAt={readAt} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading what="health" />}
      {data !== undefined && (
        <>
          {error === undefined && <Readiness health={data} />}
          <Refusals requests={data.requests} />
          <dl className="pairs">
            {data.lag_seconds !== null && (
              <>
                <dt>Lag</dt>
                <dd>
                  {formatDuration(data.lag_seconds)} <span className="muted">from receipt to reading back</span>
                </dd>
              </>
            )}
            <dt>Backlog</dt>
            <dd>
              {formatBytes(data.backlog_bytes ?? 0)}{' '}
              <span className="muted">of {formatBytes(data.backlog_bytes_max)}</span>
              <Meter
                label="Backlog"
                value={data.backlog_bytes ?? 0}
                max={data.backlog_bytes_max}
                warnAbove={0.5}
                badAbove={0.8}
              />
            </dd>
            {data.disk_free_bytes !== null && (
              <>
                <dt>Free disk</dt>
                <dd>{formatBytes(data.disk_free_bytes)}</dd>
              </>
            )}
            <dt>Memory</dt>
            <dd>{formatBytes(data.memory_bytes)}</dd>
            <dt>Up since</dt>
            <dd>
              <Time at={data.started_at} />
            </dd>
          </dl>
        </>
      )}
    </Card>
  );
}

function Readiness({ health: { status, reasons } }: { health: Health }): ReactNode {
  const isReady = status === 'ready';
  return (
    <p className="row">
      <Badge tone={isReady ? 'good' : 'bad'}>{isReady ? 'Ready' : 'Not ready'}</Badge>
      <span>{reasons.length > 0 ? reasons.join('; ') : 'Events are accepted.'}</span>
    </p>
  );
}

/** Whose key is refused sees nothing of it on the page but this. */
function Refusals({ requests }: { requests: Health['requests'] }): ReactNode {
  const environment = useEnvironment();
  const words = refusalWords(requests);
  if (words === null) return null;
  return (
    <p>
      {words} <Link to={viewPath(environment, 'health')}>What it means</Link>
    </p>
  );
}

/** Says of what stands below it that it is not of now. */
export function AsOf({ readAt }: { readAt: number | undefined }): ReactNode {
  if (readAt === undefined) return null;
  return (
    <p className="row">
      <Badge tone="warn">Old</Badge>
      <span>
        As of <Time at={new Date(readAt).toISOString()} />, when the server last responded.
      </span>
    </p>
  );
}

/** That the server does not respond is shown once, above all cards. */
function CardError(props: { error: ApiError; readAt: number | undefined; onRetry: () => void }): ReactNode {
  const { error, readAt, onRetry } = props;
  if (error.status !== 0) return <ErrorNotice error={error} onRetry={onRetry} />;
  return readAt === undefined ? <p className="muted">Not known yet.</p> : <AsOf readAt={readAt} />;
}

interface LedgerCardProps {
  readonly ledger: Ledger;
  readonly error: ApiError | undefined;
  readonly readAt: number | undefined;
  readonly onRetry: () => void;
}

const LEDGER_LINES: readonly { readonly name: keyof LedgerSums; readonly label: string; readonly isRare: boolean }[] = [
  { name: 'received', label: 'Received', isRare: false },
  { name: 'stored', label: 'Stored', isRare: false },
  { name: 'duplicates', label: 'Duplicates', isRare: true },
  { name: 'erased', label: 'Erased', isRare: true },
  { name: 'expired', label: 'Expired', isRare: true },
  { name: 'dead_letters', label: 'Failed', isRare: true },
  { name: 'pending', label: 'Pending', isRare: false },
];

export function LedgerCard({ ledger, error, readAt, onRetry }: LedgerCardProps): ReactNode {
  const { balanced, missing_records: missing, totals } = ledger;
  const { dropped_by_clients: dropped } = totals;
  const lines = LEDGER_LINES.filter(({ name, isRare }) => !isRare || totals.users[name] > 0 || totals.events[name] > 0);
  return (
    <Card
      title="Reconciliation"
      actions={
        <Badge tone={balanced ? 'good' : 'bad'}>{balanced ? 'Every event is accounted for' : 'Does not add up'}</Badge>
      }
    >
      {error !== undefined && <CardError error={error} readAt={readAt} onRetry={onRetry} />}
      {missing > 0 && (
        <Notice
          tone="bad"
          title={`The event log has lost ${formatNumber(missing)} ${missing === 1 ? 'request' : 'requests'}`}
        >
          <p>
            New requests are safe. <code>npx sluice doctor</code> says which are missing and what to do.
          </p>
        </Notice>
      )}
      {!balanced && missing === 0 && (
        <Notice tone="bad" title={differenceWords(totals.users, totals.events)}>
          <p>
            This is a bug in Sluice. <code>npx sluice doctor</code> shows which hours it is in.
          </p>
        </Notice>
      )}
      <table className="ledger">
        <caption className="for-screen-readers">What happened to everything that was ever received</caption>
        <thead>
          <tr>
            <th scope="col">
              <span className="for-screen-readers">Outcome</span>
            </th>
            <th scope="col">Users</th>
            <th scope="col">Events</th>
          </tr>
        </thead>
        <tbody>
          {lines.map(({ name, label }) => (
            <tr key={name}>
              <th scope="row">{label}</th>
              <td>{formatNumber(totals.users[name])}</td>
              <td>{formatNumber(totals.events[name])}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="muted small">All time: everything received is in exactly one of the other lines.</p>
      {dropped > 0 && (
        <Notice tone="warn" title={`Clients dropped ${formatNumber(dropped)} ${dropped === 1 ? 'event' : 'events'}`}>
          <p>Their queues were full, so these were never received. They are not part of the lines above.</p>
        </Notice>
      )}
    </Card>
  );
}
