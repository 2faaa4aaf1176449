/**
 * UUIDs version 7: the time comes first, so ids created one after the other sort in that order, which makes them cheap
 * to look up. Invariant: within one page or process each id is greater than the one before, even if two are created in
 * one millisecond or the clock is set back.
 */

/** How many ids a millisecond has room for; more of them take from the next one. */
const PER_MS = 2_048;
/** The milliseconds and a counter in one number, which is exact until the year 2109. */
let latest = 0;

export function newId(): string {
  const random = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => hex(byte, 2)).join('');
  latest = Math.max(latest + 1, Date.now() * PER_MS);
  const time = hex(Math.floor(latest / PER_MS), 12);
  return `${time.slice(0, 8)}-${time.slice(8)}-7${hex(latest % PER_MS, 3)}-a${random.slice(1, 4)}-${random.slice(4)}`;
}

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, '0');
}
