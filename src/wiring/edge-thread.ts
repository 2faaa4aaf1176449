/**
 * An edge thread of `sluice serve`: opens what it works on in each of the three deployments (files in the data folder
 * only; PostgreSQL with a local log; PostgreSQL and Kafka), and starts its HTTP server. It has one connection pool, which
 * everything it opens shares.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { watchClock } from '../clock/clock.ts';
import type { Config } from '../config/config.ts';
import { matchOptionsOf } from '../config/match-options.ts';
import { servesApi, servesIngest } from '../config/roles.ts';
import { logFolderOf } from '../data-folder/files.ts';
import type { EdgeParts } from '../edge/edge.ts';
import type { Predict } from '../edge/request-intake.ts';
import { messageOf, OperatorError } from '../errors.ts';
import type { LogAppender, LogReader } from '../log.ts';
import { watchBacklog } from '../log/backlog.ts';
import { isHarmless, missingRecordsText } from '../log/continuity.ts';
import { NO_HOURS, type Predictions, type Store } from '../store.ts';
import { METRIC, metricsWriter } from '../telemetry/metrics.ts';
import { createLogger, OutageLog } from '../telemetry/logger.ts';
import { withPendingRecords } from '../views/reading.ts';
import { untilReachable } from './late-start.ts';
import { openClock } from './open-clock.ts';
import {
  connectLater,
  type Database,
  type InstallationCheck,
  openKeyStore,
  openKeyStoreIn,
  openLogReader,
  openStoreIn,
  useAndClose,
} from './opening.ts';
import { processedBy } from './start-checks.ts';
import {
  type EdgeSetup,
  installationCheck,
  setBacklogFull,
  statusOf,
  type SupervisorMessage,
  type ThreadMessage,
} from './supervisor.ts';

const WATCH_INTERVAL_MS = 1_000;
/** Far below SLUICE_STORE_TIMEOUT, which is for long statements: a database that hangs must be noticed within seconds. */
const WATCH_MS_MAX = 5_000;

async function runEdge(setup: EdgeSetup): Promise<void> {
  const { config, index, metricsBuffer } = setup;
  const send = (message: ThreadMessage): void => parentPort?.postMessage(message);
  try {
    let processingProblem: string | null = null;
    const portIsFree = Promise.withResolvers<void>();
    parentPort?.on('message', (message: SupervisorMessage) => {
      if (message.type === 'processing') processingProblem = message.problem;
      if (message.type === 'listen') portIsFree.resolve();
    });
    const onFatal = (message: string): void =>
      send({ type: 'fatal', message: `the log cannot be written any more: ${message}` });
    const opening = config.storeUrl === '' ? openEmbedded(setup, onFatal) : openShared(setup, onFatal);
    // The log is checked in its own thread while this one loads the rest.
    const [{ startEdge }, opened] = await Promise.all([import('../edge/edge.ts'), opening]);
    const logger = createLogger(config.logLevel, `edge-${index}`);
    const newest = config.edges > 1 ? new BigInt64Array(setup.clockBuffer) : null;
    const clock = await openClock(config, (message) => logger.warn(message), newest);
    const metrics = metricsWriter(metricsBuffer, 2 * index);
    const stopWatching = watchClock({ clock, metrics, logger });
    const edge = await startEdge(
      {
        ...setup,
        ...opened.parts,
        startWarnings: await warningsOf(setup),
        processingProblem: () => processingProblem,
        metrics: { buffer: metricsBuffer, slot: 2 * index },
        status: statusOf(setup.statusBuffer),
        logger,
        now: Date.now,
        receiptTime: clock.now,
        newestTraceId: new BigInt64Array(setup.traceIdBuffer),
        handOverUsage: (keyUsage) => send({ type: 'keyUsage', keyUsage }),
        mayListen: () => {
          send({ type: 'opened' });
          return portIsFree.promise;
        },
      },
      setup.port,
    );
    const stop = async (): Promise<void> => {
      opened.stop();
      await edge.stop();
      stopWatching();
      await opened.close();
      send({ type: 'stopped' });
    };
    parentPort?.on('message', (message: SupervisorMessage) => {
      if (message.type === 'stop') void stop();
    });
    send({ type: 'started', port: edge.port });
  } catch (error) {
    // What the operator can fix gets a message; anything else is a bug and crashes with its stack.
    if (!(error instanceof OperatorError)) throw error;
    send({ type: 'start-failed', message: error.message });
  }
}

interface OpenedEdge {
  readonly parts: Pick<EdgeParts, 'receiving' | 'keyStore' | 'reading' | 'storeProblem'>;
  /** Before the edge stops: nothing new begins in the background. */
  stop(): void;
  /** After the edge has stopped, and closed its parts. */
  close(): Promise<void>;
}

/** Everything in the data folder; the store is read in its own thread, since SQLite blocks. */
async function openEmbedded(setup: EdgeSetup, onFatal: (message: string) => void): Promise<OpenedEdge> {
  const { config } = setup;
  const [log, { openSqliteStoreClient }, keyStore] = await Promise.all([
    openLocalLog(setup, async () => setup.processed, onFatal),
    import('../backends/embedded/store/client.ts'),
    openKeyStore(config),
  ]);
  const store = openSqliteStoreClient({
    dataFolder: config.dataFolder,
    matchOptions: matchOptionsOf(config),
    writeLockRequest: setup.writeLockRequest,
  });
  const receiving = { log, predict: await predictOn(store, config) };
  const parts = { receiving, keyStore, reading: store, storeProblem: () => null };
  return { parts, stop: () => undefined, close: async () => undefined };
}

/**
 * Queries the database from this thread, since its client does not block. The main thread has prepared the database and
 * Kafka before; if one of them is unavailable again by now, this waits for it.
 */
async function openShared(setup: EdgeSetup, onFatal: (message: string) => void): Promise<OpenedEdge> {
  const { config } = setup;
  const { role } = config;
  const name = role === 'all' ? 'edge' : role;
  const check = installationCheck(setup);
  const database = await connectLater(config, name, config.storeConnections, check);
  const outage = new OutageLog(createLogger(config.logLevel, `edge-${setup.index}`), {
    failing: 'the edge cannot open the log: the server has not started yet, and keeps retrying',
    working: 'the edge can open the log',
  });
  const log = servesIngest(role) ? await untilReachable(() => openAppender(setup, database, onFatal), outage) : null;
  const needsKeys = servesIngest(role) || servesApi(role);
  const keyStore = needsKeys ? await openKeyStoreIn(database.share()) : null;
  // The appender has already checked the topic; one warning is enough.
  const warn = log === null ? warner(config, role) : () => undefined;
  const logReader = needsKeys ? await untilReachable(() => openLogReader(config, warn), outage) : undefined;
  const reading = servesApi(role) && logReader !== undefined ? await readStore(database, config, logReader) : null;
  const predicting =
    log === null || logReader === undefined ? null : (reading ?? (await readStore(database, config, logReader)));
  const backlog = logReader && (await watchSharedBacklog(setup, database, logReader, onFatal));
  const watch = servesIngest(role) ? undefined : await watchDatabase(config, check);
  return {
    parts: {
      receiving: log && predicting && { log, predict: await predictOn(predicting, config) },
      keyStore,
      reading,
      storeProblem: () => watch?.problem() ?? null,
    },
    stop: () => backlog?.stop(),
    close: async () => {
      // A store that reads what is still in the log owns the log reader and closes it: that of the API, or of predictions.
      if (reading === null) await (predicting ?? logReader)?.close();
      await backlog?.close();
      await watch?.close();
      await database.close();
    },
  };
}

/** The warnings of this start, and those about a local log, which its writer or earlier starts may have recorded. */
async function warningsOf({ config, startWarnings }: EdgeSetup): Promise<() => readonly string[]> {
  if (config.logUrl !== '') return () => startWarnings;
  const { readLogWarnings } = await import('../backends/embedded/log/warnings.ts');
  const { problemOfLogEnds } = await import('../backends/embedded/log/ends.ts');
  const folder = logFolderOf(config.dataFolder);
  return () => {
    const problem = problemOfLogEnds(folder);
    const noted = readLogWarnings(folder).map(({ message }) => message);
    return [...new Set([...startWarnings, ...noted, ...(problem === null ? [] : [problem])])];
  };
}

/**
 * Checks every second whether the database is reachable. Requests never wait for a check; they use the last result. On a
 * dedicated connection: a pool that is exhausted does not mean that the database is down.
 */
async function watchDatabase(config: Config, check: InstallationCheck | undefined) {
  const database = await connectLater(config, 'watch', 1, check);
  const outage = new OutageLog(createLogger(config.logLevel, 'watch'), {
    failing: 'the store cannot be reached: not ready until it can',
    working: 'the store can be reached again',
  });
  let problem: string | null = null;
  let isUnderWay = false;
  const probe = async (): Promise<void> => {
    if (isUnderWay) return;
    isUnderWay = true;
    try {
      await database.query({ text: 'SELECT 1', timeoutMs: WATCH_MS_MAX });
      problem = null;
      outage.worked();
    } catch (error) {
      outage.failed(error);
      problem = messageOf(error);
    }
    isUnderWay = false;
  };
  const timer = setInterval(() => void probe(), WATCH_INTERVAL_MS).unref();
  return {
    problem: () => problem,
    close: () => {
      clearInterval(timer);
      return database.close();
    },
  };
}

async function readStore(database: Database, config: Config, log: LogReader): Promise<Store> {
  return withPendingRecords(await openStoreIn(database.share(), config, () => log.name), log);
}

/** A request as the log of this server would return it to the processor. */
async function predictOn(store: Predictions, { logUrl }: Config): Promise<Predict> {
  if (logUrl === '') {
    return (entry) => store.predict(entry.tenantId, [{ ...entry, partition: 0, position: 0, firstUserIndex: 0 }]);
  }
  const { recordsOf } = await import('../backends/kafka/message.ts');
  return (entry) => store.predict(entry.tenantId, recordsOf(entry));
}

/**
 * Where the log is shared, the first edge of a server looks how much of it waits. If an operator has bound the database
 * to another topic, what this server reads means nothing any more, and it ends.
 */
async function watchSharedBacklog(
  setup: EdgeSetup,
  database: Database,
  log: LogReader,
  onFatal: (message: string) => void,
) {
  const { config, index, metricsBuffer, statusBuffer } = setup;
  if (config.logUrl === '' || index > 0) return undefined;
  const { problemOfReplacedTopic } = await import('../backends/postgres/identity.ts');
  const store = await openStoreIn(database.share(), config, () => log.name);
  const metrics = metricsWriter(metricsBuffer, 2 * index);
  const watch = watchBacklog({
    log,
    positions: async () => {
      const problem = await problemOfReplacedTopic(database, log.name);
      if (problem !== null) onFatal(problem);
      return (await store.ledger(null, NO_HOURS)).positions;
    },
    bytesMax: config.backlogBytesMax,
    setFull: (isFull) => setBacklogFull(statusBuffer, isFull),
    // A processor of this server reports its own share, and the sum of both would be too much.
    report: (bytes) => config.role !== 'all' && metrics.set(METRIC.backlog_bytes, bytes),
    logger: createLogger(config.logLevel, 'backlog'),
  });
  return { stop: () => watch.stop(), close: () => store.close() };
}

/** The processed position in the log of this server; several servers may share the database. */
async function processedByDatabase(database: Database, config: Config): Promise<number> {
  const { localLogName } = await import('../backends/embedded/log/name.ts');
  const name = localLogName(logFolderOf(config.dataFolder));
  const store = await openStoreIn(database.share(), config, () => name);
  return useAndClose(store, () => processedBy(store));
}

async function openAppender(
  setup: EdgeSetup,
  database: Database,
  onFatal: (message: string) => void,
): Promise<LogAppender> {
  const { config, index, metricsBuffer } = setup;
  if (config.logUrl === '') return openLocalLog(setup, () => processedByDatabase(database, config), onFatal);
  const { openKafkaLogAppender } = await import('../backends/kafka/log.ts');
  return openKafkaLogAppender({
    url: config.logUrl,
    retentionMs: config.logRetentionMs,
    metrics: { buffer: metricsBuffer, slot: 2 * index + 1 },
    warn: warner(config, `edge-${index}`),
  });
}

/** Logs warnings about the topic that do not prevent the start. */
function warner(config: Config, thread: string): (message: string) => void {
  const logger = createLogger(config.logLevel, thread);
  return (message) => logger.warn(message);
}

/** A segment is removed as a whole, and the newest one never. So that retention is kept, none grows for longer. */
const SEGMENT_MS_MAX = 3_600_000;
const SEGMENT_MS_MIN = 1_000;

/**
 * One writer for all edges of a server: the first edge starts it, and the others join. `processed`: up to where the
 * store has processed the log; no position below that is assigned again.
 */
async function openLocalLog(
  { config, index, metricsBuffer, appendSignal, lock, otherEdges, logWriter }: EdgeSetup,
  processed: () => Promise<number>,
  onFatal: (message: string) => void,
): Promise<LogAppender> {
  const { joinEmbeddedLog, openEmbeddedLogAppender } = await import('../backends/embedded/log/appender.ts');
  if (logWriter !== undefined) return joinEmbeddedLog(logWriter, onFatal);
  const logger = createLogger(config.logLevel, `edge-${index}`);
  return openEmbeddedLogAppender({
    folder: logFolderOf(config.dataFolder),
    segmentBytes: config.logSegmentBytes,
    segmentMsMax: Math.max(SEGMENT_MS_MIN, Math.min(SEGMENT_MS_MAX, config.logRetentionMs)),
    lock,
    processed: await processed(),
    otherEdges,
    metrics: { buffer: metricsBuffer, slot: 2 * index + 1 },
    appendSignal,
    onFatal,
    onMissing: (missing) => {
      const line = { from_position: missing.from, to_position: missing.to - 1 };
      if (isHarmless(missing)) logger.warn(line, missingRecordsText(missing));
      else logger.error(line, `${missingRecordsText(missing)}: see sluice doctor`);
    },
  });
}

await runEdge(workerData as EdgeSetup);
