/**
 * One server per data folder. The lock is SQLite's lock on a file that nobody else uses: the operating system lets go
 * of it however the process ends, kill -9 included, so there is no stale lock to clean up.
 */

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { refuseInaccessibleFiles } from '../../data-folder-access.ts';
import { OperatorError } from '../../errors.ts';
import { isBusy, isDamage } from './database.ts';

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
  refuseInaccessibleFiles(folder);
  const file = join(folder, 'lock.db');
  const database = new DatabaseSync(file, { timeout: 0 });
  try {
    database.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if (isDamage(error)) throw new OperatorError(foreignLockText(file), { cause: error });
    if (!isBusy(error)) throw error;
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

/** For a file under the name of the lock that SQLite cannot read. */
export function foreignLockText(file: string): string {
  return `${resolve(file)} is not the file that Sluice made. It holds no data: with no server running, remove it, and a start makes it again.`;
}

function pidOf(folder: string): string {
  try {
    return ` (process ${readFileSync(join(folder, 'server.pid'), 'utf8').trim()})`;
  } catch {
    return '';
  }
}
