/**
 * `GET /traces/{trace_id}`: what became of a request. Right from the moment of the 202: pending first, then processed,
 * with the profile of each user, the merges it caused, and what to know about it.
 */

import type { FastifyInstance } from 'fastify';
import { NO_PARAMETERS } from './parameters.ts';
import { traceAnswer } from './stored-answers.ts';
import { addTenantRoute, type TenantParts } from './tenant-route.ts';

export function registerTraceRoutes(app: FastifyInstance, parts: TenantParts): void {
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/traces/:trace_id',
    parameters: NO_PARAMETERS,
    answer: async ({ store, tenantId, id }) => {
      const trace = await store.trace(tenantId, id);
      return trace === undefined ? null : traceAnswer(trace);
    },
  });
}
