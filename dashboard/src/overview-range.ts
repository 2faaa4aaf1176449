/**
 * Which time the overview is about. Range, ends and clock are in the address; what the page does not know is refused
 * in words and never replaced by something else. Ranges are made of whole buckets: minutes, hours, or days of the viewer.
 * What is asked of the server changes only when a bucket ends. Pure.
 *
 * The server counts by minute and by hour of UTC; days are added up here from hours. In zones that are off by half an
 * hour, the hour in which a day begins belongs to the day before.
 */

import { DAY_MS, HOUR_MS, MINUTE_MS } from './time-units.ts';

/** Counts by minute of receipt are kept for 7 days; a little less, so that none goes while it is looked at. */
const RECEIPT_MINUTES_KEPT_MS = 7 * DAY_MS - HOUR_MS;
/** As many hours as the server counts at once. */
const CUSTOM_DAYS_MAX = 400;
const MINUTES_UP_TO_MS = 3 * HOUR_MS;
const HOURS_UP_TO_MS = 8 * DAY_MS;

export type Clock = 'event' | 'receipt';
type Unit = 'minute' | 'hour' | 'day';
export type RangeName = '1h' | '24h' | '7d' | '30d' | '90d' | 'custom';

interface NamedRange {
  readonly name: RangeName;
  /** Of the choice. */
  readonly label: string;
  /** What comes after a number of events. */
  readonly words: string;
  readonly unit: Unit;
  readonly count: number;
}

export const DEFAULT_RANGE: RangeName = '1h';
export const NAMED_RANGES: readonly NamedRange[] = [
  { name: '1h', label: '1 hour', words: 'in the last hour', unit: 'minute', count: 60 },
  { name: '24h', label: '24 hours', words: 'in the last 24 hours', unit: 'hour', count: 24 },
  { name: '7d', label: '7 days', words: 'in the last 7 days', unit: 'hour', count: 7 * 24 },
  { name: '30d', label: '30 days', words: 'in the last 30 days', unit: 'day', count: 30 },
  { name: '90d', label: '90 days', words: 'in the last 90 days', unit: 'day', count: 90 },
];

export interface Range {
  readonly name: RangeName;
  readonly words: string;
  readonly unit: Unit;
  /** Of the buckets, oldest first. */
  readonly starts: readonly number[];
  /** From (inclusive) to (exclusive): starts of minutes, or of hours. */
  readonly from: number;
  readonly to: number;
  /** Whether it ends now and moves on. */
  readonly isMoving: boolean;
}

/** As they are in the address; '' for what is not there. */
export interface RangeText {
  readonly range: string;
  readonly from: string;
  readonly to: string;
}

/** A range, or what is wrong with what was asked for. */
type RangeResult = { readonly range: Range } | { readonly problem: string };

export function clockOf(text: string): Clock | undefined {
  if (text === '') return 'event';
  return text === 'event' || text === 'receipt' ? text : undefined;
}

export function rangeOf(text: RangeText, clock: Clock, now: number): RangeResult {
  const name = text.range === '' ? DEFAULT_RANGE : text.range;
  if (name === 'custom') return customRange(text, clock, now);
  const named = NAMED_RANGES.find((each) => each.name === name);
  if (named === undefined) {
    const names = [...NAMED_RANGES.map((each) => each.name), 'custom'].join(', ');
    return { problem: `There is no range “${name}”. The ranges are ${names}.` };
  }
  return { range: endingNow(named, now) };
}

function endingNow({ name, words, unit, count }: NamedRange, now: number): Range {
  const starts = unit === 'day' ? daysBack(now, count) : bucketStarts(now, count, widthOf(unit));
  const from = floorTo(starts[0] ?? now, widthOf(unit));
  const to = floorTo(now, widthOf(unit)) + widthOf(unit);
  return { name, words, unit, starts, from, to, isMoving: true };
}

function customRange({ from: fromText, to: toText }: RangeText, clock: Clock, now: number): RangeResult {
  const [from, to] = [Date.parse(fromText), Date.parse(toText)];
  if (fromText === '' || toText === '') return { problem: 'Choose the beginning and the end of the range.' };
  if (Number.isNaN(from)) return { problem: `“${fromText}” is not a time that the range can begin with.` };
  if (Number.isNaN(to)) return { problem: `“${toText}” is not a time that the range can end with.` };
  if (from >= to) return { problem: 'The range must begin before it ends.' };
  if (to - from > CUSTOM_DAYS_MAX * DAY_MS) return { problem: `A range is at most ${CUSTOM_DAYS_MAX} days long.` };
  return { range: between(from, to, customUnit(from, to, clock, now)) };
}

function customUnit(from: number, to: number, clock: Clock, now: number): Unit {
  if (to - from > HOURS_UP_TO_MS) return 'day';
  const hasMinutes = clock === 'event' || from >= now - RECEIPT_MINUTES_KEPT_MS;
  return to - from <= MINUTES_UP_TO_MS && hasMinutes ? 'minute' : 'hour';
}

/** Widened to whole minutes or hours: that is what the server counts in. */
function between(fromTime: number, toTime: number, unit: Unit): Range {
  const width = widthOf(unit);
  const [from, to] = [floorTo(fromTime, width), Math.ceil(toTime / width) * width];
  const starts: number[] = [];
  if (unit === 'day') {
    for (let day = dayStart(from, 0); day < to; day = dayStart(day, 1)) starts.push(Math.max(day, from));
  } else {
    for (let start = from; start < to; start += width) starts.push(start);
  }
  return { name: 'custom', words: 'in this range', unit, starts, from, to, isMoving: false };
}

/** In which the server counts. */
function widthOf(unit: Unit): number {
  return unit === 'minute' ? MINUTE_MS : HOUR_MS;
}

function floorTo(time: number, width: number): number {
  return Math.floor(time / width) * width;
}

/** The starts of the last buckets, oldest first; the last one is the one that `now` is in. */
function bucketStarts(now: number, count: number, width: number): number[] {
  const last = floorTo(now, width);
  return Array.from({ length: count }, (_, index) => last - (count - 1 - index) * width);
}

/** By the calendar of the viewer: days may have 23 or 25 hours. */
function dayStart(time: number, daysLater: number): number {
  const at = new Date(time);
  return new Date(at.getFullYear(), at.getMonth(), at.getDate() + daysLater).getTime();
}

function daysBack(now: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => dayStart(now, index - count + 1));
}

/** The bucket that a minute or hour of the server belongs to; -1 for none. */
export function placeIn({ starts, from, to }: Pick<Range, 'starts' | 'from' | 'to'>, time: number): number {
  if (time < from || time >= to) return -1;
  let [low, high] = [0, starts.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((starts[middle] ?? 0) <= time) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** What is asked of `/events/counts`. */
export interface CountPiece {
  readonly interval: Unit;
  readonly from: number;
  readonly to: number;
}

/**
 * The fewest questions that give the sums of a range exactly: the days of UTC that lie within it as days, the rest by
 * hour. Counts by event name would otherwise be thousands of hours of every name.
 */
export function countPieces({ unit, from, to }: Pick<Range, 'unit' | 'from' | 'to'>): CountPiece[] {
  if (unit !== 'day') return [{ interval: unit, from, to }];
  const firstDay = Math.ceil(from / DAY_MS) * DAY_MS;
  const lastDay = floorTo(to, DAY_MS);
  if (firstDay >= lastDay) return [{ interval: 'hour', from, to }];
  const pieces: CountPiece[] = [
    { interval: 'hour', from, to: firstDay },
    { interval: 'day', from: firstDay, to: lastDay },
    { interval: 'hour', from: lastDay, to },
  ];
  return pieces.filter((piece) => piece.from < piece.to);
}

/** Of the API, for a piece or a whole range. */
export function timesQuery({ from, to }: { readonly from: number; readonly to: number }): string {
  return `from=${new Date(from).toISOString()}&to=${new Date(to).toISOString()}`;
}

/** The query of the address of a view: what is default is left out. */
export function addressQuery(text: RangeText, clock: Clock): string {
  const query = new URLSearchParams();
  if (text.range !== '' && text.range !== DEFAULT_RANGE) query.set('range', text.range);
  if (text.range === 'custom' && text.from !== '') query.set('from', text.from);
  if (text.range === 'custom' && text.to !== '') query.set('to', text.to);
  if (clock === 'receipt') query.set('clock', clock);
  const words = query.toString();
  return words === '' ? '' : `?${words}`;
}
