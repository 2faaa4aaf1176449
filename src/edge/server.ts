/**
 * One port. `POST /ingest/events` takes the fast path on plain node:http, everything else goes to the Fastify app.
 * Owns the limits on slow and malformed clients: Node's strict HTTP parser, and timeouts for headers, bodies and idle
 * connections.
 */

import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ERRORS, type ErrorCode } from '../errors.ts';
import { type MetricsWriter, REQUESTS_BY_STATUS } from '../metrics.ts';
import type { Ingest } from './ingest.ts';

const LIMITS = {
  headersTimeout: 10_000,
  requestTimeout: 60_000,
  /** Longer than the idle timeout of common load balancers (60 s), so that they close first. */
  keepAliveTimeout: 65_000,
  connectionsCheckingInterval: 1_000,
  maxHeaderSize: 16_384,
};

const INGEST_PATH = '/ingest/events';

export interface EdgeServerParts {
  readonly ingest: Ingest;
  readonly metrics: MetricsWriter;
  readonly newTraceId: () => string;
}

export function createEdgeServer(parts: EdgeServerParts, everythingElse: RequestListener): Server {
  const { ingest } = parts;
  const latest = new WeakMap<Socket, ServerResponse>();
  const server = createServer(LIMITS, (request: IncomingMessage, response: ServerResponse) => {
    latest.set(request.socket, response);
    if (isIngest(request.url)) ingest.handle(request, response);
    else everythingElse(request, response);
  });
  // The key, the size and the room are checked before the client is asked to send the body.
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    latest.set(request.socket, response);
    if (isIngest(request.url)) {
      ingest.handle(request, response, true);
      return;
    }
    response.writeContinue();
    everythingElse(request, response);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    const under = latest.get(socket);
    // Nonsense behind a whole request: that request is answered with the truth first, then the connection ends.
    if (under?.req.complete && !under.writableFinished) under.shouldKeepAlive = false;
    else refuse(parts, error, socket);
  });
  return server;
}

function isIngest(url: string | undefined): boolean {
  return url === INGEST_PATH || url?.startsWith(`${INGEST_PATH}?`) === true;
}

const CODES: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};

/** What is not HTTP, or too slow to be. Written by hand: there is no request to answer, only a socket. */
function refuse({ metrics, newTraceId }: EdgeServerParts, error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const kind = ERRORS[CODES[error.code ?? ''] ?? 'bad_request'];
  const counter = REQUESTS_BY_STATUS.get(kind.status);
  if (counter !== undefined) metrics.inc(counter);
  const traceId = newTraceId();
  const body = JSON.stringify({ error: kind.text, trace_id: traceId });
  socket.end(
    [
      `HTTP/1.1 ${kind.status} ${kind.text}`,
      'Connection: close',
      'Content-Type: application/json',
      `Content-Length: ${Buffer.byteLength(body)}`,
      `X-Trace-Id: ${traceId}`,
      '',
      body,
    ].join('\r\n'),
  );
}
