/**
 * Edits an active key, for the dashboard and the command line alike: its name, origins and rate limit. Omitted fields
 * stay. The kind and environment of a key never change.
 */

import type { ApiKey, KeyChanges, KeyStore } from '../keys.ts';
import { mistakesIn, storedOrigins } from './create.ts';
import { keyState, type KeyState } from './state.ts';

export interface KeyEdit {
  readonly id: string;
  /** Only a key of this account is edited; undefined for the operator, who may edit any. */
  readonly accountId?: string;
  readonly changes: KeyChanges;
  readonly now: number;
}

export type EditResult =
  | { readonly kind: 'edited'; readonly key: ApiKey }
  | { readonly kind: 'mistakes'; readonly mistakes: readonly string[] }
  | { readonly kind: 'inactive'; readonly state: Exclude<KeyState, 'active'> }
  | { readonly kind: 'unknown' };

export async function editKey(keyStore: KeyStore, { id, accountId, changes, now }: KeyEdit): Promise<EditResult> {
  const found = (await keyStore.list(accountId)).find((key) => key.id === id);
  if (found === undefined) return { kind: 'unknown' };
  const state = keyState(found, now);
  if (state !== 'active') return { kind: 'inactive', state };
  const mistakes = mistakesIn({ ...found, ...changes }, now);
  if (mistakes.length > 0) return { kind: 'mistakes', mistakes };
  const { name, origins } = changes;
  const key = await keyStore.edit(id, {
    ...changes,
    ...(name !== undefined && { name: name.trim() }),
    ...(origins !== undefined && { origins: storedOrigins(origins) }),
  });
  return key === undefined ? { kind: 'unknown' } : { kind: 'edited', key };
}
