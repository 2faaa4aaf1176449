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

import { basename, dirname, join } from 'node:path';
import { ForeignSegmentError } from '../../../log.ts';
import { findLogName, readLogEndNote } from './ends.ts';
import {
  assertCurrentLayout,
  findIdentity,
  listReadable,
  type Segment,
  segmentFile,
  type SegmentIdentity,
} from './segments.ts';

/**
 * Throws `ForeignSegmentError` for the first segment that was written elsewhere, and for such a `log-ends`;
 * `LogCorruptError` for a log of another format.
 */
export function assertOwnSegments(folder: string): void {
  assertCurrentLayout(folder);
  const end = readLogEndNote(folder);
  const logName = findLogName(folder);
  if (end !== undefined && end.logName !== logName) throw ofAnotherLog(folder, end.logName, logName);
  const found = listReadable(folder).flatMap((segment) => {
    const identity = assertNotForeign(segment, logName);
    return identity?.lastPosition === undefined ? [] : [{ segment, identity }];
  });
  const at = (position: number | undefined) => found.find(({ segment }) => segment.firstPosition === position);
  const acknowledged = at(end?.segment.position);
  if (acknowledged !== undefined && acknowledged.identity.id !== end?.segment.id) {
    throw ofAnotherCopy(acknowledged.segment.file, `it is not the one that ${folder}-ends names`);
  }
  for (const { segment, identity } of found) {
    const before = at(identity.previous?.position);
    if (before === undefined || before.identity.id === identity.previous?.id) continue;
    throw ofAnotherCopy(before.segment.file, `${segment.file} was written after another one of that name`);
  }
}

/** For a segment that need not be read now. Its readers report damage. */
export function assertNotForeign(segment: Segment, logName: string | undefined): ReturnType<typeof findIdentity> {
  const identity = findIdentity(segment.file);
  if (identity !== undefined) assertWrittenHere(segment, logName, identity);
  return identity;
}

/** Throws `ForeignSegmentError` if the segment was written elsewhere. Of a log without a name, only its position counts. */
export function assertWrittenHere(
  { file, firstPosition }: Segment,
  logName: string | undefined,
  { logName: writtenIn, position }: SegmentIdentity,
): void {
  const isOfAnotherLog = logName !== undefined && writtenIn !== logName;
  if (!isOfAnotherLog && position === firstPosition) return;
  const away = 'Move it away, with the -wal and -shm of the same name if there are any';
  const name = basename(segmentFile('', position));
  const what = isOfAnotherLog
    ? `it is of another log, ${writtenIn}, and this one is ${logName}. ${away}; if it is ${join(dirname(file), 'name')} that was replaced, put that back instead`
    : `it was renamed, and was called ${name}. ${away}; if there is no ${name} beside it, rename it back instead`;
  throw new ForeignSegmentError(`The log segment ${file} does not belong there: ${what}. Nothing in it is processed.`);
}

function ofAnotherLog(folder: string, other: string, own: string | undefined): ForeignSegmentError {
  return new ForeignSegmentError(
    `${folder}-ends does not belong there: it is of the log ${other}, and ${folder} is the log ${own}. One of the two is of another ` +
      'server or another installation. Put back the one that was here. If the right log-ends is gone for good, move this one ' +
      'away: the next start notes the ends that the log has. Leave the segments as they are.',
  );
}

function ofAnotherCopy(file: string, why: string): ForeignSegmentError {
  return new ForeignSegmentError(
    `The log segment ${file} does not belong there: ${why}. One of these files is of another copy of this installation, such as ` +
      'a restored backup that was started, too. Put back the files that were written here. If they are gone for good, rename ' +
      `${file} to ${file}.lost: the records that were acknowledged here in its place are given up.`,
  );
}
