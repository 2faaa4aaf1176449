/**
 * Opens what a server or a command works on, wherever the settings say that it is: files in the data folder, PostgreSQL,
 * Kafka. With `main.ts` and `thread.ts` the only file that names concrete backends; each is loaded when it is used, so
 * that nobody waits for the client of a database that he does not have. Holds no logic of its own.
 */

import { existsSync } from 'node:fs';
import type { DatabaseFacts } from './cli/doctor-checks.ts';
import type { Config } from './config.ts';
import { withoutSecrets } from './config-values.ts';
import { keyFileOf, logFolderOf, storeFileOf } from './data-folder.ts';
import { OperatorError } from './errors.ts';
import type { LogReader } from './log.ts';
import type { MemberStore } from './members.ts';
import { refuseMovedFolder } from './move-marker.ts';
import { createReading } from './reading.ts';
import type { KeyStore, Store } from './store.ts';
import { StoreUnavailableError } from './store-writer.ts';

export type Database = import('./backends/postgres/pool.ts').PostgresPool;

/** For threads and commands that ask one thing after the other. */
const FEW_CONNECTIONS = 2;
/** How long somebody who types a command waits for a log that does not answer. */
const COMMAND_MS_MAX = 5_000;
/** A reader of the log for which nothing is ever too old. */
const READ_ONLY = { retentionMs: Number.MAX_SAFE_INTEGER, now: Date.now };

/** It does not answer now, and may soon. */
export class DatabaseAwayError extends OperatorError {}

/** Connections to the database that servers share; whoever is given them closes them. */
export async function openDatabase(config: Config, name: string, connections: number): Promise<Database> {
  const { openPool } = await import('./backends/postgres/pool.ts');
  return inWords(config, () =>
    openPool({
      url: config.storeUrl,
      max: connections,
      applicationName: `sluice ${name}`,
      statementTimeoutMs: config.storeTimeoutMs,
    }),
  );
}

/** Makes its tables, or brings them up to date. Refused where a move into it is not finished. */
export async function prepareDatabase(config: Config): Promise<void> {
  const [{ migrate }, { refuseUnfinishedMove }, { continueArrivalNumbers }] = await Promise.all([
    import('./backends/postgres/migrations.ts'),
    import('./backends/postgres/moves.ts'),
    import('./backends/postgres/arrival-numbers.ts'),
  ]);
  const pool = await openDatabase(config, 'start', FEW_CONNECTIONS);
  try {
    await inWords(config, async () => {
      await migrate(pool);
      await refuseUnfinishedMove(pool);
      await continueArrivalNumbers(pool);
    });
  } finally {
    await pool.close();
  }
}

/**
 * Brings an embedded store up to date before several threads open it: with much in it that may take minutes, and they
 * wait for one another for seconds only. Makes nothing.
 */
export async function prepareStoreFile({ dataFolder, storeUrl }: Config): Promise<void> {
  const file = storeFileOf(dataFolder);
  if (storeUrl !== '' || !existsSync(file)) return;
  const { openStoreFile } = await import('./backends/sqlite/store-schema.ts');
  openStoreFile(file, 'writer').close();
}

/** Makes what is not there yet. */
export async function openKeyStore(config: Config): Promise<KeyStore> {
  if (config.storeUrl === '') {
    refuseMovedFolder(config.dataFolder);
    const { openSqliteKeyStore } = await import('./backends/sqlite/keys.ts');
    return openSqliteKeyStore(keyFileOf(config.dataFolder));
  }
  await prepareDatabase(config);
  return keyStoreOn(await openDatabase(config, 'keys', FEW_CONNECTIONS));
}

/** Makes nothing: undefined where there is none. */
export async function findKeyStore(config: Config): Promise<KeyStore | undefined> {
  if (config.storeUrl === '') return existsSync(keyFileOf(config.dataFolder)) ? openKeyStore(config) : undefined;
  const pool = await findDatabase(config);
  return pool === undefined ? undefined : keyStoreOn(pool);
}

export async function openMemberStore(config: Config): Promise<MemberStore> {
  if (config.storeUrl === '') {
    refuseMovedFolder(config.dataFolder);
    const { openSqliteMemberStore } = await import('./backends/sqlite/members.ts');
    return openSqliteMemberStore(keyFileOf(config.dataFolder));
  }
  return memberStoreOn(await openDatabase(config, 'members', FEW_CONNECTIONS));
}

export async function keyStoreOn(pool: Database): Promise<KeyStore> {
  const { openPostgresKeyStore } = await import('./backends/postgres/keys.ts');
  return openPostgresKeyStore(pool);
}

export async function memberStoreOn(pool: Database): Promise<MemberStore> {
  const { openPostgresMemberStore } = await import('./backends/postgres/members.ts');
  return openPostgresMemberStore(pool);
}

/**
 * What commands read: the store, completed by what is still in the log. They may block, so there is no thread. Makes
 * nothing: undefined where there is none.
 */
export async function openStore(config: Config): Promise<Store | undefined> {
  if (config.storeUrl === '') {
    refuseMovedFolder(config.dataFolder);
    const file = storeFileOf(config.dataFolder);
    if (!existsSync(file)) return undefined;
    const [{ openSqliteStore }, { matchOptionsOf }] = await Promise.all([
      import('./backends/sqlite/store.ts'),
      import('./match-options.ts'),
    ]);
    return createReading(openSqliteStore(file, { matchOptions: matchOptionsOf(config) }), await localLog(config));
  }
  const pool = await findDatabase(config);
  return pool === undefined ? undefined : readingOn(pool, config);
}

/** The store in the database, completed by what is still in the log; closes both, and its connections. */
async function readingOn(pool: Database, config: Config): Promise<Store> {
  try {
    const log = (await findLogReader(config)) ?? NO_LOG;
    return createReading(await storeOn(pool, config, log.name), log);
  } catch (error) {
    await pool.close();
    throw error;
  }
}

/** Without what is still in the log. */
export async function storeOn(pool: Database, config: Config, logName: string): Promise<Store> {
  const [{ openPostgresStore }, { matchOptionsOf }] = await Promise.all([
    import('./backends/postgres/store.ts'),
    import('./match-options.ts'),
  ]);
  return openPostgresStore({ pool, logName, matchOptions: matchOptionsOf(config) });
}

/** For reading alone: removes nothing, and reads all partitions. Makes nothing: undefined where there is no log. */
export async function findLogReader(
  config: Config,
  warn: (message: string) => void = () => undefined,
): Promise<LogReader | undefined> {
  if (config.logUrl !== '') return sharedLog(config, { warn, makesTopic: false, openMsMax: COMMAND_MS_MAX });
  return existsSync(logFolderOf(config.dataFolder)) ? localLog(config) : undefined;
}

/** For a server, which waits for a log that starts at the same time, and makes it if it is missing. */
export async function openLogReader(config: Config, warn: (message: string) => void): Promise<LogReader> {
  return config.logUrl === '' ? localLog(config) : sharedLog(config, { warn });
}

interface SharedLogWishes {
  readonly warn: (message: string) => void;
  readonly makesTopic?: boolean;
  readonly openMsMax?: number;
}

async function sharedLog({ logUrl, logRetentionMs }: Config, wishes: SharedLogWishes): Promise<LogReader> {
  const { openKafkaLogReader } = await import('./backends/kafka/log.ts');
  return openKafkaLogReader({ url: logUrl, retentionMs: logRetentionMs, ...wishes });
}

async function localLog(config: Config): Promise<LogReader> {
  const { openSqliteLogReader } = await import('./backends/sqlite/log-reader.ts');
  return openSqliteLogReader({ folder: logFolderOf(config.dataFolder), ...READ_ONLY });
}

/** On a machine where no server with a log of its own has run, a shared store can be read all the same. */
const NO_LOG: LogReader = {
  name: 'none',
  cutsRequests: false,
  partitions: async () => [],
  read: async (_partition, position) => ({ records: [], next: position }),
  headers: async (_partition, position) => ({ headers: [], next: position }),
  find: async () => [],
  backlogBytes: async () => 0,
  commit: async () => undefined,
  committed: async () => 0,
  close: async () => undefined,
};

/** Undefined where no server has made tables yet. */
async function findDatabase(config: Config): Promise<Database | undefined> {
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

/** For the doctor: facts alone, nothing is made. */
export async function lookAtDatabase(config: Config): Promise<DatabaseFacts> {
  const pool = await openDatabase(config, 'doctor', FEW_CONNECTIONS);
  try {
    const { databaseFacts } = await import('./backends/postgres/checkup.ts');
    return await databaseFacts(pool);
  } finally {
    await pool.close();
  }
}

/** A database that is away is for the operator to mend. */
async function inWords<T>(config: Config, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof StoreUnavailableError)) throw error;
    throw new DatabaseAwayError(
      `The database ${withoutSecrets(config.storeUrl)} cannot be reached: ${error.message}\nIs it running, and is STORE_URL right?`,
      { cause: error },
    );
  }
}
