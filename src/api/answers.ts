/**
 * The error answers of everything behind Fastify. Status, text and whether to retry come from the table in `errors.ts`;
 * nothing of an exception ever gets into a body.
 */

import type { FastifyReply } from 'fastify';
import { ERRORS, type ErrorCode, RETRY_AFTER_SECONDS } from '../errors.ts';

export function sendError(reply: FastifyReply, code: ErrorCode, message?: string): FastifyReply {
  const { status, text, retryable } = ERRORS[code];
  const body = { error: text, trace_id: reply.request.id, ...(message === undefined ? {} : { message }) };
  if (retryable) reply.header('retry-after', RETRY_AFTER_SECONDS);
  // A string, so that no route's response schema can take a field away from it.
  return reply.code(status).type('application/json; charset=utf-8').serializer(String).send(JSON.stringify(body));
}
