/**
 * The audit (rule 15): who unmerged or erased what, written in the transaction that does it. It holds no personal data and
 * is never removed.
 */

import type { AuditContext, AuditQuery, AuditRow, Page } from '../../store.ts';
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
): Steps<void> {
  const row = { tenant, kind, trace_id: traceId, at, detail: JSON.stringify({ ...detail, by }) };
  yield* changedBy(tables.insertInto('audit').values(row));
}
