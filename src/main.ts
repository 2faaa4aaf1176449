/**
 * The command line and the composition root: the only file that names concrete backends, each loaded only when it is
 * used. In the main thread it runs a command; as the entry of a worker thread it is one edge of `sluice serve`, or its
 * processor.
 */

import { mkdirSync, readFileSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';
import type { Env } from './config.ts';
import { keyFileOf, logFolderOf, storeFileOf } from './data-folder.ts';
import { OperatorError } from './errors.ts';
import type { LogAppender } from './log.ts';
import type { KeyStore, Store } from './store.ts';
import type { EdgeMessage, EdgeSetup, ProcessorMessage, ProcessorSetup, SupervisorMessage } from './supervisor.ts';

// What is loaded from here on is compiled once per machine; so everything else is loaded from here on.
enableCompileCache();

const COMMANDS = ['serve', 'keys', 'config'];

function versionOf(): string {
  const file = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(file) as { version: string }).version;
}

async function openKeyStore(file: string): Promise<KeyStore> {
  const { openSqliteKeyStore } = await import('./backends/sqlite/keys.ts');
  return openSqliteKeyStore(file);
}

/** In a thread of its own, completed by what is still in the log. */
async function openStore(dataFolder: string): Promise<Store> {
  const { openSqliteStoreClient } = await import('./backends/sqlite/store-client.ts');
  return openSqliteStoreClient({ storeFile: storeFileOf(dataFolder), logFolder: logFolderOf(dataFolder) });
}

async function run(args: readonly string[], env: Env): Promise<number> {
  const [command, ...rest] = args;
  const isTty = process.stdout.isTTY;
  const out = (text: string): void => void process.stdout.write(text);
  // Whoever reads may have seen enough: `sluice config | head`.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });
  const { mainHelp, wantsHelp } = await import('./cli/help.ts');
  const { inkFor } = await import('./cli/table.ts');
  if (command === '--version' || command === '-v' || command === 'version') {
    out(`sluice ${versionOf()}\n`);
    return 0;
  }
  if (command === undefined || command === 'help' || (wantsHelp(args) && command !== 'keys' && command !== 'config')) {
    out(mainHelp(inkFor(isTty, env)));
    return command === undefined ? 1 : 0;
  }
  switch (command) {
    case 'serve':
      return serve(rest, env);
    case 'keys': {
      const { runKeys } = await import('./cli/keys.ts');
      const { openSqliteKeyStore } = await import('./backends/sqlite/keys.ts');
      return runKeys(rest, { out, env, isTty, now: Date.now, openKeyStore: openSqliteKeyStore });
    }
    case 'config': {
      const { runConfig } = await import('./cli/config.ts');
      return runConfig(rest, { out, env, isTty });
    }
    default: {
      const { suggestion } = await import('./cli/flags.ts');
      const meant = suggestion(command, COMMANDS);
      throw new OperatorError(`"${command}" is not a command${meant}\nAll of them: sluice --help`);
    }
  }
}

/** Runs until a signal; resolves with the exit code. */
async function serve(args: readonly string[], env: Env): Promise<number> {
  const { loadConfig } = await import('./config.ts');
  const { config } = loadConfig({ env, args });
  const { lockFolder } = await import('./backends/sqlite/folder-lock.ts');
  const lock = lockFolder(config.dataFolder);
  mkdirSync(logFolderOf(config.dataFolder), { recursive: true, mode: 0o700 });

  const [{ Supervisor, metricsSlots }, { allocateMetrics }, { createLogger }, { announceStart }] = await Promise.all([
    import('./supervisor.ts'),
    import('./metrics.ts'),
    import('./logger.ts'),
    import('./cli/announce.ts'),
  ]);
  const version = versionOf();
  const logger = createLogger(config.logLevel, 'main');
  const keyStore = await openKeyStore(keyFileOf(config.dataFolder));
  const supervisor = new Supervisor({
    config,
    keyStore,
    metricsBuffer: allocateMetrics(metricsSlots(config.edges)),
    logger,
    version,
    threadFile: new URL(import.meta.url),
  });
  const stopped = stopOnSignal();
  const port = await supervisor.start();
  logger.info({ version, host: config.host, port, edges: config.edges, pid: process.pid }, 'listening');
  await announceStart({ config, port, keyStore, now: Date.now(), out: (text) => void process.stdout.write(text) });

  const signal = await stopped;
  logger.info({ signal }, 'stopping: finishing what is under way');
  const deadline = setTimeout(() => {
    logger.error('requests were still under way at the deadline; they were not acknowledged');
    process.exit(1);
  }, config.shutdownMs);
  await supervisor.stop();
  clearTimeout(deadline);
  lock.release();
  logger.info('stopped');
  return 0;
}

/** A second signal means now: whatever it interrupts, nothing that was acknowledged is lost. */
function stopOnSignal(): Promise<string> {
  return new Promise((resolve) => {
    let signals = 0;
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        signals += 1;
        if (signals > 1) process.exit(1);
        resolve(signal);
      });
    }
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

/** One edge thread: its partition of the log, its reading end of the key store, its HTTP server. */
async function runEdge(setup: EdgeSetup): Promise<void> {
  const { config, index, metricsBuffer, version } = setup;
  const tell = (message: EdgeMessage): void => parentPort?.postMessage(message);
  try {
    // The log is checked in its own thread while this one loads the rest.
    const opening = openLog(setup, (message) => tell({ type: 'fatal', message }));
    const [{ startEdge }, { statusOf }, { createLogger }, keyStore, store, log] = await Promise.all([
      import('./edge/edge.ts'),
      import('./supervisor.ts'),
      import('./logger.ts'),
      openKeyStore(keyFileOf(config.dataFolder)),
      openStore(config.dataFolder),
      opening,
    ]);
    const edge = await startEdge(
      {
        config,
        log,
        keyStore,
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
  const [
    { openSqliteStoreWriter },
    { openSqliteLogReader },
    { Processor },
    { Housekeeping },
    { matchOptionsOf },
    { createLogger },
    { METRIC, metricsWriter, readCounter },
    { metricsSlots, setBacklogFull },
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
    const { waitForAppends } = await import('./processor/wait.ts');
    const processor = new Processor({
      ...common,
      options: matchOptionsOf(config),
      waitForMore: waitForAppends(() => readCounter(metricsBuffer, METRIC.log_entries)),
      betweenTransactions: (positions) => housekeeping.run(positions),
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

if (isMainThread) {
  try {
    const { processEnvironment } = await import('./config.ts');
    process.exitCode = await run(process.argv.slice(2), processEnvironment());
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    process.stderr.write(`sluice: ${error.message}\n`);
    process.exit(1);
  }
} else {
  const setup = workerData as EdgeSetup | ProcessorSetup;
  await (setup.role === 'edge' ? runEdge(setup) : runProcessor(setup));
}
