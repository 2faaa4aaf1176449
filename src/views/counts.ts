/**
 * Counts of events for the API, computed from stored minutes and hours. Days are sums of hours, in UTC. Revenue is
 * summed per currency, exactly. The sums of the ledger are read here too.
 */

import { DAY_MS, HOUR_MS, MINUTE_MS } from '../model.ts';
import type { LedgerSums, CountBucket, CountQuery, CurrencySum } from '../store.ts';
import { type CountedCurrency, NO_CURRENCY, NO_REVENUE, OTHER_CURRENCY } from './currency.ts';
import { Decimal } from './decimal.ts';
import { startOf } from './sums.ts';

const WIDTH_MS = { minute: MINUTE_MS, hour: HOUR_MS, day: DAY_MS } as const;

/** Events of one name, or of all, with revenue in one currency or without revenue. */
export interface CountRow {
  readonly start: number;
  readonly eventName: string | null;
  readonly currency: CountedCurrency;
  readonly events: number;
  readonly revenue: string;
}

/** Which stored buckets a question is about. */
interface CountRange {
  readonly width: number;
  /** From (inclusive) to (exclusive). */
  readonly from: number;
  readonly to: number;
}

/**
 * Every bucket that has a part in the range is given whole: a range that begins or ends within a bucket is widened to
 * it.
 */
export function countRange({ interval, from, to }: CountQuery): CountRange {
  const width = WIDTH_MS[interval];
  return {
    width: Math.min(width, HOUR_MS),
    from: startOf(from, width),
    to: Math.ceil(to / width) * width,
  };
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
    const names = buckets.get(start) ?? new Map<string | null, Sums>();
    buckets.set(start, names);
    const sums = names.get(row.eventName) ?? { events: 0, revenue: new Map() };
    names.set(row.eventName, sums);
    addRow(sums, row);
  }
  const starts = [...buckets].sort(([a], [b]) => a - b);
  return starts.flatMap(([start, names]) => {
    const sorted = interval === 'day' ? [...names].sort(([a], [b]) => compareTexts(a ?? '', b ?? '')) : [...names];
    return sorted.map(([eventName, sums]) => ({ start, eventName, events: sums.events, revenue: revenueOf(sums) }));
  });
}

function addRow(sums: Sums, { currency, events, revenue }: CountRow): void {
  sums.events += events;
  if (currency === NO_REVENUE) return;
  const before = sums.revenue.get(currency) ?? { events: 0, revenue: Decimal.ZERO };
  sums.revenue.set(currency, {
    events: before.events + events,
    revenue: before.revenue.plus(Decimal.of(revenue)),
  });
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

/** As stores order texts: by their bytes. */
function compareTexts(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** What can become of a received user or event, as columns of the ledger. */
export const OUTCOMES = ['received', 'stored', 'duplicates', 'erased', 'expired', 'dead_letters'] as const;

/** The sums in columns such as `users_received`, without what is still in the log. */
export function ledgerSumsOf(row: Readonly<Record<string, number | null>>, what: 'users' | 'events'): LedgerSums {
  const sum = (column: (typeof OUTCOMES)[number]): number => row[`${what}_${column}`] ?? 0;
  return {
    received: sum('received'),
    stored: sum('stored'),
    duplicates: sum('duplicates'),
    erased: sum('erased'),
    expired: sum('expired'),
    deadLetters: sum('dead_letters'),
    pending: 0,
  };
}
