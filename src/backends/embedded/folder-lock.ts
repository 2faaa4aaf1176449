/**
 * One server per data folder, and one backup of it at a time. A lock is SQLite's lock on a file of its own: the operating
 * system releases it however the process ends, kill -9 included, so there is no stale lock to clean up. Writers notice if
 * the file of the server's lock is removed nevertheless (`data-folder/held-lock.ts`).
 */

import { closeSync, constants, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { deniedBy, refuseInaccessibleFiles } from '../../data-folder/access.ts';
import { OperatorError } from '../../errors.ts';
import { ownLike } from '../../data-folder/files.ts';
import { identityOf } from '../../data-folder/file-identity.ts';
import type { HeldLock } from '../../data-folder/held-lock.ts';
import { isBusy, isDamage } from './database.ts';
import { fullDiskText, isFullDisk, mayPassByItself } from './disk.ts';

const BACKUP_LOCK = 'backup-lock.db';
/** A reader that checks for a backup takes a lock for a moment. */
const BACKUP_WAIT_MS = 1_000;

export interface Lock {
  release(): void;
}

export type FolderLock = HeldLock & Lock;

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
  let release: () => void;
  try {
    release = lockFile(file, 0, 'DELETE');
  } catch (error) {
    if (isDamage(error)) throw new OperatorError(foreignLockText(file), { cause: error });
    if (isFullDisk(error)) throw new OperatorError(fullDiskText(folder), { cause: error });
    if (!isBusy(error)) throw error;
    const pid = pidIn(folder);
    const holder = pid === null ? '' : ` (process ${pid})`;
    throw new OperatorError(
      `The data folder ${resolve(folder)} is in use by another Sluice server${holder}. Stop that one first, or give this one a folder of its own with SLUICE_DATA or --data.`,
    );
  }
  if (identityOf(file) !== identity) {
    release();
    throw new OperatorError(`${resolve(file)} was removed or replaced during the start. Start again.`);
  }
  try {
    writeFileSync(join(folder, 'server.pid'), `${process.pid}\n`, { mode: 0o600 });
  } catch (error) {
    if (isFullDisk(error)) throw new OperatorError(fullDiskText(folder), { cause: error });
    throw new OperatorError(`The data folder ${resolve(folder)} cannot be written: ${(error as Error).message}.`);
  }
  return { file, identity, release };
}

/** The lock itself shows whether a server is running; the process id is the one that the last server wrote. */
export function lockHolderOf(folder: string): { isHeld: boolean; pid: number | null } {
  const file = join(folder, 'lock.db');
  try {
    return { isHeld: isLocked(file), pid: pidIn(folder) };
  } catch (error) {
    if (isDamage(error)) throw new OperatorError(foreignLockText(file), { cause: error });
    throw error;
  }
}

/**
 * Locks a file until the returned function is called, or the process ends. Throws SQLite's error if another connection
 * has it. Nothing is ever written to it; on a full disk a lock without a journal file works, and one with it fails.
 */
function lockFile(file: string, timeout: number, journal: 'DELETE' | 'MEMORY'): () => void {
  const database = new DatabaseSync(file, { timeout });
  try {
    database.exec(`PRAGMA journal_mode = ${journal}; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE`);
  } catch (error) {
    database.close();
    throw error;
  }
  return () => {
    database.exec('ROLLBACK');
    database.close();
  };
}

/** Any read takes a shared lock for a moment, which an exclusive one prevents. */
function isLocked(file: string): boolean {
  if (!existsSync(file)) return false;
  try {
    using database = new DatabaseSync(file, { readOnly: true, timeout: 0 });
    database.prepare('SELECT count(*) FROM sqlite_schema').get();
    return false;
  } catch (error) {
    if (isBusy(error)) return true;
    throw error;
  }
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
function foreignLockText(file: string): string {
  return `${resolve(file)} is not the file that Sluice made. It holds no data: with no server running, remove it, and a start makes it again.`;
}

function pidIn(folder: string): number | null {
  try {
    const pid = Number(readFileSync(join(folder, 'server.pid'), 'utf8').trim());
    return Number.isSafeInteger(pid) && pid > 0 ? pid : null;
  } catch {
    return null;
  }
}

/**
 * Allows one backup of a data folder at a time, and keeps the segments of its log meanwhile: the backup copies the
 * store first, and needs the log from there on, however long that takes and however short the retention is. Also works
 * on a full disk, where a backup is needed most, as long as the disk can still create an empty file.
 */
export function lockForBackup(logFolder: string): Lock {
  const file = join(logFolder, BACKUP_LOCK);
  const dataFolder = resolve(logFolder, '..');
  try {
    if (!existsSync(file)) {
      closeSync(openSync(file, 'a', 0o600));
      ownLike(file, logFolder);
    }
    return { release: lockFile(file, BACKUP_WAIT_MS, 'MEMORY') };
  } catch (error) {
    if (isBusy(error)) throw new OperatorError(`Another backup of ${dataFolder} is running. Wait until it has ended.`);
    if (deniedBy(logFolder, constants.W_OK) === 'EROFS') {
      throw new OperatorError(
        `The disk of ${dataFolder} is mounted read-only, so that the backup cannot lock the data folder. With no server running, copy the folder to another disk (cp -a), and back up the copy with --data.`,
        { cause: error },
      );
    }
    if (!isFullDisk(error)) throw error;
    throw new OperatorError(
      `The disk of ${dataFolder} is full, so that the backup cannot lock the data folder. Free a few kilobytes there; then run it again.`,
      { cause: error },
    );
  }
}

/** For the reader that is about to remove a segment. */
export function isBackupRunning(logFolder: string): boolean {
  try {
    return isLocked(join(logFolder, BACKUP_LOCK));
  } catch (error) {
    // A file that cannot be opened now may be locked: segments stay a little longer.
    if (mayPassByItself(error)) return true;
    throw error;
  }
}
