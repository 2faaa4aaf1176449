/**
 * The time for retention, kept in the data folder over restarts (`retention-time`, milliseconds as text). It follows
 * the clock of the server, but never faster than `SPEED_MAX` times the time that passes while the server runs: a wrong
 * clock removes nothing in a crash loop or at a start under load, and after a long stop retention catches up within a
 * fraction of it. While the clock is behind, nothing is removed, and the stored time stays: once the clock is right
 * again, retention continues at once. Only for embedded stores: PostgreSQL's own clock bounds retention there.
 */

import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { CLOCK_EARLIEST } from './clock.ts';

const SPEED_MAX = 4;
const DIGITS = 16;
const CANNOT_WRITE_NOW: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE']);

interface RetentionClockSetup {
  readonly file: string;
  /** The time that it follows. */
  readonly time: () => number;
  /** Milliseconds that pass, of a clock that is never set. */
  readonly monotonic?: () => number;
}

/** Returns the clock. Writes the file whenever it is read, which retention does once a minute. */
export function openRetentionClock(setup: RetentionClockSetup): () => number {
  const { file, time, monotonic = () => performance.now() } = setup;
  let kept = readRetentionTime(file);
  let readAt = monotonic();
  return () => {
    const [now, clock] = [monotonic(), Math.floor(time())];
    kept ??= clock;
    if (clock >= CLOCK_EARLIEST) {
      kept =
        kept < CLOCK_EARLIEST ? clock : Math.max(kept, Math.floor(Math.min(clock, kept + (now - readAt) * SPEED_MAX)));
      writeRetentionTime(file, kept);
    }
    readAt = now;
    return Math.min(kept, clock);
  };
}

/** In place, so that a full disk does not empty it; what cannot be written now is with the next reading. */
export function writeRetentionTime(file: string, time: number): void {
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

/** Undefined before retention has run. */
export function readRetentionTime(file: string): number | undefined {
  try {
    const kept = Number(readFileSync(file, 'utf8').trim());
    return Number.isSafeInteger(kept) && kept > 0 ? kept : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
