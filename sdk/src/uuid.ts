/**
 * UUIDs version 7: the time comes first, so ids created one after the other sort in that order, which makes them cheap
 * to look up. Invariant: within one page or process each id is greater than the one before, even if two are created in
 * one millisecond or the clock is set back.
 */

const COUNTER_MAX = 0xfff;
let latestMs = 0;
let counter = 0;

export function newId(): string {
  const random = Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => hex(byte, 2)).join('');
  const now = Date.now();
  if (now > latestMs) {
    latestMs = now;
    // A random start, within the first half of the range, leaves room to count.
    counter = Number.parseInt(random.slice(15), 16) >> 1;
  } else if (++counter > COUNTER_MAX) {
    latestMs++;
    counter = 0;
  }
  const time = hex(latestMs, 12);
  return `${time.slice(0, 8)}-${time.slice(8)}-7${hex(counter, 3)}-a${random.slice(0, 3)}-${random.slice(3, 15)}`;
}

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, '0');
}
