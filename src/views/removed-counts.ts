/**
 * Computes the counts by minute and hour that remain after some events are erased or have expired, the same for every
 * store. Pure: a store reads the rows of the buckets that `lossesOf` names and writes the result of `rowsWithout`.
 *
 * An event does not say in which shard it was counted, so the remaining revenue of a bucket goes into one of its shards: a
 * shard alone means nothing.
 */

import { amountToSum, type CountedCurrency } from './currency.ts';
import { Decimal } from './decimal.ts';
import { startOf } from './sums.ts';

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
  readonly revenue: string;
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
  revenue: Decimal;
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
    const loss = losses.get(name) ?? { ...bucket, events: 0, revenue: Decimal.ZERO };
    losses.set(name, loss);
    loss.events += 1;
    loss.revenue = loss.revenue.plus(Decimal.of(amountToSum(revenue, currency)));
  }
  return [...losses.values()];
}

/** The rows as they are from now on; those without events are to be removed. `rows` are all shards of the buckets. */
export function rowsWithout(losses: readonly Loss[], rows: readonly CountedRow[]): CountedRow[] {
  const shards = Map.groupBy(rows, nameOf);
  return losses.flatMap((loss) => shardsWithout(shards.get(nameOf(loss)) ?? [], loss));
}

function shardsWithout(shards: readonly CountedRow[], loss: Loss): CountedRow[] {
  let toTake = loss.events;
  const rows = shards.map((row) => {
    const taken = Math.min(row.events, toTake);
    toTake -= taken;
    return { ...row, events: row.events - taken, revenue: '0' };
  });
  const kept = rows.find(({ events }) => events !== 0);
  const before = shards.reduce((sum, { revenue }) => sum.plus(Decimal.of(revenue)), Decimal.ZERO);
  if (kept !== undefined) kept.revenue = String(before.minus(loss.revenue));
  return rows;
}
