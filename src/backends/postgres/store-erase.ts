/**
 * Erasing a person (rule 17): events, nodes, identifiers, properties, merges, refusals and stored rejections are
 * removed. Hashed tombstones of the match keys stay, so that data received before the erase is dropped when it is
 * processed late. Refusals of other people that name one of the erased identifiers are removed too, and so are the
 * first uses of the `$event_id`s of the events.
 *
 * All in one transaction, except for a person with very many or large events, or with events of many days: these are
 * removed in pieces before, so that processors do not wait and memory stays bounded. After a crash in between, the
 * profile exists with fewer events and can be erased again. Limits: deleted rows stay in the server's files until it
 * vacuums, and in its write-ahead log and backups for as long as those are kept; the event log keeps requests for its
 * own retention; the `$event_id` of an event that had expired before is remembered to the end of its window.
 */

import { type SqlBool, sql } from 'kysely';
import type { NodeNumber } from '../../model.ts';
import { erasedKeys } from '../../views/erased-person.ts';
import {
  type Erasure,
  erasePerson,
  findRejections,
  type RejectionHorizon,
  type MatchingRejections,
} from '../sql/erase.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';
import { inDurableTransaction, type LockedProfile, lockProfile, writeAudit } from './store-unmerge.ts';
import { runSteps } from './sql-database.ts';
import { dayOf } from './store-days.ts';
import { eraseEvents } from './store-erase-events.ts';
import { readIdentifiers } from './store-profiles.ts';
import { type RemovedEvent, takeFromSums } from './store-removal.ts';
import { MAINTENANCE_SHARD } from './store-schema.ts';
import { addToProfiles } from '../sql/sums.ts';
import { storeQueriesOn } from './sql-database.ts';

/** Each day is a partition, and a transaction locks every partition that it reads. */
const DAYS_PER_TRANSACTION = 64;

/** Numbers do not become visible in order, so later rows are recognised by the transactions that wrote them. */
const HORIZON: RejectionHorizon = {
  // The oldest active transaction: everything before it is visible.
  now: sql<string>`pg_snapshot_xmin(pg_current_snapshot())::text`,
  // A row's age is counted in transactions: the newer row has the smaller age.
  isLater: (horizon) => sql<SqlBool>`age(xmin) <= age(${horizon}::xid8::xid)`,
};

/** False for an unknown profile. */
export async function erase(pool: PostgresPool, erasure: Erasure): Promise<boolean> {
  const { tenant, id } = erasure;
  const known = await readIdentifiers(pool, tenant, id);
  if (known === undefined) return false;
  // Searched before the transaction, since there may be many; rows added meanwhile are searched within it.
  const matching = await runSteps(pool, (tables) => findRejections(tables, erasure, erasedKeys(known), HORIZON));
  let progress: Progress | null = { nextDay: 0, removed: 0, idleDays: 0 };
  while (progress !== null) {
    const before: Progress = progress;
    progress = await inDurableTransaction(pool, (client) => erasePiece(client, erasure, matching, before));
  }
  return true;
}

/** State of an erase after each of its transactions. */
interface Progress {
  /** Day of receipt; earlier days are done. */
  readonly nextDay: number;
  /** Number of events. */
  readonly removed: number;
  /** Consecutive days without any event. */
  readonly idleDays: number;
}

/**
 * Removes the events of some days, and with the last of them the person; then returns null. The remaining number comes
 * from the nodes' counts and not from what was found: while an erase goes through the days, a processor may store more
 * in a day that it has passed.
 */
async function erasePiece(
  client: PostgresClient,
  erasure: Erasure,
  matching: MatchingRejections,
  progress: Progress,
): Promise<Progress | null> {
  const { tenant, id } = erasure;
  const profile = await lockProfile(client, tenant, id);
  // Another erase removed the rest.
  if (profile === undefined) return null;
  // First and last seen are times of receipt.
  const first = dayOf(Math.min(...profile.nodes.map(({ firstSeen }) => firstSeen)));
  const end = dayOf(Math.max(...profile.nodes.map(({ lastSeen }) => lastSeen))) + 1;
  const from = progress.nextDay < first || progress.nextDay >= end ? first : progress.nextDay;
  const days = { first: from, end: Math.min(from + DAYS_PER_TRANSACTION, end) };
  const nodes = profile.nodes.map(({ node }) => node);
  const { events, isLast } = await eraseEvents(client, tenant, nodes, days);
  const removed = progress.removed + events.length;
  const idleDays = events.length > 0 ? 0 : progress.idleDays + (days.end - days.first);
  const left = profile.nodes.reduce((sum, node) => sum + node.events, 0) - events.length;
  // A count that is too high must not prevent the erase: having searched every day is enough.
  const isGone = left <= 0 || idleDays >= end - first;
  if (isGone) await eraseProfile(client, erasure, profile, matching, removed);
  else await uncountNodes(client, events);
  await takeFromSums(client, tenant, events, 'erased');
  if (isGone) await addToProfiles(storeQueriesOn(client).tables, MAINTENANCE_SHARD, [[tenant, -1]]).execute();
  return isGone ? null : { nextDay: isLast ? days.end : days.first, removed, idleDays };
}

async function uncountNodes(
  client: PostgresClient,
  events: readonly (RemovedEvent & { readonly node: NodeNumber })[],
): Promise<void> {
  const byNode = [...Map.groupBy(events, ({ node }) => node)];
  await client.query(
    `UPDATE nodes SET events = nodes.events - q.events FROM unnest($1::bigint[], $2::bigint[]) AS q (no, events)
     WHERE nodes.no = q.no`,
    [byNode.map(([node]) => node), byNode.map(([, some]) => some.length)],
  );
}

async function eraseProfile(
  client: PostgresClient,
  erasure: Erasure,
  profile: LockedProfile,
  matching: MatchingRejections,
  events: number,
): Promise<void> {
  const { tenant, audit } = erasure;
  const nodes = profile.nodes.map(({ node }) => node);
  const person = { nodes, keys: erasedKeys(profile.identifiers) };
  await runSteps(client, (tables) => erasePerson(tables, erasure, person, matching, HORIZON));
  await writeAudit(client, tenant, 'erase', nodes, audit, { profile_id: profile.root.id, nodes: nodes.length, events });
}

/**
 * When anything was last erased, of any tenant; 0 for never. What is received next must be later, or it would be
 * dropped.
 */
export async function newestErase(db: Queryable): Promise<number> {
  const { rows } = await db.query<{ newest: number | null }>('SELECT max(last_erased_at) AS newest FROM tenants');
  return rows[0]?.newest ?? 0;
}
