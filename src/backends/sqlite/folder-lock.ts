/**
 * One server per data folder. The lock is SQLite's lock on a file of its own: the operating system releases it however
 * the process ends, kill -9 included, so there is no stale lock to clean up. Writers notice if the file is removed
 * nevertheless (`data-folder/held-lock.ts`).
 */

import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { refuseInaccessibleFiles } from '../../data-folder/access.ts';
import { OperatorError } from '../../errors.ts';
import { identityOf } from '../../data-folder/file-identity.ts';
import type { HeldLock } from '../../data-folder/held-lock.ts';
import { isBusy, isDamage } from './database.ts';
import { fullDiskText, isFullDisk } from './disk.ts';

export interface FolderLock extends HeldLock {
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
  const identity = makeFile(file);
  const database = new DatabaseSync(file, { timeout: 0 });
  try {
    database.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if (isDamage(error)) throw new OperatorError(foreignLockText(file), { cause: error });
    if (isFullDisk(error)) throw new OperatorError(fullDiskText(folder), { cause: error });
    if (!isBusy(error)) throw error;
    const holder = pidOf(folder);
    throw new OperatorError(
      `The data folder ${resolve(folder)} is in use by another Sluice server${holder}. Stop that one first, or give this one a folder of its own with SLUICE_DATA or --data.`,
    );
  }
  if (identityOf(file) !== identity) {
    database.close();
    throw new OperatorError(`${resolve(file)} was removed or replaced during the start. Start again.`);
  }
  try {
    writeFileSync(join(folder, 'server.pid'), `${process.pid}\n`, { mode: 0o600 });
  } catch (error) {
    if (isFullDisk(error)) throw new OperatorError(fullDiskText(folder), { cause: error });
    throw new OperatorError(`The data folder ${resolve(folder)} cannot be written: ${(error as Error).message}.`);
  }
  return {
    file,
    identity,
    release: () => {
      database.exec('ROLLBACK');
      database.close();
    },
  };
}

/** Identity of the file before it is locked: SQLite does not expose which file it opened. */
function makeFile(file: string): string {
  try {
    // Only if it does not exist: closing a file releases every lock that the process has on it.
    if (identityOf(file) === '') closeSync(openSync(file, 'a', 0o600));
    return identityOf(file);
  } catch (error) {
    throw new OperatorError(`${resolve(file)} cannot be written: ${(error as Error).message}.`);
  }
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
