/**
 * One edge: an HTTP server with its own log partition, in a thread of its own. It sees interfaces only; who implements
 * them is decided in `main.ts`. Draining finishes what is in flight, answers 503 to what still comes, and then closes
 * the log.
 */

import type { RequestListener, Server } from 'node:http';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { buildApp } from '../api/app.ts';
import { baseUrlOf } from '../base-url.ts';
import type { Config, Sources } from '../config.ts';
import { KeyCache } from '../keys/cache.ts';
import type { LogAppender, LogEntry } from '../log.ts';
import type { Logger } from '../logger.ts';
import { METRIC, metricsWriter, renderMetrics } from '../metrics.ts';
import { matchOptionsOf } from '../match-options.ts';
import type { MemberStore } from '../members.ts';
import type { KeySighting, KeyStore, Store } from '../store.ts';
import { InFlight } from './admission.ts';
import { Ingest, type Refusal } from './ingest.ts';
import { listenError } from './listen-error.ts';
import { isForeignOrigin } from './origins.ts';
import { QuietLog } from './quiet-log.ts';
import { createEdgeServer, type EdgeServer } from './server.ts';
import { Sightings } from './sightings.ts';
import { createTraceIds } from './trace-id.ts';
import { LargeBodyValidator } from './validate-body.ts';

export interface EdgeParts {
  readonly config: Config;
  readonly sources: Sources;
  readonly log: LogAppender;
  readonly keyStore: KeyStore;
  readonly members: MemberStore;
  /** Answers from another thread: nothing here waits for a disk but by a promise. */
  readonly store: Store;
  readonly metrics: { readonly buffer: SharedArrayBuffer; readonly slot: number };
  readonly status: ServerStatus;
  readonly logger: Logger;
  readonly version: string;
  readonly now: () => number;
  readonly handOverSightings: (sightings: KeySighting[]) => void;
}

/** What the supervisor tells all edges, without messages: read on every request. */
export interface ServerStatus {
  isShuttingDown(): boolean;
  isDiskLow(): boolean;
  /** More waits for the processor than may wait. */
  isBacklogFull(): boolean;
}

export interface Edge {
  readonly port: number;
  drain(): Promise<void>;
}

const GAUGE_INTERVAL_MS = 1_000;
/** The processor looks at how many wait to decide whether it may work now. */
const WAITING_INTERVAL_MS = 20;
/** How much one look counts: the average is over about five. */
const WAITING_WEIGHT = 0.2;
const CLOSE_IDLE_INTERVAL_MS = 50;
const UNFINISHED_MS_MAX = 5_000;
const NANOSECONDS = 1e9;

export async function startEdge(parts: EdgeParts, port: number): Promise<Edge> {
  const { config, log, status, logger, now } = parts;
  const metrics = metricsWriter(parts.metrics.buffer, parts.metrics.slot);
  const newTraceId = createTraceIds(now);
  const inFlight = new InFlight(Math.floor(config.inFlightBytesMax / config.edges));
  const sightings = new Sightings(parts.handOverSightings);
  const keys = new KeyCache(parts.keyStore);
  const quietLogger = new QuietLog(logger, now);
  const largeBodies = new LargeBodyValidator();
  const counted = counting(log);
  const ingest = new Ingest({
    log: counted.log,
    keys,
    sightings,
    inFlight,
    largeBodies,
    metrics,
    logger: quietLogger,
    environment: config.environment,
    now,
    newTraceId,
    refusal: () => refusalOf(status),
  });
  const readiness = () => readinessOf(parts);
  const tellTrouble = troubleTeller(log, logger);
  const stopGauges = keepGauges(
    () => {
      metrics.set(METRIC.in_flight_bytes, inFlight.bytes);
      metrics.set(METRIC.in_flight_requests, inFlight.requests);
      metrics.set(METRIC.ready, readiness().ready ? 1 : 0);
      tellTrouble();
    },
    (seconds) => metrics.set(METRIC.event_loop_delay_max, seconds),
  );
  const stopWaiting = keepAverage(
    () => counted.waiting() + largeBodies.waiting,
    (average) => metrics.set(METRIC.requests_waiting, average),
  );

  const stopping = new AbortController();
  let made: EdgeServer | undefined;
  const app = buildApp({
    serverFactory: (everythingElse: RequestListener) => {
      made = createEdgeServer({ ingest, metrics, newTraceId }, everythingElse);
      return made.server;
    },
    version: parts.version,
    // Asked for when somebody reads the reference, which is after the port is known.
    get serverUrl() {
      return config.publicUrl || baseUrlOf(config.host, portOf(made?.server));
    },
    readiness,
    renderMetrics: () => renderMetrics(parts.metrics.buffer, { version: parts.version }),
    newTraceId,
    config,
    sources: parts.sources,
    metricsBuffer: parts.metrics.buffer,
    store: parts.store,
    members: parts.members,
    keyStore: parts.keyStore,
    stopping: stopping.signal,
    publicUrl: config.publicUrl,
    keys,
    environment: config.environment,
    now,
    matchOptions: matchOptionsOf(config),
    noteUse: (key, at, origin, host) => sightings.note(key.id, at, isForeignOrigin(origin, host) ? origin : undefined),
    onUnavailable: (error, traceId) => quietLogger.error({ traceId, reason: reasonOf(error) }, 'nothing can be read'),
    onError: (error, traceId) => logger.error({ trace_id: traceId, err: error }, 'request failed unexpectedly'),
  });
  await app.ready();
  if (!made) throw new Error('the app did not ask for a server');
  const edgeServer = made;
  const { server } = edgeServer;
  await listen(server, config, port);
  server.on('error', (error) => logger.error({ err: error }, 'a connection could not be taken'));

  return {
    port: portOf(server),
    drain: async () => {
      stopping.abort();
      await closeServer(edgeServer, config.shutdownMs / 2);
      stopGauges();
      stopWaiting();
      sightings.close();
      await log.close();
      await parts.store.close();
      await parts.keyStore.close();
      await parts.members.close();
    },
  };
}

function portOf(server: Server | undefined): number {
  const address = server?.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

function refusalOf(status: ServerStatus): Refusal | null {
  if (status.isShuttingDown()) return 'shutdown';
  if (status.isDiskLow()) return 'disk';
  return status.isBacklogFull() ? 'backlog' : null;
}

function readinessOf({ status, log }: EdgeParts): { ready: boolean; reasons: string[] } {
  const reasons: string[] = [];
  if (status.isShuttingDown()) reasons.push('shutting down');
  if (status.isDiskLow()) reasons.push('disk space is below SLUICE_DISK_FREE_MIN');
  if (status.isBacklogFull()) reasons.push('more than SLUICE_BACKLOG_MAX waits to be processed');
  const trouble = log.trouble();
  if (trouble !== null) reasons.push(`the log cannot be written: ${trouble}`);
  return { ready: reasons.length === 0, reasons };
}

/** With what is behind it, so that the log says whether the file is locked, damaged or on a full disk. */
function reasonOf({ message, cause }: Error): string {
  return cause instanceof Error ? `${message}: ${cause.message}` : message;
}

/** One line when the log cannot be written, and one when it can again. */
function troubleTeller(log: LogAppender, logger: Logger): () => void {
  let told: string | null = null;
  return () => {
    const trouble = log.trouble();
    if (trouble === told) return;
    told = trouble;
    if (trouble === null) logger.info('the log can be written again');
    else logger.error({ reason: trouble }, 'the log cannot be written: answering 503 until it can');
  };
}

function keepGauges(setGauges: () => void, setDelay: (seconds: number) => void): () => void {
  const delay = monitorEventLoopDelay({ resolution: 10 });
  delay.enable();
  const timer = setInterval(() => {
    setGauges();
    setDelay(delay.max / NANOSECONDS);
    delay.reset();
  }, GAUGE_INTERVAL_MS);
  timer.unref();
  return () => {
    clearInterval(timer);
    delay.disable();
  };
}

function keepAverage(look: () => number, set: (average: number) => void): () => void {
  let average = 0;
  const timer = setInterval(() => {
    average += (look() - average) * WAITING_WEIGHT;
    set(average);
  }, WAITING_INTERVAL_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** The same log, which knows how many entries are not durable yet. */
function counting(log: LogAppender): { readonly log: LogAppender; waiting(): number } {
  let waiting = 0;
  const append = async (entry: LogEntry): Promise<void> => {
    waiting++;
    try {
      await log.append(entry);
    } finally {
      waiting--;
    }
  };
  return { log: { append, trouble: () => log.trouble(), close: () => log.close() }, waiting: () => waiting };
}

function listen(server: Server, { host, edges }: Config, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, host, port)));
    // Without need for it, no shared port: a second server on the same port is then told so, instead of sharing it.
    server.listen({ host, port, reusePort: edges > 1, backlog: 1_024 }, () => {
      server.removeAllListeners('error');
      resolve();
    });
  });
}

/** Requests that have come in whole are answered; those that still come in get until `patienceMs` to do so. */
function closeServer({ server, dropUnfinished }: EdgeServer, patienceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const patience = setTimeout(dropUnfinished, Math.min(patienceMs, UNFINISHED_MS_MAX));
    // Node closes those that are idle now; one that falls idle with its last answer would stay open until its timeout.
    const timer = setInterval(() => server.closeIdleConnections(), CLOSE_IDLE_INTERVAL_MS);
    server.close(() => {
      clearTimeout(patience);
      clearInterval(timer);
      resolve();
    });
  });
}
