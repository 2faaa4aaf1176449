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
import { LogCorruptError, type LogReader, type LogRecord, LogUnavailableError } from '../log.ts';
import type { Logger } from '../logger.ts';
import { METRIC, type MetricsWriter } from '../metrics.ts';
import { StoreUnavailableError, type StoreWriter, type WriteTransaction } from '../store-writer.ts';
import { type Failpoint, processBatch } from './batch.ts';
import { headerOf } from './prepare.ts';

const BATCH_BYTES_MAX = 4 * 1024 * 1024;
const TRANSACTION_USERS_MAX = 50_000;
const TRANSACTION_MS_MAX = 750;
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
  /** Called between transactions, with the positions that are committed. */
  readonly betweenTransactions: (positions: ReadonlyMap<number, number>) => Promise<void>;
  readonly failpoint?: Failpoint;
  /** For tests: where batches and transactions end must not show in what is stored. */
  readonly batchBytesMax?: number;
  readonly transactionUsersMax?: number;
}

interface Read {
  readonly partition: number;
  readonly records: readonly LogRecord[];
  readonly next: number;
}

export class Processor {
  readonly #parts: ProcessorParts;
  readonly #failpoint: Failpoint;
  readonly #batchBytesMax: number;
  readonly #transactionUsersMax: number;
  /** As in the store. */
  #committed = new Map<number, number>();
  /** As in the transaction under way. */
  #positions = new Map<number, number>();
  /** Up to where each partition is read record by record, because a batch there could not be processed. */
  readonly #carefulUntil = new Map<number, number>();
  readonly #tries = new Map<string, number>();
  #lastDurableAt = 0;
  #isDurable = true;
  #stopping = false;
  #trouble: string | null = null;

  constructor(parts: ProcessorParts) {
    this.#parts = parts;
    this.#failpoint = parts.failpoint ?? (() => undefined);
    this.#batchBytesMax = parts.batchBytesMax ?? BATCH_BYTES_MAX;
    this.#transactionUsersMax = parts.transactionUsersMax ?? TRANSACTION_USERS_MAX;
  }

  /** Resolves after `stop`, with everything committed. Rejects only when going on would be wrong. */
  async run(): Promise<void> {
    this.#committed = await this.#parts.writer.positions();
    while (!this.#stopping) {
      const found = await this.#guarded(() => this.#transaction());
      await this.#guarded(() => this.#settle());
      if (this.#stopping) break;
      if (found) await sleep(TURN_MS);
      else await this.#parts.waitForMore();
    }
    await this.#guarded(() => this.#makeDurable());
  }

  /** After the transaction under way. */
  stop(): void {
    this.#stopping = true;
  }

  /** Everything that is in the log now; for tests and tools. Resolves when it is used up. */
  async drain(): Promise<void> {
    this.#committed = await this.#parts.writer.positions();
    while (await this.#guarded(() => this.#transaction()));
    await this.#guarded(() => this.#makeDurable());
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
      await this.#process(transaction, { partition, records, next });
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
    metrics.inc(METRIC.processor_transactions);
    metrics.observe(METRIC.processor_transaction_duration, (performance.now() - startedAt) / 1000);
  }

  async #begin(): Promise<WriteTransaction> {
    const transaction = await this.#parts.writer.begin();
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
      const { records, next } = await log.read(partition, position, this.#batchBytesMax);
      const [first] = records;
      if (first === undefined) continue;
      oldest = Math.min(oldest, first.receivedAt);
      reads.push({ partition, records, next });
    }
    metrics.set(METRIC.processor_lag, Number.isFinite(oldest) ? Math.max(0, now() - oldest) / 1000 : 0);
    return reads;
  }

  async #process(transaction: WriteTransaction, { partition, records, next }: Read): Promise<number> {
    const { metrics, options, now } = this.#parts;
    const counts = await processBatch(transaction, records, { options, now, failpoint: this.#failpoint });
    await transaction.advance(partition, next);
    this.#positions.set(partition, next);
    this.#failpoint('advanced');
    metrics.inc(METRIC.processed_records, records.length);
    metrics.inc(METRIC.processed_users, counts.users);
    metrics.inc(METRIC.processed_events, counts.events);
    metrics.inc(METRIC.merges, counts.merges);
    metrics.inc(METRIC.refusals, counts.refusals);
    return counts.users;
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
    const { now } = this.#parts;
    const isDue = Math.abs(now() - this.#lastDurableAt) >= DURABLE_INTERVAL_MS;
    try {
      if (isDue) await this.#makeDurable();
    } finally {
      // Also when the store cannot be written: that is when the backlog grows.
      await this.#parts.betweenTransactions(this.#committed);
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
  async #guarded(work: () => Promise<boolean | void>): Promise<boolean> {
    try {
      const result = await work();
      if (this.#trouble !== null) this.#parts.logger.info('the processor goes on');
      this.#trouble = null;
      return result === true;
    } catch (error) {
      if (!isWorthWaiting(error)) throw error;
      if (this.#trouble !== error.message) {
        this.#parts.logger.error(
          { reason: error.message },
          'the processor waits; what was accepted is safe in the log',
        );
      }
      this.#trouble = error.message;
      await sleep(RETRY_MS);
      return false;
    }
  }
}

/** A store or a log that cannot be used now; a damaged log waits for a person, and events are taken in meanwhile. */
function isWorthWaiting(error: unknown): error is Error {
  return (
    error instanceof StoreUnavailableError || error instanceof LogUnavailableError || error instanceof LogCorruptError
  );
}

/**
 * Whether a record may be the cause. Not if the database says that it cannot work (SQLite's own codes, but for those
 * about values and constraints), and not if the log is damaged.
 */
function isPoison(error: unknown): boolean {
  if (isWorthWaiting(error)) return false;
  if (!(error instanceof Error)) return true;
  if ('errcode' in error && typeof error.errcode === 'number') return VALUE_ERRORS.has(error.errcode & 0xff);
  return true;
}

/** SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH, SQLITE_RANGE. */
const VALUE_ERRORS = new Set([18, 19, 20, 25]);
