/**
 * The processor: reads the log and writes the store, on and on, in a thread of its own.
 *
 * States: reading → in a transaction → committed → reading. A transaction takes in batches until the log is used up, or
 * it has taken `TRANSACTION_USERS_MAX` users or `TRANSACTION_MS_MAX`: trades a second of delay under load for pages
 * that are written once instead of many times. With nothing to do it commits at once and waits.
 *
 * Invariant: what was made of a record and the position after it are committed together, so each record has exactly
 * one effect, wherever the process dies. A record that makes this code throw is tried `TRIES_MAX` times by itself, then
 * set aside with its cause, and the others go on. A store that cannot be written now is waited for.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { MatchOptions } from '../identity/match-keys.ts';
import type { LogReader, LogRecord } from '../log.ts';
import type { Logger } from '../logger.ts';
import { METRIC, type MetricsWriter } from '../metrics.ts';
import type { StoreWriter, WriteTransaction } from '../store-writer.ts';
import { type BatchCounts, type Failpoint, processPrepared } from './batch.ts';
import { isPoison, isWorthWaiting } from './failures.ts';
import { headerOf, prepareRecord } from './prepare.ts';
import { type PreparedBatch, type RecordSource, sourceOnTheSpot } from './source.ts';

/** So little that what becomes of it is a small part of the young heap, and mostly dead when that is cleared. */
export const BATCH_BYTES_MAX = 256 * 1024;
const TRANSACTION_USERS_MAX = 100_000;
const TRANSACTION_MS_MAX = 1_500;
/** Between two transactions, so that an unmerge or an erase gets its turn to write. */
const TURN_MS = 4;
const TRIES_MAX = 3;
const RETRY_MS = 500;
/** How often what was committed is made safe from a power loss, so that the log may let go of it. */
const DURABLE_INTERVAL_MS = 5_000;

export interface ProcessorParts {
  readonly log: LogReader;
  readonly writer: StoreWriter;
  readonly options: MatchOptions;
  readonly metrics: MetricsWriter;
  readonly logger: Logger;
  readonly now: () => number;
  /** Resolves when there may be more in the log, or after a moment anyway. */
  readonly waitForMore: () => Promise<void>;
  /** Called between transactions, with the positions that are committed; nothing older than `caughtUpTo` waits. */
  readonly betweenTransactions: (positions: ReadonlyMap<number, number>, caughtUpTo: number) => Promise<void>;
  /** Where prepared records come from; on the spot unless given. */
  readonly source?: RecordSource;
  readonly failpoint?: Failpoint;
  /** For tests: where batches and transactions end must not show in what is stored. */
  readonly batchBytesMax?: number;
  readonly transactionUsersMax?: number;
}

interface Read extends PreparedBatch {
  readonly partition: number;
}

export class Processor {
  readonly #parts: ProcessorParts;
  readonly #source: RecordSource;
  readonly #failpoint: Failpoint;
  readonly #batchBytesMax: number;
  readonly #transactionUsersMax: number;
  /** As in the store. */
  #committed = new Map<number, number>();
  /** As in the transaction under way. */
  #positions = new Map<number, number>();
  /** Of the transaction under way: what is rolled back was not processed. */
  #uncounted: (BatchCounts & { readonly records: number })[] = [];
  /** Up to where each partition is read record by record, because a batch there could not be processed. */
  readonly #carefulUntil = new Map<number, number>();
  readonly #tries = new Map<string, number>();
  #lastDurableAt = 0;
  #isDurable = true;
  #caughtUpTo = 0;
  #stopping = false;
  /** What could not be done at the last try, and the reasons that were told since all was well. */
  readonly #waiting = new Set<'process' | 'settle'>();
  readonly #toldReasons = new Set<string>();

  constructor(parts: ProcessorParts) {
    this.#parts = parts;
    this.#source = parts.source ?? sourceOnTheSpot(parts.log, parts.options);
    this.#failpoint = parts.failpoint ?? (() => undefined);
    this.#batchBytesMax = parts.batchBytesMax ?? BATCH_BYTES_MAX;
    this.#transactionUsersMax = parts.transactionUsersMax ?? TRANSACTION_USERS_MAX;
  }

  /** Resolves after `stop`, with everything committed. Rejects only when going on would be wrong. */
  async run(): Promise<void> {
    this.#committed = await this.#parts.writer.positions();
    while (!this.#stopping) {
      const found = await this.#guarded('process', () => this.#transaction());
      await this.#guarded('settle', () => this.#settle());
      if (this.#stopping) break;
      if (found) await sleep(TURN_MS);
      else await this.#parts.waitForMore();
    }
    await this.#guarded('settle', () => this.#makeDurable());
  }

  /** After the transaction under way. */
  stop(): void {
    this.#stopping = true;
  }

  /** Everything that is in the log now; for tests and tools. Resolves when it is used up. */
  async drain(): Promise<void> {
    this.#committed = await this.#parts.writer.positions();
    while (await this.#guarded('process', () => this.#transaction()));
    await this.#guarded('settle', () => this.#makeDurable());
  }

  /** One transaction; false when there was nothing to do. */
  async #transaction(): Promise<boolean> {
    const [careful] = this.#carefulUntil.keys();
    if (careful !== undefined) return this.#oneRecord(careful);
    this.#positions = new Map(this.#committed);
    const startedAt = performance.now();
    const read = new Map<number, number>();
    let transaction: WriteTransaction | undefined;
    let users = 0;
    try {
      do {
        const reads = await this.#readAll();
        if (reads.length === 0) break;
        this.#failpoint('read');
        for (const { partition, next } of reads) read.set(partition, next);
        transaction ??= await this.#begin();
        for (const one of reads) users += await this.#process(transaction, one);
      } while (users < this.#transactionUsersMax && performance.now() - startedAt < TRANSACTION_MS_MAX);
      if (transaction === undefined) return false;
      await this.#commit(transaction, startedAt);
    } catch (error) {
      await transaction?.rollback();
      if (!isPoison(error)) throw error;
      for (const [partition, next] of read) this.#carefulUntil.set(partition, next);
    }
    return true;
  }

  /** After a batch that threw: its records one by one; the one that throws on and on is set aside. */
  async #oneRecord(partition: number): Promise<boolean> {
    this.#positions = new Map(this.#committed);
    const position = this.#committed.get(partition) ?? 0;
    const { records, next } = await this.#parts.log.read(partition, position, 1);
    const [record] = records;
    if (record === undefined || position >= (this.#carefulUntil.get(partition) ?? 0)) {
      this.#carefulUntil.delete(partition);
      return true;
    }
    const startedAt = performance.now();
    const transaction = await this.#begin();
    try {
      const prepared = [prepareRecord(record, this.#parts.options)];
      await this.#process(transaction, { partition, records: prepared, next, problem: null });
      await this.#commit(transaction, startedAt);
    } catch (error) {
      await transaction.rollback();
      if (!isPoison(error)) throw error;
      await this.#tryOrSetAside(record, next, error);
    }
    return true;
  }

  async #commit(transaction: WriteTransaction, startedAt: number): Promise<void> {
    const { metrics } = this.#parts;
    await transaction.commit(false);
    this.#committed = this.#positions;
    this.#isDurable = false;
    this.#failpoint('committed');
    for (const { records, users, events, merges, refusals } of this.#uncounted) {
      metrics.inc(METRIC.processed_records, records);
      metrics.inc(METRIC.processed_users, users);
      metrics.inc(METRIC.processed_events, events);
      metrics.inc(METRIC.merges, merges);
      metrics.inc(METRIC.refusals, refusals);
    }
    metrics.inc(METRIC.processor_transactions);
    metrics.observe(METRIC.processor_transaction_duration, (performance.now() - startedAt) / 1000);
  }

  async #begin(): Promise<WriteTransaction> {
    const transaction = await this.#parts.writer.begin();
    this.#uncounted = [];
    this.#failpoint('begun');
    return transaction;
  }

  /** One batch of every partition that has more. */
  async #readAll(): Promise<Read[]> {
    const { log, metrics, now } = this.#parts;
    const reads: Read[] = [];
    let oldest = Number.POSITIVE_INFINITY;
    for (const partition of await log.partitions()) {
      const position = this.#positions.get(partition) ?? 0;
      const batch = await this.#source.read(partition, position, this.#batchBytesMax);
      if (batch.next === position) continue;
      oldest = Math.min(oldest, batch.records[0]?.header.receivedAt ?? this.#caughtUpTo);
      reads.push({ partition, ...batch });
    }
    this.#caughtUpTo = Math.min(now(), oldest);
    metrics.set(METRIC.processor_lag, Math.max(0, now() - this.#caughtUpTo) / 1000);
    return reads;
  }

  async #process(transaction: WriteTransaction, { partition, records, next, problem }: Read): Promise<number> {
    if (problem !== null) throw problem;
    const { now } = this.#parts;
    const counts = await processPrepared(transaction, records, { now, failpoint: this.#failpoint });
    await transaction.advance(partition, next);
    this.#positions.set(partition, next);
    this.#failpoint('advanced');
    this.#uncounted.push({ ...counts, records: records.length });
    return Math.max(counts.users, counts.events);
  }

  async #tryOrSetAside(record: LogRecord, next: number, error: unknown): Promise<void> {
    const { writer, logger, metrics, now } = this.#parts;
    const { partition, position, traceId } = record;
    const name = `${partition}/${position}`;
    const tries = (this.#tries.get(name) ?? 0) + 1;
    this.#tries.set(name, tries);
    if (tries < TRIES_MAX) return;
    this.#tries.delete(name);
    const cause = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    const transaction = await writer.begin();
    try {
      await transaction.setAside(headerOf(record), cause, now());
      await transaction.advance(partition, next);
      await transaction.commit(false);
    } catch (failure) {
      await transaction.rollback();
      throw failure;
    }
    this.#committed.set(partition, next);
    this.#isDurable = false;
    metrics.inc(METRIC.records_set_aside);
    logger.error(
      { trace_id: traceId, partition, position, err: error },
      'a record cannot be processed: set aside, see sluice doctor',
    );
  }

  async #settle(): Promise<void> {
    const isDue = Math.abs(this.#parts.now() - this.#lastDurableAt) >= DURABLE_INTERVAL_MS;
    try {
      if (isDue) await this.#makeDurable();
    } finally {
      // Also when the store cannot be written: that is when the backlog grows.
      await this.#parts.betweenTransactions(this.#committed, this.#caughtUpTo);
    }
  }

  /** Only what survives a power loss may leave the log. */
  async #makeDurable(): Promise<void> {
    if (this.#isDurable) return;
    const { log, writer, now } = this.#parts;
    const transaction = await writer.begin();
    try {
      await transaction.commit(true);
    } catch (error) {
      await transaction.rollback();
      throw error;
    }
    this.#isDurable = true;
    this.#lastDurableAt = now();
    for (const [partition, position] of this.#committed) await log.commit(partition, position);
    this.#failpoint('log_committed');
  }

  /** Waits where waiting helps. Anything else ends the thread, and with it the process: the log replays. */
  async #guarded(task: 'process' | 'settle', work: () => Promise<boolean | void>): Promise<boolean> {
    const { logger } = this.#parts;
    try {
      const result = await work();
      this.#waiting.delete(task);
      if (this.#waiting.size === 0 && this.#toldReasons.size > 0) {
        logger.info('the processor goes on');
        this.#toldReasons.clear();
      }
      return result === true;
    } catch (error) {
      if (!isWorthWaiting(error)) throw error;
      const reason = error.message;
      if (!this.#toldReasons.has(reason)) {
        logger.error({ reason }, 'the processor waits; what was accepted is safe in the log');
      }
      this.#waiting.add(task);
      this.#toldReasons.add(reason);
      await sleep(RETRY_MS);
      return false;
    }
  }
}
