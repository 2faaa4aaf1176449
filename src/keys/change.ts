/**
 * Edits and rolls active keys, for the dashboard and the command line alike. Editing changes name, origins and rate limit;
 * omitted fields stay, and the kind and environment of a key never change. Rolling creates another key with the same name,
 * kind, environment, origins and rate limit, and lets the old one expire after an overlap in which both work. The new key
 * is stored first: after a crash in between both work, never neither. It has no expiry, even if the old one had.
 */

import type { ApiKey, KeyChanges, KeyStore, NewKey } from '../keys.ts';
import { DAY_MS } from '../model.ts';
import { createKey, mistakesIn, storedOrigins } from './create.ts';
import { keyState, type KeyState } from './state.ts';

export const OVERLAP_MS_MAX = 30 * DAY_MS;

interface WhichKey {
  readonly id: string;
  /** Only a key of this account is changed; undefined for the operator, who may change any. */
  readonly accountId?: string;
  readonly now: number;
}

type Unchanged =
  | { readonly kind: 'inactive'; readonly state: Exclude<KeyState, 'active'> }
  | { readonly kind: 'unknown' };

type EditResult =
  | Unchanged
  | { readonly kind: 'edited'; readonly key: ApiKey }
  | { readonly kind: 'mistakes'; readonly mistakes: readonly string[] };

export async function editKey(
  keyStore: KeyStore,
  { changes, ...which }: WhichKey & { readonly changes: KeyChanges },
): Promise<EditResult> {
  const found = await findActive(keyStore, which);
  if (found.kind !== 'active') return found;
  const mistakes = mistakesIn({ ...found.key, ...changes }, which.now);
  if (mistakes.length > 0) return { kind: 'mistakes', mistakes };
  const { name, origins } = changes;
  const key = await keyStore.edit(which.id, {
    ...changes,
    ...(name !== undefined && { name: name.trim() }),
    ...(origins !== undefined && { origins: storedOrigins(origins) }),
  });
  return key === undefined ? { kind: 'unknown' } : { kind: 'edited', key };
}

type RollResult =
  | Unchanged
  | { readonly kind: 'rolled'; readonly key: string; readonly row: NewKey; readonly old: ApiKey };

/** `overlapMs`: from 0, which ends the old key at once, to OVERLAP_MS_MAX. */
export async function rollKey(
  keyStore: KeyStore,
  { overlapMs, ...which }: WhichKey & { readonly overlapMs: number },
): Promise<RollResult> {
  const found = await findActive(keyStore, which);
  if (found.kind !== 'active') return found;
  const created = await createKey(keyStore, { ...found.key, expiresAt: null, now: which.now });
  const old = await keyStore.expire(which.id, which.now + overlapMs);
  return old === undefined ? { kind: 'unknown' } : { kind: 'rolled', ...created, old };
}

async function findActive(
  keyStore: KeyStore,
  { id, accountId, now }: WhichKey,
): Promise<Unchanged | { readonly kind: 'active'; readonly key: ApiKey }> {
  const key = (await keyStore.list(accountId)).find((found) => found.id === id);
  if (key === undefined) return { kind: 'unknown' };
  const state = keyState(key, now);
  return state === 'active' ? { kind: 'active', key } : { kind: 'inactive', state };
}
