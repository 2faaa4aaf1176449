/**
 * When match keys were erased (rule 17), as the writer reads and adds it. Tombstones are never removed: data received
 * before an erase may be processed late, from a log that waited.
 *
 * Whenever a person is erased, everything that waits in the log has to be checked, and hashing and looking up each key
 * took a fifth of the processor's time under frequent erases. So the writer keeps the short hashes of all keys erased
 * since it started (`invalidations.ts` brings them): data received after the last erase before that needs the table only
 * for keys among these.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { IDENTIFIER_TYPES, type MatchKey, type TenantId } from '../../../model.ts';
import type { Tombstone } from '../../../store-writer.ts';
import type { HashOfKey, Key } from '../../../views/keyed-hash.ts';
import { tombstoneOf } from '../../../views/tombstone.ts';

interface Tenant {
  readonly no: number;
  readonly id: TenantId;
}

/** Some 5 MB. */
const KNOWN_MAX = 100_000;

/** The short hash of an erased key. Others may have the same, so it only says where to look. */
export function shortHashOf(hashOf: HashOfKey, tenant: number, { type, value }: Key): number {
  return hashOf(tenant, IDENTIFIER_TYPES.indexOf(type), value).hash;
}

export class Tombstones {
  readonly #hashOf: HashOfKey;
  readonly #find: StatementSync;
  readonly #insert: StatementSync;
  readonly #newest: StatementSync;
  /** Short hashes of the keys erased since `startOver`, perhaps of more. */
  readonly #known = new Set<number>();
  /** No erase up to this time needs to be among the known. */
  #unknownUntil = Number.POSITIVE_INFINITY;

  constructor(database: DatabaseSync, hashOf: HashOfKey) {
    this.#hashOf = hashOf;
    this.#find = database.prepare('SELECT erased_at FROM tombstones WHERE tenant = ? AND hash = ?');
    this.#insert = database.prepare(
      `INSERT INTO tombstones VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET erased_at = max(erased_at, excluded.erased_at)`,
    );
    this.#newest = database.prepare('SELECT coalesce(max(last_erased_at), 0) AS newest FROM tenants');
  }

  /** Undefined if the key was not erased, or only before `receivedAt`. */
  erasedAt(tenant: Tenant, key: MatchKey, receivedAt: number): number | undefined {
    if (receivedAt > this.#unknownUntil && !this.#known.has(shortHashOf(this.#hashOf, tenant.no, key)))
      return undefined;
    return this.#find.get(tenant.no, tombstoneOf(tenant.id, key))?.['erased_at'] as number | undefined;
  }

  write(tenant: Tenant, tombstones: readonly Tombstone[]): void {
    this.add(tombstones.map(({ key }) => shortHashOf(this.#hashOf, tenant.no, key)));
    for (const { key, erasedAt } of tombstones) this.#insert.run(tenant.no, tombstoneOf(tenant.id, key), erasedAt);
  }

  /** The short hashes of keys that were erased since the last call. */
  add(shortHashes: readonly number[]): void {
    if (this.#known.size + shortHashes.length > KNOWN_MAX) this.startOver();
    for (const hash of shortHashes) this.#known.add(hash);
  }

  /** Within a transaction: all erases that are committed now count as unknown. */
  startOver(): void {
    this.forget();
    this.#unknownUntil = this.#newest.get()?.['newest'] as number;
  }

  /** Until `startOver`, every key is looked up. */
  forget(): void {
    this.#unknownUntil = Number.POSITIVE_INFINITY;
    this.#known.clear();
  }
}
