/**
 * `GET /rejections`: users that failed validation, with the reason and what was sent, so that a person can see both.
 * A payload that was too large to keep whole is given as text, as far as it was kept. `GET /rejections/reasons` counts
 * those that are kept, by reason. `resubmit.ts` fixes them.
 */

import type { FastifyInstance } from 'fastify';
import { FORMATS } from '../../model.ts';
import type { StoredRejection } from '../../store.ts';
import { withoutIndexes, rejectionId } from '../../views/kept-rejections.ts';
import { AT, exampleOf, KEY_ID, NO_IDENTIFIER, PARTLY_VALID_REQUEST, TRACE_ID } from '../examples.ts';
import { raw, rowJson } from '../responses.ts';
import { choiceParameter, cursor, limit, refuseEmptyRange, textParameter, timeParameter } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { count, flag, list, nextCursor, object, oneOf, orNull, text, time, Type, userIndex, uuid } from '../schema.ts';
import { tenantRoute } from '../route-kinds.ts';

const REASON_CHARACTERS_MAX = 1_000;
const NAME_CHARACTERS_MAX = 512;
const REASONS_MAX = 100;

/** Also that of a resubmit. */
export const REJECTION_FILTER = {
  reason: textParameter(
    'Only users rejected for this reason: a `message`, with or without its indexes.',
    REASON_CHARACTERS_MAX,
  ),
  event_name: textParameter('Only users with an event of this name.', NAME_CHARACTERS_MAX),
  key_id: textParameter('Only users of requests with this API key.', NAME_CHARACTERS_MAX),
  from: timeParameter('Only users received at or after this time. ISO 8601.'),
  to: timeParameter('Only users received before this time. ISO 8601.'),
};

const Rejection = object('Rejection', 'One invalid user.', {
  id: text('`<trace_id>.<userIndex>`. `POST /rejections/{id}/resubmit` takes it.'),
  trace_id: uuid('The request.'),
  userIndex,
  received_at: time('When the server received it.'),
  message: text('The first rule that the user breaks.'),
  reason: text('The message without indexes.'),
  payload: Type.Unknown({ description: 'The user as it was sent; its beginning, as a text, if it was cut.' }),
  payload_is_cut: flag(
    'Whether the payload is not what was sent: it was too large to keep whole, or not kept because a person was erased while the request was waiting.',
  ),
  key_id: text('The API key of its request.'),
  format: oneOf(FORMATS, '`segment` if the payload is a message of Segment’s SDKs.'),
  event_names: list(
    Type.String(),
    'The names of its events, each once, as far as they have one; none if the user is too large to be examined.',
  ),
  resubmitted_at: orNull(
    time('When it was fixed and resubmitted, or accepted in a retry of its request; null if it was not.'),
  ),
  accepted_by: orNull(uuid('The trace_id of the retry in which it was accepted.')),
});

export const RejectionPage = object('RejectionPage', 'Invalid users.', {
  rejections: list(Rejection, 'Newest first.'),
  next_cursor: nextCursor,
});

const RejectionReason = object('RejectionReason', 'One reason, and how often it occurred.', {
  reason: text('The message without indexes. `GET /rejections` takes it.'),
  users: count('Rejected users that are kept.'),
  resubmitted: count('Those of them that were fixed and resubmitted, or accepted in a retry.'),
  last_at: time('When the server received the newest of them.'),
  trace_id: uuid('The request of the newest.'),
  userIndex,
});

export const RejectionReasons = object('RejectionReasons', 'Why users were rejected, and how often.', {
  reasons: Type.Array(RejectionReason, { maxItems: REASONS_MAX, description: 'The most frequent first.' }),
});

const { reason, event_name, key_id, from, to } = REJECTION_FILTER;
const resubmitted = choiceParameter('Only users that were resubmitted or accepted in a retry, or that were not.', [
  'true',
  'false',
]);

export function registerRejectionRoutes(app: FastifyInstance, parts: ApiParts): void {
  tenantRoute(app, parts, 'GET /rejections', {
    operationId: 'listRejections',
    summary: 'Rejected users',
    description: 'Invalid users, with the reason and what was sent. Kept for 7 days, up to a limit in size.',
    query: { reason, event_name, key_id, resubmitted, from, to, limit, cursor },
    response: {
      description: 'Rejected users.',
      body: RejectionPage,
      examples: {
        rejections: [
          'Rejected users',
          {
            rejections: [
              exampleOf(Rejection, {
                id: rejectionId(TRACE_ID, 1),
                trace_id: TRACE_ID,
                userIndex: 1,
                received_at: AT,
                message: NO_IDENTIFIER,
                reason: NO_IDENTIFIER,
                payload: PARTLY_VALID_REQUEST.users[1],
                key_id: KEY_ID,
                format: 'sluice',
                event_names: ['page_viewed'],
              }),
            ],
            next_cursor: null,
          },
        ],
      },
    },
    handler: async ({ store, tenantId, parameters }) => {
      const { from, to, limit, cursor } = parameters;
      refuseEmptyRange(from, to);
      const { reason: given, event_name: eventName, key_id: keyId, resubmitted } = parameters;
      const reason = given === null ? null : withoutIndexes(given);
      const isResubmitted = resubmitted === null ? null : resubmitted === 'true';
      const query = { reason, eventName, keyId, isResubmitted, from, to, limit, cursor };
      const { rows, nextCursor } = await store.rejections(tenantId, query);
      return { rejections: rows.map(rejectionJson), next_cursor: nextCursor };
    },
  });

  tenantRoute(app, parts, 'GET /rejections/reasons', {
    operationId: 'listRejectionReasons',
    summary: 'Why users are rejected',
    description:
      'The reasons of `GET /rejections`, with how many users each has and the newest of them. At most 100, the most frequent first. Counts those that are kept; `GET /receipts` and `GET /ledger` count all.',
    query: { from, to },
    response: { description: 'Reasons.', body: RejectionReasons },
    handler: async ({ store, tenantId, parameters: { from, to } }) => {
      refuseEmptyRange(from, to);
      return rowJson(RejectionReasons, { reasons: await store.rejectionReasons(tenantId, { from, to }) });
    },
  });
}

function rejectionJson(rejection: StoredRejection) {
  const { traceId, userIndex, payload, payloadIsCut } = rejection;
  return rowJson(Rejection, {
    ...rejection,
    id: rejectionId(traceId, userIndex),
    payload: payloadIsCut ? payload : raw(payload),
  });
}
