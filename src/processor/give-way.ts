/**
 * How the processor lets whoever waits for an answer go first: between two transactions it rests while requests wait at
 * the edges, and so also works in larger transactions, which are cheaper. Needs no rights and no particular system.
 *
 * Invariant: it does not rest for nothing. It goes on at once when nobody waits, when nothing more comes in, when
 * what it has left lying is old or much, and when the server stops. So one event on an idle server is not delayed, and load that
 * never ends cannot starve it: beyond the bounds it takes its share of the cores again.
 */

import { setTimeout as sleep } from 'node:timers/promises';

/** Requests that wait for their answer, on average: somebody nearly always, or several at any time. */
const SOME_WAITING = 1;
const MANY_WAITING = 4;
/** How old the oldest record that is not processed may become meanwhile. */
const SOME_LAG_MS_MAX = 200;
const MANY_LAG_MS_MAX = 1_000;
/** How much may come in meanwhile: about what two large transactions take. */
const BYTES_MAX = 64 * 1024 * 1024;
/** When nothing came in for so long, whoever sent something has his answer. */
const QUIET_MS = 100;
const LOOK_INTERVAL_MS = 10;

export interface Situation {
  /** Requests that came in whole and wait for their answer. */
  readonly waiting: number;
  /** Age of the oldest record that may not be processed yet. */
  readonly lagMs: number;
  /** How long this has waited. */
  readonly waitedMs: number;
  /** What came in meanwhile. */
  readonly bytes: number;
  /** Since something last came in. */
  readonly quietMs: number;
}

/** Whether to let the edges go first for another moment. */
export function givesWay({ waiting, lagMs, waitedMs, bytes, quietMs }: Situation): boolean {
  if (waiting < SOME_WAITING || quietMs >= QUIET_MS || bytes >= BYTES_MAX) return false;
  const lagMsMax = waiting >= MANY_WAITING ? MANY_LAG_MS_MAX : SOME_LAG_MS_MAX;
  // Both, because the clock of the day, by which records have an age, may be set back.
  return lagMs < lagMsMax && waitedMs < lagMsMax;
}

export interface GiveWayParts {
  readonly now: () => number;
  readonly waiting: () => number;
  /** Entries, and bytes, that were appended to the log since the start. */
  readonly entries: () => number;
  readonly bytes: () => number;
  readonly isStopping: () => boolean;
}

/** Resolves when it is the processor's turn; nothing older than `caughtUpTo` waits. */
export function turnTaker(parts: GiveWayParts): (caughtUpTo: number) => Promise<void> {
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
      const situation = {
        waiting: parts.waiting(),
        lagMs: parts.now() - caughtUpTo,
        waitedMs: moment - startedAt,
        bytes: parts.bytes() - startBytes,
        quietMs: moment - changedAt,
      };
      if (parts.isStopping() || !givesWay(situation)) return;
      await sleep(LOOK_INTERVAL_MS);
    }
  };
}
