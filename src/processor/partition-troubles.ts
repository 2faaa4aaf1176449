/**
 * Partitions of the log that cannot be read now: one without a leader, or a damaged one. The others go on without them
 * (where several processors share a log, each has several partitions, and most troubles are of one). A partition in
 * trouble is tried again beside the work, since an answer may take seconds; what that reads is read again when its turn
 * comes. Each reason is told once a partition, and so is that it can be read again. Only when no partition at all can
 * be read is that an error of the whole. Any error that is not of the log is thrown on.
 */

import type { Logger } from '../telemetry/logger.ts';
import { isWorthWaiting } from './failures.ts';

/** From one failure to the next try. */
const RETRY_MS = 1_000;

interface Trouble {
  readonly error: Error;
  /** Up to when the partition was processed, for certain. */
  readonly since: number;
  readonly failedAt: number;
  isTried: boolean;
}

export class PartitionTroubles {
  readonly #logger: Logger;
  readonly #troubles = new Map<number, Trouble>();
  /** Reasons by partition, from the first trouble until all is well with it. */
  readonly #told = new Map<number, Set<string>>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  has(partition: number): boolean {
    return this.#troubles.has(partition);
  }

  /** What was received before this is processed, also in the partitions in trouble; infinite if there are none. */
  get since(): number {
    return Math.min(...this.#troubles.values().map(({ since }) => since));
  }

  /** What `read` gives for each partition that can be read; `since` is up to when all of them are processed. */
  async readAll<Read>(
    partitions: readonly number[],
    since: number,
    read: (partition: number) => Promise<Read>,
  ): Promise<Read[]> {
    for (const partition of this.#troubles.keys()) if (!partitions.includes(partition)) this.#forget(partition);
    // All at once: if none has a leader, that is known after one wait and not after one for each.
    const reads = await Promise.all(partitions.map((partition) => this.#readOne(partition, since, read)));
    const [first] = this.#troubles.values();
    if (first !== undefined && partitions.every((partition) => this.#troubles.has(partition))) throw first.error;
    this.#tell();
    return reads.flat();
  }

  async #readOne<Read>(
    partition: number,
    since: number,
    read: (partition: number) => Promise<Read>,
  ): Promise<readonly Read[]> {
    const trouble = this.#troubles.get(partition);
    if (trouble !== undefined) {
      if (!trouble.isTried && performance.now() - trouble.failedAt >= RETRY_MS) void this.#tryAgain(partition, read);
      return [];
    }
    try {
      return [await read(partition)];
    } catch (error) {
      if (!isWorthWaiting(error)) throw error;
      this.#troubles.set(partition, { error, since, failedAt: performance.now(), isTried: false });
      return [];
    }
  }

  /** Never rejects: an error of another kind comes again when the partition's turn comes, and is thrown then. */
  async #tryAgain(partition: number, read: (partition: number) => Promise<unknown>): Promise<void> {
    const trouble = this.#troubles.get(partition);
    if (trouble === undefined) return;
    trouble.isTried = true;
    let failure: unknown;
    try {
      await read(partition);
    } catch (error) {
      failure = error;
    }
    // It was handed over, and perhaps back, meanwhile.
    if (this.#troubles.get(partition) !== trouble) return;
    if (isWorthWaiting(failure)) {
      this.#troubles.set(partition, { ...trouble, error: failure, failedAt: performance.now(), isTried: false });
      return;
    }
    if (this.#told.has(partition)) this.#logger.info({ partition }, 'the processor reads the partition again');
    this.#forget(partition);
  }

  #tell(): void {
    for (const [partition, { error }] of this.#troubles) {
      const told = this.#told.get(partition) ?? new Set();
      this.#told.set(partition, told);
      if (told.has(error.message)) continue;
      told.add(error.message);
      this.#logger.error(
        { partition, reason: error.message },
        'the processor waits for a partition of the log and goes on with the others; what was accepted is safe in it',
      );
    }
  }

  #forget(partition: number): void {
    this.#troubles.delete(partition);
    this.#told.delete(partition);
  }
}
