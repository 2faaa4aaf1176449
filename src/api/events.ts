/**
 * `GET /events` and `GET /events/counts`: what happened, of all profiles of a tenant. Events come newest first by their
 * own timestamps, or, for those who follow along, in order of arrival (`after`). Counts are bounded in buckets.
 */

import type { FastifyInstance } from 'fastify';
import { LIMITS } from '../model.ts';
import { BadCursorError, type Interval } from '../store.ts';
import type { Json } from './json-text.ts';
import {
  BadParameterError,
  choiceParameter,
  cursor,
  limit,
  type ParameterKind,
  refuseEmptyRange,
  textParameter,
  timeParameter,
} from './parameters.ts';
import { include, peopleOf } from './person-of-event.ts';
import { eventAnswer, eventPageAnswer, timeText } from './stored-answers.ts';
import { addTenantRoute, type Call, type TenantParts } from './tenant-route.ts';

/** Also of the timeline of one profile. */
export const EVENT_PARAMETERS = {
  event_name: textParameter('Only events of this name.', LIMITS.eventNameCharactersMax),
  from: timeParameter("Only events at or after this time, by the event's own `timestamp`. ISO 8601."),
  to: timeParameter("Only events before this time, by the event's own `timestamp`. ISO 8601."),
  include,
  limit,
  cursor,
};

const after: ParameterKind<string | null | undefined> = {
  description:
    'Gives events in order of arrival, oldest first, after this place: `last` of the response before, as it is. Empty (`after=`): from now on; `oldest`: all that is stored. Goes with `limit` and `include` alone. A cursor after which events may be missing is refused with 400 and a `message` that says why.',
  schema: { type: 'string' },
  read: (given) => (given === '' ? null : given),
};

export const ALL_EVENTS_PARAMETERS = { ...EVENT_PARAMETERS, after };

const INTERVALS: readonly Interval[] = ['minute', 'hour', 'day'];

export const COUNT_PARAMETERS = {
  interval: choiceParameter('Width of a bucket, in UTC; `hour` unless given.', INTERVALS),
  from: timeParameter(
    "Start of the range, by the events' own `timestamp`. A bucket that overlaps the range is given whole, with its events before `from`. A day before `to` unless given; for days, 30 days.",
  ),
  to: timeParameter(
    "End of the range, by the events' own `timestamp`. A bucket that overlaps the range is given whole, with its events from `to` on. Now, unless given.",
  ),
  group_by: choiceParameter('`event_name` gives a bucket for each event name.', ['event_name']),
};

const DAY_MS = 86_400_000;
const INTERVAL_MS: Readonly<Record<Interval, number>> = { minute: 60_000, hour: 3_600_000, day: DAY_MS };
const DEFAULT_RANGE_MS: Readonly<Record<Interval, number>> = { minute: DAY_MS, hour: DAY_MS, day: 30 * DAY_MS };
export const BUCKETS_MAX = 10_000;

export function registerEventRoutes(app: FastifyInstance, parts: TenantParts): void {
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/events',
    parameters: ALL_EVENTS_PARAMETERS,
    answer: (call) => (call.parameters.after === undefined ? listEvents(call) : listArrivals(call)),
  });
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/events/counts',
    parameters: COUNT_PARAMETERS,
    answer: countEvents,
  });
}

async function listEvents({ store, tenantId, parameters }: Call<typeof ALL_EVENTS_PARAMETERS>): Promise<Json> {
  const { event_name: eventName, from, to, limit, cursor } = parameters;
  refuseEmptyRange(from, to);
  const page = await store.events(tenantId, { profileId: null, eventName, from, to, limit, cursor });
  if (page === undefined) return null;
  return eventPageAnswer(page, await peopleOf(store, tenantId, parameters.include !== null, page.rows));
}

async function listArrivals({ store, tenantId, parameters }: Call<typeof ALL_EVENTS_PARAMETERS>): Promise<Json> {
  const { after = null, limit, include: included, ...others } = parameters;
  for (const [name, value] of Object.entries(others)) {
    if (value !== null) throw new BadParameterError(`after cannot be combined with ${name}`);
  }
  try {
    const { events, last } = await store.arrivals(tenantId, after, limit);
    const people = await peopleOf(store, tenantId, included !== null, events);
    return { events: events.map((event) => eventAnswer(event, people)), last };
  } catch (error) {
    if (!(error instanceof BadCursorError)) throw error;
    throw new BadParameterError(`after ${error.message}`);
  }
}

async function countEvents({ store, tenantId, parameters, now }: Call<typeof COUNT_PARAMETERS>): Promise<Json> {
  const interval = parameters.interval ?? 'hour';
  const to = parameters.to ?? now;
  const from = parameters.from ?? to - DEFAULT_RANGE_MS[interval];
  if (from >= to) throw new BadParameterError('from must be before to, which is now unless given');
  const width = INTERVAL_MS[interval];
  const buckets = Math.ceil(to / width) - Math.floor(from / width);
  if (buckets > BUCKETS_MAX) {
    const counted = `${buckets.toLocaleString('en')} buckets of one ${interval} each`;
    const most = BUCKETS_MAX.toLocaleString('en');
    throw new BadParameterError(`from and to span ${counted}, at most ${most} are given: choose a longer interval`);
  }
  const byEventName = parameters.group_by === 'event_name';
  const rows = await store.counts(tenantId, { interval, from, to, byEventName });
  return {
    buckets: rows.map(({ start, eventName, events, revenue }) => ({
      start: timeText(start),
      event_name: byEventName ? eventName : undefined,
      events,
      revenue: revenue.map((sum) => ({ currency: sum.currency, events: sum.events, revenue: sum.revenue })),
    })),
  };
}
