/**
 * `GET /traces`: the most recent requests. `GET /traces/{trace_id}`: what became of one. Right from the moment of the 202: pending first, then processed,
 * with the profile of each user, the merges it caused, and what to know about it.
 */

import type { FastifyInstance } from 'fastify';
import { choiceParameter, cursor, limit } from './parameters.ts';
import { include, peopleOf } from './person-of-event.ts';
import { traceAnswer, traceSummaryAnswer } from './stored-answers.ts';
import { addTenantRoute, type TenantParts } from './tenant-route.ts';

export const TRACE_LIST_PARAMETERS = {
  status: choiceParameter('Only requests that are still to be processed, or that are processed.', [
    'pending',
    'processed',
  ]),
  limit,
  cursor,
};
export const TRACE_PARAMETERS = { include };

export function registerTraceRoutes(app: FastifyInstance, parts: TenantParts): void {
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/traces',
    parameters: TRACE_LIST_PARAMETERS,
    answer: async ({ store, tenantId, parameters }) => {
      const { rows, nextCursor } = await store.traces(tenantId, parameters);
      return { traces: rows.map(traceSummaryAnswer), next_cursor: nextCursor };
    },
  });
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/traces/:trace_id',
    parameters: TRACE_PARAMETERS,
    answer: async ({ store, tenantId, id, parameters }) => {
      const trace = await store.trace(tenantId, id);
      if (trace === undefined) return null;
      return traceAnswer(trace, await peopleOf(store, tenantId, parameters.include !== null, trace.users));
    },
  });
}
