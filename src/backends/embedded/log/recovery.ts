/**
 * What a start checks before it trusts the log that an earlier process left. `sluice doctor` and backups check the same.
 *
 * The newest segment: where it ends, and that nothing acknowledged is missing from it. The writer starts a commit only
 * after the previous one is synced. So what a crash leaves after the last intact record is part of one commit. It is cut
 * off; intact records before it stay, acknowledged or not. But it is damage, and the start is refused, if a record of a
 * later commit follows, or if `log-ends` says that it was acknowledged. After a failed sync the page cache may hold bytes
 * that the disk does not, and the next sync would succeed without writing them. So the last commit is written again, in
 * place, before it is synced. Limit: without `log-ends`, damage in the last commit looks like an interrupted one.
 *
 * The end of the log: the segments are compared with `log-ends` (`./ends.ts`) and with the store, which may know more. A
 * start notes what is missing. If `log-ends` of a used log is unreadable, or older than the segments, the loss of
 * acknowledged requests goes unnoticed, unless the store has processed later ones: the next start reports that once, and
 * records the end that it finds. The very first start writes `log-ends` before anything outside the log shows that a
 * server has started: if a server has run and the file is gone, it was lost.
 *
 * Markers of missing records: a start leaves them where records are gone, at the end or between two segments. If an
 * operator has put back the segment that has the records, the next start removes the marker.
 */

import { closeSync, existsSync, fdatasyncSync, fstatSync, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { messageOf } from '../../../errors.ts';
import { LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { type MissingRecords, missingRecordsText, type ProcessedRecord } from '../../../log/continuity.ts';
import { cannotOpen, fullDiskText, isAccessDenied, isDiskError, isFullDisk } from '../disk.ts';
import { findDurableEnd, LogEnds, NO_SEGMENT, readAcknowledgedEnd, readLogEnds } from './ends.ts';
import { findLogName, localLogName } from './name.ts';
import {
  type DurableEnd,
  diskErrorText,
  endOfSegment,
  findEnd,
  isGapMarker,
  isUnfinished,
  newestBefore,
  rangesOf,
  SegmentCache,
  type SegmentRange,
  SegmentReader,
  UNBOUNDED,
  UnreadableSegmentError,
} from './segment-reader.ts';
import {
  assertWrittenHere,
  damagedText,
  holdsRecords,
  listMarkers,
  listReadable,
  listSegments,
  LOST_POSITIONS,
  makeMarker,
  type Marker,
  removeSegment,
  type Segment,
  segmentFile,
  type SegmentHeader,
} from './segments.ts';
import { noteLogWarning } from './warnings.ts';

interface RecoveredLog {
  /** The next position. */
  readonly end: number;
  readonly missing: MissingRecords | null;
  /** The newest segment with records. */
  readonly previous: SegmentHeader['previous'];
}

/**
 * For a start that holds the lock of the folder, before it writes. Repairs the newest segment, marks missing records, and
 * finds where to continue. `processed` as for `missingAtEnd`.
 */
export function recoverLog(folder: string, processed: number): RecoveredLog {
  let newest: RecoveredSegment | undefined;
  for (const range of rangesAtRest(folder)) {
    if (isGapMarker(range)) continue;
    // The others are complete, by their size; their records have checksums and are checked when they are read.
    if (range.until === undefined) newest = recoverSegment(range.segment);
    else markGap(folder, range, range.until);
  }
  const end = newest?.end ?? endOfSegments(folder);
  const last = newest?.last ?? endOfRecords(folder);
  const previous = last === undefined ? null : { ...last.segment, bytes: last.bytes };
  const missing = missingAtEnd(folder, processed, end);
  if (missing !== null) markMissingAtEnd(folder, missing);
  return { end: missing?.to ?? end, missing, previous };
}

/**
 * Marks missing records between the end of a segment and the beginning of the next one. A marker replaces an empty
 * segment. Unreadable segments are reported by readers.
 */
function markGap(folder: string, range: SegmentRange, until: number): void {
  const { segment, next } = range;
  // Both were processed, and so was what is missing between them.
  if (segment.isCompressed && next?.isCompressed === true) return;
  try {
    const end = endOfSegment(range);
    if (end >= until) return;
    if (end === segment.firstPosition) removeSegment(segment.file);
    makeMarker(folder, end, 'missing');
  } catch (error) {
    if (!(error instanceof UnreadableSegmentError)) throw error;
  }
}

/** Marks the missing records that the store has not processed. */
function markMissingAtEnd(folder: string, missing: MissingRecords): void {
  const { from, to, processed, doubt } = missing;
  // Before anything changes: afterwards the log seems to be complete.
  if (doubt !== null) noteLogWarning(folder, missingRecordsText(missing));
  // An empty segment, in the place of the marker.
  removeSegment(segmentFile(folder, from));
  // Without a segment the beginning of the log is unknown: retention removes processed records.
  const position = listSegments(folder).length > 0 ? from : Math.max(from, processed);
  if (position < to) makeMarker(folder, position, 'missing');
}

interface RecoveredSegment {
  /** The position after its last record. */
  readonly end: number;
  /** Its size up to there. */
  readonly bytes: number;
  /** Where its last commit begins; undefined if it contains no record. */
  readonly lastCommitAt: number | undefined;
  /** The end of its records; undefined if it contains none. */
  readonly last: DurableEnd | undefined;
}

/** A multiple of any page size: a page must be written as a whole. */
const PAGE_BYTES = 65_536;
const COPY_BYTES = 1024 * 1024;

/**
 * Checks the segment, and repairs it: truncates it after the last intact record, and syncs it. Throws `LogCorruptError`,
 * or `LogUnavailableError` if the disk does not let it; both with messages for an operator.
 */
export function recoverSegment(segment: Segment): RecoveredSegment {
  return withOperatorMessage(segment, () => {
    const recovered = inspect(segment);
    const { lastCommitAt, bytes } = recovered;
    // Only complete segments are compressed.
    if (lastCommitAt !== undefined && !segment.isCompressed) writeAgain(segment.file, lastCommitAt, bytes);
    return recovered;
  });
}

/** The same without repairs. */
export function inspectSegment(segment: Segment): RecoveredSegment {
  return withOperatorMessage(segment, () => inspect(segment));
}

function withOperatorMessage<T>({ file }: Segment, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof LogCorruptError) throw error;
    if (isFullDisk(error)) throw new LogUnavailableError(fullDiskText(file));
    const reason = messageOf(error);
    if (isAccessDenied(error) || cannotOpen(error)) {
      throw new LogUnavailableError(
        `The log segment ${file} cannot be opened (${reason}). Check that this user may read and write it, and the limit of open files (ulimit -n), then start again; nothing is lost.`,
      );
    }
    if (isDiskError(error)) throw new LogUnavailableError(diskErrorText(file, reason));
    throw error;
  }
}

function inspect(segment: Segment): RecoveredSegment {
  const { file, firstPosition } = segment;
  const folder = dirname(file);
  if (isUnfinished(file)) return { end: firstPosition, bytes: 0, lastCommitAt: undefined, last: undefined };
  using open = new SegmentReader(segment, new SegmentCache());
  assertWrittenHere(segment, findLogName(folder), open.header);
  let { position: end, offset: bytes } = open.start;
  let lastCommit: number | undefined;
  let lastCommitAt: number | undefined;
  for (const found of open.scan(open.start, COPY_BYTES)) {
    const decoded = open.decodeIntact(found);
    if (decoded === undefined) break;
    const { commit, header } = decoded;
    if (header.position !== end) throw damaged(segment, `it has no position ${end}, where ${header.position} is next`);
    if (commit !== lastCommit) lastCommitAt = found.offset;
    lastCommit = commit;
    end += 1;
    bytes = found.end;
  }
  const acknowledged = findDurableEnd(folder);
  const isNamed = acknowledged?.segment.id === open.header.id && acknowledged.bytes <= open.size;
  if (isNamed && acknowledged.bytes > bytes) throw damaged(segment, `at position ${end}, which was acknowledged`);
  for (let at = bytes; ; ) {
    const found = open.nextIntact(at);
    if (found === undefined) break;
    if (found.commit > end) throw damaged(segment, `records follow a damaged part, at position ${end}`);
    at = found.end;
  }
  const last = lastCommitAt === undefined ? undefined : { position: end, segment: open.header, bytes };
  return { end, bytes, lastCommitAt, last };
}

function damaged(segment: Segment, what: string): LogCorruptError {
  return new LogCorruptError(damagedText(segment, what));
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

/** A marker of records that the log has again. */
interface OutdatedMarker {
  readonly marker: Marker;
  /** For an operator. */
  readonly message: string;
  /** Up to where the log has them. */
  readonly end: number;
  /** Up to where the marker stands for them; undefined if nothing follows it. */
  readonly until: number | undefined;
}

export function outdatedMarkers(folder: string): OutdatedMarker[] {
  const segments = listSegments(folder);
  return listMarkers(folder).flatMap((marker) => {
    const position = marker.firstPosition;
    const segment = segments.findLast((one) => holdsRecords(one) && one.firstPosition <= position);
    const end = (segment && findEnd(segment)?.position) ?? 0;
    if (segment === undefined || end <= position) return [];
    const message = `the log has the records from position ${position} on again, in ${basename(segment.file)}, so ${basename(marker.file)} no longer applies`;
    const until = segments.find(({ firstPosition }) => firstPosition > position)?.firstPosition;
    return [{ marker, message, end, until }];
  });
}

/** For a start. Of records that are still gone, the marker stays. Returns messages for the operator. */
export function removeOutdatedMarkers(folder: string): string[] {
  return outdatedMarkers(folder).map(({ marker, message, end, until }) => {
    if (until !== undefined && end < until) makeMarker(folder, end, marker.state);
    removeSegment(marker.file);
    return `${message} and was removed`;
  });
}

/** The position after the last one covered by segments, and by markers of missing records. */
export function endOfSegments(folder: string): number {
  const newest = listSegments(folder).at(-1);
  if (newest === undefined) return 1;
  if (newest.state === 'lost') return endOfLost(folder, newest);
  return (holdsRecords(newest) ? findEnd(newest)?.position : undefined) ?? newest.firstPosition;
}

/** Of the newest segment, which was given up. Without an acknowledged end in it, it is unknown how many records it had. */
function endOfLost(folder: string, { firstPosition }: Segment): number {
  const acknowledged = readAcknowledgedEnd(folder);
  const unknown = firstPosition + LOST_POSITIONS;
  return acknowledged > firstPosition && acknowledged < unknown ? acknowledged : unknown;
}

/**
 * What a log whose segments end at `end` has lost after it; null if nothing, as far as can be known. `processed` is the
 * position up to which the store has processed the log, 0 without a store.
 */
export function missingAtEnd(
  folder: string,
  processed: number,
  end: number = endOfSegments(folder),
): MissingRecords | null {
  const acknowledged = readAcknowledgedEnd(folder);
  const to = Math.max(processed, acknowledged);
  if (to <= end) return null;
  return { from: end, to, processed, doubt: doubtOf(folder, acknowledged === to) };
}

/** The segments reveal an outdated `log-ends`. Without segments, it may match the store by chance. */
function doubtOf(folder: string, isInLogEnds: boolean): string | null {
  if (!isInLogEnds) return 'log-ends is missing or older';
  return listSegments(folder).length > 0 ? null : 'no segment is left that log-ends can be compared with';
}

/** A removed log leaves its `log-ends` behind. */
export function hasEverExisted(folder: string): boolean {
  return existsSync(folder) || readLogEnds(folder) !== undefined;
}

/**
 * Whether `log-ends` of a used log is missing, or older than the segments. `wasUsedByServer`: files outside of the log
 * show that a server was started on it.
 */
export function isEndUnknown(folder: string, processed = 0, wasUsedByServer = false): boolean {
  const line = readLogEnds(folder);
  const end = endOfRecords(folder);
  if (line !== undefined) return end !== undefined && end.position > line.next;
  if (end !== undefined || processed > 0 || wasUsedByServer) return true;
  return listSegments(folder).some(({ firstPosition, state }) => firstPosition > 1 || state === 'lost');
}

/** With the end that the segments have. For a server that holds the lock, before it writes, and for a restore. */
export function rewriteLogEnds(folder: string): void {
  const newest = listSegments(folder).at(-1);
  // Of one that was given up, or a marker, the end is not known.
  if (newest !== undefined && !holdsRecords(newest)) return;
  const first = newest?.firstPosition ?? 1;
  const found = endOfRecords(folder);
  // Every start leaves a segment, which may be empty, and which the next start replaces: it is not named.
  const isNewestEmpty = found === undefined || found.position < first;
  const end = isNewestEmpty ? { position: first, segment: NO_SEGMENT, bytes: 0 } : found;
  const ends = new LogEnds(folder, localLogName(folder), end.position);
  ends.afterCommit(end);
  ends.close();
}

/** For a log that was never served, as far as the files next to it show: from then on its loss is noticed. */
export function createLogEnds(folder: string): void {
  if (readLogEnds(folder) === undefined && !isEndUnknown(folder)) rewriteLogEnds(folder);
}

/** The message of a start and of `sluice doctor` about an uncertain end of the log. */
export function unknownEndText(folder: string): string {
  if (listSegments(folder).length === 0) {
    return (
      'a server has run on this data folder before, and the log is gone, with log-ends: whether requests were acknowledged ' +
      'that are not processed is not known'
    );
  }
  return (
    'log-ends is missing, cannot be read or is older than the log: whether requests were acknowledged beyond the newest ' +
    'record that the log has now is not known. After a power loss an older one is normal'
  );
}

/**
 * The newest record of the log below a position: a store that has processed everything below it must have it
 * (`log/continuity.ts`). Unreadable segments are skipped.
 */
export function newestRecordBefore(folder: string, position: number): ProcessedRecord | undefined {
  for (const range of rangesAtRest(folder).toReversed()) {
    if (isGapMarker(range) || range.segment.firstPosition >= position) continue;
    try {
      const newest = newestBefore(range, undefined, Math.min(position, range.until ?? position));
      if (newest !== undefined) return newest;
    } catch (error) {
      if (!(error instanceof LogCorruptError)) throw error;
    }
  }
  return undefined;
}

/** For a folder that no server writes to. */
function rangesAtRest(folder: string): SegmentRange[] {
  return rangesOf(listSegments(folder), { logName: findLogName(folder), ...UNBOUNDED });
}

/** After the newest readable record. */
function endOfRecords(folder: string): DurableEnd | undefined {
  for (const segment of listReadable(folder).toReversed()) {
    const found = findEnd(segment);
    if (found !== undefined && found.position > segment.firstPosition) return found;
  }
  return undefined;
}
