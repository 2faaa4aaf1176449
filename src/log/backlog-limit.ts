/**
 * Decides whether the backlog is full, to which edges respond with 503. Full above the bound, and no longer full a
 * little below it (hysteresis), so that it does not flicker. Logs each change.
 */

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
