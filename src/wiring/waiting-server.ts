/**
 * Serves the port of a server whose database or Kafka is unavailable at its start, until both are prepared
 * (`late-start.ts`) and the first edge is about to listen. Health, metrics, version and the script of the SDK are as
 * ever; everything else is 503, or 429 for Segment's SDKs, as for any request that cannot be accepted now.
 *
 * Nothing is 401: no key can be looked up, and clients drop data on 401. Web pages can read every response under
 * `/ingest/`.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { buildOperatorApp } from '../api/app.ts';
import type { Config } from '../config/config.ts';
import { closeServer, listen, portOf } from '../edge/edge.ts';
import { limitUnwantedBody, sendFailure, sendPreflight } from '../edge/responses.ts';
import { isSegmentPath, SEGMENT_PREFLIGHT, sendSegmentFailure } from '../edge/segment-intake.ts';
import { createEdgeServer } from '../edge/server.ts';
import { createTraceIds } from '../edge/trace-id.ts';
import type { Logger } from '../telemetry/logger.ts';
import { METRIC, metricsWriter, renderMetrics } from '../telemetry/metrics.ts';
import type { DatabaseStart } from './late-start.ts';

interface WaitingParts {
  readonly config: Config;
  readonly database: DatabaseStart;
  readonly connectionsMax: number;
  readonly metrics: { readonly buffer: SharedArrayBuffer; readonly slot: number };
  readonly logger: Logger;
  readonly version: string;
}

export interface WaitingServer {
  readonly port: number;
  /** Closes the port at once; resolves when the requests in progress are finished. */
  stop(): Promise<void>;
}

export async function startWaitingServer(parts: WaitingParts): Promise<WaitingServer> {
  const { config, database, connectionsMax, logger, version } = parts;
  const metrics = metricsWriter(parts.metrics.buffer, parts.metrics.slot);
  const newTraceId = createTraceIds(Date.now);
  let isStopping = false;
  const refuse = (request: IncomingMessage, response: ServerResponse): void => {
    const { method, url, headers } = request;
    const isForIngest = url?.startsWith('/ingest/') === true;
    const isForSegment = isSegmentPath(url);
    if (!request.complete) limitUnwantedBody(request);
    if (isForIngest && method === 'OPTIONS' && headers.origin !== undefined) {
      sendPreflight(response, newTraceId(), isForSegment ? SEGMENT_PREFLIGHT : undefined);
      return;
    }
    const allowOrigin = isForIngest && headers.origin !== undefined ? '*' : null;
    if (isForIngest) {
      metrics.inc(METRIC.unavailable_keys);
      metrics.inc(isForSegment ? METRIC.requests_429 : METRIC.requests_503);
    }
    if (isForSegment) sendSegmentFailure(response, newTraceId(), { code: 'overloaded' }, allowOrigin);
    else sendFailure(response, newTraceId(), { code: 'unavailable' }, allowOrigin);
  };
  const connections = { max: connectionsMax, logger };
  const edgeServer = createEdgeServer(
    { intakes: null, metrics, newTraceId, isStopping: () => isStopping, connections },
    (request, response) => {
      const [path = ''] = (request.url ?? '').split('?', 1);
      if (app.methodsByPath.has(path)) app.routing(request, response);
      else refuse(request, response);
    },
  );
  const app = buildOperatorApp({
    serverFactory: () => edgeServer.server,
    version,
    role: config.role,
    readiness: () => ({ ready: false, reasons: [database.problem ?? 'the server is starting'] }),
    renderMetrics: () => renderMetrics(parts.metrics.buffer, { version }),
    newTraceId,
    onUnavailable: () => undefined,
    onError: (error, traceId) => logger.error({ trace_id: traceId, err: error }, 'request failed unexpectedly'),
  });
  await app.ready();
  metrics.set(METRIC.ready, 0);
  // The edges listen on the port later, and share it among themselves alone.
  await listen(edgeServer.server, { ...config, edges: 1 }, config.port);
  return {
    port: portOf(edgeServer.server),
    stop: () => {
      isStopping = true;
      // From now on it is the edges' minimum.
      metrics.set(METRIC.ready, 1);
      return closeServer(edgeServer, config.shutdownMs / 2);
    },
  };
}
