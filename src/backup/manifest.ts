/**
 * The manifest of a backup: what it holds, written last, so a backup without one is not finished. It names every file
 * with its size and SHA-256, and what was counted in them; a check counts again and compares. Also the only list of paths
 * that a backup may have: whatever else an archive names is refused, so that restoring never writes outside its folder.
 *
 * The property names are those in the file. A reader refuses formats that it does not know.
 */

import { OperatorError } from '../errors.ts';
import { isObject } from '../validation/shape.ts';

export const MANIFEST_FILE = 'backup-manifest.json';
const FORMAT = 2;
/** Far more than a manifest takes that names a million segments. */
export const MANIFEST_BYTES_MAX = 256 * 1024 * 1024;

/** `all`: an embedded installation. `log`: the local log of a server whose store and keys are in PostgreSQL. */
export type BackupScope = 'all' | 'log';

export interface BackupFile {
  /** Relative to the data folder, with slashes. */
  readonly path: string;
  readonly bytes: number;
  /** In hex. */
  readonly sha256: string;
}

/** Positions from `first_position` to before `next_position`: acknowledged once, and no longer in the log. */
export interface LogGap {
  readonly first_position: number;
  readonly next_position: number;
}

/** Positions as in `LogGap`. */
export interface LogFacts extends LogGap {
  readonly records: number;
  /** Marked as lost or missing in the log, which continues after them. Omitted if there are none. */
  readonly gaps?: readonly LogGap[];
}

export interface CopySetup {
  readonly dataFolder: string;
  readonly scope: BackupScope;
  /** An empty folder. */
  readonly into: string;
  readonly stop: AbortSignal;
  readonly onBytes: (bytes: number) => void;
  /** Called for each complete file in `into`; what happens to it there is up to the caller. */
  readonly onFile: (path: string) => Promise<void>;
}

export interface DataSize {
  readonly bytes: number;
  readonly largestBytes: number;
}

/** Sums of the ledger over all tenants and hours. `failed` are the dead letters. */
export interface LedgerSums {
  readonly received: number;
  readonly stored: number;
  readonly duplicates: number;
  readonly erased: number;
  readonly expired: number;
  readonly failed: number;
}

export interface StoreFacts {
  /** The next position to process; 0 before the first. */
  readonly position: number;
  readonly tenants: number;
  readonly users: LedgerSums;
  readonly events: LedgerSums;
  /** What the store has passed without having it: `lost_records` of the ledger. Left out where there are none. */
  readonly lost?: readonly LostRecords[];
}

export interface LostRecords extends LogGap {
  /** Fewer than positions where it is not known how many there were. */
  readonly records: number;
}

export interface KeyFacts {
  readonly accounts: number;
  readonly keys: number;
  readonly members: number;
}

export interface BackupFacts {
  /** The id that ties the parts of one installation together; null before the first start of a server. */
  readonly installation: string | null;
  readonly log: LogFacts;
  /** Null in a backup of the log alone. */
  readonly store: StoreFacts | null;
  readonly keys: KeyFacts | null;
}

export interface Manifest extends BackupFacts {
  readonly format: number;
  readonly sluice_version: string;
  readonly scope: BackupScope;
  /** ISO 8601. All that was acknowledged before is in the backup. */
  readonly began_at: string;
  readonly finished_at: string;
  /** ISO 8601: how far retention was (`clock/retention-clock.ts`). Omitted without a store. */
  readonly retention_at?: string;
  readonly files: readonly BackupFile[];
}

const PATHS =
  /^(store\.db|keys\.db|migrated\.json|log-warnings|log\/(name|installation|\d{16}\.log(\.zst|\.lost|\.missing)?))$/;

export function isBackupPath(path: string): boolean {
  return PATHS.test(path);
}

export function manifestText(manifest: Omit<Manifest, 'format'>): string {
  return `${JSON.stringify({ format: FORMAT, ...manifest }, undefined, 2)}\n`;
}

/** Throws an `OperatorError` that names `source`, the backup. */
export function parseManifest(text: string, source: string): Manifest {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw damaged(source, 'it is not JSON');
  }
  if (!isObject(value)) throw damaged(source, 'it is not an object');
  const { format, files, scope } = value;
  if (!Number.isSafeInteger(format)) throw damaged(source, '"format" is missing');
  if (format !== FORMAT) {
    throw new OperatorError(
      `The backup ${source} has the format ${String(format)}, and this version of Sluice knows ${FORMAT} only. Use the version that made it (${String(value['sluice_version'])}).`,
    );
  }
  if (scope !== 'all' && scope !== 'log') throw damaged(source, '"scope" is neither "all" nor "log"');
  if (!Array.isArray(files)) throw damaged(source, '"files" is missing');
  const paths = new Set<string>();
  for (const file of files as unknown[]) {
    if (!isBackupFile(file)) throw damaged(source, 'a row of "files" cannot be used');
    paths.add(file.path);
  }
  if (paths.size !== files.length) throw damaged(source, 'a file is named twice');
  const needed = scope === 'all' ? ['store.db', 'keys.db'] : [];
  for (const path of needed) if (!paths.has(path)) throw damaged(source, `${path} is not among its files`);
  return value as unknown as Manifest;
}

function isBackupFile(file: unknown): file is BackupFile {
  if (!isObject(file)) return false;
  const { path, bytes, sha256 } = file;
  return (
    typeof path === 'string' &&
    isBackupPath(path) &&
    Number.isSafeInteger(bytes) &&
    typeof sha256 === 'string' &&
    /^[0-9a-f]{64}$/.test(sha256)
  );
}

function damaged(source: string, reason: string): OperatorError {
  return new OperatorError(
    `The backup ${source} is damaged: ${MANIFEST_FILE} cannot be used, ${reason}. Use another backup.`,
  );
}
