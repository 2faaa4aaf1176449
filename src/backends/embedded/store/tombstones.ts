/**
 * When match keys were erased (rule 17), as the writer reads and adds it. Tombstones are never removed: data received
 * before an erase may be processed late, from a log that waited.
 *
 * Whenever a person is erased, everything that waits in the log has to be checked, and hashing and looking up each key
 * took a fifth of the processor's time under frequent erases. So the writer keeps the short hashes of all keys erased
 * since it started (`invalidations.ts` brings them): data received after the last erase before that needs the table only
 * for keys among these.
 */

import { IDENTIFIER_TYPES, type MatchKey, type NormalisedKey } from '../../../model.ts';
import type { Tombstone } from '../../../store-writer.ts';
import type { HashOfKey } from '../../../views/keyed-hash.ts';
import { tombstoneOf } from '../../../views/tombstone.ts';
import type { StoreConnection, Tenant } from './connection.ts';

/** Some 5 MB. */
const KNOWN_MAX = 100_000;

/** The short hash of an erased key. Others may have the same, so it only says where to look. */
export function shortHashOf(hashOf: HashOfKey, tenant: number, { type, value }: NormalisedKey): number {
  return hashOf(tenant, IDENTIFIER_TYPES.indexOf(type), value).hash;
}

export class Tombstones {
  readonly #store: StoreConnection;
  /** Short hashes of the keys erased since `startOver`, perhaps of more. */
  readonly #known = new Set<number>();
  /** No erase up to this time needs to be among the known. */
  #unknownUntil = Number.POSITIVE_INFINITY;

  constructor(store: StoreConnection) {
    this.#store = store;
  }

  /** Undefined if the key was not erased, or only before `receivedAt`. */
  erasedAt(tenant: Tenant, key: MatchKey, receivedAt: number): number | undefined {
    const isKnown = receivedAt > this.#unknownUntil;
    if (isKnown && !this.#known.has(shortHashOf(this.#store.hashOf, tenant.no, key))) return undefined;
    const sql = 'SELECT erased_at FROM tombstones WHERE tenant = ? AND hash = ?';
    return this.#store.get<{ erased_at: number }>(sql, tenant.no, tombstoneOf(tenant.id, key))?.erased_at;
  }

  write(tenant: Tenant, tombstones: readonly Tombstone[]): void {
    this.add(tombstones.map(({ key }) => shortHashOf(this.#store.hashOf, tenant.no, key)));
    const sql = `INSERT INTO tombstones VALUES (?, ?, ?)
      ON CONFLICT DO UPDATE SET erased_at = max(erased_at, excluded.erased_at)`;
    for (const { key, erasedAt } of tombstones) this.#store.run(sql, tenant.no, tombstoneOf(tenant.id, key), erasedAt);
  }

  /** The short hashes of keys that were erased since the last call. */
  add(shortHashes: readonly number[]): void {
    if (this.#known.size + shortHashes.length > KNOWN_MAX) this.startOver();
    for (const hash of shortHashes) this.#known.add(hash);
  }

  /** Within a transaction: all erases that are committed now count as unknown. */
  startOver(): void {
    this.forget();
    const sql = 'SELECT coalesce(max(last_erased_at), 0) AS newest FROM tenants';
    this.#unknownUntil = this.#store.get<{ newest: number }>(sql)?.newest ?? 0;
  }

  /** Until `startOver`, every key is looked up. */
  forget(): void {
    this.#unknownUntil = Number.POSITIVE_INFINITY;
    this.#known.clear();
  }
}
