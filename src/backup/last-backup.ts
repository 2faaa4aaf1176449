/**
 * `backup.json` in the data folder: when the last successful backup of it was made and where to, for `sluice doctor`.
 * Advice only: nothing depends on it, and no backup holds it.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ownLike } from './files.ts';
import { isObject } from '../validation/shape.ts';
import { writeDurably } from '../data-folder/write-durably.ts';

export interface LastBackup {
  /** ISO 8601: all that was acknowledged before is in it. */
  readonly began_at: string;
  readonly target: string;
  readonly bytes: number;
  readonly verified: boolean;
  readonly sluice_version: string;
}

const FILE = 'backup.json';

/** Undefined where there was none, or the file cannot be used. */
export function readLastBackup(dataFolder: string): LastBackup | undefined {
  try {
    const value: unknown = JSON.parse(readFileSync(join(dataFolder, FILE), 'utf8'));
    if (!isObject(value)) return undefined;
    const { began_at, target, bytes, verified } = value;
    const isUsable =
      typeof began_at === 'string' &&
      !Number.isNaN(Date.parse(began_at)) &&
      typeof target === 'string' &&
      typeof bytes === 'number' &&
      typeof verified === 'boolean';
    return isUsable ? (value as unknown as LastBackup) : undefined;
  } catch {
    return undefined;
  }
}

export function writeLastBackup(dataFolder: string, backup: LastBackup): void {
  const text = `${JSON.stringify(backup, undefined, 2)}\n`;
  writeDurably(join(dataFolder, FILE), text, (draft) => ownLike(draft, dataFolder));
}
