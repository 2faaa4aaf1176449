/**
 * What the processor does between two transactions: measures the backlog in the log and decides whether the edges must
 * respond 503 to new requests, removes expired data, and checks that every event is accounted for.
 */

import { LogCorruptError, type LogReader } from '../log.ts';
import { type BacklogLimit, backlogLimit } from '../log/backlog.ts';
import { missingRecords } from '../log/continuity.ts';
import type { Logger } from '../telemetry/logger.ts';
import { METRIC, type MetricsWriter } from '../telemetry/metrics.ts';
import type { Retention, StoreWriter } from '../store-writer.ts';
import { isRetryable } from '../runtime/unavailable.ts';

const BACKLOG_INTERVAL_MS = 1_000;
/** After a partition could not be read, which may have taken seconds. */
const BACKLOG_RETRY_MS = 30_000;
const LEDGER_INTERVAL_MS = 10_000;
const SWEEP_INTERVAL_MS = 60_000;
const OVER_LIMIT_LOG_INTERVAL_MS = 3_600_000;
/**
 * A smaller lag is usual after a restart, and a clock that jumped by less than this makes retention remove little too
 * early.
 */
const RETENTION_LAG_MS = 3_600_000;

interface HousekeepingParts {
  readonly log: LogReader;
  readonly writer: StoreWriter;
  readonly metrics: MetricsWriter;
  readonly logger: Logger;
  readonly now: () => number;
  /** The time that retention goes by: it may pause for a while (`clock/clock.ts`). */
  readonly retentionTime: () => number;
  readonly retention: Retention;
  readonly backlogBytesMax: number;
  readonly setBacklogFull: (isFull: boolean) => void;
}

export class Housekeeping {
  readonly #parts: HousekeepingParts;
  readonly #applyBacklogLimit: BacklogLimit;
  #backlogAt = Number.NEGATIVE_INFINITY;
  /** By partition, as of the last successful look. */
  #backlogs = new Map<number, number>();
  #ledgerCheckedAt = Number.NEGATIVE_INFINITY;
  #sweepAt = Number.NEGATIVE_INFINITY;
  #isRetentionWaiting = false;
  #overLimitLoggedAt = Number.NEGATIVE_INFINITY;
  #isLedgerOut = false;
  #isLogShort = false;

  constructor(parts: HousekeepingParts) {
    this.#parts = parts;
    this.#applyBacklogLimit = backlogLimit(parts.backlogBytesMax, parts.setBacklogFull, parts.logger);
  }

  /** Cheap when nothing is due. */
  async run(positions: ReadonlyMap<number, number>, caughtUpTo: number): Promise<void> {
    // Not the wall clock, which may be set back.
    const moment = performance.now();
    if (moment - this.#backlogAt >= BACKLOG_INTERVAL_MS) {
      this.#backlogAt = moment;
      const bytes = await this.#backlogBytes(positions);
      this.#parts.metrics.set(METRIC.backlog_bytes, bytes);
      this.#applyBacklogLimit(bytes);
    }
    if (moment - this.#ledgerCheckedAt >= LEDGER_INTERVAL_MS) {
      this.#ledgerCheckedAt = moment;
      await this.#checkLog();
      await this.#checkLedger();
    }
    if (moment - this.#sweepAt >= SWEEP_INTERVAL_MS) {
      // Set first, so that a store that cannot be written is not tried at every turn.
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
        'retention goes by an earlier time for now: the clock jumped, or the server was stopped for more than an hour',
      );
    }
    this.#isRetentionWaiting = isWaiting;
    const onRejectionsOverLimit = (removed: number): void => this.#noteOverLimit(removed);
    // An Idempotency-Key must outlive the requests that still wait in the log, however late they are processed.
    return writer.sweep({ ...retention, onRejectionsOverLimit }, Math.min(time, caughtUpTo));
  }

  /** Under a flood of invalid requests that is every sweep, so it is logged once an hour. */
  #noteOverLimit(removed: number): void {
    const { metrics, logger, retention } = this.#parts;
    metrics.inc(METRIC.rejections_over_limit, removed);
    const moment = performance.now();
    if (moment - this.#overLimitLoggedAt < OVER_LIMIT_LOG_INTERVAL_MS) return;
    this.#overLimitLoggedAt = moment;
    logger.warn(
      { removed, limit_bytes: retention.rejectionBytesMax },
      'rejected users are removed before their time, the oldest first: together they exceed SLUICE_REJECTION_BYTES',
    );
  }

  /** A partition that cannot be read counts as it did before; reading it reports what is wrong. */
  async #backlogBytes(positions: ReadonlyMap<number, number>): Promise<number> {
    const { log } = this.#parts;
    const backlogs = new Map<number, number>();
    let bytes = 0;
    for (const partition of await log.partitions()) {
      try {
        backlogs.set(partition, await log.backlogBytes(partition, positions.get(partition) ?? 0));
      } catch (error) {
        if (!isRetryable(error)) throw error;
        backlogs.set(partition, this.#backlogs.get(partition) ?? 0);
        this.#backlogAt = performance.now() + BACKLOG_RETRY_MS - BACKLOG_INTERVAL_MS;
      }
      bytes += backlogs.get(partition) ?? 0;
    }
    this.#backlogs = backlogs;
    return bytes;
  }

  /**
   * Whether the log still has what the store relies on. For a damaged log the number is unknown, and counts as one, as
   * in the ledger. An unreadable log is checked again the next time.
   */
  async #checkLog(): Promise<void> {
    const { log, writer, metrics, logger } = this.#parts;
    const partitions = new Set(await log.partitions());
    const { positions, lastTraceIds, skipped } = await writer.processed();
    const skippedRecords = skipped.reduce((sum, { records }) => sum + records, 0);
    metrics.set(METRIC.log_lost_records, (await writer.lostRecords()) + skippedRecords);
    const own = new Map([...positions].filter(([partition]) => partitions.has(partition)));
    try {
      const missing = await missingRecords(log, { positions: own, lastTraceIds });
      metrics.set(METRIC.log_missing_records, missing);
      if (missing > 0 && !this.#isLogShort) {
        logger.error({ records: missing }, 'the log has lost records: see GET /ledger and sluice doctor');
      }
      this.#isLogShort = missing > 0;
    } catch (error) {
      if (!isRetryable(error)) throw error;
      if (error instanceof LogCorruptError) metrics.set(METRIC.log_missing_records, 1);
    }
  }

  async #checkLedger(): Promise<void> {
    const { writer, metrics, logger } = this.#parts;
    const { users, events } = await writer.difference();
    metrics.set(METRIC.ledger_difference, users + events);
    const isOut = users !== 0 || events !== 0;
    if (isOut && !this.#isLedgerOut) {
      logger.error(
        { users, events },
        'not every event is accounted for: this is a bug, see GET /ledger and sluice doctor',
      );
    }
    this.#isLedgerOut = isOut;
  }
}
