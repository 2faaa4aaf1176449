/**
 * Counts of events as people read them, made of stored minutes and hours. Days are sums of hours, in UTC. Sums of revenue
 * are rounded alike in every store: the revenues of one bucket are added with compensation, those of a day's hours one
 * after the other, and every sum is kept finite. The sums of the books are read here too.
 */

import type { Books, CountBucket, CountQuery } from '../store.ts';
import { finite, HOUR_MS, MINUTE_MS } from './sums.ts';

export const DAY_MS = 24 * HOUR_MS;
const WIDTH_MS = { minute: MINUTE_MS, hour: HOUR_MS, day: DAY_MS } as const;

export interface CountRow {
  readonly start: number;
  readonly eventName: string | null;
  readonly events: number;
  /** May be infinite, or null where infinities met. */
  readonly revenue: number | null;
}

/** Which stored buckets a question is about. */
export interface CountRange {
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
    from: Math.floor(from / width) * width,
    to: Math.ceil(to / width) * width,
  };
}

/** `rows` in the order of their starts, then names; those of days are hours. */
export function countBuckets({ interval }: CountQuery, rows: readonly CountRow[]): CountBucket[] {
  return interval === 'day' ? sumDays(rows) : rows.map((row) => bucketOf(row, row.start));
}

function bucketOf({ eventName, events, revenue }: CountRow, start: number): CountBucket {
  return { start, eventName, events, revenue: finite(revenue ?? 0) };
}

function sumDays(hours: readonly CountRow[]): CountBucket[] {
  const days = new Map<number, Map<string | null, CountBucket>>();
  for (const hour of hours) {
    const start = Math.floor(hour.start / DAY_MS) * DAY_MS;
    const day = days.get(start) ?? new Map<string | null, CountBucket>();
    days.set(start, day);
    const before = day.get(hour.eventName);
    const row = {
      ...hour,
      events: hour.events + (before?.events ?? 0),
      revenue: finite(hour.revenue ?? 0) + (before?.revenue ?? 0),
    };
    day.set(hour.eventName, bucketOf(row, start));
  }
  // As stores order texts: by their bytes.
  return [...days.values()].flatMap((day) =>
    [...day.values()].sort((a, b) => Buffer.compare(Buffer.from(a.eventName ?? ''), Buffer.from(b.eventName ?? ''))),
  );
}

/** As SQLite's `sum` rounds: what each addition loses is added at the end (Neumaier). Null where infinities met. */
export function sumOfRevenues(revenues: readonly number[]): number | null {
  let sum = 0;
  let lost = 0;
  for (const revenue of revenues) {
    const next = sum + revenue;
    lost += Math.abs(sum) > Math.abs(revenue) ? sum - next + revenue : revenue - next + sum;
    sum = next;
  }
  const result = Number.isFinite(lost) ? sum + lost : sum;
  return Number.isNaN(result) ? null : result;
}

export const BOOK_COLUMNS = ['received', 'stored', 'duplicates', 'erased', 'expired', 'set_aside'] as const;

/** Of columns such as `users_received`; what is still in the log is not in them. */
export function booksOf(row: Readonly<Record<string, number | null>>, what: 'users' | 'events'): Books {
  const sum = (column: (typeof BOOK_COLUMNS)[number]): number => row[`${what}_${column}`] ?? 0;
  return {
    received: sum('received'),
    stored: sum('stored'),
    duplicates: sum('duplicates'),
    erased: sum('erased'),
    expired: sum('expired'),
    setAside: sum('set_aside'),
    pending: 0,
  };
}
