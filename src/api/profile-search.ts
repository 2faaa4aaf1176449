/**
 * `GET /profiles/search`: people by the beginning of an identifier or of a name, by a property, or all of them. Those
 * whose identifier or profile id is the whole value come first, at once; then everyone whose identifier or name begins
 * with it, newest first. There is no index for that: a call searches for SEARCH_MS and says with `is_partial` that it
 * did not get through.
 */

import type { FastifyInstance } from 'fastify';
import { IDENTIFIER_TYPES, LIMITS } from '../model.ts';
import type { FoundPerson, PeopleQuery } from '../store.ts';
import { BadParameterError, choiceParameter, cursor, limit, textParameter } from './parameters.ts';
import { valueToMatch } from './profiles.ts';
import { profileAnswer, timeText } from './stored-answers.ts';
import { addTenantRoute, type Call, type TenantParts } from './tenant-route.ts';

/** Long enough for hundreds of thousands of people, short enough for who waits. */
const SEARCH_MS = 500;

export const SEARCH_PARAMETERS = {
  value: textParameter(
    'The beginning of an identifier, of whatever type, or of a word of a name; or an identifier or the id of a profile as a whole. Capitals do not matter. Everyone unless given. A plus sign at the start of a phone number may be sent as it is.',
    LIMITS.identifierCharactersMax,
  ),
  property: textParameter('Only people who have this user property or profile field.', LIMITS.propertyKeyCharactersMax),
  property_value: textParameter(
    'Only people of whom `property` has this value: a text as it is, anything else as JSON (`5`, `true`).',
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

export function registerProfileSearch(app: FastifyInstance, parts: TenantParts): void {
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/profiles/search',
    parameters: SEARCH_PARAMETERS,
    answer: async ({ store, tenantId, parameters }) => {
      const query = await queryOf(parameters, parts);
      const { rows, nextCursor, isPartial } = await store.searchPeople(tenantId, query);
      const lastEvents = parameters.include === null ? null : await lastEventsOf(store, tenantId, rows);
      const profiles = rows.map(({ matched, profile }, index) => ({
        matched,
        profile: profileAnswer(profile, false),
        last_event_at: lastEvents?.[index],
      }));
      return { profiles, next_cursor: nextCursor, is_partial: isPartial };
    },
  });
}

/** One after the other: a list must not take all connections of the store. */
async function lastEventsOf(
  store: SearchCall['store'],
  tenantId: SearchCall['tenantId'],
  rows: readonly FoundPerson[],
): Promise<(string | null)[]> {
  const query = { eventName: null, from: null, to: null, limit: 1, cursor: null };
  const times: (string | null)[] = [];
  for (const { profile } of rows) {
    const [newest] = (await store.events(tenantId, { ...query, profileId: profile.id }))?.rows ?? [];
    times.push(newest === undefined ? null : timeText(newest.timestamp));
  }
  return times;
}

async function queryOf(parameters: SearchCall['parameters'], { matchOptions }: TenantParts): Promise<PeopleQuery> {
  const { value, property: name, property_value: propertyValue, limit, cursor } = parameters;
  if (name === null && propertyValue !== null) throw new BadParameterError('property_value goes with property');
  // A plus sign that nobody encoded arrives as a space.
  const text = value?.replace(/^ (?=\d)/, '+').trim() ?? '';
  const exact =
    text === ''
      ? []
      : IDENTIFIER_TYPES.map(async (type) => ({
          type,
          normalised: await valueToMatch(type, text, matchOptions),
        }));
  return {
    text: text === '' ? null : text,
    exact: await Promise.all(exact),
    property: name === null ? null : { name, value: propertyValue },
    budgetMs: SEARCH_MS,
    limit,
    cursor,
  };
}
