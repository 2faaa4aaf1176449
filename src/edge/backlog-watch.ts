/**
 * Measures the backlog from an edge, where no processor of this server reads the whole log: what the log holds beyond
 * the positions in the store. Checks every few seconds in the background. An unknown backlog (the store is unavailable)
 * does not count as full, since the log accepts events without the store.
 */

import type { LogReader } from '../log.ts';
import { backlogLimit } from '../log/backlog-limit.ts';
import type { Logger } from '../telemetry/logger.ts';

const LOOK_INTERVAL_MS = 3_000;

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

interface BacklogWatch {
  look(): Promise<void>;
  /** One that is under way may still end, well or not. */
  stop(): void;
}

export function watchBacklog(parts: BacklogWatchParts): BacklogWatch {
  const applyLimit = backlogLimit(parts.bytesMax, parts.setFull, parts.logger);
  let underWay: Promise<void> | undefined;
  const lookOnce = async (): Promise<void> => {
    const bytes = await backlogOf(parts).catch(() => null);
    parts.report(bytes);
    applyLimit(bytes);
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
