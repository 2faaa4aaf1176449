/**
 * Rolls a key, for the dashboard and the command line alike: creates another with the same name, kind, environment,
 * origins and rate limit, and lets the old one expire after an overlap in which both work. The new key is stored first:
 * after a crash in between both work, never neither. The new key has no expiry, even if the old one had.
 */

import type { ApiKey, KeyStore, NewKey } from '../keys.ts';
import { DAY_MS } from '../model.ts';
import { createKey } from './create.ts';
import { keyState, type KeyState } from './state.ts';

export const OVERLAP_MS_MAX = 30 * DAY_MS;

export interface KeyRoll {
  readonly id: string;
  /** Only a key of this account is rolled; undefined for the operator, who may roll any. */
  readonly accountId?: string;
  /** From 0, which ends the old key at once, to OVERLAP_MS_MAX. */
  readonly overlapMs: number;
  readonly now: number;
}

export type RollResult =
  | { readonly kind: 'rolled'; readonly key: string; readonly row: NewKey; readonly old: ApiKey }
  | { readonly kind: 'inactive'; readonly state: Exclude<KeyState, 'active'> }
  | { readonly kind: 'unknown' };

export async function rollKey(keyStore: KeyStore, { id, accountId, overlapMs, now }: KeyRoll): Promise<RollResult> {
  const found = (await keyStore.list(accountId)).find((key) => key.id === id);
  if (found === undefined) return { kind: 'unknown' };
  const state = keyState(found, now);
  if (state !== 'active') return { kind: 'inactive', state };
  const { name, kind, environment, origins, rateLimit } = found;
  const created = await createKey(keyStore, {
    accountId: found.accountId,
    name,
    kind,
    environment,
    origins,
    expiresAt: null,
    rateLimit,
    now,
  });
  const old = await keyStore.expire(id, now + overlapMs);
  return old === undefined ? { kind: 'unknown' } : { kind: 'rolled', ...created, old };
}
