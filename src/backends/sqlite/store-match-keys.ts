/**
 * Who has a match key: the table `match_keys`, from the hash of a key (stored/keyed-hash.ts) to the node that it points to for
 * ever. Its text is among the node's `identifiers`. Every key of a node is in both tables, or in neither: whoever writes
 * one writes the other in the same transaction.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { IDENTIFIER_TYPES, type NodeNumber } from '../../model.ts';
import { KeyFilter } from './key-filter.ts';
import { companyOf, type HashOfKey, type Key, type KeyHash, keyHashes } from '../../stored/keyed-hash.ts';

export interface KeyOwner {
  readonly node: NodeNumber;
  /** Of all keys that were given to the node together with this one, the strongest of them (`companyOf`). */
  readonly company: number | null;
}

type FoundRow = [node: number, company: number | null];

export class StoreMatchKeys {
  readonly #find: StatementSync;
  readonly #insert: StatementSync;
  readonly #remove: StatementSync;
  readonly #hashOf: HashOfKey;
  readonly #filter: KeyFilter;

  /** Whoever inserts all keys may tell from memory that nobody has one. */
  constructor(database: DatabaseSync, hashOf = hashesOf(database), filter = new KeyFilter()) {
    this.#hashOf = hashOf;
    this.#filter = filter;
    this.#find = database.prepare('SELECT node, company FROM match_keys WHERE hash = ? AND rest = ?');
    // An object for each row would take a tenth longer.
    this.#find.setReturnArrays(true);
    this.#insert = database.prepare('INSERT INTO match_keys VALUES (?, ?, ?, ?)');
    this.#remove = database.prepare('DELETE FROM match_keys WHERE hash = ? AND rest = ?');
  }

  find(tenant: number, key: Key): KeyOwner | undefined {
    const keyHash = this.hashOf(tenant, key);
    if (!this.#filter.mayHave(keyHash)) return undefined;
    const { hash, rest } = keyHash;
    const row = this.#find.get(hash, rest) as unknown as FoundRow | undefined;
    return row && { node: row[0], company: row[1] };
  }

  /** Fails for a key that is there. */
  insert(tenant: number, key: Key, node: NodeNumber, company: number | null): void {
    const keyHash = this.hashOf(tenant, key);
    const { hash, rest } = keyHash;
    this.#insert.run(hash, rest, node, company);
    this.#filter.add(keyHash);
  }

  hashOf(tenant: number, { type, value }: Key): KeyHash {
    return this.#hashOf(tenant, IDENTIFIER_TYPES.indexOf(type), value);
  }

  /** Strongest first. */
  companyOf(tenant: number, keys: readonly Key[]): number {
    return companyOf(this.#hashOf, tenant, keys);
  }

  remove(tenant: number, key: Key): void {
    const { hash, rest } = this.hashOf(tenant, key);
    this.#remove.run(hash, rest);
  }
}

/** As of this file. */
export function hashesOf(database: DatabaseSync): HashOfKey {
  const row = database.prepare('SELECT secret FROM key_secret').get();
  if (row === undefined) throw new Error('the store has no secret for its match keys');
  return keyHashes(row.secret as Uint8Array);
}
