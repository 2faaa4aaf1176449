/**
 * The most recent requests, and what became of one: paste its trace_id. While it is pending, the view asks again every second. An id that is of
 * no request is looked for in the audit. The trace_id and the filter stand in the address.
 */

import { type FormEvent, type ReactNode, useState } from 'react';
import { Link, navigate, useAddress, useEnvironment, viewOf, viewPath } from '../router.tsx';
import { useSession } from '../session.tsx';
import { formatDuration, formatNumber, Time } from '../time.tsx';
import { traceIdOf } from '../trace-id.ts';
import type { KeyList, Trace } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { CopyButton } from '../ui/copy-button.tsx';
import { Empty } from '../ui/empty.tsx';
import { TextField } from '../ui/field.tsx';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { RecentTraces } from './recent-traces.tsx';
import { TraceAuditEntry } from './trace-audit-entry.tsx';
import { TracedUsers } from './traced-users.tsx';
import '../styles/person.css';

const PENDING_RELOAD_MS = 1_000;

export default function TracePage(): ReactNode {
  const asked = viewOf(useAddress().path)?.split('/')[1] ?? '';
  const traceId = traceIdOf(asked);
  return (
    <Page title="Traces">
      <Card>
        <TraceForm asked={asked} />
      </Card>
      {asked === '' && <RecentTraces />}
      {traceId !== undefined && <TraceView traceId={traceId} />}
    </Page>
  );
}

const NOT_A_TRACE = 'That is not a trace_id. One looks like this: 01a1ddc0-5109-7246-bf39-3425125c6c6d';

function TraceForm({ asked }: { asked: string }): ReactNode {
  const environment = useEnvironment();
  const [typed, setTyped] = useState(traceIdOf(asked) ?? asked);
  const [isWrong, setIsWrong] = useState(asked !== '' && traceIdOf(asked) === undefined);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const traceId = traceIdOf(typed);
    setIsWrong(traceId === undefined);
    if (traceId !== undefined) navigate(viewPath(environment, `traces/${traceId}`));
  };
  return (
    <search>
      <form className="form-row form-row--search" onSubmit={submit}>
        <TextField
          label="trace_id"
          hint="An event id, which begins with its trace_id, works too."
          error={isWrong ? NOT_A_TRACE : undefined}
          value={typed}
          autoComplete="off"
          autoCapitalize="none"
          spellCheck={false}
          className="mono-field"
          onChange={(event) => setTyped(event.target.value)}
        />
        <Button kind="primary" type="submit">
          Look up
        </Button>
      </form>
    </search>
  );
}

function TraceView({ traceId }: { traceId: string }): ReactNode {
  const [isPending, setIsPending] = useState(false);
  const { data, error, reload } = useData<Trace>(
    `/traces/${traceId}?include=person`,
    isPending ? { everyMs: PENDING_RELOAD_MS } : {},
  );
  // Known from the first response on, so that a request that is processed is asked for once.
  const isPendingNow = data?.status === 'pending' && data.failed_at === undefined && error === undefined;
  if (isPending !== isPendingNow) setIsPending(isPendingNow);
  if (error?.status === 404)
    return <TraceAuditEntry traceId={traceId} otherwise={<UnknownTrace traceId={traceId} />} />;
  if (error !== undefined && data === undefined) return <ErrorNotice error={error} onRetry={reload} />;
  if (data === undefined) return <Loading what="the trace" />;
  return (
    <>
      <TraceHead trace={data} />
      {data.duplicate_of !== null && <Duplicate of={data.duplicate_of} />}
      <TracedUsers trace={data} />
    </>
  );
}

function TraceHead({ trace }: { trace: Trace }): ReactNode {
  const { status, received_at: received, processed_at: processed, failed_at: failed } = trace;
  return (
    <Card
      title={
        <span className="row">
          Request{' '}
          {failed === undefined ? (
            <Badge tone={status === 'processed' ? 'good' : 'warn'}>{status}</Badge>
          ) : (
            <Badge tone="bad">failed</Badge>
          )}
        </span>
      }
      actions={<CopyButton text={trace.trace_id} label="Copy trace_id" />}
    >
      {failed !== undefined && (
        <output>
          It could not be processed and became a dead letter. It is kept: its cause, and how to retry it, are under
          Rejected.
        </output>
      )}
      {status === 'pending' && failed === undefined && (
        <output>
          It is safe on disk and will be processed in a moment. This view shows it as soon as that is done.
        </output>
      )}
      <dl className="facts">
        <div>
          <dt>Received</dt>
          <dd>
            <Time at={received} />
          </dd>
        </div>
        <div>
          <dt>Processed</dt>
          <dd>
            {processed === null ? (
              'not yet'
            ) : (
              <>
                <Time at={processed} />{' '}
                <span className="muted">
                  after {formatDuration((Date.parse(processed) - Date.parse(received)) / 1_000)}
                </span>
              </>
            )}
          </dd>
        </div>
        <div>
          <dt>Users accepted</dt>
          <dd>{formatNumber(trace.users_accepted)}</dd>
        </div>
        <div>
          <dt>Users rejected</dt>
          <dd>{formatNumber(trace.users_rejected)}</dd>
        </div>
        <KeyFact keyId={trace.key_id ?? null} />
      </dl>
    </Card>
  );
}

function KeyFact({ keyId }: { keyId: string | null }): ReactNode {
  const environment = useEnvironment();
  const { data } = useData<KeyList>(keyId === null ? null : '/keys');
  if (keyId === null) return null;
  const key = data?.keys.find(({ id }) => id === keyId);
  return (
    <div>
      <dt>Key</dt>
      <dd>
        {key === undefined ? (
          <code>{keyId}</code>
        ) : (
          <Link to={`${viewPath(environment, 'settings/keys')}?show=all`}>
            {key.name} <span className="mono">…{key.last_four}</span>
          </Link>
        )}
      </dd>
    </div>
  );
}

function Duplicate({ of }: { of: string }): ReactNode {
  const environment = useEnvironment();
  return (
    <Notice tone="warn" title="This was a duplicate.">
      <p>
        It is a retry: its Idempotency-Key and its body are those of an earlier request. Only users that the earlier
        request rejected and that are accepted now are stored with it:{' '}
        <Link to={viewPath(environment, `traces/${of}`)} className="mono">
          {of}
        </Link>
        .
      </p>
    </Notice>
  );
}

function UnknownTrace({ traceId }: { traceId: string }): ReactNode {
  const environment = useEnvironment();
  const others = useSession().environments.filter((one) => one !== environment);
  return (
    <Empty title={`No such request in ${environment}`}>
      <p>
        <code>{traceId}</code>
      </p>
      <ul className="bullets">
        <li>It may have been sent with a key for the other environment, or of another account.</li>
        <li>It may be older than traces are kept.</li>
        <li>
          The request may have been rejected for its key or its size, or because it could not be read. Such a request
          has no trace; look for the id in the server’s own log.
        </li>
        <li>A character may be missing or wrong.</li>
      </ul>
      {others.map((other) => (
        <p key={other}>
          <Link to={viewPath(other, `traces/${traceId}`)} className="button button--plain">
            Look in {other}
          </Link>
        </p>
      ))}
    </Empty>
  );
}
