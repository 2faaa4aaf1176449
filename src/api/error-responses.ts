/**
 * The errors of the API as the OpenAPI document describes them: one shared response for each, which all operations
 * refer to. Texts and whether to retry come from the table in `errors.ts`.
 */

import type { TSchema } from 'typebox';
import { ERRORS, type ErrorCode } from '../errors.ts';
import * as examples from './examples.ts';
import type { Response } from './openapi-types.ts';
import { type Examples, jsonResponse } from './route-schema.ts';
import { count, list, object, text, Type } from './schema.ts';

export const traceId = Type.String({
  format: 'uuid',
  description: 'The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.',
});

const message = text('What is wrong and where, for a person.');

const UserError = object('UserError', 'Why one user was rejected.', {
  userIndex: count('Position of the user in `users`, counted from 0.'),
  message: text('The first rule that the user breaks.'),
});

export const userErrors = list(UserError, 'One entry per rejected user, in order of `userIndex`.');

const NOTHING_ACCEPTED =
  'Nothing was accepted: every user is invalid, or the payload is unusable (then `message` says why).';

const ValidationFailed = object('ValidationFailed', NOTHING_ACCEPTED, {
  error: Type.Literal(ERRORS.validation_failed.text),
  trace_id: traceId,
  errors: userErrors,
  message: Type.Optional(message),
});

const Unauthorized = object(
  'Unauthorized',
  'The key is missing, wrong, revoked, expired or for the other environment.',
  { error: Type.Literal(ERRORS.unauthorized.text) },
);

type Row = readonly [title: string, code: ErrorCode, description: string, exampleMessage?: string];

const FORBIDDEN = 'The key may not be used here.';

/** The other errors have one shape. */
const PROBLEMS: readonly Row[] = [
  ['BadRequest', 'bad_request', 'The request cannot be understood.', 'limit must be a whole number from 1 to 500'],
  ['Forbidden', 'forbidden', FORBIDDEN, 'publishable keys may only be used under /ingest/'],
  ['NotFound', 'not_found', 'Not found.'],
  ['MethodNotAllowed', 'method_not_allowed', 'Method not allowed: see the `Allow` header.'],
  ['RequestTimeout', 'request_timeout', 'The request did not arrive in time.'],
  ['Conflict', 'conflict', 'It conflicts with something that is stored.'],
  ['PayloadTooLarge', 'too_large', 'The body is over 10 MB; outside `/ingest/`, over 64 kB, or what `message` says.'],
  ['TooManyAttempts', 'too_many_attempts', 'Too many failed attempts: wait `Retry-After` seconds.'],
  ['InternalError', 'internal', 'An error in Sluice. Nothing was acknowledged.'],
  ['Unavailable', 'unavailable', 'Temporarily unavailable: retry after `Retry-After` seconds, with backoff.'],
];

/** By name: those of `ERROR_RESPONSES` in `route-schema.ts`, and those of the ingest route. */
export function errorResponses(): Record<string, Response> {
  const validationFailed = response('validation_failed', NOTHING_ACCEPTED, ValidationFailed, {
    all_invalid: ['Every user is invalid', examples.ALL_INVALID_RESPONSE],
    unusable: ['The payload is unusable', examples.UNUSABLE_RESPONSE],
  });
  const unauthorized = response('unauthorized', 'No valid key. Do not retry with the same one.', Unauthorized, {
    unauthorized: ['No valid key', { error: ERRORS.unauthorized.text }],
  });
  return {
    ValidationFailed: validationFailed,
    Unauthorized: unauthorized,
    ...Object.fromEntries(PROBLEMS.map((row) => [row[0], problemResponse(row, row[2])])),
    OriginForbidden: problemResponse(
      ['Forbidden', 'forbidden', FORBIDDEN],
      'The publishable key may not be used from this origin.',
    ),
  };
}

function problemResponse([title, code, description, exampleMessage]: Row, when: string): Response {
  const { text } = ERRORS[code];
  const schema = object(title, description, {
    error: Type.Literal(text),
    trace_id: traceId,
    message: Type.Optional(message),
  });
  const said = exampleMessage === undefined ? {} : { message: exampleMessage };
  return response(code, when, schema, { [code]: [when, { error: text, trace_id: examples.TRACE_ID, ...said }] });
}

function response(code: ErrorCode, description: string, schema: TSchema, named: Examples): Response {
  const made = jsonResponse(description, schema, named, ERRORS[code].retryable);
  if (code !== 'method_not_allowed') return made;
  return { ...made, headers: { ...made.headers, Allow: { $ref: '#/components/headers/Allow' } } };
}
