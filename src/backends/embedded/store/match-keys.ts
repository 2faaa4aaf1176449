/**
 * The owner of a match key: from the hash of a key (views/keyed-hash.ts) to the node that it points to forever, in
 * sorted runs. Most people who are not found are new, which the Bloom filters of the runs detect without reading the
 * disk. The text of a key is among the node's `identifiers`. Every key of a node is in both, or in neither: both are
 * written in the same transaction.
 */

import type { DatabaseSync } from 'node:sqlite';
import { IDENTIFIER_TYPES, type NodeNumber, type NormalisedKey } from '../../../model.ts';
import { type HashOfKey, keyHashes } from '../../../views/keyed-hash.ts';
import type { RunsSizes } from '../sorted-runs/sorted-runs.ts';
import type { Key, RunsShape } from '../sorted-runs/entries.ts';
import type { StoredRuns } from '../sorted-runs/stored-runs.ts';

export const MATCH_KEYS: RunsShape = {
  name: 'match_keys',
  keyColumns: 2,
  /** The node. */
  valueColumns: 1,
  hasBytes: false,
  hasFilters: true,
};

/** Four blocks fill a page: an entry takes 15 or 16 bytes. */
export const MATCH_KEY_SIZES: RunsSizes = { blockRows: 120 };

/** In runs of `MATCH_KEYS`. */
export function findOwner(runs: StoredRuns, key: Key): NodeNumber | undefined {
  return runs.get(key)?.values[0];
}

/** In `MATCH_KEYS`. */
export function runKeyOf(hashOf: HashOfKey, tenant: number, { type, value }: NormalisedKey): readonly [number, number] {
  const { hash, rest } = hashOf(tenant, IDENTIFIER_TYPES.indexOf(type), value);
  return [hash, rest];
}

/** With the secret of this file. */
export function hashesOf(database: DatabaseSync): HashOfKey {
  return keyHashes(database.prepare('SELECT secret FROM key_secret').get()?.['secret'] as Uint8Array);
}
