/**
 * The time that retention goes by, kept in the data folder over restarts (`retention-time`, milliseconds as text). It
 * follows the clock of the server, but never faster than `SPEED_MAX` times the time that passes while the server runs:
 * a wrong clock removes nothing in a crash loop or at a start under load, and after a long stop retention catches up
 * within a fraction of it. Only for embedded stores: PostgreSQL's own clock bounds retention there.
 */

import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';

const SPEED_MAX = 4;
const DIGITS = 16;
const CANNOT_WRITE_NOW: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE']);

export interface RetentionClockSetup {
  readonly file: string;
  /** What it follows. */
  readonly time: () => number;
  /** Milliseconds that pass, of a clock that is never set. */
  readonly monotonic?: () => number;
}

/** Returns the clock. Writes the file whenever it is read, which retention does once a minute. */
export function openRetentionClock(setup: RetentionClockSetup): () => number {
  const { file, time, monotonic = () => performance.now() } = setup;
  let kept = readKept(file) ?? time();
  let readAt = monotonic();
  return () => {
    const now = monotonic();
    kept = Math.floor(Math.min(time(), kept + (now - readAt) * SPEED_MAX));
    readAt = now;
    keep(file, kept);
    return kept;
  };
}

/** In place, so that a full disk does not empty it; what cannot be written now is with the next reading. */
function keep(file: string, time: number): void {
  try {
    closeSync(openSync(file, 'a', 0o600));
    const descriptor = openSync(file, 'r+');
    try {
      writeSync(descriptor, `${String(time).padStart(DIGITS, '0')}\n`, 0);
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    if (!CANNOT_WRITE_NOW.has((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

function readKept(file: string): number | undefined {
  try {
    const kept = Number(readFileSync(file, 'utf8').trim());
    return Number.isSafeInteger(kept) && kept > 0 ? kept : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
