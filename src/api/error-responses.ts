/**
 * The errors of the API as the OpenAPI document describes them: one shared response for each, which all operations
 * refer to. Texts and whether to retry come from the table in `errors.ts`.
 */

import { type TSchema, Type } from 'typebox';
import { ERRORS, type ErrorCode } from '../errors.ts';
import * as examples from './examples.ts';
import { jsonContent } from './route-schema.ts';
import type { Response } from './openapi-types.ts';
import { count, list, object, text } from './schema.ts';

export const traceId = Type.String({
  format: 'uuid',
  description: 'Names this request, in the `X-Trace-Id` header too. Quote it when you ask for help.',
});

const message = text('What is wrong and where, for a person.');

const UserError = object('UserError', 'Why one user was rejected.', {
  userIndex: count('Position of the user in `users`, counted from 0.'),
  message: text('The first rule that the user breaks.'),
});

export const userErrors = list(UserError, 'One entry per rejected user, in order of `userIndex`.');

const ValidationFailed = object(
  'ValidationFailed',
  'Nothing was accepted: every user is invalid, or the payload is unusable (then `message` says why).',
  {
    error: Type.Literal(ERRORS.validation_failed.text),
    trace_id: traceId,
    errors: userErrors,
    message: Type.Optional(message),
  },
);

const Unauthorized = object(
  'Unauthorized',
  'The key is missing, wrong, revoked, expired or of the other environment.',
  { error: Type.Literal(ERRORS.unauthorized.text) },
);

interface ErrorWords {
  /** Of the body; as the response unless given. */
  readonly body?: string;
  readonly response: string;
  /** An example. */
  readonly message?: string;
}

/** The other errors have one shape. */
const PROBLEMS = {
  BadRequest: [
    'bad_request',
    { response: 'The request cannot be understood.', message: 'limit must be a whole number from 1 to 500' },
  ],
  Forbidden: [
    'forbidden',
    {
      body: 'The key is known, but may not do this.',
      response: 'The key may not be used here.',
      message: 'publishable keys may only be used under /ingest/',
    },
  ],
  NotFound: ['not_found', { response: 'There is no such thing, or nothing at this path.' }],
  MethodNotAllowed: ['method_not_allowed', { body: 'See the `Allow` header.', response: 'Not with this method.' }],
  RequestTimeout: ['request_timeout', { response: 'The request did not arrive in time.' }],
  Conflict: [
    'conflict',
    { body: 'It conflicts with what is stored.', response: 'It conflicts with something that is stored.' },
  ],
  PayloadTooLarge: [
    'too_large',
    { body: 'The body is over 10 MB; outside `/ingest/`, over 64 kB.', response: 'The body is too large.' },
  ],
  TooManyAttempts: [
    'too_many_attempts',
    { body: 'Wait `Retry-After` seconds.', response: 'Attempts that failed are slowed.' },
  ],
  InternalError: ['internal', { response: 'A fault on our side. Nothing was promised.' }],
  Unavailable: [
    'unavailable',
    {
      body: 'Not now: try again after `Retry-After` seconds.',
      response: 'Cannot take it now. Try again, backing off.',
    },
  ],
} as const satisfies Record<string, readonly [ErrorCode, ErrorWords]>;

/** By name, as `ERROR_RESPONSES` of `route-schema.ts` has them. */
export function errorResponses(): Record<string, Response> {
  const problems = Object.entries(PROBLEMS).map(([title, [code, words]]): [string, Response] => [
    title,
    problemResponse(title, code, words),
  ]);
  const {
    Forbidden: [code, { body }],
  } = PROBLEMS;
  const origin = { body, response: 'The publishable key is not meant for this origin.' };
  return {
    ValidationFailed: response(
      'validation_failed',
      'Nothing was accepted: every user is invalid, or the payload is unusable.',
      ValidationFailed,
      {
        all_invalid: ['Every user is invalid', examples.ALL_INVALID_RESPONSE],
        unusable: ['The payload is unusable', examples.UNUSABLE_RESPONSE],
      },
    ),
    Unauthorized: response('unauthorized', 'No valid key. Do not retry with the same one.', Unauthorized, {
      unauthorized: ['No valid key', { error: ERRORS.unauthorized.text }],
    }),
    ...Object.fromEntries(problems),
    OriginForbidden: problemResponse('Forbidden', code, origin),
  };
}

function problemResponse(title: string, code: ErrorCode, words: ErrorWords): Response {
  const { text } = ERRORS[code];
  const schema = Type.Object(
    { error: Type.Literal(text), trace_id: traceId, message: Type.Optional(message) },
    { title, description: words.body ?? words.response },
  );
  const body = {
    error: text,
    trace_id: examples.TRACE_ID,
    ...(words.message !== undefined && { message: words.message }),
  };
  return response(code, words.response, schema, { [code]: [words.response, body] });
}

function response(
  code: ErrorCode,
  description: string,
  schema: TSchema,
  given: Parameters<typeof jsonContent>[1],
): Response {
  const headers = {
    'X-Trace-Id': { $ref: '#/components/headers/TraceId' },
    ...(ERRORS[code].retryable && { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } }),
    ...(code === 'method_not_allowed' && { Allow: { $ref: '#/components/headers/Allow' } }),
  };
  return { description, headers, content: jsonContent(schema, given) };
}
