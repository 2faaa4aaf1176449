/**
 * From when on rejected users are counted and shown. The choice stands in the address; the overview links with its own.
 * Starts are those of whole minutes or hours, as on the overview, so that both count the same and what is asked of the
 * server does not change with every second. Pure.
 */

import { HOUR_MS, MINUTE_MS } from './time-units.ts';

export interface RejectedRange {
  /** As it stands in the address; empty for the one that is shown unless asked otherwise. */
  readonly value: '1h' | '24h' | '' | 'all';
  readonly label: string;
  /** What comes after a number of users. */
  readonly words: string;
  /** Null: as far back as they are kept. */
  readonly span: { readonly count: number; readonly unitMs: number } | null;
}

const WEEK: RejectedRange = {
  value: '',
  label: '7 days',
  words: 'in the last 7 days',
  span: { count: 7 * 24, unitMs: HOUR_MS },
};

export const REJECTED_RANGES: readonly RejectedRange[] = [
  { value: '1h', label: '1 hour', words: 'in the last hour', span: { count: 60, unitMs: MINUTE_MS } },
  { value: '24h', label: '24 hours', words: 'in the last 24 hours', span: { count: 24, unitMs: HOUR_MS } },
  WEEK,
  { value: 'all', label: 'All', words: 'in the time that they are kept for', span: null },
];

export function rejectedRangeOf(value: string): RejectedRange {
  return REJECTED_RANGES.find((range) => range.value === value) ?? WEEK;
}

/** The query that asks for it: `from=…`, or nothing. The minute or hour that `now` is in counts as one. */
export function fromQuery({ span }: RejectedRange, now: number): string {
  if (span === null) return '';
  const from = (Math.floor(now / span.unitMs) - span.count + 1) * span.unitMs;
  return `from=${new Date(from).toISOString()}`;
}
