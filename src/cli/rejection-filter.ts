/**
 * Which rejected users a command is about: `--reason`, `--event`, `--key-id`, `--from`, `--to`, named as the API has them.
 */

import type { FlagsRead } from '../config/flags.ts';
import { parseDurationMs } from '../config/values.ts';
import { parseIso8601 } from '../validation/iso8601.ts';

const TEXTS = [
  ['reason', 'reason'],
  ['event', 'event_name'],
  ['key-id', 'key_id'],
] as const;

export function readRejectionFilter(flags: FlagsRead, now: number, mistakes: string[]): Record<string, string> {
  const filter: Record<string, string> = {};
  for (const [flag, name] of TEXTS) {
    const value = flags.values.get(flag);
    if (value !== undefined) filter[name] = value;
  }
  for (const name of ['from', 'to']) {
    const value = flags.values.get(name);
    if (value === undefined) continue;
    const ago = parseDurationMs(value);
    const time = ago === undefined ? parseIso8601(value) : now - ago;
    if (time === undefined)
      mistakes.push(`--${name} is "${value}"; expected a time such as 24h (ago) or 2026-01-31T12:00Z`);
    else filter[name] = new Date(time).toISOString();
  }
  return filter;
}
