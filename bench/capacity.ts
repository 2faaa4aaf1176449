/**
 * How many cores are really there just now. A virtual machine may have two on paper and one and a half in fact, and no
 * counter inside it says so. One thread for each core spins for a moment, all at once; what they get done together,
 * divided by the most that one of them ever got done alone, is the capacity. Loaded as a thread, this file is a spinner.
 */

import { availableParallelism } from 'node:os';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';

const SPIN_MILLISECONDS = 60;
const SOLO_TRIES = 5;

export class Capacity {
  readonly cores = availableParallelism();
  private readonly spinners: Worker[];
  private bestAlone = 0;

  private constructor(spinners: Worker[]) {
    this.spinners = spinners;
  }

  static async open(): Promise<Capacity> {
    const url = new URL(import.meta.url);
    const capacity = new Capacity(Array.from({ length: availableParallelism() }, () => new Worker(url)));
    await Promise.all(capacity.spinners.map(spin));
    for (let n = 0; n < SOLO_TRIES; n += 1) await capacity.alone();
    return capacity;
  }

  /** Between 0 and the number of cores. */
  async now(): Promise<number> {
    await this.alone();
    const together = await Promise.all(this.spinners.map(spin));
    return Math.min(this.cores, together.reduce((sum, turns) => sum + turns, 0) / this.bestAlone);
  }

  async close(): Promise<void> {
    await Promise.all(this.spinners.map(async (spinner) => spinner.terminate()));
  }

  private async alone(): Promise<void> {
    const [first] = this.spinners;
    if (first !== undefined) this.bestAlone = Math.max(this.bestAlone, await spin(first));
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
