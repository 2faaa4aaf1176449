/**
 * The starts of servers on one store. Each has a random id, which a cursor of arrivals carries: if a copy of the store
 * is restored, cursors issued after the copy was made name a start that this store does not have, and are rejected,
 * whatever numbers both histories have given to their events. The row of a start is on disk before any event is stored
 * and before any cursor is issued under it.
 *
 * Every start skips numbers, and more after a restore, so that cursors of an interrupted start (a power loss, a backup
 * made while it ran) stay below the numbers of the next one and remain usable. If they do not, they are rejected as
 * well. Limit: the newest STARTS_MAX are stored; cursors of older ones are rejected.
 */

import { existsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { sizeOfFile } from '../../../data-folder/files.ts';
import { BUSY_TIMEOUT_MS, transaction } from '../database.ts';
import type { StoreConnection } from './connection.ts';

/** One a minute for a week. */
const STARTS_MAX = 10_000;
/** More than a store can have stored since its last sync, which a power loss may undo. */
const NUMBERS_LOST_BY_CRASH = 2 ** 24;
/** More than the distance between a store and its backup. */
const NUMBERS_LOST_BY_RESTORE = 2 ** 32;
const NUMBERS_SINCE = Date.UTC(2026, 0, 1);
/** More events than any store receives, so the numbers of a later start are higher than all issued before it. */
const NUMBERS_PER_MS = 1_000;

/** Call it at every start of a server, before anything is stored. Leaves the connection syncing every commit. */
export function recordStart(database: DatabaseSync, now: number): void {
  database.exec('PRAGMA synchronous = FULL');
  transaction(database, () => {
    skipNumbers(database, NUMBERS_LOST_BY_CRASH, now);
    database.exec(`
      INSERT INTO starts SELECT NULL, lower(hex(randomblob(8))), next FROM sequences WHERE name = 'event';
      DELETE FROM starts WHERE no <= (SELECT max(no) FROM starts) - ${STARTS_MAX};`);
  });
}

/** Whether a server was ever started on the store. Also false if that cannot be read, which a start reports. */
export function hasStarts(file: string): boolean {
  if (sizeOfFile(file) === 0) return false;
  try {
    using database = new DatabaseSync(file, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    return database.prepare('SELECT 1 FROM starts LIMIT 1').get() !== undefined;
  } catch {
    return false;
  }
}

/** For a store restored from a backup, before a server starts on it. */
export function skipNumbersAfterRestore(file: string, now: number): void {
  if (!existsSync(file)) return;
  using database = new DatabaseSync(file, { timeout: BUSY_TIMEOUT_MS });
  transaction(database, () => skipNumbers(database, NUMBERS_LOST_BY_RESTORE, now));
}

function skipNumbers(database: DatabaseSync, count: number, now: number): void {
  const reachedByNow = Math.max(0, now - NUMBERS_SINCE) * NUMBERS_PER_MS;
  database.prepare("UPDATE sequences SET next = max(next + ?, ?) WHERE name = 'event'").run(count, reachedByNow);
}

/** The id of the start under which cursors are issued now. */
export function latestStart(store: StoreConnection): string {
  return (store.get<{ id: string }>('SELECT id FROM starts ORDER BY no DESC LIMIT 1') as { id: string }).id;
}
