/**
 * What a writer checks before it trusts the newest segment that an earlier process left: where it ends, and that nothing
 * acknowledged is missing from it.
 *
 * The writer starts a commit only after the previous one is synced. So what a crash leaves after the last intact record
 * is part of one commit. It is cut off; intact records before it stay, acknowledged or not. But it is damage, and the
 * start is refused, if a record of a later commit follows, or if `log-ends` says that it was acknowledged. A segment that
 * was cut short is not refused: the start notes what is missing.
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
import {
  type DurableEnd,
  decodeIntact,
  diskErrorText,
  isUnfinished,
  SegmentCache,
  SegmentReader,
} from './segment-reader.ts';
import { assertWrittenHere, restoreOrGiveUp, type Segment, type SegmentHeader } from './segments.ts';

export interface RecoveredSegment {
  /** Undefined if its creation was interrupted. */
  readonly header: SegmentHeader | undefined;
  /** The position after its last record. */
  readonly end: number;
  /** Its size up to there. */
  readonly bytes: number;
  /** Where its last commit begins; undefined if it contains no record. */
  readonly lastCommitAt: number | undefined;
  /** When its newest record was received; 0 without any. */
  readonly newestReceivedAt: number;
}

/** What is known of the log from other files (`readLogFacts`). */
export interface LogFacts {
  readonly logName: string | undefined;
  readonly acknowledged: DurableEnd | undefined;
}

/** A multiple of any page size: a page must be written as a whole. */
const PAGE_BYTES = 65_536;
const COPY_BYTES = 1024 * 1024;

/**
 * Checks the segment, and repairs it: truncates it after the last intact record, and syncs it. Throws `LogCorruptError`,
 * or `LogUnavailableError` if the disk does not let it; both with messages for an operator.
 */
export function recoverSegment(segment: Segment, facts: LogFacts): RecoveredSegment {
  return withOperatorMessage(segment, () => {
    const recovered = inspect(segment, facts);
    const { lastCommitAt, bytes } = recovered;
    // Only complete segments are compressed.
    if (lastCommitAt !== undefined && !segment.isCompressed) writeAgain(segment.file, lastCommitAt, bytes);
    return recovered;
  });
}

/** The same without repairs. */
export function inspectSegment(segment: Segment, facts: LogFacts): RecoveredSegment {
  return withOperatorMessage(segment, () => inspect(segment, facts));
}

function withOperatorMessage<T>({ file }: Segment, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof LogCorruptError) throw error;
    if (isFullDisk(error)) throw new LogUnavailableError(fullDiskText(file));
    const reason = messageOf(error);
    if (isAccessDenied(error) || cannotOpen(error)) throw new LogUnavailableError(cannotOpenText(file, reason));
    if (isDiskError(error)) throw new LogUnavailableError(diskErrorText(file, reason));
    throw error;
  }
}

function cannotOpenText(file: string, reason: string): string {
  return `The log segment ${file} cannot be opened (${reason}). Check that this user may read and write it, and the limit of open files (ulimit -n), then start again; nothing is lost.`;
}

function inspect(segment: Segment, { logName, acknowledged }: LogFacts): RecoveredSegment {
  const { file, firstPosition } = segment;
  if (isUnfinished(file)) {
    return { header: undefined, end: firstPosition, bytes: 0, lastCommitAt: undefined, newestReceivedAt: 0 };
  }
  using open = new SegmentReader(segment, new SegmentCache());
  assertWrittenHere(segment, logName, open.header);
  let { position: end, offset: bytes } = open.start;
  let lastCommit: number | undefined;
  let lastCommitAt: number | undefined;
  let newestReceivedAt = 0;
  for (const found of open.scan(open.start, COPY_BYTES)) {
    const decoded = decodeIntact(open, found);
    if (decoded === undefined) break;
    const { commit, header } = decoded;
    if (header.position !== end) throw damaged(segment, `it has no position ${end}, where ${header.position} is next`);
    if (commit !== lastCommit) lastCommitAt = found.offset;
    lastCommit = commit;
    newestReceivedAt = Math.max(newestReceivedAt, header.receivedAt);
    end += 1;
    bytes = found.end;
  }
  const isNamed = acknowledged?.segment.id === open.header.id && acknowledged.bytes <= open.size;
  if (isNamed && acknowledged.bytes > bytes) throw damaged(segment, `at position ${end}, which was acknowledged`);
  for (let at = bytes; ; ) {
    const found = open.nextIntact(at);
    if (found === undefined) break;
    if (found.commit > end) throw damaged(segment, `records follow a damaged part, at position ${end}`);
    at = found.end;
  }
  return { header: open.header, end, bytes, lastCommitAt, newestReceivedAt };
}

function damaged(segment: Segment, what: string): LogCorruptError {
  return new LogCorruptError(`The log segment ${segment.file} is damaged: ${what}. ${restoreOrGiveUp(segment)}`);
}

/** The bytes from `from` up to `to`, where the file ends from then on. */
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
