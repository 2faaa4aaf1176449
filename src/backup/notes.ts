/**
 * What `sluice backup` and `sluice restore` note in the data folder; no backup holds these files.
 *
 * `backup.json`: when the last successful backup was made and where to. Advice only: nothing depends on it.
 *
 * `backup-unfinished.json`: where the backup that is being made goes. It is there while one runs, under the lock for
 * backups, and after one that was killed. So the next backup of the folder removes what that one left, whatever name it has
 * itself, and `sluice doctor` names it.
 *
 * `restoring.json`: there from before the first file of a restore is written until the last one is synced. No server
 * starts meanwhile: one that began with a log and no store would look healthy, with most of its data missing.
 */

import { existsSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { isAbsolute, join, resolve } from 'node:path';
import { OperatorError } from '../errors.ts';
import { isObject, type JsonObject } from '../validation/shape.ts';
import { ownLike } from '../data-folder/files.ts';
import { syncPath, writeDurably } from '../data-folder/write-durably.ts';

interface UnfinishedBackup {
  /** The name that it was to get; absolute. */
  readonly target: string;
  /** ISO 8601: all that was acknowledged before is in it. */
  readonly began_at: string;
}

export interface LastBackup extends UnfinishedBackup {
  readonly bytes: number;
  readonly verified: boolean;
  readonly sluice_version: string;
}

const LAST = 'backup.json';
const UNFINISHED = 'backup-unfinished.json';
const RESTORING = 'restoring.json';

/** Undefined where there was none, or the file cannot be used. */
export function readLastBackup(dataFolder: string): LastBackup | undefined {
  const note = readNote(dataFolder, LAST);
  const isUsable = typeof note?.bytes === 'number' && typeof note.verified === 'boolean';
  return isUsable ? (note as unknown as LastBackup) : undefined;
}

export function writeLastBackup(dataFolder: string, backup: LastBackup): void {
  writeNote(dataFolder, LAST, backup);
}

/** Undefined where there is none, or the file cannot be used. */
export function readUnfinishedBackup(dataFolder: string): UnfinishedBackup | undefined {
  const note = readNote(dataFolder, UNFINISHED);
  return note !== undefined && isAbsolute(note.target) ? note : undefined;
}

export function writeUnfinishedBackup(dataFolder: string, backup: UnfinishedBackup): void {
  writeNote(dataFolder, UNFINISHED, backup);
}

/** With what it left. Returns the names of that. */
export function removeUnfinishedBackup(dataFolder: string): string[] {
  const unfinished = readUnfinishedBackup(dataFolder);
  const leftovers = unfinished === undefined ? [] : leftoversOf(unfinished.target);
  for (const path of leftovers) rmSync(path, { recursive: true, force: true });
  rmSync(join(dataFolder, UNFINISHED), { force: true });
  return leftovers;
}

/** The name of a backup while it is written. */
export function draftOf(target: string): string {
  return `${target}.part`;
}

/** Refuses the draft that a killed backup left, which may even look complete. */
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

function readNote(dataFolder: string, name: string): (UnfinishedBackup & JsonObject) | undefined {
  try {
    const value: unknown = JSON.parse(readFileSync(join(dataFolder, name), 'utf8'));
    if (!isObject(value) || typeof value.target !== 'string' || typeof value.began_at !== 'string') return undefined;
    return Number.isNaN(Date.parse(value.began_at)) ? undefined : (value as UnfinishedBackup & JsonObject);
  } catch {
    return undefined;
  }
}

function writeNote(dataFolder: string, name: string, backup: UnfinishedBackup): void {
  const text = `${JSON.stringify(backup, undefined, 2)}\n`;
  writeDurably(join(dataFolder, name), text, (draft) => ownLike(draft, dataFolder));
}

export function restoreMarkerFileOf(dataFolder: string): string {
  return join(dataFolder, RESTORING);
}

export function isRestoreUnfinished(dataFolder: string): boolean {
  return existsSync(restoreMarkerFileOf(dataFolder));
}

export function writeRestoreMarker(dataFolder: string, source: string, at: number): void {
  const text = `${JSON.stringify({ from: source, at: new Date(at).toISOString() }, undefined, 2)}\n`;
  writeFileSync(restoreMarkerFileOf(dataFolder), text, { mode: 0o600, flush: true });
  syncPath(dataFolder);
}

export function removeRestoreMarker(dataFolder: string): void {
  rmSync(restoreMarkerFileOf(dataFolder), { force: true });
  syncPath(dataFolder);
}

/** For servers and commands that are about to use what is in the folder. */
export function refuseUnfinishedRestore(dataFolder: string): void {
  if (!isRestoreUnfinished(dataFolder)) return;
  throw new OperatorError(
    `A restore into ${resolve(dataFolder)} is running or was interrupted, so the folder is incomplete. Run the same "sluice restore" again: it starts over.`,
  );
}
