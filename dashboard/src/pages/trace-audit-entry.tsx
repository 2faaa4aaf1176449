/**
 * An unmerge, an erasure, a resubmit or a retry, by the trace_id of its response. Requests have traces, these are in the audit: a view that
 * looks for an id has to ask both. The detail has ids and counts only, and is read as something that may be anything.
 */

import type { ReactNode } from 'react';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import type { AuditEntry, AuditPage } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Card } from '../ui/card.tsx';
import { Json } from '../ui/code.tsx';
import { CopyButton } from '../ui/copy-button.tsx';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { useData } from '../use-data.ts';

interface TraceAuditEntryProps {
  readonly traceId: string;
  /** What to show when the audit does not know it either. */
  readonly otherwise: ReactNode;
}

export function TraceAuditEntry({ traceId, otherwise }: TraceAuditEntryProps): ReactNode {
  const { data, error, isLoading, reload } = useData<AuditPage>(`/audit?trace_id=${traceId}`);
  if (error !== undefined) return <ErrorNotice error={error} onRetry={reload} />;
  if (data === undefined || isLoading) return <Loading what="the audit" />;
  const [entry] = data.entries;
  return entry === undefined ? otherwise : <AuditEntryCard entry={entry} />;
}

export const KIND_WORDS: Readonly<Record<string, string>> = {
  erase: 'Erasure',
  unmerge: 'Unmerge',
  resubmit: 'Resubmit',
  retry: 'Retry',
};

const OF_PERSON = 'This was not an ingest request, but an unmerge or an erasure.';
const OF_MANY = 'This was not an ingest request, but a job: rejected users were fixed, or dead letters retried.';

function AuditEntryCard({ entry }: { entry: AuditEntry }): ReactNode {
  const isOfPerson = entry.kind === 'erase' || entry.kind === 'unmerge';
  return (
    <Card
      title={
        <span className="row">
          {KIND_WORDS[entry.kind] ?? entry.kind} <Badge tone="quiet">from the audit</Badge>
        </span>
      }
      actions={<CopyButton text={entry.trace_id} label="Copy trace_id" />}
    >
      <p>{isOfPerson ? OF_PERSON : OF_MANY}</p>
      <dl className="facts">
        <div>
          <dt>Done</dt>
          <dd>
            <Time at={entry.at} />
          </dd>
        </div>
        {entry.kind === 'unmerge' && <UnmergeFacts detail={entry.detail} />}
        {entry.kind === 'erase' && <EraseFacts detail={entry.detail} />}
        {!isOfPerson && <Count label="How many" value={fieldOf(entry.detail, 'matched')} />}
      </dl>
      <details>
        <summary>As it is in the audit</summary>
        <Json value={entry.detail} />
      </details>
    </Card>
  );
}

function UnmergeFacts({ detail }: { detail: unknown }): ReactNode {
  const environment = useEnvironment();
  const mergedBy = fieldOf(detail, 'merged_by');
  const profileIds = fieldOf(detail, 'profile_ids');
  const ids = Array.isArray(profileIds) ? profileIds.filter((id) => typeof id === 'string') : [];
  return (
    <>
      <Count label="Merges undone" value={fieldOf(detail, 'undone')} />
      {typeof mergedBy === 'string' && (
        <div>
          <dt>They were made by request</dt>
          <dd>
            <Link to={viewPath(environment, `traces/${mergedBy}`)} className="mono">
              {mergedBy}
            </Link>
          </dd>
        </div>
      )}
      {ids.length > 0 && (
        <div>
          <dt>Profiles since then</dt>
          {ids.map((id) => (
            <dd key={id}>
              <Link to={viewPath(environment, `people/${id}`)} className="mono">
                {id}
              </Link>
            </dd>
          ))}
        </div>
      )}
    </>
  );
}

function EraseFacts({ detail }: { detail: unknown }): ReactNode {
  const profileId = fieldOf(detail, 'profile_id');
  const isFinished = fieldOf(detail, 'is_finished') !== false;
  return (
    <>
      {typeof profileId === 'string' && (
        <div>
          <dt>{isFinished ? 'Profile, gone since' : 'Profile, not finished'}</dt>
          <dd>
            <code>{profileId}</code>
          </dd>
        </div>
      )}
      <Count label={isFinished ? 'Events erased' : 'Events erased so far'} value={fieldOf(detail, 'events')} />
    </>
  );
}

function Count({ label, value }: { label: string; value: unknown }): ReactNode {
  if (typeof value !== 'number') return null;
  return (
    <div>
      <dt>{label}</dt>
      <dd>{formatNumber(value)}</dd>
    </div>
  );
}

export function fieldOf(detail: unknown, name: string): unknown {
  if (typeof detail !== 'object' || detail === null || !Object.hasOwn(detail, name)) return undefined;
  return (detail as Readonly<Record<string, unknown>>)[name];
}
