/**
 * How sums are kept: events by minute and by hour of their own timestamps, received counts by minute and hour of receipt.
 * Sums of revenue are added up in the order of the log and are kept finite at every step, in every store alike.
 */

export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;

/** Of the minute or hour (its length) that a time is in. */
export function startOf(time: number, width: number): number {
  return Math.floor(time / width) * width;
}

/** Absurd amounts must not add up to something that is no number. */
export function finite(sum: number): number {
  return Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, sum));
}
