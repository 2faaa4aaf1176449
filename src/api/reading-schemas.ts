/**
 * The shapes of what is read back, for the OpenAPI document. Answers are written as text (`json-text.ts`), not by
 * these; a test holds each real answer against its schema. A schema with a title is a component of that document.
 */

import { Type } from 'typebox';
import * as profiles from './profile-schemas.ts';
import { anyObject, count, keyId, nextCursor, orNull, profileId, time, traceId, userIndex } from './schema-parts.ts';

const StoredEvent = Type.Object(
  {
    id: Type.String({ description: 'Names the event: trace_id, userIndex and place among the events of the user.' }),
    event_name: Type.String({ description: 'What happened.' }),
    timestamp: time('When it happened.'),
    received_at: time('When it came in.'),
    revenue: orNull(Type.Number(), 'As sent; null without one.'),
    event_value: orNull(Type.Number(), 'As sent; null without one.'),
    properties: anyObject('Custom properties. Numbers keep their value, however many digits they have.'),
    profile_id: orNull(
      Type.String({ format: 'uuid' }),
      'The profile that it belongs to now; null when all identifiers of the user were junk.',
    ),
    trace_id: traceId('The request that it came with.'),
    userIndex,
    key_id: keyId('The key that its request came with.'),
    person: Type.Optional(profiles.Person),
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

const CurrencySum = Type.Object(
  {
    currency: orNull(
      Type.String(),
      'The event property `currency`: three letters, in capitals. `other` for all that is not three letters, null for revenue without a currency.',
    ),
    events: count('Events with revenue in this currency.'),
    revenue: orNull(
      Type.Number(),
      'Sum of their revenue, a double; null for `other`, because amounts of different currencies are never added.',
    ),
  },
  { title: 'CurrencySum', description: 'Revenue in one currency.' },
);

const Counts = Type.Object(
  {
    buckets: Type.Array(
      Type.Object({
        start: time('Start of the bucket, UTC.'),
        event_name: Type.Optional(Type.String({ description: 'With `group_by=event_name`.' })),
        events: count('Events in the whole bucket.'),
        revenue: Type.Array(CurrencySum, {
          description: 'Sums of their revenue, one for each currency; empty when no event has revenue.',
        }),
      }),
      { description: 'Buckets without events are left out.' },
    ),
  },
  { title: 'Counts', description: 'Events by time.' },
);

const ofTrace = {
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
    'The request with the same `Idempotency-Key` and body that was stored instead; null for all others.',
  ),
  key_id: orNull(
    keyId('Id of a key.'),
    'The key that it came with; null for what could not be processed and is not kept any more.',
  ),
};

const TracePage = Type.Object(
  {
    traces: Type.Array(Type.Object({ ...ofTrace, events: count('Events that were stored, or that wait to be.') }), {
      description: 'Newest first. A page may be short and still have a cursor.',
    }),
    next_cursor: nextCursor,
  },
  { title: 'TracePage', description: 'The most recent requests.' },
);

const Trace = Type.Object(
  {
    ...ofTrace,
    users: Type.Array(
      Type.Object({
        userIndex,
        status: Type.Union([Type.Literal('accepted'), Type.Literal('rejected')], { description: 'As the 202 said.' }),
        profile_id: orNull(Type.String({ format: 'uuid' }), 'The profile as it is now; null while there is none.'),
        events: count('Events that are stored.'),
        duplicate_events: Type.Optional(count('Events that were there already, by `$event_id`.')),
        merged: Type.Array(
          Type.Object({ from: profileId('What was merged away.'), into: profileId('What lived on.') }),
          { description: 'Merges that this user caused and that still stand.' },
        ),
        warnings: Type.Array(Type.String(), { description: 'What you may want to know.' }),
        message: orNull(Type.String(), 'Why the user was rejected; null if it was not.'),
        person: Type.Optional(profiles.Person),
      }),
      { description: 'What became of each user.' },
    ),
  },
  { title: 'Trace', description: 'What became of a request.' },
);

const Receipts = Type.Object(
  {
    minutes: Type.Array(
      Type.Object({
        start: time('Start of the minute of receipt, UTC.'),
        users_accepted: count('Users that were valid.'),
        users_rejected: count('Users that were not.'),
        events_accepted: count('Events of the valid ones.'),
      }),
      { description: 'Oldest first. Minutes without requests are left out.' },
    ),
  },
  { title: 'Receipts', description: 'What came in, by minute.' },
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
    balanced: Type.Boolean({
      description: 'Whether every hour there ever was adds up, and no record is missing but those in `lost_records`.',
    }),
    missing_records: Type.Integer({
      minimum: 0,
      description:
        'Requests that the store relies on and the event log has lost, of all tenants: anything but 0 needs an operator.',
    }),
    lost_records: Type.Integer({
      minimum: 0,
      description:
        'Requests that will never be in the store, of all tenants: an operator gave them up, or they were removed from the event log before this store was made. They do not keep `balanced` false, and are counted here for good.',
    }),
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
  Profile: profiles.Profile,
  ProfileMatches: profiles.ProfileMatches,
  ProfileCount: profiles.ProfileCount,
  Told: profiles.Told,
  StoredEvent,
  EventPage,
  Arrivals,
  Identity: profiles.Identity,
  ChainStep: profiles.ChainStep,
  UnmergeRequest: profiles.UnmergeRequest,
  Unmerged: profiles.Unmerged,
  Erased: profiles.Erased,
  Counts,
  TracePage,
  CurrencySum,
  Trace,
  Receipts,
  Ledger,
  Books,
  AuditPage,
};
