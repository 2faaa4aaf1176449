/**
 * `GET /audit`: the acts of this API that changed what is stored, unmerge and erase, newest first, or the one of a
 * call, by the `trace_id` of its answer. What requests did (links, merges, refusals) is told by the identity of a
 * profile and by traces.
 */

import type { FastifyInstance } from 'fastify';
import { raw } from './json-text.ts';
import { cursor, limit, textParameter } from './parameters.ts';
import { timeText } from './stored-answers.ts';
import { addTenantRoute, type TenantParts } from './tenant-route.ts';

const TRACE_ID_CHARACTERS = 36;

export const AUDIT_PARAMETERS = {
  trace_id: textParameter('Only the act of this call: the `trace_id` of its answer.', TRACE_ID_CHARACTERS),
  limit,
  cursor,
};

export function registerAuditRoutes(app: FastifyInstance, parts: TenantParts): void {
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/audit',
    parameters: AUDIT_PARAMETERS,
    answer: async ({ store, tenantId, parameters }) => {
      const { trace_id: traceId, limit, cursor } = parameters;
      const { rows, nextCursor } = await store.audit(tenantId, { traceId, limit, cursor });
      const acts = rows.map(({ kind, traceId, at, detail }) => ({
        kind,
        trace_id: traceId,
        at: timeText(at),
        detail: raw(detail),
      }));
      return { acts, next_cursor: nextCursor };
    },
  });
}
