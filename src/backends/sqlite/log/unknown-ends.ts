/**
 * A log whose `log-ends` is missing, or has no line that can be read for a partition with records. Its segments are then all
 * that is known of its end, and requests that were acknowledged and are gone with the newest segment are not noticed,
 * unless the store has processed later ones. Said once, at the next start, which notes the ends that it finds.
 */

import { LogEnds, readLogEndNote } from './ends.ts';
import {
  findIdentity,
  findLastPosition,
  holdsRecords,
  listPartitions,
  listSegments,
  type SegmentIdentity,
} from './segments.ts';

/** The partitions that have records, and no note of their end. */
export function partitionsWithoutEnd(folder: string): number[] {
  return listPartitions(folder).filter(
    (partition) =>
      readLogEndNote(folder, partition) === undefined &&
      listSegments(folder, partition).some(
        (segment) => segment.firstPosition > 1 || segment.lost || findLastPosition(segment.file) !== undefined,
      ),
  );
}

/** Notes the end of the segments where none is noted; for a server that holds the lock, before it writes, and a restore. */
export function noteUnknownEnds(folder: string): void {
  for (const partition of partitionsWithoutEnd(folder)) {
    const end = findEnd(folder, partition);
    if (end === undefined) continue;
    const ends = new LogEnds(folder, partition);
    ends.write(end.position, end.segment);
    ends.close();
  }
}

/** Undefined where a segment at the end cannot be read: whatever was acknowledged in it is for its readers to say. */
function findEnd(
  folder: string,
  partition: number,
): { readonly position: number; readonly segment: SegmentIdentity } | undefined {
  for (const segment of listSegments(folder, partition).toReversed()) {
    if (!holdsRecords(segment)) return undefined;
    const identity = findIdentity(segment.file);
    if (identity === undefined) return undefined;
    const last = findLastPosition(segment.file);
    // Every start leaves a segment, which may be empty.
    if (last !== undefined) return { position: last + 1, segment: identity };
  }
  return undefined;
}
