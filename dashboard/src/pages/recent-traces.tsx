/**
 * The most recent requests, newest first, with what became of each in numbers. The status stands in the address. The
 * first page is kept fresh until older ones are asked for.
 */

import type { ReactNode } from 'react';
import { shortId } from '../identity-names.ts';
import { useKeyNames } from '../use-key-names.ts';
import { Link, navigate, useAddress, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import type { TracePage, TraceSummary } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Card } from '../ui/card.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';
import { Empty } from '../ui/empty.tsx';
import { ListEnd } from '../ui/list-end.tsx';
import { Loading } from '../ui/notice.tsx';
import { usePages } from '../use-pages.ts';
import '../styles/switch.css';

const RELOAD_MS = 5_000;
const STATUSES = [
  { value: '', label: 'All' },
  { value: 'pending', label: 'Pending' },
  { value: 'processed', label: 'Processed' },
] as const;

export function RecentTraces(): ReactNode {
  const environment = useEnvironment();
  const [asked] = useQueryValue('status');
  const status = STATUSES.find(({ value }) => value === asked)?.value ?? '';
  const list = usePages<TracePage>(status === '' ? '/traces' : `/traces?status=${status}`, { everyMs: RELOAD_MS });
  const keyName = useKeyNames();
  const traces = list.pages.flatMap((page) => page.traces);
  const columns: Column<TraceSummary>[] = [
    {
      key: 'received',
      label: 'Received',
      render: ({ trace_id: id, received_at: at }) => (
        <Link to={viewPath(environment, `traces/${id}`)}>
          <Time at={at} />
        </Link>
      ),
    },
    {
      key: 'status',
      label: 'Status',
      render: ({ status: is, duplicate_of: duplicateOf }) => (
        <span className="row">
          <Badge tone={is === 'processed' ? 'good' : 'warn'}>{is}</Badge>
          {duplicateOf !== null && <Badge tone="quiet">duplicate</Badge>}
        </span>
      ),
    },
    { key: 'accepted', label: 'Users accepted', align: 'end', render: (trace) => formatNumber(trace.users_accepted) },
    { key: 'rejected', label: 'Users rejected', align: 'end', render: RejectedUsers },
    { key: 'events', label: 'Events', align: 'end', render: ({ events }) => formatNumber(events) },
    { key: 'key', label: 'Key', render: ({ key_id: keyId }) => <bdi>{keyName(keyId)}</bdi> },
    {
      key: 'trace',
      label: 'trace_id',
      render: ({ trace_id: id }) => (
        <code className="whole" title={id}>
          {shortId(id)}
        </code>
      ),
    },
  ];
  return (
    <Card title="Recent requests" actions={<StatusSwitch status={status} />}>
      {list.isLoading && <Loading what="requests" />}
      {traces.length > 0 && (
        <DataTable
          caption="Requests, newest first"
          rows={traces}
          rowKey={({ trace_id: id }) => id}
          onRow={({ trace_id: id }) => navigate(viewPath(environment, `traces/${id}`))}
          columns={columns}
        />
      )}
      {!list.isLoading && traces.length === 0 && !list.hasMore && list.error === undefined ? (
        <NoTraces status={status} />
      ) : (
        <ListEnd list={list} more="Show older" end="These are all requests that are kept." />
      )}
    </Card>
  );
}

function RejectedUsers({ users_rejected: users }: TraceSummary): ReactNode {
  return users === 0 ? '0' : <Badge tone="bad">{formatNumber(users)}</Badge>;
}

function StatusSwitch({ status }: { status: string }): ReactNode {
  const { path } = useAddress();
  return (
    <nav className="switch" aria-label="Status">
      {STATUSES.map(({ value, label }) => (
        <Link
          key={value}
          className="switch__choice"
          to={value === '' ? path : `${path}?status=${value}`}
          aria-current={value === status ? 'true' : undefined}
        >
          {label}
        </Link>
      ))}
    </nav>
  );
}

function NoTraces({ status }: { status: string }): ReactNode {
  if (status === 'pending') {
    return (
      <Empty title="Nothing is pending">
        <p>Every request that was accepted has been processed.</p>
      </Empty>
    );
  }
  return (
    <Empty title="No requests yet">
      <p>
        Every response to a request with events has a trace_id, in the body and in the <code>X-Trace-Id</code> header:
        it shows which users were accepted, on which profiles their events are, and why others were rejected.
      </p>
      <p>
        A request that was rejected as a whole, for its key, its size or because it could not be read, has no trace:
        look for its id in the server’s log.
      </p>
    </Empty>
  );
}
