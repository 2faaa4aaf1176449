/**
 * `GET /events` and `GET /events/counts`: what happened, of all profiles of a tenant. Events come newest first by their
 * own timestamps, or, for those who follow along, in order of arrival (`after`). Counts are bounded in buckets.
 */

import type { FastifyInstance } from 'fastify';
import { DAY_MS, HOUR_MS, LIMITS, MINUTE_MS } from '../../model.ts';
import { maskedEvent } from '../../plans/personal.ts';
import type { PlanStore } from '../../plans.ts';
import type { Interval } from '../../store.ts';
import { AT, IDENTIFIERS, KEY_ID, PROFILE_ID, TRACE_ID } from '../examples.ts';
import {
  choiceParameter,
  cursor,
  limit,
  type ParameterKind,
  refuseEmptyRange,
  textParameter,
  timeParameter,
  withCursor,
} from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { BadParameterError, rowJson } from '../responses.ts';
import { count, list, mapOf, nextCursor, object, orNull, text, time, Type, userIndex, uuid } from '../schema.ts';
import { eventJson, eventPageJson, include, maskedPeople, peopleOf, person } from '../stored-json.ts';
import { type Call, tenantRoute } from '../route-kinds.ts';
import { newestPlan } from './catalogue.ts';

const StoredEvent = object('StoredEvent', 'One thing that happened.', {
  id: text('The id of the event: trace_id, userIndex and position among the events of the user.'),
  event_name: text('What happened.'),
  timestamp: time('When it happened.'),
  received_at: time('When the server received it.'),
  revenue: orNull(Type.Number(), 'As sent; null without one.'),
  event_value: orNull(Type.Number(), 'As sent; null without one.'),
  properties: mapOf(Type.Unknown(), 'Custom properties. Numbers keep their value, however many digits they have.'),
  profile_id: orNull(uuid('The profile that it belongs to now; null when all identifiers of the user were junk.')),
  trace_id: uuid('The request that sent it.'),
  userIndex,
  key_id: text('The API key of its request.'),
  person,
});

export const EventPage = object('EventPage', 'Events, newest first by `timestamp`.', {
  events: list(StoredEvent, 'Newest first.'),
  next_cursor: nextCursor,
});

const Arrivals = object('Arrivals', 'With `after`: events in order of arrival.', {
  events: list(StoredEvent, 'Oldest first, in order of arrival.'),
  last: text('Send it as `after` for what comes next.'),
});

const CurrencySum = object('CurrencySum', 'Revenue in one currency.', {
  currency: orNull(
    Type.String(),
    'The event property `currency`: three letters, in capitals. `other` for all that is not three letters, null for revenue without a currency.',
  ),
  events: count('Events with revenue in this currency.'),
  revenue: orNull(
    Type.Number(),
    'Sum of their revenue, exact before it is rounded to a double; null for `other`, because amounts of different currencies are never added.',
  ),
});

const CountBucket = object('CountBucket', 'The events of one minute, hour or day.', {
  start: time('Start of the bucket, UTC.'),
  event_name: Type.Optional(text('With `group_by=event_name`.')),
  events: count('Events in the whole bucket.'),
  revenue: list(CurrencySum, 'Sums of their revenue, one for each currency; empty when no event has revenue.'),
});

const Counts = object('Counts', 'Events by time.', {
  buckets: list(CountBucket, 'Buckets without events are left out.'),
});

/** Also of the timeline of one profile. */
export const EVENT_PARAMETERS = {
  event_name: textParameter('Only events of this name.', LIMITS.eventNameCharactersMax),
  from: timeParameter('Only events at or after this time, by event time (`timestamp`). ISO 8601.'),
  to: timeParameter('Only events before this time, by event time (`timestamp`). ISO 8601.'),
  include,
  personal: choiceParameter(
    '`mask`: properties that the tracking plan marks as personal are `•••`, as in `GET /live`; otherwise they are shown.',
    ['mask'],
  ),
  limit,
  cursor,
};

const after: ParameterKind<string | null | undefined> = {
  description:
    'Returns events in order of arrival, oldest first, after this cursor: `last` of the previous response, unchanged. Empty (`after=`): from now on; `oldest`: everything that is stored. Only `limit` and `include` can be combined with it. A cursor after which events may be missing gets 400 with a `message` that says why.',
  schema: { type: 'string' },
  read: (given) => (given === '' ? null : given),
};

const ALL_EVENTS_PARAMETERS = { ...EVENT_PARAMETERS, after };

const INTERVALS: readonly Interval[] = ['minute', 'hour', 'day'];

const COUNT_PARAMETERS = {
  interval: choiceParameter('Width of a bucket, in UTC. Default: `hour`.', INTERVALS),
  from: timeParameter(
    'Start of the range, by event time (`timestamp`). A bucket that overlaps the range is returned complete, including its events before `from`. Default: one day before `to`; for days, 30 days.',
  ),
  to: timeParameter(
    'End of the range, by event time (`timestamp`). A bucket that overlaps the range is returned complete, including its events from `to` on. Default: now.',
  ),
  group_by: choiceParameter('`event_name` returns a bucket for each event name.', ['event_name']),
};

const INTERVAL_MS: Readonly<Record<Interval, number>> = { minute: MINUTE_MS, hour: HOUR_MS, day: DAY_MS };
const DEFAULT_RANGE_MS: Readonly<Record<Interval, number>> = { minute: DAY_MS, hour: DAY_MS, day: 30 * DAY_MS };
const BUCKETS_MAX = 10_000;

const EVENT = {
  id: `${TRACE_ID}.0.0`,
  event_name: 'order_completed',
  timestamp: '2026-11-14T09:30:00.000Z',
  received_at: AT,
  revenue: 49.9,
  event_value: null,
  properties: { currency: 'EUR', order_id: 'A-10018' },
  profile_id: PROFILE_ID,
  trace_id: TRACE_ID,
  userIndex: 0,
  key_id: KEY_ID,
};

export const EVENT_PAGE_EXAMPLES = {
  events: ['Events', { events: [EVENT], next_cursor: null }],
  person: [
    'With include=person',
    {
      events: [{ ...EVENT, person: { id: PROFILE_ID, name: 'Ada', identifiers: IDENTIFIERS } }],
      next_cursor: null,
    },
  ],
} as const;

export function registerEventRoutes(app: FastifyInstance, parts: ApiParts): void {
  const { plans } = parts.keyStore;
  tenantRoute(app, parts, 'GET /events', {
    operationId: 'listEvents',
    summary: 'All events',
    description:
      'The events of all profiles, newest first by event time (`timestamp`); or, with `after`, in order of arrival, to follow new events: begin with `after=` (from now on) or `after=oldest`, then send `last` of each response as the next `after`. `last` is valid as long as the events after it are stored; if events may be missing, the response is 400 with a `message`.',
    query: ALL_EVENTS_PARAMETERS,
    response: {
      description: 'Events.',
      body: Type.Union([EventPage, Arrivals]),
      examples: { ...EVENT_PAGE_EXAMPLES, arrivals: ['With after', { events: [EVENT], last: 'MTcz' }] },
    },
    handler: (call) => (call.parameters.after === undefined ? listEvents(call, null, plans) : listArrivals(call)),
  });

  tenantRoute(app, parts, 'GET /events/counts', {
    operationId: 'countEvents',
    summary: 'Events by time',
    description:
      'Number of events and sums of revenue by minute, hour or day (UTC) of event time (`timestamp`). A bucket that overlaps the range is returned complete: for exact counts, use bucket starts as `from` and `to`. Revenue is summed per currency, never across currencies. At most 10,000 buckets.',
    query: COUNT_PARAMETERS,
    response: { description: 'Buckets.', body: Counts },
    handler: countEvents,
  });
}

export async function listEvents(
  { store, tenantId, parameters }: Call<typeof EVENT_PARAMETERS>,
  profileId: string | null,
  plans: PlanStore,
) {
  const { event_name: eventName, from, to, limit, cursor, include: included, personal } = parameters;
  refuseEmptyRange(from, to);
  const plan = personal === null ? null : await newestPlan(plans, tenantId);
  const page = await store.events(tenantId, { profileId, eventName, from, to, limit, cursor });
  if (page === undefined) return undefined;
  const people = await peopleOf(store, tenantId, included !== null, page.rows);
  if (plan === null) return eventPageJson(page, people);
  const rows = page.rows.map((event) => maskedEvent(plan, event));
  return eventPageJson({ ...page, rows }, people && maskedPeople(plan, people));
}

async function listArrivals({ store, tenantId, parameters }: Call<typeof ALL_EVENTS_PARAMETERS>) {
  const { after = null, limit, include: included, ...others } = parameters;
  for (const [name, value] of Object.entries(others)) {
    if (value !== null) throw new BadParameterError(`after cannot be combined with ${name}`);
  }
  const { events, last } = await withCursor('after', store.arrivals(tenantId, after, limit));
  const people = await peopleOf(store, tenantId, included !== null, events);
  return { events: events.map((event) => eventJson(event, people)), last };
}

async function countEvents({ store, tenantId, parameters, now }: Call<typeof COUNT_PARAMETERS>) {
  const interval = parameters.interval ?? 'hour';
  const to = parameters.to ?? now;
  const from = parameters.from ?? to - DEFAULT_RANGE_MS[interval];
  if (from >= to) throw new BadParameterError('from must be before to (default: now)');
  const width = INTERVAL_MS[interval];
  const buckets = Math.ceil(to / width) - Math.floor(from / width);
  if (buckets > BUCKETS_MAX) {
    const counted = `${buckets.toLocaleString('en')} buckets of one ${interval} each`;
    const most = BUCKETS_MAX.toLocaleString('en');
    throw new BadParameterError(`from and to span ${counted}, the maximum is ${most}: use a longer interval`);
  }
  const byEventName = parameters.group_by === 'event_name';
  const rows = await store.counts(tenantId, { interval, from, to, byEventName });
  return rowJson(Counts, {
    buckets: rows.map(({ start, eventName, events, revenue }) => {
      return { start, eventName: byEventName ? (eventName ?? undefined) : undefined, events, revenue };
    }),
  });
}
