/**
 * The audit (rule 15): who unmerged or erased what, written in the transaction that does it. It holds no personal data and
 * is never removed. An erasure of several transactions has one entry: each adds what it removed, and the last one says
 * that it is finished. So whatever was removed is in the audit, also after a crash in between.
 */

import { parseJson } from '../../json/parse.ts';
import type { AuditContext, AuditQuery, AuditRow, Caller, Page } from '../../store.ts';
import { scopedCursorOf, scopedNumbersOf, pageOf } from '../../views/cursor.ts';
import { uuidOf } from '../../views/uuid.ts';
import { changedBy, rowsOf, type Steps, type Tables } from './steps.ts';

/** Newest first. No index for `traceId`: there are few entries, since people make them one by one. */
export function* listAudit(
  tables: Tables,
  tenant: number,
  { limit, cursor, traceId = null }: AuditQuery,
): Steps<Page<AuditRow>> {
  const [before = Number.MAX_SAFE_INTEGER] =
    cursor === null ? [] : scopedNumbersOf('audit', [tenant, traceId], cursor, 1);
  const uuid = traceId === null ? null : uuidOf(traceId);
  if (uuid === undefined) return { rows: [], nextCursor: null };
  const all = tables
    .selectFrom('audit')
    .select(['no', 'kind', 'trace_id as traceId', 'at', 'detail'])
    .where('tenant', '=', tenant)
    .where('no', '<', before)
    .orderBy('no', 'desc')
    .limit(limit + 1);
  const rows = yield* rowsOf(uuid === null ? all : all.where('trace_id', '=', uuid));
  return pageOf(
    rows,
    limit,
    ({ kind, traceId: id, at, detail }) => ({ kind, traceId: id, at, detail }),
    ({ no }) => scopedCursorOf('audit', [tenant, traceId], no),
  );
}

export function* insertAudit(
  tables: Tables,
  tenant: number,
  kind: AuditRow['kind'],
  { traceId, at, by }: AuditContext,
  detail: Readonly<Record<string, unknown>>,
): Steps<number> {
  const values = { tenant, kind, trace_id: traceId, at, detail: JSON.stringify({ ...detail, by }) };
  const [row] = yield* rowsOf(tables.insertInto('audit').values(values).returning('no'));
  return (row as NonNullable<typeof row>).no;
}

/** What one transaction of an erasure removed. */
interface ErasedPart {
  readonly profileId: string;
  readonly nodes: number;
  readonly events: number;
  /** Whether the person is gone with it. */
  readonly isFinished: boolean;
}

type ErasureDetail = {
  readonly profile_id: string;
  readonly nodes: number;
  readonly events: number;
  /** Left out once it is finished. */
  readonly is_finished?: false;
  readonly by?: Caller;
};

/**
 * Adds a part to the entry of an erasure, which the first part makes (`entry` is null). Returns the number of the entry.
 * Two transactions of one erasure cannot do this at once: each has locked the profile before.
 */
export function* auditErasure(
  tables: Tables,
  { tenant, audit }: { readonly tenant: number; readonly audit: AuditContext },
  entry: number | null,
  { profileId, nodes, events, isFinished }: ErasedPart,
): Steps<number> {
  const before = entry === null ? null : yield* readDetail(tables, entry);
  const detail: ErasureDetail = {
    profile_id: profileId,
    nodes: nodes + (before?.nodes ?? 0),
    events: events + (before?.events ?? 0),
    ...(!isFinished && { is_finished: false as const }),
  };
  if (entry === null) return yield* insertAudit(tables, tenant, 'erase', audit, detail);
  yield* writeDetail(tables, entry, { ...detail, by: audit.by });
  return entry;
}

/**
 * When the profile is not there (any more). If this erasure has removed events before, another one removed the rest of
 * the person: each has its part in the audit. False if this one removed nothing.
 */
export function* endErasure(tables: Tables, entry: number | null): Steps<boolean> {
  if (entry === null) return false;
  const { is_finished: _, ...detail } = yield* readDetail(tables, entry);
  yield* writeDetail(tables, entry, detail);
  return true;
}

function* readDetail(tables: Tables, entry: number): Steps<ErasureDetail> {
  const [row] = yield* rowsOf(tables.selectFrom('audit').select('detail').where('no', '=', entry));
  return parseJson((row as NonNullable<typeof row>).detail) as ErasureDetail;
}

function* writeDetail(tables: Tables, entry: number, detail: object): Steps<void> {
  yield* changedBy(
    tables
      .updateTable('audit')
      .set({ detail: JSON.stringify(detail) })
      .where('no', '=', entry),
  );
}
