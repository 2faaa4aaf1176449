/**
 * Unmerge (rule 16). Changed nodes are written to `invalidations`, and the processor drops them from its caches before its
 * next transaction.
 */

import type { AuditContext, UnmergeResult } from '../../../store.ts';
import { planUnmerge } from '../../../views/unmerge.ts';
import { insertAudit } from '../../sql/audit.ts';
import { changedBy } from '../../sql/steps.ts';
import { LOCAL_SHARD } from '../../sql/store-tables.ts';
import { addToProfiles } from '../../sql/sums.ts';
import { invalidate } from './invalidations.ts';
import { idBytes, type StoreConnection } from './connection.ts';
import { mergesOf, nodesById } from './profiles.ts';
import { uuidBytes } from '../uuids.ts';

/** Rule 16. Undefined for an unknown profile. */
export function unmerge(
  store: StoreConnection,
  tenant: number,
  id: string,
  mergedBy: string,
  audit: AuditContext,
): UnmergeResult | undefined {
  const profile = nodesById(store, tenant, id);
  if (profile === undefined) return undefined;
  const cause = idBytes(mergedBy) === undefined ? null : mergedBy.toLowerCase();
  const plan = planUnmerge(profile, mergesOf(store, profile.nodes), cause);
  if (plan.undone.length === 0) return plan.result;
  for (const no of plan.undone) store.run('DELETE FROM merges WHERE no = ?', no);
  for (const [node, root] of plan.roots) {
    store.run('DELETE FROM aliases WHERE node = ?', node);
    if (node !== root) store.run('INSERT INTO aliases VALUES (?, ?)', node, root);
  }
  for (const { no, from, into } of plan.rewritten) {
    store.run('UPDATE merges SET from_node = ?, into_node = ? WHERE no = ?', from, into, no);
  }
  for (const [one, other] of plan.cannotLink) {
    const sql = 'INSERT INTO cannot_link VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING';
    store.run(sql, one, other, uuidBytes(audit.traceId), audit.at);
  }
  invalidate(store, { nodes: profile.nodes.map(({ node }) => node) });
  // Each removed edge had merged two profiles into one.
  store.steps(function* (tables) {
    yield* changedBy(addToProfiles(tables, LOCAL_SHARD, [[tenant, plan.undone.length]]));
    yield* changedBy(insertAudit(tables, tenant, 'unmerge', audit, plan.detail));
  });
  return plan.result;
}
