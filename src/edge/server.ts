/**
 * One port. Requests with events (`/ingest/events`, its dry run, `/ingest/v1/`) are handled on plain node:http, which
 * is faster; everything else goes to the Fastify app. Owns the limits on slow and malformed clients: Node's
 * strict HTTP parser, and timeouts for headers, bodies and idle connections.
 *
 * Invariant: the requests of one connection are handled one after the other, each after the previous response. So a
 * request behind a response that closes the connection has no effect: it could not get a response.
 */

import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ERRORS, type ErrorCode, RETRY_AFTER_SECONDS } from '../errors.ts';
import { type MetricsWriter, REQUESTS_BY_STATUS } from '../telemetry/metrics.ts';
import { CHECK_PATH, INGEST_PATH } from '../config/roles.ts';
import { type Failure, sendFailure, limitUnwantedBody } from './responses.ts';
import type { CheckIntake } from './check-intake.ts';
import { Connections, type ConnectionsParts } from './connections.ts';
import type { Ingest } from './ingest.ts';
import { isSegmentPath, type SegmentIntake, sendSegmentFailure } from './segment-intake.ts';
import { ambiguityOf, charsetProblemOf, TRANSFER_CODING_PROBLEM } from './request-headers.ts';

/** An `import` of `node:http` would read all its exports, of which WebSocket loads a client: 80 ms of every start. */
const { createServer } = process.getBuiltinModule('node:http');

const OPTIONS = {
  headersTimeout: 10_000,
  requestTimeout: 60_000,
  /** Longer than the idle timeout of common load balancers (60 s), so that they close first. */
  keepAliveTimeout: 65_000,
  connectionsCheckingInterval: 1_000,
  maxHeaderSize: 16_384,
  // Node would respond without a trace_id; Host is still required, below.
  requireHostHeader: false,
};

/** A connection without traffic for this long is closed: above all, a client that does not read its response. */
const IDLE_TIMEOUT_MS = 70_000;
/** How long a client that was refused may take to read why. */
const HANG_UP_MS = 2_000;

export interface Intakes {
  readonly ingest: Ingest;
  readonly check: CheckIntake;
  readonly segment: SegmentIntake;
}

interface EdgeServerParts {
  /** Null where this role does not receive events: then their paths are like any other. */
  readonly intakes: Intakes | null;
  readonly metrics: MetricsWriter;
  readonly newTraceId: () => string;
  /** Whether connections are to end with their next response. */
  readonly isStopping: () => boolean;
  readonly connections: Pick<ConnectionsParts, 'max' | 'logger'>;
}

export interface EdgeServer {
  readonly server: Server;
  /** Closes the connections on which no complete request waits for its response: nothing on them was promised. */
  readonly dropUnfinished: () => void;
  readonly connections: Pick<Connections, 'size'>;
}

export function createEdgeServer(parts: EdgeServerParts, everythingElse: RequestListener): EdgeServer {
  const { intakes } = parts;
  const responses = new PipelinedResponses();
  const connections = new Connections({
    ...parts.connections,
    metrics: parts.metrics,
    isBusy: (socket) => responses.isBusy(socket),
  });
  const refused = new WeakSet<Socket>();
  const receive = (request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void => {
    const { socket } = request;
    // The connection is closing: this could not get a response.
    if (!socket.writable) {
      request.resume();
      return;
    }
    responses.note(socket, response);
    // Node gives the connection to one response at a time; without it, this request is behind another one.
    if (response.socket === null) hold(request, response, expectsContinue);
    else handle(request, response, expectsContinue);
  };
  /** Until the previous response is finished. If that closes the connection, this request is never handled. */
  const hold = (request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void => {
    const { socket } = request;
    drainOnClose(socket, responses);
    // Data behind it stays in the kernel's buffers. Node resumes the socket twice, at the end of this message and when all
    // that it has read is parsed, so it is paused after both.
    const pause = (): void => {
      if (response.socket === null && socket.writable) socket.pause();
    };
    process.nextTick(pause);
    setImmediate(pause);
    // In the next tick, when Node is done with the previous response.
    response.once('socket', () =>
      process.nextTick(() => {
        if (responses.latest(socket) === response) socket.resume();
        if (socket.writable) handle(request, response, expectsContinue);
      }),
    );
  };
  const handle = (request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void => {
    if (parts.isStopping()) response.shouldKeepAlive = false;
    // The upgrade is ignored, but Node's parser drops the rest of the packet: where the next request begins is unknown.
    if (request.headers.upgrade !== undefined) {
      response.shouldKeepAlive = false;
      drainOnClose(request.socket, responses);
    }
    if (request.url?.startsWith('http') === true) request.url = originForm(request.url);
    const refusal = refusalOf(request);
    if (refusal !== undefined) {
      refuseRequest(parts, request, response, refusal);
    } else if (intakes !== null && isAt(INGEST_PATH, request.url)) {
      // The key, the size and the room are checked before the client is asked to send the body.
      intakes.ingest.handle(request, response, expectsContinue);
    } else if (intakes !== null && isAt(CHECK_PATH, request.url)) {
      intakes.check.handle(request, response, expectsContinue);
    } else if (intakes !== null && isSegmentPath(request.url)) {
      intakes.segment.handle(request, response, expectsContinue);
    } else {
      const charsetProblem = charsetProblemOf(request.headers['content-type']);
      if (charsetProblem !== undefined) {
        refuseRequest(parts, request, response, { message: charsetProblem, endsConnection: false });
        return;
      }
      if (expectsContinue) response.writeContinue();
      everythingElse(request, response);
    }
  };
  const server = createServer(OPTIONS, (request, response) => receive(request, response, false));
  server.timeout = IDLE_TIMEOUT_MS;
  // A client that ends its side after its last request still reads: Node would close the connection without a response.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.on('checkContinue', (request, response) => receive(request, response, true));
  // Any other expectation may be ignored (RFC 9110, 10.1.1); Node would respond without a trace_id.
  server.on('checkExpectation', (request, response) => receive(request, response, false));
  server.on('clientError', (error: ParserError, socket: Socket) => {
    if (error.code === 'ECONNRESET') socket.destroy();
    else refuseSocket(socket, refusalForParserError(error));
  });
  // Node hands the socket over as a tunnel, without listeners of its own; without ours it would be closed silently.
  server.on('connect', (_request, socket) => {
    socket.on('error', () => socket.destroy()).resume();
    refuseSocket(socket as Socket, NOT_A_PROXY);
  });
  const refuseSocket = (socket: Socket, refusal: SocketRefusal): void => {
    // One response is enough: after the first error the parser only reports more.
    if (!socket.writable || refused.has(socket)) return;
    refused.add(socket);
    const { receiving, waiting } = responses.of(socket);
    // Garbage after a complete request: that request gets its response first, then the connection ends.
    if (waiting !== undefined) {
      waiting.shouldKeepAlive = false;
      waiting.once('close', () => hangUp(socket));
    } else if (receiving?.headersSent === true) {
      hangUp(socket);
    } else {
      writeRefusal(parts, refusal, socket);
    }
  };
  server.on('connection', (socket: Socket) => connections.add(socket));
  const dropUnfinished = (): void => {
    for (const socket of connections) if (responses.of(socket).waiting === undefined) socket.destroy();
  };
  return { server, dropUnfinished, connections };
}

/** The requests in progress per connection; more than one if the client pipelines. */
class PipelinedResponses {
  readonly #latest = new WeakMap<Socket, ServerResponse>();
  readonly #before = new WeakMap<ServerResponse, ServerResponse>();

  note(socket: Socket, response: ServerResponse): void {
    const before = this.#latest.get(socket);
    if (before !== undefined && !before.writableFinished) {
      this.#before.set(response, before);
      // One step back is enough; a chain of all responses would never be freed.
      this.#before.delete(before);
    }
    this.#latest.set(socket, response);
  }

  latest(socket: Socket): ServerResponse | undefined {
    return this.#latest.get(socket);
  }

  /** Whether a request is being received, or waits for its response. */
  isBusy(socket: Socket): boolean {
    const { receiving, waiting } = this.of(socket);
    return receiving !== undefined || waiting !== undefined;
  }

  /** `receiving`: its request is still being received. `waiting`: that of the last complete request, not yet sent. */
  of(socket: Socket): { receiving: ServerResponse | undefined; waiting: ServerResponse | undefined } {
    const latest = this.#latest.get(socket);
    const receiving = latest?.req.complete === false ? latest : undefined;
    const complete = receiving === undefined ? latest : this.#before.get(receiving);
    return { receiving, waiting: complete?.writableFinished === false ? complete : undefined };
  }
}

/** Proxies may send the absolute form of the address, which servers must accept (RFC 9112, 3.2.2). */
function originForm(target: string): string {
  const url = URL.parse(target);
  return url === null ? target : url.pathname + url.search;
}

function isAt(path: string, url: string | undefined): boolean {
  return url === path || url?.startsWith(`${path}?`) === true;
}

interface SocketRefusal {
  readonly code: ErrorCode;
  readonly message: string;
}

/** `reason` is one of the parser's fixed sentences, and quotes nothing of the request. */
interface ParserError extends NodeJS.ErrnoException {
  readonly reason?: string;
}

const NOT_A_PROXY: SocketRefusal = {
  code: 'bad_request',
  message: 'CONNECT is not supported: this server is not a proxy',
};

const PARSER_REFUSALS: Readonly<Record<string, SocketRefusal>> = {
  HPE_HEADER_OVERFLOW: {
    code: 'headers_too_large',
    message: `the request line and the headers must not exceed ${OPTIONS.maxHeaderSize} bytes`,
  },
  ERR_HTTP_REQUEST_TIMEOUT: { code: 'request_timeout', message: 'the request did not arrive in time: send it again' },
  HPE_INVALID_EOF_STATE: { code: 'bad_request', message: 'the connection ended before the request was complete' },
  HPE_INVALID_TRANSFER_ENCODING: { code: 'bad_request', message: TRANSFER_CODING_PROBLEM },
};

function refusalForParserError({ code = '', reason }: ParserError): SocketRefusal {
  const known = PARSER_REFUSALS[code];
  if (known !== undefined) return known;
  return { code: 'bad_request', message: `this is not a valid HTTP request${reason ? `: ${reason}` : ''}` };
}

/** Written by hand: there is no request to respond to, only a socket. */
function writeRefusal(
  { metrics, newTraceId }: EdgeServerParts,
  { code, message }: SocketRefusal,
  socket: Socket,
): void {
  const kind = ERRORS[code];
  count(metrics, kind.status);
  const traceId = newTraceId();
  const body = JSON.stringify({ error: kind.text, trace_id: traceId, message });
  const head = [
    `HTTP/1.1 ${kind.status} ${kind.text}`,
    'Connection: close',
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Trace-Id: ${traceId}`,
  ];
  if (kind.retryable) head.push(`Retry-After: ${RETRY_AFTER_SECONDS}`);
  socket.write(`${head.join('\r\n')}\r\n\r\n${body}`);
  hangUp(socket);
}

interface RequestRefusal {
  readonly message: string;
  /** Set where it is uncertain where the next request on the connection would begin. */
  readonly endsConnection: boolean;
}

/** What is wrong with a request whatever its path; checked before anything in it is trusted. */
function refusalOf(request: IncomingMessage): RequestRefusal | undefined {
  const { headers, httpVersionMajor, httpVersionMinor } = request;
  // Node takes a line without a version for HTTP/0.9, which has no headers, no status and no end but the connection's.
  if (httpVersionMajor !== 1) return { message: 'only HTTP/1.1 and HTTP/1.0 are understood', endsConnection: true };
  if (headers.host === undefined && httpVersionMinor === 1) {
    return { message: 'the Host header is required', endsConnection: false };
  }
  const message = ambiguityOf(request);
  if (message === undefined) return undefined;
  return { message, endsConnection: headers['transfer-encoding'] !== undefined };
}

function refuseRequest(
  { metrics, newTraceId }: EdgeServerParts,
  request: IncomingMessage,
  response: ServerResponse,
  { message, endsConnection }: RequestRefusal,
): void {
  const isForSegment = isSegmentPath(request.url);
  const isForIngest = isForSegment || isAt(INGEST_PATH, request.url) || isAt(CHECK_PATH, request.url);
  const failure: Failure = isForIngest
    ? { code: 'validation_failed', errors: [], message }
    : { code: 'bad_request', message };
  count(metrics, ERRORS[failure.code].status);
  if (endsConnection) response.shouldKeepAlive = false;
  if (!request.complete) limitUnwantedBody(request);
  // Without CORS headers a web page could not read the reason.
  const allowOrigin = isForIngest && request.headers.origin !== undefined ? '*' : null;
  if (isForSegment) sendSegmentFailure(response, newTraceId(), { code: failure.code, message }, allowOrigin);
  else sendFailure(response, newTraceId(), failure, allowOrigin);
}

function count(metrics: MetricsWriter, status: number): void {
  const counter = REQUESTS_BY_STATUS.get(status);
  if (counter !== undefined) metrics.inc(counter);
}

/**
 * For a connection on which more data may follow the request whose response closes it: the rest is received and
 * dropped, so that the client can read that response.
 */
function drainOnClose(socket: Socket, responses: PipelinedResponses): void {
  socket.destroySoon = () => {
    responses.latest(socket)?.req.resume();
    socket.resume();
    hangUp(socket);
  };
}

/** Closing at once, with unread data, would cost the client its response; waiting forever would cost us sockets. */
function hangUp(socket: Socket): void {
  socket.end();
  const timer = setTimeout(() => socket.destroy(), HANG_UP_MS).unref();
  socket.once('close', () => clearTimeout(timer));
}
