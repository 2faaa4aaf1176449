/**
 * `log/positions.db`: the position up to which each partition of the embedded log is processed, as reported by the
 * processor. It decides which segments are old enough to be removed, and a start never gives out a position below it.
 * The store has its own position in the transaction with the data; this one may be older.
 */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { LogCorruptError } from '../../../log.ts';
import { isDamage } from '../database.ts';

const BUSY_TIMEOUT_MS = 5_000;

function positionsFile(folder: string): string {
  return join(folder, 'positions.db');
}

export function openPositions(folder: string): DatabaseSync {
  const database = new DatabaseSync(positionsFile(folder), { timeout: BUSY_TIMEOUT_MS });
  try {
    // NORMAL is enough: an older position after a power loss only keeps segments for longer.
    database.exec(`
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = NORMAL;
      CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, position INTEGER NOT NULL) STRICT`);
  } catch (error) {
    // The caller retries later, as often as it takes.
    database.close();
    throw error;
  }
  return database;
}

export function commitPosition(positions: DatabaseSync, partition: number, position: number): void {
  positions
    .prepare(
      `INSERT INTO positions VALUES (?, ?)
       ON CONFLICT (partition) DO UPDATE SET position = max(position, excluded.position)`,
    )
    .run(partition, position);
}

/** 0 before the first commit. */
export function committedPosition(positions: DatabaseSync, partition: number): number {
  const row = positions.prepare('SELECT position FROM positions WHERE partition = ?').get(partition);
  return Number(row?.['position'] ?? 0);
}

/** As a message; null if there is no file, or it is intact. Reads only. */
export function problemOfPositions(folder: string): string | null {
  const file = positionsFile(folder);
  if (!existsSync(file)) return null;
  try {
    const positions = new DatabaseSync(file, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    try {
      const { quick_check: found } = positions.prepare('PRAGMA quick_check(1)').get() as { quick_check: string };
      return found === 'ok' ? null : damageText(file, found);
    } finally {
      positions.close();
    }
  } catch (error) {
    if (!isDamage(error)) throw error;
    return damageText(file, (error as Error).message);
  }
}

/** As `committedPosition`, for a start and for commands: also 0 without a file. Reads only. */
export function findCommittedPosition(folder: string, partition: number): number {
  const file = positionsFile(folder);
  if (!existsSync(file)) return 0;
  try {
    const positions = new DatabaseSync(file, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    try {
      // The process that created the file may have been killed before it had its table.
      const isEmpty = positions.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'positions'").get() === undefined;
      return isEmpty ? 0 : committedPosition(positions, partition);
    } finally {
      positions.close();
    }
  } catch (error) {
    if (!isDamage(error)) throw error;
    throw new LogCorruptError(damageText(file, (error as Error).message));
  }
}

/** For a file that turns out to be damaged while a server uses it. */
export function positionsDamagedText(folder: string, error: unknown): string {
  return `With the server stopped: ${damageText(positionsFile(folder), (error as Error).message)}`;
}

function damageText(file: string, reason: string): string {
  return `${file} is damaged (${reason}). Move it away, with ${file}-wal and ${file}-shm: it is made again, and nothing is lost.`;
}
