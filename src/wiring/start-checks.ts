/**
 * What a server does before it opens anything: it prepares the data folder, the database and Kafka, and verifies that
 * they belong together. Otherwise it refuses to start, with an `OperatorError` that says what to do. `sluice doctor`
 * asks the same functions what a start would say.
 */

import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../config/config.ts';
import { hasSegments, logFolderOf, storeFileOf } from '../data-folder/files.ts';
import { OperatorError } from '../errors.ts';
import { LOCAL_PARTITION, LogCorruptError } from '../log.ts';
import { assertProcessed, positionInLocalLog, returnedRecords, returnedRecordsText } from '../log/continuity.ts';
import { NO_HOURS, type Store, type StoredLedger } from '../store.ts';
import {
  type Database,
  openLocalLogReader,
  openStoreIn,
  prepareDatabase,
  useAndClose,
  withDatabase,
} from './opening.ts';

type KafkaLogReader = import('../backends/kafka/reader.ts').KafkaLogReader;

/** How long a server waits for an unreachable Kafka before it starts without it. */
const UNREACHABLE_MS_MAX = 3_000;
/** How long a server waits for a topic that should exist. */
const MISSING_MS_MAX = 2_000;
const MISSING_RETRY_MS = 250;

/**
 * Creates or migrates the files of an embedded store and its keys before several threads open them: a migration of much
 * data may take minutes, and the threads wait for each other's locks for seconds only. Refuses files that do not belong
 * together. Returns warnings for the operator, and the position up to which an embedded store has processed the log.
 */
export async function prepareDataFolder(config: Config): Promise<{ startWarnings: string[]; processed: number }> {
  const { dataFolder, storeUrl, logUrl } = config;
  const { tieDataFolder, wasUsedByServer } = await import('../backends/embedded/installation.ts');
  const { assertOwnSegments } = await import('../backends/embedded/log/name.ts');
  const logEnd = await import('../backends/embedded/log/recovery.ts');
  const { noteLogWarning } = await import('../backends/embedded/log/warnings.ts');
  const isServed = wasUsedByServer(dataFolder);
  const startWarnings = storeUrl === '' ? tieDataFolder(dataFolder) : [];
  if (logUrl !== '') return { startWarnings, processed: 0 };
  const folder = logFolderOf(dataFolder);
  let ledger: StoredLedger | null = null;
  try {
    assertOwnSegments(folder);
    if (storeUrl === '') ledger = await ledgerOfStoreFile(config);
  } catch (error) {
    throwAsOperatorError(error);
  }
  const processed = ledger === null ? 0 : positionInLocalLog(ledger.positions);
  startWarnings.push(...logEnd.removeOutdatedMarkers(folder));
  if (ledger !== null) startWarnings.push(...(await returnedRecordsTexts(dataFolder, ledger)));
  if (logEnd.isEndUnknown(folder, processed, isServed)) {
    const message = `${logEnd.unknownEndText(folder)}; the end that the log has is noted now`;
    noteLogWarning(folder, message);
    logEnd.rewriteLogEnds(folder);
    startWarnings.push(message);
  }
  logEnd.createLogEnds(folder);
  return { startWarnings, processed };
}

/** Throws `LogCorruptError` where the store was made from another log. */
async function ledgerOfStoreFile(config: Config): Promise<StoredLedger> {
  const { openSqliteStore } = await import('../backends/embedded/store/store.ts');
  const store = openSqliteStore(storeFileOf(config.dataFolder));
  return useAndClose(store, async () => {
    await assertLogOfStore(config, store);
    return store.ledger(null, NO_HOURS);
  });
}

async function returnedRecordsTexts(dataFolder: string, { lost }: StoredLedger): Promise<string[]> {
  const log = await openLocalLogReader(dataFolder);
  const returned = await useAndClose(log, () => returnedRecords(log, lost));
  return [...returned].map(returnedRecordsText);
}

/**
 * `prepareDatabase` for a server, which also verifies that its log is the one that the database is written from, and
 * that no other one is left behind. Returns the installation id of the database: the server uses no other from then on.
 */
export async function prepareServerDatabase(config: Config): Promise<string> {
  await prepareDatabase(config);
  const { localLogName } = await import('../backends/embedded/log/name.ts');
  const { installationOf, problemWithoutTopic } = await import('../backends/postgres/identity.ts');
  return withDatabase(config, async (pool) => {
    const problem = await (config.logUrl === '' ? problemWithoutTopic(pool) : problemOfLogLeftBehind(config, pool));
    if (problem !== null) throw new OperatorError(problem);
    const installation = await installationOf(pool);
    if (config.logUrl !== '') return installation;
    const name = localLogName(logFolderOf(config.dataFolder));
    const store = await openStoreIn(pool.share(), config, () => name);
    await useAndClose(store, () => assertLogOfStore(config, store));
    return installation;
  }).catch(throwAsOperatorError);
}

/**
 * Why a server with LOG_URL must not start yet: the log in its data folder holds requests for this database, which no
 * server would process. Null if it does not. Throws `LogCorruptError` if that log cannot be read.
 */
export async function problemOfLogLeftBehind(config: Config, pool: Database): Promise<string | null> {
  const { dataFolder } = config;
  if (!hasSegments(dataFolder)) return null;
  const { readLogInstallation } = await import('../backends/embedded/installation.ts');
  const { findLogName } = await import('../backends/embedded/log/name.ts');
  const { installationOf, knowsLog, topicOf } = await import('../backends/postgres/identity.ts');
  const folder = logFolderOf(dataFolder);
  const name = findLogName(folder);
  if (name === undefined) return null;
  const isOurs = readLogInstallation(folder) === (await installationOf(pool)) || (await knowsLog(pool, name));
  if (!isOurs) return null;
  const store = await openStoreIn(pool.share(), config, () => name);
  const position = await useAndClose(store, () => processedBy(store));
  const log = await openLocalLogReader(config.dataFolder);
  const { headers } = await useAndClose(log, () => log.headers(LOCAL_PARTITION, position, 1));
  if (headers.length === 0) return null;
  const first =
    (await topicOf(pool)) === null ? '' : 'Run in the database: UPDATE sluice.identity SET log = NULL. Then start';
  return (
    `The log in ${resolve(folder)} has requests that are not processed yet, and a server with LOG_URL does not process them. ` +
    `${first || 'Start'} a server without LOG_URL on this data folder, stop it when its sluice_backlog_bytes is 0, and start ` +
    `this one again. To leave what is in the log behind, move ${resolve(folder)} elsewhere.`
  );
}

/** After the database is prepared: the topic exists, is safe, and belongs to this database. */
export async function prepareKafka(config: Config): Promise<void> {
  const { tieToTopic, topicOf } = await import('../backends/postgres/identity.ts');
  await withDatabase(config, async (pool) => {
    const topic = await prepareTopic(config, await topicOf(pool));
    await useAndClose(topic, () => tieToTopic(pool, topic));
  });
}

/** `known`: the log that the database is written from; a new topic could not be that one, so none is created then. */
async function prepareTopic(config: Config, known: string | null): Promise<KafkaLogReader> {
  const { openKafkaLogReader, NoTopicError } = await import('../backends/kafka/log.ts');
  const { problemOfMissingTopic } = await import('../backends/postgres/identity.ts');
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

/** Up to where a store has processed the local log. */
export async function processedBy(store: Store): Promise<number> {
  return positionInLocalLog((await store.ledger(null, NO_HOURS)).positions);
}

/** Throws `LogCorruptError` if the position of the store covers records of the local log that it never processed. */
export async function assertLogOfStore(config: Config, store: Store): Promise<void> {
  if (config.logUrl !== '') return;
  const { newestRecordBefore } = await import('../backends/embedded/log/recovery.ts');
  const position = await processedBy(store);
  const newest = newestRecordBefore(logFolderOf(config.dataFolder), position);
  if (newest !== undefined) await assertProcessed(store, newest, position, Date.now() - config.eventRetentionMs);
}

function throwAsOperatorError(error: unknown): never {
  if (!(error instanceof LogCorruptError)) throw error;
  throw new OperatorError(error.message, { cause: error });
}
