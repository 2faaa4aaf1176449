/**
 * Counts of events by minute and hour of their own timestamps, with their revenue by currency, summed exactly: gathered in a
 * transaction until the store writes them, added up for the API (days are sums of hours, in UTC), and reduced when events
 * are erased or expire. Pure, and the same for every store.
 */

import { DAY_MS, HOUR_MS, MINUTE_MS } from '../model.ts';
import type { CountBucket, CountQuery, CurrencySum } from '../store.ts';
import type { EventToStore } from '../store-writer.ts';
import { amountToSum, type CountedCurrency, NO_CURRENCY, NO_REVENUE, OTHER_CURRENCY } from './currency.ts';
import { Decimal } from './decimal.ts';
import { startOf } from './sums.ts';

export interface CountedBucket {
  readonly tenant: number;
  readonly width: number;
  readonly start: number;
  readonly eventName: string;
  readonly currency: CountedCurrency;
  events: number;
  revenue: Decimal;
}

export type Bucket = Pick<CountedBucket, 'width' | 'start' | 'eventName' | 'currency'>;

/** A minute, and the hour that it is part of. */
interface Minute extends CountedBucket {
  readonly hour: CountedBucket;
}

type MinutesOfStart = Map<CountedCurrency, Map<string, Minute>>;

const NOTHING = { events: 0, revenue: Decimal.ZERO };

/** The order in which all writers lock buckets, so that two never deadlock. */
export function compareBuckets(a: CountedBucket, b: CountedBucket): number {
  return (
    a.tenant - b.tenant ||
    a.width - b.width ||
    a.start - b.start ||
    (a.eventName < b.eventName ? -1 : +(a.eventName > b.eventName)) ||
    (a.currency < b.currency ? -1 : +(a.currency > b.currency))
  );
}

export class EventCounts {
  readonly #minutes = new Map<number, Map<number, MinutesOfStart>>();
  readonly #hours = new Map<string, CountedBucket>();
  readonly #listed: Minute[] = [];

  add(tenant: number, { timestamp, name, revenue, currency }: CountedEvent): void {
    const start = startOf(timestamp, MINUTE_MS);
    // Not by one text made of all: making it would cost more than looking up four times.
    const names = this.#minutes.get(tenant)?.get(start)?.get(currency);
    const minute = names?.get(name) ?? this.#minute(tenant, start, name, currency);
    minute.events += 1;
    const amount = amountToSum(revenue, currency);
    if (amount !== 0) minute.revenue = minute.revenue.plus(Decimal.of(amount));
  }

  take(): CountedBucket[] {
    for (const { hour, events, revenue } of this.#listed) {
      hour.events += events;
      hour.revenue = hour.revenue.plus(revenue);
    }
    const buckets = [...this.#hours.values(), ...this.#listed];
    this.clear();
    return buckets;
  }

  clear(): void {
    this.#minutes.clear();
    this.#hours.clear();
    this.#listed.length = 0;
  }

  #minute(tenant: number, start: number, eventName: string, currency: CountedCurrency): Minute {
    const hourStart = startOf(start, HOUR_MS);
    // A currency has no space in it.
    const hourName = `${tenant} ${hourStart} ${currency} ${eventName}`;
    const newHour = { tenant, width: HOUR_MS, start: hourStart, eventName, currency, ...NOTHING };
    const hour = this.#hours.getOrInsert(hourName, newHour);
    const minute = { tenant, width: MINUTE_MS, start, eventName, currency, ...NOTHING, hour };
    this.#listed.push(minute);
    const starts = this.#minutes.getOrInsertComputed(tenant, () => new Map<number, MinutesOfStart>());
    const currencies = starts.getOrInsertComputed(start, () => new Map<CountedCurrency, Map<string, Minute>>());
    currencies.getOrInsertComputed(currency, () => new Map<string, Minute>()).set(eventName, minute);
    return minute;
  }
}

export type CountedEvent = Pick<EventToStore, 'timestamp' | 'name' | 'revenue' | 'currency'>;

const WIDTH_MS = { minute: MINUTE_MS, hour: HOUR_MS, day: DAY_MS } as const;

/** Events of one name, or of all, with revenue in one currency or without revenue. */
export interface CountRow {
  readonly start: number;
  readonly eventName: string | null;
  readonly currency: CountedCurrency;
  readonly events: number;
  readonly revenue: string;
}

/**
 * Which stored buckets a query is about. Every bucket that has a part in the range is given whole: a range that begins or
 * ends within a bucket is widened to it.
 */
export function countRange({ interval, from, to }: CountQuery) {
  const width = WIDTH_MS[interval];
  return { width: Math.min(width, HOUR_MS), from: startOf(from, width), to: Math.ceil(to / width) * width };
}

interface Sums {
  events: number;
  readonly revenue: Map<CountedCurrency, { events: number; revenue: Decimal }>;
}

/** `rows` in the order of their names where they have any; those of days are hours. */
export function countBuckets({ interval }: CountQuery, rows: readonly CountRow[]): CountBucket[] {
  const buckets = new Map<number, Map<string | null, Sums>>();
  for (const row of rows) {
    const start = interval === 'day' ? startOf(row.start, DAY_MS) : row.start;
    const names = buckets.getOrInsertComputed(start, () => new Map<string | null, Sums>());
    addRow(names.getOrInsert(row.eventName, { events: 0, revenue: new Map() }), row);
  }
  const starts = [...buckets].sort(([a], [b]) => a - b);
  return starts.flatMap(([start, names]) => {
    // As stores order texts: by their bytes.
    const byName = ([a]: [string | null, Sums], [b]: [string | null, Sums]): number =>
      Buffer.compare(Buffer.from(a ?? ''), Buffer.from(b ?? ''));
    const sorted = interval === 'day' ? [...names].sort(byName) : [...names];
    return sorted.map(([eventName, sums]) => ({ start, eventName, events: sums.events, revenue: revenueOf(sums) }));
  });
}

function addRow(sums: Sums, { currency, events, revenue }: CountRow): void {
  sums.events += events;
  if (currency === NO_REVENUE) return;
  const ofCurrency = sums.revenue.getOrInsert(currency, { ...NOTHING });
  ofCurrency.events += events;
  ofCurrency.revenue = ofCurrency.revenue.plus(Decimal.of(revenue));
}

/** Codes first, in their order. */
function revenueOf({ revenue }: Sums): CurrencySum[] {
  const sorted = [...revenue].sort(([a], [b]) => (a < b ? -1 : 1));
  return sorted.map(([currency, sum]) => ({
    currency: currency === NO_CURRENCY ? null : currency,
    events: sum.events,
    revenue: currency === OTHER_CURRENCY ? null : sum.revenue.toNumber(),
  }));
}

/** A row of the counts. Each writer has some of its own, by shard. */
export interface CountedRow extends Bucket {
  readonly shard: number;
  readonly events: number;
  readonly revenue: string;
}

function nameOf({ width, start, eventName, currency }: Bucket): string {
  // A currency has no space in it.
  return `${width} ${start} ${currency} ${eventName}`;
}

/**
 * What remains after events were erased or have expired: the rows as they are from now on; those without events are to be
 * removed. `rows` are all shards of the buckets. An event does not say in which shard it was counted, so the remaining
 * revenue of a bucket goes into one of its shards: a shard alone means nothing.
 */
export function rowsWithout(losses: readonly CountedBucket[], rows: readonly CountedRow[]): CountedRow[] {
  const shards = Map.groupBy(rows, nameOf);
  return losses.flatMap((loss) => shardsWithout(shards.get(nameOf(loss)) ?? [], loss));
}

function shardsWithout(shards: readonly CountedRow[], loss: CountedBucket): CountedRow[] {
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
