/**
 * What the commands on keys share: the world they run in, where the keys are, and how a key looks to a person and to a
 * program.
 */

import type { Config, Env } from '../config/config.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import type { ApiKey, KeyStore } from '../keys.ts';
import { keyState } from '../keys/state.ts';
import { OperatorError } from '../errors.ts';
import { refuseLostKeys } from '../data-folder/lost-keys.ts';
import { isShared, locationName } from './location.ts';

export interface KeysIo {
  out(text: string): void;
  readonly env: Env;
  now(): number;
  /** Makes what is not there yet, but for keys that a data folder has lost. */
  readonly openKeyStore: (config: Config) => Promise<KeyStore>;
  /** Replaces those that a data folder has lost. */
  readonly replaceLostKeys: (config: Config, now: number) => Promise<KeyStore>;
  /** Makes nothing: undefined where there is none. */
  readonly findKeyStore: (config: Config) => Promise<KeyStore | undefined>;
  readonly isTty: boolean;
}

export async function withKeyStore<T>(
  config: Config,
  open: (config: Config) => Promise<KeyStore>,
  work: (store: KeyStore) => Promise<T>,
): Promise<T> {
  let store: KeyStore | undefined;
  try {
    store = await open(config);
    return await work(store);
  } catch (error) {
    if (!(error instanceof StoreUnavailableError)) throw error;
    const reason = error.cause instanceof Error ? error.cause.message : error.message;
    throw new OperatorError(`The keys in ${locationName(config)} cannot be reached: ${reason}`, { cause: error });
  } finally {
    await store?.close();
  }
}

/** Undefined where there are no keys at all: nothing is made only to be looked at. */
export async function onKeys<T>(
  io: KeysIo,
  config: Config,
  work: (store: KeyStore) => Promise<T>,
): Promise<T | undefined> {
  const found = await io.findKeyStore(config);
  if (found === undefined && !isShared(config)) refuseLostKeys(config.dataFolder);
  return found === undefined ? undefined : withKeyStore(config, async () => found, work);
}

/** What a person should know first. A leaked key still works until it is revoked; that is why it must be seen. */
function stateOf(key: ApiKey, now: number): ReturnType<typeof keyState> | 'probably leaked' {
  const state = keyState(key, now);
  return state === 'active' && key.leakSuspectedAt !== null ? 'probably leaked' : state;
}

export const KEY_HEADERS = [
  'id',
  'name',
  'kind',
  'environment',
  'account',
  'key',
  'created (UTC)',
  'last used (UTC)',
  'state',
];

export function keyCells(key: ApiKey, now: number): string[] {
  const state = stateOf(key, now);
  return [
    key.id,
    key.name,
    key.kind,
    key.environment,
    key.accountName,
    displayOf(key),
    minuteOf(key.createdAt),
    key.lastUsedAt === null ? 'never' : minuteOf(key.lastUsedAt),
    state === 'probably leaked' ? `active, ${state} (${key.leakOrigin})` : state,
  ];
}

/** With the names and time format of the HTTP API. The key itself is never in it: rows do not hold it. */
export function keyJson(key: ApiKey, now: number): Record<string, unknown> {
  return {
    id: key.id,
    name: key.name,
    kind: key.kind,
    environment: key.environment,
    account: { id: key.accountId, name: key.accountName },
    scopes: key.scopes,
    origins: key.origins,
    rate_limit:
      key.rateLimit === null
        ? null
        : { users_per_second: key.rateLimit.usersPerSecond, burst: key.rateLimit.burstUsers },
    prefix: key.prefix,
    last_four: key.lastFour,
    state: stateOf(key, now),
    created_at: isoOf(key.createdAt),
    expires_at: isoOf(key.expiresAt),
    revoked_at: isoOf(key.revokedAt),
    last_used_at: isoOf(key.lastUsedAt),
    last_origin: key.lastOrigin,
    leak_suspected_at: isoOf(key.leakSuspectedAt),
    leak_origin: key.leakOrigin,
  };
}

export function displayOf(key: Pick<ApiKey, 'prefix' | 'lastFour'>): string {
  return `${key.prefix}…${key.lastFour}`;
}

/** `2026-03-01 12:30`, in UTC. */
export function minuteOf(time: number): string {
  return new Date(time).toISOString().slice(0, 16).replace('T', ' ');
}

function isoOf(time: number | null): string | null {
  return time === null ? null : new Date(time).toISOString();
}
