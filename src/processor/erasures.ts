/**
 * Rule 17 on the way into the store: data received before its person was erased does not come back. A user with a
 * user_id of its own that was not erased is another person who shared an identifier (a device, a mailbox): it is stored,
 * without the erased identifiers. Any other user with an erased identifier is dropped, and its other identifiers are
 * taken to be of the erased person too, as far as data from before the erase is concerned.
 */

import type { MatchKey } from '../model.ts';
import type { LookupResult, Tombstone } from '../store-writer.ts';
import type { PreparedUser } from './prepared.ts';

export class Erasures {
  readonly #result: LookupResult;
  /** By type and value: found in this batch. */
  readonly #found = new Map<string, number>();
  readonly tombstones: Tombstone[] = [];

  constructor(result: LookupResult) {
    this.#result = result;
  }

  /** Whether anything was erased after this was received, so that its identifiers have to be checked. */
  mayConcern(receivedAt: number): boolean {
    return receivedAt <= this.#result.lastErasedAt;
  }

  /** The user, without erased identifiers if need be; null if it is the erased person. */
  remainderOf(user: PreparedUser): PreparedUser | null {
    const { receivedAt } = user.origin;
    const erased = user.keys.filter((key) => this.#erasedAt(key) >= receivedAt);
    if (erased.length === 0) return user;
    const keys = user.keys.filter((key) => !erased.includes(key));
    if (keys[0]?.type === 'user_id') {
      const { origin, keyKind, junk, events, propertyUpdate } = user;
      return { origin, keyKind, junk, events, propertyUpdate, keys };
    }
    const erasedAt = Math.max(...erased.map((key) => this.#erasedAt(key)));
    for (const key of keys) {
      this.#found.set(`${key.type}:${key.value}`, erasedAt);
      this.tombstones.push({ key, erasedAt });
    }
    return null;
  }

  #erasedAt(key: MatchKey): number {
    const stored = this.#result.erasedAt(key) ?? Number.NEGATIVE_INFINITY;
    if (this.#found.size === 0) return stored;
    return Math.max(stored, this.#found.get(`${key.type}:${key.value}`) ?? Number.NEGATIVE_INFINITY);
  }
}
