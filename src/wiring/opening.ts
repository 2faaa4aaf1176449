/**
 * Opens the stores and the log that a server or a command works on, wherever the settings say they are: files in the
 * data folder, PostgreSQL, Kafka. `open*` creates what is missing unless it says otherwise, `find*` creates nothing.
 *
 * Only `main.ts` and the files of this folder name concrete backends; each backend is imported on first use, so that no
 * command loads a database client that it does not need.
 */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { refuseUnfinishedRestore } from '../backup/notes.ts';
import type { Config } from '../config/config.ts';
import { matchOptionsOf } from '../config/match-options.ts';
import { withoutSecrets } from '../config/values.ts';
import { refuseUnreadableFolder } from '../data-folder/access.ts';
import { hasSegments, keyFileOf, logFolderOf, serverUrlIn, sizeOfFile, storeFileOf } from '../data-folder/files.ts';
import { hasLostKeys, refuseLostKeys } from '../data-folder/lost-keys.ts';
import { OperatorError } from '../errors.ts';
import type { KeyStore } from '../keys.ts';
import type { LogReader } from '../log.ts';
import {
  problemOfLostMarker,
  problemOfOtherDatabase,
  refuseMigratedFolder,
  refuseUnmigratedFolder,
} from '../migration/marker.ts';
import type { Store } from '../store.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import { withPendingRecords } from '../views/reading.ts';

export type Database = import('../backends/postgres/pool.ts').PostgresPool;
export type InstallationCheck = import('../backends/postgres/pool.ts').InstallationCheck;
type PoolOptions = import('../backends/postgres/pool.ts').PoolOptions;

/** Enough for threads and commands that make one call after another. */
export const FEW_CONNECTIONS = 2;
const COMMAND_MS_MAX = 5_000;

/** Creates the key store if it is missing, except in a data folder that has lost its keys. */
export async function openKeyStore(config: Config): Promise<KeyStore> {
  if (config.storeUrl === '') {
    refuseUnusableFolder(config);
    refuseLostKeys(config.dataFolder);
    const { openSqliteKeyStore } = await import('../backends/embedded/keys.ts');
    return openSqliteKeyStore(keyFileOf(config.dataFolder));
  }
  await prepareDatabase(config);
  return openKeyStoreIn(await openDatabase(config, 'keys', FEW_CONNECTIONS));
}

/** Creates nothing: undefined if there is no key store. */
export async function findKeyStore(config: Config): Promise<KeyStore | undefined> {
  if (config.storeUrl === '') {
    refuseUnreadableFolder(config.dataFolder);
    // Before its keys are there, a folder would look like a new one.
    refuseUnfinishedRestore(config.dataFolder);
    if (hasLostKeys(config.dataFolder)) return undefined;
    return existsSync(keyFileOf(config.dataFolder)) ? openKeyStore(config) : undefined;
  }
  const pool = await findDatabase(config);
  return pool === undefined ? undefined : openKeyStoreIn(pool);
}

export async function replaceLostKeys({ dataFolder, storeUrl }: Config, now: number): Promise<KeyStore> {
  if (storeUrl !== '')
    throw new OperatorError('The keys are in PostgreSQL (STORE_URL). Leave --replace-lost-keys out.');
  refuseUnusableFolder({ dataFolder });
  const lostAccounts = await import('../backends/embedded/lost-accounts.ts');
  return lostAccounts.replaceLostKeys(dataFolder, now);
}

/**
 * What commands read: the store plus the records that are still in the log. A command may block, so it needs no reader
 * thread. Creates nothing: undefined if there is no store.
 */
export async function openStore(config: Config): Promise<Store | undefined> {
  if (config.storeUrl === '') {
    refuseUnusableFolder(config);
    const file = storeFileOf(config.dataFolder);
    // An empty one has no tables, and is for a server to fill.
    if (sizeOfFile(file) === 0) return undefined;
    const { openSqliteStore } = await import('../backends/embedded/store/store.ts');
    const store = openSqliteStore(file, { matchOptions: matchOptionsOf(config), isForCommand: true });
    return withPendingRecords(store, await openLocalLogReader(config.dataFolder));
  }
  const pool = await findDatabase(config);
  return pool === undefined ? undefined : openReadingIn(pool, config);
}

/** The store in the database, completed by what is still in the log; closes both, and its connections. */
async function openReadingIn(pool: Database, config: Config): Promise<Store> {
  try {
    const log = await findLogReader(config);
    // A machine without a log can read a shared store. Asking a local reader for the name would create one.
    const logName = (): string => log?.name ?? 'none';
    return withPendingRecords(
      await openStoreIn(pool, config, logName),
      log ?? (await openLocalLogReader(config.dataFolder)),
    );
  } catch (error) {
    await pool.close();
    throw error;
  }
}

/**
 * A reader that deletes nothing. Unless `options` say otherwise, it waits for a Kafka that starts at the same time, and
 * creates a missing topic: for a server.
 */
export async function openLogReader(
  { dataFolder, logUrl, logRetentionMs }: Config,
  warn: (message: string) => void,
  options: { readonly createsTopic?: boolean; readonly openMsMax?: number } = {},
): Promise<LogReader> {
  if (logUrl === '') return openLocalLogReader(dataFolder);
  const { openKafkaLogReader } = await import('../backends/kafka/log.ts');
  return openKafkaLogReader({ url: logUrl, retentionMs: logRetentionMs, warn, ...options });
}

/** For a command: creates nothing, and waits only briefly. Undefined if there never was a log. */
export async function findLogReader(
  config: Config,
  warn: (message: string) => void = () => undefined,
): Promise<LogReader | undefined> {
  const { hasEverExisted } = await import('../backends/embedded/log/recovery.ts');
  const isThere = config.logUrl !== '' || hasEverExisted(logFolderOf(config.dataFolder));
  return isThere ? openLogReader(config, warn, { createsTopic: false, openMsMax: COMMAND_MS_MAX }) : undefined;
}

export async function openLocalLogReader(dataFolder: string): Promise<LogReader> {
  const { openEmbeddedLogReader } = await import('../backends/embedded/log/reader.ts');
  return openEmbeddedLogReader({ folder: logFolderOf(dataFolder) });
}

/** The URL of the server running on the data folder; undefined if there is none, or if servers share a log. */
export async function findServer({ dataFolder, logUrl }: Config): Promise<string | undefined> {
  if (logUrl !== '') return undefined;
  const { lockHolderOf } = await import('../backends/embedded/folder-lock.ts');
  return lockHolderOf(dataFolder).isHeld ? serverUrlIn(dataFolder) : undefined;
}

/** One that may not be read, was migrated to PostgreSQL, or into which a backup is only half restored. */
function refuseUnusableFolder({ dataFolder }: Pick<Config, 'dataFolder'>): void {
  refuseUnreadableFolder(dataFolder);
  refuseMigratedFolder(dataFolder);
  refuseUnfinishedRestore(dataFolder);
}

/** It does not respond now, and may soon. */
export class DatabaseUnreachableError extends OperatorError {}

export async function openDatabase(...options: Parameters<typeof poolOptions>): Promise<Database> {
  const { openPool } = await import('../backends/postgres/pool.ts');
  return translateUnreachable(options[0], () => openPool(poolOptions(...options)));
}

/** The same without connecting: for a server, which has prepared the database, and continues if it is gone by now. */
export async function connectLater(...options: Parameters<typeof poolOptions>): Promise<Database> {
  const { poolWithoutCheck } = await import('../backends/postgres/pool.ts');
  return poolWithoutCheck(poolOptions(...options));
}

/** For a command. Undefined where no server has made tables yet. */
async function findDatabase(config: Config): Promise<Database | undefined> {
  const pool = await openDatabase(config, 'command', FEW_CONNECTIONS);
  let isThere = false;
  try {
    const { rows } = await pool.query<{ isThere: boolean }>(
      `SELECT to_regclass('sluice.tables_made') IS NOT NULL AS "isThere"`,
    );
    isThere = rows[0]?.isThere === true;
  } finally {
    if (!isThere) await pool.close();
  }
  return isThere ? pool : undefined;
}

function poolOptions(
  { storeUrl, storeTimeoutMs }: Config,
  name: string,
  max: number,
  installation?: InstallationCheck,
): PoolOptions {
  const options = { url: storeUrl, max, applicationName: `sluice ${name}`, statementTimeoutMs: storeTimeoutMs };
  return installation === undefined ? options : { ...options, installation };
}

/** Turns an unreachable database into an error for the operator. */
async function translateUnreachable<T>(config: Config, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof StoreUnavailableError)) throw error;
    throw new DatabaseUnreachableError(
      `The database ${withoutSecrets(config.storeUrl)} cannot be reached: ${error.message}. Is it running, does it have free connections, and is STORE_URL right?`,
      { cause: error },
    );
  }
}

/**
 * Prepares a database for a server; runs once, when the database first responds. Creates the tables if there are
 * none. Refuses, without changing anything, if the data folder was migrated to another database or still
 * has embedded data; also refuses if a migration into this database is unfinished.
 */
export async function prepareDatabase(config: Config): Promise<void> {
  const { dataFolder, logUrl } = config;
  if (logUrl === '') refuseUnmigratedFolder(dataFolder);
  const { makeTables, problemOfIndexes } = await import('../backends/postgres/make-tables.ts');
  const { findMigration, refuseUnfinishedMigration } = await import('../backends/postgres/migration-state.ts');
  await withDatabase(config, async (pool) => {
    const problem = logUrl === '' ? problemOfOtherDatabase(dataFolder, (await findMigration(pool))?.id) : null;
    if (problem !== null) throw new OperatorError(problem);
    await makeTables(pool);
    const problemOfSchema = await problemOfIndexes(pool);
    if (problemOfSchema !== null) throw new OperatorError(problemOfSchema);
    await refuseUnfinishedMigration(pool);
    if (logUrl === '') await tieLocalLog(config, pool);
  });
}

/** Ensures that the log in the data folder belongs to this database, was migrated to it with its store, or is new. */
async function tieLocalLog(config: Config, pool: Database): Promise<void> {
  const folder = logFolderOf(config.dataFolder);
  // A command on a machine without a log.
  if (!existsSync(folder)) return;
  const problem = await problemOfLocalLog(config, pool);
  if (problem !== null) throw new OperatorError(problem);
  const { readLogInstallation, writeLogInstallation } = await import('../backends/embedded/installation.ts');
  const { installationOf } = await import('../backends/postgres/identity.ts');
  // A log that came with a migration keeps the id of the embedded files next to it, which an operator may go back to.
  if (readLogInstallation(folder) === undefined) writeLogInstallation(folder, await installationOf(pool));
}

/** Why the local log cannot be used with this database; null if it belongs to it or is new. Creates nothing. */
export async function problemOfLocalLog({ dataFolder, storeUrl }: Config, pool: Database): Promise<string | null> {
  const { readLogInstallation } = await import('../backends/embedded/installation.ts');
  const { findLogName } = await import('../backends/embedded/log/name.ts');
  const { installationOf, knowsLog } = await import('../backends/postgres/identity.ts');
  const { findMigration } = await import('../backends/postgres/migration-state.ts');
  const folder = logFolderOf(dataFolder);
  const [ours, theirs, logName] = [readLogInstallation(folder), await installationOf(pool), findLogName(folder)];
  const migration = await findMigration(pool);
  if (migration !== undefined && migration.log === logName) {
    return problemOfLostMarker(dataFolder, migration, withoutSecrets(storeUrl));
  }
  if (ours === theirs) return null;
  if (ours === undefined) {
    if (logName === undefined || !hasSegments(dataFolder) || (await knowsLog(pool, logName))) return null;
    return (
      `The log in ${resolve(folder)} does not say which installation it belongs to (its file "installation" is missing), and ` +
      'the database in STORE_URL has never processed anything of it. Put the file back, with the rest of the data folder that ' +
      `the log was in. If the log belongs to this database for certain, make the file with this text: ${theirs}`
    );
  }
  return (
    `The log in ${resolve(folder)} belongs to the installation ${ours}, but the database in STORE_URL is of ${theirs}. ` +
    'Set STORE_URL to the database that this log was written for, or SLUICE_DATA to the folder of this database. ' +
    `To leave what is in the log behind, move ${resolve(folder)} elsewhere.`
  );
}

/** With a pool for one step of a start. */
export async function withDatabase<T>(config: Config, work: (pool: Database) => Promise<T>): Promise<T> {
  const pool = await openDatabase(config, 'start', FEW_CONNECTIONS);
  return useAndClose(pool, () => translateUnreachable(config, () => work(pool)));
}

export async function useAndClose<T>(opened: { close(): Promise<void> }, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } finally {
    await opened.close();
  }
}

export async function openKeyStoreIn(pool: Database): Promise<KeyStore> {
  const { openPostgresKeyStore } = await import('../backends/postgres/keys.ts');
  return openPostgresKeyStore(pool);
}

/** Without what is still in the log. */
export async function openStoreIn(pool: Database, config: Config, logName: () => string): Promise<Store> {
  const { openPostgresStore } = await import('../backends/postgres/store.ts');
  return openPostgresStore({ pool, logName, matchOptions: matchOptionsOf(config) });
}
