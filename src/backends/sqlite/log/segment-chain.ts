/**
 * Whether the segments of the embedded log were written here. Each segment has a random id of its own and names the one
 * before it; `log-ends`, beside the folder, names the one in which the newest request was acknowledged. So a segment of
 * another copy of the same installation (a restored backup that was started, too) is noticed, though its log and first
 * position are right: its records would replace others.
 *
 * An empty segment proves nothing: every start leaves one, which the next start replaces by another of the same name.
 *
 * Limits: checked when a server starts and by `sluice doctor`, not while a server runs. A complete `log/` of another
 * copy is noticed only if it has a segment of the same name as the newest one here; a data folder that was replaced
 * completely is not noticed.
 */

import { ForeignSegmentError } from '../../../log.ts';
import { readLogEndNote } from './ends.ts';
import { assertOneName } from './name.ts';
import {
  assertCurrentLayout,
  assertNotForeign,
  findIdentity,
  holdsRecords,
  listSegments,
  type Segment,
  type SegmentIdentity,
} from './segments.ts';

/**
 * Throws `ForeignSegmentError` for the first segment that was written elsewhere, and for such a `log-ends`;
 * `LogCorruptError` for a log of another format.
 */
export function assertOwnSegments(folder: string): void {
  assertCurrentLayout(folder);
  assertOneName(folder);
  const found: { readonly segment: Segment; readonly identity: SegmentIdentity }[] = [];
  for (const segment of listSegments(folder).filter(holdsRecords)) {
    assertNotForeign(folder, segment);
    const identity = findIdentity(segment.file);
    if (identity !== undefined && !identity.isEmpty) found.push({ segment, identity });
  }
  const at = (position: number | undefined) => found.find(({ segment }) => segment.firstPosition === position);
  const newest = readLogEndNote(folder);
  const acknowledged = at(newest?.segment.position);
  if (acknowledged !== undefined && acknowledged.identity.id !== newest?.segment.id) {
    throw ofAnotherCopy(acknowledged.segment.file, `it is not the one that ${folder}-ends names`);
  }
  for (const { segment, identity } of found) {
    const before = at(identity.previous?.position);
    if (before === undefined || before.identity.id === identity.previous?.id) continue;
    throw ofAnotherCopy(before.segment.file, `${segment.file} was written after another one of that name`);
  }
}

function ofAnotherCopy(file: string, why: string): ForeignSegmentError {
  return new ForeignSegmentError(
    `The log segment ${file} does not belong there: ${why}. One of these files is of another copy of this installation, such as ` +
      'a restored backup that was started, too. Put back the files that were written here. If they are gone for good, rename ' +
      `${file} to ${file}.lost: the records that were acknowledged here in its place are given up.`,
  );
}
