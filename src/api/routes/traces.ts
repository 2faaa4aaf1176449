/**
 * `GET /traces`: the most recent requests. `GET /traces/{trace_id}`: what became of one. Right from the moment of the
 * 202: pending first, then processed, with the profile of each user, the merges it caused, and warnings.
 */

import type { FastifyInstance } from 'fastify';
import { FORMATS } from '../../model.ts';
import type { StoredTrace } from '../../store.ts';
import { AT, exampleOf, KEY_ID, NO_IDENTIFIER, PROCESSED_AT, PROFILE_ID, TRACE_ID } from '../examples.ts';
import { choiceParameter, cursor, limit } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { rowJson } from '../responses.ts';
import { count, list, nextCursor, object, oneOf, orNull, text, time, Type, userIndex, uuid } from '../schema.ts';
import { include, type People, peopleOf, person, personOf } from '../stored-json.ts';
import { tenantRoute } from '../route-kinds.ts';

const STATUSES = ['pending', 'processed'] as const;

const ofTrace = {
  trace_id: uuid('The request.'),
  status: oneOf(STATUSES, '`pending` from the 202 on, `processed` once it can be read back.'),
  received_at: time('When the server received it.'),
  processed_at: orNull(time('When it was processed; null while pending.')),
  users_accepted: count('As the 202 said, and those that were resubmitted since.'),
  users_rejected: count('As the 202 said, without those that were resubmitted since.'),
  duplicate_of: orNull(
    Type.String({ format: 'uuid' }),
    'The earlier request with the same `Idempotency-Key` and body. Of this request, only users that the earlier one rejected and this one accepts are stored. Null if it is not a duplicate.',
  ),
  key_id: orNull(text('Id of a key.'), 'Its API key; null for a dead letter that is not kept any more.'),
};

const TraceSummary = object('TraceSummary', 'What happened to a request, in numbers.', {
  ...ofTrace,
  events: count('Events that were stored, or that wait to be.'),
});

const TracePage = object('TracePage', 'The most recent requests.', {
  traces: list(TraceSummary, 'Newest first. A page may be short and still have a cursor.'),
  next_cursor: nextCursor,
});

const TracedUser = object('TracedUser', 'What happened to one user of a request.', {
  userIndex,
  status: oneOf(
    ['accepted', 'rejected'],
    'As the 202 said; `accepted` once a rejected user was fixed and resubmitted.',
  ),
  profile_id: orNull(uuid('The profile as it is now; null while there is none.')),
  events: count('Events that are stored.'),
  duplicate_events: Type.Optional(count('Events that were stored before, by `$event_id`.')),
  merged: list(
    Type.Object({ from: uuid('The merged profile.'), into: uuid('The surviving profile.') }),
    'Merges that this user caused and that were not undone.',
  ),
  warnings: list(Type.String(), 'Notes that you may want to act on.'),
  message: orNull(text('Why the user was rejected; null if it was not.')),
  resubmitted: Type.Optional(
    object('Resubmission', 'How a rejected user was fixed and resubmitted.', {
      at: time('When it was stored.'),
      by: Type.Unknown({ description: 'The key or member that did it: `key_id` or `member_id`.' }),
      job_id: uuid('The job.'),
      patch: list(
        Type.Object({
          op: text('The operation.'),
          path: text('What it changed.'),
          from: Type.Optional(text('From where.')),
        }),
        'What was changed, without values, since these may be personal data. At most 20.',
      ),
    }),
  ),
  person,
});

const Trace = object('Trace', 'What happened to a request.', {
  ...ofTrace,
  format: oneOf(FORMATS, '`segment` if it was sent in the format of Segment’s SDKs, under `/ingest/v1/`.'),
  failed_at: Type.Optional(
    time(
      'When it, or the first of its users, became a dead letter; absent if none is one. Such a request stays `pending`.',
    ),
  ),
  users: list(TracedUser, 'What happened to each user.'),
});

const TRACE = exampleOf(Trace, {
  trace_id: TRACE_ID,
  status: 'processed',
  received_at: AT,
  processed_at: PROCESSED_AT,
  users_accepted: 1,
  users_rejected: 1,
  key_id: KEY_ID,
  format: 'sluice',
  users: [
    exampleOf(TracedUser, { status: 'accepted', profile_id: PROFILE_ID, events: 2 }),
    exampleOf(TracedUser, { userIndex: 1, status: 'rejected', message: NO_IDENTIFIER }),
  ],
});

export function registerTraceRoutes(app: FastifyInstance, parts: ApiParts): void {
  tenantRoute(app, parts, 'GET /traces', {
    operationId: 'listTraces',
    summary: 'The most recent requests',
    description:
      'Ingest requests, newest first, with the outcome of each in numbers. A pending request is listed from the moment of the 202.',
    query: {
      status: choiceParameter('Only pending requests, or only processed ones.', STATUSES),
      limit,
      cursor,
    },
    response: { description: 'Requests.', body: TracePage },
    handler: async ({ store, tenantId, parameters }) => {
      const { rows, nextCursor } = await store.traces(tenantId, parameters);
      return rowJson(TracePage, { traces: rows, nextCursor });
    },
  });

  tenantRoute(app, parts, 'GET /traces/:trace_id', {
    operationId: 'getTrace',
    summary: 'What happened to a request',
    description:
      'Available from the moment of the 202: first `pending`, then `processed`. Only for ingest requests: an unmerge or an erasure is found by `GET /audit?trace_id=`.',
    params: { trace_id: uuid('The `trace_id` of the response to an ingest request.') },
    query: { include },
    response: { description: 'The trace.', body: Trace, examples: { trace: ['A processed request', TRACE] } },
    handler: async ({ store, tenantId, id, parameters }) => {
      const trace = await store.trace(tenantId, id);
      return trace && traceJson(trace, await peopleOf(store, tenantId, parameters.include !== null, trace.users));
    },
  });
}

/** The command line prints the same. */
export function traceJson(trace: StoredTrace, people?: People) {
  const users = trace.users.map((user) => ({
    ...user,
    duplicateEvents: user.duplicateEvents > 0 ? user.duplicateEvents : undefined,
    person: personOf(people, user.profileId),
  }));
  return rowJson(Trace, { ...trace, users });
}
