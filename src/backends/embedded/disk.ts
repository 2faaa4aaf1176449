/**
 * Distinguishes a full disk, which recovers, from a failing one, which does not.
 */

import { rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isTooManyOpenFiles } from '../../runtime/open-files.ts';
import { SQLITE, sqliteCodeOf } from '../../runtime/sqlite-errors.ts';

const PROBE_BYTES = 1024 * 1024;

/** Extended codes. The index of a WAL is a file too; a full disk shows there under these names. */
const SQLITE_IOERR_SHMOPEN = 4618;
const SQLITE_IOERR_SHMSIZE = 4874;

export function isFullDisk(error: unknown): boolean {
  const { errcode, code } = error as { errcode?: number; code?: string };
  if (code === 'ENOSPC' || code === 'EDQUOT') return true;
  return sqliteCodeOf(error) === SQLITE.full || errcode === SQLITE_IOERR_SHMSIZE || errcode === SQLITE_IOERR_SHMOPEN;
}

/** For a server that cannot start, or a command that cannot run. */
export function fullDiskText(place: string): string {
  return `The disk that holds ${resolve(place)} is full. Free some space, then try again; nothing is lost.`;
}

/** Too many open files, or no permission: SQLite does not say which. */
export function cannotOpen(error: unknown): boolean {
  return sqliteCodeOf(error) === SQLITE.cantopen || isTooManyOpenFiles(error);
}

const ACCESS_CODES: ReadonlySet<string> = new Set(['EACCES', 'EPERM', 'EROFS', 'EISDIR', 'ENOTDIR', 'ELOOP']);

/** No permission to read or write the file: that says nothing about its content. */
export function isAccessDenied(error: unknown): boolean {
  const { code = '' } = error as { code?: string };
  const sqliteCode = sqliteCodeOf(error);
  return ACCESS_CODES.has(code) || sqliteCode === SQLITE.perm || sqliteCode === SQLITE.readonly;
}

/** The disk failed to read or write: its content is unknown, which is not the same as damaged. */
export function isDiskError(error: unknown): boolean {
  return (error as { code?: string }).code === 'EIO' || sqliteCodeOf(error) === SQLITE.ioerr;
}

/** Whether it may work later, without a change to the file: no space, no inodes, too many open files. */
export function mayPassByItself(error: unknown): boolean {
  return isFullDisk(error) || cannotOpen(error);
}

/** Whether a megabyte can be written and synced now. */
export function canWrite(folder: string): boolean {
  const file = join(folder, 'probe.tmp');
  try {
    // Checked first, so that repeated probing does not take the last space from others.
    const { bavail, bsize } = statfsSync(folder);
    if (bavail * bsize < PROBE_BYTES) return false;
    writeFileSync(file, Buffer.alloc(PROBE_BYTES), { flush: true });
    return true;
  } catch {
    return false;
  } finally {
    rmSync(file, { force: true });
  }
}
