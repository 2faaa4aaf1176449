/**
 * Measures the backlog from an edge, where no processor of this server reads the whole log: what the log holds beyond
 * the positions in the store. Checks every few seconds in the background. An unknown backlog (the store is unavailable)
 * does not count as full, since the log accepts events without the store.
 */

import type { LogReader } from '../log.ts';
import type { Logger } from '../telemetry/logger.ts';

const LOOK_INTERVAL_MS = 3_000;
/** Accepted again a little below the bound, so that it does not flicker. */
const LOW_SHARE = 0.9;

export interface BacklogWatchParts {
  readonly log: Pick<LogReader, 'partitions' | 'backlogBytes'>;
  /** Up to where each partition is in the store. */
  readonly positions: () => Promise<ReadonlyMap<number, number>>;
  readonly bytesMax: number;
  readonly setFull: (isFull: boolean) => void;
  /** Null when it is not known. */
  readonly report: (bytes: number | null) => void;
  readonly logger: Logger;
}

export interface BacklogWatch {
  look(): Promise<void>;
  /** One that is under way may still end, well or not. */
  stop(): void;
}

export function watchBacklog(parts: BacklogWatchParts): BacklogWatch {
  const { bytesMax, setFull, report, logger } = parts;
  let isFull = false;
  let underWay: Promise<void> | undefined;
  const lookOnce = async (): Promise<void> => {
    const bytes = await backlogOf(parts).catch(() => null);
    report(bytes);
    const isFullNow = bytes !== null && bytes > bytesMax * (isFull ? LOW_SHARE : 1);
    if (isFullNow !== isFull) {
      const line = { backlog_bytes: bytes, backlog_bytes_max: bytesMax };
      if (isFullNow) logger.error(line, 'the backlog is full: responding with 503 until some of it is processed');
      else logger.info(line, bytes === null ? 'the backlog is not known any more' : 'the backlog has room again');
    }
    isFull = isFullNow;
    setFull(isFull);
  };
  const look = (): Promise<void> => {
    underWay ??= lookOnce().finally(() => {
      underWay = undefined;
    });
    return underWay;
  };
  const timer = setInterval(() => void look(), LOOK_INTERVAL_MS);
  timer.unref();
  return { look, stop: () => clearInterval(timer) };
}

async function backlogOf({ log, positions }: BacklogWatchParts): Promise<number> {
  const processed = await positions();
  let bytes = 0;
  for (const partition of await log.partitions()) {
    bytes += await log.backlogBytes(partition, processed.get(partition) ?? 0);
  }
  return bytes;
}
