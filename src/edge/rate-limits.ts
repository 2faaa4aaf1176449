/**
 * Limits how many users a key may send per second: a token bucket per key, for all edge threads of a server together.
 * A bucket is one number in shared memory, the time at which it will be full again (GCRA), and is moved by compare and
 * swap: no lock, and nothing at all for keys without a limit.
 *
 * A request passes while anything is left in the bucket, and then costs all of its users, so that no request is too
 * large to ever pass; what it overdrew is paid back before the next one. Over any time the key sends at most its
 * rate, the burst, and the users of one request. Buckets are full after a restart, and when the limit was changed.
 *
 * Servers do not share buckets. With `servers` each enforces its share, which is right while load is spread evenly.
 */

import { hash } from 'node:crypto';
import type { ApiKey, RateLimit } from '../keys.ts';

/** Holds at least 4,096 limited keys; one that finds no free slot has a bucket per thread. */
const BUCKETS = 8_192;
/** How many slots are probed for a key before it gets a bucket per thread. */
const PROBES_MAX = 64;
/** Each slot has the hash of the name of its bucket (0: none yet), and the time in nanoseconds. */
const NUMBERS_PER_BUCKET = 2;
/** A thread's map is cleared at this size, which drops revoked keys. */
const KNOWN_MAX = 10_000;
const SECOND_NS = 1e9;
const MILLISECOND_NS = 1_000_000n;

export function allocateRateLimits(): SharedArrayBuffer {
  return new SharedArrayBuffer(BUCKETS * NUMBERS_PER_BUCKET * BigInt64Array.BYTES_PER_ELEMENT);
}

export function overLimitText({ rateLimit }: LimitedKey): string {
  return `this key may send ${rateLimit?.usersPerSecond ?? 0} users per second: retry after the seconds in Retry-After`;
}

interface Bucket {
  readonly numbers: BigInt64Array;
  readonly at: number;
}

type LimitedKey = Pick<ApiKey, 'id' | 'rateLimit'>;

export class RateLimits {
  readonly #shared: BigInt64Array;
  readonly #servers: number;
  /** Monotonic, in nanoseconds, the same in all threads. */
  readonly #now: () => bigint;
  readonly #buckets = new Map<string, Bucket>();

  constructor(buffer: SharedArrayBuffer, servers: number, now = () => process.hrtime.bigint()) {
    this.#shared = new BigInt64Array(buffer);
    this.#servers = servers;
    this.#now = now;
  }

  /**
   * Takes so many users out of the bucket and returns 0; or takes nothing, and returns how many milliseconds to wait. For
   * no users: whether a request has to wait.
   */
  take({ id, rateLimit }: LimitedKey, users: number): number {
    if (rateLimit === null) return 0;
    const { numbers, at } = this.#bucketOf(id, rateLimit);
    const now = this.#now();
    const cost = nanoseconds((users * this.#servers) / rateLimit.usersPerSecond);
    for (;;) {
      const fullAt = Atomics.load(numbers, at);
      const waitMs = waitMsOf(fullAt, now, rateLimit);
      if (waitMs > 0) return waitMs;
      const next = (fullAt > now ? fullAt : now) + cost;
      if (Atomics.compareExchange(numbers, at, fullAt, next) === fullAt) return 0;
    }
  }

  /** A bucket is of a key and its limit: debt from another rate must not count. */
  #bucketOf(id: string, { usersPerSecond, burstUsers }: RateLimit): Bucket {
    const name = `${id} ${usersPerSecond} ${burstUsers}`;
    const known = this.#buckets.get(name);
    if (known !== undefined) return known;
    if (this.#buckets.size >= KNOWN_MAX) this.#buckets.clear();
    const bucket = this.#claim(name);
    this.#buckets.set(name, bucket);
    return bucket;
  }

  /** All threads that claim a slot for a name find the same one. */
  #claim(name: string): Bucket {
    const nameHash = hashOf(name);
    const first = Number(BigInt.asUintN(32, nameHash));
    for (let probe = 0; probe < PROBES_MAX; probe++) {
      const place = ((first + probe) % BUCKETS) * NUMBERS_PER_BUCKET;
      const slotHash = Atomics.compareExchange(this.#shared, place, 0n, nameHash);
      if (slotHash === 0n || slotHash === nameHash) return { numbers: this.#shared, at: place + 1 };
    }
    return { numbers: new BigInt64Array(1), at: 0 };
  }
}

/** Rate and burst are divided by the servers alike: the time of a burst stays the same. */
function waitMsOf(fullAt: bigint, now: bigint, { usersPerSecond, burstUsers }: RateLimit): number {
  const wait = fullAt - now - nanoseconds(burstUsers / usersPerSecond);
  return wait < 0n ? 0 : Number(wait / MILLISECOND_NS) + 1;
}

function nanoseconds(seconds: number): bigint {
  return BigInt(Math.round(seconds * SECOND_NS));
}

/** 64 bits, never 0. */
function hashOf(name: string): bigint {
  return BigInt.asIntN(64, BigInt(`0x${hash('sha256', name).slice(0, 16)}`)) || 1n;
}
