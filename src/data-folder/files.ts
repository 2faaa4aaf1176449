/**
 * The layout of the data folder, which holds everything that an embedded server stores.
 */

import { chownSync, existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** 0 if it does not exist. */
export function sizeOfFile(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.size ?? 0;
}

/** A backup may be run by root, and the server by another user, who has to open what is left in the data folder. */
export function ownLike(file: string, folder: string): void {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = statSync(folder);
  chownSync(file, uid, gid);
}

/** Accounts and keys. */
export function keyFileOf(dataFolder: string): string {
  return join(dataFolder, 'keys.db');
}

/**
 * The event log: a folder of segments. Beside it are `log-ends` (up to where requests are acknowledged) and `log-warnings`
 * (possible losses that a start found, and that the store was rebuilt).
 */
export function logFolderOf(dataFolder: string): string {
  return join(dataFolder, 'log');
}

const SEGMENT = /^\d{16}\.log/;

/** Whether the log in the folder has ever been written. */
export function hasSegments(dataFolder: string): boolean {
  const log = logFolderOf(dataFolder);
  if (!existsSync(log)) return false;
  return readdirSync(log).some((name) => SEGMENT.test(name));
}

/** The time that retention goes by, over restarts. */
export function retentionTimeFileOf(dataFolder: string): string {
  return join(dataFolder, 'retention-time');
}

/** Profiles, events, traces, rejections and the ledger: what the processor made of the log. */
export function storeFileOf(dataFolder: string): string {
  return join(dataFolder, 'store.db');
}

/** Where the server that runs on the folder is reached, or the last one was: for links that commands make. */
export function serverUrlFileOf(dataFolder: string): string {
  return join(dataFolder, 'server.url');
}

/** What that file says; undefined before the first start. */
export function serverUrlIn(dataFolder: string): string | undefined {
  try {
    return new URL(readFileSync(serverUrlFileOf(dataFolder), 'utf8').trim()).origin;
  } catch {
    return undefined;
  }
}
