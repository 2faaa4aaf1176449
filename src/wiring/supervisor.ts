/**
 * The main thread of `sluice serve`. It starts the threads of its role (edges, processor), records key usage, watches the
 * data folder if there is one, and stops everything in order. It serves no requests, so it is always responsive. A
 * server with the role `processor` also has an edge, for health and metrics only.
 *
 * If a thread dies, the process exits on purpose: nothing acknowledged is lost, and the service manager or container
 * runtime restarts it.
 */

import { statfs } from 'node:fs/promises';
import { createServer } from 'node:net';
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import { readLastBackup } from '../backup/notes.ts';
import type { Config } from '../config/config.ts';
import { keyFileOf, storeFileOf } from '../data-folder/files.ts';
import { AppendSignal } from '../runtime/append-signal.ts';
import { HEAP_LIMITS, threadFile } from '../runtime/threads.ts';
import { WriteLockRequest } from '../runtime/write-lock-request.ts';
import type { EdgeParts } from '../edge/edge.ts';
import type { ServerStatus } from '../edge/readiness.ts';
import { allocateRateLimits } from '../edge/rate-limits.ts';
import { listenError } from '../edge/listen-error.ts';
import { OperatorError } from '../errors.ts';
import { FileIdentity, REPLACED_STORE_ADVICE, WAS_REPLACED } from '../data-folder/file-identity.ts';
import { assertLockHeld, type HeldLock, LockLostError } from '../data-folder/held-lock.ts';
import { METRIC, metricsWriter } from '../telemetry/metrics.ts';
import { type Logger, OutageLog } from '../telemetry/logger.ts';
import { processes } from '../config/roles.ts';
import type { KeyUsage, KeyStore } from '../keys.ts';
import type { InstallationCheck } from './opening.ts';
import type { WaitingServer } from './waiting-server.ts';

type SharedMemory = ReturnType<typeof allocateSharedMemory>;

export interface ThreadSetup
  extends SharedMemory,
    Pick<EdgeParts, 'config' | 'sources' | 'version' | 'connectionsMax'> {
  /** What the start found that operators should know; `GET /health` shows it, besides the log. */
  readonly startWarnings: readonly string[];
  /** Up to where an embedded store has processed the log, as of the start. */
  readonly processed: number;
  readonly metricsBuffer: SharedArrayBuffer;
  /** The lock of the data folder; null where none is used. */
  readonly lock: HeldLock | null;
  /** Installation of the database that the server was started with; null without a database. */
  readonly installation: string | null;
}

export interface EdgeSetup extends ThreadSetup {
  readonly index: number;
  readonly port: number;
  /** Ports to the other edges, for the first edge, which starts the writer of the log. */
  readonly otherEdges: readonly MessagePort[];
  /** Port to that writer, for the other edges. Undefined for the first edge, and with Kafka. */
  readonly logWriter: MessagePort | undefined;
}

export type ThreadMessage =
  /** From an edge: everything is open, and it waits for `listen`. */
  | { readonly type: 'opened' }
  /** `port`: where an edge listens. */
  | { readonly type: 'started'; readonly port?: number }
  | { readonly type: 'start-failed'; readonly message: string }
  | { readonly type: 'fatal'; readonly message: string }
  /** From the processor: why processing waits; null when it continues. */
  | { readonly type: 'problem'; readonly problem: string | null }
  /** From edges. */
  | { readonly type: 'keyUsage'; readonly keyUsage: KeyUsage[] }
  /** It has finished what it was doing. */
  | { readonly type: 'stopped' };

export type SupervisorMessage =
  | { readonly type: 'stop' }
  /** To edges: why nothing is processed; null while processing works. */
  | { readonly type: 'processing'; readonly problem: string | null }
  /** To edges: the port is free. */
  | { readonly type: 'listen' };

const FOLDER_INTERVAL_MS = 1_000;
/** Long enough for the edges to send the 503s that a failing disk causes. */
const FATAL_GRACE_MS = 250;

/** Flags of the status. The supervisor sets all but two: see `setBacklogFull` and `installationCheck`. */
const SHUTTING_DOWN = 0;
const DISK_LOW = 1;
const BACKLOG_FULL = 2;
const DRAINING = 3;
/** A bit for each of `WATCHED_FILES`. */
const REPLACED = 4;
const OTHER_DATABASE = 5;
const STATUS_FLAGS = 6;

/** In the data folder of an embedded installation: what a server keeps open for as long as it runs. */
const WATCHED_FILES = [
  {
    name: 'store.db',
    fileOf: storeFileOf,
    advice: `nothing is processed or removed from the log. ${REPLACED_STORE_ADVICE}`,
  },
  {
    name: 'keys.db',
    fileOf: keyFileOf,
    advice: 'keys that are made or revoked now are lost: put the file back, then restart the server',
  },
] as const;

/** Called by the processor of an embedded log; with Kafka, by the first edge. */
export function setBacklogFull(buffer: SharedArrayBuffer, isFull: boolean): void {
  new Int32Array(buffer)[BACKLOG_FULL] = isFull ? 1 : 0;
}

/** For a thread that connects to the database. The result is shared: every thread reports what one has found. */
export function installationCheck({
  statusBuffer,
  installation,
}: Pick<ThreadSetup, 'statusBuffer' | 'installation'>): InstallationCheck | undefined {
  if (installation === null) return undefined;
  const flags = new Int32Array(statusBuffer);
  const onChecked = (isExpected: boolean): void => {
    flags[OTHER_DATABASE] = isExpected ? 0 : 1;
  };
  return { expected: installation, onChecked };
}

export function statusOf(buffer: SharedArrayBuffer): ServerStatus {
  const flags = new Int32Array(buffer);
  return {
    isShuttingDown: () => flags[SHUTTING_DOWN] === 1,
    isDraining: () => flags[DRAINING] === 1,
    isDiskLow: () => flags[DISK_LOW] === 1,
    isOtherDatabase: () => flags[OTHER_DATABASE] === 1,
    replacedFiles: () => {
      const bits = flags[REPLACED] ?? 0;
      return bits === 0 ? [] : WATCHED_FILES.flatMap(({ name }, index) => (bits & (1 << index) ? [name] : []));
    },
    isBacklogFull: () => flags[BACKLOG_FULL] === 1,
  };
}

/** Two slots per edge (the thread, and its log writer or Kafka producer), one for the supervisor, one for the processor. */
export function metricsSlots(edges: number): number {
  return supervisorSlot(edges) + 2;
}

/** Of the main thread: after those of the edges; the processor has the one after it. */
export function supervisorSlot(edges: number): number {
  return 2 * edges;
}

interface SupervisorParts extends Omit<ThreadSetup, keyof SharedMemory> {
  /** What serves the port so far; null where nothing does. */
  readonly waiting: WaitingServer | null;
  /** Null where nothing asks for a key. */
  readonly keyStore: KeyStore | null;
  readonly logger: Logger;
}

/** The memory that all threads share, besides the metrics. */
function allocateSharedMemory() {
  return {
    statusBuffer: new SharedArrayBuffer(STATUS_FLAGS * Int32Array.BYTES_PER_ELEMENT),
    /** The newest time of receipt that any edge has issued, so that none issues an older one. */
    clockBuffer: new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT),
    /** The newest trace_id that any edge has issued (`edge/trace-id.ts`). */
    traceIdBuffer: new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT),
    /** The token buckets of the keys (`edge/rate-limits.ts`). */
    rateLimitBuffer: allocateRateLimits(),
    /** Through which erases and unmerges request the store's write lock from the processor. */
    writeLockRequest: WriteLockRequest.allocate(),
    /** Through which the writer of the log wakes the processor up. */
    appendSignal: AppendSignal.allocate(),
  };
}

export class Supervisor {
  readonly #parts: SupervisorParts;
  readonly #memory = allocateSharedMemory();
  readonly #flags = new Int32Array(this.#memory.statusBuffer);
  readonly #edges: Worker[] = [];
  #processor: Worker | undefined;
  readonly #keyUsageOutage: OutageLog;
  readonly #diskOutage: OutageLog;
  #folderTimer: NodeJS.Timeout | undefined;
  #identities: readonly FileIdentity[] = [];
  /** One line a key is enough. */
  readonly #leaksReported = new Set<string>();
  #isBeingKilled = false;

  constructor(parts: SupervisorParts) {
    this.#parts = parts;
    this.#keyUsageOutage = new OutageLog(parts.logger, {
      failing: 'key usage cannot be recorded',
      working: 'key usage is recorded again',
    });
    this.#diskOutage = new OutageLog(parts.logger, {
      failing: 'free disk space cannot be read',
      working: 'free disk space can be read again',
    });
  }

  /** Resolves with the port once every edge listens, and the processor works. */
  async start(): Promise<number> {
    const { config, waiting } = this.#parts;
    // With a shared log there is nothing in the data folder that could be lost or fill the disk.
    if (config.logUrl === '') {
      if (config.storeUrl === '') {
        this.#identities = WATCHED_FILES.map(({ fileOf }) => new FileIdentity(fileOf(config.dataFolder)));
      }
      await this.#checkFolder();
      this.#folderTimer = setInterval(() => void this.#checkFolder(), FOLDER_INTERVAL_MS);
    }
    const edges = config.role === 'processor' ? 1 : config.edges;
    // Sockets with SO_REUSEPORT do not fail when another process has the port, so check first.
    if (edges > 1 && config.port !== 0 && waiting === null) await assertPortIsFree(config);
    const channels = config.logUrl === '' ? Array.from({ length: edges - 1 }, () => new MessageChannel()) : [];
    const otherEdges = channels.map(({ port1 }) => port1);
    const port = await this.#startEdge(0, waiting?.port ?? config.port, { otherEdges, logWriter: undefined });
    const others = Array.from({ length: edges - 1 }, (_, index) =>
      this.#startEdge(index + 1, port, { otherEdges: [], logWriter: channels[index]?.port2 }),
    );
    await Promise.all(others);
    await this.#startProcessor();
    return port;
  }

  /** Not ready from now on, and serving as before until `stop`: load balancers get to move traffic elsewhere. */
  beginDraining(): void {
    this.#flags[DRAINING] = 1;
  }

  /** Resolves once everything acknowledged is on disk and every edge has closed its connections. */
  async stop(): Promise<void> {
    if (this.#flags[SHUTTING_DOWN] === 1) return;
    this.#flags[SHUTTING_DOWN] = 1;
    clearInterval(this.#folderTimer);
    await Promise.all(this.#edges.map(stopThread));
    // Last, because the edges were still writing to the log that it reads.
    if (this.#processor !== undefined) await stopThread(this.#processor);
    // If the disk has failed meanwhile, never resolve: `#killWithoutCleanup` ends the process.
    if (this.#isBeingKilled) await new Promise(() => undefined);
    const threads = [...this.#edges, this.#processor].filter((thread) => thread !== undefined);
    await Promise.all(threads.map((thread) => thread.terminate()));
    await this.#parts.keyStore?.close();
  }

  /** Resolves with the port, if it is an edge. */
  #started(thread: Worker, name: string): Promise<number> {
    const { promise: started, resolve, reject } = Promise.withResolvers<number>();
    thread.on('error', (error: Error) => this.#exit(`the ${name} thread crashed: ${error.message}`, error));
    thread.on('exit', () => {
      if (this.#flags[SHUTTING_DOWN] === 0) this.#exit(`the ${name} thread ended`);
    });
    thread.on('message', (message: ThreadMessage) => {
      switch (message.type) {
        case 'opened':
          // This closes the port at once; the requests in progress there are finished meanwhile.
          void this.#parts.waiting?.stop();
          post(thread, { type: 'listen' });
          return;
        case 'started':
          resolve(message.port ?? 0);
          return;
        case 'start-failed':
          this.#flags[SHUTTING_DOWN] = 1;
          reject(new OperatorError(message.message));
          return;
        case 'fatal':
          this.#killWithoutCleanup(message.message);
          return;
        case 'problem':
          for (const edge of this.#edges) post(edge, { type: 'processing', problem: message.problem });
          return;
        case 'keyUsage':
          void this.#recordUsage(message.keyUsage);
          return;
        case 'stopped':
          return;
      }
    });
    return started;
  }

  async #startProcessor(): Promise<void> {
    const { config } = this.#parts;
    if (!processes(config.role)) return;
    const options = { workerData: this.#setup(), name: 'processor', resourceLimits: HEAP_LIMITS.processor };
    this.#processor = new Worker(threadFile('./processor-thread', import.meta.url), options);
    await this.#started(this.#processor, options.name);
  }

  #setup(): ThreadSetup {
    // The others cannot be handed to a thread.
    const { keyStore: _keyStore, logger: _logger, waiting: _waiting, ...parts } = this.#parts;
    return { ...parts, ...this.#memory };
  }

  #startEdge(index: number, port: number, ports: Pick<EdgeSetup, 'otherEdges' | 'logWriter'>): Promise<number> {
    const workerData: EdgeSetup = { ...this.#setup(), index, port, ...ports };
    const transferList = [ports.logWriter, ...ports.otherEdges].filter((one) => one !== undefined);
    const options = { workerData, name: 'edge', transferList, resourceLimits: HEAP_LIMITS.default };
    const thread = new Worker(threadFile('./edge-thread', import.meta.url), options);
    this.#edges.push(thread);
    return this.#started(thread, options.name);
  }

  async #recordUsage(keyUsage: readonly KeyUsage[]): Promise<void> {
    for (const { keyId, leakOrigin } of keyUsage) {
      if (leakOrigin === null || this.#leaksReported.has(keyId)) continue;
      this.#leaksReported.add(keyId);
      this.#parts.logger.warn(
        { key_id: keyId, origin: leakOrigin },
        'a secret key is used from a web page: probably leaked',
      );
    }
    try {
      await this.#parts.keyStore?.recordUsage(keyUsage);
      this.#keyUsageOutage.worked();
    } catch (error) {
      this.#keyUsageOutage.failed(error);
    }
  }

  async #checkFolder(): Promise<void> {
    const lockProblem = this.#lockProblem();
    if (lockProblem !== null) this.#killWithoutCleanup(lockProblem);
    this.#reportLastBackup();
    this.#checkReplacedFiles();
    await this.#checkDisk();
  }

  #checkReplacedFiles(): void {
    const { logger } = this.#parts;
    for (const [index, identity] of this.#identities.entries()) {
      const { name, advice } = WATCHED_FILES[index] as (typeof WATCHED_FILES)[number];
      const before = this.#flags[REPLACED] ?? 0;
      const bit = 1 << index;
      const isReplaced = !identity.isSame();
      if (isReplaced === ((before & bit) !== 0)) continue;
      this.#flags[REPLACED] = before ^ bit;
      if (isReplaced) logger.error(`${name} ${WAS_REPLACED} while the server runs: ${advice}`);
      else logger.info(`${name} is there again`);
    }
  }

  async #checkDisk(): Promise<void> {
    const { config, metricsBuffer, logger } = this.#parts;
    try {
      const { bavail, bsize } = await statfs(config.dataFolder);
      const freeBytes = bavail * bsize;
      metricsWriter(metricsBuffer, supervisorSlot(config.edges)).set(METRIC.disk_free_bytes, freeBytes);
      const low = freeBytes < config.diskFreeBytesMin ? 1 : 0;
      if (this.#flags[DISK_LOW] !== low) {
        const line = { free_bytes: freeBytes, free_bytes_min: config.diskFreeBytesMin };
        if (low === 1) logger.error(line, 'disk space is low: responding with 503 until there is more');
        else logger.info(line, 'disk space is sufficient again');
      }
      this.#flags[DISK_LOW] = low;
      this.#diskOutage.worked();
    } catch (error) {
      this.#diskOutage.failed(error);
    }
  }

  /** The command that makes backups notes them in the data folder. */
  #reportLastBackup(): void {
    const { config, metricsBuffer } = this.#parts;
    const last = readLastBackup(config.dataFolder);
    if (last === undefined) return;
    metricsWriter(metricsBuffer, supervisorSlot(config.edges)).set(
      METRIC.last_backup,
      Date.parse(last.began_at) / 1_000,
    );
  }

  #exit(reason: string, error?: Error): void {
    this.#parts.logger.fatal({ reason, ...(error && { err: error }) }, 'exiting: restart to recover');
    setTimeout(() => process.exit(1), FATAL_GRACE_MS);
  }

  /** In words; null while this server has its data folder to itself. */
  #lockProblem(): string | null {
    try {
      assertLockHeld(this.#parts.lock);
      return null;
    } catch (error) {
      // If the check itself fails, the threads that write will find out.
      return error instanceof LockLostError ? error.message : null;
    }
  }

  /**
   * After a failed fsync, or when another server may hold the data folder: SIGKILL, with no cleanup. An orderly exit
   * would let SQLite close its files, which syncs them again and removes the write-ahead log; but after a failed fsync
   * the next one succeeds even if the data was lost.
   */
  #killWithoutCleanup(reason: string): void {
    if (this.#isBeingKilled) return;
    this.#isBeingKilled = true;
    const lockProblem = this.#lockProblem();
    const next = lockProblem === null ? 'restart to recover' : 'the lock of the data folder is gone';
    this.#parts.logger.fatal({ reason: lockProblem ?? reason }, `exiting: ${next}`);
    setTimeout(() => process.kill(process.pid, 'SIGKILL'), FATAL_GRACE_MS);
  }
}

function stopThread(thread: Worker): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  thread.on('message', ({ type }: ThreadMessage) => {
    if (type === 'stopped') resolve();
  });
  post(thread, { type: 'stop' });
  return promise;
}

function post(thread: Worker, message: SupervisorMessage): void {
  thread.postMessage(message);
}

function assertPortIsFree({ host, port }: Config): Promise<void> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, host, port)));
    probe.listen({ host, port }, () => probe.close(() => resolve()));
  });
}
