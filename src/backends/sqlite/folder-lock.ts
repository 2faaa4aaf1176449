/**
 * One server per data folder. The lock is SQLite's lock on a file that nobody else uses: the operating system lets go
 * of it however the process ends, kill -9 included, so there is no stale lock to clean up.
 */

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { OperatorError } from '../../errors.ts';

const SQLITE_BUSY = 5;

export interface FolderLock {
  release(): void;
}

export function lockFolder(folder: string): FolderLock {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new OperatorError(
      `The data folder ${resolve(folder)} cannot be made: ${(error as Error).message}. Choose another with SLUICE_DATA or --data.`,
    );
  }
  const database = new DatabaseSync(join(folder, 'lock.db'), { timeout: 0 });
  try {
    database.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if ((error as { errcode?: number }).errcode !== SQLITE_BUSY) throw error;
    const holder = pidOf(folder);
    throw new OperatorError(
      `The data folder ${resolve(folder)} is in use by another Sluice server${holder}. Stop that one first, or give this one a folder of its own with SLUICE_DATA or --data.`,
    );
  }
  try {
    writeFileSync(join(folder, 'server.pid'), `${process.pid}\n`, { mode: 0o600 });
  } catch (error) {
    throw new OperatorError(`The data folder ${resolve(folder)} cannot be written: ${(error as Error).message}.`);
  }
  return {
    release: () => {
      database.exec('ROLLBACK');
      database.close();
    },
  };
}

function pidOf(folder: string): string {
  try {
    return ` (process ${readFileSync(join(folder, 'server.pid'), 'utf8').trim()})`;
  } catch {
    return '';
  }
}
