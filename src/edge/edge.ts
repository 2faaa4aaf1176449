/**
 * One edge: an HTTP server with its own appender to the log, in its own thread. What it serves depends on the role of
 * the server: events, everything else, or health and metrics alone. It sees interfaces only; `wiring/edge-thread.ts`
 * decides what implements them.
 *
 * While the server drains it serves as before and ends each connection with its response; then the port closes,
 * requests in flight are finished, new ones get 503, and the log is closed.
 */

import type { RequestListener, Server } from 'node:http';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { buildApp, buildOperatorApp } from '../api/app.ts';
import type { OperatorParts } from '../api/parts.ts';
import { baseUrlOf } from '../config/base-url.ts';
import type { Config, Sources } from '../config/config.ts';
import { KeyCache } from '../keys/cache.ts';
import { OpenPlans } from '../keys/open-plans.ts';
import type { LogAppender } from '../log.ts';
import { type CounterIndex, METRIC, metricsWriter, renderMetrics } from '../telemetry/metrics.ts';
import { matchOptionsOf } from '../config/match-options.ts';
import type { KeyUsage, KeyStore } from '../keys.ts';
import type { PlanStore } from '../plans.ts';
import { UNUSABLE_PLAN } from '../plans/unusable-plan.ts';
import type { Store } from '../store.ts';
import { InFlight } from './admission.ts';
import { CheckIntake } from './check-intake.ts';
import { Ingest } from './ingest.ts';
import { listenError } from './listen-error.ts';
import { RateLimits } from './rate-limits.ts';
import { type Logger, OutageLog, RateLimitedLogger } from '../telemetry/logger.ts';
import { isStopping, outageReporter, type ReadinessParts, readinessOf, type ServerStatus } from './readiness.ts';
import { isForeignOrigin } from './request-headers.ts';
import type { IntakeParts, Predict } from './request-intake.ts';
import { createEdgeServer, type EdgeServer } from './server.ts';
import { KeyUsageTracker } from './key-usage.ts';
import { SegmentIntake } from './segment-intake.ts';
import { createTraceIds } from './trace-id.ts';
import { LargeBodyValidator } from './validate-body.ts';

export interface EdgeParts
  extends Pick<ReadinessParts, 'status' | 'storeProblem'>,
    Pick<IntakeParts, 'now' | 'receiptTime'> {
  readonly config: Config;
  readonly sources: Sources;
  readonly startWarnings: () => readonly string[];
  readonly processingProblem: () => string | null;
  /** Connections of clients at once, over all edges. */
  readonly connectionsMax: number;
  /** Null where this role does not receive events. */
  readonly receiving: { readonly log: LogAppender; readonly predict: Predict } | null;
  /** Null where nothing asks for a key. */
  readonly keyStore: KeyStore | null;
  /** Null where the API is not served. Its calls never block the thread. */
  readonly reading: Store | null;
  readonly metrics: { readonly buffer: SharedArrayBuffer; readonly slot: number };
  readonly logger: Logger;
  readonly version: string;
  /** Shared with the other edges of the server (`trace-id.ts`). */
  readonly newestTraceId: BigInt64Array;
  /** Shared with the other edges of the server (`rate-limits.ts`). */
  readonly rateLimitBuffer: SharedArrayBuffer;
  readonly handOverUsage: (keyUsage: KeyUsage[]) => void;
  /** Called when the edge could serve: resolves once the port is free. */
  readonly mayListen: () => Promise<void>;
}

const GAUGE_INTERVAL_MS = 1_000;
/** The processor uses the number of waiting requests to decide whether it may work now. */
const WAITING_INTERVAL_MS = 20;
/** Weight of a sample in the moving average, which is over about the last five. */
const WAITING_WEIGHT = 0.2;
const CLOSE_IDLE_INTERVAL_MS = 50;
const UNFINISHED_MS_MAX = 5_000;
/** Reads count as working again after this long without a failure: while some fail, others may succeed. */
const READ_QUIET_MS = 2_000;
const NANOSECONDS = 1e9;

export async function startEdge(parts: EdgeParts, port: number) {
  const { config, receiving, reading, keyStore, status, logger } = parts;
  const log = receiving?.log ?? null;
  const metrics = metricsWriter(parts.metrics.buffer, parts.metrics.slot);
  const newTraceId = createTraceIds(parts.receiptTime, parts.newestTraceId);
  const keyUsage = new KeyUsageTracker(parts.handOverUsage);
  const keyOutage = new OutageLog(logger, {
    failing: 'keys cannot be read: recently confirmed ones keep working, all others get 503',
    working: 'keys can be read again',
  });
  const keys = keyStore === null ? null : new KeyCache(keyStore, { outage: keyOutage });
  const rateLimitedLogger = new RateLimitedLogger(logger, parts.now);
  const shared = { metrics, newTraceId, keyUsage, logger: rateLimitedLogger };
  const ingest =
    receiving === null || keys === null || keyStore === null
      ? null
      : makeIngest(parts, { ...shared, ...receiving, keys }, keyStore.plans);
  const { storeProblem } = parts;
  const keysProblem = (): string | null => keys?.problem() ?? null;
  const readiness = () => readinessOf({ role: config.role, status, log, storeProblem, keysProblem });
  const reportProblem = log === null ? () => undefined : outageReporter(log, logger);
  let created: EdgeServer | undefined;
  metrics.set(METRIC.connections_max, parts.connectionsMax);
  const delay = monitorEventLoopDelay({ resolution: 20 });
  delay.enable();
  const gaugeTimer = setInterval(() => {
    ingest?.setGauges();
    if (ingest !== null) void keys?.probe();
    metrics.set(METRIC.ready, readiness().ready ? 1 : 0);
    metrics.set(METRIC.connections, created?.connections.size ?? 0);
    reportProblem();
    metrics.set(METRIC.event_loop_delay_max, delay.max / NANOSECONDS);
    delay.reset();
  }, GAUGE_INTERVAL_MS).unref();
  let waiting = 0;
  const waitingTimer = setInterval(() => {
    waiting += ((ingest?.waiting() ?? 0) - waiting) * WAITING_WEIGHT;
    metrics.set(METRIC.requests_waiting, waiting);
  }, WAITING_INTERVAL_MS).unref();

  const readOutage = new OutageLog(
    logger,
    { failing: 'reads fail with 503 until the store can be read', working: 'reads work again' },
    READ_QUIET_MS,
  );
  const stopping = new AbortController();
  const operatorParts: OperatorParts = {
    serverFactory: (everythingElse: RequestListener) => {
      const connections = { max: Math.max(1, Math.floor(parts.connectionsMax / config.edges)), logger };
      const intakes = ingest?.intakes ?? null;
      const edgeParts = { intakes, metrics, newTraceId, isStopping: () => isStopping(status), connections };
      created = createEdgeServer(edgeParts, everythingElse);
      return created.server;
    },
    version: parts.version,
    role: config.role,
    serverUrl: () => config.publicUrl || baseUrlOf(config.host, portOf(created?.server)),
    readiness,
    renderMetrics: () => renderMetrics(parts.metrics.buffer, { version: parts.version }),
    newTraceId,
    onUnavailable: (error) => readOutage.failed(error),
    onError: (error, traceId) => {
      logger.error({ trace_id: traceId, err: error }, 'request failed unexpectedly');
      metrics.inc(METRIC.internal_errors);
    },
  };
  const app =
    reading === null || keyStore === null || keys === null
      ? buildOperatorApp(operatorParts)
      : buildApp({
          ...parts,
          ...operatorParts,
          store: reading,
          keyStore,
          metricsBuffer: parts.metrics.buffer,
          stopping: stopping.signal,
          onRead: () => readOutage.worked(),
          publicUrl: config.publicUrl,
          keys,
          environment: config.environment,
          matchOptions: matchOptionsOf(config),
          noteUse: (key, at, origin, host) => keyUsage.note(key.id, at, origin, isForeignOrigin(origin, host)),
        });
  await app.ready();
  if (!created) throw new Error('the app did not ask for a server');
  const edgeServer = created;
  const { server } = edgeServer;
  await parts.mayListen();
  await listen(server, config, port);
  // For example when the process is out of file descriptors: Node keeps accepting, and each attempt fails until some are
  // free.
  server.on('error', (error) =>
    rateLimitedLogger.error({ reason: error.message }, 'a connection could not be accepted'),
  );

  return {
    port: portOf(server),
    /** Finishes the requests in flight, then closes the log and the stores. */
    stop: async () => {
      stopping.abort();
      await closeServer(edgeServer, config.shutdownMs / 2);
      clearInterval(gaugeTimer);
      delay.disable();
      clearInterval(waitingTimer);
      keyUsage.close();
      await log?.close();
      await reading?.close();
      await keyStore?.close();
    },
  };
}

function makeIngest(
  parts: EdgeParts,
  shared: Pick<IntakeParts, 'log' | 'predict' | 'keys' | 'keyUsage' | 'metrics' | 'logger' | 'newTraceId'>,
  planStore: PlanStore,
) {
  const { config, status, now, receiptTime } = parts;
  const inFlight = new InFlight(Math.floor(config.inFlightBytesMax / config.edges));
  const largeBodies = new LargeBodyValidator();
  const intakeParts: IntakeParts = {
    ...shared,
    plans: new OpenPlans(planStore, (reason) => shared.logger.error({ reason }, UNUSABLE_PLAN)),
    rateLimits: new RateLimits(parts.rateLimitBuffer, config.edgeServers),
    inFlight,
    largeBodies,
    environment: config.environment,
    now,
    receiptTime,
    unavailable: () => unavailableMetricOf(status),
    isStopping: () => isStopping(status),
    matchOptions: matchOptionsOf(config),
    publicUrl: config.publicUrl,
  };
  return {
    intakes: {
      ingest: new Ingest(intakeParts),
      check: new CheckIntake(intakeParts),
      segment: new SegmentIntake(intakeParts),
    },
    /** Complete requests that are not durable yet. */
    waiting: () => inFlight.appending + largeBodies.waiting,
    setGauges: () => {
      shared.metrics.set(METRIC.in_flight_bytes, inFlight.bytes);
      shared.metrics.set(METRIC.in_flight_requests, inFlight.requests);
    },
  };
}

export function portOf(server: Server | undefined): number {
  const address = server?.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

function unavailableMetricOf(status: ServerStatus): CounterIndex | null {
  if (status.isShuttingDown()) return METRIC.unavailable_shutdown;
  if (status.isDiskLow()) return METRIC.unavailable_disk;
  return status.isBacklogFull() ? METRIC.unavailable_backlog : null;
}

export function listen(server: Server, { host, edges }: Config, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, host, port)));
    // Shared only among several edges: otherwise a second server on the port would share it instead of failing to start.
    server.listen({ host, port, reusePort: edges > 1, backlog: 1_024 }, () => {
      server.removeAllListeners('error');
      resolve();
    });
  });
}

/** Complete requests get their response; those still being received have `timeoutMs` to complete. */
export function closeServer({ server, dropUnfinished }: EdgeServer, timeoutMs: number): Promise<void> {
  return new Promise((resolve) => {
    const unfinishedTimer = setTimeout(dropUnfinished, Math.min(timeoutMs, UNFINISHED_MS_MAX));
    // Node closes those that are idle now; one that falls idle after its last response would stay open until its timeout.
    const timer = setInterval(() => server.closeIdleConnections(), CLOSE_IDLE_INTERVAL_MS);
    server.close(() => {
      clearTimeout(unfinishedTimer);
      clearInterval(timer);
      resolve();
    });
  });
}
