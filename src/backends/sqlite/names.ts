/**
 * Which names a group has (identity/statements.ts), as a number: 53 bits of the hash of them under the store's secret
 * (stored/keyed-hash.ts). It is stored beside what a node knows, so that a newer group of the same names takes the place of an
 * older one without the older one being read. The same names in another order have another number, and are then
 * compared as text. Relies on what the edge refuses: halves of surrogate pairs, which would be alike, and NUL, which parts names.
 */

import { ownCopy } from '../../stored/generation-cache.ts';
import { HASHED, type HashOfKey } from '../../stored/keyed-hash.ts';
import { NO_NAMES } from './told-chunks.ts';

const NO_TENANT = 0;
/** Two bits of the hash with the rest of it make 53. */
const HASH_PART = 2 ** 2;
/** Longer ones are as rare as they are long. */
const LENGTH_MAX = 2_000;
/** Clients send the same few sets of names again and again; with more than this, it starts over. */
const REMEMBERED_MAX = 10_000;

export class NumberedNames {
  readonly #hashOf: HashOfKey;
  readonly #numbers = new Map<string, number>();

  constructor(hashOf: HashOfKey) {
    this.#hashOf = hashOf;
  }

  numberOf(names: string): number {
    const known = this.#numbers.get(names);
    if (known !== undefined) return known;
    if (names.length > LENGTH_MAX) return NO_NAMES;
    if (this.#numbers.size >= REMEMBERED_MAX) this.#numbers.clear();
    const { hash, rest } = this.#hashOf(NO_TENANT, HASHED.names, names);
    const number = rest * HASH_PART + (Math.abs(hash) % HASH_PART);
    this.#numbers.set(ownCopy(names), number);
    return number;
  }
}
