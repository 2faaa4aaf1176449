/**
 * What a writer checks before it trusts a log that an earlier process left: where to continue, and that nothing
 * acknowledged is missing.
 *
 * SQLite ends a WAL silently at the first frame with a wrong checksum. That is right for the one commit that a crash
 * interrupted, but it hides damage in the middle. The bytes after that frame distinguish the two: the writer starts a
 * commit only after the last one is synced, so a crash leaves at most one commit there, and bytes that were never
 * written are zero. Anything else means that acknowledged records are unreadable, and the start is refused.
 *
 * Limit: damage within the last two commits can look like an interrupted commit.
 */

import { closeSync, fstatSync, fsyncSync, openSync, readSync, statSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { damageIn } from '../database.ts';
import { cannotOpen, fullDiskText, isAccessDenied, isDiskError, isFullDisk } from '../disk.ts';
import { assertCurrentFormat, hasWal, lastPosition, openSegmentForReading, PAGE_BYTES } from './segments.ts';
import { messageOf } from '../../../errors.ts';

export interface RecoveredSegment {
  /** It contains no record. It may not even have its table: a start was interrupted, or its write-ahead log is gone. */
  readonly isEmpty: boolean;
  /** Records are still in the WAL beside the database file. */
  readonly needsCheckpoint: boolean;
}

/**
 * Throws `LogCorruptError`, or `LogUnavailableError` if the disk is too full to check; both with messages for an
 * operator.
 */
export function recoverSegment(file: string): RecoveredSegment {
  try {
    if (hasWal(file)) syncWal(file);
    return isUnfinished(file) ? { isEmpty: true, needsCheckpoint: false } : inspect(file);
  } catch (error) {
    if (error instanceof LogCorruptError) throw error;
    if (isFullDisk(error)) throw new LogUnavailableError(fullDiskText(file));
    const reason = messageOf(error);
    if (cannotOpen(error) || isAccessDenied(error)) throw new LogUnavailableError(cannotOpenText(file, reason));
    if (isDiskError(error)) throw new LogUnavailableError(diskErrorText(file, reason));
    throw new LogCorruptError(
      `The log segment ${file} is damaged: ${reason}. Restore it from a backup, or rename ${file} to ${file}.lost to start without the records in it.`,
    );
  }
}

function cannotOpenText(file: string, reason: string): string {
  return `The log segment ${file} cannot be opened (${reason}). Check that this user may read and write it and that few enough files are open (ulimit -n), then start again; nothing is lost.`;
}

function diskErrorText(file: string, reason: string): string {
  return `The disk failed to read the log segment ${file} (${reason}). Look at the disk (dmesg, smartctl) and do not remove or rename the file: it may be whole. Start again when the disk can be read; if it never can, restore a backup.`;
}

function inspect(file: string): RecoveredSegment {
  const withWal = hasWal(file);
  using database = openSegmentForReading(file);
  const [finding] = damageIn(database, 1);
  if (finding !== undefined) throw new Error(finding);
  if (withWal) assertWalIsWhole(file, validFrames(database));
  assertCurrentFormat(database, file);
  const isEmpty = lastPosition(database) === undefined;
  return { isEmpty, needsCheckpoint: withWal && !isEmpty };
}

/**
 * An interrupted start leaves a segment without its table: nothing was ever acknowledged from it. The table is the
 * first thing in the WAL; once it is checkpointed, the database file has more than one page.
 */
function isUnfinished(file: string): boolean {
  if (statSync(file).size > PAGE_BYTES) return false;
  if (!hasWal(file)) return true;
  {
    using database = openSegmentForReading(file);
    if (validFrames(database) > 0) return false;
  }
  assertWalIsWhole(file, 0);
  return true;
}

/**
 * A killed process may leave a commit that is in the WAL but not on the disk yet. Readers are about to see it, and
 * positions continue after it, so it must not vanish in a power loss that follows.
 */
function syncWal(file: string): void {
  const descriptor = openSync(`${file}-wal`, 'r+');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function validFrames(database: DatabaseSync): number {
  // The first read loads the WAL, not opening the file.
  database.prepare('SELECT count(*) FROM sqlite_schema').get();
  const row = database.prepare('PRAGMA wal_checkpoint(NOOP)').get() as { log: number };
  return Math.max(row.log, 0);
}

const WAL_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;

/** The WAL format: https://sqlite.org/fileformat2.html#walformat. All numbers are big-endian. */
function assertWalIsWhole(file: string, framesValid: number): void {
  const descriptor = openSync(`${file}-wal`, 'r');
  try {
    const header = Buffer.alloc(WAL_HEADER_BYTES);
    // SQLite syncs the header before it writes anything after it.
    if (fstatSync(descriptor).size <= WAL_HEADER_BYTES) return;
    readSync(descriptor, header, 0, WAL_HEADER_BYTES, 0);
    if (!isWalHeader(header)) throw new Error('the head of its write-ahead log is not what was written');
    const frameBytes = FRAME_HEADER_BYTES + header.readUInt32BE(8);
    const salts = header.subarray(16, 24);
    const frame = Buffer.alloc(FRAME_HEADER_BYTES);
    let commitsBehindTheEnd = 0;
    let damagedHeads = 0;
    let damagedHeadsInside = 0;
    for (let index = framesValid; ; index += 1) {
      const at = WAL_HEADER_BYTES + index * frameBytes;
      if (readSync(descriptor, frame, 0, FRAME_HEADER_BYTES, at) < FRAME_HEADER_BYTES) break;
      const saltsFound = frame.subarray(8, 16);
      if (saltsFound.equals(salts)) {
        if (frame.readUInt32BE(4) !== 0) commitsBehindTheEnd += 1;
        damagedHeadsInside = damagedHeads;
      } else if (!isPartlyWritten(saltsFound, salts)) {
        damagedHeads += 1;
      }
    }
    if (commitsBehindTheEnd > 1 || damagedHeadsInside > 0) {
      throw new Error(`commits (${commitsBehindTheEnd} or more) follow a damaged part of its write-ahead log`);
    }
  } finally {
    closeSync(descriptor);
  }
}

/** Each byte is the expected one, or zero because it was never written. */
function isPartlyWritten(found: Buffer, expected: Buffer): boolean {
  return found.every((byte, index) => byte === 0 || byte === expected[index]);
}

const WAL_MAGIC = 0x377f0682;

/** The last bit of the magic number is the byte order of the checksum. */
function isWalHeader(header: Buffer): boolean {
  const magic = header.readUInt32BE(0);
  if ((magic & ~1) >>> 0 !== WAL_MAGIC) return false;
  let first = 0;
  let second = 0;
  for (let at = 0; at < 24; at += 8) {
    const [even, odd] = [at, at + 4].map((word) => (magic & 1 ? header.readUInt32BE(word) : header.readUInt32LE(word)));
    first = (first + (even ?? 0) + second) >>> 0;
    second = (second + (odd ?? 0) + first) >>> 0;
  }
  return header.readUInt32BE(24) === first && header.readUInt32BE(28) === second;
}
