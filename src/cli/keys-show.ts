/**
 * How a key looks to a person and to a program. The JSON form has the names and time format of the HTTP API. A key
 * itself is never here: rows do not hold it.
 */

import { keyState } from '../keys/state.ts';
import type { ApiKey } from '../keys.ts';

export type ShownState = ReturnType<typeof keyState> | 'probably leaked';

/** What a person should know first. A leaked key still works until it is revoked; that is why it must be seen. */
function stateOf(key: ApiKey, now: number): ShownState {
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
