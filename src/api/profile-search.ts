/**
 * `GET /profiles/search`: who somebody is when all one has is a value and not what it is. It is looked up, whole, as
 * each type of identifier and as the id of a profile, by the very rules by which events are matched: there is no search
 * for parts of a value. So there are at most five answers, each profile once.
 */

import type { FastifyInstance } from 'fastify';
import { IDENTIFIER_TYPES, LIMITS } from '../model.ts';
import type { StoredProfile } from '../store.ts';
import type { Json } from './json-text.ts';
import { neededText } from './parameters.ts';
import { valueToMatch } from './profiles.ts';
import { profileAnswer } from './stored-answers.ts';
import { addTenantRoute, type Call, type TenantParts, uuidOf } from './tenant-route.ts';

export const SEARCH_PARAMETERS = {
  value: neededText(
    'The whole identifier, of whatever type, or the id of a profile. A plus sign at the start of a phone number may be sent as it is.',
    LIMITS.identifierCharactersMax,
  ),
};

export const MATCHED_BY = [...IDENTIFIER_TYPES, 'id'] as const;
type MatchedBy = (typeof MATCHED_BY)[number];

export function registerProfileSearch(app: FastifyInstance, parts: TenantParts): void {
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/profiles/search',
    parameters: SEARCH_PARAMETERS,
    answer: async (call) => {
      const found = await Promise.all(MATCHED_BY.map((by) => look(call, by, parts)));
      return { profiles: matchesOf(MATCHED_BY.map((by, index) => [by, found[index]])) };
    },
  });
}

async function look(
  { store, tenantId, parameters: { value } }: Call<typeof SEARCH_PARAMETERS>,
  by: MatchedBy,
  { matchOptions }: TenantParts,
): Promise<StoredProfile | undefined> {
  if (by !== 'id') return store.findProfile(tenantId, by, await valueToMatch(by, value, matchOptions));
  const id = uuidOf(value.trim());
  return id === null ? undefined : store.profile(tenantId, id);
}

function matchesOf(found: readonly (readonly [by: MatchedBy, profile: StoredProfile | undefined])[]): Json {
  const matches = new Map<string, { readonly matched: MatchedBy[]; readonly profile: StoredProfile }>();
  for (const [by, profile] of found) {
    if (profile === undefined) continue;
    const match = matches.get(profile.id) ?? { matched: [], profile };
    matches.set(profile.id, match);
    match.matched.push(by);
  }
  return [...matches.values()].map(({ matched, profile }) => ({ matched, profile: profileAnswer(profile, false) }));
}
