/**
 * The name of a local log is `local:` and a UUID, created on first use: a store that takes records from several logs
 * identifies positions by it. It is in a file next to the segments, again in `log-ends`, and in each segment, so that a
 * removed log, or an unreadable name, is recreated under the same name. A copy of the folder has the same name, so two
 * servers on two copies would use each other's positions: move a data folder, never copy it to run both.
 */

import { randomUUID } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { readLogEnds } from './ends.ts';
import { findSegmentHeader, listReadable, readIfThere } from './segments.ts';

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
