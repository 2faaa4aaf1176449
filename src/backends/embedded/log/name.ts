/**
 * Which log a folder holds. Its name is `local:` and a UUID, created on first use: a store that takes records from several
 * logs identifies positions by it. It is in a file next to the segments, again in `log-ends`, and in each segment, so that
 * a removed log, or an unreadable name, is recreated under the same name. A copy of the folder has the same name, so two
 * servers on two copies would use each other's positions: move a data folder, never copy it to run both.
 *
 * Of two copies, each segment has a random id and names the one before it; `log-ends` names the one in which the newest
 * request was acknowledged. So a segment of the other copy (a restored backup that was started, too) is noticed, though
 * its log and first position are right: its records would replace others. Limits: `assertOwnSegments` notices a complete
 * `log/` of another copy only if it has a segment of the same name as the newest one here, and compares no compressed ones.
 */

import { randomUUID } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { sizeOfFile } from '../../../data-folder/files.ts';
import { ForeignSegmentError } from '../../../log.ts';
import { readLogEnds } from './ends.ts';
import { findOwnHeader, findSegmentHeader, listReadable, readIfThere } from './segments.ts';

const NAME = /^local:[0-9a-f-]{36}$/;

/** Undefined if there is no readable name. */
export function findLogName(folder: string): string | undefined {
  const name = readName(nameFileOf(folder)) ?? readLogEnds(folder)?.logName;
  if (name !== undefined) return name;
  for (const segment of listReadable(folder)) {
    const { logName = '' } = findSegmentHeader(segment) ?? {};
    if (NAME.test(logName)) return logName;
  }
  return undefined;
}

/** Created if there is none. `id` is for a log that has no name yet. */
export function localLogName(folder: string, id: string = randomUUID()): string {
  const file = nameFileOf(folder);
  return readName(file) ?? writeName(file, findLogName(folder) ?? `local:${id}`);
}

function nameFileOf(folder: string): string {
  return join(folder, 'name');
}

/** Returns the name in the file: another thread or command may have been first. */
function writeName(file: string, name: string): string {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  // Written completely before it gets its name, and never over a readable one.
  const draft = `${file}.${process.pid}.${randomUUID()}`;
  writeFileSync(draft, `${name}\n`, { mode: 0o600, flush: true });
  try {
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    if (readName(file) === undefined) renameSync(draft, file);
  } finally {
    rmSync(draft, { force: true });
  }
  const written = readName(file);
  if (written === undefined) throw new Error(`${file} was made and cannot be read`);
  return written;
}

/** Also undefined for a file without a name: truncated, emptied or overwritten. */
function readName(file: string): string | undefined {
  const text = readIfThere(() => readFileSync(file, 'utf8').trim(), file);
  return text !== undefined && NAME.test(text) ? text : undefined;
}

/**
 * Throws `ForeignSegmentError` for the first segment that was written elsewhere, and for such a `log-ends`;
 * `LogCorruptError` for a log of another format. An empty segment proves nothing: every start leaves one, which the next
 * start replaces by another of the same name.
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
    return header === undefined || header.end === sizeOfFile(segment.file) ? [] : [{ file: segment.file, header }];
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
