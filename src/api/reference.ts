/**
 * What the OpenAPI document says besides the routes: the errors of the API, one shared response for each, which all
 * operations refer to; and, as extensions, which the docs page prints, when each error is returned, what the limits are,
 * and by which rules a user is validated. Texts and numbers come from `errors.ts` and `model.ts`; a test checks each
 * rule's message against the validator.
 */

import type { TSchema } from 'typebox';
import { ERRORS, type ErrorCode } from '../errors.ts';
import { LIMITS } from '../model.ts';
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

/** When each error is returned. */
const WHEN: Readonly<Record<ErrorCode, string>> = {
  validation_failed:
    'Every user is invalid (`errors` says why, user by user), or the payload is unusable: not JSON, not UTF-8, no `users`, wrong content type or encoding (`message` says what and where).',
  bad_request: 'The request is not valid HTTP; or, outside `/ingest/`, the path or a parameter cannot be understood.',
  unauthorized: 'The key is missing, wrong, revoked, expired, or for an environment that this server does not serve.',
  forbidden: 'A publishable key is used outside `/ingest/`, or from an origin that is not in its list.',
  not_found: 'Nothing exists at this path, or not in this account and environment.',
  method_not_allowed: 'The path exists, but not for this method. `Allow` lists those that do.',
  request_timeout: 'The request did not arrive completely in time.',
  conflict:
    'It conflicts with something that is stored (a newer tracking plan, a rejected user that was fixed before, the e-mail address of a member), or a member would remove themselves.',
  too_large:
    'The body is over 10 MB, as sent or after decompression; outside `/ingest/`, over 64 kB, or what `message` says.',
  overloaded: 'Under `/ingest/v1/`, instead of the 503 below: Segment SDKs read `Retry-After` only with this status.',
  rate_limited: 'Under `/ingest/v1/`: the key has sent more messages than its rate limit allows.',
  too_many_attempts: 'Signing in failed too often; `Retry-After` says how long to wait.',
  headers_too_large: 'The request line and headers are too long.',
  internal: 'An error in Sluice. Nothing was acknowledged.',
  unavailable:
    'The server cannot serve it now: too much in flight, disk full or failing, keys or store unreachable, shutting down. At `/ingest/events` also: the key has sent more users than its rate limit allows, as `message` says.',
};

const ValidationFailed = object('ValidationFailed', WHEN.validation_failed, {
  error: Type.Literal(ERRORS.validation_failed.text),
  trace_id: traceId,
  errors: userErrors,
  message: Type.Optional(message),
});

const Unauthorized = object('Unauthorized', WHEN.unauthorized, { error: Type.Literal(ERRORS.unauthorized.text) });

/** With a shorter description where every operation has the response. */
type Row = readonly [title: string, code: ErrorCode, description?: string, exampleMessage?: string];

const PROBLEMS: readonly Row[] = [
  ['BadRequest', 'bad_request', 'The request cannot be understood.', 'limit must be a whole number from 1 to 500'],
  ['Forbidden', 'forbidden', 'The key may not be used here.', 'publishable keys may only be used under /ingest/'],
  ['NotFound', 'not_found'],
  ['MethodNotAllowed', 'method_not_allowed'],
  ['RequestTimeout', 'request_timeout'],
  ['Conflict', 'conflict'],
  ['PayloadTooLarge', 'too_large'],
  ['TooManyAttempts', 'too_many_attempts'],
  ['InternalError', 'internal'],
  ['Unavailable', 'unavailable', 'Temporarily unavailable: retry after `Retry-After` seconds, with backoff.'],
];

/** By name: those of `ERROR_RESPONSES` in `route-schema.ts`, and those of the ingest route. */
export function errorResponses(): Record<string, Response> {
  const validationFailed = response('validation_failed', WHEN.validation_failed, ValidationFailed, {
    all_invalid: ['Every user is invalid', examples.ALL_INVALID_RESPONSE],
    unusable: ['The payload is unusable', examples.UNUSABLE_RESPONSE],
  });
  const unauthorized = response('unauthorized', 'No valid key. Do not retry with the same one.', Unauthorized, {
    unauthorized: ['No valid key', { error: ERRORS.unauthorized.text }],
  });
  return {
    ValidationFailed: validationFailed,
    Unauthorized: unauthorized,
    ...Object.fromEntries(PROBLEMS.map((row) => [row[0], problemResponse(row)])),
    OriginForbidden: problemResponse([
      'Forbidden',
      'forbidden',
      'The publishable key may not be used from this origin.',
    ]),
  };
}

function problemResponse([title, code, description = WHEN[code], exampleMessage]: Row): Response {
  const { text } = ERRORS[code];
  const schema = object(title, WHEN[code], {
    error: Type.Literal(text),
    trace_id: traceId,
    message: Type.Optional(message),
  });
  const said = exampleMessage === undefined ? {} : { message: exampleMessage };
  const example = { error: text, trace_id: examples.TRACE_ID, ...said };
  return response(code, description, schema, { [code]: [text, example] });
}

function response(code: ErrorCode, description: string, schema: TSchema, named: Examples): Response {
  const made = jsonResponse(description, schema, named, ERRORS[code].retryable);
  if (code !== 'method_not_allowed') return made;
  return { ...made, headers: { ...made.headers, Allow: { $ref: '#/components/headers/Allow' } } };
}

export const ERROR_ROWS = (Object.keys(ERRORS) as ErrorCode[]).map((code) => ({
  status: ERRORS[code].status,
  error: ERRORS[code].text,
  retry: ERRORS[code].retryable,
  when: WHEN[code],
}));

function formatted(value: number): string {
  return value.toLocaleString('en');
}

const USER_REJECTED = 'The user is rejected.';

export const LIMIT_ROWS = [
  {
    what: 'Request body',
    limit: `10 MB (${formatted(LIMITS.bodyBytesMax)} bytes), as sent and after decompression`,
    beyond: 'The response is 413.',
  },
  { what: 'Users per request', limit: `1 to ${formatted(LIMITS.usersPerRequestMax)}`, beyond: 'The response is 400.' },
  { what: 'Events per user', limit: 'at least 1', beyond: USER_REJECTED },
  { what: 'Identifier', limit: `${formatted(LIMITS.identifierCharactersMax)} characters`, beyond: USER_REJECTED },
  { what: 'Event name', limit: `${formatted(LIMITS.eventNameCharactersMax)} characters`, beyond: USER_REJECTED },
  {
    what: 'Key of a property',
    limit: `${formatted(LIMITS.propertyKeyCharactersMax)} characters`,
    beyond: USER_REJECTED,
  },
  { what: 'Nesting within a property', limit: `${LIMITS.nestingDepthMax} levels`, beyond: USER_REJECTED },
  { what: '`$event_id`', limit: `1 to ${LIMITS.eventIdCharactersMax} characters`, beyond: USER_REJECTED },
  {
    what: '`Idempotency-Key`',
    limit: `1 to ${LIMITS.idempotencyKeyBytesMax} bytes`,
    beyond: 'The response is 400.',
  },
];

/**
 * In the order in which they are checked: the first rule that fails is the user's message. `<name>`, `<i>` and `<path>`
 * stand for what is at fault.
 */
export const USER_RULES = [
  { rule: 'A user is an object.', message: 'user must be an object' },
  {
    rule: 'An identifier is a string (checked here only if no other identifier is usable).',
    message: 'identifiers.<name> must be a string',
  },
  {
    rule: 'At least one of the four identifiers is a string that is not blank.',
    message: examples.NO_IDENTIFIER,
  },
  { rule: 'There is at least one event.', message: 'events array is required and must not be empty' },
  { rule: 'Identifiers and profile fields are strings.', message: 'identifiers.<name> must be a string' },
  {
    rule: 'Identifiers are not too long.',
    message: `identifiers.<name> must be at most ${LIMITS.identifierCharactersMax} characters`,
  },
  { rule: '`user_properties` is an object.', message: 'user_properties must be an object' },
  { rule: 'Each event is an object.', message: 'events[<i>] must be an object' },
  {
    rule: '`event_name` is present, not blank and not too long.',
    message: 'events[<i>].event_name is required and must be a non-empty string',
  },
  { rule: '`timestamp` is ISO 8601.', message: 'events[<i>].timestamp must be an ISO 8601 timestamp' },
  { rule: '`revenue` and `event_value` are numbers.', message: 'events[<i>].revenue must be a number' },
  {
    rule: '`$event_id` is a string of 1 to 255 characters.',
    message: `events[<i>].$event_id must be a string of 1 to ${LIMITS.eventIdCharactersMax} characters`,
  },
  { rule: 'Nothing is nested too deeply.', message: '<path> is nested too deeply' },
  {
    rule: 'No key is too long.',
    message: `<path> has a key longer than ${LIMITS.propertyKeyCharactersMax} characters`,
  },
  { rule: 'No U+0000 and no lone surrogate.', message: '<path> contains a character that cannot be stored' },
];
