/**
 * The processor yields to the edges: between two transactions it pauses while requests wait for their response. This
 * also makes transactions larger, which are cheaper. Needs no privileges and works on every operating system.
 *
 * Invariant: it never pauses without a reason. It continues at once when no request waits, when nothing more arrives,
 * when its backlog is old or large, and when the server stops. So an event on an idle server is not delayed, and constant
 * load cannot starve it: beyond the bounds it takes its share of the cores again.
 */

import { setTimeout as sleep } from 'node:timers/promises';

/** Requests that wait for their response, on average: nearly always one, or several at any time. */
const SOME_WAITING = 1;
const MANY_WAITING = 4;
/** How old the oldest record that is not processed may become meanwhile. */
const SOME_LAG_MS_MAX = 200;
const MANY_LAG_MS_MAX = 1_000;
/** How much may arrive meanwhile: about two large transactions. */
const BYTES_MAX = 64 * 1024 * 1024;
/** When nothing has arrived for this long, every client has its response. */
const NO_ARRIVALS_MS = 100;
const SAMPLE_INTERVAL_MS = 10;

export interface LoadSample {
  /** Requests that were received completely and wait for their response. */
  readonly waiting: number;
  /** Age of the oldest record that may not be processed yet. */
  readonly lagMs: number;
  /** How long the processor has paused. */
  readonly waitedMs: number;
  /** Bytes that arrived meanwhile. */
  readonly bytes: number;
  /** Since something last arrived. */
  readonly idleMs: number;
}

/** Whether the processor pauses for another interval. */
export function shouldYield({ waiting, lagMs, waitedMs, bytes, idleMs }: LoadSample): boolean {
  if (waiting < SOME_WAITING || idleMs >= NO_ARRIVALS_MS || bytes >= BYTES_MAX) return false;
  const lagMsMax = waiting >= MANY_WAITING ? MANY_LAG_MS_MAX : SOME_LAG_MS_MAX;
  // Both, because the wall clock, by which records have an age, may be set back.
  return lagMs < lagMsMax && waitedMs < lagMsMax;
}

interface YieldParts {
  readonly now: () => number;
  readonly waiting: () => number;
  /** Entries, and bytes, that were appended to the log since the start. */
  readonly entries: () => number;
  readonly bytes: () => number;
  readonly isStopping: () => boolean;
}

/** Returns the pause: it resolves when the processor may continue. Nothing older than `caughtUpTo` waits. */
export function yieldPolicy(parts: YieldParts): (caughtUpTo: number) => Promise<void> {
  return async (caughtUpTo) => {
    const startedAt = performance.now();
    const startBytes = parts.bytes();
    let entries = parts.entries();
    let changedAt = startedAt;
    for (;;) {
      const moment = performance.now();
      if (parts.entries() !== entries) {
        entries = parts.entries();
        changedAt = moment;
      }
      const sample = {
        waiting: parts.waiting(),
        lagMs: parts.now() - caughtUpTo,
        waitedMs: moment - startedAt,
        bytes: parts.bytes() - startBytes,
        idleMs: moment - changedAt,
      };
      if (parts.isStopping() || !shouldYield(sample)) return;
      await sleep(SAMPLE_INTERVAL_MS);
    }
  };
}
