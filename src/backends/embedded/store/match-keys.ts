/**
 * The owner of a match key: from the hash of a key (views/keyed-hash.ts) to the node that it points to forever, in
 * sorted runs. Most people who are not found are new, which the Bloom filters of the runs detect without reading the
 * disk. The text of a key is among the node's `identifiers`. Every key of a node is in both, or in neither: both are
 * written in the same transaction.
 */

import type { DatabaseSync } from 'node:sqlite';
import { IDENTIFIER_TYPES, type NodeNumber, type NormalisedKey } from '../../../model.ts';
import { type HashOfKey, type KeyHash, keyHashes } from '../../../views/keyed-hash.ts';
import type { BufferedRuns, RunsSizes } from '../sorted-runs/sorted-runs.ts';
import type { Key, RunsShape } from '../sorted-runs/entries.ts';
import type { StoredRuns } from '../sorted-runs/stored-runs.ts';

export const MATCH_KEYS: RunsShape = {
  name: 'match_keys',
  keyColumns: 2,
  /** The node; for the strongest key of a request also the hash of all its keys (`keySetHashOf`), else 0. */
  valueColumns: 2,
  hasBytes: false,
  hasFilters: true,
};

/** Three blocks fill a page: an entry takes 22 or 23 bytes. */
export const MATCH_KEY_SIZES: RunsSizes = { blockRows: 112 };

const NO_KEY_SET_HASH = 0;
/** This many bits of the rest extend the hash of several keys to 53 bits. */
const KEY_SET_REST = 2 ** 5;

interface KeyOwner {
  readonly node: NodeNumber;
  /** Hash of all keys that the node got together with this one, the strongest of them (`keySetHashOf`). */
  readonly keySetHash: number | null;
}

/** In runs of `MATCH_KEYS`. */
export function findOwner(runs: StoredRuns, key: Key): KeyOwner | undefined {
  const entry = runs.get(key);
  if (entry === undefined) return undefined;
  const [node = 0, keySetHash = NO_KEY_SET_HASH] = entry.values;
  return { node, keySetHash: keySetHash === NO_KEY_SET_HASH ? null : keySetHash };
}

/** For a key without an owner. */
export function putOwner(runs: BufferedRuns, key: Key, { node, keySetHash }: KeyOwner): void {
  runs.put(key, [node, keySetHash ?? NO_KEY_SET_HASH]);
}

/** In `MATCH_KEYS`. */
export function runKeyOf(hashOf: HashOfKey, tenant: number, { type, value }: NormalisedKey): readonly [number, number] {
  const { hash, rest } = hashOf(tenant, IDENTIFIER_TYPES.indexOf(type), value);
  return [hash, rest];
}

/** All keys of a user in one safe integer: recognises a person who is already known by one of them. */
export function keySetHashOf({ hash, rest }: KeyHash): number {
  return hash * KEY_SET_REST + (rest % KEY_SET_REST);
}

/** With the secret of this file. */
export function hashesOf(database: DatabaseSync): HashOfKey {
  return keyHashes(database.prepare('SELECT secret FROM key_secret').get()?.['secret'] as Uint8Array);
}
