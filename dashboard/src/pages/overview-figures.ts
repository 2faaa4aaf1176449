/**
 * From what the API counts to what the overview shows: gaps filled with zeros, minutes added up to wider buckets, names
 * added up over time. Pure, and without React, so that it can be tested as it is. All times are milliseconds, and every
 * span ends with the bucket that `now` is in: the last bar is always still growing.
 */

import type { Counts, Receipts } from '../types.ts';

export const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

export interface Range {
  /** As it stands in the address; empty for the one that is shown unless asked otherwise. */
  readonly value: '' | '24h';
  readonly label: string;
  readonly spanMs: number;
  /** Of the charts of what was received. */
  readonly bucketMs: number;
  readonly bucketWords: string;
  /** Of what is asked of `/events/counts`, which has no buckets of 15 minutes. */
  readonly interval: 'minute' | 'hour';
  readonly intervalMs: number;
}

export const RANGES: readonly [Range, Range] = [
  {
    value: '',
    label: 'Last hour',
    spanMs: HOUR_MS,
    bucketMs: MINUTE_MS,
    bucketWords: 'per minute',
    interval: 'minute',
    intervalMs: MINUTE_MS,
  },
  {
    value: '24h',
    label: 'Last 24 hours',
    spanMs: 24 * HOUR_MS,
    bucketMs: 15 * MINUTE_MS,
    bucketWords: 'per 15 minutes',
    interval: 'hour',
    intervalMs: HOUR_MS,
  },
];

export function rangeOf(value: string): Range {
  return RANGES.find((range) => range.value === value) ?? RANGES[0];
}

/** The starts of the buckets of a span, oldest first; the last one is the one that `now` is in. */
export function bucketStarts(now: number, spanMs: number, bucketMs: number): number[] {
  const last = Math.floor(now / bucketMs) * bucketMs;
  const count = Math.ceil(spanMs / bucketMs);
  return Array.from({ length: count }, (_, index) => last - (count - 1 - index) * bucketMs);
}

/** Adds up, per bucket, one number of each row. Rows outside of all buckets are left out. */
export function addUp<Row extends { readonly start: string }>(
  rows: readonly Row[],
  starts: readonly number[],
  bucketMs: number,
  numberOf: (row: Row) => number,
): number[] {
  const sums = starts.map(() => 0);
  const first = starts[0] ?? 0;
  for (const row of rows) {
    const index = Math.floor((Date.parse(row.start) - first) / bucketMs);
    const sum = sums[index];
    if (sum !== undefined) sums[index] = sum + numberOf(row);
  }
  return sums;
}

export function totalOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/** Values by bucket, and their sum. */
export interface Row {
  readonly values: readonly number[];
  readonly total: number;
}

export interface Received {
  readonly starts: readonly number[];
  readonly accepted: Row;
  readonly rejected: Row;
  readonly events: Row;
}

export interface Revenue {
  readonly starts: readonly number[];
  readonly revenue: Row;
}

function rowOf(values: readonly number[]): Row {
  return { values, total: totalOf(values) };
}

/** The span that ends with `until`, up to which the minutes are known. */
export function receivedIn({ spanMs, bucketMs }: Range, minutes: Receipts['minutes'], until: number): Received {
  const starts = bucketStarts(until, spanMs, bucketMs);
  return {
    starts,
    accepted: rowOf(addUp(minutes, starts, bucketMs, (minute) => minute.users_accepted)),
    rejected: rowOf(addUp(minutes, starts, bucketMs, (minute) => minute.users_rejected)),
    events: rowOf(addUp(minutes, starts, bucketMs, (minute) => minute.events_accepted)),
  };
}

export function revenueIn({ spanMs, intervalMs }: Range, buckets: Counts['buckets'], until: number): Revenue {
  const starts = bucketStarts(until, spanMs, intervalMs);
  return { starts, revenue: rowOf(addUp(buckets, starts, intervalMs, (bucket) => bucket.revenue)) };
}

export interface NameCount {
  readonly name: string;
  readonly events: number;
  readonly revenue: number;
}

/** The most frequent event names, most frequent first; equal ones by name, so that rows do not jump about. */
export function topNames(
  buckets: readonly { readonly event_name?: string; readonly events: number; readonly revenue: number }[],
  namesMax: number,
): NameCount[] {
  const byName = new Map<string, { events: number; revenue: number }>();
  for (const { event_name: name = '', events, revenue } of buckets) {
    const sum = byName.get(name) ?? { events: 0, revenue: 0 };
    byName.set(name, { events: sum.events + events, revenue: sum.revenue + revenue });
  }
  return [...byName]
    .map(([name, sums]) => ({ name, events: sums.events, revenue: sums.revenue }))
    .toSorted((left, right) => right.events - left.events || (left.name < right.name ? -1 : 1))
    .slice(0, namesMax);
}

export interface BooksOf {
  readonly received: number;
  readonly difference: number;
}

/** What does not add up, in words. `users` and `events` are totals over all hours there ever were. */
export function differenceWords(users: BooksOf, events: BooksOf): string {
  const parts = [partWords(users.difference, 'user'), partWords(events.difference, 'event')].filter(
    (part) => part !== null,
  );
  return parts.length === 0
    ? 'The totals agree, but single hours do not: something was counted in an hour that it did not come in.'
    : `${parts.join(', and ')}.`;
}

function partWords(difference: number, what: string): string | null {
  if (difference === 0) return null;
  const count = Math.abs(difference);
  const things = `${count.toLocaleString('en')} ${what}${count === 1 ? '' : 's'}`;
  return difference > 0
    ? `${things} received, but neither stored nor accounted for`
    : `${things} more accounted for than received`;
}
