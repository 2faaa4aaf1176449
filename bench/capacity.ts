/**
 * How many cores are really there just now. A virtual machine may have two on paper and one and a half in fact, and no
 * counter inside it says so. One thread for each core spins for a moment, all at once; what they get done together,
 * divided by what one of them gets done alone right before and after, is the capacity. The same moment on both sides of
 * that ratio: a machine whose cores are all slower for a while has them all the same, and `speed` says so. Loaded as a
 * thread, this file is a spinner.
 */

import { availableParallelism } from 'node:os';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { median } from './report.ts';

const SPIN_MILLISECONDS = 60;
const TRIES = 3;

export class Capacity {
  readonly cores = availableParallelism();
  private readonly spinners: Worker[];
  /** What one core gets done now, as a share of the most that it ever got done in this run. */
  speed = 1;
  private bestAlone = 0;

  private constructor(spinners: Worker[]) {
    this.spinners = spinners;
  }

  static async open(): Promise<Capacity> {
    const url = new URL(import.meta.url);
    const capacity = new Capacity(Array.from({ length: availableParallelism() }, () => new Worker(url)));
    await Promise.all(capacity.spinners.map(spin));
    await capacity.now();
    return capacity;
  }

  /** Between 0 and the number of cores. */
  async now(): Promise<number> {
    let alone = await this.alone();
    let inAll = alone;
    const shares: number[] = [];
    for (let n = 0; n < TRIES; n += 1) {
      const turns = await Promise.all(this.spinners.map(spin));
      const after = await this.alone();
      // The better of both sides: one that was itself disturbed would make cores out of nothing.
      shares.push(turns.reduce((sum, value) => sum + value, 0) / Math.max(alone, after));
      alone = after;
      inAll += after;
    }
    this.speed = inAll / (TRIES + 1) / this.bestAlone;
    return Math.min(this.cores, median(shares));
  }

  async close(): Promise<void> {
    await Promise.all(this.spinners.map(async (spinner) => spinner.terminate()));
  }

  private async alone(): Promise<number> {
    const [first] = this.spinners;
    const turns = first === undefined ? 0 : await spin(first);
    this.bestAlone = Math.max(this.bestAlone, turns);
    return turns;
  }
}

async function spin(spinner: Worker): Promise<number> {
  return new Promise((resolve) => {
    spinner.once('message', (turns: number) => resolve(turns));
    spinner.postMessage('spin');
  });
}

if (!isMainThread) {
  parentPort?.on('message', () => {
    const until = performance.now() + SPIN_MILLISECONDS;
    let turns = 0;
    let value = 1;
    while (performance.now() < until) {
      for (let n = 0; n < 2000; n += 1) value = (Math.imul(value, 1_103_515_245) + 12_345) | 0;
      turns += 1;
    }
    // The value is used, or the engine might leave the loop out.
    parentPort?.postMessage(value === 0 ? turns - 1 : turns);
  });
}
