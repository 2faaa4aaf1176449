/**
 * What the processor does besides processing, between two transactions: tells how much waits in the log and whether the
 * edges must stop taking in more, removes what is too old, and looks whether the books balance.
 */

import { LogCorruptError, type LogReader } from '../log.ts';
import { missingRecords } from '../log/continuity.ts';
import type { Logger } from '../telemetry/logger.ts';
import { METRIC, type MetricsWriter } from '../telemetry/metrics.ts';
import type { Retention, StoreWriter } from '../store-writer.ts';
import { isWorthWaiting } from './failures.ts';

const BACKLOG_INTERVAL_MS = 1_000;
/** After a partition could not be looked at, which may have taken seconds. */
const BACKLOG_RETRY_MS = 30_000;
const BOOKS_INTERVAL_MS = 10_000;
const SWEEP_INTERVAL_MS = 60_000;
/** Time that passes between two looks at a clock is less than this, and what retention waits for is more. */
const RETENTION_LAG_MS = 60_000;
/** The edges take in again a little below the bound, or they would flicker. */
const BACKLOG_LOW_SHARE = 0.9;

export interface HousekeepingParts {
  readonly log: LogReader;
  readonly writer: StoreWriter;
  readonly metrics: MetricsWriter;
  readonly logger: Logger;
  readonly now: () => number;
  /** The time that retention goes by: it may stand for a while (`clock/clock.ts`). */
  readonly retentionTime: () => number;
  readonly retention: Retention;
  readonly backlogBytesMax: number;
  readonly setBacklogFull: (isFull: boolean) => void;
}

export class Housekeeping {
  readonly #parts: HousekeepingParts;
  #backlogAt = Number.NEGATIVE_INFINITY;
  /** By partition, as it was when it could be looked at last. */
  #backlogs = new Map<number, number>();
  #booksAt = Number.NEGATIVE_INFINITY;
  #sweepAt = Number.NEGATIVE_INFINITY;
  #isRetentionWaiting = false;
  #isBacklogFull = false;
  #areBooksOut = false;
  #isLogShort = false;

  constructor(parts: HousekeepingParts) {
    this.#parts = parts;
  }

  /** Cheap when nothing is due. */
  async run(positions: ReadonlyMap<number, number>, caughtUpTo: number): Promise<void> {
    // Not by the clock of the day, which may be set back.
    const moment = performance.now();
    if (moment - this.#backlogAt >= BACKLOG_INTERVAL_MS) {
      this.#backlogAt = moment;
      await this.#watchBacklog(positions);
    }
    if (moment - this.#booksAt >= BOOKS_INTERVAL_MS) {
      this.#booksAt = moment;
      await this.#checkLog();
      await this.#checkBooks();
    }
    if (moment - this.#sweepAt >= SWEEP_INTERVAL_MS) {
      // Said before, so that a store which cannot be written is not waited for at every turn.
      this.#sweepAt = moment;
      // One piece at a time: events come first.
      if (await this.#sweep(caughtUpTo)) this.#sweepAt = Number.NEGATIVE_INFINITY;
    }
  }

  /** True when there is more to remove. */
  #sweep(caughtUpTo: number): Promise<boolean> {
    const { writer, retention, retentionTime, now, logger } = this.#parts;
    const time = retentionTime();
    const isWaiting = now() - time > RETENTION_LAG_MS;
    if (isWaiting && !this.#isRetentionWaiting) {
      logger.warn(
        { retention_time: new Date(time).toISOString() },
        'retention goes by an earlier time for now: the clock jumped, or the server was stopped for long',
      );
    }
    this.#isRetentionWaiting = isWaiting;
    // An Idempotency-Key must outlive the requests that still wait in the log, however late they are processed.
    return writer.sweep(retention, Math.min(time, caughtUpTo));
  }

  async #watchBacklog(positions: ReadonlyMap<number, number>): Promise<void> {
    const { metrics, logger, backlogBytesMax, setBacklogFull } = this.#parts;
    const bytes = await this.#backlogBytes(positions);
    metrics.set(METRIC.backlog_bytes, bytes);
    const isFull = bytes > backlogBytesMax * (this.#isBacklogFull ? BACKLOG_LOW_SHARE : 1);
    if (isFull !== this.#isBacklogFull) {
      const line = { backlog_bytes: bytes, backlog_bytes_max: backlogBytesMax };
      if (isFull) logger.error(line, 'the backlog is full: answering 503 until some of it is processed');
      else logger.info(line, 'the backlog has room again');
    }
    this.#isBacklogFull = isFull;
    setBacklogFull(isFull);
  }

  /** A partition that cannot be looked at counts as it did before: whoever reads it tells what is wrong with it. */
  async #backlogBytes(positions: ReadonlyMap<number, number>): Promise<number> {
    const { log } = this.#parts;
    const backlogs = new Map<number, number>();
    let bytes = 0;
    for (const partition of await log.partitions()) {
      try {
        backlogs.set(partition, await log.backlogBytes(partition, positions.get(partition) ?? 0));
      } catch (error) {
        if (!isWorthWaiting(error)) throw error;
        backlogs.set(partition, this.#backlogs.get(partition) ?? 0);
        this.#backlogAt = performance.now() + BACKLOG_RETRY_MS - BACKLOG_INTERVAL_MS;
      }
      bytes += backlogs.get(partition) ?? 0;
    }
    this.#backlogs = backlogs;
    return bytes;
  }

  /**
   * Whether the log still has what the store relies on. Of a damaged log it is not known how much, and it counts as one,
   * as in the ledger. One that cannot be read now is looked at the next time.
   */
  async #checkLog(): Promise<void> {
    const { log, writer, metrics, logger } = this.#parts;
    const partitions = new Set(await log.partitions());
    const { positions, lastTraceIds } = await writer.processed();
    metrics.set(METRIC.log_lost_records, await writer.lostRecords());
    const own = new Map([...positions].filter(([partition]) => partitions.has(partition)));
    try {
      const missing = await missingRecords(log, { positions: own, lastTraceIds });
      metrics.set(METRIC.log_missing_records, missing);
      if (missing > 0 && !this.#isLogShort) {
        logger.error({ records: missing }, 'the log has lost records: see GET /ledger and sluice doctor');
      }
      this.#isLogShort = missing > 0;
    } catch (error) {
      if (!isWorthWaiting(error)) throw error;
      if (error instanceof LogCorruptError) metrics.set(METRIC.log_missing_records, 1);
    }
  }

  async #checkBooks(): Promise<void> {
    const { writer, metrics, logger } = this.#parts;
    const { users, events } = await writer.difference();
    metrics.set(METRIC.ledger_difference, users + events);
    const areOut = users !== 0 || events !== 0;
    if (areOut && !this.#areBooksOut) {
      logger.error({ users, events }, 'the books do not balance: this is a bug, see GET /ledger and sluice doctor');
    }
    this.#areBooksOut = areOut;
  }
}
