/**
 * Writes the responses of `/ingest/*`. Every one carries `X-Trace-Id`; bodies and statuses come from the table in
 * `errors.ts`.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { ERRORS, type ErrorCode, RETRY_AFTER_SECONDS } from '../errors.ts';
import type { Rejection } from '../model.ts';

/** Headers as a flat list of names and values: Node writes these without building an object first. */
type Headers = string[];

export function acceptedBody(traceId: string, accepted: number, rejections: readonly Rejection[]): string {
  return `{"trace_id":"${traceId}","users_accepted":${accepted},"users_rejected":${rejections.length},"errors":${rejections.length === 0 ? '[]' : JSON.stringify(rejections)}}`;
}

export interface Failure<Item = Rejection> {
  readonly code: ErrorCode;
  /** For a 400: one entry per rejected user, or per message of a body in Segment's format. */
  readonly errors?: readonly Item[];
  readonly message?: string;
  readonly headers?: Headers;
  readonly retryAfterMs?: number;
}

export function sendFailure(
  response: ServerResponse,
  traceId: string,
  failure: Failure,
  allowOrigin: string | null,
): void {
  const kind = ERRORS[failure.code];
  const headers = failure.headers ?? [];
  if (kind.retryable) headers.push('Retry-After', retryAfter(failure.retryAfterMs));
  send(response, kind.status, traceId, failureBody(traceId, failure), allowOrigin, headers);
}

export function failureBody(traceId: string, failure: Failure): string {
  // The specification shows nothing but `error` in a 401; its trace_id travels in the header alone.
  const body: Record<string, unknown> = { error: ERRORS[failure.code].text };
  if (failure.code !== 'unauthorized') body['trace_id'] = traceId;
  if (failure.errors) body['errors'] = failure.errors;
  if (failure.message !== undefined) body['message'] = failure.message;
  return JSON.stringify(body);
}

export function retryAfter(milliseconds = RETRY_AFTER_SECONDS * 1_000): string {
  return String(Math.max(RETRY_AFTER_SECONDS, Math.ceil(milliseconds / 1_000)));
}

const ALLOWED = { methods: 'POST', headers: 'Authorization, Content-Type, Content-Encoding, Idempotency-Key' };

export function sendPreflight(response: ServerResponse, traceId: string, { methods, headers } = ALLOWED): void {
  response.writeHead(204, [
    'X-Trace-Id',
    traceId,
    'Access-Control-Allow-Origin',
    '*',
    'Access-Control-Allow-Methods',
    methods,
    'Access-Control-Allow-Headers',
    headers,
    'Access-Control-Max-Age',
    '86400',
  ]);
  response.end();
}

export function send(
  response: ServerResponse,
  status: number,
  traceId: string,
  body: string,
  allowOrigin: string | null,
  headers: Headers = [],
): void {
  headers.push('X-Trace-Id', traceId, 'Content-Type', 'application/json');
  headers.push('Content-Length', String(Buffer.byteLength(body)));
  if (allowOrigin !== null) {
    headers.push('Access-Control-Allow-Origin', allowOrigin);
    headers.push('Access-Control-Expose-Headers', 'X-Trace-Id, Retry-After', 'Vary', 'Origin');
  }
  response.writeHead(status, headers);
  if (response.req.complete || response.shouldKeepAlive) response.end(body);
  else endAfterBody(response, body);
}

/** How long a client may continue to send a rejected body, so that it can read the response. */
const UNWANTED_BODY_MS = 5_000;

/**
 * Node keeps reading and discards what the client still sends, so that the client can finish and see the response. That
 * must not take forever.
 */
export function limitUnwantedBody(request: IncomingMessage): void {
  const timer = setTimeout(() => request.socket.destroy(), UNWANTED_BODY_MS);
  timer.unref();
  request.once('close', () => clearTimeout(timer));
}

/**
 * The connection closes with this response while the client is still sending. If it closed at once, the client would
 * see a broken pipe instead of the reason; so the response is written completely, and closing waits for the body.
 */
function endAfterBody(response: ServerResponse, body: string): void {
  const { req: request } = response;
  response.write(body);
  const end = (): void => void response.end();
  request.once('end', end).once('close', end).resume();
}
