/**
 * The file that `sluice migrate` leaves in a data folder: the embedded store and keys there are being migrated, or were, and
 * history continues elsewhere. While it is there no server writes to the embedded files: continuing in both would make
 * two histories, and a key that is revoked in one would still be good in the other. It names the migration, as the
 * database does that was filled by it: so a migration continues only from a folder that was left alone since, and a
 * server uses the folder only with that database or a copy of it. To get the embedded files back, the operator removes
 * the file.
 */

import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { keyFileOf, storeFileOf } from '../data-folder/files.ts';
import { OperatorError } from '../errors.ts';
import { writeDurably } from '../data-folder/write-durably.ts';

export interface MigrationMarker {
  /** Id of the migration, the same as in the target database. */
  readonly id: string;
  readonly state: 'migrating' | 'migrated';
  /** Host and database: no password. */
  readonly location: string;
  /** ISO 8601. */
  readonly at: string;
}

const FILE = 'migrated.json';
const LEAVE_BEHIND =
  'To use the database in STORE_URL without the data and the log of this folder, start on another data folder: --data ' +
  'FOLDER or SLUICE_DATA.';

export function migrationMarkerFileOf(dataFolder: string): string {
  return join(dataFolder, FILE);
}

export function readMigrationMarker(dataFolder: string): MigrationMarker | undefined {
  const file = migrationMarkerFileOf(dataFolder);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new OperatorError(`${resolve(file)} cannot be read: ${(error as Error).message}.`);
  }
  const marker = parse(text);
  if (marker !== undefined) return marker;
  throw new OperatorError(
    `${resolve(file)} says that this data was migrated to PostgreSQL, but it is damaged. Restore it from a backup.`,
  );
}

export function writeMigrationMarker(dataFolder: string, marker: MigrationMarker): void {
  writeDurably(migrationMarkerFileOf(dataFolder), `${JSON.stringify(marker, undefined, 2)}\n`);
}

/** Called before the embedded store or keys are used. */
export function refuseMigratedFolder(dataFolder: string): void {
  const marker = readMigrationMarker(dataFolder);
  if (marker === undefined) return;
  const file = resolve(migrationMarkerFileOf(dataFolder));
  if (marker.state === 'migrating') {
    throw new OperatorError(
      `The data in ${resolve(dataFolder)} is being migrated to PostgreSQL at ${marker.location}, and that is not finished. ` +
        'To continue it, run the same "sluice migrate" again. To give it up, remove ' +
        `${file}: all is still here, and a later migration starts over, in an empty database.`,
    );
  }
  throw new OperatorError(
    `The data in ${resolve(dataFolder)} was migrated to PostgreSQL at ${marker.location} (${marker.at}) and continues there. ` +
      'Set STORE_URL to that database. To go back to the files as they were then, end all servers on that database and ' +
      `remove ${file}: requests received since are processed again as far as log/ still holds them, and all else that was ` +
      'changed since (keys, members, unmerges, erasures) stays behind in PostgreSQL.',
  );
}

/** Before PostgreSQL is used with the log of this folder. */
export function refuseUnmigratedFolder(dataFolder: string): void {
  const problem = problemOfUnmigratedFolder(dataFolder);
  if (problem !== null) throw new OperatorError(problem);
}

/** Whether the folder holds embedded data that was not migrated, in words; null where it does not. */
export function problemOfUnmigratedFolder(dataFolder: string): string | null {
  if (readMigrationMarker(dataFolder)?.state === 'migrated') return null;
  if (![storeFileOf(dataFolder), keyFileOf(dataFolder)].some((file) => existsSync(file))) return null;
  return (
    `STORE_URL is set, but the data in ${resolve(dataFolder)} was not migrated to PostgreSQL. Migrate it: sluice migrate ` +
    `--data ${dataFolder} --to URL. ${LEAVE_BEHIND}`
  );
}

/**
 * Whether the data of this folder was migrated to another database than the given one, in words; null where it was not.
 * `migrationId`: of the migration that filled the database, undefined where none did. A dump has it too, so a restored
 * database is accepted wherever it is.
 */
export function problemOfOtherDatabase(dataFolder: string, migrationId: string | undefined): string | null {
  const marker = readMigrationMarker(dataFolder);
  if (marker?.state !== 'migrated' || marker.id === migrationId) return null;
  const other = migrationId === undefined ? 'was not filled by any migration' : 'was filled by another migration';
  return (
    `The data in ${resolve(dataFolder)} was migrated to PostgreSQL at ${marker.location} (${marker.at}) and continues there, but ` +
    `the database in STORE_URL ${other}: its data does not belong to this folder. Set STORE_URL to the database at ` +
    `${marker.location}, or to one that a dump of it was restored into. ${LEAVE_BEHIND}`
  );
}

/**
 * Whether a log that was migrated to a database lies in a folder without the marker, in words; null where the marker is there.
 * Such a log was put back alone, or is a copy from before the migration: the folder that it was in may have gone on elsewhere.
 */
export function problemOfLostMarker(
  dataFolder: string,
  { id, finishedAt }: { readonly id: string; readonly finishedAt: number | null },
  location: string,
): string | null {
  if (readMigrationMarker(dataFolder)?.state === 'migrated') return null;
  const file = resolve(migrationMarkerFileOf(dataFolder));
  const marker: MigrationMarker = { id, state: 'migrated', location, at: new Date(finishedAt ?? 0).toISOString() };
  return (
    `The log in ${resolve(dataFolder)} is of an installation that was migrated to the database in STORE_URL, but ${file} is missing, ` +
    'which says that its history continues there: the log was put back without the rest of its data folder, or is a copy from ' +
    'before the migration. Its records may be processed elsewhere already, and would be processed a second time. Put back the whole ' +
    'data folder, or a backup of it. If this is the log that the last server on this database used, for certain, make ' +
    `${file} with this text: ${JSON.stringify(marker)}`
  );
}

function parse(text: string): MigrationMarker | undefined {
  try {
    const { id, state, location, at } = JSON.parse(text) as Record<string, unknown>;
    const isText = [id, location, at].every((value) => typeof value === 'string' && value !== '');
    if (!isText || (state !== 'migrating' && state !== 'migrated')) return undefined;
    return { id, state, location, at } as MigrationMarker;
  } catch {
    return undefined;
  }
}
