/**
 * The users of one request: what became of each, in words. A request has up to 1,000; the first hundred are shown until
 * all are asked for. The filter stands in the address.
 */

import { type ReactNode, useState } from 'react';
import { shortId } from '../identity-names.ts';
import { labelOf } from '../person-name.ts';
import { withoutIndexes } from '../rejection-advice.ts';
import { Link, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import type { Environment } from '../api-constants.ts';
import type { Trace, TracedUser } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';

const USERS_SHOWN_MAX = 100;

export function TracedUsers({ trace }: { trace: Trace }): ReactNode {
  const [show, setShow] = useQueryValue('show');
  const [isAll, setIsAll] = useState(false);
  const environment = useEnvironment();
  const isRejectedOnly = show === 'rejected';
  const users = trace.users.filter(({ status }) => !isRejectedOnly || status === 'rejected');
  const shown = isAll ? users : users.slice(0, USERS_SHOWN_MAX);
  return (
    <Card
      title="Users of the request"
      actions={
        <label className="check">
          <input
            type="checkbox"
            checked={isRejectedOnly}
            onChange={(event) => setShow(event.target.checked ? 'rejected' : '', { replace: true })}
          />
          Rejected only
        </label>
      }
    >
      {users.length === 0 ? (
        <p className="muted">{isRejectedOnly ? 'None were rejected.' : emptyWords(trace)}</p>
      ) : (
        <DataTable
          caption="Users of the request"
          columns={columnsIn(environment, trace)}
          rows={shown}
          rowKey={({ userIndex }) => String(userIndex)}
        />
      )}
      {shown.length < users.length && (
        <p>
          <Button onClick={() => setIsAll(true)}>Show all {formatNumber(users.length)}</Button>
        </p>
      )}
    </Card>
  );
}

function emptyWords({ status, duplicate_of: duplicateOf }: Trace): string {
  if (duplicateOf !== null) return 'None of their own: it was a duplicate.';
  return status === 'pending'
    ? 'They are shown when the request is processed.'
    : 'Their details are not kept any more.';
}

function columnsIn(environment: Environment, trace: Trace): readonly Column<TracedUser>[] {
  return [
    { key: 'user', label: 'User', render: ({ userIndex }) => <code className="whole">users[{userIndex}]</code> },
    {
      key: 'status',
      label: 'Status',
      render: ({ status }) => <Badge tone={status === 'accepted' ? 'good' : 'bad'}>{status}</Badge>,
    },
    {
      key: 'profile',
      label: 'Person',
      render: (user) => <ProfileCell user={user} trace={trace} environment={environment} />,
    },
    { key: 'events', label: 'Events', align: 'end', render: ({ events }) => formatNumber(events) },
    {
      key: 'words',
      label: 'Notes',
      render: (user) => <Words user={user} trace={trace} environment={environment} />,
    },
  ];
}

interface CellProps {
  readonly user: TracedUser;
  readonly trace: Trace;
  readonly environment: Environment;
}

function ProfileCell({ user, trace, environment }: CellProps): ReactNode {
  const { profile_id: id } = user;
  if (id !== null) {
    return (
      <Link to={viewPath(environment, `people/${id}`)} title={id}>
        <bdi>{labelOf(id, user.person)}</bdi>
      </Link>
    );
  }
  if (user.status === 'accepted' && trace.duplicate_of !== null) {
    return (
      <>
        see <TraceLink id={trace.duplicate_of} environment={environment} />
      </>
    );
  }
  return <span className="muted">{noProfileWords(user, trace)}</span>;
}

/** How the server's warning begins when a user came too late to be stored. */
const NOT_STORED = 'not stored: ';
/** And when no identifier could be matched, such as a placeholder. */
const NO_PROFILE = 'stored without a profile: ';

function noProfileWords({ status, duplicate_events: duplicates = 0, warnings }: TracedUser, trace: Trace): string {
  if (status === 'rejected') return 'none';
  if (trace.status === 'pending') return 'not yet';
  if (warnings.some((warning) => warning.startsWith(NOT_STORED))) return 'none';
  if (warnings.some((warning) => warning.startsWith(NO_PROFILE))) return 'no profile';
  return duplicates > 0 ? 'none: nothing new' : 'erased, or expired';
}

function TraceLink({ id, environment }: { id: string; environment: Environment }): ReactNode {
  return (
    <>
      request{' '}
      <Link to={viewPath(environment, `traces/${id}`)} className="mono whole" title={id}>
        {shortId(id)}
      </Link>
    </>
  );
}

function Words({ user, trace, environment }: CellProps): ReactNode {
  const { message, merged, warnings, duplicate_events: duplicates = 0, profile_id: profileId } = user;
  if (user.status === 'accepted' && trace.duplicate_of !== null && warnings.length === 0) {
    return 'A duplicate: nothing of it was stored again.';
  }
  const { resubmitted } = user;
  const isPlain = message === null && merged.length === 0 && warnings.length === 0 && duplicates === 0;
  if (isPlain && resubmitted === undefined) {
    return <span className="muted">nothing special</span>;
  }
  return (
    <ul className="words">
      {resubmitted !== undefined && (
        <li>
          <Badge tone="quiet">fixed</Badge> Rejected at first, then resubmitted <Time at={resubmitted.at} />.
        </li>
      )}
      {message !== null && (
        <li>
          <bdi className="words__message">{message}</bdi>.{' '}
          <Link
            to={`${viewPath(environment, 'rejected')}?range=all&reason=${encodeURIComponent(withoutIndexes(message))}`}
          >
            What was sent, and how to fix it
          </Link>
        </li>
      )}
      {merged.map(({ from, into }) => (
        <li key={from}>
          Merged profile <code title={from}>{shortId(from)}</code> into <code title={into}>{shortId(into)}</code>.{' '}
          {profileId !== null && (
            <Link to={`${viewPath(environment, `people/${profileId}`)}?tab=identity`}>See the identity graph</Link>
          )}
        </li>
      ))}
      {warnings.map((warning) => (
        <li key={warning}>
          <Badge tone="warn">warning</Badge> {warning}
        </li>
      ))}
      {duplicates > 0 && (
        <li>
          {formatNumber(duplicates)} {duplicates === 1 ? 'event was' : 'events were'} there already, by $event_id.
        </li>
      )}
    </ul>
  );
}
