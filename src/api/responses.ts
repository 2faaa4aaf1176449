/**
 * The answers of everything behind Fastify, as text. Status, words and whether to retry come from the table in
 * `errors.ts`; nothing of an exception ever gets into a body. A text, so that no route's response schema can take a
 * field away from it.
 */

import type { FastifyReply } from 'fastify';
import { ERRORS, type ErrorCode, RETRY_AFTER_SECONDS } from '../errors.ts';
import { type Json, jsonText } from './json-text.ts';

export function sendError(reply: FastifyReply, code: ErrorCode, message?: string): FastifyReply {
  const { status, text, retryable } = ERRORS[code];
  // Who knows better how long it takes has said so.
  if (retryable && !reply.hasHeader('retry-after')) reply.header('retry-after', RETRY_AFTER_SECONDS);
  return sendJson(reply, status, { error: text, trace_id: reply.request.id, message });
}

/** Whoever has no key learns nothing more. */
export function sendUnauthorized(reply: FastifyReply): FastifyReply {
  return sendJson(reply, ERRORS.unauthorized.status, { error: ERRORS.unauthorized.text });
}

/** Of a tenant's data, or that there is none for this caller: nobody on the way may keep it. */
export function sendJson(reply: FastifyReply, status: number, body: Json): FastifyReply {
  reply.header('cache-control', 'no-store').code(status).type('application/json; charset=utf-8');
  return reply.serializer(String).send(jsonText(body));
}

/** Done, and there is nothing to say. */
export function sendNothing(reply: FastifyReply): FastifyReply {
  return reply.header('cache-control', 'no-store').code(204).send();
}
