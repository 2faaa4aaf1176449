/**
 * The owner of a match key: from the hash of a key (views/keyed-hash.ts) to the node that it points to forever, in
 * sorted runs. Most people who are not found are new, which the Bloom filters of the runs detect without reading the
 * disk. The text of a key is among the node's `identifiers`. Every key of a node is in both, or in neither: both are
 * written in the same transaction.
 */

import type { DatabaseSync } from 'node:sqlite';
import { IDENTIFIER_TYPES, type NodeNumber, type NormalisedKey } from '../../../model.ts';
import { type HashOfKey, identityFingerprint, type KeyHash, keyHashes } from '../../../views/keyed-hash.ts';
import { BufferedRuns } from '../sorted-runs/buffered-runs.ts';
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

/** Runs of all nodes are merged. */
const ONE_GROUP = 0;
const NO_KEY_SET_HASH = 0;
/** This many bits of the rest extend the hash of several keys to 53 bits. */
const KEY_SET_REST = 2 ** 5;

interface KeyOwner {
  readonly node: NodeNumber;
  /** Hash of all keys that the node got together with this one, the strongest of them (`keySetHashOf`). */
  readonly keySetHash: number | null;
}

/** Finds the owners of match keys, in runs of `MATCH_KEYS`. */
export class MatchKeyLookup {
  readonly #runs: Pick<StoredRuns, 'get'>;
  readonly #hashOf: HashOfKey;

  constructor(runs: Pick<StoredRuns, 'get'>, hashOf: HashOfKey) {
    this.#runs = runs;
    this.#hashOf = hashOf;
  }

  find(tenant: number, key: NormalisedKey): KeyOwner | undefined {
    const entry = this.#runs.get(this.runKeyOf(tenant, key));
    if (entry === undefined) return undefined;
    const [node = 0, keySetHash = NO_KEY_SET_HASH] = entry.values;
    return { node, keySetHash: keySetHash === NO_KEY_SET_HASH ? null : keySetHash };
  }

  runKeyOf(tenant: number, { type, value }: NormalisedKey): Key {
    const { hash, rest } = this.#hashOf(tenant, IDENTIFIER_TYPES.indexOf(type), value);
    return [hash, rest];
  }

  /** Strongest first. */
  identityFingerprint(tenant: number, keys: readonly NormalisedKey[]): KeyHash {
    return identityFingerprint(this.#hashOf, tenant, keys);
  }
}

/** For the writer: among its own buffered ones too. */
export class StoreMatchKeys extends MatchKeyLookup {
  readonly buffered: BufferedRuns;

  constructor(database: DatabaseSync, hashOf: HashOfKey) {
    const buffered = new BufferedRuns(database, MATCH_KEYS, () => ONE_GROUP);
    super(buffered, hashOf);
    this.buffered = buffered;
  }

  /** For a key without a node. */
  insert(tenant: number, key: NormalisedKey, node: NodeNumber, keySetHash: number | null): void {
    this.buffered.put(this.runKeyOf(tenant, key), [node, keySetHash ?? NO_KEY_SET_HASH]);
  }
}

/** All keys of a user in one safe integer: recognises a person who is already known by one of them. */
export function keySetHashOf({ hash, rest }: KeyHash): number {
  return hash * KEY_SET_REST + (rest % KEY_SET_REST);
}

/** With the secret of this file. */
export function hashesOf(database: DatabaseSync): HashOfKey {
  const row = database.prepare('SELECT secret FROM key_secret').get();
  if (row === undefined) throw new Error('the store has no secret for its hashes');
  return keyHashes(row['secret'] as Uint8Array);
}
