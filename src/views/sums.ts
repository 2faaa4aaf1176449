/**
 * How sums are stored: events by minute and hour of their own timestamps, received counts by minute and hour of
 * receipt.
 */

/** Start of the minute or hour (`width` is its length) that a time is in. */
export function startOf(time: number, width: number): number {
  return Math.floor(time / width) * width;
}
