/**
 * Times and amounts as people read them: times in the local zone, programs (`--json`) get UTC.
 * And back: the times that people write after `--since`, `--from` and `--to`.
 */

import type { FlagsRead } from '../config/flags.ts';
import { parseDurationMs } from '../config/values.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from '../model.ts';
import { parseIso8601 } from '../validation/iso8601.ts';
import { readFlag } from './arguments.ts';

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

const COUNT = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** `2026-03-01 12:30:07` in the local zone. A file that was edited by hand may have a time that is none. */
export function localTime(time: number): string {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return 'an unknown time';
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
  const [local, today] = [localTime(time), localTime(now)];
  const milliseconds = String(new Date(time).getMilliseconds()).padStart(3, '0');
  if (local.slice(0, 10) === today.slice(0, 10)) return `${local.slice(11)}.${milliseconds}`;
  return local.slice(0, 4) === today.slice(0, 4) ? `${local.slice(5, 16)} ` : local.slice(0, 10).padEnd(12);
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
  return COUNT.format(count);
}

/** `1 user`, `2 users`. */
export function countOf(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/** A time ago, or a date or date-time of ISO 8601, as `--from` and `--to` take them. */
export function readMoment(flags: FlagsRead, flag: string, now: number): number | undefined {
  const parse = (text: string): number | undefined => {
    const ago = parseDurationMs(text);
    return ago === undefined ? parseIso8601(text) : now - ago;
  };
  return readFlag(
    flags,
    flag,
    parse,
    'a time such as 24h (ago) or a date such as 2026-01-31 or 2026-01-31T12:00Z (UTC)',
  );
}
