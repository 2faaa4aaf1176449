/**
 * Updates the sums when events of a tenant are erased or expire: the counts by minute and hour with their revenue by
 * currency (`views/removed-counts.ts`), and the ledger, where the events move from stored to erased or expired. Runs as
 * the last step of the caller's transaction, on a bounded number of events already removed from the tables: every
 * transaction locks rows of sums last, in one order.
 *
 * For the counts, all shards of some buckets are locked in the order that all writers use; then their values and the
 * sums of the stored events are read in one snapshot. If a writer adds another shard to one of the buckets meanwhile,
 * its row is locked too: so the result is the sum of exactly the locked rows.
 */

import { HOUR_MS, MINUTE_MS, type NodeNumber } from '../../model.ts';
import { StoreConflictError } from '../../store-writer.ts';
import {
  type Bucket,
  type Counted,
  type CountedRow,
  lossesOf,
  minutesToResum,
  minutesWithRevenue,
  nameOf,
  type RemovedEventCount,
  rowsWithout,
} from '../../views/removed-counts.ts';
import { moveInLedger } from '../sql/sums.ts';
import { receivedFor } from './store-days.ts';
import type { PostgresClient } from './pool.ts';
import { runSteps } from './sql-database.ts';
import { MAINTENANCE_SHARD } from './store-schema.ts';

export interface RemovedEvent extends RemovedEventCount {
  /** Null for an event of no person. */
  readonly node: NodeNumber | null;
  readonly receivedAt: number;
  readonly traceId: string;
  readonly userIndex: number;
}

/** Lowers the number of events of nodes, which are locked. */
export async function takeFromNodes(client: PostgresClient, events: readonly RemovedEvent[]): Promise<void> {
  const byNode = [...Map.groupBy(events, ({ node }) => node)].filter(([node]) => node !== null);
  await client.query(
    `UPDATE nodes SET events = nodes.events - q.events FROM unnest($1::bigint[], $2::bigint[]) AS q (no, events)
     WHERE nodes.no = q.no`,
    [byNode.map(([node]) => node), byNode.map(([, some]) => some.length)],
  );
}

/** All events of a user of a request have to be removed together, or the users in the ledger are wrong. */
export async function takeFromSums(
  client: PostgresClient,
  tenant: number,
  events: readonly RemovedEvent[],
  becoming: 'erased' | 'expired',
): Promise<void> {
  if (events.length === 0) return;
  const [minutes, hours] = [lossesOf(events, MINUTE_MS), lossesOf(events, HOUR_MS)];
  const starts = minutesWithRevenue(minutes);
  const resummed = minutesToResum(starts, await eventsByMinute(client, tenant, [...starts]));
  const counted = await lockAndRead(client, tenant, {
    buckets: [...minutes, ...hours],
    resummed: [...resummed],
    hours: hours.filter(({ hasRevenue }) => hasRevenue),
  });
  await writeShards(client, tenant, rowsWithout({ minutes, hours, resummed }, counted));
  await takeFromLedger(client, tenant, events, becoming);
}

async function takeFromLedger(
  client: PostgresClient,
  tenant: number,
  events: readonly RemovedEvent[],
  becoming: 'erased' | 'expired',
): Promise<void> {
  const removed = events.map(({ receivedAt, traceId, userIndex }) => {
    return { tenant, receivedAt, user: `${traceId} ${userIndex}` };
  });
  await runSteps(client, (tables) => moveInLedger(tables, MAINTENANCE_SHARD, removed, becoming));
}

/** What to read besides the buckets themselves. */
export interface ShardQuery {
  readonly buckets: readonly Bucket[];
  /** Starts of minutes whose revenue is summed from stored events. */
  readonly resummed: readonly number[];
  /** Hours whose revenue is summed from their minutes. */
  readonly hours: readonly Bucket[];
}

/** New shards appear while a bucket is young; there are 16 of each. */
const TRIES_MAX = 20;

const BUCKETS = `
  unnest($2::integer[], $3::bigint[], $4::text[], $5::text[]) AS q (width, start, name, currency)
  JOIN counts AS c ON c.tenant = $1 AND c.width = q.width AND c.start = q.start AND c.event_name = q.name
    AND c.currency = q.currency`;
const ORDER = 'c.tenant, c.width, c.start, c.event_name, c.currency, c.shard';

const LOCK_SQL = `
  SELECT c.width, c.start, c.event_name AS "eventName", c.currency, c.shard FROM ${BUCKETS}
  ORDER BY ${ORDER} FOR UPDATE OF c`;

/** `received` is a condition on the events. */
const readSql = (received: string): string => `
  SELECT
    (SELECT json_agg(json_build_array(c.width, c.start, c.event_name, c.currency, c.shard, c.events, c.revenue)
       ORDER BY ${ORDER})
     FROM ${BUCKETS}) AS shards,
    (SELECT json_agg(json_build_array(c.start, c.event_name, c.currency, c.revenue) ORDER BY c.start, c.shard)
     FROM unnest($6::bigint[], $7::text[], $8::text[]) AS h (start, name, currency)
     CROSS JOIN generate_series(h.start, h.start + ${HOUR_MS - MINUTE_MS}, ${MINUTE_MS}) AS minute
     JOIN counts AS c ON c.tenant = $1 AND c.width = ${MINUTE_MS} AND c.start = minute AND c.event_name = h.name
       AND c.currency = h.currency
    ) AS minutes,
    (SELECT json_agg(json_build_array(m.start, e.event_name, e.currency, e.revenue) ORDER BY e.no)
     FROM unnest($9::bigint[]) AS m (start) CROSS JOIN LATERAL (
       SELECT no, event_name, currency, revenue FROM events
       WHERE tenant = $1 AND ${received} AND revenue IS NOT NULL
         AND timestamp >= m.start AND timestamp < m.start + ${MINUTE_MS}
       OFFSET 0
     ) AS e) AS revenues`;

interface ReadColumns {
  readonly shards: readonly (readonly [number, number, string, string, number, number, number])[] | null;
  readonly minutes: readonly (readonly [number, string, string, number])[] | null;
  readonly revenues: readonly (readonly [number, string, string, string])[] | null;
}

export async function lockAndRead(client: PostgresClient, tenant: number, wanted: ShardQuery): Promise<Counted> {
  const { buckets, resummed, hours } = wanted;
  const named = [
    tenant,
    buckets.map(({ width }) => width),
    buckets.map(({ start }) => start),
    buckets.map(({ eventName }) => eventName),
    buckets.map(({ currency }) => currency),
  ];
  const rest = [
    hours.map(({ start }) => start),
    hours.map(({ eventName }) => eventName),
    hours.map(({ currency }) => currency),
    resummed,
  ];
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const { rows } = await client.query<Bucket & { shard: number }>(LOCK_SQL, named);
    const locked = new Set(rows.map((row) => `${row.shard} ${nameOf(row)}`));
    // Before the events are read: what is committed meanwhile is in locked rows, or noticed.
    const received = await receivedFor(client, resummed);
    const read = await client.query<ReadColumns>(readSql(received), [...named, ...rest]);
    const counted = countedOf(read.rows[0]);
    if (counted.rows.every((row) => locked.has(`${row.shard} ${nameOf(row)}`))) return counted;
  }
  throw new StoreConflictError('counts changed faster than they could be locked');
}

function countedOf(columns: ReadColumns | undefined): Counted {
  const { shards, minutes, revenues } = columns ?? { shards: null, minutes: null, revenues: null };
  return {
    rows: (shards ?? []).map(([width, start, eventName, currency, shard, events, revenue]) => {
      return { width, start, eventName, currency, shard, events, revenue };
    }),
    minutes: (minutes ?? []).map(([start, eventName, currency, revenue]) => ({ start, eventName, currency, revenue })),
    revenues: (revenues ?? []).map(([start, eventName, currency, revenue]) => ({
      start,
      eventName,
      currency,
      revenue,
    })),
  };
}

/** The number of events in these minutes, by start, whatever their names. */
export async function eventsByMinute(
  client: PostgresClient,
  tenant: number,
  starts: readonly number[],
): Promise<Map<number, number>> {
  if (starts.length === 0) return new Map();
  const { rows } = await client.query<{ start: number; events: number }>(
    `SELECT start, sum(events)::bigint AS events FROM counts
     WHERE tenant = $1 AND width = ${MINUTE_MS} AND start = ANY($2) GROUP BY start`,
    [tenant, starts],
  );
  return new Map(rows.map(({ start, events }) => [start, events]));
}

/** Writes the new values of locked rows; those without events are removed. */
export async function writeShards(client: PostgresClient, tenant: number, rows: readonly CountedRow[]): Promise<void> {
  const keys = (some: readonly CountedRow[]): unknown[] => [
    tenant,
    some.map(({ width }) => width),
    some.map(({ start }) => start),
    some.map(({ eventName }) => eventName),
    some.map(({ currency }) => currency),
    some.map(({ shard }) => shard),
  ];
  const isSame =
    'c.tenant = $1 AND c.width = q.width AND c.start = q.start AND c.event_name = q.name ' +
    'AND c.currency = q.currency AND c.shard = q.shard';
  const [empty, kept] = [rows.filter(({ events }) => events === 0), rows.filter(({ events }) => events !== 0)];
  if (empty.length > 0) {
    await client.query(
      `DELETE FROM counts AS c
       USING unnest($2::integer[], $3::bigint[], $4::text[], $5::text[], $6::smallint[])
         AS q (width, start, name, currency, shard)
       WHERE ${isSame}`,
      keys(empty),
    );
  }
  if (kept.length === 0) return;
  await client.query(
    `UPDATE counts AS c SET events = q.events, revenue = q.revenue
     FROM unnest($2::integer[], $3::bigint[], $4::text[], $5::text[], $6::smallint[], $7::bigint[], $8::float8[])
       AS q (width, start, name, currency, shard, events, revenue)
     WHERE ${isSame}`,
    [...keys(kept), kept.map(({ events }) => events), kept.map(({ revenue }) => revenue)],
  );
}
