/**
 * The audit: what was done to people through the API or this page, newest first, by whom, and what became of it. It holds
 * ids and counts only. Older entries come when they are asked for.
 */

import type { ReactNode } from 'react';
import { shortId } from '../identity-names.ts';
import { useKeyNames } from '../use-key-names.ts';
import { Link, navigate, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import type { AuditEntry, AuditPage, MemberList } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Card } from '../ui/card.tsx';
import { DataTable } from '../ui/data-table.tsx';
import { Empty } from '../ui/empty.tsx';
import { ListEnd } from '../ui/list-end.tsx';
import { Loading } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { usePages } from '../use-pages.ts';
import { fieldOf, KIND_WORDS } from './trace-audit-entry.tsx';

export default function Audit(): ReactNode {
  const environment = useEnvironment();
  const actorName = useActorName();
  const list = usePages<AuditPage>('/audit');
  const entries = list.pages.flatMap((page) => page.entries);
  const pathOf = ({ trace_id: id }: AuditEntry): string => viewPath(environment, `traces/${id}`);
  const isEmpty = !list.isLoading && entries.length === 0 && list.error === undefined;
  return (
    <Page title="Audit">
      <p className="lead">Every erasure, unmerge, resubmit and retry in {environment}, without personal data.</p>
      {list.isLoading && <Loading what="the audit" />}
      {entries.length > 0 && (
        <Card>
          <DataTable
            caption="Audit entries, newest first"
            rows={entries}
            rowKey={({ trace_id: id }) => id}
            onRow={(entry) => navigate(pathOf(entry))}
            columns={[
              { key: 'at', label: 'When', render: ({ at }) => <Time at={at} /> },
              {
                key: 'kind',
                label: 'What',
                render: ({ kind }) => (
                  <Badge tone={kind === 'erase' ? 'bad' : 'quiet'}>{KIND_WORDS[kind] ?? kind}</Badge>
                ),
              },
              { key: 'by', label: 'By', render: (entry) => <bdi>{actorName(entry)}</bdi> },
              { key: 'detail', label: 'Details', render: (entry) => <Details entry={entry} /> },
              {
                key: 'trace',
                label: 'trace_id',
                render: (entry) => (
                  <Link to={pathOf(entry)} className="mono whole" title={entry.trace_id}>
                    {shortId(entry.trace_id)}
                  </Link>
                ),
              },
            ]}
          />
        </Card>
      )}
      {isEmpty ? (
        <Empty title="Nothing was erased or unmerged">
          <p>When a person is erased, or a merge is undone, it is listed here.</p>
        </Empty>
      ) : (
        <ListEnd list={list} more="Show older" end="That is everything in the audit." />
      )}
    </Page>
  );
}

/** A key, or a member of the account; entries of before this was kept have neither. */
function useActorName(): (entry: AuditEntry) => string {
  const { data } = useData<MemberList>('/members');
  const keyName = useKeyNames();
  return ({ detail }) => {
    const by = fieldOf(detail, 'by');
    const [keyId, memberId] = [fieldOf(by, 'key_id'), fieldOf(by, 'member_id')];
    if (typeof keyId === 'string') return `key ${keyName(keyId)}`;
    if (typeof memberId !== 'string') return 'not known';
    const member = data?.members.find(({ id }) => id === memberId);
    return member?.email ?? `member ${shortId(memberId)}`;
  };
}

function Details({ entry: { kind, detail } }: { entry: AuditEntry }): ReactNode {
  const environment = useEnvironment();
  if (kind === 'resubmit' || kind === 'retry') {
    const matched = Number(fieldOf(detail, 'matched'));
    const [one, many] = kind === 'resubmit' ? ['rejected user', 'rejected users'] : ['dead letter', 'dead letters'];
    return `${formatNumber(matched)} ${matched === 1 ? one : many}`;
  }
  if (kind === 'erase') {
    const [id, events] = [fieldOf(detail, 'profile_id'), fieldOf(detail, 'events')];
    return (
      <>
        Profile <code title={String(id)}>{shortId(String(id))}</code>
        {typeof events === 'number' && `, ${formatNumber(events)} ${events === 1 ? 'event' : 'events'}`}
        {fieldOf(detail, 'is_finished') === false && ', not finished'}
      </>
    );
  }
  const ids = fieldOf(detail, 'profile_ids');
  const [first] = Array.isArray(ids) ? (ids as unknown[]).filter((id) => typeof id === 'string') : [];
  const undone = fieldOf(detail, 'undone');
  return (
    <>
      {typeof undone === 'number' && `${formatNumber(undone)} ${undone === 1 ? 'merge' : 'merges'} undone`}
      {first !== undefined && (
        <>
          {' '}
          of <Link to={viewPath(environment, `people/${first}`)}>{shortId(first)}</Link>
        </>
      )}
    </>
  );
}
