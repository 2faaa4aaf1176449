/** Takes from a bucket of 10,000 users, as fast as it can, until it is empty; reports how many it got. */

import { parentPort, workerData } from 'node:worker_threads';
import { RateLimits } from '../../src/edge/rate-limits.ts';

const { buffer, ready, threads } = workerData as {
  readonly buffer: SharedArrayBuffer;
  readonly ready: Int32Array;
  readonly threads: number;
};

// A clock that stands still: nothing comes back.
const limits = new RateLimits(buffer, 1, () => 1n);
const key = { id: 'key_shared', rateLimit: { usersPerSecond: 1, burstUsers: 10_000 } };
Atomics.add(ready, 0, 1);
while (Atomics.load(ready, 0) < threads) continue;
let taken = 0;
while (limits.take(key, 1) === 0) taken++;
parentPort?.postMessage(taken);
