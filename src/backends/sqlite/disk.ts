/**
 * Distinguishes a full disk, which recovers, from a failing one, which does not.
 */

import { closeSync, fsyncSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isTooManyOpenFiles } from '../../runtime/open-files.ts';

const PROBE_BYTES = 1024 * 1024;

const SQLITE_FULL = 13;
const SQLITE_CANTOPEN = 14;
/** The index of a WAL is a file too; a full disk shows there under these names. */
const SQLITE_IOERR_SHMOPEN = 4618;
const SQLITE_IOERR_SHMSIZE = 4874;

export function isFullDisk(error: unknown): boolean {
  const { errcode, code } = error as { errcode?: number; code?: string };
  if (code === 'ENOSPC' || code === 'EDQUOT') return true;
  return errcode === SQLITE_FULL || errcode === SQLITE_IOERR_SHMSIZE || errcode === SQLITE_IOERR_SHMOPEN;
}

/** For the start of a server. */
export function fullDiskText(place: string): string {
  return `The disk that holds ${resolve(place)} is full. Free some space, then start again; nothing is lost.`;
}

/** Too many open files, or no permission: SQLite does not say which. */
export function cannotOpen(error: unknown): boolean {
  const { errcode = 0 } = error as { errcode?: number };
  return (errcode & 0xff) === SQLITE_CANTOPEN || isTooManyOpenFiles(error);
}

const ACCESS_CODES: ReadonlySet<string> = new Set(['EACCES', 'EPERM', 'EROFS', 'EISDIR', 'ENOTDIR', 'ELOOP']);
const SQLITE_PERM = 3;
const SQLITE_READONLY = 8;
const SQLITE_IOERR = 10;

/** No permission to read or write the file: that says nothing about its content. */
export function isAccessDenied(error: unknown): boolean {
  const { errcode = 0, code = '' } = error as { errcode?: number; code?: string };
  return ACCESS_CODES.has(code) || (errcode & 0xff) === SQLITE_PERM || (errcode & 0xff) === SQLITE_READONLY;
}

/** The disk failed to read or write: its content is unknown, which is not the same as damaged. */
export function isDiskError(error: unknown): boolean {
  const { errcode = 0, code = '' } = error as { errcode?: number; code?: string };
  return code === 'EIO' || (errcode & 0xff) === SQLITE_IOERR;
}

/** Whether creating a file fails now, but perhaps not later: no space, no inodes, too many open files. */
export function isOutOfFiles(error: unknown): boolean {
  return isFullDisk(error) || cannotOpen(error);
}

/** Whether a megabyte can be written and synced now. */
export function canWrite(folder: string): boolean {
  const file = join(folder, 'probe.tmp');
  try {
    // Checked first, so that repeated probing does not take the last space from others.
    const { bavail, bsize } = statfsSync(folder);
    if (bavail * bsize < PROBE_BYTES) return false;
    const descriptor = openSync(file, 'w');
    try {
      if (writeSync(descriptor, Buffer.alloc(PROBE_BYTES)) < PROBE_BYTES) return false;
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
    return true;
  } catch {
    return false;
  } finally {
    rmSync(file, { force: true });
  }
}
