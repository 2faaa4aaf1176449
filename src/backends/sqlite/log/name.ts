/**
 * What a local log is called in a store that takes records from several logs, and in its own segments: `local:` and a
 * UUID, kept in a file beside the partitions from the first time that it is asked for. In an embedded installation the
 * UUID is the installation's, so that a log that was removed is made again under the same name. A copy of the folder has
 * the same name, so two servers on two copies would believe each other's positions: move a data folder, never copy it to
 * run both.
 */

import { randomUUID } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { LogUnavailableError } from '../../../log.ts';
import { isOutOfFiles } from '../disk.ts';

const FILE = 'name';
const NAME = /^local:[0-9a-f-]{36}$/;

/** Makes none: undefined where there is none. */
export function findLogName(folder: string): string | undefined {
  return read(join(folder, FILE));
}

/** `id` is what a log that has no name yet is called by. */
export function localLogName(folder: string, id: string = randomUUID()): string {
  const file = join(folder, FILE);
  const known = read(file);
  if (known !== undefined) return known;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  // Written whole before it has its name, and never over another: whoever comes second takes the name of the first.
  const draft = `${file}.${process.pid}.${randomUUID()}`;
  writeFileSync(draft, `local:${id}\n`, { mode: 0o600, flush: true });
  try {
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  const name = read(file);
  if (name === undefined) throw new Error(`${file} was made and cannot be read`);
  return name;
}

function read(file: string): string | undefined {
  let text: string;
  try {
    text = readFileSync(file, 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    if (isOutOfFiles(error)) throw new LogUnavailableError(`${file} cannot be read now: ${(error as Error).message}.`);
    throw error;
  }
  if (!NAME.test(text)) throw new Error(`${file} does not hold the name of a log: restore it from a backup`);
  return text;
}
