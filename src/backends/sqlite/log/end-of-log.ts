/**
 * Finds where the segments of a log end, and whether the log has lost records after that. `log-ends` and
 * the store may know more than the segments: if one of them is further, the newest records are lost.
 *
 * If `log-ends` of a used log is unreadable, or older than the segments, the loss of acknowledged requests goes
 * unnoticed, unless the store has processed later ones. The next start reports that once, and records the end that it
 * finds. The very first start writes `log-ends` before anything outside the log shows that a server has started: if a
 * server has run and the file is gone, it was lost.
 *
 * Used by a start and by `sluice doctor`; everything but `noteUnknownEnd` and `beginLogEnds` only reads. `processed` is
 * the position up to which the store has processed the log, 0 without a store.
 */

import { existsSync } from 'node:fs';
import type { MissingRecords } from '../../../log/continuity.ts';
import { LogEnds, NO_SEGMENT, readLogEnd, readLogEndNote } from './ends.ts';
import { localLogName } from './name.ts';
import { findIdentity, holdsRecords, listReadable, listSegments, LOST_POSITIONS, type SegmentId } from './segments.ts';

/** The position after the last one covered by segments, and by marks of missing records. */
export function endOfSegments(folder: string): number {
  const segments = listSegments(folder);
  let end = 1;
  for (const segment of segments) {
    // The number of records in it is uncertain, and positions are never used twice.
    if (segment.state === 'lost') end = segment.firstPosition + LOST_POSITIONS;
    else if (!holdsRecords(segment)) end = Math.max(end, segment.firstPosition);
    else if (segment === segments.at(-1))
      end = (findIdentity(segment.file)?.lastPosition ?? segment.firstPosition - 1) + 1;
  }
  return end;
}

/** What a log whose segments end at `end` has lost after it; null if nothing, as far as can be known. */
export function missingAtEnd(
  folder: string,
  processed: number,
  end: number = endOfSegments(folder),
): MissingRecords | null {
  const acknowledged = readLogEnd(folder);
  const to = Math.max(processed, acknowledged);
  if (to <= end) return null;
  return { from: end, to, processed, doubt: doubtOf(folder, acknowledged === to) };
}

/** The segments reveal an outdated `log-ends`. Without segments, it may match the store by chance. */
function doubtOf(folder: string, isNoted: boolean): string | null {
  if (!isNoted) return 'log-ends is missing or older';
  return listSegments(folder).length > 0 ? null : 'no segment is left that log-ends can be compared with';
}

/** A removed log leaves its end beside it. */
export function hasEverExisted(folder: string): boolean {
  return existsSync(folder) || readLogEndNote(folder) !== undefined;
}

/**
 * Whether a used log has no note of its end, or one that is older than its segments. `wasUsedByServer`: files outside of the
 * log show that a server was started on it.
 */
export function isEndUnknown(folder: string, processed = 0, wasUsedByServer = false): boolean {
  const note = readLogEndNote(folder);
  const last = findLastRecord(folder);
  if (note !== undefined) return last !== undefined && last.position + 1 > note.next;
  if (last !== undefined || processed > 0 || wasUsedByServer) return true;
  return listSegments(folder).some(({ firstPosition, state }) => firstPosition > 1 || state === 'lost');
}

/** Notes the end of the segments; for a server that holds the lock, before it writes, and for a restore. */
export function noteUnknownEnd(folder: string): void {
  const end = findEnd(folder);
  if (end === undefined) return;
  const ends = new LogEnds(folder, localLogName(folder), end.position);
  ends.write(end.position, end.segment);
  ends.close();
}

/** For a log that was never served, as far as the files beside it show: from then on its loss is noticed. */
export function beginLogEnds(folder: string): void {
  if (readLogEndNote(folder) !== undefined || isEndUnknown(folder)) return;
  new LogEnds(folder, localLogName(folder), endOfSegments(folder)).close();
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

interface LogEnd {
  readonly position: number;
  readonly segment: SegmentId;
}

/** Undefined if a segment at the end cannot be read: its readers report that. */
function findEnd(folder: string): LogEnd | undefined {
  const newest = listSegments(folder).at(-1);
  if (newest === undefined || !holdsRecords(newest) || findIdentity(newest.file) === undefined) return undefined;
  const last = findLastRecord(folder);
  // Every start leaves a segment, which may be empty, and which the next start replaces: it is not named.
  if (last === undefined || last.position < newest.firstPosition - 1)
    return { position: newest.firstPosition, segment: NO_SEGMENT };
  return { position: last.position + 1, segment: last.segment };
}

/** The newest readable record, and its segment. */
function findLastRecord(folder: string): LogEnd | undefined {
  for (const { file } of listReadable(folder).toReversed()) {
    const segment = findIdentity(file);
    if (segment?.lastPosition !== undefined) return { position: segment.lastPosition, segment };
  }
  return undefined;
}
