/**
 * Makes trace_ids: UUIDs of version 7 (RFC 9562), ascending within one thread as long as the clock does not step back by
 * more than `BACKWARD_STEP_MAX_MS`. After a larger step (someone set the clock) ids follow the clock again rather than
 * stay in a future that was a mistake; uniqueness never depends on the clock, 62 bits are random.
 */

import { randomFillSync } from 'node:crypto';

const BACKWARD_STEP_MAX_MS = 10_000;
const RANDOM_BYTES_PER_ID = 10;
const POOL_BYTES = RANDOM_BYTES_PER_ID * 512;
const COUNTER_MAX = 0xfff;

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

export function createTraceIds(now: () => number): () => string {
  const pool = Buffer.allocUnsafe(POOL_BYTES);
  let used = POOL_BYTES;
  let millisecond = 0;
  let counter = 0;

  return function nextTraceId(): string {
    if (used === POOL_BYTES) {
      randomFillSync(pool);
      used = 0;
    }
    const at = used;
    used += RANDOM_BYTES_PER_ID;

    const clock = now();
    if (clock > millisecond || clock < millisecond - BACKWARD_STEP_MAX_MS) {
      millisecond = clock;
      // The counter starts low and at random, so that there is room to count within a millisecond.
      counter = pool.readUInt16BE(at) & 0x3ff;
    } else if (counter < COUNTER_MAX) {
      counter += 1;
    } else {
      millisecond += 1;
      counter = 0;
    }
    return format(millisecond, counter, pool, at + 2);
  };
}

function hex(byte: number | undefined): string {
  return HEX[(byte ?? 0) & 0xff] as string;
}

function format(millisecond: number, counter: number, random: Buffer, at: number): string {
  const high = Math.floor(millisecond / 0x1_0000_0000);
  const low = millisecond >>> 0;
  return `${hex(high >>> 8)}${hex(high)}${hex(low >>> 24)}${hex(low >>> 16)}-${hex(low >>> 8)}${hex(low)}-7${hex(counter >>> 4)}${(counter & 0xf).toString(16)}-${hex(0x80 | ((random[at] ?? 0) & 0x3f))}${hex(random[at + 1])}-${hex(random[at + 2])}${hex(random[at + 3])}${hex(random[at + 4])}${hex(random[at + 5])}${hex(random[at + 6])}${hex(random[at + 7])}`;
}
