/**
 * Unmerge (rule 16), and what it shares with erase (store-erase.ts): the durable transaction, the locked profile and
 * the audit entry.
 *
 * The transaction first locks all nodes of the profile, in the order of their numbers, as processors do before they
 * write to a person: so either the processor waits and then sees the change, or the unmerge waits and sees the new
 * data. If the profile was merged or erased while it waited, that is a conflict and the transaction is retried. Its
 * commit is on the server's disk before it resolves, whatever processors choose for their own.
 */

import type { NodeNumber } from '../../model.ts';
import type { AuditContext, UnmergeResult } from '../../store.ts';
import { StoreConflictError } from '../../store-writer.ts';
import { type IdentifierRow, type MergeRow, oldestFirst, type ProfileNodes } from '../../views/profile.ts';
import { planUnmerge, type UnmergePlan } from '../../views/unmerge.ts';
import { uuidOf } from '../../views/uuid.ts';
import { insertAudit } from '../sql/audit.ts';
import { LOCAL_SHARD } from '../sql/store-tables.ts';
import { addToProfiles } from '../sql/sums.ts';
import type { PostgresClient, PostgresPool } from './pool.ts';
import { inRetriedTransaction, storeQueriesOn } from './sql-database.ts';
import {
  IDENTIFIERS,
  identifiersOf,
  MERGES,
  mergesOf,
  NODE_COLUMNS,
  type NodeRow,
  profileNodesOf,
} from './store-profiles.ts';

/** It is rare that several processors merge, or several calls change, the same person at a time. */
const ATTEMPTS = 10;

/** For a server that acknowledges a commit before it is on disk. */
const DURABLE =
  "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'";

/** Runs `work` in a transaction that is durable when this resolves; retried after a conflict. */
export function inDurableTransaction<T>(pool: PostgresPool, work: (client: PostgresClient) => Promise<T>): Promise<T> {
  const problem = 'this person kept being changed by other transactions; try again';
  return inRetriedTransaction(pool, ATTEMPTS, problem, async (client) => {
    await client.query(DURABLE);
    return work(client);
  });
}

/** A profile that no other transaction can change until this one ends. */
export interface LockedProfile extends ProfileNodes {
  readonly identifiers: readonly IdentifierRow[];
  readonly merges: readonly MergeRow[];
}

/** All nodes of a profile: the root, whose number is $1, and those aliased to it. */
const MEMBERS = 'FROM nodes AS n WHERE n.no = $1 OR n.root = $1';

/** Undefined for an unknown profile. */
export async function lockProfile(
  client: PostgresClient,
  tenant: number,
  id: string,
): Promise<LockedProfile | undefined> {
  const uuid = uuidOf(id);
  if (uuid === undefined) return undefined;
  const found = await client.query<{ root: NodeNumber }>(
    'SELECT coalesce(root, no) AS root FROM nodes WHERE id = $1 AND tenant = $2',
    [uuid, tenant],
  );
  const root = found.rows[0]?.root;
  if (root === undefined) return undefined;
  const locked = await client.query<{ no: NodeNumber }>(`SELECT n.no ${MEMBERS} ORDER BY n.no FOR UPDATE`, [root]);
  // Read again: the transactions that held the locks may have changed everything.
  const sql = `SELECT ${NODE_COLUMNS}, ${IDENTIFIERS}, ${MERGES} ${MEMBERS}`;
  const rows = oldestFirst((await client.query<NodeRow>(sql, [root])).rows);
  const lockedNodes = new Set(locked.rows.map(({ no }) => no));
  const isSame =
    rows.length === lockedNodes.size && rows.every((row) => lockedNodes.has(row.node) && row.root === root);
  if (!isSame || !rows.some((row) => row.id === uuid)) throw new StoreConflictError('the profile changed meanwhile');
  return { ...profileNodesOf(rows), identifiers: identifiersOf(rows), merges: mergesOf(rows) };
}

/** More than a writer misses between two batches; one that missed more forgets all people of the tenant. */
export const INVALIDATIONS_KEPT = 1_000;

/**
 * Counts the invalidation and stores which nodes changed. The tenant's row is locked, so numbers are committed in
 * order.
 */
const COUNT_INVALIDATION = `
  WITH counted AS (
      UPDATE tenants SET invalidation_count = invalidation_count + 1 WHERE no = $1 RETURNING invalidation_count AS no
    ),
    removed AS (DELETE FROM invalidations USING counted WHERE tenant = $1 AND invalidations.no <= counted.no - $3)
  INSERT INTO invalidations (tenant, no, nodes) SELECT $1, no, $2 FROM counted`;

/**
 * For writers that cache these nodes (person-cache.ts), and for the audit (rule 15); `detail` contains no personal
 * data.
 */
export async function writeAudit(
  client: PostgresClient,
  tenant: number,
  kind: 'unmerge' | 'erase',
  nodes: readonly NodeNumber[],
  audit: AuditContext,
  detail: Readonly<Record<string, unknown>>,
): Promise<void> {
  await client.query(COUNT_INVALIDATION, [tenant, nodes, INVALIDATIONS_KEPT]);
  await insertAudit(storeQueriesOn(client).tables, tenant, kind, audit, detail).execute();
}

/** Rule 16. Undefined for an unknown profile. */
export async function unmerge(
  pool: PostgresPool,
  tenant: number,
  id: string,
  mergedBy: string,
  audit: AuditContext,
): Promise<UnmergeResult | undefined> {
  return inDurableTransaction(pool, async (client) => {
    const profile = await lockProfile(client, tenant, id);
    if (profile === undefined) return undefined;
    const plan = planUnmerge(profile, profile.merges, uuidOf(mergedBy) ?? null);
    if (plan.undone.length > 0) await writePlan(client, tenant, plan, audit);
    return plan.result;
  });
}

async function writePlan(
  client: PostgresClient,
  tenant: number,
  plan: UnmergePlan,
  audit: AuditContext,
): Promise<void> {
  const { undone, roots, rewritten, cannotLink, detail } = plan;
  await client.query('DELETE FROM merges WHERE no = ANY($1)', [undone]);
  await client.query(
    `UPDATE nodes SET root = nullif(q.root, q.no) FROM unnest($1::bigint[], $2::bigint[]) AS q (no, root)
     WHERE nodes.no = q.no AND coalesce(nodes.root, nodes.no) <> q.root`,
    [[...roots.keys()], [...roots.values()]],
  );
  await client.query(
    `UPDATE merges SET from_node = q.from_node, into_node = q.into_node
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS q (no, from_node, into_node) WHERE merges.no = q.no`,
    [rewritten.map(({ no }) => no), rewritten.map(({ from }) => from), rewritten.map(({ into }) => into)],
  );
  await client.query(
    `INSERT INTO cannot_link (node_a, node_b, trace_id, at)
     SELECT node_a, node_b, $3, $4 FROM unnest($1::bigint[], $2::bigint[]) AS q (node_a, node_b) ON CONFLICT DO NOTHING`,
    [cannotLink.map(([a]) => a), cannotLink.map(([, b]) => b), audit.traceId, audit.at],
  );
  await writeAudit(client, tenant, 'unmerge', [...roots.keys()], audit, detail);
  // Each removed edge had made one profile of two.
  await addToProfiles(storeQueriesOn(client).tables, LOCAL_SHARD, [[tenant, undone.length]]).execute();
}
