/**
 * From what the API counts to what the overview shows: gaps filled with zeros, minutes and hours added up to the buckets
 * of a range, names added up over time, money by currency and never across currencies. Pure, and without React, so that
 * it can be tested as it is. All times are milliseconds.
 */

import { placeIn, type Range } from '../overview-range.ts';
import type { CountBucket, Counts, CurrencySum, LedgerHour, Receipts } from '../api-types.ts';

/** Adds up, per bucket of the range, one number of each row. Rows outside of it are left out. */
export function addUp<Row>(
  rows: readonly Row[],
  range: Pick<Range, 'starts' | 'from' | 'to'>,
  timeOf: (row: Row) => string,
  numberOf: (row: Row) => number,
): number[] {
  const sums = range.starts.map(() => 0);
  for (const row of rows) {
    const index = placeIn(range, Date.parse(timeOf(row)));
    const sum = sums[index];
    if (sum !== undefined) sums[index] = sum + numberOf(row);
  }
  return sums;
}

function totalOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/** Values by bucket, and their sum. */
interface Row {
  readonly values: readonly number[];
  readonly total: number;
}

function rowOf(values: readonly number[]): Row {
  return { values, total: totalOf(values) };
}

/** By receipt time. */
export interface Received {
  readonly range: Range;
  readonly accepted: Row;
  readonly rejected: Row;
  readonly events: Row;
  /** Users that were rejected and resubmitted since, whose events are among `events`: the ledger does not tell them apart. */
  readonly resubmitted: number;
}

export function receivedByMinute(range: Range, minutes: Receipts['minutes']): Received {
  const add = (numberOf: (minute: Receipts['minutes'][number]) => number): Row =>
    rowOf(addUp(minutes, range, ({ start }) => start, numberOf));
  return {
    range,
    accepted: add((minute) => minute.users_accepted),
    rejected: add((minute) => minute.users_rejected),
    events: add((minute) => minute.events_accepted),
    resubmitted: 0,
  };
}

export function receivedByHour(range: Range, hours: readonly LedgerHour[]): Received {
  const add = (numberOf: (hour: LedgerHour) => number): Row => rowOf(addUp(hours, range, ({ hour }) => hour, numberOf));
  return {
    range,
    // To the ledger a resubmitted user is received too, but its response said rejected.
    accepted: add((hour) => hour.users.received - hour.users_resubmitted),
    rejected: add((hour) => hour.users_rejected),
    events: add(({ events }) => events.received),
    resubmitted: add((hour) => hour.users_resubmitted).total,
  };
}

/** By event time. */
export interface Counted {
  readonly range: Range;
  readonly events: Row;
  /** The currency of most events first. */
  readonly revenue: readonly CurrencyRow[];
}

export interface CurrencyRow {
  /** Null for revenue without a currency. */
  readonly currency: string | null;
  readonly events: number;
  /** Null where amounts are not added: they may be of different currencies. */
  readonly revenue: Row | null;
}

export function countedIn(range: Range, buckets: Counts['buckets']): Counted {
  return {
    range,
    events: rowOf(
      addUp(
        buckets,
        range,
        ({ start }) => start,
        ({ events }) => events,
      ),
    ),
    revenue: revenueIn(range, buckets),
  };
}

function revenueIn(range: Range, buckets: readonly CountBucket[]): CurrencyRow[] {
  const rows = buckets.flatMap(({ start, revenue }) => revenue.map((sum) => ({ ...sum, start })));
  const inRange = rows.filter(({ start }) => placeIn(range, Date.parse(start)) >= 0);
  const byCurrency = [...Map.groupBy(inRange, ({ currency }) => currency)];
  return byCurrency
    .map(([currency, sums]) => ({
      currency,
      events: totalOf(sums.map(({ events }) => events)),
      revenue: sumsOf(range, sums),
    }))
    .toSorted((left, right) => right.events - left.events || ((left.currency ?? '') < (right.currency ?? '') ? -1 : 1));
}

function sumsOf(range: Range, sums: readonly (CurrencySum & { readonly start: string })[]): Row | null {
  if (sums.some(({ revenue }) => revenue === null)) return null;
  return rowOf(
    addUp(
      sums,
      range,
      ({ start }) => start,
      ({ revenue }) => revenue ?? 0,
    ),
  );
}

/** As it is in the address and in lists; codes are capitals, so nothing is mistaken for this. */
export function currencyName(currency: string | null): string {
  return currency ?? 'none';
}

export function currencyLabel(currency: string | null): string {
  if (currency === null) return 'no currency';
  return currency === 'other' ? 'other currencies' : currency;
}

const plain = new Intl.NumberFormat('en-GB', { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** With the code, and as many decimals as the currency has: sums of doubles have digits that were not sent. */
export function formatMoney(amount: number, currency: string | null): string {
  if (currency === null) return plain.format(amount);
  const style = { style: 'currency', currency, currencyDisplay: 'code' } as const;
  // Between code and amount stands a space that does not break; a plain one reads the same and can be searched for.
  return new Intl.NumberFormat('en-GB', style).format(amount).replaceAll('\u00A0', ' ');
}

interface NameCount {
  readonly name: string;
  readonly events: number;
}

/** The most frequent event names, most frequent first; equal ones by name, so that rows do not jump about. */
export function topNames(
  buckets: readonly Pick<CountBucket, 'event_name' | 'events'>[],
  namesMax: number,
): NameCount[] {
  const byName = new Map<string, number>();
  for (const { event_name: name = '', events } of buckets) byName.set(name, (byName.get(name) ?? 0) + events);
  return [...byName]
    .map(([name, events]) => ({ name, events }))
    .toSorted((left, right) => right.events - left.events || (left.name < right.name ? -1 : 1))
    .slice(0, namesMax);
}

interface SumsOf {
  readonly received: number;
  readonly difference: number;
}

/** What does not add up, in words. `users` and `events` are totals over all hours there ever were. */
export function differenceWords(users: SumsOf, events: SumsOf): string {
  const parts = [partWords(users.difference, 'user'), partWords(events.difference, 'event')].filter(
    (part) => part !== null,
  );
  return parts.length === 0
    ? 'The totals agree, but individual hours do not: something was counted in an hour in which it was not received.'
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
