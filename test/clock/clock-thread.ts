/**
 * One of several threads that read clocks which share a time, as fast as they can. Says how often the shared time was less
 * than what this thread had given out just before.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { TrustedClock } from '../../src/clock/clock.ts';

const READINGS = 300_000;

const { shared, newest, step } = workerData as { shared: BigInt64Array; newest: number; step: number };
let wall = newest;
const sources = { wall: () => wall, monotonic: () => wall - newest, uptime: () => wall - newest };
const clock = new TrustedClock({ newest, jumpMsMax: 1e12, gapMsMax: 1e12, shared, sources });
let setBack = 0;
for (let reading = 0; reading < READINGS; reading += 1) {
  wall += step;
  const given = clock.now();
  if (Atomics.load(shared, 0) < BigInt(given)) setBack += 1;
}
parentPort?.postMessage(setBack);
