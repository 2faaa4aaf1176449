/**
 * The set of names that a property update sets (identity/property-updates.ts), as a number: 53 bits of their hash under
 * the store's secret (views/keyed-hash.ts). It is stored beside the properties of a node, so that a newer update of the
 * same names replaces an older one without either being parsed. The same names in another order have another number,
 * and are then compared as text. Relies on what the edge rejects: unpaired surrogates, which would hash alike, and NUL,
 * which separates names.
 */

import { HASHED, type HashOfKey } from '../../../views/keyed-hash.ts';

/** For properties that several updates have set, and for none. */
export const NO_SHAPE = 0;

const NO_TENANT = 0;
/** Two bits of the hash with the rest of it make 53. */
const HASH_PART = 2 ** 2;
/** Longer ones are rare. */
const LENGTH_MAX = 2_000;
/** Clients send the same few sets of names again and again; beyond this, the cache is cleared. */
const REMEMBERED_MAX = 10_000;

export class ShapeHashes {
  readonly #hashOf: HashOfKey;
  readonly #hashes = new Map<string, number>();

  constructor(hashOf: HashOfKey) {
    this.#hashOf = hashOf;
  }

  of(names: string): number {
    const known = this.#hashes.get(names);
    if (known !== undefined) return known;
    if (names.length > LENGTH_MAX) return NO_SHAPE;
    if (this.#hashes.size >= REMEMBERED_MAX) this.#hashes.clear();
    const { hash, rest } = this.#hashOf(NO_TENANT, HASHED.names, names);
    const shape = rest * HASH_PART + (Math.abs(hash) % HASH_PART);
    this.#hashes.set(names, shape);
    return shape;
  }
}
