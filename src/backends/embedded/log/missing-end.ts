/**
 * Whether the log has lost acknowledged records at its end: its segments are compared with `log-ends` (`./ends.ts`) and
 * with the store, which may know more. Used by a start, by `sluice doctor` and by backups.
 *
 * If `log-ends` of a used log is unreadable, or older than the segments, the loss of acknowledged requests goes
 * unnoticed, unless the store has processed later ones. The next start reports that once, and records the end that it
 * finds. The very first start writes `log-ends` before anything outside the log shows that a server has started: if a
 * server has run and the file is gone, it was lost.
 */

import { existsSync } from 'node:fs';
import type { MissingRecords } from '../../../log/continuity.ts';
import { findDurableEnd, LogEnds, NO_SEGMENT, readAcknowledgedEnd, readLogEnds } from './ends.ts';
import { findLogName, localLogName } from './name.ts';
import type { LogFacts } from './recovery.ts';
import { type DurableEnd, findEnd } from './segment-reader.ts';
import { findSegmentHeader, holdsRecords, listReadable, listSegments, LOST_POSITIONS } from './segments.ts';

/** The position after the last one covered by segments, and by markers of missing records. */
export function endOfSegments(folder: string): number {
  const segments = listSegments(folder);
  let end = 1;
  for (const segment of segments) {
    // The number of records in it is uncertain, and positions are never used twice.
    if (segment.state === 'lost') end = segment.firstPosition + LOST_POSITIONS;
    else if (!holdsRecords(segment)) end = Math.max(end, segment.firstPosition);
    else if (segment === segments.at(-1)) end = findEnd(segment)?.position ?? segment.firstPosition;
  }
  return end;
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
  // Readers report a segment that cannot be read.
  if (newest === undefined || !holdsRecords(newest) || findSegmentHeader(newest) === undefined) return;
  const found = endOfRecords(folder);
  // Every start leaves a segment, which may be empty, and which the next start replaces: it is not named.
  const isNewestEmpty = found === undefined || found.position < newest.firstPosition;
  const end = isNewestEmpty ? { position: newest.firstPosition, segment: NO_SEGMENT, bytes: 0 } : found;
  const ends = new LogEnds(folder, localLogName(folder), end.position);
  ends.afterCommit(end);
  ends.close();
}

/** For a log that was never served, as far as the files next to it show: from then on its loss is noticed. */
export function createLogEnds(folder: string): void {
  if (readLogEnds(folder) !== undefined || isEndUnknown(folder)) return;
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

/** For `./recovery.ts`. */
export function readLogFacts(folder: string): LogFacts {
  return { logName: findLogName(folder), acknowledged: findDurableEnd(folder) };
}

/** After the newest readable record. */
function endOfRecords(folder: string): DurableEnd | undefined {
  for (const segment of listReadable(folder).toReversed()) {
    const found = findEnd(segment);
    if (found !== undefined && found.position > segment.firstPosition) return found;
  }
  return undefined;
}
