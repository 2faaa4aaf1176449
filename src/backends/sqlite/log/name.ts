/**
 * What a local log is called in a store that takes records from several logs, and in its own segments: `local:` and a
 * UUID, from the first time that it is asked for. It is in a file beside the partitions, and again in each line of `log-ends`,
 * so that a log that was removed, or a name that cannot be read, is made again under the same name: the store knows
 * its positions by it. A copy of the folder has the same name, so two servers on two copies would believe each other's
 * positions: move a data folder, never copy it to run both.
 */

import { randomUUID } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ForeignSegmentError, LogUnavailableError } from '../../../log.ts';
import { isOutOfFiles } from '../disk.ts';
import { logNamesInEnds } from './ends.ts';

const NAME = /^local:[0-9a-f-]{36}$/;

/** Makes none: undefined where there is none, or none that can be read. */
export function findLogName(folder: string): string | undefined {
  return read(nameFileOf(folder)) ?? logNamesInEnds(folder)[0];
}

/** `id` is what a log that has no name yet is called by. */
export function localLogName(folder: string, id: string = randomUUID()): string {
  return read(nameFileOf(folder)) ?? write(nameFileOf(folder), findLogName(folder) ?? `local:${id}`);
}

/** Throws `ForeignSegmentError` where `log/` and `log-ends` are of different logs. */
export function assertOneName(folder: string): void {
  const own = findLogName(folder);
  const other = logNamesInEnds(folder).find((name) => name !== own);
  if (own === undefined || other === undefined) return;
  throw new ForeignSegmentError(
    `${folder}-ends does not belong there: it is of the log ${other}, and ${folder} is the log ${own}. One of the two is of another ` +
      'server or another installation. Put back the one that was here. If the right log-ends is gone for good, move this one ' +
      'away: the next start notes the ends that the log has. Leave the segments as they are.',
  );
}

function nameFileOf(folder: string): string {
  return join(folder, 'name');
}

/** Returns the name that the file has then: another thread or command may have been first. */
function write(file: string, name: string): string {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  // Written whole before it has its name, and never over another that can be read.
  const draft = `${file}.${process.pid}.${randomUUID()}`;
  writeFileSync(draft, `${name}\n`, { mode: 0o600, flush: true });
  try {
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    if (read(file) === undefined) renameSync(draft, file);
  } finally {
    rmSync(draft, { force: true });
  }
  const written = read(file);
  if (written === undefined) throw new Error(`${file} was made and cannot be read`);
  return written;
}

/** Undefined also for a file that holds no name: one that was cut, emptied or overwritten. */
function read(file: string): string | undefined {
  try {
    const text = readFileSync(file, 'utf8').trim();
    return NAME.test(text) ? text : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    if (isOutOfFiles(error)) throw new LogUnavailableError(`${file} cannot be read now: ${(error as Error).message}.`);
    throw error;
  }
}
