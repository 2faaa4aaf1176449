/**
 * Unmerging (rule 16) and erasing (rule 17) a person. Either first locks all nodes of the profile, in the order of their
 * numbers, as processors do before they write to a person: one waits for the other, and sees its changes. If the profile
 * was merged or erased meanwhile, that is a conflict, and the transaction is retried. Its commit is on the server's disk
 * before it resolves, whatever processors choose for their own.
 *
 * An erase is one transaction, except for a person with very many or large events, or with events of many days: these
 * are removed in pieces before, so that processors do not wait and memory stays bounded. After a crash in between, the
 * profile exists with fewer events and can be erased again, and the audit entry says what was removed. Limits: deleted
 * rows stay in the server's files until it vacuums, and in its write-ahead log and backups for as long as those are kept;
 * the event log keeps requests for its own retention; the `$event_id` of an event that had expired before is remembered
 * to the end of its window.
 */

import { sql, type SqlBool } from 'kysely';
import { DAY_MS, type NodeNumber } from '../../model.ts';
import type { AuditContext, UnmergeResult } from '../../store.ts';
import { StoreConflictError } from '../../store-writer.ts';
import { erasedKeys, EVENT_ID_IN_PROPERTIES, eventIdOf } from '../../views/erased-person.ts';
import { HASHED } from '../../views/keyed-hash.ts';
import { type IdentifierRow, type MergeRow, oldestFirst, type ProfileNodes } from '../../views/profile.ts';
import { planUnmerge } from '../../views/unmerge.ts';
import { uuidOf } from '../../views/uuid.ts';
import { auditErasure, endErasure } from '../sql/audit.ts';
import {
  erasePerson,
  type Erasure,
  findRejections,
  type MatchingRejections,
  type RejectionHorizon,
  writeUnmerge,
} from '../sql/profile-changes.ts';
import { addToSums, type RemovedEvent as RemovedFromSums, takeFromSums } from '../sql/sums.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';
import { inRetriedTransaction, runSteps } from './sql-database.ts';
import { dayOf } from './store-days.ts';
import {
  findNodes,
  IDENTIFIERS,
  identifiersOf,
  MERGES,
  mergesOf,
  NODE_COLUMNS,
  type NodeRow,
  profileNodesOf,
} from './store-profiles.ts';
import { hashesOf } from './write-first-uses.ts';

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
interface LockedProfile extends ProfileNodes {
  readonly identifiers: readonly IdentifierRow[];
  readonly merges: readonly MergeRow[];
}

/** All nodes of a profile: the root, whose number is $1, and those aliased to it. */
const MEMBERS = 'FROM nodes AS n WHERE n.no = $1 OR n.root = $1';

/** Undefined for an unknown profile. */
async function lockProfile(client: PostgresClient, tenant: number, id: string): Promise<LockedProfile | undefined> {
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
  const members = `SELECT ${NODE_COLUMNS}, ${IDENTIFIERS}, ${MERGES} ${MEMBERS}`;
  const rows = oldestFirst((await client.query<NodeRow>(members, [root])).rows);
  const lockedNodes = new Set(locked.rows.map(({ no }) => no));
  const isSame =
    rows.length === lockedNodes.size && rows.every((row) => lockedNodes.has(row.node) && row.root === root);
  if (!isSame || !rows.some((row) => row.id === uuid)) throw new StoreConflictError('the profile changed meanwhile');
  return { ...profileNodesOf(rows), identifiers: identifiersOf(rows), merges: mergesOf(rows) };
}

/** More than a writer misses between two batches; one that missed more forgets all people of the tenant. */
export const INVALIDATIONS_KEPT = 1_000;

/**
 * For writers that cache these nodes (person-cache.ts): counts the invalidation and stores which nodes changed. The
 * tenant's row is locked, so numbers are committed in order.
 */
async function invalidate(client: PostgresClient, tenant: number, nodes: readonly NodeNumber[]): Promise<void> {
  await client.query(
    `WITH counted AS (
       UPDATE tenants SET invalidation_count = invalidation_count + 1 WHERE no = $1 RETURNING invalidation_count AS no
     ),
     removed AS (DELETE FROM invalidations USING counted WHERE tenant = $1 AND invalidations.no <= counted.no - $3)
     INSERT INTO invalidations (tenant, no, nodes) SELECT $1, no, $2 FROM counted`,
    [tenant, nodes, INVALIDATIONS_KEPT],
  );
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
    if (plan.undone.length === 0) return plan.result;
    const nodes = [...plan.roots.keys()];
    await client.query(
      `UPDATE nodes SET root = nullif(q.root, q.no) FROM unnest($1::bigint[], $2::bigint[]) AS q (no, root)
       WHERE nodes.no = q.no AND coalesce(nodes.root, nodes.no) <> q.root`,
      [nodes, [...plan.roots.values()]],
    );
    await invalidate(client, tenant, nodes);
    await runSteps(client, (tables) => writeUnmerge(tables, tenant, plan, audit, audit.traceId));
    return plan.result;
  });
}

/** Each day is a partition, and a transaction locks every partition that it reads. */
const DAYS_PER_TRANSACTION = 64;

/** Numbers do not become visible in order, so later rows are recognised by the transactions that wrote them. */
const HORIZON: RejectionHorizon = {
  // The oldest active transaction: everything before it is visible.
  now: sql<string>`pg_snapshot_xmin(pg_current_snapshot())::text`,
  // A row's age is counted in transactions: the newer row has the smaller age.
  isLater: (horizon) => sql<SqlBool>`age(xmin) <= age(${horizon}::xid8::xid)`,
};

/** When a person of any tenant was last erased; 0 if none was. The clock of a server that starts continues after it. */
export async function newestErasure(connection: Queryable): Promise<number> {
  const { rows } = await connection.query<{ newest: number | null }>(
    'SELECT max(last_erased_at) AS newest FROM tenants',
  );
  return rows[0]?.newest ?? 0;
}

/** False for an unknown profile, and for one that another erasure removes first. */
export async function erase(pool: PostgresPool, erasure: Erasure): Promise<boolean> {
  const { tenant, id } = erasure;
  const nodes = await findNodes(pool, tenant, id, IDENTIFIERS);
  if (nodes === undefined) return false;
  const keys = erasedKeys(identifiersOf(nodes));
  // Searched before the transaction, since there may be many; rows added meanwhile are searched within it.
  const matching = await runSteps(pool, (tables) => findRejections(tables, erasure, keys, HORIZON));
  let progress: Progress = { nextDay: 0, entry: null, idleDays: 0 };
  for (;;) {
    const before = progress;
    const after = await inDurableTransaction(pool, (client) => erasePiece(client, erasure, matching, before));
    if (typeof after === 'boolean') return after;
    progress = after;
  }
}

/** State of an erase after each of its transactions. */
interface Progress {
  /** Day of receipt; earlier days are done. */
  readonly nextDay: number;
  /** The audit entry; null until something is removed. */
  readonly entry: number | null;
  /** Consecutive days without any event. */
  readonly idleDays: number;
}

/**
 * Removes the events of some days, and with the last of them the person. The remaining number comes from the nodes'
 * counts and not from what was found: while an erase goes through the days, a processor may store more in a day that it
 * has passed. True when the person is gone; false if another erasure removed all of it.
 */
async function erasePiece(
  client: PostgresClient,
  erasure: Erasure,
  matching: MatchingRejections,
  progress: Progress,
): Promise<Progress | boolean> {
  const { tenant, id } = erasure;
  const profile = await lockProfile(client, tenant, id);
  if (profile === undefined) return runSteps(client, (tables) => endErasure(tables, progress.entry));
  // First and last seen are times of receipt.
  const first = dayOf(Math.min(...profile.nodes.map(({ firstSeen }) => firstSeen)));
  const end = dayOf(Math.max(...profile.nodes.map(({ lastSeen }) => lastSeen))) + 1;
  const from = progress.nextDay < first || progress.nextDay >= end ? first : progress.nextDay;
  const days = { first: from, end: Math.min(from + DAYS_PER_TRANSACTION, end) };
  const nodes = profile.nodes.map(({ node }) => node);
  const { events, isLast } = await eraseEvents(client, tenant, nodes, days);
  const idleDays = events.length > 0 ? 0 : progress.idleDays + (days.end - days.first);
  const left = profile.nodes.reduce((sum, node) => sum + node.events, 0) - events.length;
  // A count that is too high must not prevent the erase: having searched every day is enough.
  const isGone = left <= 0 || idleDays >= end - first;
  let { entry } = progress;
  if (isGone) {
    const person = { id: profile.root.id, nodes, keys: erasedKeys(profile.identifiers), events: events.length, entry };
    await runSteps(client, (tables) => erasePerson(tables, erasure, person, matching, HORIZON));
    await invalidate(client, tenant, nodes);
  } else if (events.length > 0) {
    const part = { profileId: profile.root.id, nodes: 0, events: events.length, isFinished: false };
    entry = await runSteps(client, (tables) => auditErasure(tables, erasure, progress.entry, part));
    await takeFromNodes(client, events);
  }
  await runSteps(client, function* (tables, locks) {
    yield* takeFromSums(tables, locks, events, 'erased');
    if (isGone) yield* addToSums(tables, 'profile_counts', [{ tenant, profiles: -1 }]);
  });
  return isGone ? true : { nextDay: isLast ? days.end : days.first, entry, idleDays };
}

export interface RemovedEvent extends RemovedFromSums {
  /** Null for an event of no person. */
  readonly node: NodeNumber | null;
}

/** Columns of a removed event `e`, as a `RemovedEvent`. */
export const REMOVED_COLUMNS = `
  e.tenant, e.node, e.timestamp, e.received_at AS "receivedAt", e.trace_id || ' ' || e.user_index AS "user",
  e.event_name AS name, e.revenue, e.currency`;

/** Lowers the number of events of nodes, which are locked. */
export async function takeFromNodes(client: PostgresClient, events: readonly RemovedEvent[]): Promise<void> {
  const byNode = [...Map.groupBy(events, ({ node }) => node)].filter(([node]) => node !== null);
  await client.query(
    `UPDATE nodes SET events = nodes.events - q.events FROM unnest($1::bigint[], $2::bigint[]) AS q (no, events)
     WHERE nodes.no = q.no`,
    [byNode.map(([node]) => node), byNode.map(([, some]) => some.length)],
  );
}

const EVENTS_PER_TRANSACTION_MAX = 20_000;
/** Limit of the properties that one transaction reads to find event ids. */
const READ_BYTES_MAX = 16 * 1024 * 1024;

/** A user of a request, as the range of its events: consecutive numbers, all of one day. */
interface UserRange {
  readonly receivedAt: number;
  readonly processedAt: number;
  readonly userIndex: number;
  readonly firstNo: number;
  readonly lastNo: number;
  readonly events: number;
  /** Size of the properties that have to be read. */
  readonly bytes: number;
  /** How many events of the person were read to find users. */
  readonly picked: number;
}

/** Limits the partitions that the server reads and locks. */
const WITHIN = 'received_at >= $3 AND received_at < $4';
const MAY_HAVE_EVENT_ID = `strpos(properties, '${EVENT_ID_IN_PROPERTIES}') > 0`;

/** $1 nodes, $2 how many, $3 and $4 days. Through the records: events are indexed by number, not by trace. */
export const USERS_SQL = `
  WITH sample AS MATERIALIZED (
    SELECT received_at, trace_id, user_index FROM events WHERE node = ANY($1) AND ${WITHIN} LIMIT $2
  ), asked AS MATERIALIZED (
    SELECT DISTINCT received_at, trace_id, user_index FROM sample
  ), found AS MATERIALIZED (
    SELECT DISTINCT record.* FROM asked CROSS JOIN LATERAL (
      SELECT received_at, processed_at, first_event, events FROM records
      WHERE received_at = asked.received_at AND ${WITHIN} AND trace_id = asked.trace_id
        AND first_user_index <= asked.user_index
        -- The record of a resubmitted user takes one away from the rejected ones.
        AND asked.user_index < first_user_index + users_accepted + greatest(users_rejected, 0)
      -- One by one: joined, the planner may read all of a day's index.
      OFFSET 0
    ) AS record
  )
  SELECT found.received_at AS "receivedAt", found.processed_at AS "processedAt", e.*,
    (SELECT count(*) FROM sample) AS picked
  FROM found CROSS JOIN LATERAL (
    SELECT user_index AS "userIndex", min(no) AS "firstNo", max(no) AS "lastNo", count(*) AS events,
      coalesce(sum(octet_length(properties)) FILTER (WHERE ${MAY_HAVE_EVENT_ID}), 0)::bigint AS bytes
    FROM events
    WHERE received_at = found.received_at AND ${WITHIN} AND node = ANY($1)
      AND no >= found.first_event AND no < found.first_event + found.events
    GROUP BY user_index
  ) AS e
  ORDER BY found.received_at, e."firstNo" LIMIT $2`;

/** $1 nodes, $2 to $6 users, $7 and $8 days. */
export const DELETE_SQL = `
  DELETE FROM events AS e
  USING unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::bigint[])
    AS u (received_at, first_no, last_no, user_index, processed_at)
  WHERE e.received_at = u.received_at AND e.no >= u.first_no AND e.no <= u.last_no AND e.user_index = u.user_index
    AND e.node = ANY($1) AND e.received_at >= $7 AND e.received_at < $8
  RETURNING ${REMOVED_COLUMNS}, e.no, u.processed_at AS "processedAt",
    CASE WHEN ${MAY_HAVE_EVENT_ID} THEN e.properties END AS properties`;

/** For the rest of the transaction: force index scans, since the planner cannot know how small a batch is. */
export const BY_INDEX = `
  SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off`;

type DeletedColumns = RemovedEvent & {
  readonly no: number;
  readonly processedAt: number;
  readonly properties: string | null;
};

/** Days of receipt: first (inclusive) to end (exclusive). */
interface Days {
  readonly first: number;
  readonly end: number;
}

/** Removed events, in the order of the log; `isLast` when these nodes have none left in these days. */
async function eraseEvents(
  client: PostgresClient,
  tenant: number,
  nodes: readonly NodeNumber[],
  days: Days,
): Promise<{ readonly events: readonly RemovedEvent[]; readonly isLast: boolean }> {
  await client.query(BY_INDEX);
  const within = [days.first * DAY_MS, days.end * DAY_MS];
  const { rows: users } = await client.query<UserRange>(USERS_SQL, [nodes, EVENTS_PER_TRANSACTION_MAX, ...within]);
  const chosen = pieceOf(users);
  const picked = users[0]?.picked ?? 0;
  const isLast = chosen.length === users.length && Math.max(picked, users.length) < EVENTS_PER_TRANSACTION_MAX;
  if (chosen.length === 0) return { events: [], isLast };
  const { rows } = await client.query<DeletedColumns>(DELETE_SQL, [
    nodes,
    chosen.map(({ receivedAt }) => receivedAt),
    chosen.map(({ firstNo }) => firstNo),
    chosen.map(({ lastNo }) => lastNo),
    chosen.map(({ userIndex }) => userIndex),
    chosen.map(({ processedAt }) => processedAt),
    ...within,
  ]);
  await forgetEventIds(client, tenant, rows);
  return { events: rows.sort((a, b) => a.no - b.no), isLast };
}

/** At least one user, and more as far as they fit. */
function pieceOf(users: readonly UserRange[]): readonly UserRange[] {
  let events = 0;
  let bytes = 0;
  const end = users.findIndex((user) => {
    events += user.events;
    bytes += user.bytes;
    return events > EVENTS_PER_TRANSACTION_MAX || bytes > READ_BYTES_MAX;
  });
  return end === -1 ? users : users.slice(0, Math.max(1, end));
}

/**
 * Rule 17: data after an erase starts from scratch, so it is not a duplicate of removed events. An id that another
 * request has used since stays. What a job applied has used its ids when it was processed.
 */
async function forgetEventIds(client: PostgresClient, tenant: number, rows: readonly DeletedColumns[]): Promise<void> {
  const hashOf = await hashesOf(client);
  const ids = rows.flatMap(({ properties, receivedAt, processedAt }) => {
    const id = properties === null ? undefined : eventIdOf(properties);
    return id === undefined ? [] : [{ ...hashOf(tenant, HASHED.eventId, id), receivedAt, processedAt }];
  });
  if (ids.length === 0) return;
  ids.sort((a, b) => a.hash - b.hash || a.rest - b.rest);
  await client.query(
    `DELETE FROM event_ids
     USING unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[]) AS q (hash, rest, received_at, processed_at)
     WHERE event_ids.hash = q.hash AND event_ids.rest = q.rest
       AND event_ids.received_at IN (q.received_at, q.processed_at)`,
    [
      ids.map(({ hash }) => hash),
      ids.map(({ rest }) => rest),
      ids.map(({ receivedAt }) => receivedAt),
      ids.map(({ processedAt }) => processedAt),
    ],
  );
}
