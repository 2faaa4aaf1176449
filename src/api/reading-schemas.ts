/**
 * The shapes of what is read back, for the OpenAPI document. Answers are written as text (`json-text.ts`), not by
 * these; a test holds each real answer against its schema. A schema with a title is a component of that document.
 */

import { type TSchema, Type } from 'typebox';
import { IDENTIFIER_TYPES, REFUSAL_REASONS } from '../model.ts';

function orNull<Schema extends TSchema>(schema: Schema, description: string) {
  return Type.Union([schema, Type.Null()], { description });
}

function time(description: string) {
  return Type.String({ format: 'date-time', description });
}

function profileId(description: string) {
  return Type.String({ format: 'uuid', description });
}

function traceId(description: string) {
  return Type.String({ format: 'uuid', description });
}

function count(description: string) {
  return Type.Integer({ minimum: 0, description });
}

const userIndex = count('Position of the user in that request, counted from 0.');
const identifierType = Type.Union(
  IDENTIFIER_TYPES.map((type) => Type.Literal(type)),
  { description: 'Kind of identifier.' },
);
const nextCursor = orNull(Type.String(), 'Send it as `cursor` for what follows; null when there is no more.');
const asWritten = Type.Array(Type.String(), { description: 'As clients first wrote them, oldest first.' });
const anyObject = (description: string) => Type.Object({}, { description, additionalProperties: Type.Unknown() });

const Told = Type.Object(
  {
    value: Type.Unknown({ description: 'The value, as on the profile.' }),
    trace_id: traceId('The request that told it.'),
    received_at: time('When that came in.'),
  },
  { title: 'Told', description: 'Where a value comes from.' },
);

const told = (description: string) => Type.Object({}, { description, additionalProperties: Told });

const Profile = Type.Object(
  {
    id: profileId('Names the profile. Stays the same while others are merged into it.'),
    merged_ids: Type.Array(Type.String({ format: 'uuid' }), {
      description: 'Ids of what was merged into it. They go on to stand for this profile.',
    }),
    identifiers: Type.Object(
      { user_id: asWritten, email: asWritten, phone_number: asWritten, anon_id: asWritten },
      { description: 'What the person is known by.' },
    ),
    profile_fields: Type.Object(
      {},
      { description: 'Profile fields, the newest of each.', additionalProperties: Type.String() },
    ),
    user_properties: anyObject('Attributes, the newest of each. Numbers come back digit for digit.'),
    first_seen: time('When the first request about the person came in.'),
    last_seen: time('When the latest request about the person came in.'),
    event_count: count('Events of this profile.'),
    provenance: Type.Optional(
      Type.Object(
        { profile_fields: told('By name.'), user_properties: told('By name.') },
        { description: 'With `provenance=1`: which request told each value.' },
      ),
    ),
  },
  { title: 'Profile', description: 'One person, as far as is known.' },
);

const StoredEvent = Type.Object(
  {
    id: Type.String({ description: 'Names the event: trace_id, userIndex and place among the events of the user.' }),
    event_name: Type.String({ description: 'What happened.' }),
    timestamp: time('When it happened.'),
    received_at: time('When it came in.'),
    revenue: orNull(Type.Number(), 'As sent; null without one.'),
    event_value: orNull(Type.Number(), 'As sent; null without one.'),
    properties: anyObject('Custom properties. Numbers come back digit for digit.'),
    profile_id: orNull(
      Type.String({ format: 'uuid' }),
      'The profile that it belongs to now; null when all identifiers of the user were junk.',
    ),
    trace_id: traceId('The request that it came with.'),
    userIndex,
  },
  { title: 'StoredEvent', description: 'One thing that happened.' },
);

const EventPage = Type.Object(
  { events: Type.Array(StoredEvent, { description: 'Newest first.' }), next_cursor: nextCursor },
  { title: 'EventPage', description: 'Events, newest first by `timestamp`.' },
);

const Arrivals = Type.Object(
  {
    events: Type.Array(StoredEvent, { description: 'Oldest first, in order of arrival.' }),
    last: Type.String({ description: 'Send it as `after` for what comes next.' }),
  },
  { title: 'Arrivals', description: 'With `after`: events in order of arrival.' },
);

const via = Type.Object(
  { type: identifierType, value: Type.String({ description: 'As the client wrote it.' }) },
  { description: 'The identifier that led from one to the other.' },
);

const ChainStep = Type.Object(
  {
    kind: Type.Union([Type.Literal('link'), Type.Literal('merge')], {
      description: '`link`: an identifier was seen for the first time. `merge`: two became one.',
    }),
    type: Type.Optional(identifierType),
    value: Type.Optional(Type.String({ description: 'Of a link: the identifier.' })),
    node: Type.Optional(Type.String({ format: 'uuid', description: 'Of a link: where the identifier belongs.' })),
    from: Type.Optional(Type.String({ format: 'uuid', description: 'Of a merge: what was merged away.' })),
    into: Type.Optional(Type.String({ format: 'uuid', description: 'Of a merge: what lived on.' })),
    via: Type.Optional(via),
    nodes: Type.Optional(
      Type.Array(Type.String({ format: 'uuid' }), {
        minItems: 2,
        maxItems: 2,
        description: 'Of a merge: where `via` belongs, and what it was joined to.',
      }),
    ),
    trace_id: traceId('The request that did it.'),
    userIndex,
    at: time('When that came in.'),
    text: Type.String({ description: 'The step as a sentence.' }),
  },
  { title: 'ChainStep', description: 'One step of the way from one identifier to another.' },
);

const Identity = Type.Object(
  {
    identifiers: Type.Array(
      Type.Object({
        type: identifierType,
        value: Type.String({ description: 'As the client first wrote it.' }),
        first_trace_id: traceId('The first request with it.'),
        first_seen: time('When that came in.'),
      }),
      { description: 'Every identifier, and where it came from.' },
    ),
    merges: Type.Array(
      Type.Object({
        from: profileId('What was merged away.'),
        into: profileId('What lived on.'),
        via,
        trace_id: traceId('The request that did it. Unmerge takes this.'),
        userIndex,
        at: time('When that came in.'),
      }),
      { description: 'Every merge, and its cause.' },
    ),
    refusals: Type.Array(
      Type.Object({
        type: identifierType,
        value: Type.String({ description: 'The identifier that was not linked.' }),
        reason: Type.Union(
          Object.keys(REFUSAL_REASONS).map((reason) => Type.Literal(reason)),
          {
            description: Object.entries(REFUSAL_REASONS)
              .map(([code, words]) => `\`${code}\`: ${words}`)
              .join('; '),
          },
        ),
        trace_id: traceId('The first request that was refused so.'),
        userIndex,
        at: time('When that came in.'),
        count: Type.Integer({ minimum: 1, description: 'How often it happened.' }),
      }),
      { description: 'What was not linked or merged, and why not.' },
    ),
    chain: Type.Optional(
      Type.Array(ChainStep, { minItems: 1, description: 'With `from` and `to`: the one way from one to the other.' }),
    ),
  },
  { title: 'Identity', description: 'Why this is one person.' },
);

const UnmergeRequest = Type.Object(
  { trace_id: traceId('The request whose merges are to be undone.') },
  { title: 'UnmergeRequest', description: 'Which merges to undo.', additionalProperties: false },
);

const Unmerged = Type.Object(
  {
    undone: Type.Integer({ minimum: 1, description: 'Merges that were undone.' }),
    profile_ids: Type.Array(Type.String({ format: 'uuid' }), {
      description: 'The profiles that there are now instead of one, oldest first.',
    }),
  },
  { title: 'Unmerged', description: 'What came of an unmerge.' },
);

const Erased = Type.Object(
  { trace_id: traceId('Names this erasure. It is in the audit.') },
  { title: 'Erased', description: 'The profile is gone.' },
);

const Counts = Type.Object(
  {
    buckets: Type.Array(
      Type.Object({
        start: time('Start of the bucket, UTC.'),
        event_name: Type.Optional(Type.String({ description: 'With `group_by=event_name`.' })),
        events: count('Events in it.'),
        revenue: Type.Number({ description: 'Sum of their revenue.' }),
      }),
      { description: 'Buckets without events are left out.' },
    ),
  },
  { title: 'Counts', description: 'Events by time.' },
);

const Trace = Type.Object(
  {
    trace_id: traceId('The request.'),
    status: Type.Union([Type.Literal('pending'), Type.Literal('processed')], {
      description: '`pending` from the 202 on, `processed` once it can be read back.',
    }),
    received_at: time('When it came in.'),
    processed_at: orNull(Type.String({ format: 'date-time' }), 'When it was processed; null while pending.'),
    users_accepted: count('As the 202 said.'),
    users_rejected: count('As the 202 said.'),
    duplicate_of: orNull(
      Type.String({ format: 'uuid' }),
      'The request with the same `Idempotency-Key` that was stored instead; null for all others.',
    ),
    users: Type.Array(
      Type.Object({
        userIndex,
        status: Type.Union([Type.Literal('accepted'), Type.Literal('rejected')], { description: 'As the 202 said.' }),
        profile_id: orNull(Type.String({ format: 'uuid' }), 'The profile as it is now; null while there is none.'),
        events: count('Events that are stored.'),
        duplicate_events: Type.Optional(count('Events that were there already, by `$event_id`.')),
        merged: Type.Array(
          Type.Object({ from: profileId('What was merged away.'), into: profileId('What lived on.') }),
          { description: 'Merges that this user caused.' },
        ),
        warnings: Type.Array(Type.String(), { description: 'What you may want to know.' }),
        message: orNull(Type.String(), 'Why the user was rejected; null if it was not.'),
      }),
      { description: 'What became of each user.' },
    ),
  },
  { title: 'Trace', description: 'What became of a request.' },
);

const RejectionPage = Type.Object(
  {
    rejections: Type.Array(
      Type.Object({
        trace_id: traceId('The request.'),
        userIndex,
        received_at: time('When it came in.'),
        message: Type.String({ description: 'The first rule that the user breaks.' }),
        reason: Type.String({ description: 'The message without indexes.' }),
        payload: Type.Unknown({ description: 'The user as it was sent; its beginning, as a text, if it was cut.' }),
        payload_is_cut: Type.Boolean({ description: 'Whether it was too large to keep whole.' }),
      }),
      { description: 'Newest first.' },
    ),
    next_cursor: nextCursor,
  },
  { title: 'RejectionPage', description: 'Users that were not valid.' },
);

const Books = Type.Object(
  {
    received: count('Acknowledged with a 202.'),
    stored: count('There to be read.'),
    duplicates: count('Left out: sent before, with the same `Idempotency-Key` or `$event_id`.'),
    erased: count('Erased on request, or not stored because the person was erased.'),
    expired: count('Removed when they were old enough.'),
    set_aside: count('Could not be processed; kept, for an operator to look at.'),
    pending: count('Durable, and not processed yet.'),
    difference: Type.Integer({ description: 'Received, less all of these. Anything but 0 is a bug.' }),
  },
  { title: 'Books', description: 'What became of what was received.' },
);

const Ledger = Type.Object(
  {
    balanced: Type.Boolean({ description: 'Whether every hour there ever was adds up.' }),
    hours: Type.Array(
      Type.Object({
        hour: time('Start of the hour of receipt, UTC.'),
        users: Books,
        events: Books,
        users_rejected: count('Users that were not valid. They are not part of the books.'),
      }),
      { description: 'Newest first. Hours without requests are left out.' },
    ),
    totals: Type.Object({ users: Books, events: Books }, { description: 'Over all hours, not only those above.' }),
  },
  { title: 'Ledger', description: 'The books.' },
);

const AuditPage = Type.Object(
  {
    acts: Type.Array(
      Type.Object({
        kind: Type.Union([Type.Literal('unmerge'), Type.Literal('erase')], { description: 'What was done.' }),
        trace_id: traceId('The call that did it.'),
        at: time('When.'),
        detail: Type.Unknown({ description: 'To what.' }),
      }),
      { description: 'Newest first.' },
    ),
    next_cursor: nextCursor,
  },
  { title: 'AuditPage', description: 'Acts of this API that changed what is stored.' },
);

export const READING_SCHEMAS = {
  Profile,
  Told,
  StoredEvent,
  EventPage,
  Arrivals,
  Identity,
  ChainStep,
  UnmergeRequest,
  Unmerged,
  Erased,
  Counts,
  Trace,
  RejectionPage,
  Ledger,
  Books,
  AuditPage,
};
