/**
 * How an act of the API writes to the store beside the processors, and the smaller of the two acts, unmerge (rule 16).
 *
 * An act is a transaction that locks all nodes of the profile first, in the order of their numbers, as processors do
 * before they write to a person: so either the processor waits and then sees what the act did, or the act waits and
 * sees what came in. Who was merged or erased while it waited is a conflict, after which the act is done anew. What an
 * act commits is on the server's disk before it answers, whatever processors choose for their own.
 */

import type { NodeNumber } from '../../model.ts';
import type { AuditContext, UnmergeResult } from '../../store.ts';
import { StoreConflictError } from '../../store-writer.ts';
import type { IdentifierRow, MergeRow, ProfileNodes } from '../../views/profile.ts';
import { planUnmerge, type UnmergePlan } from '../../views/unmerge.ts';
import { uuidOf } from '../../views/uuid.ts';
import { insertAudit } from '../sql/audit.ts';
import { addToProfiles } from '../sql/sums.ts';
import type { PostgresClient, PostgresPool } from './pool.ts';
import { storeQueriesOn } from './sql-database.ts';
import {
  IDENTIFIERS,
  identifiersOf,
  MERGES,
  mergesOf,
  NODE_COLUMNS,
  type NodeColumns,
  nodesOfProfile,
  sortedAs,
} from './store-profiles.ts';
import { MAINTENANCE_SHARD } from './store-schema.ts';

/** More than one processor merging or more than one act on the same person at a time is rare. */
const ATTEMPTS = 10;

/** A server that answers before a commit is on its disk is told not to, here. */
const DURABLE =
  "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'";

/** `work` in a transaction of its own, which is durable when this resolves; done anew after a conflict. */
export async function inDurableTransaction<T>(
  pool: PostgresPool,
  work: (client: PostgresClient) => Promise<T>,
): Promise<T> {
  return pool.inTransaction(async (client) => {
    await client.query(DURABLE);
    return work(client);
  }, ATTEMPTS);
}

/** A profile that nobody else can change until the transaction ends. */
export interface LockedProfile extends ProfileNodes {
  readonly identifiers: readonly IdentifierRow[];
  readonly merges: readonly MergeRow[];
}

/** All nodes of a profile: the survivor, whose number is $1, and those aliased to it. */
const MEMBERS = 'FROM nodes AS n WHERE n.no = $1 OR n.root = $1';

type LockedColumns = NodeColumns & Parameters<typeof mergesOf>[0][number];

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
  // Read anew: what the locks were waited for may have changed everything.
  const { rows } = await client.query<LockedColumns>(`SELECT ${NODE_COLUMNS}, ${IDENTIFIERS}, ${MERGES} ${MEMBERS}`, [
    root,
  ]);
  const isLocked = new Set(locked.rows.map(({ no }) => no));
  const isSame = rows.length === isLocked.size && rows.every((row) => isLocked.has(row.no) && row.root === root);
  if (!isSame || !rows.some((row) => row.id === uuid)) throw new StoreConflictError('the profile changed meanwhile');
  const profile = nodesOfProfile(root, rows);
  const sorted = sortedAs(profile, rows);
  return { ...profile, identifiers: identifiersOf(sorted), merges: mergesOf(sorted) };
}

/** More acts than a writer misses between two batches; one that has missed more forgets all people of the tenant. */
export const INVALIDATIONS_KEPT = 1_000;

/** Numbers the act, and says which nodes it changed. The tenant's row is locked, so numbers are committed in order. */
const COUNT_INVALIDATION = `
  WITH counted AS (
      UPDATE tenants SET invalidation_count = invalidation_count + 1 WHERE no = $1 RETURNING invalidation_count AS no
    ),
    removed AS (DELETE FROM invalidations USING counted WHERE tenant = $1 AND invalidations.no <= counted.no - $3)
  INSERT INTO invalidations (tenant, no, nodes) SELECT $1, no, $2 FROM counted`;

/** For writers that remember these nodes (person-cache.ts), and for the audit (rule 15); `detail` holds no personal data. */
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
  const { undone, survivors, rewritten, cannotLink, detail } = plan;
  await client.query('DELETE FROM merges WHERE no = ANY($1)', [undone]);
  await client.query(
    `UPDATE nodes SET root = nullif(q.root, q.no) FROM unnest($1::bigint[], $2::bigint[]) AS q (no, root)
     WHERE nodes.no = q.no AND coalesce(nodes.root, nodes.no) <> q.root`,
    [[...survivors.keys()], [...survivors.values()]],
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
  await writeAudit(client, tenant, 'unmerge', [...survivors.keys()], audit, detail);
  // Every edge that is gone made one profile of two.
  await addToProfiles(storeQueriesOn(client).tables, MAINTENANCE_SHARD, [[tenant, undone.length]]).execute();
}
