/**
 * Allows one backup of a data folder at a time, and keeps the segments of its log meanwhile: the backup copies the
 * store first, and needs the log from there on, however long that takes and however short the retention is. Like the
 * lock of the folder it is SQLite's lock on a file of its own, which ends with the process however that ends.
 */

import { closeSync, existsSync, openSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { OperatorError } from '../../../errors.ts';
import { ownLike } from '../../../backup/files.ts';
import { isBusy } from '../database.ts';
import { isFullDisk, isOutOfFiles } from '../disk.ts';

const FILE = 'backup-lock.db';
/** A reader that checks for a backup takes a lock for a moment. */
const BUSY_MS = 1_000;

export interface BackupLock {
  release(): void;
}

/** Also works on a full disk, where a backup is needed most, as long as the disk can still create an empty file. */
export function lockForBackup(logFolder: string): BackupLock {
  try {
    return lock(logFolder);
  } catch (error) {
    if (!isFullDisk(error)) throw error;
    throw new OperatorError(
      `The disk of ${resolve(logFolder, '..')} is full, so that the backup cannot lock the data folder. Free a few kilobytes there; then run it again.`,
      { cause: error },
    );
  }
}

function lock(logFolder: string): BackupLock {
  const file = join(logFolder, FILE);
  if (!existsSync(file)) {
    closeSync(openSync(file, 'a', 0o600));
    ownLike(file, logFolder);
  }
  const database = new DatabaseSync(file, { timeout: BUSY_MS });
  try {
    // Nothing is ever written to it, and a journal would take space.
    database.exec('PRAGMA journal_mode = MEMORY; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if (!isBusy(error)) throw error;
    throw new OperatorError(`Another backup of ${resolve(logFolder, '..')} is running. Wait until it has ended.`);
  }
  return {
    release: () => {
      database.exec('ROLLBACK');
      database.close();
    },
  };
}

/** For the reader that is about to remove a segment. */
export function isBackupRunning(logFolder: string): boolean {
  const file = join(logFolder, FILE);
  if (!existsSync(file)) return false;
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(file, { readOnly: true, timeout: 0 });
    // Any read takes a shared lock for a moment, which the exclusive one of a backup prevents.
    database.prepare('SELECT count(*) FROM sqlite_schema').get();
    return false;
  } catch (error) {
    // A file that cannot be opened now may be locked: segments stay a little longer.
    if (isBusy(error) || isOutOfFiles(error)) return true;
    throw error;
  } finally {
    database?.close();
  }
}
