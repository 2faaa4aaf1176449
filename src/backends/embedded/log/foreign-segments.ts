/**
 * Whether the segments of a log were written here. Each has a random id and names the one before it; `log-ends` names the
 * one in which the newest request was acknowledged. So a segment of another copy of the same installation (a restored
 * backup that was started, too) is noticed, though its log and first position are right: its records would replace
 * others. An empty segment proves nothing: every start leaves one, which the next start replaces by another of the same
 * name.
 *
 * Limits: checked when a server starts and by `sluice doctor`, not while a server runs. A complete `log/` of another
 * copy is noticed only if it has a segment of the same name as the newest one here; a data folder that was replaced
 * completely is not noticed. A compressed segment is not compared with the others.
 */

import { join } from 'node:path';
import { ForeignSegmentError } from '../../../log.ts';
import { readLogEnds } from './ends.ts';
import { findLogName } from './name.ts';
import { isEmpty } from './segment-reader.ts';
import { findOwnHeader, findSegmentHeader, listReadable } from './segments.ts';

/**
 * Throws `ForeignSegmentError` for the first segment that was written elsewhere, and for such a `log-ends`;
 * `LogCorruptError` for a log of another format.
 */
export function assertOwnSegments(folder: string): void {
  const ends = readLogEnds(folder);
  const logName = findLogName(folder);
  if (ends !== undefined && ends.logName !== logName) {
    const blame = isWrittenIn(folder, ends.logName) ? changedName : ofAnotherLog;
    throw blame(folder, ends.logName, logName);
  }
  const found = listReadable(folder).flatMap((segment) => {
    const header = findOwnHeader(segment, logName);
    return header === undefined || isEmpty(segment) ? [] : [{ file: segment.file, header }];
  });
  const at = (position: number | undefined) => found.find(({ header }) => header.firstPosition === position);
  const acknowledged = at(ends?.segment.firstPosition);
  if (acknowledged !== undefined && acknowledged.header.id !== ends?.segment.id) {
    throw ofAnotherCopy(acknowledged.file, `it is not the one that ${folder}-ends names`);
  }
  for (const { file, header } of found) {
    const before = at(header.previous?.firstPosition);
    if (before === undefined || before.header.id === header.previous?.id) continue;
    throw ofAnotherCopy(before.file, `${file} was written after another one of that name`);
  }
}

/** Whether the segments have this name. */
function isWrittenIn(folder: string, logName: string): boolean {
  const names = listReadable(folder).flatMap((segment) => findSegmentHeader(segment)?.logName ?? []);
  return names.length > 0 && names.every((name) => name === logName);
}

function changedName(folder: string, other: string, own: string | undefined): ForeignSegmentError {
  return new ForeignSegmentError(
    `${join(folder, 'name')} does not belong there: it says ${own}, and log-ends and the segments are of the log ${other}. ` +
      'Put the right file back, or remove it: the next start recreates it.',
  );
}

function ofAnotherLog(folder: string, other: string, own: string | undefined): ForeignSegmentError {
  return new ForeignSegmentError(
    `${folder}-ends does not belong there: it is of the log ${other}, and ${folder} is the log ${own}. One of the two is of another ` +
      'server or another installation. Put back the one that was here. If the right log-ends is gone permanently, move this one ' +
      'away: the next start notes the end that the log has. Leave the segments as they are.',
  );
}

function ofAnotherCopy(file: string, why: string): ForeignSegmentError {
  return new ForeignSegmentError(
    `The log segment ${file} does not belong there: ${why}. One of these files is of another copy of this installation, such as ` +
      'a restored backup that was started, too. Put back the files that were written here. If they are gone permanently, rename ' +
      `${file} to ${file}.lost: the records that were acknowledged here in its place are given up.`,
  );
}
