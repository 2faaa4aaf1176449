/**
 * What an unmerge (rule 16, `views/unmerge.ts`) changes besides the roots of nodes: merges, pairs that may not be linked
 * again, the audit and the number of profiles. Each engine sets the roots, and notifies writers that cache them, in the
 * same transaction.
 */

import type { AuditContext } from '../../store.ts';
import type { UnmergePlan } from '../../views/unmerge.ts';
import { insertAudit } from './audit.ts';
import { changedBy, chunksOf, type Steps, type Tables } from './steps.ts';
import { LOCAL_SHARD, type StoreTables } from './store-tables.ts';
import { addToProfiles } from './sums.ts';

/** `traceId` is that of the audit, as the engine stores it. */
export function* writeUnmerge(
  tables: Tables,
  tenant: number,
  { undone, rewritten, cannotLink, detail }: UnmergePlan,
  audit: AuditContext,
  traceId: StoreTables['cannot_link']['trace_id'],
): Steps<void> {
  for (const some of chunksOf(undone)) yield* changedBy(tables.deleteFrom('merges').where('no', 'in', some));
  for (const { no, from, into } of rewritten) {
    yield* changedBy(tables.updateTable('merges').set({ from_node: from, into_node: into }).where('no', '=', no));
  }
  for (const some of chunksOf(cannotLink)) {
    const rows = some.map(([one, other]) => ({ node_a: one, node_b: other, trace_id: traceId, at: audit.at }));
    yield* changedBy(
      tables
        .insertInto('cannot_link')
        .values(rows)
        .onConflict((conflict) => conflict.doNothing()),
    );
  }
  yield* insertAudit(tables, tenant, 'unmerge', audit, detail);
  // Each removed merge had made one profile of two.
  yield* addToProfiles(tables, LOCAL_SHARD, [[tenant, undone.length]]);
}
