/**
 * Where the segments of a log end, and whether that is where the log ended. Others know more than the segments: `log-ends`, the
 * store, and `positions.db`. Where one of them is further, the log has lost its newest records. Where `log-ends` has no
 * line that can be read for a partition that was used, or one of an earlier time than the segments, requests that were
 * acknowledged and are gone with the newest segment are not noticed, unless the store has processed later ones: that is
 * said once, at the next start, which notes the ends that it finds. A first start makes the line of the first partition before
 * anything outside of the log says that there was a start, so where a server has been and the line is gone, it was lost. A
 * start and `sluice doctor` both ask here; all but `noteUnknownEnds` and `beginLogEnds` only reads.
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

/** Up to where a store has processed each partition. */
type StorePositions = ReadonlyMap<number, number>;

/** The position after the last one that the segments, and the marks of records that are gone, speak of. */
export function endOfSegments(folder: string, partition: number): number {
  const segments = listSegments(folder, partition);
  let end = 1;
  for (const segment of segments) {
    // How many records it held is not known for certain, and positions are never used twice.
    if (segment.lost) end = segment.firstPosition + LOST_POSITIONS;
    else if (!holdsRecords(segment)) end = Math.max(end, segment.firstPosition);
    else if (segment === segments.at(-1)) end = (findLastPosition(segment.file) ?? segment.firstPosition - 1) + 1;
  }
  return end;
}

/** What a partition whose segments end at `end` has lost behind it; null where that is nothing, as far as is known. */
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

/** A `log-ends` of an earlier time is told by the segments. Without any, it may end where the store does by chance. */
function doubtOf(folder: string, partition: number, isNoted: boolean): string | null {
  if (!isNoted) return 'log-ends is missing or older';
  return listSegments(folder, partition).length > 0 ? null : 'no segment is left that log-ends can be compared with';
}

/** Of all partitions. For a folder on which no server runs. */
export function allMissingAtEnd(folder: string, storePositions: StorePositions): MissingRecords[] {
  return partitionsEverUsed(folder, storePositions)
    .map((partition) => missingAtEnd(folder, partition, endOfSegments(folder, partition), storePositions))
    .filter((missing) => missing !== null);
}

/** A log that was removed leaves its ends beside it. */
export function wasEverThere(folder: string): boolean {
  return existsSync(folder) || readLogEnds(folder).length > 0;
}

/** Those that have a folder, and those that only the store or `log-ends` knows. */
export function partitionsEverUsed(folder: string, storePositions: StorePositions): number[] {
  const noted = readLogEnds(folder).flatMap((end, partition) => (end > 0 ? [partition] : []));
  return [...new Set([...listPartitions(folder), ...storePositions.keys(), ...noted])].sort((a, b) => a - b);
}

/** Every server writes to it. */
const FIRST_PARTITION = 0;

/**
 * The partitions that were used, and of whose end there is no note, or one of an earlier time than the segments. `wasServed`:
 * something outside of the log says that a server has been started on it.
 */
export function partitionsWithoutEnd(
  folder: string,
  storePositions: StorePositions = new Map(),
  wasServed = false,
): number[] {
  const served = wasServed ? [FIRST_PARTITION] : [];
  return [...new Set([...served, ...partitionsEverUsed(folder, storePositions)])].filter((partition) => {
    const note = readLogEndNote(folder, partition);
    const last = findLastRecord(folder, partition);
    if (note !== undefined) return last !== undefined && last.position + 1 > note.next;
    if (last !== undefined || (storePositions.get(partition) ?? 0) > 0 || served.includes(partition)) return true;
    return listSegments(folder, partition).some(({ firstPosition, lost }) => firstPosition > 1 || lost);
  });
}

/** Notes the ends of the segments for these partitions; for a server that holds the lock, before it writes, and a restore. */
export function noteUnknownEnds(folder: string, partitions: readonly number[] = partitionsWithoutEnd(folder)): void {
  for (const partition of partitions) {
    const end = findEnd(folder, partition);
    if (end === undefined) continue;
    const ends = new LogEnds(folder, localLogName(folder), partition, end.position);
    ends.write(end.position, end.segment);
    ends.close();
  }
}

/** For a log that was never served, as far as the files beside it say: from then on the loss of it is noticed. */
export function beginLogEnds(folder: string): void {
  if (readLogEndNote(folder, FIRST_PARTITION) !== undefined) return;
  if (partitionsWithoutEnd(folder).includes(FIRST_PARTITION)) return;
  new LogEnds(folder, localLogName(folder), FIRST_PARTITION, endOfSegments(folder, FIRST_PARTITION)).close();
}

/** What cannot be known of the ends of the log, in the words of a start and of `sluice doctor`. */
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

/** Undefined where a segment at the end cannot be read: whatever was acknowledged in it is for its readers to say. */
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

/** The newest one that can be read, and its segment. */
function findLastRecord(folder: string, partition: number): LogEnd | undefined {
  for (const { file } of listSegments(folder, partition).filter(holdsRecords).toReversed()) {
    const [position, segment] = [findLastPosition(file), findIdentity(file)];
    if (position !== undefined && segment !== undefined) return { position, segment };
  }
  return undefined;
}
