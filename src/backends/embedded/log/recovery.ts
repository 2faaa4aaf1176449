/**
 * What a writer checks before it trusts the newest segment that an earlier process left: where it ends, and that nothing
 * acknowledged is missing from it.
 *
 * The writer starts a commit only after the last one is synced. So what a crash leaves behind the last intact record is
 * part of one commit, and it is cut off. It is damage, and the start is refused, if a record behind it was written in a
 * later commit, or if `log-ends` says that it was acknowledged. A segment that was cut short is not refused: the start
 * notes what is missing.
 *
 * After a failed sync the page cache may hold bytes that the disk does not, and the next sync would succeed without
 * writing them. So the last commit is written again, in place, before it is synced.
 *
 * Limit: without `log-ends`, damage in the last commit looks like an interrupted one.
 */

import { closeSync, fdatasyncSync, fstatSync, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';
import { messageOf } from '../../../errors.ts';
import { LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { cannotOpen, fullDiskText, isAccessDenied, isDiskError, isFullDisk } from '../disk.ts';
import { headerIn } from './frames.ts';
import { type DurableEnd, isUnfinished, OpenSegment, SegmentCache } from './segment-reader.ts';
import { assertWrittenHere, type HeaderValues, type Segment } from './segments.ts';

export interface RecoveredSegment {
  /** The position after its last record. */
  readonly end: number;
  /** Its size without an interrupted commit. */
  readonly bytes: number;
  /** Where its last commit begins; undefined if it contains no record. It may not even say which segment it is. */
  readonly lastCommitAt: number | undefined;
  /** When its newest record was received; 0 without any. */
  readonly newestReceivedAt: number;
}

/** What is known of the log besides its segments (`knownOf` in `log/name-and-end.ts`). */
export interface KnownOfLog {
  readonly logName: string | undefined;
  readonly acknowledged: DurableEnd | undefined;
}

/** A page of the cache, or a multiple of it. */
const PAGE_BYTES = 65_536;
const COPY_BYTES = 1024 * 1024;

/**
 * Checks the segment, and repairs it: cuts off an interrupted commit, and syncs the rest. Throws `LogCorruptError`, or
 * `LogUnavailableError` if the disk does not let it; both with messages for an operator.
 */
export function recoverSegment(segment: Segment, known: KnownOfLog): RecoveredSegment {
  return inWords(segment.file, () => {
    const recovered = inspect(segment, known);
    if (recovered.lastCommitAt !== undefined) writeAgain(segment.file, recovered.lastCommitAt, recovered.bytes);
    return recovered;
  });
}

/** The same without repairs. */
export function inspectSegment(segment: Segment, known: KnownOfLog): RecoveredSegment {
  return inWords(segment.file, () => inspect(segment, known));
}

function inWords<T>(file: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof LogCorruptError) throw error;
    if (isFullDisk(error)) throw new LogUnavailableError(fullDiskText(file));
    const reason = messageOf(error);
    if (cannotOpen(error) || isAccessDenied(error)) throw new LogUnavailableError(cannotOpenText(file, reason));
    if (isDiskError(error)) throw new LogUnavailableError(diskErrorText(file, reason));
    throw error;
  }
}

function cannotOpenText(file: string, reason: string): string {
  return `The log segment ${file} cannot be opened (${reason}). Check that this user may read and write it and that few enough files are open (ulimit -n), then start again; nothing is lost.`;
}

function diskErrorText(file: string, reason: string): string {
  return `The disk failed to read the log segment ${file} (${reason}). Look at the disk (dmesg, smartctl) and do not remove or rename the file: it may be whole. Start again when the disk can be read; if it never can, restore a backup.`;
}

function inspect(segment: Segment, { logName, acknowledged }: KnownOfLog): RecoveredSegment {
  const { file, firstPosition } = segment;
  if (isUnfinished(file)) return { end: firstPosition, bytes: 0, lastCommitAt: undefined, newestReceivedAt: 0 };
  using open = new OpenSegment(segment, new SegmentCache());
  assertWrittenHere(segment, logName, open.identity);
  let end = firstPosition;
  let bytes: number | undefined;
  let last: HeaderValues | undefined;
  let lastCommitAt: number | undefined;
  for (const found of open.recordsFrom(firstPosition, COPY_BYTES)) {
    if (!open.isIntact(found)) break;
    const header = headerIn(found.bytes, found.frame) as HeaderValues;
    if (header[0] !== end) throw damagedError(file, `it has no position ${end}, where ${header[0]} is next`);
    if (header[1] !== last?.[1]) lastCommitAt = found.offset;
    last = header;
    end += 1;
    bytes = found.end;
  }
  const validTo = bytes ?? open.firstOffset;
  const isNamed = acknowledged?.segment.id === open.identity.id && acknowledged.bytes <= open.size;
  if (isNamed && acknowledged.bytes > validTo) throw damagedError(file, `at position ${end}, which was acknowledged`);
  for (let at = validTo; ; ) {
    const found = open.nextIntact(at);
    if (found === undefined) break;
    if (found.commit > end) throw damagedError(file, `records follow a damaged part, at position ${end}`);
    at = found.end;
  }
  return { end, bytes: validTo, lastCommitAt, newestReceivedAt: last?.[4] ?? 0 };
}

function damagedError(file: string, what: string): LogCorruptError {
  return new LogCorruptError(
    `The log segment ${file} is damaged: ${what}. Restore it from a backup, or rename ${file} to ${file}.lost to start without the records in it.`,
  );
}

/** The bytes from `from` up to `to`, which are the end of the file from then on. */
function writeAgain(file: string, from: number, to: number): void {
  const descriptor = openSync(file, 'r+');
  try {
    for (let at = from - (from % PAGE_BYTES); at < to; at += COPY_BYTES) {
      const bytes = Buffer.alloc(Math.min(COPY_BYTES, to - at));
      const length = readSync(descriptor, bytes, 0, bytes.length, at);
      for (let done = 0; done < length; ) done += writeSync(descriptor, bytes, done, length - done, at + done);
    }
    if (fstatSync(descriptor).size > to) ftruncateSync(descriptor, to);
    fdatasyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
