/**
 * `sluice serve`: sets up the main thread and runs until a signal. Before the start it locks the data folder, if the
 * server keeps anything in it, and prepares the database and Kafka. While they are unavailable the server waits for them
 * (`late-start.ts`) and responds (`waiting-server.ts`). The supervisor owns the threads.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { refuseUnfinishedRestore } from '../backup/notes.ts';
import { baseUrlOf } from '../config/base-url.ts';
import { type Config, type Env, loadConfig, shareCompileCache } from '../config/config.ts';
import { logFolderOf, serverUrlFileOf } from '../data-folder/files.ts';
import { DatabaseStart } from './late-start.ts';
import { OperatorError } from '../errors.ts';
import type { Logger } from '../telemetry/logger.ts';
import { refuseMigratedFolder, refuseUnmigratedFolder } from '../migration/marker.ts';
import { connectLater, openKeyStore, openKeyStoreIn } from './opening.ts';
import { prepareDataFolder } from './start-checks.ts';
import { servesApi, servesIngest } from '../config/roles.ts';
import { connectionsMaxOf, openFilesMax } from '../runtime/open-files.ts';
import type { KeyStore } from '../keys.ts';
import { isUnavailable } from '../runtime/unavailable.ts';
import type { Supervisor } from './supervisor.ts';
import type { WaitingServer } from './waiting-server.ts';
import { disablePretenuring } from '../runtime/threads.ts';

type FolderLock = import('../backends/embedded/folder-lock.ts').FolderLock;

/** Key usage is recorded continuously, but by one write at a time. */
const KEY_CONNECTIONS = 2;
/** How long a start may continue after a signal, before the process exits. */
const START_GRACE_MS = 2_000;

/** Runs until a signal; resolves with the exit code. */
export async function serve(args: readonly string[], env: Env, version: string): Promise<number> {
  const { config, sources } = loadConfig({ env, args });
  shareCompileCache();
  disablePretenuring();
  const connectionsMax = connectionsMaxOf(config, openFilesMax());
  const folderLock = config.logUrl === '' ? await takeFolder(config) : null;

  const { Supervisor, metricsSlots, supervisorSlot } = await import('./supervisor.ts');
  const { allocateMetrics } = await import('../telemetry/metrics.ts');
  const { createLogger } = await import('../telemetry/logger.ts');
  const logger = createLogger(config.logLevel, 'main');
  const database = config.storeUrl === '' ? null : new DatabaseStart(config, logger);
  await database?.firstTry();
  const { startWarnings, processed } = await prepareDataFolder(config);
  for (const warning of startWarnings) logger.warn(warning);
  const signals = new StopSignals();
  const metricsBuffer = allocateMetrics(metricsSlots(config.edges));
  const noteListening = (port: number): void => {
    const { host, role, edges } = config;
    if (folderLock !== null) {
      writeFileSync(serverUrlFileOf(config.dataFolder), `${baseUrlOf(host, port)}\n`, { mode: 0o600 });
    }
    logger.info({ version, host, port, role, edges, pid: process.pid }, 'listening');
  };
  let waiting: WaitingServer | null = null;
  if (database !== null && database.problem !== null) {
    const { startWaitingServer } = await import('./waiting-server.ts');
    const metrics = { buffer: metricsBuffer, slot: supervisorSlot(config.edges) };
    waiting = await startWaitingServer({ config, database, connectionsMax, metrics, logger, version });
    noteListening(waiting.port);
    const { announceAddress } = await import('../cli/announce.ts');
    announceAddress({ config, port: waiting.port, out }, 'and waits; GET /readyz says for what');
    const signal = await Promise.race([signals.first, database.prepared.then(() => null)]);
    if (signal !== null) {
      folderLock?.release();
      logger.info({ signal }, 'stopped while waiting');
      // A try to reach the database may be hanging; nothing that matters waits for it.
      process.exit(0);
    }
  }
  const installation = database === null ? null : await database.prepared;
  const keyStore = config.role === 'processor' ? null : await keyStoreFor(config, installation);
  const supervisor = new Supervisor({
    config,
    sources,
    startWarnings,
    processed,
    connectionsMax,
    keyStore,
    // Without `release`, which only this thread can call: threads get a structured clone.
    lock: folderLock && { file: folderLock.file, identity: folderLock.identity },
    metricsBuffer,
    installation,
    logger,
    version,
    waiting,
  });
  const port = await startUnlessStopped(supervisor, signals, logger);
  if (waiting === null) noteListening(port);
  const announced = announce(config, port, keyStore, logger);
  const signal = await Promise.race([signals.first, announced.then(() => signals.first)]);
  if (signal === 'SIGTERM') await drain(supervisor, config, signals, logger);
  logger.info({ signal }, 'stopping: finishing requests in progress');
  const deadline = setTimeout(() => {
    logger.error('requests were still in flight at the deadline; they were not acknowledged');
    process.exit(1);
  }, config.shutdownMs);
  await supervisor.stop();
  clearTimeout(deadline);
  folderLock?.release();
  logger.info('stopped');
  return 0;
}

/**
 * A start may wait for a database without end. If a signal arrives meanwhile, the process exits: acknowledged events
 * are in the log.
 */
async function startUnlessStopped(supervisor: Supervisor, signals: StopSignals, logger: Logger): Promise<number> {
  let isStarted = false;
  void signals.first.then(async (signal) => {
    await sleep(START_GRACE_MS, undefined, { ref: false });
    if (isStarted) return;
    logger.warn({ signal }, 'stopped before the start was complete');
    process.exit(1);
  });
  const port = await supervisor.start();
  isStarted = true;
  return port;
}

/** For the main thread, which writes to it when keys were last used. */
async function keyStoreFor(config: Config, installation: string | null): Promise<KeyStore> {
  if (installation === null) return openKeyStore(config);
  const check = { expected: installation, onChecked: () => undefined };
  return openKeyStoreIn(await connectLater(config, 'keys', KEY_CONNECTIONS, check));
}

/** Locks the data folder for this server. Servers with a shared log keep nothing in it and need no lock. */
async function takeFolder(config: Config): Promise<FolderLock> {
  const { lockFolder } = await import('../backends/embedded/folder-lock.ts');
  const { fullDiskText, isFullDisk } = await import('../backends/embedded/disk.ts');
  const { dataFolder, storeUrl } = config;
  const lock = lockFolder(dataFolder);
  refuseUnfinishedRestore(dataFolder);
  if (storeUrl === '') refuseMigratedFolder(dataFolder);
  else refuseUnmigratedFolder(dataFolder);
  try {
    mkdirSync(logFolderOf(dataFolder), { recursive: true, mode: 0o700 });
  } catch (error) {
    if (isFullDisk(error)) throw new OperatorError(fullDiskText(dataFolder), { cause: error });
    throw error;
  }
  return lock;
}

function out(text: string): void {
  process.stdout.write(text);
}

/** Prints the start message. */
async function announce(config: Config, port: number, keyStore: KeyStore | null, logger: Logger): Promise<void> {
  const { announceAddress, announceStart } = await import('../cli/announce.ts');
  if (keyStore === null || !servesApi(config.role)) {
    announceAddress({ config, port, out }, `with the role ${config.role}`);
    return;
  }
  try {
    await announceStart({ config, port, keyStore, now: Date.now(), out });
  } catch (error) {
    // The server is running, and recovers with its database; there is "sluice invite" for the link.
    if (config.storeUrl === '' || !isUnavailable(error)) throw error;
    logger.warn({ reason: error.message }, 'could not check whether an account exists');
  }
}

/**
 * Load balancers take a moment to notice that this server is going away, and must be served until then. A processor has
 * no traffic to drain. SIGINT comes from a person at a terminal, who should not have to wait.
 */
async function drain(supervisor: Supervisor, config: Config, signals: StopSignals, logger: Logger): Promise<void> {
  const { role, drainMs } = config;
  if (drainMs === 0 || !(servesIngest(role) || servesApi(role))) return;
  supervisor.beginDraining();
  logger.info({ drain_ms: drainMs }, 'draining: not ready, serving until load balancers have moved away');
  await signals.again(drainMs);
}

/**
 * The signals that stop the server. A second one ends the drain, or exits immediately if the server is not draining;
 * nothing that was acknowledged is lost.
 */
class StopSignals {
  readonly #first = Promise.withResolvers<NodeJS.Signals>();
  readonly first = this.#first.promise;
  #isFirst = true;
  #onAgain: (() => void) | undefined;

  constructor() {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        if (this.#isFirst) this.#first.resolve(signal);
        else if (this.#onAgain === undefined) process.exit(1);
        else this.#onAgain();
        this.#isFirst = false;
      });
    }
  }

  async again(withinMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onAgain = resolve;
    const timer = setTimeout(resolve, withinMs);
    await promise;
    clearTimeout(timer);
    this.#onAgain = undefined;
  }
}
