/**
 * `POST /ingest/events/check` for the OpenAPI document, by hand: it is not in Fastify (`edge/check-intake.ts`). It takes
 * what `POST /ingest/events` takes, so everything but the response is that operation's. Also how a prediction looks in
 * a response.
 */

import { REFUSAL_REASONS, REFUSAL_RULES, type RefusalReason } from '../model.ts';
import type { Violation } from '../plans/compiled-plan.ts';
import type { PredictedUser as PredictedUserRow, Prediction } from '../store.ts';
import { CHECK_RESPONSE, SMALL_RESPONSE } from './examples.ts';
import { INGEST_OPERATION } from './ingest-operation.ts';
import { rawOrNull, rowJson } from './json-text.ts';
import type { Operation } from './openapi-types.ts';
import { jsonResponse } from './route-schema.ts';
import {
  anyJson,
  count,
  flag,
  identifierType,
  list,
  object,
  oneOf,
  orNull,
  text,
  textOrNull,
  Type,
  userIndex,
  uuidOrNull,
} from './schema.ts';

const identifier = { type: identifierType, value: text('As the request has it.') };
const reasons = Object.keys(REFUSAL_REASONS) as RefusalReason[];
const profile = 'An existing profile, or `new:` and the index of the user of this request that would create it.';

export const PredictedUser = object('PredictedUser', 'What would happen to one user of the request.', {
  userIndex,
  status: oneOf(['accepted', 'rejected'], 'As the 202 would say.'),
  profile_id: textOrNull(`The profile after the whole request. ${profile} Null if nothing would be stored.`),
  is_new: flag('The profile does not exist yet.'),
  events: count('Events that would be stored.'),
  duplicate_events: count('Events that are stored already, by `$event_id`.'),
  duplicate_of: uuidOrNull(
    'The trace that used this `Idempotency-Key` with the same body; then nothing of this user would be stored.',
  ),
  new_identifiers: list(Type.Object(identifier), 'Identifiers that would be linked to the profile.'),
  merges: list(
    Type.Object({
      from: text(`What would be merged away. ${profile}`),
      into: text('What would remain, in the same form.'),
      via: Type.Object(identifier, { description: 'The identifier that joins them.' }),
    }),
    'Merges that this user would cause, in order.',
  ),
  refusals: list(
    Type.Object({
      ...identifier,
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
      before: anyJson('What the profile has before this user; null if it is not set.'),
      after: anyJson('What it would have; null if it would be deleted.'),
    }),
    'Properties of the profile that would have a different value after this user, including those of merged profiles.',
  ),
  property_changes_omitted: count('How many more there are: at most 1 MB of changes is listed.'),
  warnings: list(Type.String(), 'As the trace would show them, except those of the tracking plan: see `violations`.'),
  violations: list(
    object('PredictedViolation', 'How the user violates the tracking plan.', {
      path: text('Where, such as `events[0].total`.'),
      message: text('What is wrong.'),
      event_name: textOrNull('Of the event; null for user_properties and profile fields.'),
      mode: oneOf(['warn', 'enforce'], '`enforce`: the user would be rejected.'),
    }),
    'How the user violates the tracking plan, in every mode.',
  ),
  message: textOrNull('Why the user would be rejected; null if it would not.'),
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
        secret: ['With a secret key', CHECK_RESPONSE],
        publishable: ['With a publishable key', { would_respond: { status: 202, body: SMALL_RESPONSE } }],
      },
    ),
  },
};

/** What a tracking plan says against each user, by index. */
export interface ViolationsByUser {
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
