/**
 * Makes trace_ids: UUIDs of version 7 (RFC 9562), ascending, by a clock that never goes back (`clock/clock.ts`).
 * Uniqueness never depends on the clock: 62 bits are random.
 *
 * The edges of a server share the newest time and counter, so that ids ascend over all of them: of two writes that were
 * received in the same millisecond, the one with the larger trace_id is the last.
 */

import { randomFillSync } from 'node:crypto';

const RANDOM_BYTES_PER_ID = 10;
const POOL_BYTES = RANDOM_BYTES_PER_ID * 512;
const COUNTER_BITS = 12n;
const COUNTER_MASK = 0xfffn;
/** The counter starts low and at random, so that there is room to count within a millisecond. */
const COUNTER_START_MAX = 0x3ff;

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/** `newest` is one number that all edges of a server share. */
export function createTraceIds(now: () => number, newest: BigInt64Array = new BigInt64Array(1)): () => string {
  const pool = Buffer.allocUnsafe(POOL_BYTES);
  let used = POOL_BYTES;

  return function nextTraceId(): string {
    if (used === POOL_BYTES) {
      randomFillSync(pool);
      used = 0;
    }
    const at = used;
    used += RANDOM_BYTES_PER_ID;
    const next = nextTime(newest, now(), pool.readUInt16BE(at) & COUNTER_START_MAX);
    return format(Number(next >> COUNTER_BITS), Number(next & COUNTER_MASK), pool, at + 2);
  };
}

/** The milliseconds, then the counter, which begins with `start` in a new millisecond. */
function nextTime(newest: BigInt64Array, clock: number, start: number): bigint {
  for (;;) {
    const last = Atomics.load(newest, 0);
    const isNewMillisecond = clock > Number(last >> COUNTER_BITS);
    // One more than the largest counter is the next millisecond.
    const next = isNewMillisecond ? (BigInt(clock) << COUNTER_BITS) + BigInt(start) : last + 1n;
    if (Atomics.compareExchange(newest, 0, last, next) === last) return next;
  }
}

function hex(byte: number | undefined): string {
  return HEX[(byte ?? 0) & 0xff] as string;
}

function format(millisecond: number, counter: number, random: Buffer, at: number): string {
  const high = Math.floor(millisecond / 0x1_0000_0000);
  const low = millisecond >>> 0;
  return `${hex(high >>> 8)}${hex(high)}${hex(low >>> 24)}${hex(low >>> 16)}-${hex(low >>> 8)}${hex(low)}-7${hex(counter >>> 4)}${(counter & 0xf).toString(16)}-${hex(0x80 | ((random[at] ?? 0) & 0x3f))}${hex(random[at + 1])}-${hex(random[at + 2])}${hex(random[at + 3])}${hex(random[at + 4])}${hex(random[at + 5])}${hex(random[at + 6])}${hex(random[at + 7])}`;
}
