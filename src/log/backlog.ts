/**
 * Whether the backlog is full, to which edges respond with 503: full above the bound, and no longer full a little below it
 * (hysteresis), so that it does not flicker. Where no processor of this server reads the whole log, an edge measures the
 * backlog: what the log holds beyond the positions in the store. While the store cannot be read, the last known positions
 * count, since nothing is processed either. An unknown backlog does not count as full.
 */

import type { LogReader } from '../log.ts';
import type { Logger } from '../telemetry/logger.ts';

const LOW_SHARE = 0.9;

export type BacklogLimit = (bytes: number | null) => void;

/** Call it with each measurement; null is unknown, which does not count as full. */
export function backlogLimit(bytesMax: number, setFull: (isFull: boolean) => void, logger: Logger): BacklogLimit {
  let wasFull = false;
  return (bytes) => {
    const isFull = bytes !== null && bytes > bytesMax * (wasFull ? LOW_SHARE : 1);
    if (isFull !== wasFull) {
      const line = { backlog_bytes: bytes, backlog_bytes_max: bytesMax };
      if (isFull) logger.error(line, 'the backlog is full: responding with 503 until some of it is processed');
      else logger.info(line, bytes === null ? 'the backlog is no longer known' : 'the backlog has room again');
    }
    wasFull = isFull;
    setFull(isFull);
  };
}

const MEASURE_INTERVAL_MS = 3_000;

export interface BacklogWatchParts {
  readonly log: Pick<LogReader, 'partitions' | 'backlogBytes'>;
  /** Up to where each partition is in the store. */
  readonly positions: () => Promise<ReadonlyMap<number, number>>;
  readonly bytesMax: number;
  readonly setFull: (isFull: boolean) => void;
  readonly report: (bytes: number) => void;
  readonly logger: Logger;
}

export function watchBacklog(parts: BacklogWatchParts) {
  const applyLimit = backlogLimit(parts.bytesMax, parts.setFull, parts.logger);
  let underWay: Promise<void> | undefined;
  let processed: ReadonlyMap<number, number> | undefined;
  const measureOnce = async (): Promise<void> => {
    processed = await parts.positions().catch(() => processed);
    const bytes = processed === undefined ? null : await backlogOf(parts.log, processed).catch(() => null);
    if (bytes !== null) parts.report(bytes);
    applyLimit(bytes);
  };
  const measure = (): Promise<void> => {
    underWay ??= measureOnce().finally(() => {
      underWay = undefined;
    });
    return underWay;
  };
  const timer = setInterval(() => void measure(), MEASURE_INTERVAL_MS);
  timer.unref();
  return { measure, stop: () => clearInterval(timer) };
}

async function backlogOf(log: BacklogWatchParts['log'], processed: ReadonlyMap<number, number>): Promise<number> {
  let bytes = 0;
  for (const partition of await log.partitions()) {
    bytes += await log.backlogBytes(partition, processed.get(partition) ?? 0);
  }
  return bytes;
}
