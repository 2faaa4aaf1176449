/**
 * Computes the counts by minute and hour that remain after some events are erased or have expired, the same for every
 * store. Pure: a store reads the affected rows (`Counted`) and writes the result of `rowsWithout`.
 *
 * Numbers of events are exact. Sums of revenue are computed again from the remaining events, because subtracting from a
 * sum leaves rounding errors; if a minute has too many events for that, the revenue is subtracted. Every sum is kept
 * finite at each step, as the writer does. An event does not say in which shard it was counted, so the remaining
 * revenue of a bucket goes into one of its shards: a shard alone means nothing.
 */

import { HOUR_MS, MINUTE_MS } from '../model.ts';
import { amountToSum, type CountedCurrency } from './currency.ts';
import { finite, startOf } from './sums.ts';

/** Events that are read to sum revenue again, for all minutes of one call together. */
const RESUMMED_EVENTS_MAX = 2_000;

export interface Bucket {
  /** In milliseconds. */
  readonly width: number;
  readonly start: number;
  readonly eventName: string;
  readonly currency: CountedCurrency;
}

export interface CountedRow extends Bucket {
  readonly shard: number;
  readonly events: number;
  readonly revenue: number;
}

/** The minute, name, currency and revenue of one event, or of all of them. */
export interface MinuteRevenue<Revenue> extends Omit<Bucket, 'width'> {
  readonly revenue: Revenue;
}

export interface RemovedEventCount {
  readonly timestamp: number;
  readonly name: string;
  readonly revenue: number | string | null;
  readonly currency: CountedCurrency;
}

/** A bucket, with what is taken out of it. */
interface Loss extends Bucket {
  events: number;
  /** May be 0 if the amounts cancel out; the sum may still change. */
  revenue: number;
  hasRevenue: boolean;
}

interface Counted {
  /** All shards of the buckets that lose something. */
  readonly rows: readonly CountedRow[];
  /** Minutes of the hours that lose revenue, oldest first, shard by shard. */
  readonly minutes: readonly MinuteRevenue<number>[];
  /** The remaining events with revenue in `resummed` minutes, in the order of the log. */
  readonly revenues: Iterable<MinuteRevenue<number | string>>;
}

function nameOf({ width, start, eventName, currency }: Bucket): string {
  // A currency has no space in it.
  return `${width} ${start} ${currency} ${eventName}`;
}

export function lossesOf(events: readonly RemovedEventCount[], width: number): Loss[] {
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

/** Starts of the minutes that lose revenue. */
export function minutesWithRevenue(minutes: readonly Loss[]): Set<number> {
  return new Set(minutes.filter(({ hasRevenue }) => hasRevenue).map(({ start }) => start));
}

/** Those minutes whose events may be read to sum them again; `sizes` are all events of each, whatever their names. */
export function minutesToResum(starts: ReadonlySet<number>, sizes: ReadonlyMap<number, number>): Set<number> {
  let budget = RESUMMED_EVENTS_MAX;
  const resummed = [...starts].filter((start) => {
    const size = sizes.get(start) ?? 0;
    const isWithin = size <= budget;
    budget -= Math.min(size, budget);
    return isWithin;
  });
  return new Set(resummed);
}

/** The rows as they are from now on; those without events are to be removed. */
export function rowsWithout(
  { minutes, hours, resummed }: { minutes: readonly Loss[]; hours: readonly Loss[]; resummed: ReadonlySet<number> },
  counted: Counted,
): CountedRow[] {
  const rows = Map.groupBy(counted.rows, nameOf);
  const sums = sumsOf(counted.revenues);
  const minutesOf = Map.groupBy(counted.minutes, ({ start, eventName, currency }) =>
    nameOf({ width: HOUR_MS, start: startOf(start, HOUR_MS), eventName, currency }),
  );
  const left = new Map<string, CountedRow[]>();
  for (const loss of minutes) {
    const total = resummed.has(loss.start) ? (sums.get(nameOf(loss)) ?? 0) : undefined;
    left.set(nameOf(loss), shardsWithout(rows.get(nameOf(loss)) ?? [], loss, total));
  }
  for (const loss of hours) {
    // An hour's revenue is that of its minutes, which are right by now.
    const total = loss.hasRevenue ? revenueOfHour(minutesOf.get(nameOf(loss)) ?? [], left) : undefined;
    left.set(nameOf(loss), shardsWithout(rows.get(nameOf(loss)) ?? [], { ...loss, revenue: 0 }, total));
  }
  return [...left.values()].flat();
}

function sumsOf(revenues: Counted['revenues']): Map<string, number> {
  const sums = new Map<string, number>();
  for (const { start, eventName, currency, revenue } of revenues) {
    const name = nameOf({ width: MINUTE_MS, start, eventName, currency });
    sums.set(name, finite((sums.get(name) ?? 0) + amountToSum(revenue, currency)));
  }
  return sums;
}

/** The shards of a bucket after a loss; `total` is the revenue that is left, where that is known. */
function shardsWithout(shards: readonly CountedRow[], loss: Loss, total: number | undefined): CountedRow[] {
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

/** `minutes` as they were; `left` has those that lost something. */
function revenueOfHour(minutes: Counted['minutes'], left: ReadonlyMap<string, readonly CountedRow[]>): number {
  let sum = 0;
  for (const rows of Map.groupBy(minutes, ({ start }) => start).values()) {
    const [{ start, eventName, currency }] = rows as [Counted['minutes'][number]];
    const changed = left.get(nameOf({ width: MINUTE_MS, start, eventName, currency }));
    const present = changed === undefined ? rows : changed.filter(({ events }) => events !== 0);
    sum = finite(sum + present.reduce((total, { revenue }) => finite(total + revenue), 0));
  }
  return sum;
}
