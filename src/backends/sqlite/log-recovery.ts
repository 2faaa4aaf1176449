/**
 * What a writer checks before it trusts a log that an earlier process left: where to go on, and that nothing
 * acknowledged is missing.
 *
 * SQLite ends a WAL silently at the first frame whose checksum is wrong. That is right for the one commit that a crash
 * cut short, and it hides damage in the middle. The two are told apart by counting: a crash leaves at most one commit
 * behind the valid end, because the writer starts a commit only after the last one is synced. More than one means that
 * acknowledged records can no longer be read, and the start is refused.
 */

import { closeSync, existsSync, openSync, readSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { LogCorruptError } from '../../log.ts';
import { lastPosition, openSegmentForReading } from './log-segments.ts';

export interface RecoveredSegment {
  /** undefined when the segment is empty. */
  readonly lastPosition: number | undefined;
  /** A WAL is still beside the database file. */
  readonly needsSealing: boolean;
}

/** Throws `LogCorruptError` with words for an operator. */
export function recoverSegment(file: string): RecoveredSegment {
  const hasWal = existsSync(`${file}-wal`);
  try {
    const database = openSegmentForReading(file);
    try {
      const verdict = database.prepare('PRAGMA quick_check(1)').get() as { quick_check: string };
      if (verdict.quick_check !== 'ok') throw new Error(verdict.quick_check);
      const last = lastPosition(database);
      if (hasWal) assertWalIsWhole(file, validFrames(database));
      return { lastPosition: last, needsSealing: hasWal };
    } finally {
      database.close();
    }
  } catch (error) {
    if (isUnfinished(error)) {
      if (hasWal) assertWalIsWhole(file, 0);
      return { lastPosition: undefined, needsSealing: false };
    }
    const reason = error instanceof Error ? error.message : String(error);
    throw new LogCorruptError(
      `The log segment ${file} is damaged: ${reason}. Restore it from a backup, or move it (with its -wal and -shm files) out of the folder to start without the records in it.`,
    );
  }
}

/** A start that was cut short leaves a segment without its table: nothing was ever acknowledged from it. */
function isUnfinished(error: unknown): boolean {
  return error instanceof Error && /no such table: records/.test(error.message);
}

function validFrames(database: DatabaseSync): number {
  const row = database.prepare('PRAGMA wal_checkpoint(NOOP)').get() as { log: number };
  return Math.max(row.log, 0);
}

const WAL_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;

/** The WAL's layout: https://sqlite.org/fileformat2.html#walformat. All numbers are big-endian. */
function assertWalIsWhole(file: string, framesValid: number): void {
  const descriptor = openSync(`${file}-wal`, 'r');
  try {
    const header = Buffer.alloc(WAL_HEADER_BYTES);
    if (readSync(descriptor, header, 0, WAL_HEADER_BYTES, 0) < WAL_HEADER_BYTES) return;
    const frameBytes = FRAME_HEADER_BYTES + header.readUInt32BE(8);
    const salts = header.subarray(16, 24);
    const frame = Buffer.alloc(FRAME_HEADER_BYTES);
    let commitsBehindTheEnd = 0;
    for (let index = framesValid; ; index += 1) {
      const at = WAL_HEADER_BYTES + index * frameBytes;
      if (readSync(descriptor, frame, 0, FRAME_HEADER_BYTES, at) < FRAME_HEADER_BYTES) break;
      const isCommit = frame.readUInt32BE(4) !== 0 && frame.subarray(8, 16).equals(salts);
      if (isCommit) commitsBehindTheEnd += 1;
    }
    if (commitsBehindTheEnd > 1) {
      throw new Error(`${commitsBehindTheEnd} commits lie behind a damaged part of its write-ahead log`);
    }
  } finally {
    closeSync(descriptor);
  }
}
