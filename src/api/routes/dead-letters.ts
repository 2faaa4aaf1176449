/**
 * `GET /dead-letters`: requests that were accepted and that the processor could not process, with the cause.
 * `POST /dead-letters/{id}/retry` and `POST /dead-letters/retry` process them again, as after an upgrade that has fixed
 * the cause. They make a job.
 */

import type { FastifyInstance } from 'fastify';
import type { DeadLetter } from '../../store.ts';
import { rejectionId } from '../../views/kept-rejections.ts';
import {
  cursor,
  limit,
  membersOf,
  parseBody,
  readFilter,
  refuseEmptyRange,
  textParameter,
  timeParameter,
} from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { BadParameterError, RefusedError, rowJson } from '../responses.ts';
import {
  count,
  filterObject,
  flag,
  list,
  nextCursor,
  object,
  requestBody,
  text,
  time,
  userIndex,
  uuid,
} from '../schema.ts';
import { tenantRoute } from '../route-kinds.ts';
import { jobJson, jobResponse } from './jobs.ts';

const CAUSE_CHARACTERS_MAX = 1_000;
const BODY_BYTES_MAX = 65_536;

const FILTER = {
  cause: textParameter('Only those whose cause begins with this text.', CAUSE_CHARACTERS_MAX),
  from: timeParameter('Only those received at or after this time. ISO 8601.'),
  to: timeParameter('Only those received before this time. ISO 8601.'),
};

const DeadLetterSchema = object('DeadLetter', 'A request, or a part of it, that could not be processed.', {
  id: text('`<trace_id>.<userIndex>` of its first user.'),
  trace_id: uuid('The request.'),
  userIndex,
  received_at: time('When the server received it.'),
  failed_at: time('When the processor gave it up.'),
  cause: text('Why.'),
  users: count('Accepted users in it.'),
  events: count('Their events.'),
  key_id: text('Its API key.'),
  can_retry: flag('Whether its body is kept.'),
});

export const DeadLetterPage = object('DeadLetterPage', 'Requests that could not be processed.', {
  dead_letters: list(DeadLetterSchema, 'Newest first, without those that a retry has stored.'),
  next_cursor: nextCursor,
});

const RetryRequest = requestBody(
  'RetryRequest',
  'Which dead letters to process again.',
  { filter: filterObject(FILTER, 'Which dead letters; `{}` for all.') },
  { retry: ['All of one cause', { filter: { cause: 'TypeError: ' } }] },
);

export function registerDeadLetterRoutes(app: FastifyInstance, parts: ApiParts): void {
  tenantRoute(app, parts, 'GET /dead-letters', {
    operationId: 'listDeadLetters',
    summary: 'Dead letters',
    description:
      'Requests that were accepted with a 202 and that the processor could not process, because of a bug or of changed tables. They are kept, with their cause, and counted in `GET /ledger`.',
    query: { ...FILTER, limit, cursor },
    response: { description: 'Dead letters.', body: DeadLetterPage },
    handler: async ({ store, tenantId, parameters }) => {
      refuseEmptyRange(parameters.from, parameters.to);
      const { rows, nextCursor } = await store.listDeadLetters(tenantId, parameters);
      return { dead_letters: rows.map(deadLetterJson), next_cursor: nextCursor };
    },
  });

  tenantRoute(app, parts, 'POST /dead-letters/:id/retry', {
    idForm: 'user',
    operationId: 'retryDeadLetter',
    summary: 'Retry a dead letter',
    description:
      'Processes it again. If it is stored now, it moves from `dead_letters` to `stored` in the ledger; if not, it stays a dead letter, and the job says why. 404 if it was stored by a retry before.',
    params: { id: text('Id of the dead letter.') },
    response: jobResponse,
    handler: async ({ store, tenantId, id, traceId, now, by }) => {
      const [request = '', index = ''] = id.split('.');
      const job = await store.retryDeadLetter(tenantId, request, Number(index), { traceId, at: now, by });
      return job && jobJson(job);
    },
  });

  tenantRoute(app, parts, 'POST /dead-letters/retry', {
    bodyBytesMax: BODY_BYTES_MAX,
    operationId: 'retryDeadLetters',
    summary: 'Retry all dead letters that match',
    description: 'Processes them again, one by one. 404 if none matches.',
    body: RetryRequest,
    response: jobResponse,
    errors: [404],
    handler: async ({ store, tenantId, body, traceId, now, by }) => {
      const { filter: given } = membersOf(parseBody(body), ['filter']);
      if (given === undefined) throw new BadParameterError('filter is required: {} is all dead letters');
      const filter = readFilter(FILTER, given);
      refuseEmptyRange(filter.from, filter.to, 'filter.');
      const job = await store.retryDeadLetters(tenantId, filter, { traceId, at: now, by });
      if (job === undefined) throw new RefusedError('not_found', 'no dead letter matches the filter');
      return jobJson(job);
    },
  });
}

function deadLetterJson(letter: DeadLetter) {
  const { traceId, firstUserIndex: userIndex, isKept: canRetry } = letter;
  return rowJson(DeadLetterSchema, { ...letter, id: rejectionId(traceId, userIndex), userIndex, canRetry });
}
