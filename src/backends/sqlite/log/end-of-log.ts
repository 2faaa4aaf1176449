/**
 * Finds where the segments of a log end, and whether the log has lost records after that. Other files may know more
 * than the segments: `log-ends`, the store, and `positions.db`. If one of them is further, the newest records are lost.
 *
 * If `log-ends` has no readable line for a used partition, or one that is older than the segments, the loss of
 * acknowledged requests goes unnoticed, unless the store has processed later ones. The next start reports that once,
 * and records the ends that it finds. The very first start writes the line of the first partition before anything
 * outside the log shows that a server has started: if a server has run and the line is gone, it was lost.
 *
 * Used by a start and by `sluice doctor`; everything but `noteUnknownEnds` and `beginLogEnds` only reads.
 */

import { existsSync } from 'node:fs';
import type { MissingRecords } from '../../../log/continuity.ts';
import { LogEnds, NO_SEGMENT, readLogEnd, readLogEndNote, readLogEnds, type SegmentId } from './ends.ts';
import { localLogName } from './name.ts';
import { findCommittedPosition } from './positions.ts';
import {
  findIdentity,
  findLastPosition,
  holdsRecords,
  listPartitions,
  listSegments,
  LOST_POSITIONS,
} from './segments.ts';

/** The position up to which a store has processed each partition. */
type StorePositions = ReadonlyMap<number, number>;

/** The position after the last one covered by segments, and by marks of missing records. */
export function endOfSegments(folder: string, partition: number): number {
  const segments = listSegments(folder, partition);
  let end = 1;
  for (const segment of segments) {
    // The number of records in it is uncertain, and positions are never used twice.
    if (segment.lost) end = segment.firstPosition + LOST_POSITIONS;
    else if (!holdsRecords(segment)) end = Math.max(end, segment.firstPosition);
    else if (segment === segments.at(-1)) end = (findLastPosition(segment.file) ?? segment.firstPosition - 1) + 1;
  }
  return end;
}

/** What a partition whose segments end at `end` has lost after it; null if nothing, as far as can be known. */
export function missingAtEnd(
  folder: string,
  partition: number,
  end: number,
  storePositions: StorePositions,
): MissingRecords | null {
  const processed = storePositions.get(partition) ?? 0;
  const acknowledged = readLogEnd(folder, partition);
  const to = Math.max(processed, findCommittedPosition(folder, partition), acknowledged);
  if (to <= end) return null;
  return { partition, from: end, to, processed, doubt: doubtOf(folder, partition, acknowledged === to) };
}

/** The segments reveal an outdated `log-ends`. Without segments, it may match the store by chance. */
function doubtOf(folder: string, partition: number, isNoted: boolean): string | null {
  if (!isNoted) return 'log-ends is missing or older';
  return listSegments(folder, partition).length > 0 ? null : 'no segment is left that log-ends can be compared with';
}

/** Of all partitions. For a folder without a running server. */
export function allMissingAtEnd(folder: string, storePositions: StorePositions): MissingRecords[] {
  return partitionsEverUsed(folder, storePositions)
    .map((partition) => missingAtEnd(folder, partition, endOfSegments(folder, partition), storePositions))
    .filter((missing) => missing !== null);
}

/** A removed log leaves its ends beside it. */
export function wasEverThere(folder: string): boolean {
  return existsSync(folder) || readLogEnds(folder).length > 0;
}

/** Partitions with a folder, and those that only the store or `log-ends` mentions. */
export function partitionsEverUsed(folder: string, storePositions: StorePositions): number[] {
  const noted = readLogEnds(folder).flatMap((end, partition) => (end > 0 ? [partition] : []));
  return [...new Set([...listPartitions(folder), ...storePositions.keys(), ...noted])].sort((a, b) => a - b);
}

/** Every server writes to it. */
const FIRST_PARTITION = 0;

/**
 * Used partitions whose end has no note, or one that is older than the segments. `wasUsedByServer`: files outside of the log
 * show that a server was started on it.
 */
export function partitionsWithoutEnd(
  folder: string,
  storePositions: StorePositions = new Map(),
  wasUsedByServer = false,
): number[] {
  const served = wasUsedByServer ? [FIRST_PARTITION] : [];
  return [...new Set([...served, ...partitionsEverUsed(folder, storePositions)])].filter((partition) => {
    const note = readLogEndNote(folder, partition);
    const last = findLastRecord(folder, partition);
    if (note !== undefined) return last !== undefined && last.position + 1 > note.next;
    if (last !== undefined || (storePositions.get(partition) ?? 0) > 0 || served.includes(partition)) return true;
    return listSegments(folder, partition).some(({ firstPosition, lost }) => firstPosition > 1 || lost);
  });
}

/**
 * Notes the ends of the segments for these partitions; for a server that holds the lock, before it writes, and for a
 * restore.
 */
export function noteUnknownEnds(folder: string, partitions: readonly number[] = partitionsWithoutEnd(folder)): void {
  for (const partition of partitions) {
    const end = findEnd(folder, partition);
    if (end === undefined) continue;
    const ends = new LogEnds(folder, localLogName(folder), partition, end.position);
    ends.write(end.position, end.segment);
    ends.close();
  }
}

/** For a log that was never served, as far as the files beside it show: from then on its loss is noticed. */
export function beginLogEnds(folder: string): void {
  if (readLogEndNote(folder, FIRST_PARTITION) !== undefined) return;
  if (partitionsWithoutEnd(folder).includes(FIRST_PARTITION)) return;
  new LogEnds(folder, localLogName(folder), FIRST_PARTITION, endOfSegments(folder, FIRST_PARTITION)).close();
}

/** The message of a start and of `sluice doctor` about an uncertain end of the log. */
export function unknownEndsText(folder: string, partitions: readonly number[]): string {
  if (partitions.every((partition) => listSegments(folder, partition).length === 0)) {
    return (
      'a server has run on this data folder before, and the log is gone, with log-ends: whether requests were acknowledged ' +
      'that are not processed is not known'
    );
  }
  return (
    `log-ends is missing, cannot be read or is older than the log (partition ${partitions.join(', ')}): whether requests ` +
    'were acknowledged beyond the newest record that the log has now is not known. After a power loss an older one is normal'
  );
}

interface LogEnd {
  readonly position: number;
  readonly segment: SegmentId;
}

/** Undefined if a segment at the end cannot be read: its readers report that. */
function findEnd(folder: string, partition: number): LogEnd | undefined {
  const segments = listSegments(folder, partition);
  const newest = segments.at(-1);
  if (newest === undefined || !holdsRecords(newest) || findIdentity(newest.file) === undefined) return undefined;
  const last = findLastRecord(folder, partition);
  // Every start leaves a segment, which may be empty, and which the next start replaces: it is not named.
  if (last === undefined || last.position < newest.firstPosition - 1)
    return { position: newest.firstPosition, segment: NO_SEGMENT };
  return { position: last.position + 1, segment: last.segment };
}

/** The newest readable record, and its segment. */
function findLastRecord(folder: string, partition: number): LogEnd | undefined {
  for (const { file } of listSegments(folder, partition).filter(holdsRecords).toReversed()) {
    const [position, segment] = [findLastPosition(file), findIdentity(file)];
    if (position !== undefined && segment !== undefined) return { position, segment };
  }
  return undefined;
}
