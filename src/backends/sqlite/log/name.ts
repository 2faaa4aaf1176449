/**
 * The name of a local log, in a store that takes records from several logs and in its own segments: `local:` and a
 * UUID, created on first use. It is in a file beside the segments, again in `log-ends`, and in each segment, so that a
 * removed log, or an unreadable name, is recreated under the same name: the store identifies its positions by it. A copy
 * of the folder has the same name, so two servers on two copies would use each other's positions: move a data folder,
 * never copy it to run both.
 */

import { randomUUID } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { readLogEndNote } from './ends.ts';
import { findIdentity, listReadable, readIfThere } from './segments.ts';

const NAME = /^local:[0-9a-f-]{36}$/;

/** Creates none: undefined if there is no readable name. */
export function findLogName(folder: string): string | undefined {
  const name = read(nameFileOf(folder)) ?? readLogEndNote(folder)?.logName;
  if (name !== undefined) return name;
  for (const { file } of listReadable(folder)) {
    const { logName = '' } = findIdentity(file) ?? {};
    if (NAME.test(logName)) return logName;
  }
  return undefined;
}

/** `id` is for a log that has no name yet. */
export function localLogName(folder: string, id: string = randomUUID()): string {
  return read(nameFileOf(folder)) ?? write(nameFileOf(folder), findLogName(folder) ?? `local:${id}`);
}

function nameFileOf(folder: string): string {
  return join(folder, 'name');
}

/** Returns the name in the file: another thread or command may have been first. */
function write(file: string, name: string): string {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  // Written completely before it gets its name, and never over a readable one.
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

/** Also undefined for a file without a name: truncated, emptied or overwritten. */
function read(file: string): string | undefined {
  const text = readIfThere(() => readFileSync(file, 'utf8').trim(), file);
  return text !== undefined && NAME.test(text) ? text : undefined;
}
