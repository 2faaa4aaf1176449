/**
 * API keys as a member manages them: listed, made, edited, revoked, rolled. A key is shown in full in the response that made it
 * and never again. Each call sees the keys of one account; those of another are not found, whatever is done to them.
 */

import type { FastifyInstance } from 'fastify';
import {
  createKey,
  editKey,
  type KeyOptions,
  mistakesIn,
  OVERLAP_MS_MAX,
  RATE_MAX,
  rollKey,
  unusedKey,
} from '../../keys/manage.ts';
import { DAY_MS, type Environment, ENVIRONMENTS, KEY_KINDS } from '../../model.ts';
import { type ApiKey, KEY_VOLUME_DAYS, keyState, type KeyVolume, type RateLimit } from '../../keys.ts';
import { parseIso8601 } from '../../validation/iso8601.ts';
import { membersOf } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { BadParameterError, rowJson } from '../responses.ts';
import { count, flag, list, object, oneOf, orNull, text, time, Type } from '../schema.ts';
import { ID_PARAMS, type MemberCall, memberRoute, servedEnvironments } from '../route-kinds.ts';

/** A key that was neither made nor used for so long is probably forgotten. */
const UNUSED_MS = 30 * DAY_MS;
const OVERLAP_SECONDS_MAX = OVERLAP_MS_MAX / 1_000;
/** More than anyone needs; all of them are read to be listed. */
export const ACTIVE_KEYS_MAX = 500;

const name = Type.String({ minLength: 1, maxLength: 100, description: 'The name of the key, for people.' });
const kind = oneOf(
  KEY_KINDS,
  'Secret keys may do everything in their environment except manage keys and members, publishable ones may only send events.',
);
export const environment = oneOf(ENVIRONMENTS, 'Which of the two environments.');
const origins = list(Type.String(), 'Where browsers may use a publishable key; empty: anywhere.');
const usersCount = (description: string) => Type.Integer({ minimum: 1, maximum: RATE_MAX, description });
const RateLimitSchema = object('RateLimit', 'How many users a key may send.', {
  users_per_second: usersCount('On average.'),
  burst: usersCount('How many users may arrive at once after a pause.'),
});
const rateLimit = orNull(
  RateLimitSchema,
  'How many users the key may send; null: no limit. Beyond it the response is 503 with `Retry-After`, or 429 under `/ingest/v1/`.',
);

const KeyVolumeSchema = object(
  'KeyVolume',
  `Received with a key today and in the ${KEY_VOLUME_DAYS - 1} days before, UTC.`,
  {
    users: count('Accepted users.'),
    events: count('Their events.'),
    users_rejected: count('Invalid users.'),
    requests_limited: count('Requests that were refused because of the rate limit of the key.'),
  },
);

const keyText = text('The key in full. Shown only once, in this response.');

const Key = object('Key', 'An API key, without its secret.', {
  id: text('Id of the key; not secret.'),
  name,
  kind,
  environment,
  prefix: text('How the key begins.'),
  last_four: text('Its last four characters.'),
  origins,
  rate_limit: rateLimit,
  created_at: time('When it was made.'),
  expires_at: orNull(time('When it expires.')),
  revoked_at: orNull(time('When it was revoked.')),
  last_used_at: orNull(time('When it was last used, to within a few seconds.')),
  last_origin: orNull(text('The website of the newest request that came from one.')),
  volume: KeyVolumeSchema,
  leak_suspected_at: orNull(time('When a secret key was first used from a web page of another site.')),
  leak_origin: orNull(text('That site.')),
  state: oneOf(['active', 'expired', 'revoked'], 'Whether it works.'),
  is_unused: flag('Active, and neither created nor used within 30 days.'),
});

const KeyList = object('KeyList', 'The keys of an account.', { keys: list(Key, 'Newest first.') });

const KeyOptions = object('KeyOptions', 'Properties of the new key.', {
  name,
  kind,
  environment,
  expires_at: Type.Optional(orNull(time('When it expires.'))),
  origins: Type.Optional(origins),
  rate_limit: Type.Optional(rateLimit),
});

const KeyChanges = object('KeyChanges', 'The fields to change; others stay the same.', {
  name: Type.Optional(name),
  origins: Type.Optional(origins),
  rate_limit: Type.Optional(rateLimit),
});

const CreatedKey = object('CreatedKey', 'A new key.', { key: keyText, row: Key });

const RolledKey = object('RolledKey', 'A new key, and the one that it replaces.', { key: keyText, row: Key, old: Key });

export function registerKeyRoutes(app: FastifyInstance, parts: ApiParts): void {
  const { keyStore } = parts;
  const volumesOf = ({ member, now }: MemberCall): Promise<Map<string, KeyVolume>> =>
    keyStore.volumes(member.accountId, now - (KEY_VOLUME_DAYS - 1) * DAY_MS);

  memberRoute(app, parts, 'GET /keys', {
    operationId: 'listKeys',
    summary: 'List the keys',
    description: 'The keys of the account, in both environments.',
    response: { description: 'Keys.', body: KeyList },
    handler: async (call) => {
      const own = await keyStore.list(call.member.accountId);
      const volumes = await volumesOf(call);
      return { keys: own.map((key) => keyJson(key, call.now, volumes.get(key.id))) };
    },
  });
  memberRoute(app, parts, 'POST /keys', {
    operationId: 'createKey',
    summary: 'Create a key',
    description: 'The key itself is shown only once, in this response.',
    body: KeyOptions,
    response: { status: 201, description: 'The key.', body: CreatedKey },
    handler: async ({ member: { accountId }, body, now }) => {
      const options = { ...optionsOf(body, servedEnvironments(parts.environment)), accountId, now };
      const active = (await keyStore.list(accountId)).filter((key) => keyState(key, now) === 'active');
      if (active.length >= ACTIVE_KEYS_MAX) {
        const message = `the account has ${ACTIVE_KEYS_MAX} active keys: revoke keys that are no longer used`;
        throw new BadParameterError(message);
      }
      // Invalid options are refused in the words of the command line, all of them at once.
      const mistakes = mistakesIn(options, now);
      if (mistakes.length > 0) throw new BadParameterError(mistakes.join(' '));
      const { key, row } = await createKey(keyStore, options);
      return { key, row: keyJson(unusedKey(row), now) };
    },
  });
  memberRoute(app, parts, 'PATCH /keys/:id', {
    operationId: 'editKey',
    summary: 'Edit a key',
    description: 'Its name, origins and rate limit. Servers pick up the change within two seconds.',
    params: ID_PARAMS,
    body: KeyChanges,
    response: { description: 'The key as it is now.', body: Key },
    handler: async (call) => {
      const { id, now, member } = call;
      const result = await editKey(keyStore, { id, accountId: member.accountId, changes: changesOf(call.body), now });
      if (result.kind === 'unknown') return null;
      if (result.kind === 'mistakes') throw new BadParameterError(result.mistakes.join(' '));
      if (result.kind === 'inactive') throw inactive(result);
      return keyJson(result.key, now, (await volumesOf(call)).get(id));
    },
  });
  memberRoute(app, parts, 'POST /keys/:id/revoke', {
    operationId: 'revokeKey',
    summary: 'Revoke a key',
    description: 'Servers reject it within two seconds, permanently.',
    params: ID_PARAMS,
    body: Type.Object({ name: text('The name of the key, to prevent revoking the wrong one.') }),
    response: { description: 'The key as it is now.', body: Key },
    // The name is asked for so that no other key is revoked by a slip.
    handler: async (call) => {
      const { id, now, member } = call;
      const { name } = membersOf(call.body, ['name']);
      const own = (await keyStore.list(member.accountId)).find((key) => key.id === id);
      if (own === undefined) return null;
      if (name !== own.name) throw new BadParameterError('name must be the name of the key that is to be revoked');
      const revoked = await keyStore.revoke(id, now);
      return revoked === undefined ? null : keyJson(revoked, now, (await volumesOf(call)).get(id));
    },
  });
  memberRoute(app, parts, 'POST /keys/:id/roll', {
    operationId: 'rollKey',
    summary: 'Replace a key',
    description:
      'Creates a key with the same name, kind, environment, origins and rate limit; the old one expires after the overlap.',
    params: ID_PARAMS,
    body: Type.Object({
      overlap_seconds: Type.Integer({
        minimum: 0,
        maximum: OVERLAP_SECONDS_MAX,
        description: 'How long the old key still works; never longer than it would have.',
      }),
    }),
    response: { status: 201, description: 'Both keys.', body: RolledKey },
    handler: async (call) => {
      const { id, now, member } = call;
      const overlapMs = overlapMsOf(membersOf(call.body, ['overlap_seconds']).overlap_seconds);
      const result = await rollKey(keyStore, { id, accountId: member.accountId, overlapMs, now });
      if (result.kind === 'unknown') return null;
      if (result.kind === 'inactive') throw inactive(result);
      const { key, row, old } = result;
      return { key, row: keyJson(unusedKey(row), now), old: keyJson(old, now, (await volumesOf(call)).get(id)) };
    },
  });
}

const NO_VOLUME: KeyVolume = { users: 0, events: 0, usersRejected: 0, requestsLimited: 0 };

function keyJson(key: ApiKey, now: number, volume = NO_VOLUME) {
  const state = keyState(key, now);
  return rowJson(Key, {
    ...key,
    rateLimit: key.rateLimit && { ...key.rateLimit, burst: key.rateLimit.burstUsers },
    volume,
    state,
    isUnused: state === 'active' && now - Math.max(key.createdAt, key.lastUsedAt ?? 0) > UNUSED_MS,
  });
}

function inactive({ state }: { readonly state: string }): BadParameterError {
  return new BadParameterError(`the key is ${state}: create a new key`);
}

/** A key for an environment that this server does not serve would look active, and open nothing. */
function optionsOf(body: unknown, served: readonly Environment[]): KeyOptions {
  const fields = membersOf(body, ['name', 'kind', 'environment', 'expires_at', 'origins', 'rate_limit']);
  const { name, origins = [], rate_limit: limit = null } = fields;
  if (typeof name !== 'string') throw new BadParameterError('name must be a string');
  const kind = KEY_KINDS.find((one) => one === fields.kind);
  if (kind === undefined) throw new BadParameterError(`kind must be ${KEY_KINDS.join(' or ')}`);
  const environment = served.find((one) => one === fields.environment);
  if (environment === undefined) throw new BadParameterError(`environment must be ${served.join(' or ')}`);
  if (!isTexts(origins)) throw new BadParameterError('origins must be an array of strings');
  const expiresAt = expiryOf(fields.expires_at);
  return { name, kind, environment, origins, expiresAt, rateLimit: rateLimitOf(limit) };
}

function changesOf(body: unknown) {
  const { name, origins, rate_limit: limit } = membersOf(body, ['name', 'origins', 'rate_limit']);
  if (name !== undefined && typeof name !== 'string') throw new BadParameterError('name must be a string');
  if (origins !== undefined && !isTexts(origins)) throw new BadParameterError('origins must be an array of strings');
  return {
    ...(name !== undefined && { name }),
    ...(origins !== undefined && { origins }),
    ...(limit !== undefined && { rateLimit: rateLimitOf(limit) }),
  };
}

/** The numbers themselves are checked with everything else of the key. */
function rateLimitOf(given: unknown): RateLimit | null {
  if (given === null) return null;
  const fields = typeof given === 'object' && !Array.isArray(given) ? (given as Record<string, unknown>) : {};
  const { users_per_second: usersPerSecond, burst, ...others } = fields;
  if (typeof usersPerSecond !== 'number' || typeof burst !== 'number' || Object.keys(others).length > 0) {
    throw new BadParameterError('rate_limit must be an object with the numbers users_per_second and burst, or null');
  }
  return { usersPerSecond, burstUsers: burst };
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string');
}

function expiryOf(given: unknown): number | null {
  if (given === undefined || given === null) return null;
  const milliseconds = typeof given === 'string' ? parseIso8601(given) : undefined;
  if (milliseconds === undefined) {
    throw new BadParameterError('expires_at must be an ISO 8601 time, such as 2027-01-31T00:00:00Z, or null');
  }
  return milliseconds;
}

function overlapMsOf(seconds: unknown): number {
  if (typeof seconds === 'number' && Number.isInteger(seconds) && seconds >= 0 && seconds <= OVERLAP_SECONDS_MAX) {
    return seconds * 1_000;
  }
  const most = OVERLAP_SECONDS_MAX.toLocaleString('en');
  throw new BadParameterError(`overlap_seconds must be a whole number from 0 to ${most}`);
}
