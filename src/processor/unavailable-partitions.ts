/**
 * Partitions of the log that cannot be read now: one without a leader, or a damaged one. The processor continues with
 * the others (where several processors share a log, each has several partitions, and most outages concern one of them).
 * An unavailable partition is retried in the background, since a response may take seconds; what the retry reads is
 * read again when the partition's turn comes. Each reason is logged once per partition, and so is the recovery. Only
 * when no partition at all can be read does `readAll` reject, with the reason of one of them. Errors that do not come
 * from the log are rethrown.
 */

import { LogCorruptError } from '../log.ts';
import type { Logger } from '../telemetry/logger.ts';
import { isRetryable } from '../runtime/unavailable.ts';

/** Between a failure and the next retry. */
const RETRY_MS = 1_000;

interface PartitionOutage {
  readonly error: Error;
  /** Up to when the partition was processed, for certain. */
  readonly since: number;
  readonly failedAt: number;
  isTried: boolean;
}

export class UnavailablePartitions {
  readonly #logger: Logger;
  readonly #unavailable = new Map<number, PartitionOutage>();
  /** Reasons logged per partition since its outage began. */
  readonly #logged = new Map<number, Set<string>>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  has(partition: number): boolean {
    return this.#unavailable.has(partition);
  }

  /** What was received before this is processed, also in the unavailable partitions; infinite if there are none. */
  get since(): number {
    return Math.min(...this.#unavailable.values().map(({ since }) => since));
  }

  /** What `read` gives for each partition that can be read; `since` is up to when all of them are processed. */
  async readAll<Read>(
    partitions: readonly number[],
    since: number,
    read: (partition: number) => Promise<Read>,
  ): Promise<Read[]> {
    for (const partition of this.#unavailable.keys()) if (!partitions.includes(partition)) this.#forget(partition);
    // All at once: if none has a leader, that is known after one wait and not after one for each.
    const reads = await Promise.all(partitions.map((partition) => this.#readOne(partition, since, read)));
    const [first] = this.#unavailable.values();
    const isAll = first !== undefined && partitions.every((partition) => this.#unavailable.has(partition));
    this.#logNew(isAll ? first : null);
    if (isAll) throw first.error;
    return reads.flat();
  }

  async #readOne<Read>(
    partition: number,
    since: number,
    read: (partition: number) => Promise<Read>,
  ): Promise<readonly Read[]> {
    const outage = this.#unavailable.get(partition);
    if (outage !== undefined) {
      if (!outage.isTried && performance.now() - outage.failedAt >= RETRY_MS) void this.#tryAgain(partition, read);
      return [];
    }
    try {
      return [await read(partition)];
    } catch (error) {
      if (!isRetryable(error)) throw error;
      this.#unavailable.set(partition, { error, since, failedAt: performance.now(), isTried: false });
      return [];
    }
  }

  /** Why a partition cannot be read; null while all of them can. */
  get problem(): string | null {
    const [outage] = this.#unavailable.values();
    return outage?.error.message ?? null;
  }

  /** Never rejects: an error of another kind occurs again when the partition's turn comes, and is thrown then. */
  async #tryAgain(partition: number, read: (partition: number) => Promise<unknown>): Promise<void> {
    const outage = this.#unavailable.get(partition);
    if (outage === undefined) return;
    outage.isTried = true;
    let failure: unknown;
    try {
      await read(partition);
    } catch (error) {
      failure = error;
    }
    // It was handed over, and perhaps back, meanwhile.
    if (this.#unavailable.get(partition) !== outage) return;
    if (isRetryable(failure)) {
      this.#unavailable.set(partition, { ...outage, error: failure, failedAt: performance.now(), isTried: false });
      return;
    }
    if (this.#logged.has(partition)) this.#logger.info({ partition }, 'the processor reads the partition again');
    this.#forget(partition);
  }

  /** `thrown`: if no partition can be read, the one whose error is reported by the caller; null otherwise. */
  #logNew(thrown: PartitionOutage | null): void {
    for (const [partition, outage] of this.#unavailable) {
      const { error } = outage;
      // An outage has one reason, but every damaged partition is repaired on its own.
      if (thrown !== null && (outage === thrown || !(error instanceof LogCorruptError))) continue;
      const logged = this.#logged.get(partition) ?? new Set();
      this.#logged.set(partition, logged);
      if (logged.has(error.message)) continue;
      logged.add(error.message);
      // A damaged log may have lost records, so the line does not promise that they are safe.
      const state =
        error instanceof LogCorruptError
          ? 'part of the log is damaged, lost or cannot be read; new requests are accepted and kept'
          : 'what was accepted is safe in it';
      const others = thrown === null ? ' and continues with the others' : '';
      const message = `the processor waits for a partition of the log${others}; ${state}`;
      this.#logger.error({ partition, reason: error.message }, message);
    }
  }

  #forget(partition: number): void {
    this.#unavailable.delete(partition);
    this.#logged.delete(partition);
  }
}
