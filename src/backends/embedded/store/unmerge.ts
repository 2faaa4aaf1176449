/**
 * Unmerge (rule 16), and the write transaction that it shares with erase (store/erase.ts).
 *
 * The processor holds the write lock most of the time. An unmerge or erase requests it (runtime/write-lock-request.ts) and
 * tries to get it every millisecond. Waiting does not block: reads continue. The commit is on disk before the
 * promise resolves. Changed nodes are written to `invalidations`, and the processor drops them from its caches before
 * its next transaction.
 */

import type { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AuditContext, UnmergeResult } from '../../../store.ts';
import { StoreUnavailableError } from '../../../store-writer.ts';
import { planUnmerge } from '../../../views/unmerge.ts';
import { insertAudit } from '../../sql/audit.ts';
import { changedBy } from '../../sql/steps.ts';
import { LOCAL_SHARD } from '../../sql/store-tables.ts';
import { addToProfiles } from '../../sql/sums.ts';
import { isBusy, transaction } from '../database.ts';
import { invalidate } from './invalidations.ts';
import { idBytes, type StoreConnection } from './connection.ts';
import { mergesOf, nodesById } from './profiles.ts';
import { uuidBytes } from '../uuids.ts';

const LOCK_WAIT_MS_MAX = 30_000;
const LOCK_RETRY_MS = 1;
export const READ_BUSY_TIMEOUT_MS = 5_000;

/**
 * Runs `work` in one write transaction, which is durable when this resolves. Rejects if the lock is not available in
 * time. Requests it from the processor; if `isUrgent` is false, it waits for one of the processor's own pauses instead.
 */
export async function inWriteTransaction<T>(
  { database, writeLockRequest }: StoreConnection,
  work: () => T,
  { isUrgent = true, giveUpAt = performance.now() + LOCK_WAIT_MS_MAX } = {},
): Promise<T> {
  try {
    for (;;) {
      try {
        return attempt(database, work);
      } catch (error) {
        if (!isBusy(error)) throw error;
      }
      if (performance.now() > giveUpAt) throw new StoreUnavailableError('the store was busy for too long');
      if (isUrgent) writeLockRequest?.renew();
      await sleep(LOCK_RETRY_MS);
    }
  } finally {
    if (isUrgent) writeLockRequest?.withdraw();
  }
}

/** Throws SQLite's error when another connection is writing. */
function attempt<T>(database: DatabaseSync, work: () => T): T {
  database.exec('PRAGMA busy_timeout = 0; PRAGMA synchronous = FULL');
  try {
    return transaction(database, work, 0);
  } finally {
    database.exec(`PRAGMA busy_timeout = ${READ_BUSY_TIMEOUT_MS}; PRAGMA synchronous = NORMAL`);
  }
}

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
