/**
 * API keys as a member manages them: listed, made, revoked, rolled. A key is shown in full in the answer that made it
 * and never again. Each call sees the keys of one account; those of another are not found, whatever is done to them.
 */

import type { FastifyInstance } from 'fastify';
import { KeyStoreUnavailableError } from '../keys/cache.ts';
import { createKey, type KeyWishes, mistakesIn } from '../keys/create.ts';
import { OVERLAP_MS_MAX, rollKey } from '../keys/roll.ts';
import { keyState } from '../keys/state.ts';
import { type Environment, KEY_KINDS } from '../model.ts';
import type { ApiKey, KeyStore, NewKey } from '../store.ts';
import { parseIso8601 } from '../validation/iso8601.ts';
import type { Json } from './json-text.ts';
import { addMemberRoute, type MemberCall, type MemberParts } from './member-route.ts';
import { BadParameterError } from './parameters.ts';
import { timeText } from './stored-answers.ts';
import { servedEnvironments } from './tenant-route.ts';

const DAY_MS = 86_400_000;
/** A key that was neither made nor used for so long is probably forgotten. */
export const UNUSED_MS = 30 * DAY_MS;
export const OVERLAP_SECONDS_MAX = OVERLAP_MS_MAX / 1_000;
/** More than anybody has a use for; all of them are read to be listed. */
export const ACTIVE_KEYS_MAX = 500;

export interface KeyParts extends MemberParts {
  readonly keyStore: KeyStore;
  /** Of which keys are let in. */
  readonly environment: 'any' | Environment;
}

export function registerKeyRoutes(app: FastifyInstance, parts: KeyParts): void {
  const callOf = ({ member, now }: MemberCall): KeyCall => ({
    keyStore: parts.keyStore,
    accountId: member.accountId,
    now,
  });
  addMemberRoute(app, parts, { method: 'GET', url: '/keys', answer: (call) => listKeys(callOf(call)) });
  addMemberRoute(app, parts, {
    method: 'POST',
    url: '/keys',
    status: 201,
    answer: (call) => makeKey(callOf(call), wishesOf(call.body, servedEnvironments(parts.environment))),
  });
  addMemberRoute(app, parts, {
    method: 'POST',
    url: '/keys/:id/revoke',
    answer: (call) => revokeKey(callOf(call), call.id, call.body),
  });
  addMemberRoute(app, parts, {
    method: 'POST',
    url: '/keys/:id/roll',
    status: 201,
    answer: (call) => rollOwnKey(callOf(call), call.id, call.body),
  });
}

/** What each of the acts on keys is called with. */
interface KeyCall {
  readonly keyStore: KeyStore;
  readonly accountId: string;
  readonly now: number;
}

async function listKeys({ keyStore, accountId, now }: KeyCall): Promise<Json> {
  const own = await asked(keyStore.list(accountId));
  return { keys: own.map((key) => keyAnswer(key, now)) };
}

async function makeKey({ keyStore, accountId, now }: KeyCall, wishes: KeyWishes): Promise<Json> {
  const active = (await asked(keyStore.list(accountId))).filter((key) => keyState(key, now) === 'active');
  if (active.length >= ACTIVE_KEYS_MAX) {
    throw new BadParameterError(`the account has ${ACTIVE_KEYS_MAX} active keys: revoke some that nobody needs`);
  }
  const { key, row } = await storeKey(keyStore, { ...wishes, accountId, now });
  return { key, row: keyAnswer(unusedKey(row), now) };
}

/** Null when the account has no such key. The name is asked for so that nobody revokes another one by a slip. */
async function revokeKey(call: KeyCall, id: string, body: unknown): Promise<Json> {
  const { name } = fieldsOf(body, ['name']);
  const own = await findOwn(call, id);
  if (own === undefined) return null;
  if (name !== own.name) throw new BadParameterError('name must be the name of the key that is to be revoked');
  const revoked = await asked(call.keyStore.revoke(id, call.now));
  return revoked === undefined ? null : keyAnswer(revoked, call.now);
}

/** Null when the account has no such key. */
async function rollOwnKey({ keyStore, accountId, now }: KeyCall, id: string, body: unknown): Promise<Json> {
  const overlapMs = overlapMsOf(fieldsOf(body, ['overlap_seconds']).overlap_seconds);
  const result = await asked(rollKey(keyStore, { id, accountId, overlapMs, now }));
  if (result.kind === 'unknown') return null;
  if (result.kind === 'inactive') throw new BadParameterError(`the key is ${result.state}: make a new one instead`);
  const { key, row, old } = result;
  return { key, row: keyAnswer(unusedKey(row), now), old: keyAnswer(old, now) };
}

function keyAnswer(key: ApiKey, now: number): Json {
  const state = keyState(key, now);
  return {
    id: key.id,
    name: key.name,
    kind: key.kind,
    environment: key.environment,
    prefix: key.prefix,
    last_four: key.lastFour,
    origins: key.origins,
    created_at: timeText(key.createdAt),
    expires_at: timeOrNull(key.expiresAt),
    revoked_at: timeOrNull(key.revokedAt),
    last_used_at: timeOrNull(key.lastUsedAt),
    leak_suspected_at: timeOrNull(key.leakSuspectedAt),
    leak_origin: key.leakOrigin,
    state,
    is_unused: state === 'active' && now - Math.max(key.createdAt, key.lastUsedAt ?? 0) > UNUSED_MS,
  };
}

function timeOrNull(milliseconds: number | null): string | null {
  return milliseconds === null ? null : timeText(milliseconds);
}

async function findOwn({ keyStore, accountId }: KeyCall, id: string): Promise<ApiKey | undefined> {
  return (await asked(keyStore.list(accountId))).find((key) => key.id === id);
}

/** What a key cannot be made of is told in the words of the command line, all of it. */
function storeKey(keyStore: KeyStore, wishes: Parameters<typeof createKey>[1]): Promise<{ key: string; row: NewKey }> {
  const mistakes = mistakesIn(wishes, wishes.now);
  if (mistakes.length > 0) throw new BadParameterError(mistakes.join(' '));
  return asked(createKey(keyStore, wishes));
}

async function asked<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (cause) {
    throw new KeyStoreUnavailableError('the key store cannot be read or written', { cause });
  }
}

/** Answers do not tell the account, of which there is but one in each. */
function unusedKey(row: NewKey): ApiKey {
  return { ...row, accountName: '', revokedAt: null, lastUsedAt: null, leakSuspectedAt: null, leakOrigin: null };
}

/** A key for an environment that this server does not serve would look active, and open nothing. */
function wishesOf(body: unknown, served: readonly Environment[]): KeyWishes {
  const fields = fieldsOf(body, ['name', 'kind', 'environment', 'expires_at', 'origins']);
  const { name, origins = [] } = fields;
  if (typeof name !== 'string') throw new BadParameterError('name must be a text');
  const kind = KEY_KINDS.find((one) => one === fields.kind);
  if (kind === undefined) throw new BadParameterError(`kind must be ${KEY_KINDS.join(' or ')}`);
  const environment = served.find((one) => one === fields.environment);
  if (environment === undefined) throw new BadParameterError(`environment must be ${served.join(' or ')}`);
  if (!isTexts(origins)) throw new BadParameterError('origins must be an array of texts');
  return { name, kind, environment, origins, expiresAt: expiryOf(fields.expires_at) };
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

/** The fields of a JSON object, all of them known: a misspelt one that does nothing is worse than a refusal. */
function fieldsOf<Name extends string>(body: unknown, names: readonly Name[]): Partial<Record<Name, unknown>> {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new BadParameterError(`the body must be a JSON object with ${names.join(', ')}`);
  }
  if (Object.keys(body).some((key) => !names.some((name) => name === key))) {
    throw new BadParameterError(`the body has an unknown field: there are ${names.join(', ')}`);
  }
  return body;
}
