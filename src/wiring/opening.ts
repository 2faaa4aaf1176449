/**
 * Opens what a server or a command works on, wherever the settings say it is: files in the data folder, PostgreSQL,
 * Kafka. Checks first that these belong together, and refuses to open them otherwise. Only `main.ts` and the files of
 * this folder name concrete backends; each backend is imported on first use, so that no command loads a database client
 * that it does not need.
 */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { refuseUnfinishedRestore } from '../backup/restore-marker.ts';
import type { DatabaseFacts, DoctorShell } from '../cli/doctor-checks.ts';
import type { Shell } from '../cli/shell.ts';
import type { TrustedClock } from '../clock/clock.ts';
import type { Config } from '../config/config.ts';
import { matchOptionsOf } from '../config/match-options.ts';
import { withoutSecrets } from '../config/values.ts';
import { hasSegments, keyFileOf, logFolderOf, serverUrlIn, sizeOfFile, storeFileOf } from '../data-folder/files.ts';
import { DatabaseUnreachableError, isAway } from './late-start.ts';
import { OperatorError } from '../errors.ts';
import { LOCAL_PARTITION, LogCorruptError, type LogReader, LogUnavailableError, LogUnreachableError } from '../log.ts';
import { assertProcessed, type LogInspection, positionInLocalLog } from '../log/continuity.ts';
import { hasLostKeys, refuseLostKeys } from '../data-folder/lost-keys.ts';
import type { MemberStore } from '../members.ts';
import {
  problemOfLostMarker,
  problemOfOtherDatabase,
  refuseMigratedFolder,
  refuseUnmigratedFolder,
} from '../migration/marker.ts';
import { createReading } from '../views/reading.ts';
import type { KeyStore } from '../keys.ts';
import { NO_HOURS, type Store } from '../store.ts';
import { StoreUnavailableError } from '../store-writer.ts';

export type Database = import('../backends/postgres/pool.ts').PostgresPool;
type KafkaLogReader = import('../backends/kafka/reader.ts').KafkaLogReader;
type PoolOptions = import('../backends/postgres/pool.ts').PoolOptions;
export type InstallationCheck = import('../backends/postgres/pool.ts').InstallationCheck;

/** Enough for threads and commands that make one call after another. */
const FEW_CONNECTIONS = 2;
/** How long a command waits for a log that does not respond. */
const COMMAND_MS_MAX = 5_000;
/** How long a server waits for an unreachable Kafka before it starts without it. */
const UNREACHABLE_MS_MAX = 3_000;
/** How long a server waits for a topic that should exist. */
const MISSING_MS_MAX = 2_000;
const MISSING_RETRY_MS = 250;
/** Options of a log reader that never deletes anything. */
const READ_ONLY = { retentionMs: Number.MAX_SAFE_INTEGER, now: Date.now };

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

function poolOptions(
  { storeUrl, storeTimeoutMs }: Config,
  name: string,
  max: number,
  installation?: InstallationCheck,
): PoolOptions {
  const options = { url: storeUrl, max, applicationName: `sluice ${name}`, statementTimeoutMs: storeTimeoutMs };
  return installation === undefined ? options : { ...options, installation };
}

/**
 * Prepares a database for a server; runs once, when the database first responds. Creates the tables or migrates them to
 * the current schema. Refuses, without changing anything, if the data folder was migrated to another database or still
 * has embedded data; also refuses if a migration into this database is unfinished.
 */
export async function prepareDatabase(config: Config): Promise<void> {
  const { dataFolder, logUrl } = config;
  if (logUrl === '') refuseUnmigratedFolder(dataFolder);
  const [{ migrate }, { findMigration, refuseUnfinishedMigration }, { continueArrivalNumbers }] = await Promise.all([
    import('../backends/postgres/migrations.ts'),
    import('../backends/postgres/migration-state.ts'),
    import('../backends/postgres/arrival-numbers.ts'),
  ]);
  await onDatabase(config, async (pool) => {
    const problem = logUrl === '' ? problemOfOtherDatabase(dataFolder, (await findMigration(pool))?.id) : null;
    if (problem !== null) throw new OperatorError(problem);
    await migrate(pool);
    await refuseUnfinishedMigration(pool);
    if (logUrl === '') await tieLocalLog(config, pool);
    await continueArrivalNumbers(pool);
  });
}

/** For one step of a start. */
async function onDatabase<T>(config: Config, work: (pool: Database) => Promise<T>): Promise<T> {
  const pool = await openDatabase(config, 'start', FEW_CONNECTIONS);
  return closing(pool, () => translateUnreachable(config, () => work(pool)));
}

/** Closes it when the work has ended, however it ended. */
export async function closing<T>(opened: { close(): Promise<void> }, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } finally {
    await opened.close();
  }
}

/** The same for Kafka, after the database is prepared: the topic exists, is safe, and belongs to this database. */
export async function prepareLog(config: Config): Promise<void> {
  const { tieToTopic, topicOf } = await import('../backends/postgres/identity.ts');
  await onDatabase(config, async (pool) => {
    const topic = await prepareTopic(config, await topicOf(pool));
    try {
      await closing(topic, () => tieToTopic(pool, topic));
    } catch (error) {
      if (!(error instanceof LogUnavailableError)) throw error;
      throw new LogUnreachableError(`Kafka cannot be used: ${error.message}`, { cause: error });
    }
  });
}

/** `known`: the log that the database is written from; a new topic could not be that one, so none is created then. */
async function prepareTopic(config: Config, known: string | null): Promise<KafkaLogReader> {
  const [{ openKafkaLogReader, NoTopicError }, { problemOfMissingTopic }] = await Promise.all([
    import('../backends/kafka/log.ts'),
    import('../backends/postgres/identity.ts'),
  ]);
  const { logUrl: url, logRetentionMs: retentionMs } = config;
  const setup = { url, retentionMs, unreachableMsMax: UNREACHABLE_MS_MAX, createsTopic: known === null };
  for (const begin = performance.now(); ; await sleep(MISSING_RETRY_MS)) {
    try {
      return await openKafkaLogReader(setup, config.role === 'api');
    } catch (error) {
      if (!(error instanceof NoTopicError) || known === null) throw error;
      // Another server may have created it a moment ago, and this broker not know it yet.
      if (performance.now() - begin > MISSING_MS_MAX) throw new OperatorError(problemOfMissingTopic(known));
    }
  }
}

/**
 * `prepareDatabase` for a server, which also verifies that its log is the one that the database is written from, and
 * that no other one is left behind. Returns the installation id of the database: the server uses no other from then on.
 */
export async function prepareServerDatabase(config: Config): Promise<string> {
  await prepareDatabase(config);
  const [{ localLogName }, { installationOf, problemWithoutTopic }] = await Promise.all([
    import('../backends/sqlite/log/name-and-end.ts'),
    import('../backends/postgres/identity.ts'),
  ]);
  return onDatabase(config, async (pool) => {
    const problem = await (config.logUrl === '' ? problemWithoutTopic(pool) : problemOfLogLeftBehind(config, pool));
    if (problem !== null) throw new OperatorError(problem);
    const installation = await installationOf(pool);
    if (config.logUrl !== '') return installation;
    const name = localLogName(logFolderOf(config.dataFolder));
    const store = await storeOn(pool.share(), config, () => name);
    await closing(store, () => assertLogOfStore(config, store));
    return installation;
  }).catch(throwAsOperatorError);
}

/** Up to where a store has processed the local log. */
export async function processedBy(store: Store): Promise<number> {
  return positionInLocalLog((await store.ledger(null, NO_HOURS)).positions);
}

/** Throws `LogCorruptError` if the position of the store covers records of the local log that it never processed. */
async function assertLogOfStore(config: Config, store: Store): Promise<void> {
  if (config.logUrl !== '') return;
  const { newestRecordBefore } = await import('../backends/sqlite/log/reader.ts');
  const position = await processedBy(store);
  const newest = newestRecordBefore(logFolderOf(config.dataFolder), position);
  if (newest !== undefined) await assertProcessed(store, newest, position, Date.now() - config.eventRetentionMs);
}

/** Ensures that the log in the data folder belongs to this database, was migrated to it with its store, or is new. */
async function tieLocalLog(config: Config, pool: Database): Promise<void> {
  const folder = logFolderOf(config.dataFolder);
  // A command on a machine without a log.
  if (!existsSync(folder)) return;
  const problem = await problemOfLocalLog(config, pool);
  if (problem !== null) throw new OperatorError(problem);
  const [{ readLogInstallation, writeLogInstallation }, { installationOf }] = await Promise.all([
    import('../backends/sqlite/installation.ts'),
    import('../backends/postgres/identity.ts'),
  ]);
  // A log that came with a migration keeps the id of the embedded files beside it, which an operator may go back to.
  if (readLogInstallation(folder) === undefined) writeLogInstallation(folder, await installationOf(pool));
}

/** Why the local log cannot be used with this database; null if it belongs to it or is new. Creates nothing. */
async function problemOfLocalLog({ dataFolder, storeUrl }: Config, pool: Database): Promise<string | null> {
  const [{ readLogInstallation }, { findLogName }, { installationOf, knowsLog }, { findMigration }] = await Promise.all(
    [
      import('../backends/sqlite/installation.ts'),
      import('../backends/sqlite/log/name-and-end.ts'),
      import('../backends/postgres/identity.ts'),
      import('../backends/postgres/migration-state.ts'),
    ],
  );
  const folder = logFolderOf(dataFolder);
  const [ours, theirs, logName] = [readLogInstallation(folder), await installationOf(pool), findLogName(folder)];
  const move = await findMigration(pool);
  if (move !== undefined && move.log === logName) {
    return problemOfLostMarker(dataFolder, move, withoutSecrets(storeUrl));
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

/**
 * Why a server with LOG_URL must not start yet: the log in its data folder holds requests for this database, which no
 * server would process. Null if it does not. Throws `LogCorruptError` if that log cannot be read.
 */
async function problemOfLogLeftBehind(config: Config, pool: Database): Promise<string | null> {
  const { dataFolder } = config;
  if (!hasSegments(dataFolder)) return null;
  const [{ readLogInstallation }, { findLogName }, { installationOf, knowsLog, topicOf }] = await Promise.all([
    import('../backends/sqlite/installation.ts'),
    import('../backends/sqlite/log/name-and-end.ts'),
    import('../backends/postgres/identity.ts'),
  ]);
  const folder = logFolderOf(dataFolder);
  const name = findLogName(folder);
  if (name === undefined) return null;
  const isOurs = readLogInstallation(folder) === (await installationOf(pool)) || (await knowsLog(pool, name));
  if (!isOurs) return null;
  const store = await storeOn(pool.share(), config, () => name);
  const position = await closing(store, () => processedBy(store));
  const log = await localLog(config.dataFolder);
  const { headers } = await closing(log, () => log.headers(LOCAL_PARTITION, position, 1));
  if (headers.length === 0) return null;
  const first =
    (await topicOf(pool)) === null ? '' : 'Run in the database: UPDATE sluice.identity SET log = NULL. Then start';
  return (
    `The log in ${resolve(folder)} has requests that are not processed yet, and a server with LOG_URL does not process them. ` +
    `${first || 'Start'} a server without LOG_URL on this data folder, stop it when its sluice_backlog_bytes is 0, and start ` +
    `this one again. To leave what is in the log behind, move ${resolve(folder)} elsewhere.`
  );
}

/**
 * Creates or migrates the files of an embedded store and its keys before several threads open them: a migration of much
 * data may take minutes, and the threads wait for each other's locks for seconds only. Refuses files that do not belong
 * together. Returns warnings for the operator, and the position up to which an embedded store has processed the log.
 */
export async function prepareDataFolder(config: Config): Promise<{ startWarnings: string[]; processed: number }> {
  const { dataFolder, storeUrl, logUrl } = config;
  const [{ tieDataFolder, wasUsedByServer }, ends, { noteLogWarning }] = await Promise.all([
    import('../backends/sqlite/installation.ts'),
    import('../backends/sqlite/log/name-and-end.ts'),
    import('../backends/sqlite/log/warnings.ts'),
  ]);
  const isServed = wasUsedByServer(dataFolder);
  const startWarnings = storeUrl === '' ? tieDataFolder(dataFolder) : [];
  let processed = 0;
  if (logUrl !== '') return { startWarnings, processed };
  const folder = logFolderOf(dataFolder);
  try {
    ends.assertOwnSegments(folder);
    if (storeUrl === '') processed = await processedByStoreFile(config);
  } catch (error) {
    throwAsOperatorError(error);
  }
  if (ends.isEndUnknown(folder, processed, isServed)) {
    const words = `${ends.unknownEndText(folder)}; the end that the log has is noted now`;
    noteLogWarning(folder, words);
    ends.noteUnknownEnd(folder);
    startWarnings.push(words);
  }
  ends.beginLogEnds(folder);
  return { startWarnings, processed };
}

/** Throws `LogCorruptError` where the store was made from another log. */
async function processedByStoreFile(config: Config): Promise<number> {
  const { openSqliteStore } = await import('../backends/sqlite/store/store.ts');
  const store = openSqliteStore(storeFileOf(config.dataFolder));
  return closing(store, async () => {
    await assertLogOfStore(config, store);
    return processedBy(store);
  });
}

/**
 * What a start would report about the local log, determined by the same functions. Read-only. `store`: undefined if
 * there is none yet, null if it cannot be read.
 */
export async function inspectLocalLog(config: Config, store: Store | undefined | null): Promise<LogInspection> {
  const [
    { readLogInstallation, wasUsedByServer },
    ends,
    { readLogWarnings },
    { unrecoverableSegments },
    { lockHolderOf },
  ] = await Promise.all([
    import('../backends/sqlite/installation.ts'),
    import('../backends/sqlite/log/name-and-end.ts'),
    import('../backends/sqlite/log/warnings.ts'),
    import('../backends/sqlite/checkup.ts'),
    import('../backends/sqlite/folder-lock.ts'),
  ]);
  const folder = logFolderOf(config.dataFolder);
  const refusals = [
    await refusalBy(async () => void readLogInstallation(folder)),
    await refusalBy(async () => ends.assertOwnSegments(folder)),
    store ? await refusalBy(() => assertLogOfStore(config, store)) : null,
  ].filter((words) => words !== null);
  const noted = readLogWarnings(folder);
  // While a server writes the log, its end changes.
  const isAtRest = !lockHolderOf(config.dataFolder).isHeld;
  const refusedSegments = isAtRest ? unrecoverableSegments(folder) : new Map<string, string>();
  if (!isAtRest || refusals.length > 0 || refusedSegments.size > 0) {
    return { refusals, refusedSegments, unknownEnd: null, missing: null, noted };
  }
  const processed = store ? await processedBy(store) : 0;
  const isUnknown = ends.isEndUnknown(folder, processed, wasUsedByServer(config.dataFolder));
  const unknownEnd = isUnknown ? ends.unknownEndText(folder) : null;
  const missing = store === null ? null : ends.missingAtEnd(folder, processed);
  return { refusals, refusedSegments, unknownEnd, missing, noted };
}

async function refusalBy(check: () => Promise<void>): Promise<string | null> {
  try {
    await check();
    return null;
  } catch (error) {
    if (!(error instanceof LogCorruptError) && !(error instanceof OperatorError)) throw error;
    return error.message;
  }
}

function throwAsOperatorError(error: unknown): never {
  if (!(error instanceof LogCorruptError)) throw error;
  throw new OperatorError(error.message, { cause: error });
}

/** The URL of the server running on the data folder; undefined if there is none, or if servers share a log. */
export async function findServer({ dataFolder, logUrl }: Config): Promise<string | undefined> {
  if (logUrl !== '') return undefined;
  const { lockHolderOf } = await import('../backends/sqlite/folder-lock.ts');
  return lockHolderOf(dataFolder).isHeld ? serverUrlIn(dataFolder) : undefined;
}

/** One that was migrated to PostgreSQL, or into which a backup is only half restored. */
function refuseUnusableFolder({ dataFolder }: Pick<Config, 'dataFolder'>): void {
  refuseMigratedFolder(dataFolder);
  refuseUnfinishedRestore(dataFolder);
}

/** Creates the key store if it is missing, except in a data folder that has lost its keys. */
export async function openKeyStore(config: Config): Promise<KeyStore> {
  if (config.storeUrl === '') {
    refuseUnusableFolder(config);
    refuseLostKeys(config.dataFolder);
    const { openSqliteKeyStore } = await import('../backends/sqlite/keys.ts');
    return openSqliteKeyStore(keyFileOf(config.dataFolder));
  }
  await prepareDatabase(config);
  return keyStoreOn(await openDatabase(config, 'keys', FEW_CONNECTIONS));
}

/** Creates a new key store in a data folder that has lost its own. */
export async function replaceLostKeys({ dataFolder, storeUrl }: Config, now: number): Promise<KeyStore> {
  if (storeUrl !== '')
    throw new OperatorError('The keys are in PostgreSQL (STORE_URL). Leave --replace-lost-keys out.');
  refuseUnusableFolder({ dataFolder });
  const lostAccounts = await import('../backends/sqlite/lost-accounts.ts');
  return lostAccounts.replaceLostKeys(dataFolder, now);
}

/** Creates nothing: undefined if there is no key store. */
export async function findKeyStore(config: Config): Promise<KeyStore | undefined> {
  if (config.storeUrl === '') {
    // Before its keys are there, a folder would look like a new one.
    refuseUnfinishedRestore(config.dataFolder);
    if (hasLostKeys(config.dataFolder)) return undefined;
    return existsSync(keyFileOf(config.dataFolder)) ? openKeyStore(config) : undefined;
  }
  const pool = await findDatabase(config);
  return pool === undefined ? undefined : keyStoreOn(pool);
}

export async function openMemberStore(config: Config): Promise<MemberStore> {
  if (config.storeUrl === '') {
    refuseUnusableFolder(config);
    refuseLostKeys(config.dataFolder);
    const { openSqliteMemberStore } = await import('../backends/sqlite/keys.ts');
    return openSqliteMemberStore(keyFileOf(config.dataFolder));
  }
  return memberStoreOn(await openDatabase(config, 'members', FEW_CONNECTIONS));
}

export async function keyStoreOn(pool: Database): Promise<KeyStore> {
  const { openPostgresKeyStore } = await import('../backends/postgres/keys.ts');
  return openPostgresKeyStore(pool);
}

export async function memberStoreOn(pool: Database): Promise<MemberStore> {
  const { openPostgresMemberStore } = await import('../backends/postgres/keys.ts');
  return openPostgresMemberStore(pool);
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
    const { openSqliteStore } = await import('../backends/sqlite/store/store.ts');
    const store = openSqliteStore(file, { matchOptions: matchOptionsOf(config), isForCommand: true });
    return createReading(store, await localLog(config.dataFolder));
  }
  const pool = await findDatabase(config);
  return pool === undefined ? undefined : readingOn(pool, config);
}

/** The store in the database, completed by what is still in the log; closes both, and its connections. */
async function readingOn(pool: Database, config: Config): Promise<Store> {
  try {
    const log = await findLogReader(config);
    // A machine without a log can read a shared store. The name would be created, were it asked for.
    const logName = (): string => log?.name ?? 'none';
    return createReading(await storeOn(pool, config, logName), log ?? (await localLog(config.dataFolder)));
  } catch (error) {
    await pool.close();
    throw error;
  }
}

/** Without what is still in the log. */
export async function storeOn(pool: Database, config: Config, logName: () => string): Promise<Store> {
  const { openPostgresStore } = await import('../backends/postgres/store.ts');
  return openPostgresStore({ pool, logName, matchOptions: matchOptionsOf(config) });
}

/** For a command: creates nothing, and waits only briefly. Undefined if there never was a log. */
export async function findLogReader(
  config: Config,
  warn: (message: string) => void = () => undefined,
): Promise<LogReader | undefined> {
  const { hasEverExisted } = await import('../backends/sqlite/log/name-and-end.ts');
  const isThere = config.logUrl !== '' || hasEverExisted(logFolderOf(config.dataFolder));
  return isThere ? openLogReader(config, warn, { createsTopic: false, openMsMax: COMMAND_MS_MAX }) : undefined;
}

/**
 * Deletes nothing. For a server, unless `options` say otherwise, which waits for a shared log that starts at the same time,
 * and makes it if it is missing.
 */
export async function openLogReader(
  { dataFolder, logUrl, logRetentionMs }: Config,
  warn: (message: string) => void,
  options: { readonly createsTopic?: boolean; readonly openMsMax?: number } = {},
): Promise<LogReader> {
  if (logUrl === '') return localLog(dataFolder);
  const { openKafkaLogReader } = await import('../backends/kafka/log.ts');
  return openKafkaLogReader({ url: logUrl, retentionMs: logRetentionMs, warn, ...options });
}

async function localLog(dataFolder: string): Promise<LogReader> {
  const { openSqliteLogReader } = await import('../backends/sqlite/log/reader.ts');
  return openSqliteLogReader({ folder: logFolderOf(dataFolder), ...READ_ONLY });
}

/**
 * The clock of a thread that receives or processes events. It continues from the newest time in the log, of an erase in
 * the store, and, in an embedded store, of the newest event, in case the log was removed. Call it after the log was
 * checked. `isAway`: the database (and Kafka) are opened later; the clock is unverified until `continueClock` is called.
 */
export async function openClock(
  config: Config,
  warn: (message: string) => void,
  shared: BigInt64Array | null = null,
  isAway = false,
): Promise<TrustedClock> {
  const { TrustedClock } = await import('../clock/clock.ts');
  const isLogAway = isAway && config.logUrl !== '';
  const newest = Math.max(
    isLogAway ? 0 : await ifReachable('the newest event', warn, () => newestInLog(config)),
    isAway ? 0 : await ifReachable('the last erase', warn, () => newestInStore(config)),
  );
  const { clockJumpMsMax: jumpMsMax, clockGapMsMax: gapMsMax } = config;
  return new TrustedClock({ newest, isUnverified: isAway, jumpMsMax, gapMsMax, shared });
}

/** Verifies a clock by what the log and the database contain. Call it before the clock gives a time that is stored. */
export async function continueClock(config: Config, database: Database, clock: TrustedClock): Promise<void> {
  if (!clock.isUnverified) return;
  const { newestErase } = await import('../backends/postgres/store-erase.ts');
  const newest = Math.max(await newestInLog(config), await newestErase(database));
  clock.continueFrom(newest);
}

/** A log or a database that was there a moment ago and does not respond now is no reason not to start. */
async function ifReachable(
  what: string,
  warn: (message: string) => void,
  read: () => Promise<number>,
): Promise<number> {
  try {
    return await read();
  } catch (error) {
    if (!isAway(error)) throw error;
    warn(`the clock cannot be compared with ${what}: ${error.message}`);
    return 0;
  }
}

async function newestInLog(config: Config): Promise<number> {
  const log = await openLogReader(config, () => undefined);
  return closing(log, () => log.newestReceivedAt());
}

async function newestInStore(config: Config): Promise<number> {
  if (config.storeUrl !== '') {
    const { newestErase } = await import('../backends/postgres/store-erase.ts');
    const database = await connectLater(() => null, config, 'start', 1);
    return closing(database, () => newestErase(database));
  }
  const file = storeFileOf(config.dataFolder);
  if (!existsSync(file)) return 0;
  const { newestProcessed } = await import('../backends/sqlite/store/schema.ts');
  return newestProcessed(file);
}

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
  const [{ databaseFacts }, { findMigration, problemOfUnfinishedMigration }] = await Promise.all([
    import('../backends/postgres/checkup.ts'),
    import('../backends/postgres/migration-state.ts'),
  ]);
  const pool = await openDatabase(config, 'doctor', FEW_CONNECTIONS);
  return closing(pool, async () => {
    const facts = await databaseFacts(pool);
    const move = await findMigration(pool);
    const problemOfFolder = config.logUrl === '' ? problemOfOtherDatabase(config.dataFolder, move?.id) : null;
    // Without the last of its tables, nothing was written to it yet.
    const hasTables = facts.migrations !== null && facts.migrationsMissing === 0;
    return {
      ...facts,
      problemOfMigration: problemOfFolder ?? problemOfUnfinishedMigration(move),
      problemOfLog: hasTables ? await problemOfAnyLog(config, pool) : null,
    };
  });
}

/** Why a start would refuse the log of these settings with this database; null if it would not. Creates nothing. */
async function problemOfAnyLog(config: Config, pool: Database): Promise<string | null> {
  const { problemOfTopic, problemWithoutTopic } = await import('../backends/postgres/identity.ts');
  if (config.logUrl === '') {
    const problem = await problemWithoutTopic(pool);
    return problem ?? (existsSync(logFolderOf(config.dataFolder)) ? problemOfLocalLog(config, pool) : null);
  }
  // The check of the log reports why it cannot be opened.
  const log = await findLogReader(config).catch(() => undefined);
  const problem = log === undefined ? null : await problemOfTopic(pool, log.name);
  await log?.close();
  return problem ?? problemOfLogLeftBehind(config, pool);
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

/** What `sluice doctor` looks at beside what every command has. */
export async function doctorParts(): Promise<Omit<DoctorShell, keyof Shell>> {
  const [
    { listSegments },
    { findingsInStore, freeBytesOf },
    { isBackupRunning, lockHolderOf },
    { problemOfInstallation },
  ] = await Promise.all([
    import('../backends/sqlite/log/segments.ts'),
    import('../backends/sqlite/checkup.ts'),
    import('../backends/sqlite/folder-lock.ts'),
    import('../backends/sqlite/installation.ts'),
  ]);
  return {
    findLogReader,
    inspectLocalLog,
    segments: (folder) => listSegments(logFolderOf(folder)),
    problemOfInstallation,
    lockHolder: lockHolderOf,
    isBackupRunning: (folder) => isBackupRunning(logFolderOf(folder)),
    freeBytes: freeBytesOf,
    checkStoreFile: async (folder, isDeep) => findingsInStore(storeFileOf(folder), isDeep),
    lookAtDatabase,
  };
}
