/**
 * Allows one backup of a data folder at a time, and keeps the segments of its log meanwhile: the backup copies the
 * store first, and needs the log from there on, however long that takes and however short the retention is. Like the
 * lock of the folder it is SQLite's lock on a file of its own, which ends with the process however that ends.
 */

import { closeSync, existsSync, openSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { OperatorError } from '../../../errors.ts';
import { ownLike } from '../../../backup/files.ts';
import { isBusy } from '../database.ts';
import { isFullDisk, isOutOfFiles } from '../disk.ts';
import { isLocked, lockFile } from '../folder-lock.ts';

const FILE = 'backup-lock.db';
/** A reader that checks for a backup takes a lock for a moment. */
const BUSY_MS = 1_000;

export interface BackupLock {
  release(): void;
}

/** Also works on a full disk, where a backup is needed most, as long as the disk can still create an empty file. */
export function lockForBackup(logFolder: string): BackupLock {
  const file = join(logFolder, FILE);
  const dataFolder = resolve(logFolder, '..');
  try {
    if (!existsSync(file)) {
      closeSync(openSync(file, 'a', 0o600));
      ownLike(file, logFolder);
    }
    return { release: lockFile(file, BUSY_MS, 'MEMORY') };
  } catch (error) {
    if (isBusy(error)) throw new OperatorError(`Another backup of ${dataFolder} is running. Wait until it has ended.`);
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
    return isLocked(join(logFolder, FILE));
  } catch (error) {
    // A file that cannot be opened now may be locked: segments stay a little longer.
    if (isOutOfFiles(error)) return true;
    throw error;
  }
}
