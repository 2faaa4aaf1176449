/**
 * `backup-unfinished.json` in the data folder: where the backup that is being made goes. It is there while one runs, under
 * the lock for backups, and after one that was killed. So the next backup of the folder removes what that one left,
 * whatever name it has itself, and `sluice doctor` names it. No backup holds this file.
 */

import { existsSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { OperatorError } from '../errors.ts';
import { isObject } from '../validation/shape.ts';
import { ownLike } from './files.ts';
import { writeDurably } from '../data-folder/write-durably.ts';

export interface UnfinishedBackup {
  /** The name that it was to get; absolute. */
  readonly target: string;
  /** ISO 8601. */
  readonly began_at: string;
}

const FILE = 'backup-unfinished.json';

/** What a backup is written to before it has its name. */
export function draftOf(target: string): string {
  return `${target}.part`;
}

/** For what a backup that was killed left under the name of its draft, which may even look whole. */
export function refuseDraft(source: string): void {
  const path = realpathSync(source);
  if (!path.endsWith(draftOf(''))) return;
  throw new OperatorError(
    `${path} was left by a backup that was killed, or is still being written: a finished one has a name without ${draftOf('')}. ` +
      `Use another backup. If there is none, rename it, and check it before you restore it: sluice backup --verify NAME`,
  );
}

/** Where an archive is unpacked to be checked. */
export function checkFolderOf(archive: string): string {
  return `${archive}.check`;
}

/** All that a backup to `target` may leave when it is killed, as far as it is there. */
export function leftoversOf(target: string): string[] {
  const draft = draftOf(target);
  return [draft, `${draft}.files`, checkFolderOf(draft)].filter((path) => existsSync(path));
}

/** Undefined where there is none, or the file cannot be used. */
export function readUnfinishedBackup(dataFolder: string): UnfinishedBackup | undefined {
  try {
    const value: unknown = JSON.parse(readFileSync(join(dataFolder, FILE), 'utf8'));
    if (!isObject(value)) return undefined;
    const { target, began_at } = value;
    if (typeof target !== 'string' || typeof began_at !== 'string') return undefined;
    return isAbsolute(target) && !Number.isNaN(Date.parse(began_at)) ? { target, began_at } : undefined;
  } catch {
    return undefined;
  }
}

export function writeUnfinishedBackup(dataFolder: string, backup: UnfinishedBackup): void {
  const text = `${JSON.stringify(backup, undefined, 2)}\n`;
  writeDurably(join(dataFolder, FILE), text, (draft) => ownLike(draft, dataFolder));
}

/** With what it left. Returns the names of that. */
export function removeUnfinishedBackup(dataFolder: string): string[] {
  const unfinished = readUnfinishedBackup(dataFolder);
  const leftovers = unfinished === undefined ? [] : leftoversOf(unfinished.target);
  for (const path of leftovers) rmSync(path, { recursive: true, force: true });
  rmSync(join(dataFolder, FILE), { force: true });
  return leftovers;
}
