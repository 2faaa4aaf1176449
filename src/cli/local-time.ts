/**
 * Times and amounts as people read them: times in the local zone, programs (`--json`) get UTC.
 * And back: the times that people write after `--since`, `--from` and `--to`.
 */

import { parseDurationMs } from '../config/values.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from '../model.ts';
import { parseIso8601 } from '../validation/iso8601.ts';

const SPANS: readonly (readonly [unit: string, milliseconds: number])[] = [
  ['d', DAY_MS],
  ['h', HOUR_MS],
  ['m', MINUTE_MS],
  ['s', SECOND_MS],
];
const SIZES: readonly (readonly [unit: string, bytes: number])[] = [
  ['GB', 1_024 ** 3],
  ['MB', 1_024 ** 2],
  ['kB', 1_024],
];

export const MOMENT_EXPECTED = 'a time such as 24h (ago) or a date such as 2026-01-31 or 2026-01-31T12:00Z (UTC)';

/** `2026-03-01 12:30:07` in the local zone. */
export function localTime(time: number): string {
  const date = new Date(time);
  const [month, day, hour, minute, second] = [
    date.getMonth() + 1,
    date.getDate(),
    date.getHours(),
    date.getMinutes(),
    date.getSeconds(),
  ].map((part) => String(part).padStart(2, '0'));
  return `${String(date.getFullYear()).padStart(4, '0')}-${month}-${day} ${hour}:${minute}:${second}`;
}

/** In 12 columns: `12:30:07.123` of today, `03-01 12:30` of another day, `2025-03-01` of another year. */
export function shortTime(time: number, now: number): string {
  const [date = '', clock = ''] = localTime(time).split(' ');
  const isToday = localTime(now).startsWith(date);
  const milliseconds = String(new Date(time).getMilliseconds()).padStart(3, '0');
  if (isToday) return `${clock}.${milliseconds}`;
  const isThisYear = new Date(time).getFullYear() === new Date(now).getFullYear();
  return isThisYear ? `${date.slice(5)} ${clock.slice(0, 5)} ` : date.padEnd(12);
}

export function isoTime(time: number): string {
  return new Date(time).toISOString();
}

/** `3d 4h`, `12s`, `850 ms`: the two largest units. */
export function formatSpan(milliseconds: number): string {
  if (milliseconds < SECOND_MS) return `${Math.max(0, Math.round(milliseconds))} ms`;
  let rest = Math.round(milliseconds / SECOND_MS) * SECOND_MS;
  const parts: string[] = [];
  for (const [unit, factor] of SPANS) {
    const amount = Math.floor(rest / factor);
    rest -= amount * factor;
    if (amount > 0) parts.push(`${amount}${unit}`);
    else if (parts.length > 0) break;
  }
  return parts.slice(0, 2).join(' ');
}

/** `1.4 MB`; 1 kB is 1024 bytes, as everywhere in Sluice. */
export function formatBytes(bytes: number): string {
  const [unit, factor] = SIZES.find(([, size]) => bytes >= size) ?? ['B', 1];
  const amount = bytes / factor;
  return `${factor === 1 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${unit}`;
}

/** `1,234,567`. */
export function formatCount(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** `1 user`, `2 users`. */
export function countOf(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/** A time ago, or a date or date-time of ISO 8601; undefined for anything else. */
export function readMoment(text: string, now: number): number | undefined {
  const ago = parseDurationMs(text);
  return ago === undefined ? parseIso8601(text) : now - ago;
}
