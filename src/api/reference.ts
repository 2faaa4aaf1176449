/**
 * What a client should know that a schema does not say: when each error is returned, what the limits are, and by which
 * rules a user is validated. The OpenAPI document carries these tables as extensions and the docs page prints them.
 * Texts and numbers come from `errors.ts` and `model.ts`; a test checks each rule's message against the validator.
 */

import { ERRORS, type ErrorCode } from '../errors.ts';
import { LIMITS } from '../model.ts';

const WHEN: Readonly<Record<ErrorCode, string>> = {
  validation_failed:
    'Every user is invalid (`errors` says why, user by user), or the payload is unusable: not JSON, not UTF-8, no `users`, wrong content type or encoding (`message` says what and where).',
  bad_request: 'The request is not valid HTTP; or, outside `/ingest/`, the path or a parameter cannot be understood.',
  unauthorized: 'The key is missing, wrong, revoked, expired, or for an environment that this server does not serve.',
  forbidden: 'A publishable key is used outside `/ingest/`, or from an origin that is not in its list.',
  not_found: 'Nothing exists at this path, or the account and environment of the key have no such profile or trace.',
  method_not_allowed: 'The path exists, but not for this method. `Allow` lists those that do.',
  request_timeout: 'The request did not arrive completely in time.',
  conflict:
    'It conflicts with existing data: the e-mail address belongs to a member, or a member would remove themselves.',
  too_large:
    'The body is over 10 MB, as sent or after decompression; outside `/ingest/`, over 64 kB, or what `message` says.',
  overloaded: 'Under `/ingest/v1/`, instead of the 503 below: Segment SDKs read `Retry-After` only with this status.',
  rate_limited: 'Under `/ingest/v1/`: the key has sent more users than its rate limit allows.',
  too_many_attempts: 'Signing in failed too often; `Retry-After` says how long to wait.',
  headers_too_large: 'The request line and headers are too long.',
  internal: 'An error in Sluice. Nothing was acknowledged.',
  unavailable:
    'The server cannot serve it now: too much in flight, disk full or failing, keys or store unreachable, shutting down. At `/ingest/events` also: the key has sent more users than its rate limit allows, as `message` says.',
};

export const ERROR_ROWS = (Object.keys(ERRORS) as ErrorCode[]).map((code) => ({
  status: ERRORS[code].status,
  error: ERRORS[code].text,
  retry: ERRORS[code].retryable,
  when: WHEN[code],
}));

function count(value: number): string {
  return value.toLocaleString('en');
}

const USER_REJECTED = 'The user is rejected.';

export const LIMIT_ROWS = [
  {
    what: 'Request body',
    limit: `10 MB (${count(LIMITS.bodyBytesMax)} bytes), as sent and after decompression`,
    beyond: 'The response is 413.',
  },
  { what: 'Users per request', limit: `1 to ${count(LIMITS.usersPerRequestMax)}`, beyond: 'The response is 400.' },
  { what: 'Events per user', limit: 'at least 1', beyond: USER_REJECTED },
  { what: 'Identifier', limit: `${count(LIMITS.identifierCharactersMax)} characters`, beyond: USER_REJECTED },
  { what: 'Event name', limit: `${count(LIMITS.eventNameCharactersMax)} characters`, beyond: USER_REJECTED },
  { what: 'Key of a property', limit: `${count(LIMITS.propertyKeyCharactersMax)} characters`, beyond: USER_REJECTED },
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
    message: 'at least one identifier is required (user_id, email, phone_number, or anon_id)',
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
