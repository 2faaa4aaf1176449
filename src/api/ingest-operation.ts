/**
 * `POST /ingest/events` and its dry run, `POST /ingest/events/check`, for the OpenAPI document, by hand: they are not in
 * Fastify. What they take and what they respond with is described here alone; also how a prediction looks in a response.
 *
 * The edge validates requests with `validation/`, not with these schemas; every request that it accepts without a
 * rejection also matches `IngestRequest` (a property test holds them together). The other way round it is not so: JSON
 * Schema has no words for impossible dates, depth of nesting or unpaired surrogates.
 */

import type { TSchema } from 'typebox';
import {
  IDENTIFIER_TYPES,
  type IdentifierType,
  LIMITS,
  REFUSAL_REASONS,
  REFUSAL_RULES,
  type RefusalReason,
} from '../model.ts';
import type { Violation } from '../plans/compiled-plan.ts';
import type { PredictedUser as PredictedUserRow, Prediction } from '../store.ts';
import * as examples from './examples.ts';
import { rawOrNull, rowJson } from './responses.ts';
import { type Operation, parameter } from './openapi-types.ts';
import { traceId, userErrors } from './reference.ts';
import { jsonContent, jsonResponse } from './route-schema.ts';
import { count, flag, identifierType, list, object, oneOf, orNull, text, Type, userIndex } from './schema.ts';

/** `null` counts as absent wherever a field is optional. */
function optional<Schema extends TSchema>(schema: Schema, description: string, exampleValues: unknown[] = []) {
  const notes = exampleValues.length === 0 ? { description } : { description, examples: exampleValues };
  return Type.Optional(Type.Union([schema, Type.Null()], notes));
}

const propertyNames = Type.String({ maxLength: LIMITS.propertyKeyCharactersMax });
const identifierText = Type.String({ maxLength: LIMITS.identifierCharactersMax });

/** Present, a string and not blank: only then does an identifier count. */
function requiresNonBlank(type: IdentifierType): object {
  return { required: [type], properties: { [type]: { type: 'string', pattern: '\\S' } } };
}

const Identifiers = object(
  'Identifiers',
  'Who the person is: at least one of `user_id`, `email`, `phone_number` and `anon_id`, neither null nor blank. Any other key is a profile field.',
  {
    user_id: optional(identifierText, 'Your own id of the person.', ['u-1042']),
    email: optional(identifierText, 'E-mail address.', ['ada@example.com']),
    phone_number: optional(identifierText, 'Phone number, preferably with the country code.', ['+351210000000']),
    anon_id: optional(identifierText, 'Id of a browser or device before the person is known.', ['anon-7f3c']),
  },
  {
    propertyNames,
    additionalProperties: Type.Union([Type.String(), Type.Null()], {
      description: 'Profile field, always text, such as `first_name`, `city` or `country`.',
    }),
    anyOf: IDENTIFIER_TYPES.map(requiresNonBlank),
  },
);

const Event = object(
  'Event',
  'One thing that happened. Any other key is a custom property of the event.',
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
    propertyNames,
    additionalProperties: Type.Unknown({
      description:
        'Custom property: any JSON value. Numbers keep their value, however many digits they have; `1.10` comes back as `1.1`.',
    }),
  },
);

const UserProperties = object(
  'UserProperties',
  'Attributes of the person, kept on the profile. The last write wins, key by key; keys that are not sent stay as they are.',
  {},
  {
    propertyNames,
    additionalProperties: Type.Unknown({ description: 'An attribute of yours, such as `plan`.' }),
  },
);

const USER = 'One person and what that person did. Each user is validated independently of the others.';
export const User = object('User', USER, {
  identifiers: Identifiers,
  user_properties: Type.Optional(Type.Union([UserProperties, Type.Null()])),
  events: Type.Array(Event, { minItems: 1, description: 'At least one event.' }),
});

export const IngestRequest = object('IngestRequest', 'A batch of users with their events.', {
  users: Type.Array(User, {
    minItems: 1,
    maxItems: LIMITS.usersPerRequestMax,
    description: 'The users of this request.',
  }),
  dropped_by_client: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: LIMITS.droppedByClientMax,
      description:
        'How many events the client had to drop since the last request that reported them. Counted in `GET /ledger`; any other value is ignored.',
    }),
  ),
});

const ACCEPTED = 'At least one user was accepted. Look at `users_rejected` and `errors` too.';
const IngestAccepted = object('IngestAccepted', ACCEPTED, {
  trace_id: traceId,
  users_accepted: Type.Integer({ minimum: 1, description: 'Users that are valid, and durable.' }),
  users_rejected: count(
    'Users that are not valid. They are kept with the reason (`GET /rejections`) and are not processed.',
  ),
  errors: userErrors,
});

const INGEST_PARAMETERS = [
  parameter(
    'header',
    'Idempotency-Key',
    'Your own name for this request, 1 to 255 bytes, so that a retry is safe: a second request with the same key and the same body (byte for byte, after decompression) within 24 hours is not stored again, and its trace says `duplicate_of`. A retry is validated again, by the current tracking plan: a user that was rejected first and is accepted now is stored now. With a different body it is not a retry: it is stored, and its trace has a warning.',
    { type: 'string', minLength: 1 },
  ),
  parameter(
    'header',
    'Content-Encoding',
    'How the body is compressed, if it is. The size limit applies after decompression too.',
    { type: 'string', enum: ['gzip', 'deflate', 'br', 'zstd', 'identity'] },
  ),
];

const VALID = 'One user, one event';
const PARTLY_VALID = 'One valid user, and one without an identifier';

export const INGEST_OPERATION: Operation = {
  operationId: 'ingestEvents',
  tags: ['Events'],
  summary: 'Send users and their events',
  description: [
    'Each user is validated independently: valid users are accepted even when others in the same request fail. The 202 is sent only once the accepted users are durable. **Look at `users_rejected` and `errors` on every 202.**',
    '**Retrying.** On 503 and 408, and if there was no response, retry with exponential backoff, starting from `Retry-After`. With an `Idempotency-Key`, a retry within 24 hours is stored once. Do not retry after any other response: it would be the same again.',
    '**From a browser.** CORS is open here, without credentials, for publishable keys; a key may be limited to certain origins. A page that is closing cannot preflight: let it send the same JSON as `text/plain` to `/ingest/events?key=pk_…`, with `navigator.sendBeacon` for example.',
  ].join('\n\n'),
  security: [{ secretKey: [] }, { publishableKey: [] }, { publishableKeyInQuery: [] }],
  parameters: INGEST_PARAMETERS,
  requestBody: {
    required: true,
    description: 'UTF-8 JSON, at most 10 MB. `null` for an optional field counts as absent.',
    content: {
      ...jsonContent(IngestRequest, {
        valid: [VALID, examples.SMALL_REQUEST],
        partly_valid: [PARTLY_VALID, examples.PARTLY_VALID_REQUEST],
      }),
      'text/plain': {
        schema: {
          type: 'string',
          contentMediaType: 'application/json',
          contentSchema: IngestRequest,
          description: 'The same JSON; only with a publishable key in the query.',
        },
      },
    },
  },
  responses: {
    202: jsonResponse('At least one user was accepted, and is durable.', IngestAccepted, {
      valid: [VALID, examples.SMALL_RESPONSE],
      partly_valid: [PARTLY_VALID, examples.PARTLY_VALID_RESPONSE],
    }),
    400: { $ref: '#/components/responses/ValidationFailed' },
    401: { $ref: '#/components/responses/Unauthorized' },
    403: { $ref: '#/components/responses/OriginForbidden' },
    408: { $ref: '#/components/responses/RequestTimeout' },
    413: { $ref: '#/components/responses/PayloadTooLarge' },
    503: { $ref: '#/components/responses/Unavailable' },
  },
};

const identifierFields = { type: identifierType, value: text('As the request has it.') };
const reasons = Object.keys(REFUSAL_REASONS) as RefusalReason[];
const PROFILE_TEXT = 'An existing profile, or `new:` and the index of the user of this request that would create it.';

export const PredictedUser = object('PredictedUser', 'What would happen to one user of the request.', {
  userIndex,
  status: oneOf(['accepted', 'rejected'], 'As the 202 would say.'),
  profile_id: orNull(text(`The profile after the whole request. ${PROFILE_TEXT} Null if nothing would be stored.`)),
  is_new: flag('The profile does not exist yet.'),
  events: count('Events that would be stored.'),
  duplicate_events: count('Events that are stored already, by `$event_id`.'),
  duplicate_of: orNull(
    Type.String({ format: 'uuid' }),
    'The trace that used this `Idempotency-Key` with the same body; then nothing of this user would be stored.',
  ),
  new_identifiers: list(Type.Object(identifierFields), 'Identifiers that would be linked to the profile.'),
  merges: list(
    Type.Object({
      from: text(`What would be merged away. ${PROFILE_TEXT}`),
      into: text('What would remain, in the same form.'),
      via: Type.Object(identifierFields, { description: 'The identifier that joins them.' }),
    }),
    'Merges that this user would cause, in order.',
  ),
  refusals: list(
    Type.Object({
      ...identifierFields,
      reason: oneOf(reasons, 'As in `GET /profiles/{id}/identity`.'),
      rule: Type.Integer({
        enum: Object.values(REFUSAL_RULES),
        description: 'Number of the rule in docs/identity.md.',
      }),
      message: text('The same for people.'),
    }),
    'Identifiers that would not be linked, and why.',
  ),
  property_changes: list(
    Type.Object({
      kind: oneOf(['profile_fields', 'user_properties'], 'Where the property is on the profile.'),
      name: text('Of the property.'),
      before: Type.Unknown({ description: 'What the profile has before this user; null if it is not set.' }),
      after: Type.Unknown({ description: 'What it would have; null if it would be deleted.' }),
    }),
    'Properties of the profile that would have a different value after this user, including those of merged profiles.',
  ),
  property_changes_omitted: count('How many more there are: at most 1 MB of changes is listed.'),
  warnings: list(Type.String(), 'As the trace would show them, except those of the tracking plan: see `violations`.'),
  violations: list(
    object('PredictedViolation', 'How the user violates the tracking plan.', {
      path: text('Where, such as `events[0].total`.'),
      message: text('What is wrong.'),
      event_name: orNull(text('Of the event; null for user_properties and profile fields.')),
      mode: oneOf(['warn', 'enforce'], '`enforce`: the user would be rejected.'),
    }),
    'How the user violates the tracking plan, in every mode.',
  ),
  message: orNull(text('Why the user would be rejected; null if it would not.')),
});

export const CheckResponse = object('CheckResponse', 'What would happen.', {
  would_respond: Type.Object(
    {
      status: Type.Integer({ enum: [202, 400], description: 'The status.' }),
      body: Type.Object(
        {},
        { additionalProperties: true, description: 'The body. No trace with its `trace_id` exists.' },
      ),
    },
    { description: 'The response of `POST /ingest/events`.' },
  ),
  pending_requests: Type.Optional(
    count(
      'Your accepted requests that are not processed yet, and so are not considered here. At most the next 1,000 of a log partition are counted. Only with a secret key.',
    ),
  ),
  plan_version: Type.Optional(
    orNull(
      count('Of the tracking plan.'),
      'The version of the tracking plan that `violations` refers to; null without one.',
    ),
  ),
  users: Type.Optional(
    list(PredictedUser, 'In order. Only with a secret key, and if the body can be read as a request.'),
  ),
});

/** Of a check of `PARTLY_VALID_REQUEST`. */
const CHECK_EXAMPLE = {
  would_respond: { status: 202, body: examples.PARTLY_VALID_RESPONSE },
  pending_requests: 0,
  plan_version: null,
  users: [
    examples.exampleOf(PredictedUser, {
      status: 'accepted',
      profile_id: examples.PROFILE_ID,
      events: 2,
      new_identifiers: [{ type: 'email', value: 'ada@example.com' }],
      property_changes: [{ kind: 'user_properties', name: 'plan', before: 'free', after: 'pro' }],
    }),
    examples.exampleOf(PredictedUser, { userIndex: 1, status: 'rejected', message: examples.NO_IDENTIFIER }),
  ],
};

/** Before the body is looked at, all is as with the real call. */
const { 202: _accepted, ...REFUSED } = INGEST_OPERATION.responses;

export const CHECK_OPERATION: Operation = {
  ...INGEST_OPERATION,
  operationId: 'checkEvents',
  summary: 'Check users and their events without storing them',
  description: [
    'A dry run of `POST /ingest/events`: the same headers, limits and validation, but nothing is stored or counted. `would_respond` is the response that call would have sent.',
    'With a secret key, `users` says what would happen to each user: the profile, merges, links that would be refused, property changes, duplicates. It runs the code that processes requests, on what is stored now. Users of one request see each other, in order. A publishable key gets the validation alone.',
  ].join('\n\n'),
  responses: {
    ...REFUSED,
    200: jsonResponse(
      'What would happen. Also if the request would be rejected: look at `would_respond`.',
      CheckResponse,
      {
        secret: ['With a secret key', CHECK_EXAMPLE],
        publishable: ['With a publishable key', { would_respond: { status: 202, body: examples.SMALL_RESPONSE } }],
      },
    ),
  },
};

/** What a tracking plan says against each user, by index. */
interface ViolationsByUser {
  readonly version: number;
  readonly violations: readonly (readonly Violation[])[];
}

export function predictionJson({ users, pendingRequests }: Prediction, plan: ViolationsByUser | null) {
  return {
    pending_requests: pendingRequests,
    plan_version: plan?.version ?? null,
    users: users.map((user) => predictedUserJson(user, plan?.violations[user.userIndex] ?? [])),
  };
}

export function predictedUserJson(user: PredictedUserRow, violations: readonly Violation[]) {
  return rowJson(PredictedUser, {
    ...user,
    refusals: user.refusals.map((refusal) => {
      const { reason } = refusal;
      return { ...refusal, rule: REFUSAL_RULES[reason], message: REFUSAL_REASONS[reason] };
    }),
    propertyChanges: user.propertyChanges.map((change) => {
      return { ...change, before: rawOrNull(change.before), after: rawOrNull(change.after) };
    }),
    violations: violations.map((violation) => ({ ...violation, eventName: violation.event_name })),
  });
}
