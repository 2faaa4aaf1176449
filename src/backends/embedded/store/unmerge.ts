/**
 * Unmerge (rule 16). Changed nodes are written to `invalidations`, and the processor drops them from its caches before its
 * next transaction.
 */

import type { AuditContext, UnmergeResult } from '../../../store.ts';
import { planUnmerge } from '../../../views/unmerge.ts';
import { writeUnmerge } from '../../sql/unmerge.ts';
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
  for (const [node, root] of plan.roots) {
    store.run('DELETE FROM aliases WHERE node = ?', node);
    if (node !== root) store.run('INSERT INTO aliases VALUES (?, ?)', node, root);
  }
  invalidate(store, { nodes: profile.nodes.map(({ node }) => node) });
  store.steps((tables) => writeUnmerge(tables, tenant, plan, audit, uuidBytes(audit.traceId)));
  return plan.result;
}
