/**
 * The owner of a match key: from the hash of a key (views/keyed-hash.ts) to the node that it points to forever, in
 * sorted runs. Most people who are not found are new, which the Bloom filters of the runs detect without reading the
 * disk. The text of a key is among the node's `identifiers`. Every key of a node is in both, or in neither: both are
 * written in the same transaction.
 */

import type { DatabaseSync } from 'node:sqlite';
import { IDENTIFIER_TYPES, type NodeNumber } from '../../../model.ts';
import { type HashOfKey, type Key, type KeyHash, keyHashes, identityFingerprint } from '../../../views/keyed-hash.ts';
import { BufferedRuns } from '../sorted-runs/buffered-runs.ts';
import type { Entry, RunsShape } from '../sorted-runs/entries.ts';
import type { Key as RunKey } from '../sorted-runs/keys.ts';
import type { RunReader } from '../sorted-runs/run-reader.ts';
import type { RunsSizes, SortedRuns } from '../sorted-runs/sorted-runs.ts';

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

export interface KeyOwner {
  readonly node: NodeNumber;
  /** Hash of all keys that the node got together with this one, the strongest of them (`keySetHashOf`). */
  readonly keySetHash: number | null;
}

/** Finds the owners of match keys: the writer among its own buffered ones too, a reader among those that are stored. */
export interface MatchKeyLookup {
  find(tenant: number, key: Key): KeyOwner | undefined;
  /** Strongest first. */
  identityFingerprint(tenant: number, keys: readonly Key[]): KeyHash;
}

/** For the writer. */
export class StoreMatchKeys implements MatchKeyLookup {
  readonly #buffered: BufferedRuns;
  readonly #hashOf: HashOfKey;

  constructor(database: DatabaseSync, hashOf = hashesOf(database), sizes?: RunsSizes) {
    this.#hashOf = hashOf;
    this.#buffered = new BufferedRuns(database, MATCH_KEYS, () => ONE_GROUP, sizes);
  }

  find(tenant: number, key: Key): KeyOwner | undefined {
    const entry = this.#buffered.get(runKeyOf(this.#hashOf, tenant, key));
    return entry === undefined ? undefined : ownerOf(entry);
  }

  /** For a key without a node. */
  insert(tenant: number, key: Key, node: NodeNumber, keySetHash: number | null): void {
    this.#buffered.put(runKeyOf(this.#hashOf, tenant, key), [node, keySetHash ?? NO_KEY_SET_HASH]);
  }

  /** Strongest first. */
  identityFingerprint(tenant: number, keys: readonly Key[]): KeyHash {
    return identityFingerprint(this.#hashOf, tenant, keys);
  }

  /** Call it before the transaction is committed. */
  flush(): void {
    this.#buffered.flush();
  }

  /** After a rollback. */
  forget(): void {
    this.#buffered.forget();
  }

  get trees(): readonly SortedRuns[] {
    return [this.#buffered.runs];
  }
}

/** All keys of a user in one safe integer: recognises a person who is already known by one of them. */
export function keySetHashOf({ hash, rest }: KeyHash): number {
  return hash * KEY_SET_REST + (rest % KEY_SET_REST);
}

/** For readers: in runs of `MATCH_KEYS`. */
export function storedMatchKeys(runs: RunReader, hashOf: HashOfKey): MatchKeyLookup {
  return {
    find: (tenant, key) => {
      const entry = runs.find(runKeyOf(hashOf, tenant, key));
      return entry && ownerOf(entry);
    },
    identityFingerprint: (tenant, keys) => identityFingerprint(hashOf, tenant, keys),
  };
}

/** For readers: in runs of `MATCH_KEYS`. */
export function findNode(runs: RunReader, hashOf: HashOfKey, tenant: number, key: Key): NodeNumber | undefined {
  return runs.find(runKeyOf(hashOf, tenant, key))?.values[0];
}

export function removeKeys(runs: RunReader, hashOf: HashOfKey, tenant: number, keys: readonly Key[]): void {
  runs.remove(keys.map((key) => runKeyOf(hashOf, tenant, key)));
}

function ownerOf({ values: [node = 0, keySetHash = NO_KEY_SET_HASH] }: Entry): KeyOwner {
  return { node, keySetHash: keySetHash === NO_KEY_SET_HASH ? null : keySetHash };
}

function runKeyOf(hashOf: HashOfKey, tenant: number, { type, value }: Key): RunKey {
  const { hash, rest } = hashOf(tenant, IDENTIFIER_TYPES.indexOf(type), value);
  return [hash, rest];
}

/** With the secret of this file. */
export function hashesOf(database: DatabaseSync): HashOfKey {
  const row = database.prepare('SELECT secret FROM key_secret').get();
  if (row === undefined) throw new Error('the store has no secret for its hashes');
  return keyHashes(row['secret'] as Uint8Array);
}
