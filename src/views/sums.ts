/**
 * How sums are stored: events by minute and hour of their own timestamps, received counts by minute and hour of
 * receipt. Revenue is added up in log order, and sums are kept finite at every step, the same in every store.
 */

/** Start of the minute or hour (`width` is its length) that a time is in. */
export function startOf(time: number, width: number): number {
  return Math.floor(time / width) * width;
}

/** Absurd amounts must not add up to something that is not a number. */
export function finite(sum: number): number {
  return Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, sum));
}
