/**
 * `GET /rejections`: users that failed validation, with the reason and what was sent, so that a person can see both.
 * A payload that was too large to keep whole is given as text, as far as it was kept. `GET /rejections/reasons` counts
 * those that are kept, by reason.
 */

import type { FastifyInstance } from 'fastify';
import type { RejectionReason, StoredRejection } from '../store.ts';
import { type Json, raw } from './json-text.ts';
import { cursor, limit, refuseEmptyRange, text, time } from './parameters.ts';
import { timeText } from './stored-answers.ts';
import { addTenantRoute, type TenantParts } from './tenant-route.ts';

const REASON_CHARACTERS_MAX = 1_000;
const INDEXES = /\[\d+\]/g;

export const REJECTION_PARAMETERS = {
  reason: text('Only users rejected for this reason: a `message`, with or without its indexes.', REASON_CHARACTERS_MAX),
  from: time('Only users received at or after this time. ISO 8601.'),
  to: time('Only users received before this time. ISO 8601.'),
  limit,
  cursor,
};

const { from, to } = REJECTION_PARAMETERS;
export const REASON_PARAMETERS = { from, to };

export function registerRejectionRoutes(app: FastifyInstance, parts: TenantParts): void {
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/rejections',
    parameters: REJECTION_PARAMETERS,
    answer: async ({ store, tenantId, parameters }) => {
      const { from, to, limit, cursor } = parameters;
      refuseEmptyRange(from, to);
      const reason = parameters.reason?.replaceAll(INDEXES, '[]') ?? null;
      const { rows, nextCursor } = await store.rejections(tenantId, { reason, from, to, limit, cursor });
      return { rejections: rows.map(rejectionAnswer), next_cursor: nextCursor };
    },
  });
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/rejections/reasons',
    parameters: REASON_PARAMETERS,
    answer: async ({ store, tenantId, parameters }) => {
      const { from, to } = parameters;
      refuseEmptyRange(from, to);
      const reasons = await store.rejectionReasons(tenantId, { from, to });
      return { reasons: reasons.map(reasonAnswer) };
    },
  });
}

function reasonAnswer({ reason, users, lastAt, traceId, userIndex }: RejectionReason): Json {
  return { reason, users, last_at: timeText(lastAt), trace_id: traceId, userIndex };
}

function rejectionAnswer(rejection: StoredRejection): Json {
  const { traceId, userIndex, receivedAt, message, reason, payload, payloadIsCut } = rejection;
  return {
    trace_id: traceId,
    userIndex,
    received_at: timeText(receivedAt),
    message,
    reason,
    payload: payloadIsCut ? payload : raw(payload),
    payload_is_cut: payloadIsCut,
  };
}
