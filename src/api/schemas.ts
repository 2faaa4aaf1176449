/**
 * The shapes of what goes in, and of errors and health checks, once: the OpenAPI document is made of them. What is read
 * back is in `reading-schemas.ts`. A schema with a title is a component of that document, under its title.
 *
 * The fast path judges requests with `validation/`, not with these; every request that it accepts without a rejection
 * also matches `IngestRequest` (a property test holds them together). The other way round it is not so: JSON Schema
 * has no words for impossible dates, depth of nesting or unpaired surrogates.
 */

import { type TSchema, Type } from 'typebox';
import { ERRORS, type ErrorCode } from '../errors.ts';
import { IDENTIFIER_TYPES, type IdentifierType, LIMITS, ROLES } from '../model.ts';

/** `null` counts as absent wherever a field is optional. */
function optional<Schema extends TSchema>(schema: Schema, description: string, examples: unknown[] = []) {
  const notes = examples.length === 0 ? { description } : { description, examples };
  return Type.Optional(Type.Union([schema, Type.Null()], notes));
}

const propertyNames = Type.String({ maxLength: LIMITS.propertyKeyCharactersMax });
const identifierText = Type.String({ maxLength: LIMITS.identifierCharactersMax });

/** Present, a string and not blank: only then does an identifier name someone. */
function names(type: IdentifierType): object {
  return { required: [type], properties: { [type]: { type: 'string', pattern: '\\S' } } };
}

export const Identifiers = Type.Object(
  {
    user_id: optional(identifierText, 'Your own id of the person.', ['u-1042']),
    email: optional(identifierText, 'E-mail address.', ['ada@example.com']),
    phone_number: optional(identifierText, 'Phone number, best with the country code.', ['+351210000000']),
    anon_id: optional(identifierText, 'Id of a browser or device before the person is known.', ['anon-7f3c']),
  },
  {
    title: 'Identifiers',
    description:
      'Who the person is: at least one of `user_id`, `email`, `phone_number` and `anon_id`, neither null nor blank. Any other key is a profile field.',
    propertyNames,
    additionalProperties: Type.Union([Type.String(), Type.Null()], {
      description: 'Profile field, always text, such as `first_name`, `city` or `country`.',
    }),
    anyOf: IDENTIFIER_TYPES.map(names),
  },
);

export const Event = Type.Object(
  {
    event_name: Type.String({
      minLength: 1,
      maxLength: LIMITS.eventNameCharactersMax,
      pattern: '\\S',
      description: 'What happened. Not blank.',
      examples: ['order_completed'],
    }),
    timestamp: optional(
      Type.String(),
      'When it happened: an ISO 8601 calendar date or date-time, extended or basic form, with `Z`, an offset, or neither for UTC. Without it, the time of receipt counts.',
      ['2026-11-14T09:30:00Z'],
    ),
    revenue: optional(Type.Number(), 'Revenue tied to the event, within the range of a double.', [49.9]),
    event_value: optional(Type.Number(), 'Numeric value of the event, within the range of a double.', [3]),
    $event_id: optional(
      Type.String({ minLength: 1, maxLength: LIMITS.eventIdCharactersMax }),
      'Your own id of the event: the same id again within 7 days is stored once. A plain `event_id` is a custom property.',
    ),
  },
  {
    title: 'Event',
    description: 'One thing that happened. Any other key is a custom property of the event.',
    propertyNames,
    additionalProperties: Type.Unknown({
      description:
        'Custom property: any JSON value. Numbers keep their value, however many digits they have; `1.10` comes back as `1.1`.',
    }),
  },
);

export const UserProperties = Type.Object(
  {},
  {
    title: 'UserProperties',
    description:
      'Attributes of the person, kept on the profile. The last write wins, key by key; keys that are not sent stay as they are.',
    propertyNames,
    additionalProperties: Type.Unknown({ description: 'An attribute of yours, such as `plan`.' }),
  },
);

export const User = Type.Object(
  {
    identifiers: Identifiers,
    user_properties: Type.Optional(Type.Union([UserProperties, Type.Null()])),
    events: Type.Array(Event, { minItems: 1, description: 'At least one event.' }),
  },
  {
    title: 'User',
    description: 'One person and what that person did. Each user is judged independently of the others.',
  },
);

export const IngestRequest = Type.Object(
  {
    users: Type.Array(User, {
      minItems: 1,
      maxItems: LIMITS.usersPerRequestMax,
      description: 'The users of this request.',
    }),
  },
  { title: 'IngestRequest', description: 'A batch of users with their events.' },
);

export const traceId = Type.String({
  format: 'uuid',
  description: 'Names this request, in the `X-Trace-Id` header too. Quote it when you ask for help.',
});

const message = Type.String({ description: 'What is wrong and where, for a person.' });

export const UserError = Type.Object(
  {
    userIndex: Type.Integer({ minimum: 0, description: 'Position of the user in `users`, counted from 0.' }),
    message: Type.String({ description: 'The first rule that the user breaks.' }),
  },
  { title: 'UserError', description: 'Why one user was rejected.' },
);

const errors = Type.Array(UserError, { description: 'One entry per rejected user, in order of `userIndex`.' });

export const IngestAccepted = Type.Object(
  {
    trace_id: traceId,
    users_accepted: Type.Integer({ minimum: 1, description: 'Users that are valid, and stored for good.' }),
    users_rejected: Type.Integer({
      minimum: 0,
      description:
        'Users that are not valid. They are kept aside with the reason, for people to look at, and are not processed.',
    }),
    errors,
  },
  {
    title: 'IngestAccepted',
    description: 'At least one user was accepted. Look at `users_rejected` and `errors` too.',
  },
);

export const ValidationFailed = Type.Object(
  {
    error: Type.Literal(ERRORS.validation_failed.text),
    trace_id: traceId,
    errors,
    message: Type.Optional(message),
  },
  {
    title: 'ValidationFailed',
    description: 'Nothing was accepted: every user is invalid, or the payload is unusable (then `message` says why).',
  },
);

export const Unauthorized = Type.Object(
  { error: Type.Literal(ERRORS.unauthorized.text) },
  { title: 'Unauthorized', description: 'The key is missing, wrong, revoked, expired or of the other environment.' },
);

function problem(code: ErrorCode, title: string, description: string) {
  return Type.Object(
    { error: Type.Literal(ERRORS[code].text), trace_id: traceId, message: Type.Optional(message) },
    { title, description },
  );
}

export const BadRequest = problem('bad_request', 'BadRequest', 'The request cannot be understood.');
export const Forbidden = problem('forbidden', 'Forbidden', 'The key is known, but may not do this.');
export const NotFound = problem('not_found', 'NotFound', 'There is no such thing, or nothing at this path.');
export const MethodNotAllowed = problem('method_not_allowed', 'MethodNotAllowed', 'See the `Allow` header.');
export const RequestTimeout = problem('request_timeout', 'RequestTimeout', 'The request did not arrive in time.');
export const Conflict = problem('conflict', 'Conflict', 'What is there already stands against it.');
export const TooManyAttempts = problem('too_many_attempts', 'TooManyAttempts', 'Wait `Retry-After` seconds.');
export const PayloadTooLarge = problem(
  'too_large',
  'PayloadTooLarge',
  'The body is over 10 MB; outside `/ingest/`, over 64 kB.',
);
export const InternalError = problem('internal', 'InternalError', 'A fault on our side; nothing was promised.');
export const Unavailable = problem('unavailable', 'Unavailable', 'Not now: try again after `Retry-After` seconds.');

export const Alive = Type.Object(
  { status: Type.Literal('alive') },
  { title: 'Alive', description: 'The process runs and answers.' },
);

export const Ready = Type.Object(
  { status: Type.Literal('ready') },
  { title: 'Ready', description: 'It does its work; a server that takes events in accepts them.' },
);

export const NotReady = Type.Object(
  {
    status: Type.Literal('not ready'),
    reasons: Type.Array(Type.String(), { description: 'Why, for an operator.' }),
  },
  { title: 'NotReady', description: 'It cannot do its work for now; events are refused.' },
);

export const Version = Type.Object(
  {
    version: Type.String({ description: 'Of Sluice.' }),
    role: Type.Union(
      ROLES.map((role) => Type.Literal(role)),
      { description: 'What this server does of all that Sluice does.' },
    ),
  },
  { title: 'Version', description: 'What runs here.' },
);
