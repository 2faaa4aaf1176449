/**
 * The responses of everything behind Fastify, as text. Status, words and whether to retry come from the table in
 * `errors.ts`; of exceptions, only the message of a `RefusedError` gets into a body, because it was written for the
 * client. A text, so that JSON of clients goes through as it is (`json-text.ts`).
 */

import type { FastifyReply } from 'fastify';
import { ERRORS, type ErrorCode, RETRY_AFTER_SECONDS } from '../errors.ts';
import { type Json, jsonText } from './json-text.ts';

/** Thrown by handlers: the response is that error, with this message if there is one. */
export class RefusedError extends Error {
  override readonly name: string = 'RefusedError';
  readonly code: ErrorCode;
  /** As the table of errors says unless given. */
  readonly retryAfterSeconds: number | null;

  constructor(code: ErrorCode, message = '', retryAfterSeconds: number | null = null) {
    super(message);
    this.code = code;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** The message names the parameter or field, and says what is expected. */
export class BadParameterError extends RefusedError {
  override readonly name = 'BadParameterError';

  constructor(message: string) {
    super('bad_request', message);
  }
}

export function sendError(reply: FastifyReply, code: ErrorCode, message?: string): FastifyReply {
  const { status, text, retryable } = ERRORS[code];
  // A route that knows better how long it takes has set it.
  if (retryable && !reply.hasHeader('retry-after')) reply.header('retry-after', RETRY_AFTER_SECONDS);
  return sendJson(reply, status, { error: text, trace_id: reply.request.id, message });
}

export function sendRefused(reply: FastifyReply, { code, message, retryAfterSeconds }: RefusedError): FastifyReply {
  if (retryAfterSeconds !== null) reply.header('retry-after', retryAfterSeconds);
  return sendError(reply, code, message === '' ? undefined : message);
}

/** Without a key, a client learns nothing more. */
export function sendUnauthorized(reply: FastifyReply): FastifyReply {
  return sendJson(reply, ERRORS.unauthorized.status, { error: ERRORS.unauthorized.text });
}

/** For data of a tenant, and errors about it: no proxy may keep it. */
export function sendJson(reply: FastifyReply, status: number, body: Json): FastifyReply {
  reply.header('cache-control', 'no-store').code(status).type('application/json; charset=utf-8');
  return reply.serializer(String).send(jsonText(body));
}

export function sendNothing(reply: FastifyReply): FastifyReply {
  return reply.header('cache-control', 'no-store').code(204).send();
}
