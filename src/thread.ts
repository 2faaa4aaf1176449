/**
 * The entry of every thread of `sluice serve` but the main one: an edge, the processor, or the thread that parses for
 * the processor, as its setup says. Like `main.ts` it is a composition root: it names concrete backends, loads them when
 * they are used, and holds no logic of its own.
 */

import { enableCompileCache } from 'node:module';
import { parentPort, Worker, workerData } from 'node:worker_threads';
import type { Config } from './config.ts';
import { keyFileOf, logFolderOf, storeFileOf } from './data-folder.ts';
import { OperatorError } from './errors.ts';
import type { LogAppender } from './log.ts';
import type { Store } from './store.ts';
import type {
  EdgeMessage,
  EdgeSetup,
  PreparerSetup,
  ProcessorMessage,
  ProcessorSetup,
  SupervisorMessage,
} from './supervisor.ts';
import { yieldToOthers } from './threads.ts';

enableCompileCache();

/** In a thread of its own, completed by what is still in the log. */
async function openStore(config: Config): Promise<Store> {
  const [{ openSqliteStoreClient }, { matchOptionsOf }] = await Promise.all([
    import('./backends/sqlite/store-client.ts'),
    import('./match-options.ts'),
  ]);
  return openSqliteStoreClient({
    storeFile: storeFileOf(config.dataFolder),
    logFolder: logFolderOf(config.dataFolder),
    matchOptions: matchOptionsOf(config),
  });
}

async function openLog(
  { config, index, metricsBuffer }: EdgeSetup,
  onFatal: (message: string) => void,
): Promise<LogAppender> {
  const { openSqliteLogAppender } = await import('./backends/sqlite/log.ts');
  return openSqliteLogAppender({
    folder: logFolderOf(config.dataFolder),
    partition: index,
    partitions: config.edges,
    segmentBytes: config.logSegmentBytes,
    metrics: { buffer: metricsBuffer, slot: 2 * index + 1 },
    onFatal,
  });
}

/** One edge thread: its partition of the log, its ends of the key store and the member store, its HTTP server. */
async function runEdge(setup: EdgeSetup): Promise<void> {
  const { config, sources, index, metricsBuffer, version } = setup;
  const tell = (message: EdgeMessage): void => parentPort?.postMessage(message);
  try {
    // The log is checked in its own thread while this one loads the rest.
    const opening = openLog(setup, (message) => tell({ type: 'fatal', message }));
    const [{ startEdge }, { statusOf }, { createLogger }, keyStore, members, store, log] = await Promise.all([
      import('./edge/edge.ts'),
      import('./supervisor.ts'),
      import('./logger.ts'),
      import('./backends/sqlite/keys.ts').then(({ openSqliteKeyStore }) =>
        openSqliteKeyStore(keyFileOf(config.dataFolder)),
      ),
      import('./backends/sqlite/members.ts').then(({ openSqliteMemberStore }) =>
        openSqliteMemberStore(keyFileOf(config.dataFolder)),
      ),
      openStore(config),
      opening,
    ]);
    const edge = await startEdge(
      {
        config,
        sources,
        log,
        keyStore,
        members,
        store,
        metrics: { buffer: metricsBuffer, slot: 2 * index },
        status: statusOf(setup.statusBuffer),
        logger: createLogger(config.logLevel, `edge-${index}`),
        version,
        now: Date.now,
        handOverSightings: (sightings) => tell({ type: 'sightings', sightings }),
      },
      setup.port,
    );
    parentPort?.on('message', (message: SupervisorMessage) => {
      if (message.type === 'drain') void edge.drain().then(() => tell({ type: 'drained' }));
    });
    tell({ type: 'listening', port: edge.port });
  } catch (error) {
    // What the operator can mend is said in words; anything else is a bug and crashes with its stack.
    if (!(error instanceof OperatorError)) throw error;
    tell({ type: 'refused', message: error.message });
  }
}

/** The processor's thread: reads all partitions of the log, writes the store. */
async function runProcessor({ config, metricsBuffer, statusBuffer }: ProcessorSetup): Promise<void> {
  const tell = (message: ProcessorMessage): void => parentPort?.postMessage(message);
  yieldToOthers();
  const [
    { openSqliteStoreWriter },
    { openSqliteLogReader },
    { Processor },
    { Housekeeping },
    { matchOptionsOf },
    { createLogger },
    { METRIC, metricsWriter, readCounter, readGauge },
    { metricsSlots, setBacklogFull, statusOf },
  ] = await Promise.all([
    import('./backends/sqlite/store-writer.ts'),
    import('./backends/sqlite/log-reader.ts'),
    import('./processor/processor.ts'),
    import('./processor/housekeeping.ts'),
    import('./match-options.ts'),
    import('./logger.ts'),
    import('./metrics.ts'),
    import('./supervisor.ts'),
  ]);
  try {
    const writer = openSqliteStoreWriter({ file: storeFileOf(config.dataFolder) });
    const folder = logFolderOf(config.dataFolder);
    const log = openSqliteLogReader({ folder, retentionMs: config.logRetentionMs, now: Date.now });
    const common = {
      log,
      writer,
      metrics: metricsWriter(metricsBuffer, metricsSlots(config.edges) - 1),
      logger: createLogger(config.logLevel, 'processor'),
      now: Date.now,
    };
    const housekeeping = new Housekeeping({
      ...common,
      retention: {
        eventsMs: config.eventRetentionMs,
        tracesMs: config.traceRetentionMs,
        rejectionsMs: config.rejectionRetentionMs,
        rejectionBytesMax: config.rejectionBytesMax,
      },
      backlogBytesMax: config.backlogBytesMax,
      setBacklogFull: (isFull) => setBacklogFull(statusBuffer, isFull),
    });
    const [{ waitForAppends }, { turnTaker }, { sourceInThread }] = await Promise.all([
      import('./processor/wait.ts'),
      import('./processor/give-way.ts'),
      import('./processor/source.ts'),
    ]);
    const entries = () => readCounter(metricsBuffer, METRIC.log_entries);
    const status = statusOf(statusBuffer);
    const takeTurn = turnTaker({
      now: Date.now,
      waiting: () => readGauge(metricsBuffer, METRIC.requests_waiting) ?? 0,
      entries,
      bytes: () => readCounter(metricsBuffer, METRIC.log_bytes),
      isStopping: () => status.isShuttingDown(),
    });
    const preparer: PreparerSetup = { role: 'preparer', config };
    const processor = new Processor({
      ...common,
      options: matchOptionsOf(config),
      source: sourceInThread(new Worker(new URL(import.meta.url), { workerData: preparer, name: 'preparer' })),
      waitForMore: waitForAppends(entries),
      betweenTransactions: async (positions, caughtUpTo) => {
        await housekeeping.run(positions, caughtUpTo);
        await takeTurn(caughtUpTo);
      },
    });
    parentPort?.on('message', (message: SupervisorMessage) => {
      if (message.type === 'drain') processor.stop();
    });
    tell({ type: 'started' });
    await processor.run();
    await writer.close();
    await log.close();
    tell({ type: 'stopped' });
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    tell({ type: 'refused', message: error.message });
  }
}

/** The thread that parses for the processor, one batch ahead of it. */
async function runPreparer({ config }: PreparerSetup): Promise<void> {
  const [{ openSqliteLogReader }, { serveRecords }, { matchOptionsOf }] = await Promise.all([
    import('./backends/sqlite/log-reader.ts'),
    import('./processor/source.ts'),
    import('./match-options.ts'),
  ]);
  yieldToOthers();
  if (parentPort === null) throw new Error('the preparer runs in a thread of the processor only');
  const folder = logFolderOf(config.dataFolder);
  const log = openSqliteLogReader({ folder, retentionMs: config.logRetentionMs, now: Date.now });
  serveRecords(parentPort, log, matchOptionsOf(config));
}

const setup = workerData as EdgeSetup | ProcessorSetup | PreparerSetup;
if (setup.role === 'edge') await runEdge(setup);
else await (setup.role === 'processor' ? runProcessor(setup) : runPreparer(setup));
