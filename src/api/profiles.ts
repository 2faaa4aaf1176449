/**
 * `/profiles`: who somebody is, what they did, why they are one person, and the two acts that take something back:
 * unmerge and erase. An id that was merged away stands for the surviving profile everywhere.
 */

import type { FastifyInstance } from 'fastify';
import type { MatchOptions } from '../identity/match-keys.ts';
import { IDENTIFIER_TYPES, type IdentifierType, LIMITS } from '../model.ts';
import type { StoredIdentity } from '../store.ts';
import { EVENT_PARAMETERS } from './events.ts';
import { type AskedIdentifier, chainAnswer } from './identity-chain.ts';
import type { Json } from './json-text.ts';
import {
  BadParameterError,
  choiceParameter,
  NO_PARAMETERS,
  NotFoundError,
  refuseEmptyRange,
  textParameter,
} from './parameters.ts';
import { peopleOf } from './person-of-event.ts';
import { eventPageAnswer, identityAnswer, profileAnswer } from './stored-answers.ts';
import { addTenantRoute, type Call, type TenantParts, uuidOf } from './tenant-route.ts';

const provenance = choiceParameter('`1` adds, for each field and property, the request that told it and when.', [
  '0',
  '1',
]);

export const PROFILE_PARAMETERS = { provenance };

export const FIND_PROFILE_PARAMETERS = {
  user_id: textParameter('Your own id of the person.', LIMITS.identifierCharactersMax),
  email: textParameter('E-mail address, in capitals or not.', LIMITS.identifierCharactersMax),
  phone_number: textParameter(
    'Phone number. A plus sign at the start may be sent as it is.',
    LIMITS.identifierCharactersMax,
  ),
  anon_id: textParameter('Id of a browser or device.', LIMITS.identifierCharactersMax),
  provenance,
};

const TYPED_IDENTIFIER = /^([^:]*):([^]+)$/;
/** The longest type, a colon, and the longest identifier. */
const TYPED_IDENTIFIER_CHARACTERS_MAX = 'phone_number:'.length + LIMITS.identifierCharactersMax;

export const IDENTITY_PARAMETERS = {
  from: textParameter(
    'With `to`: adds `chain`, which tells why the two are one person. A type, a colon and a value, such as `email:ada@example.com`.',
    TYPED_IDENTIFIER_CHARACTERS_MAX,
  ),
  to: textParameter('The other end of the chain, such as `anon_id:anon-7f3c`.', TYPED_IDENTIFIER_CHARACTERS_MAX),
};

export function registerProfileRoutes(app: FastifyInstance, parts: TenantParts): void {
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/profiles',
    parameters: FIND_PROFILE_PARAMETERS,
    answer: (call) => findProfile(call, parts.matchOptions),
  });
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/profiles/count',
    parameters: NO_PARAMETERS,
    answer: async ({ store, tenantId }) => ({ profiles: await store.profileCount(tenantId) }),
  });
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/profiles/:id',
    parameters: PROFILE_PARAMETERS,
    answer: async ({ store, tenantId, id, parameters }) => {
      const profile = await store.profile(tenantId, id);
      return profile === undefined ? null : profileAnswer(profile, parameters.provenance === '1');
    },
  });
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/profiles/:id/events',
    parameters: EVENT_PARAMETERS,
    answer: async ({ store, tenantId, id, parameters }) => {
      const { event_name: eventName, from, to, limit, cursor } = parameters;
      refuseEmptyRange(from, to);
      const page = await store.events(tenantId, { profileId: id, eventName, from, to, limit, cursor });
      if (page === undefined) return null;
      return eventPageAnswer(page, await peopleOf(store, tenantId, parameters.include !== null, page.rows));
    },
  });
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/profiles/:id/identity',
    parameters: IDENTITY_PARAMETERS,
    answer: (call) => explainProfile(call, parts.matchOptions),
  });
  addTenantRoute(app, parts, {
    method: 'POST',
    url: '/profiles/:id/unmerge',
    parameters: NO_PARAMETERS,
    answer: unmergeProfile,
  });
  addTenantRoute(app, parts, {
    method: 'DELETE',
    url: '/profiles/:id',
    parameters: NO_PARAMETERS,
    status: 202,
    answer: async ({ store, tenantId, id, traceId, now, by }) => {
      const isKnown = await store.erase(tenantId, id, { traceId, at: now, by });
      return isKnown ? { trace_id: traceId } : null;
    },
  });
}

async function findProfile(
  { store, tenantId, parameters }: Call<typeof FIND_PROFILE_PARAMETERS>,
  options: MatchOptions,
): Promise<Json> {
  const asked = IDENTIFIER_TYPES.filter((type) => parameters[type] !== null);
  const [type] = asked;
  if (type === undefined || asked.length > 1) {
    throw new BadParameterError(`exactly one of ${IDENTIFIER_TYPES.join(', ')} is required`);
  }
  const normalised = await valueToMatch(type, parameters[type] ?? '', options);
  const profile = await store.findProfile(tenantId, type, normalised);
  return profile === undefined ? null : profileAnswer(profile, parameters.provenance === '1');
}

async function explainProfile(
  { store, tenantId, id, parameters }: Call<typeof IDENTITY_PARAMETERS>,
  options: MatchOptions,
): Promise<Json> {
  const { from, to } = parameters;
  if ((from === null) !== (to === null)) throw new BadParameterError('from and to are given together or not at all');
  const ends =
    from === null || to === null
      ? null
      : ([await askedIdentifier('from', from, options), await askedIdentifier('to', to, options)] as const);
  const identity = await store.identity(tenantId, id);
  if (identity === undefined) return null;
  if (ends === null) return identityAnswer(identity, undefined);
  refuseStrangers(identity, ends[0], ends[1]);
  const chain = chainAnswer(identity, ...ends);
  return chain === undefined ? null : identityAnswer(identity, chain);
}

function refuseStrangers({ identifiers }: StoredIdentity, from: AskedIdentifier, to: AskedIdentifier): void {
  const isStranger = ({ type, value }: AskedIdentifier): boolean =>
    !identifiers.some((link) => link.type === type && link.normalised === value);
  const names = Object.entries({ from, to }).flatMap(([name, asked]) => (isStranger(asked) ? [name] : []));
  if (names.length === 1) throw new NotFoundError(`${names[0]} is not an identifier of this profile`);
  if (names.length === 2) throw new NotFoundError('from and to are not identifiers of this profile');
}

async function unmergeProfile({
  store,
  tenantId,
  id,
  body,
  traceId,
  now,
  by,
}: Call<typeof NO_PARAMETERS>): Promise<Json> {
  const mergedBy = mergedByOf(body);
  const result = await store.unmerge(tenantId, id, mergedBy, { traceId, at: now, by });
  if (result === undefined) return null;
  if (result.undone === 0) throw new BadParameterError(`request ${mergedBy} merged nothing in this profile`);
  return { trace_id: traceId, undone: result.undone, profile_ids: result.profileIds };
}

function mergedByOf(body: unknown): string {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new BadParameterError('the body must be a JSON object with trace_id');
  }
  const { trace_id: given, ...others } = body as { trace_id?: unknown };
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw new BadParameterError('the body must have trace_id and nothing else');
  const mergedBy = uuidOf(given);
  if (mergedBy === null) throw new BadParameterError('trace_id must be the trace_id of the request that merged');
  return mergedBy;
}

async function askedIdentifier(name: string, given: string, options: MatchOptions): Promise<AskedIdentifier> {
  const [, typeText, value] = TYPED_IDENTIFIER.exec(given) ?? [];
  const type = IDENTIFIER_TYPES.find((one) => one === typeText);
  if (type === undefined || value === undefined) {
    const types = IDENTIFIER_TYPES.join(', ');
    throw new BadParameterError(
      `${name} must be a type (${types}), a colon and a value, such as email:ada@example.com`,
    );
  }
  return { type, value: await valueToMatch(type, value, options) };
}

export async function valueToMatch(type: IdentifierType, given: string, options: MatchOptions): Promise<string> {
  // Loaded when first needed: it brings the tables of all phone numbers, which the start need not wait for.
  const { normalise } = await import('../identity/match-keys.ts');
  // A plus sign that nobody encoded arrives as a space.
  return normalise(type, type === 'phone_number' ? given.replace(/^ /, '+') : given, options);
}
