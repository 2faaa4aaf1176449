/**
 * The processor: reads the log and writes the store, continuously, in its own thread. The loop: a transaction, a step
 * of a job (jobs.ts), housekeeping, a pause; compaction when idle. Under load a transaction takes many batches, which
 * trades some delay for pages that are written once instead of many times; where several processors write one store
 * (`isStoreShared`), a transaction is one batch from all partitions that are ours.
 *
 * Invariant: the effects of a record and the position after it are committed together, so each record has its effects
 * exactly once, wherever the process dies. A record that makes this code throw is isolated, tried `TRIES_MAX` times and
 * then becomes a dead letter with its cause; an unavailable store is retried. Whenever it is uncertain what the store
 * holds (another processor was first, a commit got no response, the database may have been restored to an earlier state),
 * the positions are read again. If log and store do not belong together, processing waits.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { MatchOptions } from '../identity/match-keys.ts';
import { type LogBatch, type LogReader, type LogRecord, NO_TENANT } from '../log.ts';
import { assertContinues, type ProcessedLog } from '../log/continuity.ts';
import type { WriteLockRequest } from '../runtime/write-lock-request.ts';
import type { Logger } from '../telemetry/logger.ts';
import { METRIC, type MetricsWriter } from '../telemetry/metrics.ts';
import {
  StoreConflictError,
  AlreadyStoredError,
  type StoreProgress,
  type StoreWriter,
  type WriteTransaction,
} from '../store-writer.ts';
import { addToMetrics, type BatchCounts, type Failpoint, processPrepared } from './batch.ts';
import { CatalogueCollector } from './catalogue.ts';
import { isRetryable } from '../runtime/unavailable.ts';
import { FailedTries, failureOf, isPoison } from './failures.ts';
import { JobRunner } from './jobs.ts';
import type { WarningPlans } from './plan-warnings.ts';
import { UnavailablePartitions } from './unavailable-partitions.ts';
import { RetryLoop } from './retry-loop.ts';
import { headerOf, type PreparedRecord, prepareRecord } from './prepare.ts';
import type { PlanStore } from '../plans.ts';

/**
 * Few enough that the objects of a batch are a small part of V8's young generation, and mostly dead when it is
 * collected.
 */
export const BATCH_BYTES_MAX = 128 * 1024;
const TRANSACTION_USERS_MAX = 100_000;
const TRANSACTION_MS_MAX = 600;
/** Between two transactions the lock is free for this long, and for longer while others ask for it. */
const LOCK_FREE_MS = 4;
/**
 * The pause where the processor has caught up: a transaction costs milliseconds of CPU however small it is, so the next
 * one waits for more than one request. The first request on an idle server is processed at once.
 */
const CAUGHT_UP_PAUSE_MS = 75;
/**
 * While others ask for the lock, neither a transaction nor the pause after it takes longer than this: each side has
 * half of the time.
 */
const LOCK_SHARED_MS = 100;
/** Compaction waits until nothing has arrived for this long: every commit costs readers their cache. */
const COMPACT_AFTER_IDLE_MS = 60_000;
/** Between two steps of compaction, so that other threads have the cores most of the time. */
const REST_MS = 250;
/**
 * The wait after a conflict: random, up to this times the number of conflicts in a row, so that two do not meet again.
 */
const CONFLICT_WAIT_MS = 10;
const CONFLICT_WAIT_MS_MAX = 300;
const CONFLICTS_LOGGED = 50;
/** The least that is read from each partition for a batch. */
const PARTITION_BYTES_MIN = 64 * 1024;
/** The first position of a log that counts its records. */
const FIRST_POSITION = 1;
/** How often the positions are read again while idle. */
const POSITIONS_INTERVAL_MS = 5_000;
/** How often what was committed is made safe from a power loss, so that the log may let go of it. */
const DURABLE_INTERVAL_MS = 5_000;
/** The same with nothing new: by then the log may have records that are old enough to be removed. */
const DURABLE_IDLE_INTERVAL_MS = 60_000;

export interface ProcessorParts {
  readonly log: LogReader;
  readonly writer: StoreWriter;
  readonly options: MatchOptions;
  readonly metrics: MetricsWriter;
  readonly logger: Logger;
  readonly now: () => number;
  /** Resolves when there may be more in the log, or after a moment anyway. */
  readonly waitForMore: () => Promise<void>;
  /** Called between transactions, with the committed positions; what was received before `caughtUpTo` is processed. */
  readonly betweenTransactions: (positions: ReadonlyMap<number, number>, caughtUpTo: number) => Promise<void>;
  /** Through which other threads ask for the write lock, where they share one with the processor. */
  readonly writeLockRequest?: WriteLockRequest;
  /** The tracking plans that warn; none unless given. */
  readonly plans?: WarningPlans;
  /** Plans for resubmitted users; no plan is enforced unless given. */
  readonly planStore?: Pick<PlanStore, 'find'>;
  readonly failpoint?: Failpoint;
  /**
   * Throws when this process may no longer be the only one that writes the log: then what was read from it may be given
   * out again to others, and must not be committed.
   */
  readonly assertLockHeld?: () => void;
  /** Called with the reason when processing begins to wait for the log or store, and with null when it continues. */
  readonly onProblem?: (problem: string | null) => void;
  /** For tests: where batches and transactions end must not show in what is stored. */
  readonly batchBytesMax?: number;
  readonly transactionUsersMax?: number;
  /** Other processors write the same store: then a transaction is one batch. */
  readonly isStoreShared?: boolean;
  /** How often an idle processor reads its positions again; every few seconds unless given. */
  readonly positionsIntervalMs?: number;
}

interface PartitionBatch extends LogBatch {
  readonly partition: number;
  readonly from: number;
}

export class Processor {
  readonly #parts: ProcessorParts;
  readonly #failpoint: Failpoint;
  readonly #batchBytesMax: number;
  readonly #transactionUsersMax: number;
  /** As committed to the store; no `lastTraceIds` where they are not known. */
  #committed: StoreProgress = { positions: new Map(), lastTraceIds: new Map(), skipped: [] };
  /** Whether that may be out of date. */
  #isUncertain = true;
  readonly #positionsIntervalMs: number;
  #positionsReadAt = 0;
  /**
   * Partitions whose log continues from what the store has: checked when this processor takes over a partition, when
   * the store is not where this processor left it, and after a read that failed.
   */
  readonly #verifiedPartitions = new Set<number>();
  /** The partitions that were ours when they were last read. */
  #partitions: readonly number[] = [];
  #conflictsInARow = 0;
  /** Whether the log has records that are stored already: since one was found, until a transaction has none. */
  #hasCopies = false;
  /** Records in the current transaction that are stored already. */
  #copies = 0;
  /** `#committed` as of the current transaction, which is not committed yet. */
  #current = { positions: new Map<number, number>(), lastTraceIds: new Map<number, string>() };
  /** Counts of the current transaction, added to the metrics after its commit. */
  #uncounted: BatchCounts[] = [];
  /** Up to where each partition is read record by record, because a batch there failed. */
  readonly #isolateUntil = new Map<number, number>();
  readonly #tries = new FailedTries();
  #lastDurableAt = 0;
  #isDurable = true;
  #caughtUpTo = 0;
  #stopping = false;
  #problem: string | null = null;
  readonly #catalogue: CatalogueCollector;
  readonly #retryLoop: RetryLoop;
  readonly #jobs: JobRunner;
  /** Used where the store is shared; otherwise processing waits for a partition that cannot be read. */
  readonly #unavailable: UnavailablePartitions;

  constructor(parts: ProcessorParts) {
    this.#parts = parts;
    this.#catalogue = new CatalogueCollector(parts.now);
    this.#retryLoop = new RetryLoop(parts.logger, () => parts.metrics.inc(METRIC.processor_retries));
    this.#unavailable = new UnavailablePartitions(parts.logger);
    this.#failpoint = parts.failpoint ?? (() => undefined);
    this.#batchBytesMax = parts.batchBytesMax ?? BATCH_BYTES_MAX;
    this.#transactionUsersMax = parts.transactionUsersMax ?? TRANSACTION_USERS_MAX;
    this.#jobs = new JobRunner({ ...parts, failpoint: this.#failpoint, catalogue: this.#catalogue });
    this.#positionsIntervalMs = parts.positionsIntervalMs ?? POSITIONS_INTERVAL_MS;
  }

  /** Resolves after `stop`, with everything committed. Rejects only when continuing would be wrong. */
  async run(): Promise<void> {
    let busyAt = performance.now();
    while (!this.#stopping) {
      const found = await this.#retryLoop.guard('process', () => this.#transaction());
      const hasJob = !this.#stopping && (await this.#retryLoop.guard('jobs', () => this.#stepJob()));
      await this.#retryLoop.guard('make durable', () => this.#finishCycle());
      if (this.#stopping) break;
      this.#reportProblem();
      if (found || hasJob) {
        busyAt = performance.now();
        await this.#pause(hasJob);
        continue;
      }
      if (performance.now() - this.#positionsReadAt >= this.#positionsIntervalMs) this.#isUncertain = true;
      if (performance.now() - busyAt > COMPACT_AFTER_IDLE_MS && (await this.#compact())) await sleep(REST_MS);
      else await this.#parts.waitForMore();
    }
    if (!this.#isDurable) await this.#retryLoop.guard('make durable', () => this.#makeDurable());
  }

  #reportProblem(): void {
    const problem = this.#retryLoop.problem ?? this.#unavailable.problem;
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#parts.onProblem?.(problem);
  }

  /** Meanwhile an unmerge or an erase can write. */
  async #pause(hasJob: boolean): Promise<void> {
    const startedAt = performance.now();
    const isCaughtUp = this.#parts.now() - this.#caughtUpTo < CAUGHT_UP_PAUSE_MS;
    await sleep(isCaughtUp && !hasJob ? CAUGHT_UP_PAUSE_MS : LOCK_FREE_MS);
    while (this.#parts.writeLockRequest?.isPending() && performance.now() - startedAt < LOCK_SHARED_MS)
      await sleep(LOCK_FREE_MS);
  }

  /** Between two transactions of the log, so that neither waits long for the other. */
  async #stepJob(isUrgent = false): Promise<boolean> {
    const hasStepped = await this.#jobs.step(isUrgent);
    if (hasStepped) this.#isDurable = false;
    return hasStepped;
  }

  #compact(): Promise<boolean> {
    return this.#retryLoop.guard('compact', () => this.#parts.writer.compact());
  }

  /** After the transaction under way. */
  stop(): void {
    this.#stopping = true;
  }

  /** Processes everything that is in the log now, then all jobs; for tests and tools. */
  async processAll(): Promise<void> {
    this.#isUncertain = true;
    while (await this.#retryLoop.guard('process', () => this.#transaction()));
    while (await this.#retryLoop.guard('jobs', () => this.#stepJob(true)));
    if (!this.#isDurable) await this.#retryLoop.guard('make durable', () => this.#makeDurable());
  }

  /** One transaction; false when there was nothing to do. */
  async #transaction(): Promise<boolean> {
    await this.#refreshPositions();
    const [isolated] = this.#isolateUntil.keys();
    if (isolated !== undefined) return this.#oneRecord(isolated);
    this.#continueFromCommitted();
    const startedAt = performance.now();
    const readUpTo = new Map<number, number>();
    let transaction: WriteTransaction | undefined;
    let size = 0;
    try {
      do {
        const reads = await this.#readMore(transaction !== undefined);
        if (reads.length === 0) break;
        this.#failpoint('read');
        for (const { partition, next } of reads) readUpTo.set(partition, next);
        transaction ??= await this.#begin();
        if (this.#parts.isStoreShared) await this.#process(transaction, reads);
        else for (const one of reads) size += await this.#process(transaction, [one]);
      } while (
        !this.#parts.isStoreShared &&
        size < this.#transactionUsersMax &&
        performance.now() - startedAt <
          (this.#parts.writeLockRequest?.isPending() ? LOCK_SHARED_MS : TRANSACTION_MS_MAX)
      );
      if (transaction === undefined) return false;
      await this.#commit(transaction, startedAt);
    } catch (error) {
      await this.#rollBack(transaction, error);
      // No record can be the cause: none was read.
      if (isPoison(error) && readUpTo.size === 0) throw error;
      if (isPoison(error)) for (const [partition, next] of readUpTo) this.#isolateUntil.set(partition, next);
    }
    return true;
  }

  /** Reads which partitions are ours, and where they continue, if that may have changed. */
  async #refreshPositions(): Promise<void> {
    const { log, writer } = this.#parts;
    const partitions = await log.partitions();
    if (this.#isUncertain || partitions.some((partition) => !this.#partitions.includes(partition))) {
      const stored = await writer.processed();
      this.#positionsReadAt = performance.now();
      this.#noteEarlierPositions(partitions, stored);
      this.#unverifyMoved(stored);
      this.#committed = stored;
      this.#isUncertain = false;
    }
    for (const partition of this.#verifiedPartitions)
      if (!partitions.includes(partition)) this.#verifiedPartitions.delete(partition);
    this.#partitions = partitions;
    for (const partition of this.#isolateUntil.keys()) {
      if (!partitions.includes(partition)) this.#isolateUntil.delete(partition);
    }
  }

  /** A partition is verified again if the store is not where this processor left it. */
  #unverifyMoved({ positions, lastTraceIds }: ProcessedLog): void {
    for (const partition of this.#verifiedPartitions) {
      const isSame =
        positions.get(partition) === this.#committed.positions.get(partition) &&
        lastTraceIds.get(partition) === this.#committed.lastTraceIds.get(partition);
      if (!isSame) this.#verifiedPartitions.delete(partition);
    }
  }

  #continueFromCommitted(): void {
    const { positions, lastTraceIds } = this.#committed;
    this.#current = { positions: new Map(positions), lastTraceIds: new Map(lastTraceIds) };
  }

  #advance(partition: number, position: number, lastTraceId: string | undefined): void {
    const { positions, lastTraceIds } = this.#current;
    positions.set(partition, position);
    if (lastTraceId === undefined) lastTraceIds.delete(partition);
    else lastTraceIds.set(partition, lastTraceId);
  }

  #noteCommitted(): void {
    this.#committed = { ...this.#current, skipped: this.#committed.skipped };
    this.#isDurable = false;
  }

  /** Positions never go back by themselves: the store was restored to an earlier state, or an operator set them. */
  #noteEarlierPositions(partitions: readonly number[], { positions, lastTraceIds }: ProcessedLog): void {
    const earlier: number[] = [];
    let records = 0;
    for (const partition of partitions) {
      const position = positions.get(partition) ?? 0;
      const behind = (this.#committed.positions.get(partition) ?? 0) - position;
      if (behind <= 0) continue;
      // A store has the request with the position; the statements for operators remove it.
      if (positions.has(partition) && !lastTraceIds.has(partition)) {
        const line = { partition, position };
        this.#parts.logger.warn(
          line,
          'the position was reset to an earlier one: reading again from there what is not stored',
        );
        continue;
      }
      earlier.push(partition);
      records += behind;
    }
    if (earlier.length === 0) return;
    const line = { partitions: earlier, records };
    this.#parts.logger.warn(line, 'the store is at an earlier state: processing the records it has lost again');
  }

  /** After an error in a transaction. Throws it on unless it is a conflict, or may be the fault of a record. */
  async #rollBack(transaction: WriteTransaction | undefined, error: unknown): Promise<void> {
    await transaction?.rollback();
    this.#catalogue.discard();
    if (isPoison(error)) return;
    this.#isUncertain = true;
    if (!(error instanceof StoreConflictError)) throw error;
    if (error instanceof AlreadyStoredError && !this.#hasCopies) {
      this.#hasCopies = true;
      this.#parts.logger.warn('the log has records that are stored already: they are left out');
    }
    this.#parts.metrics.inc(METRIC.store_conflicts);
    this.#conflictsInARow += 1;
    // Retried forever, since no merge may be dropped; operators should know.
    if (this.#conflictsInARow % CONFLICTS_LOGGED === 0) {
      const line = { conflicts_in_a_row: this.#conflictsInARow, reason: error.message };
      this.#parts.logger.error(line, 'the same batch conflicts with other processors again and again');
    }
    await sleep(Math.random() * Math.min(CONFLICT_WAIT_MS * this.#conflictsInARow, CONFLICT_WAIT_MS_MAX));
  }

  /** After a batch that threw: its records one by one; the one that keeps throwing becomes a dead letter. */
  async #oneRecord(partition: number): Promise<boolean> {
    this.#continueFromCommitted();
    const position = this.#committed.positions.get(partition) ?? 0;
    const { records, next } = await this.#readOneRecord(partition, position);
    const [record] = records;
    if (record === undefined || position >= (this.#isolateUntil.get(partition) ?? 0)) {
      this.#isolateUntil.delete(partition);
      return true;
    }
    const startedAt = performance.now();
    const transaction = await this.#begin();
    try {
      await this.#process(transaction, [{ partition, from: position, records: [record], next }]);
      await this.#commit(transaction, startedAt);
      this.#tries.forget(nameOf(record));
    } catch (error) {
      await this.#rollBack(transaction, error);
      if (isPoison(error)) await this.#retryOrDeadLetter(record, position, next, error);
    }
    return true;
  }

  async #readOneRecord(partition: number, position: number): Promise<LogBatch> {
    try {
      return await this.#parts.log.read(partition, position, 1, this.#committed.lastTraceIds.get(partition));
    } catch (error) {
      this.#verifiedPartitions.delete(partition);
      // The others need not wait for it. Its batch is read again when it can be, and throws again.
      if (this.#parts.isStoreShared) this.#isolateUntil.delete(partition);
      throw error;
    }
  }

  async #commit(transaction: WriteTransaction, startedAt: number): Promise<void> {
    const { metrics } = this.#parts;
    this.#parts.assertLockHeld?.();
    await transaction.commit(false);
    this.#catalogue.commit();
    this.#noteCommitted();
    this.#conflictsInARow = 0;
    if (this.#copies === 0) this.#hasCopies = false;
    this.#failpoint('committed');
    for (const counts of this.#uncounted) addToMetrics(metrics, counts);
    metrics.inc(METRIC.processor_transactions);
    metrics.observe(METRIC.processor_transaction_duration, (performance.now() - startedAt) / 1000);
  }

  async #begin(): Promise<WriteTransaction> {
    const transaction = await this.#parts.writer.begin();
    this.#uncounted = [];
    this.#copies = 0;
    this.#failpoint('begun');
    return transaction;
  }

  /** What was processed before an unreadable position is committed first; the next transaction begins there. */
  async #readMore(hasSome: boolean): Promise<PartitionBatch[]> {
    try {
      return await this.#readAll();
    } catch (error) {
      if (!hasSome || !isRetryable(error)) throw error;
      return [];
    }
  }

  /** One batch of every partition that has more. */
  async #readAll(): Promise<PartitionBatch[]> {
    const reads = (await this.#readEach()).filter(({ from, next }) => next !== from);
    let oldest = this.#unavailable.since;
    for (const { records } of reads) oldest = Math.min(oldest, records[0]?.receivedAt ?? this.#caughtUpTo);
    this.#caughtUpTo = Math.min(this.#parts.now(), oldest);
    return reads;
  }

  async #readEach(): Promise<PartitionBatch[]> {
    const partitions = this.#partitions;
    const read = async (partition: number, bytesMax: number): Promise<PartitionBatch> => {
      const from = this.#current.positions.get(partition) ?? 0;
      const lastTraceId = this.#current.lastTraceIds.get(partition);
      try {
        if (!this.#verifiedPartitions.has(partition))
          await assertContinues(this.#parts.log, partition, from, lastTraceId);
        this.#verifiedPartitions.add(partition);
        return { partition, from, ...(await this.#parts.log.read(partition, from, bytesMax, lastTraceId)) };
      } catch (error) {
        this.#verifiedPartitions.delete(partition);
        throw error;
      }
    };
    if (this.#parts.isStoreShared) {
      const bytesMax = Math.max(PARTITION_BYTES_MIN, this.#batchBytesMax / Math.max(1, partitions.length));
      const since = this.#caughtUpTo === 0 ? this.#parts.now() : this.#caughtUpTo;
      return this.#unavailable.readAll(partitions, since, (partition) => read(partition, bytesMax));
    }
    const reads: PartitionBatch[] = [];
    for (const partition of partitions) reads.push(await read(partition, this.#batchBytesMax));
    return reads;
  }

  /** One batch. Partitions in order, as all processors take them. Returns its users or its events, whichever are more. */
  async #process(transaction: WriteTransaction, reads: readonly PartitionBatch[]): Promise<number> {
    const { now, options, plans } = this.#parts;
    for (const { partition, from, next, records } of reads.toSorted((a, b) => a.partition - b.partition)) {
      const lastTraceId = records.at(-1)?.traceId;
      await transaction.advance(partition, from, next, lastTraceId, this.#current.lastTraceIds.get(partition));
      await this.#noteLost(transaction, { partition, from, next }, records.length);
      this.#advance(partition, next, lastTraceId);
    }
    this.#failpoint('advanced');
    const prepared = reads.flatMap(({ records }) => records.map((record) => prepareRecord(record, options)));
    const records = await this.#withoutCopies(transaction, prepared);
    if (records.length === 0) return 0;
    const counts = await processPrepared(transaction, records, {
      now,
      failpoint: this.#failpoint,
      plans,
      catalogue: this.#catalogue,
    });
    this.#uncounted.push(counts);
    return Math.max(counts.users, counts.events);
  }

  async #withoutCopies(
    transaction: WriteTransaction,
    records: readonly PreparedRecord[],
  ): Promise<readonly PreparedRecord[]> {
    if (!this.#hasCopies) return records;
    const stored = await transaction.findStored(records.map(({ header }) => header));
    this.#copies += stored.size;
    return records.filter(({ header }) => !stored.has(header));
  }

  /**
   * Notes records that an operator skipped before the batch and, if it has fewer records than positions, those that are
   * gone from the log.
   */
  async #noteLost(
    transaction: WriteTransaction,
    { partition, from, next }: Pick<PartitionBatch, 'partition' | 'from' | 'next'>,
    records: number,
  ): Promise<void> {
    const at = this.#parts.now();
    for (const skipped of this.#committed.skipped) {
      if (skipped.partition === partition && skipped.to === from) await transaction.noteLost({ ...skipped, at });
    }
    if (next - Math.max(from, FIRST_POSITION) === records) return;
    for (const lost of await this.#parts.log.lost(partition, from)) {
      if (lost.from < next) await transaction.noteLost({ partition, ...lost, at });
    }
  }

  async #retryOrDeadLetter(record: LogRecord, from: number, next: number, error: unknown): Promise<void> {
    const { writer, logger, metrics, now } = this.#parts;
    const { partition, position, traceId } = record;
    if (record.tenantId !== NO_TENANT && !this.#tries.isLast(nameOf(record))) return;
    const { cause, stack } = failureOf(error);
    const transaction = await writer.begin();
    try {
      await transaction.advance(partition, from, next, traceId, this.#committed.lastTraceIds.get(partition));
      await this.#noteLost(transaction, { partition, from, next }, 1);
      await transaction.deadLetter(headerOf(record), record, cause, now());
      this.#parts.assertLockHeld?.();
      await transaction.commit(false);
    } catch (failure) {
      await this.#rollBack(transaction, failure);
      if (failure instanceof StoreConflictError) return;
      throw failure;
    }
    this.#continueFromCommitted();
    this.#advance(partition, next, traceId);
    this.#noteCommitted();
    metrics.inc(METRIC.dead_letters);
    logger.error(
      { trace_id: traceId, partition, position, cause, stack },
      'a record cannot be processed and is now a dead letter: see sluice doctor',
    );
  }

  /** Makes durable what was committed, if that is due, and calls `betweenTransactions`. */
  async #finishCycle(): Promise<void> {
    const { metrics, now } = this.#parts;
    // Also when nothing can be read: then the lag grows.
    if (this.#caughtUpTo > 0) metrics.set(METRIC.processor_lag, Math.max(0, now() - this.#caughtUpTo) / 1000);
    const elapsedMs = Math.abs(now() - this.#lastDurableAt);
    try {
      if (elapsedMs >= (this.#isDurable ? DURABLE_IDLE_INTERVAL_MS : DURABLE_INTERVAL_MS)) await this.#makeDurable();
    } finally {
      // Also when the store cannot be written: that is when the backlog grows.
      await this.#parts.betweenTransactions(this.#committed.positions, this.#caughtUpTo);
    }
  }

  /** Only what survives a power loss may leave the log. Every few seconds, so the catalogue is flushed here. */
  async #makeDurable(): Promise<void> {
    const { log, writer, now } = this.#parts;
    const { observations, since } = this.#catalogue.observations();
    const transaction = await writer.begin();
    try {
      if (observations.length > 0) await transaction.writeCatalogue(observations, since);
      await transaction.commit(true);
    } catch (error) {
      await transaction.rollback();
      throw error;
    }
    this.#catalogue.flushed();
    this.#isDurable = true;
    this.#lastDurableAt = now();
    for (const partition of this.#partitions) {
      const position = this.#committed.positions.get(partition);
      if (position !== undefined && !this.#unavailable.has(partition)) await log.commit(partition, position);
    }
    this.#failpoint('log_committed');
  }
}

function nameOf({ partition, position }: LogRecord): string {
  return `${partition}/${position}`;
}
