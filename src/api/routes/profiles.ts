/**
 * `/profiles`: who a person is and what they did, search, and erasure. An id that was merged away stands for the
 * surviving profile everywhere. There is no index for the beginning of an identifier or name: a search goes through all
 * people for SEARCH_MS a call, and says with `is_partial` that it did not get through.
 */

import type { FastifyInstance } from 'fastify';
import type { TSchema } from 'typebox';
import type { MatchOptions } from '../../identity/match-keys.ts';
import { IDENTIFIER_TYPES, type IdentifierType, LIMITS } from '../../model.ts';
import { personalDataIn } from '../../plans/personal.ts';
import { UnusablePlanError } from '../../plans/unusable-plan.ts';
import { type FoundPerson, MATCHED_BY, type PeopleQuery } from '../../store.ts';
import { ANON_AT, IDENTIFIERS, LOGIN_AT, MERGED_ID, PROFILE_ID } from '../examples.ts';
import { choiceParameter, cursor, limit, textParameter } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { BadParameterError, type TimeText, timeText } from '../responses.ts';
import { count, flag, list, mapOf, nextCursor, object, oneOf, orNull, text, time, Type, uuid } from '../schema.ts';
import { identifiersOf, profileJson } from '../stored-json.ts';
import { type Call, tenantRoute } from '../route-kinds.ts';
import { newestPlan } from './catalogue.ts';
import { EVENT_PAGE_EXAMPLES, EVENT_PARAMETERS, EventPage, listEvents } from './events.ts';

/** Long enough for hundreds of thousands of people, short enough for a person who waits. */
const SEARCH_MS = 500;

const PropertySource = object('PropertySource', 'A value, and the request that set it.', {
  value: Type.Unknown({ description: 'The value, as on the profile.' }),
  trace_id: uuid('The request that set it.'),
  received_at: time('When the server received that request.'),
});

const Profile = object('Profile', 'One person, as far as is known.', {
  id: uuid('The id of the profile. It stays the same when others are merged into it.'),
  merged_ids: list(
    Type.String({ format: 'uuid' }),
    'Ids of profiles that were merged into it. They still find this profile.',
  ),
  identifiers: identifiersOf('What the person is known by.'),
  profile_fields: mapOf(Type.String(), 'Profile fields, the newest of each.'),
  user_properties: mapOf(
    Type.Unknown(),
    'Attributes, the newest of each. Numbers keep their value, however many digits they have.',
  ),
  first_seen: time('When the first request about the person was received.'),
  last_seen: time('When the latest request about the person was received.'),
  event_count: count('Events of this profile.'),
  provenance: Type.Optional(
    object('Provenance', 'With `provenance=1`: which request set each value.', {
      profile_fields: mapOf(PropertySource, 'By name.'),
      user_properties: mapOf(PropertySource, 'By name.'),
    }),
  ),
});

const ProfileMatch = object('ProfileMatch', 'A person that was found.', {
  matched: list(
    oneOf(MATCHED_BY, 'What matched.'),
    'What matched the value: types of identifiers, or `name`; `id` if it is the id of the profile. Empty without a value.',
  ),
  profile: Profile,
  last_event_at: Type.Optional(orNull(time('With `include=last_event`: when its newest event happened.'))),
});

const ProfileMatches = object('ProfileMatches', 'People that were found.', {
  profiles: list(ProfileMatch, 'Complete matches, then the others, newest first. Each profile once.'),
  next_cursor: nextCursor,
  is_partial: flag(
    'Whether the page ended before its limit because the search took too long: not everyone was searched yet, and `next_cursor` continues.',
  ),
});

const ProfileCount = object('ProfileCount', 'How many people there are.', {
  profiles: count('The number of profiles.'),
});

const names = Type.Array(Type.String(), { description: 'Names of properties.' });
const PersonalData = object('PersonalData', 'What the tracking plan marks as personal.', {
  profile_fields: names,
  user_properties: names,
  events: mapOf(names, 'By event name; events without any are left out.'),
});

const Erased = object('Erased', 'The profile is gone.', {
  trace_id: uuid('The id of this erasure, as in the audit log.'),
  personal: Type.Optional(PersonalData),
  warning: Type.Optional(text('Present if requests from before the erasure are still waiting.')),
});

/** Requests wait less than this, even under load; clients wait longer for a response. */
const ERASE_WAIT_MS = 10_000;
const BEHIND_WARNING =
  'requests received before are still waiting to be processed: what they send with these identifiers is not stored, but what they send with other identifiers of this person may be. Look those up when GET /ledger shows nothing pending';

export const PROFILE_PARAMS: Readonly<Record<string, TSchema>> = {
  id: uuid('Id of a profile. The id of a merged profile finds the surviving one.'),
};

const provenance = choiceParameter('`1` adds, for each field and property, the request that set it and when.', [
  '0',
  '1',
]);

const FIND_PARAMETERS = {
  user_id: textParameter('Your own id of the person.', LIMITS.identifierCharactersMax),
  email: textParameter('E-mail address, in capitals or not.', LIMITS.identifierCharactersMax),
  phone_number: textParameter(
    'Phone number. A plus sign at the start may be sent as it is.',
    LIMITS.identifierCharactersMax,
  ),
  anon_id: textParameter('Id of a browser or device.', LIMITS.identifierCharactersMax),
  provenance,
};

const SEARCH_PARAMETERS = {
  value: textParameter(
    'The beginning of any identifier, or of a word in a name; or a complete identifier or profile id. Case does not matter. Without it, everyone is listed. A plus sign at the start of a phone number may be sent as it is.',
    LIMITS.identifierCharactersMax,
  ),
  property: textParameter('Only people who have this user property or profile field.', LIMITS.propertyKeyCharactersMax),
  property_value: textParameter(
    'Only people whose `property` has this value: a string as it is, anything else as the profile shows it (`5`, `true`).',
    LIMITS.identifierCharactersMax,
  ),
  include: choiceParameter(
    '`last_event` adds `last_event_at`: the `timestamp` of the newest event of each, or null without events.',
    ['last_event'],
  ),
  limit,
  cursor,
};

type SearchCall = Call<typeof SEARCH_PARAMETERS>;

const PROFILE = {
  id: PROFILE_ID,
  merged_ids: [MERGED_ID],
  identifiers: IDENTIFIERS,
  profile_fields: { city: 'Lisbon', country: 'PT', first_name: 'Ada' },
  user_properties: { newsletter: true, plan: 'pro' },
  first_seen: ANON_AT,
  last_seen: LOGIN_AT,
  event_count: 4,
};

const PROFILE_RESPONSE = {
  description: 'The profile.',
  body: Profile,
  examples: { profile: ['A profile', PROFILE] },
} as const;

export function registerProfileRoutes(app: FastifyInstance, parts: ApiParts): void {
  tenantRoute(app, parts, 'GET /profiles', {
    operationId: 'findProfile',
    summary: 'Find a person by an identifier',
    description:
      'Give exactly one of `user_id`, `email`, `phone_number` and `anon_id`. It is matched like the identifiers of events: e-mail addresses in any case, phone numbers with or without spaces.',
    query: FIND_PARAMETERS,
    response: PROFILE_RESPONSE,
    errors: [404],
    handler: (call) => findProfile(call, parts.matchOptions),
  });

  tenantRoute(app, parts, 'GET /profiles/search', {
    operationId: 'searchProfiles',
    summary: 'Search for people',
    description:
      'People by the beginning of any identifier or of a name, by a property, or all of them. People whose complete identifier or id matches come first. The others follow, most recently created profile first: for these the server scans people for up to half a second per call. If it did not reach everyone, `is_partial` is true, and `next_cursor` continues the scan. Over all pages, no match is missing.',
    query: SEARCH_PARAMETERS,
    response: { description: 'The people that were found.', body: ProfileMatches },
    handler: async ({ store, tenantId, parameters }) => {
      const query = await queryOf(parameters, parts.matchOptions);
      const { rows, nextCursor, isPartial } = await store.searchPeople(tenantId, query);
      const lastEvents = parameters.include === null ? null : await lastEventsOf(store, tenantId, rows);
      const profiles = rows.map(({ matched, profile }, index) => ({
        matched,
        profile: profileJson(profile, false),
        last_event_at: lastEvents?.[index],
      }));
      return { profiles, next_cursor: nextCursor, is_partial: isPartial };
    },
  });

  tenantRoute(app, parts, 'GET /profiles/count', {
    operationId: 'countProfiles',
    summary: 'Count people',
    description:
      'How many profiles there are now. Merged profiles count as one, erased ones not at all, and a profile stays when its events expire. Requests that are still being processed are not included.',
    response: { description: 'The number of profiles.', body: ProfileCount },
    handler: async ({ store, tenantId }) => ({ profiles: await store.profileCount(tenantId) }),
  });

  tenantRoute(app, parts, 'GET /profiles/:id', {
    operationId: 'getProfile',
    summary: 'Get a profile',
    description: 'By its id, or by the id of a profile that was merged into it.',
    params: PROFILE_PARAMS,
    query: { provenance },
    response: PROFILE_RESPONSE,
    handler: async ({ store, tenantId, id, parameters }) => {
      const profile = await store.profile(tenantId, id);
      return profile && profileJson(profile, parameters.provenance === '1');
    },
  });

  tenantRoute(app, parts, 'DELETE /profiles/:id', {
    operationId: 'eraseProfile',
    summary: 'Erase a person',
    description:
      'Erases the profile, its identifiers and its events. This cannot be undone. If the tracking plan marks personal data, `personal` lists what was removed. What was received before is processed first; if that takes more than 10 s, the response has a `warning`. Data received before the erasure does not bring the person back; data received later starts a new profile. The audit log records the erasure, without personal data. If no response arrives, repeat the call.',
    params: PROFILE_PARAMS,
    response: { status: 202, description: 'Erased.', body: Erased },
    handler: async ({ store, tenantId, id, traceId, now, by }) => {
      const personal = personalDataIn(await newestPlan(parts.keyStore.plans, tenantId).catch(noneIfUnusable));
      // What is still waiting may link more identifiers to this person, with data that has to go as well. A log that cannot
      // be read now is no reason not to erase.
      const isCaughtUp = await store.waitUntilProcessed(now, ERASE_WAIT_MS).catch(() => false);
      const isKnown = await store.erase(tenantId, id, { traceId, at: now, by });
      if (!isKnown) return undefined;
      return { trace_id: traceId, personal: personal ?? undefined, warning: isCaughtUp ? undefined : BEHIND_WARNING };
    },
  });

  tenantRoute(app, parts, 'GET /profiles/:id/events', {
    operationId: 'profileEvents',
    summary: 'The timeline of a person',
    description: 'The events of one profile, newest first by event time (`timestamp`).',
    params: PROFILE_PARAMS,
    query: EVENT_PARAMETERS,
    response: { description: 'Events.', body: EventPage, examples: EVENT_PAGE_EXAMPLES },
    handler: (call) => listEvents(call, call.id, parts.keyStore.plans),
  });
}

async function findProfile({ store, tenantId, parameters }: Call<typeof FIND_PARAMETERS>, options: MatchOptions) {
  const asked = IDENTIFIER_TYPES.filter((type) => parameters[type] !== null);
  const [type] = asked;
  if (type === undefined || asked.length > 1) {
    throw new BadParameterError(`exactly one of ${IDENTIFIER_TYPES.join(', ')} is required`);
  }
  const normalised = await valueToMatch(type, parameters[type] ?? '', options);
  const profile = await store.findProfile(tenantId, type, normalised);
  return profile && profileJson(profile, parameters.provenance === '1');
}

export async function valueToMatch(type: IdentifierType, given: string, options: MatchOptions): Promise<string> {
  // Loaded when first needed: it brings the tables of all phone numbers, which the start need not wait for.
  const { normalise } = await import('../../identity/match-keys.ts');
  // A plus sign that is not encoded arrives as a space.
  return normalise(type, type === 'phone_number' ? given.replace(/^ (?=\d)/, '+') : given, options);
}

/** A person is erased whatever the plan says. */
function noneIfUnusable(error: unknown): null {
  if (error instanceof UnusablePlanError) return null;
  throw error;
}

/** One after the other: a list must not take all connections of the store. */
async function lastEventsOf(
  store: SearchCall['store'],
  tenantId: SearchCall['tenantId'],
  rows: readonly FoundPerson[],
): Promise<(TimeText | null)[]> {
  const query = { eventName: null, from: null, to: null, limit: 1, cursor: null };
  const times: (TimeText | null)[] = [];
  for (const { profile } of rows) {
    const [newest] = (await store.events(tenantId, { ...query, profileId: profile.id }))?.rows ?? [];
    times.push(newest === undefined ? null : timeText(newest.timestamp));
  }
  return times;
}

async function queryOf(parameters: SearchCall['parameters'], options: MatchOptions): Promise<PeopleQuery> {
  const { value, property: name, property_value: propertyValue, limit, cursor } = parameters;
  if (name === null && propertyValue !== null) throw new BadParameterError('property_value goes with property');
  // A plus sign that is not encoded arrives as a space.
  const text = value?.replace(/^ (?=\d)/, '+').trim() ?? '';
  const types = text === '' ? [] : IDENTIFIER_TYPES;
  const exact = types.map(async (type) => ({ type, normalised: await valueToMatch(type, text, options) }));
  return {
    text: text === '' ? null : text,
    exact: await Promise.all(exact),
    property: name === null ? null : { name, value: propertyValue },
    budgetMs: SEARCH_MS,
    limit,
    cursor,
  };
}
