/**
 * Keeps the sums in step when events of a tenant are erased or expire: the counts by minute and hour with their revenue by currency, and the books, where
 * the events move from stored to erased or expired. Works within the caller's transaction, on a bounded number of events that are gone
 * from the tables already, as the last thing in it: every transaction locks rows of sums last, in one order.
 *
 * Numbers of events are exact. Sums of revenue are made anew from the remaining events, because taking a sum apart
 * leaves rounding behind; where a minute holds very many events that would take too long, the revenue is subtracted.
 * They are kept finite at every step, as the writer does. An event does not say in which shard it was counted: what is
 * left of a bucket's revenue goes into one, so a shard alone means nothing.
 */

import { amountToSum, type CountedCurrency } from '../../views/currency.ts';
import { finite, HOUR_MS, MINUTE_MS, startOf } from '../../views/sums.ts';
import type { PostgresClient } from './pool.ts';
import { ACTS_SHARD } from './store-schema.ts';
import {
  type Bucket,
  type Counted,
  eventsByMinute,
  lockAndRead,
  nameOf,
  type ShardRow,
  writeShards,
} from './store-shards.ts';

/** Events that are read to sum revenue anew, for all minutes of one call together. */
const RESUMMED_EVENTS_MAX = 200_000;

export interface RemovedEvent {
  readonly timestamp: number;
  readonly receivedAt: number;
  readonly traceId: string;
  readonly userIndex: number;
  readonly name: string;
  readonly revenue: string | null;
  readonly currency: CountedCurrency;
}

/** A bucket of counts, with what is taken out of it. */
interface Loss extends Bucket {
  events: number;
  /** May be 0 for amounts that outweigh each other, and still leave another sum. */
  revenue: number;
  hasRevenue: boolean;
}

/** All events of a user of a request have to go together, or the users in the books are wrong. */
export async function takeFromSums(
  client: PostgresClient,
  tenant: number,
  events: readonly RemovedEvent[],
  becoming: 'erased' | 'expired' = 'erased',
): Promise<void> {
  if (events.length === 0) return;
  const minutes = lossesOf(events, MINUTE_MS);
  const hours = lossesOf(events, HOUR_MS);
  const resummed = await minutesToResum(client, tenant, minutes);
  const counted = await lockAndRead(client, tenant, {
    buckets: [...minutes, ...hours],
    resummed: [...resummed],
    hours: hours.filter(({ hasRevenue }) => hasRevenue),
  });
  const shards = Map.groupBy(counted.shards, nameOf);
  const sums = sumsOf(counted.revenues);
  const minutesOf = Map.groupBy(counted.minutes, ({ start, eventName, currency }) =>
    nameOf({ width: HOUR_MS, start: startOf(start, HOUR_MS), eventName, currency }),
  );
  const left = new Map<string, ShardRow[]>();
  for (const loss of minutes) {
    const total = resummed.has(loss.start) ? (sums.get(nameOf(loss)) ?? 0) : undefined;
    left.set(nameOf(loss), shardsWithout(shards.get(nameOf(loss)) ?? [], loss, total));
  }
  for (const loss of hours) {
    // An hour's revenue is that of its minutes, which are right by now.
    const total = loss.hasRevenue ? revenueOfHour(minutesOf.get(nameOf(loss)) ?? [], left) : undefined;
    left.set(nameOf(loss), shardsWithout(shards.get(nameOf(loss)) ?? [], { ...loss, revenue: 0 }, total));
  }
  await writeShards(client, tenant, [...left.values()].flat());
  await moveInBooks(client, tenant, events, becoming);
}

function lossesOf(events: readonly RemovedEvent[], width: number): Loss[] {
  const losses = new Map<string, Loss>();
  for (const { timestamp, name: eventName, revenue, currency } of events) {
    const bucket = { width, start: startOf(timestamp, width), eventName, currency };
    const name = nameOf(bucket);
    const loss = losses.get(name) ?? { ...bucket, events: 0, revenue: 0, hasRevenue: false };
    losses.set(name, loss);
    loss.events += 1;
    const amount = amountToSum(revenue, currency);
    loss.revenue = finite(loss.revenue + amount);
    loss.hasRevenue ||= amount !== 0;
  }
  return [...losses.values()];
}

/** Minutes that lose revenue, as far as not too many events would have to be read. */
async function minutesToResum(client: PostgresClient, tenant: number, minutes: readonly Loss[]): Promise<Set<number>> {
  const starts = new Set(minutes.filter(({ hasRevenue }) => hasRevenue).map(({ start }) => start));
  const sizes = await eventsByMinute(client, tenant, [...starts]);
  let budget = RESUMMED_EVENTS_MAX;
  for (const start of starts) {
    const size = sizes.get(start) ?? 0;
    if (size > budget) starts.delete(start);
    budget -= Math.min(size, budget);
  }
  return starts;
}

/** By minute, name and currency. */
function sumsOf(revenues: Counted['revenues']): Map<string, number> {
  const sums = new Map<string, number>();
  for (const { start, eventName, currency, revenue } of revenues) {
    const name = nameOf({ width: MINUTE_MS, start, eventName, currency });
    sums.set(name, finite((sums.get(name) ?? 0) + amountToSum(revenue, currency)));
  }
  return sums;
}

/** The shards of a bucket after a loss; `total` is the revenue that is left, where that is known. */
function shardsWithout(shards: readonly ShardRow[], loss: Loss, total: number | undefined): ShardRow[] {
  const events = shards.reduce((sum, row) => sum + row.events, 0);
  if (events <= loss.events) return shards.map((row) => ({ ...row, events: 0 }));
  let toTake = loss.events;
  const rows = shards.map((row) => {
    const taken = Math.min(Math.max(row.events, 0), toTake);
    toTake -= taken;
    const { width, start, eventName, currency, shard, revenue } = row;
    return { width, start, eventName, currency, shard, events: row.events - taken, revenue };
  });
  const kept = rows.findIndex((row) => row.events !== 0);
  const isWhole = rows.every((row) => row.events !== 0);
  if (total === undefined && loss.revenue === 0 && isWhole) return rows;
  const before = shards.reduce((sum, { revenue }) => finite(sum + revenue), 0);
  const whole = total ?? finite(before - loss.revenue);
  for (const [index, row] of rows.entries()) row.revenue = index === kept ? whole : 0;
  return rows;
}

/** `minutes` oldest first, as they were; `left` has those that lost something. */
function revenueOfHour(minutes: Counted['minutes'], left: ReadonlyMap<string, readonly ShardRow[]>): number {
  let sum = 0;
  for (const rows of Map.groupBy(minutes, ({ start }) => start).values()) {
    const [{ start, eventName, currency }] = rows as [Counted['minutes'][number]];
    const changed = left.get(nameOf({ width: MINUTE_MS, start, eventName, currency }));
    const present = changed === undefined ? rows : changed.filter(({ events }) => events !== 0);
    sum = finite(sum + present.reduce((total, { revenue }) => finite(total + revenue), 0));
  }
  return sum;
}

async function moveInBooks(
  client: PostgresClient,
  tenant: number,
  events: readonly RemovedEvent[],
  becoming: 'erased' | 'expired',
): Promise<void> {
  const hours = [...Map.groupBy(events, ({ receivedAt }) => startOf(receivedAt, HOUR_MS))].sort(([a], [b]) => a - b);
  const users = hours.map(([, some]) => new Set(some.map(({ traceId, userIndex }) => `${traceId} ${userIndex}`)).size);
  const [erased, expired] = becoming === 'erased' ? [1, 0] : [0, 1];
  const sums = ['users_stored', 'events_stored', `users_${becoming}`, `events_${becoming}`];
  await client.query(
    `INSERT INTO ledger AS l (tenant, hour, shard,
       users_received, users_stored, users_duplicates, users_erased, users_expired, users_set_aside, users_rejected,
       events_received, events_stored, events_duplicates, events_erased, events_expired, events_set_aside)
     SELECT $1, hour, ${ACTS_SHARD}, 0, -users, 0, ${erased} * users, ${expired} * users, 0, 0,
       0, -events, 0, ${erased} * events, ${expired} * events, 0
     FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS q (hour, users, events)
     ON CONFLICT (tenant, hour, shard) DO UPDATE SET ${sums.map((name) => `${name} = l.${name} + excluded.${name}`).join(', ')}`,
    [tenant, hours.map(([hour]) => hour), users, hours.map(([, some]) => some.length)],
  );
}
