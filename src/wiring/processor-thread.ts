/**
 * The processor's thread of `sluice serve`: opens the log and the store in each of the three deployments (files in the
 * data folder only; PostgreSQL with a local log; PostgreSQL and Kafka), and runs the processor on them. It has one
 * connection pool, which everything it opens shares.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { watchClock } from '../clock/clock.ts';
import type { Config } from '../config/config.ts';
import { openRetentionClock } from '../clock/retention-clock.ts';
import { matchOptionsOf } from '../config/match-options.ts';
import { logFolderOf, retentionTimeFileOf, storeFileOf } from '../data-folder/files.ts';
import { assertLockHeld, LockLostError } from '../data-folder/held-lock.ts';
import { messageOf, OperatorError } from '../errors.ts';
import { Housekeeping } from '../processor/housekeeping.ts';
import { CurrentWarningPlans } from '../processor/plan-warnings.ts';
import { Processor, type ProcessorParts } from '../processor/processor.ts';
import { yieldPolicy } from '../processor/yield-policy.ts';
import { AppendSignal } from '../runtime/append-signal.ts';
import { WriteLockRequest } from '../runtime/write-lock-request.ts';
import { StoreFailedError, type StoreWriter } from '../store-writer.ts';
import { METRIC, metricsWriter, readCounter, readGauge } from '../telemetry/metrics.ts';
import { createLogger, type Logger, OutageLog } from '../telemetry/logger.ts';
import { untilReachable } from './late-start.ts';
import { openClock } from './open-clock.ts';
import { type Database, openDatabase, openKeyStore, openKeyStoreIn } from './opening.ts';
import {
  installationCheck,
  metricsSlots,
  setBacklogFull,
  statusOf,
  type SupervisorMessage,
  type ThreadMessage,
  type ThreadSetup,
} from './supervisor.ts';

async function runProcessor(setup: ThreadSetup): Promise<void> {
  const { config, metricsBuffer, statusBuffer } = setup;
  const send = (message: ThreadMessage): void => parentPort?.postMessage(message);
  try {
    const logger = createLogger(config.logLevel, 'processor');
    const metrics = metricsWriter(metricsBuffer, metricsSlots(config.edges) - 1);
    // Retention, and when first uses expire, go by it: a clock that jumps must not make anything look old.
    const clock = await openClock(config, (message) => logger.warn(message));
    const stopWatching = watchClock({ clock, metrics, logger });
    const retentionTime =
      config.storeUrl === ''
        ? openRetentionClock({ file: retentionTimeFileOf(config.dataFolder), time: clock.retentionTime })
        : clock.retentionTime;
    const opened = await openProcessorParts(setup, clock.now, retentionTime);
    const { parts } = opened;
    const common = { log: parts.log, writer: parts.writer, metrics, logger, now: clock.now };
    // With Kafka the edges measure the backlog; this processor sees only its own partitions.
    const isOwnLog = config.logUrl === '';
    const housekeeping = new Housekeeping({
      ...common,
      retentionTime,
      retention: {
        eventsMs: config.eventRetentionMs,
        tracesMs: config.traceRetentionMs,
        rejectionsMs: config.rejectionRetentionMs,
        rejectionBytesMax: config.rejectionBytesMax,
      },
      backlogBytesMax: isOwnLog ? config.backlogBytesMax : Number.MAX_SAFE_INTEGER,
      setBacklogFull: (isFull) => isOwnLog && setBacklogFull(statusBuffer, isFull),
    });
    const status = statusOf(statusBuffer);
    const yieldToEdges = yieldPolicy({
      now: clock.now,
      waiting: () => readGauge(metricsBuffer, METRIC.requests_waiting) ?? 0,
      entries: () => readCounter(metricsBuffer, METRIC.log_entries),
      bytes: () => readCounter(metricsBuffer, METRIC.log_bytes),
      isStopping: () => status.isShuttingDown(),
    });
    const plans = new CurrentWarningPlans(
      opened.keyStore.plans,
      new OutageLog(logger, {
        failing: 'tracking plans cannot be read: those that are known stay in use',
        working: 'tracking plans can be read again',
      }),
      logger,
    );
    await plans.start();
    const processor = new Processor({
      ...parts,
      ...common,
      plans,
      planStore: opened.keyStore.plans,
      options: matchOptionsOf(config),
      assertLockHeld: () => assertLockHeld(setup.lock),
      onProblem: (problem) => send({ type: 'problem', problem }),
      betweenTransactions: async (positions, caughtUpTo) => {
        await housekeeping.run(positions, caughtUpTo);
        await yieldToEdges(caughtUpTo);
      },
    });
    parentPort?.on('message', (message: SupervisorMessage) => {
      if (message.type === 'stop') processor.stop();
    });
    send({ type: 'started' });
    void continueErasures(parts.writer, config, logger, () => status.isShuttingDown());
    await processor.run();
    plans.stop();
    stopWatching();
    await opened.close();
    send({ type: 'stopped' });
  } catch (error) {
    if (error instanceof LockLostError) {
      send({ type: 'fatal', message: error.message });
      return;
    }
    // Perhaps after a failed sync: nothing may be synced or closed any more.
    if (error instanceof StoreFailedError) {
      send({ type: 'fatal', message: `the store cannot be trusted any more: ${error.message}` });
      return;
    }
    if (!(error instanceof OperatorError)) throw error;
    send({ type: 'start-failed', message: error.message });
  }
}

/**
 * At a start, since nothing else continues what a crash interrupted. If it fails, it is not worth ending the process: the
 * next start tries again.
 */
async function continueErasures(
  writer: StoreWriter,
  config: Config,
  logger: Logger,
  isStopping: () => boolean,
): Promise<void> {
  try {
    const erasures = await writer.continueErasures(matchOptionsOf(config));
    if (erasures > 0) logger.info({ erasures }, 'finished erasures that were interrupted');
  } catch (error) {
    if (isStopping()) return;
    logger.error(
      { reason: messageOf(error) },
      'an interrupted erasure cannot be finished: erase the person again, see is_finished in GET /audit',
    );
  }
}

async function openProcessorParts(setup: ThreadSetup, receiptTime: () => number, retentionTime: () => number) {
  const { config } = setup;
  const database = config.storeUrl === '' ? null : await processorDatabase(setup);
  const keyStore = database === null ? await openKeyStore(config) : await openKeyStoreIn(database.share());
  const { log, ...waiting } = await openLog(setup, database, receiptTime, retentionTime);
  const writer =
    database === null
      ? (await import('../backends/embedded/store/writer.ts')).openSqliteStoreWriter({
          file: storeFileOf(config.dataFolder),
        })
      : (await import('../backends/postgres/store-writer.ts')).openPostgresStoreWriter({
          pool: database,
          logName: log.name,
        });
  return {
    parts: { log, ...waiting, writer, isStoreShared: database !== null },
    /** For the tracking plans, which are stored with the keys. */
    keyStore,
    close: async () => {
      await keyStore.close();
      await writer.close();
      await log.close();
    },
  };
}

/** The log in the data folder, or a member of the consumer group of the database. */
async function openLog(
  setup: ThreadSetup,
  database: Database | null,
  receiptTime: () => number,
  now: () => number,
): Promise<Pick<ProcessorParts, 'log' | 'waitForMore' | 'writeLockRequest'>> {
  const { dataFolder, logLevel, logRetentionMs: retentionMs, logUrl: url } = setup.config;
  if (url === '' || database === null) {
    const { openEmbeddedLogReader } = await import('../backends/embedded/log/reader.ts');
    const folder = logFolderOf(dataFolder);
    const log = openEmbeddedLogReader({ folder, retentionMs, now, consumer: { receiptTime } });
    const appendSignal = new AppendSignal(setup.appendSignal);
    return {
      log,
      waitForMore: () => appendSignal.wait(),
      writeLockRequest: new WriteLockRequest(setup.writeLockRequest),
    };
  }
  const { openKafkaGroupReader } = await import('../backends/kafka/log.ts');
  const { databaseIdOf, tieToTopic } = await import('../backends/postgres/identity.ts');
  const logger = createLogger(logLevel, 'processor');
  const databaseId = await databaseIdOf(database);
  const warn = (message: string): void => logger.warn(message);
  const log = await openKafkaGroupReader({ url, retentionMs, now, databaseId, warn });
  await tieToTopic(database, log);
  return { log, waitForMore: () => log.waitForMore() };
}

/** The main thread has prepared the database before; if it is unavailable again by now, this waits for it. */
async function processorDatabase(setup: ThreadSetup): Promise<Database> {
  const { config } = setup;
  const outage = new OutageLog(createLogger(config.logLevel, 'processor'), {
    failing: 'the processor cannot use the database: the server has not started yet, and keeps retrying',
    working: 'the processor can use the database',
  });
  const check = installationCheck(setup);
  return untilReachable(() => openDatabase(config, 'processor', config.storeConnections, check), outage);
}

await runProcessor(workerData as ThreadSetup);
