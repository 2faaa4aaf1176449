/**
 * Writes the failures of the routes for Segment's SDKs. They differ from those of `POST /ingest/events` where SDKs would
 * misread ours: errors carry `code` and `message`, because some retry a 400 without them; a server that cannot accept now
 * says 429, because most read `Retry-After` of no other status.
 */

import type { ServerResponse } from 'node:http';
import { ERRORS, type ErrorCode } from '../errors.ts';
import type { MessageError } from '../intake/segment.ts';
import { LIMITS } from '../model.ts';
import { type Failure, retryAfter, send } from './responses.ts';

const WHERE_KEYS_GO =
  'send the write key as the user of Authorization: Basic, or as writeKey in the body; a secret key is not accepted in the URL';

export const INVALID_KEY = {
  code: 'unauthorized',
  message: `the key is not valid: unknown, revoked, expired or for another environment; ${WHERE_KEYS_GO}`,
} as const;

/** Where a failure does not say more: SDKs expect a message in every one. */
const MESSAGES: Partial<Record<ErrorCode, string>> = {
  unauthorized: `no key found: ${WHERE_KEYS_GO}`,
  too_large: `the body must not exceed ${LIMITS.bodyBytesMax} bytes`,
  overloaded: 'nothing was stored: send it again later',
};

export function sendSegmentFailure(
  response: ServerResponse,
  traceId: string,
  { code, errors = [], headers = [], retryAfterMs, ...failure }: Failure<MessageError>,
  allowOrigin: string | null,
): void {
  const { status, text, retryable } = ERRORS[code];
  const message = failure.message ?? MESSAGES[code] ?? text;
  const body = { success: false, error: text, code, message, trace_id: traceId };
  const counts = errors.length === 0 ? {} : { accepted: 0, rejected: errors.length, errors };
  if (retryable) headers.push('Retry-After', retryAfter(retryAfterMs));
  send(response, status, traceId, JSON.stringify({ ...body, ...counts }), allowOrigin, headers);
}

/**
 * The browser SDKs of Segment and RudderStack send these headers, and their next versions may send others: a page whose
 * preflight fails sends nothing at all. The wildcard does not include `Authorization`, and browsers from before 2020
 * do not know it.
 */
const ALLOWED_HEADERS = [
  ...['Authorization', 'Content-Type', 'Content-Encoding', 'Idempotency-Key', 'X-Retry-Count', 'AnonymousId', 'SentAt'],
  ...['Rsa-Retry-Attempt', 'Rsa-Since-Last-Attempt', 'Rsa-Since-First-Attempt', 'Rsa-Retry-Reason', 'Rsa-Recovered'],
  '*',
];
export const SEGMENT_PREFLIGHT = { methods: 'GET, POST', headers: ALLOWED_HEADERS.join(', ') };
