/**
 * The command line and the composition root: the only file that names concrete backends, each loaded only when it is
 * used. In the main thread it runs a command; as the entry of a worker thread it is one edge of `sluice serve`.
 */

import { mkdirSync, readFileSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { join } from 'node:path';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';
import { runKeys } from './cli/keys.ts';
import { keyFileOf } from './cli/keys-place.ts';
import { runConfig } from './cli/config.ts';
import { announceStart } from './cli/announce.ts';
import { suggestion } from './cli/flags.ts';
import { mainHelp, wantsHelp } from './cli/help.ts';
import { inkFor } from './cli/table.ts';
import { type Config, type Env, loadConfig, processEnvironment } from './config.ts';
import { OperatorError } from './errors.ts';
import { createLogger } from './logger.ts';
import type { KeyStore } from './store.ts';
import type { EdgeMessage, EdgeSetup, SupervisorMessage } from './supervisor.ts';

enableCompileCache();

const COMMANDS = ['serve', 'keys', 'config'];

function versionOf(): string {
  const file = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(file) as { version: string }).version;
}

function logFolderOf(config: Config): string {
  return join(config.dataFolder, 'log');
}

async function openKeyStore(file: string): Promise<KeyStore> {
  const { openSqliteKeyStore } = await import('./backends/sqlite/keys.ts');
  return openSqliteKeyStore(file);
}

async function run(args: readonly string[], env: Env): Promise<number> {
  const [command, ...rest] = args;
  const isTty = process.stdout.isTTY;
  const out = (text: string): void => void process.stdout.write(text);
  if (command === '--version' || command === '-v') {
    out(`sluice ${versionOf()}\n`);
    return 0;
  }
  if (command === undefined || command === '--help' || command === '-h' || command === 'help') {
    out(mainHelp(inkFor(isTty, env)));
    return command === undefined ? 1 : 0;
  }
  switch (command) {
    case 'serve':
      if (!wantsHelp(rest)) return serve(rest, env);
      out(mainHelp(inkFor(isTty, env)));
      return 0;
    case 'keys': {
      const { openSqliteKeyStore } = await import('./backends/sqlite/keys.ts');
      return runKeys(rest, { out, env, isTty, now: Date.now, openKeyStore: openSqliteKeyStore });
    }
    case 'config':
      return runConfig(rest, { out, env, isTty });
    default:
      throw new OperatorError(
        `"${command}" is not a command${suggestion(command, COMMANDS)}\nAll of them: sluice --help`,
      );
  }
}

/** Runs until a signal; resolves with the exit code. */
async function serve(args: readonly string[], env: Env): Promise<number> {
  const { config } = loadConfig({ env, args });
  const version = versionOf();
  const logger = createLogger(config.logLevel, 'main');
  const { lockFolder } = await import('./backends/sqlite/folder-lock.ts');
  const { Supervisor, metricsSlots } = await import('./supervisor.ts');
  const { allocateMetrics } = await import('./metrics.ts');

  const lock = lockFolder(config.dataFolder);
  mkdirSync(logFolderOf(config), { recursive: true, mode: 0o700 });
  const keyStore = await openKeyStore(keyFileOf(config.dataFolder));
  const supervisor = new Supervisor({
    config,
    keyStore,
    metricsBuffer: allocateMetrics(metricsSlots(config.edges)),
    logger,
    version,
    edgeThread: new URL(import.meta.url),
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

function stopOnSignal(): Promise<string> {
  return new Promise((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => resolve(signal));
  });
}

/** One edge thread: its partition of the log, its reading end of the key store, its HTTP server. */
async function runEdge(setup: EdgeSetup): Promise<void> {
  const { config, index, metricsBuffer, version } = setup;
  const tell = (message: EdgeMessage): void => parentPort?.postMessage(message);
  try {
    const [{ openSqliteLogAppender }, { startEdge }, { statusOf }] = await Promise.all([
      import('./backends/sqlite/log.ts'),
      import('./edge/edge.ts'),
      import('./supervisor.ts'),
    ]);
    const log = await openSqliteLogAppender({
      folder: logFolderOf(config),
      partition: index,
      segmentBytes: config.logSegmentBytes,
      metrics: { buffer: metricsBuffer, slot: 2 * index + 1 },
      onFatal: (message) => tell({ type: 'fatal', message }),
    });
    const edge = await startEdge(
      {
        config,
        log,
        keyStore: await openKeyStore(keyFileOf(config.dataFolder)),
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
    tell({ type: 'refused', message: error.message, stack: error.stack });
  }
}

if (isMainThread) {
  try {
    process.exitCode = await run(process.argv.slice(2), processEnvironment());
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    process.stderr.write(`sluice: ${error.message}\n`);
    process.exit(1);
  }
} else {
  await runEdge(workerData as EdgeSetup);
}
