/**
 * The shared database (STORE_URL): how its pools are opened, how it is prepared for a server of this version, and the
 * stores in it.
 */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Config } from '../config/config.ts';
import { matchOptionsOf } from '../config/match-options.ts';
import { withoutSecrets } from '../config/values.ts';
import { hasSegments, logFolderOf } from '../data-folder/files.ts';
import { OperatorError } from '../errors.ts';
import type { KeyStore } from '../keys.ts';
import type { MemberStore } from '../members.ts';
import { problemOfLostMarker, problemOfOtherDatabase, refuseUnmigratedFolder } from '../migration/marker.ts';
import type { Store } from '../store.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import { DatabaseUnreachableError } from './late-start.ts';

export type Database = import('../backends/postgres/pool.ts').PostgresPool;
export type InstallationCheck = import('../backends/postgres/pool.ts').InstallationCheck;
type PoolOptions = import('../backends/postgres/pool.ts').PoolOptions;

/** Enough for threads and commands that make one call after another. */
export const FEW_CONNECTIONS = 2;

/** A connection pool for the shared database; the caller closes it. */
export async function openDatabase(...options: Parameters<typeof poolOptions>): Promise<Database> {
  const { openPool } = await import('../backends/postgres/pool.ts');
  return translateUnreachable(options[0], () => openPool(poolOptions(...options)));
}

/**
 * The same without connecting, for a server that may start before its database. While `problem` returns a reason, every
 * query fails as unavailable.
 */
export async function connectLater(
  problem: () => string | null,
  ...options: Parameters<typeof poolOptions>
): Promise<Database> {
  const { poolWithoutCheck } = await import('../backends/postgres/pool.ts');
  return poolWithoutCheck({ ...poolOptions(...options), problem });
}

/** For a command. Undefined where no server has made tables yet. */
export async function findDatabase(config: Config): Promise<Database | undefined> {
  const pool = await openDatabase(config, 'command', FEW_CONNECTIONS);
  try {
    const { rows } = await pool.query<{ isThere: boolean }>(
      `SELECT to_regclass('sluice.migrations') IS NOT NULL AS "isThere"`,
    );
    if (rows[0]?.isThere === true) return pool;
  } catch (error) {
    await pool.close();
    throw error;
  }
  await pool.close();
  return undefined;
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
 * Prepares a database for a server; runs once, when the database first responds. Creates the tables or migrates them to
 * the current schema. Refuses, without changing anything, if the data folder was migrated to another database or still
 * has embedded data; also refuses if a migration into this database is unfinished.
 */
export async function prepareDatabase(config: Config): Promise<void> {
  const { dataFolder, logUrl } = config;
  if (logUrl === '') refuseUnmigratedFolder(dataFolder);
  const [{ migrate, problemOfIndexes }, { findMigration, refuseUnfinishedMigration }, { continueArrivalNumbers }] =
    await Promise.all([
      import('../backends/postgres/migrations.ts'),
      import('../backends/postgres/migration-state.ts'),
      import('../backends/postgres/store-arrivals.ts'),
    ]);
  await withDatabase(config, async (pool) => {
    const problem = logUrl === '' ? problemOfOtherDatabase(dataFolder, (await findMigration(pool))?.id) : null;
    if (problem !== null) throw new OperatorError(problem);
    await migrate(pool);
    const problemOfSchema = await problemOfIndexes(pool);
    if (problemOfSchema !== null) throw new OperatorError(problemOfSchema);
    await refuseUnfinishedMigration(pool);
    if (logUrl === '') await tieLocalLog(config, pool);
    await continueArrivalNumbers(pool);
  });
}

/** Ensures that the log in the data folder belongs to this database, was migrated to it with its store, or is new. */
async function tieLocalLog(config: Config, pool: Database): Promise<void> {
  const folder = logFolderOf(config.dataFolder);
  // A command on a machine without a log.
  if (!existsSync(folder)) return;
  const problem = await problemOfLocalLog(config, pool);
  if (problem !== null) throw new OperatorError(problem);
  const [{ readLogInstallation, writeLogInstallation }, { installationOf }] = await Promise.all([
    import('../backends/embedded/installation.ts'),
    import('../backends/postgres/identity.ts'),
  ]);
  // A log that came with a migration keeps the id of the embedded files next to it, which an operator may go back to.
  if (readLogInstallation(folder) === undefined) writeLogInstallation(folder, await installationOf(pool));
}

/** Why the local log cannot be used with this database; null if it belongs to it or is new. Creates nothing. */
export async function problemOfLocalLog({ dataFolder, storeUrl }: Config, pool: Database): Promise<string | null> {
  const [{ readLogInstallation }, { findLogName }, { installationOf, knowsLog }, { findMigration }] = await Promise.all(
    [
      import('../backends/embedded/installation.ts'),
      import('../backends/embedded/log/name.ts'),
      import('../backends/postgres/identity.ts'),
      import('../backends/postgres/migration-state.ts'),
    ],
  );
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

export async function openMemberStoreIn(pool: Database): Promise<MemberStore> {
  const { openPostgresMemberStore } = await import('../backends/postgres/keys.ts');
  return openPostgresMemberStore(pool);
}

/** Without what is still in the log. */
export async function openStoreIn(pool: Database, config: Config, logName: () => string): Promise<Store> {
  const { openPostgresStore } = await import('../backends/postgres/store.ts');
  return openPostgresStore({ pool, logName, matchOptions: matchOptionsOf(config) });
}
