/**
 * `GET /audit`: every unmerge, erasure, resubmit and retry, newest first, or the one of a call, by the `trace_id` of its
 * response. What requests did (links, merges, refusals) is in the identity of a profile and in traces.
 */

import type { FastifyInstance } from 'fastify';
import { AUDIT_KINDS } from '../../store.ts';
import { raw, rowJson } from '../responses.ts';
import { cursor, limit, textParameter } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { list, nextCursor, object, oneOf, time, Type, uuid } from '../schema.ts';
import { tenantRoute } from '../route-kinds.ts';

const TRACE_ID_CHARACTERS = 36;

const AuditEntry = object('AuditEntry', 'One unmerge, erasure, resubmit or retry.', {
  kind: oneOf(AUDIT_KINDS, 'What was done.'),
  trace_id: uuid('The call that did it.'),
  at: time('When.'),
  detail: Type.Unknown({
    description:
      'To what, and `by` which key (`key_id`) or member (`member_id`). `is_finished` is false while an erasure is running, or after it was interrupted: then the numbers are those of what is removed so far.',
  }),
});

const AuditPage = object('AuditPage', 'Every unmerge, erasure, resubmit and retry.', {
  entries: list(AuditEntry, 'Newest first.'),
  next_cursor: nextCursor,
});

export function registerAuditRoutes(app: FastifyInstance, parts: ApiParts): void {
  tenantRoute(app, parts, 'GET /audit', {
    operationId: 'listAuditEntries',
    summary: 'Audit log',
    description: 'Every unmerge, erasure, resubmit of rejected users and retry of dead letters, without personal data.',
    query: {
      trace_id: textParameter('Only the entry of this call: the `trace_id` of its response.', TRACE_ID_CHARACTERS),
      limit,
      cursor,
    },
    response: { description: 'Audit entries.', body: AuditPage },
    handler: async ({ store, tenantId, parameters: { trace_id: traceId, limit, cursor } }) => {
      const { rows, nextCursor } = await store.audit(tenantId, { traceId, limit, cursor });
      const entries = rows.map((row) => rowJson(AuditEntry, { ...row, detail: raw(row.detail) }));
      return { entries, next_cursor: nextCursor };
    },
  });
}
