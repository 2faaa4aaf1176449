/**
 * The operations of the OpenAPI document that read back, and the two acts that take something back. Parameters are the
 * very tables that the routes read requests by.
 */

import { AUDIT_PARAMETERS } from './audit.ts';
import { ALL_EVENTS_PARAMETERS, COUNT_PARAMETERS, EVENT_PARAMETERS } from './events.ts';
import { LEDGER_PARAMETERS } from './ledger.ts';
import { answer, json, shared } from './openapi-parts.ts';
import type { Operation, Parameter, PathItem, Reference, Response } from './openapi-types.ts';
import { NO_PARAMETERS, type ParameterKinds } from './parameters.ts';
import { SEARCH_PARAMETERS } from './profile-search.ts';
import { FIND_PROFILE_PARAMETERS, IDENTITY_PARAMETERS, PROFILE_PARAMETERS } from './profiles.ts';
import * as examples from './reading-examples.ts';
import { READING_SCHEMAS as schemas } from './reading-schemas.ts';
import { RECEIPT_PARAMETERS } from './receipts.ts';
import { TRACE_LIST_PARAMETERS, TRACE_PARAMETERS } from './traces.ts';

export const READING_TAG = {
  name: 'Reading back',
  description: [
    'Who is this, what did they do, why are these two one person, and what became of my request. With a secret key; publishable keys are answered 403.',
    'Lists are newest first, 50 at a time: send `next_cursor` as `cursor` for what follows. What comes in meanwhile neither repeats nor hides anything. Times are ISO 8601 in UTC. An empty parameter counts as absent; an unknown one is refused.',
  ].join('\n\n'),
};

interface Described {
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly path?: Parameter;
  readonly query: ParameterKinds;
  readonly requestBody?: NonNullable<Operation['requestBody']>;
  readonly responses: Readonly<Record<string, Response | Reference>>;
}

const id: Parameter = {
  name: 'id',
  in: 'path',
  required: true,
  description: 'Id of a profile. One that was merged away stands for the surviving profile.',
  schema: { type: 'string', format: 'uuid' },
};

const traceId: Parameter = {
  name: 'trace_id',
  in: 'path',
  required: true,
  description: 'The `trace_id` of the answer to an ingest request.',
  schema: { type: 'string', format: 'uuid' },
};

function operation({ path, query, responses, requestBody, ...words }: Described): Operation {
  const inQuery = Object.entries(query).map(
    ([name, { description, schema, isRequired = false }]): Parameter => ({
      name,
      in: 'query',
      required: isRequired,
      description,
      schema,
    }),
  );
  return {
    ...words,
    tags: [READING_TAG.name],
    security: [{ secretKey: [] }],
    parameters: path === undefined ? inQuery : [path, ...inQuery],
    ...(requestBody === undefined ? {} : { requestBody }),
    responses: {
      ...responses,
      400: shared('BadRequest'),
      401: shared('Unauthorized'),
      403: shared('Forbidden'),
      ...(path === undefined ? {} : { 404: shared('NotFound') }),
      ...(requestBody === undefined ? {} : { 413: shared('PayloadTooLarge') }),
      500: shared('InternalError'),
      503: shared('Unavailable'),
    },
  };
}

export function readingPaths(): Record<string, PathItem> {
  return {
    '/profiles': { get: findProfile() },
    '/profiles/search': { get: searchProfiles() },
    '/profiles/count': { get: countProfiles() },
    '/profiles/{id}': { get: getProfile(), delete: eraseProfile() },
    '/profiles/{id}/events': { get: profileEvents() },
    '/profiles/{id}/identity': { get: profileIdentity() },
    '/profiles/{id}/unmerge': { post: unmergeProfile() },
    '/events': { get: events() },
    '/events/counts': { get: counts() },
    '/traces': { get: traces() },
    '/traces/{trace_id}': { get: trace() },
    '/receipts': { get: receipts() },
    '/ledger': { get: ledger() },
    '/audit': { get: audit() },
  };
}

const profileAnswers = json(
  schemas.Profile,
  ['profile', 'A profile', examples.PROFILE],
  ['provenance', 'With provenance=1, shortened', examples.PROFILE_WITH_PROVENANCE],
);

function findProfile(): Operation {
  return operation({
    operationId: 'findProfile',
    summary: 'Find a person by an identifier',
    description:
      'Takes exactly one of `user_id`, `email`, `phone_number` and `anon_id`, and matches it as identifiers of events are matched: e-mail addresses in capitals or not, phone numbers with or without spaces.',
    query: FIND_PROFILE_PARAMETERS,
    responses: { 200: answer('The profile.', profileAnswers), 404: shared('NotFound') },
  });
}

function searchProfiles(): Operation {
  const content = json(schemas.ProfileMatches, ['matches', 'One profile', examples.PROFILE_MATCHES]);
  return operation({
    operationId: 'searchProfiles',
    summary: 'Search for people',
    description:
      'People by the beginning of any identifier or of a name, by a property, or all of them. Those whose identifier or id is the whole value come first, at once. The others follow newest first, by when their profile was made: for these the server goes through all people for up to half a second a call. `is_partial` says that it did not get through; `next_cursor` goes on. Over all pages nobody is missing.',
    query: SEARCH_PARAMETERS,
    responses: { 200: answer('Who was found.', content) },
  });
}

function countProfiles(): Operation {
  const content = json(schemas.ProfileCount, ['count', 'Three people', examples.PROFILE_COUNT]);
  return operation({
    operationId: 'countProfiles',
    summary: 'Count people',
    description:
      'How many profiles there are now. Merged profiles count as one, erased ones not at all, and a profile stays when its events expire. Requests that are still being processed are not in it.',
    query: NO_PARAMETERS,
    responses: { 200: answer('The number of profiles.', content) },
  });
}

function getProfile(): Operation {
  return operation({
    operationId: 'getProfile',
    summary: 'Get a profile',
    description: 'By its id, or by the id of a profile that was merged into it.',
    path: id,
    query: PROFILE_PARAMETERS,
    responses: { 200: answer('The profile.', profileAnswers) },
  });
}

function eraseProfile(): Operation {
  return operation({
    operationId: 'eraseProfile',
    summary: 'Erase a person',
    description:
      'Erases the profile, its identifiers and its events, for good. What was received before the erasure and comes late does not bring them back; what is received after it starts a new profile. The act itself is kept in the audit, without personal data.',
    path: id,
    query: NO_PARAMETERS,
    responses: { 202: answer('Erased.', json(schemas.Erased, ['erased', 'Erased', examples.ERASED])) },
  });
}

const eventExamples: [name: string, summary: string, value: unknown][] = [
  ['events', 'Events', examples.EVENT_PAGE],
  ['person', 'With include=person', examples.EVENT_PAGE_WITH_PERSON],
];

function profileEvents(): Operation {
  return operation({
    operationId: 'profileEvents',
    summary: 'What a person did',
    description: 'The events of one profile, newest first by their own `timestamp`.',
    path: id,
    query: EVENT_PARAMETERS,
    responses: { 200: answer('Events.', json(schemas.EventPage, ...eventExamples)) },
  });
}

function profileIdentity(): Operation {
  const chosen = json(
    schemas.Identity,
    ['identity', 'Everything that made this one person', examples.IDENTITY],
    ['chain', 'Why an anonymous visitor is a customer', examples.IDENTITY_WITH_CHAIN],
  );
  return operation({
    operationId: 'profileIdentity',
    summary: 'Why this is one person',
    description:
      'Every identifier with the request that brought it, every merge with its cause, and every link that was refused, with the reason. With `from` and `to`, also the one chain of requests that makes these two identifiers one person; 404 if one of them is not of this profile, and `message` says which. A refusal is listed on the profile that the record went to, not on that of the refused identifier.',
    path: id,
    query: IDENTITY_PARAMETERS,
    responses: { 200: answer('The causes.', chosen) },
  });
}

function unmergeProfile(): Operation {
  return operation({
    operationId: 'unmergeProfile',
    summary: 'Undo a merge',
    description:
      'Undoes, exactly, the merges that one request caused in this profile: properties, events and identifiers go back to where they belong. Later requests do not merge the same profiles again. 400 if that request merged nothing here. The act is in the audit, under the `trace_id` of this answer.',
    path: id,
    query: NO_PARAMETERS,
    requestBody: {
      required: true,
      description: 'Which request to take back; `merges` of the identity names it.',
      content: json(schemas.UnmergeRequest, ['unmerge', 'Undo what one request merged', examples.UNMERGE_REQUEST]),
    },
    responses: { 200: answer('Undone.', json(schemas.Unmerged, ['unmerged', 'Undone', examples.UNMERGED])) },
  });
}

function events(): Operation {
  const chosen = json(schemas.EventPage, ...eventExamples)['application/json'];
  const arrived = json(schemas.Arrivals, ['arrivals', 'With after', examples.ARRIVALS])['application/json'];
  if (chosen === undefined || arrived === undefined) throw new Error('an answer in JSON is not JSON');
  const schema = { anyOf: [chosen.schema, arrived.schema] };
  const content = { 'application/json': { schema, examples: { ...chosen.examples, ...arrived.examples } } };
  return operation({
    operationId: 'listEvents',
    summary: 'All events',
    description:
      'The events of all profiles, newest first by their own `timestamp`; or, with `after`, in order of arrival, for those who follow along: begin with `after=` (from now on) or `after=oldest`, then send `last` of each response as the next `after`. `last` is good for as long as the events after it are stored; where events may be missing, the response is 400 with a `message`.',
    query: ALL_EVENTS_PARAMETERS,
    responses: { 200: answer('Events.', content) },
  });
}

function counts(): Operation {
  return operation({
    operationId: 'countEvents',
    summary: 'Events by time',
    description:
      "Numbers of events and sums of revenue by minute, hour or day (UTC) of the events' own `timestamp`. A bucket that overlaps the range is given whole: to count a range exactly, let `from` and `to` be the starts of buckets. Revenue is summed per currency, never across currencies. At most 10,000 buckets.",
    query: COUNT_PARAMETERS,
    responses: { 200: answer('Buckets.', json(schemas.Counts, ['counts', 'By event name', examples.COUNTS])) },
  });
}

function traces(): Operation {
  return operation({
    operationId: 'listTraces',
    summary: 'The most recent requests',
    description:
      'Ingest requests by their `trace_id`, newest first, with what became of each in numbers. What is still to be processed is in it from the moment of the 202.',
    query: TRACE_LIST_PARAMETERS,
    responses: {
      200: answer('Requests.', json(schemas.TracePage, ['traces', 'A processed request', examples.TRACE_PAGE])),
    },
  });
}

function trace(): Operation {
  return operation({
    operationId: 'getTrace',
    summary: 'What became of a request',
    description:
      'Right from the moment of the 202: `pending` first, `processed` soon after. Only for ingest requests: an unmerge or an erasure is found by `GET /audit?trace_id=`.',
    path: traceId,
    query: TRACE_PARAMETERS,
    responses: { 200: answer('The trace.', json(schemas.Trace, ['trace', 'A processed request', examples.TRACE])) },
  });
}

function receipts(): Operation {
  return operation({
    operationId: 'listReceipts',
    summary: 'What came in, by minute',
    description:
      'Users accepted and rejected, and events, by minute of receipt (UTC), from the moment of the answer on: as they were counted then, whatever became of them since. Requests that were answered 400 because no user was valid are in it. A minute that overlaps the range is given whole. The last 60 minutes unless told otherwise, at most 1,440 at once, kept for 7 days.',
    query: RECEIPT_PARAMETERS,
    responses: { 200: answer('Minutes.', json(schemas.Receipts, ['receipts', 'Three minutes', examples.RECEIPTS])) },
  });
}

function ledger(): Operation {
  return operation({
    operationId: 'getLedger',
    summary: 'The books',
    description:
      'By hour of receipt, users and events: what was received is stored, a duplicate, erased, expired, set aside or pending. It adds up at every moment.',
    query: LEDGER_PARAMETERS,
    responses: { 200: answer('The books.', json(schemas.Ledger, ['ledger', 'Balanced books', examples.LEDGER])) },
  });
}

function audit(): Operation {
  return operation({
    operationId: 'listActs',
    summary: 'Who was unmerged or erased',
    description: 'The acts of this API that changed what is stored: unmerge and erase.',
    query: AUDIT_PARAMETERS,
    responses: { 200: answer('Acts.', json(schemas.AuditPage, ['audit', 'One erasure', examples.AUDIT_PAGE])) },
  });
}
