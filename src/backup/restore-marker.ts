/**
 * `restoring.json`: in a data folder from before the first file of a restore is written until the last one is synced.
 * While it is there the folder holds part of an installation, and no server starts on it: one that began with a log and no
 * store would look healthy, with most of its data missing. A restore that finds it begins again.
 */

import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { OperatorError } from '../errors.ts';
import { syncPath } from '../data-folder/write-durably.ts';

const FILE = 'restoring.json';

export function restoreMarkerFileOf(dataFolder: string): string {
  return join(dataFolder, FILE);
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
