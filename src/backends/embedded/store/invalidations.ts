/**
 * What the writer learns of erases and unmerges. An erase or unmerge adds all nodes of the profile to `invalidations`, and
 * the short hashes of erased match keys, in its own transaction; the writer, which caches identities, reads them before
 * its next transaction and drops those nodes alone. Rows have consecutive numbers, and only the oldest are removed, so a
 * reader that remembers the last number it has read notices when it has missed some: it has to clear its caches.
 *
 * Tombstones say when match keys were erased (rule 17). They are never removed: data received before an erase may be
 * processed late, from a log that waited. Whenever a person is erased, everything that waits in the log has to be checked,
 * and hashing and looking up each key took a fifth of the processor's time under frequent erases. So the writer keeps the
 * short hashes of all keys erased since it started. For data received after the last erase before the start, it looks
 * up only keys whose short hash is among them.
 */

import type { MatchKey, NodeNumber, NormalisedKey } from '../../../model.ts';
import type { Tombstone } from '../../../store-writer.ts';
import { spellingsOf } from '../../../views/erased-person.ts';
import { tombstoneOf } from '../../../views/tombstone.ts';
import type { StoreConnection, Tenant } from './connection.ts';
import { runKeyOf } from './match-keys.ts';

/**
 * A profile has at most 100 nodes, and few have more than a handful of identifiers: at least the last 50 erases and
 * unmerges or so, of which few fit between two transactions.
 */
export const ROWS_KEPT = 10_000;

/** Call it in the transaction of the erase or unmerge. */
export function invalidate(
  store: StoreConnection,
  { nodes, erasedKeys = [] }: { readonly nodes: readonly NodeNumber[]; readonly erasedKeys?: readonly number[] },
): void {
  for (const node of nodes) store.run('INSERT INTO invalidations (node) VALUES (?)', node);
  for (const hash of erasedKeys) store.run('INSERT INTO invalidations (erased_key) VALUES (?)', hash);
  store.run('DELETE FROM invalidations WHERE no <= (SELECT max(no) FROM invalidations) - ?', ROWS_KEPT);
}

interface Invalidated {
  readonly nodes: ReadonlySet<NodeNumber>;
  /** The first numbers of their keys in the runs of match keys. Others may have the same, so they only say where to look. */
  readonly erasedKeys: readonly number[];
}

interface Row {
  readonly no: number;
  readonly node: NodeNumber | null;
  readonly erased_key: number | null;
}

export class Invalidations {
  readonly #store: StoreConnection;
  /** Number of the last row that was read. */
  #last: number | undefined;

  constructor(store: StoreConnection) {
    this.#store = store;
  }

  /** What was invalidated since the last call; undefined if unknown: on the first call, or if rows are missing. */
  take(): Invalidated | undefined {
    const last = this.#last;
    if (last === undefined) {
      this.#last = this.#store.get<{ no: number | null }>('SELECT max(no) AS no FROM invalidations')?.no ?? 0;
      return undefined;
    }
    const rows = this.#store.all<Row>('SELECT no, node, erased_key FROM invalidations WHERE no > ? ORDER BY no', last);
    this.#last = rows.at(-1)?.no ?? last;
    if (rows.length !== this.#last - last) return undefined;
    return {
      nodes: new Set(rows.flatMap(({ node }) => node ?? [])),
      erasedKeys: rows.flatMap(({ erased_key }) => erased_key ?? []),
    };
  }
}

/** About 5 MB. */
const ERASED_HASHES_MAX = 100_000;

export class Tombstones {
  readonly #store: StoreConnection;
  /** Short hashes of the keys erased since `startOver`, perhaps of more. */
  readonly #erasedHashes = new Set<number>();
  /** Erases up to this time may be missing among the hashes: data received until then is looked up. */
  #incompleteUntil = Number.POSITIVE_INFINITY;

  constructor(store: StoreConnection) {
    this.#store = store;
  }

  /** Undefined if the key was not erased, or only before `receivedAt`. */
  erasedAt(tenant: Tenant, key: MatchKey, receivedAt: number): number | undefined {
    const isComplete = receivedAt > this.#incompleteUntil;
    const sql = 'SELECT erased_at FROM tombstones WHERE tenant = ? AND hash = ?';
    const times = spellingsOf(key).flatMap((spelling) => {
      if (isComplete && !this.#erasedHashes.has(this.#shortHashOf(tenant, spelling))) return [];
      return this.#store.get<{ erased_at: number }>(sql, tenant.no, tombstoneOf(tenant.id, spelling))?.erased_at ?? [];
    });
    return times.length === 0 ? undefined : Math.max(...times);
  }

  write(tenant: Tenant, tombstones: readonly Tombstone[]): void {
    const spelt = tombstones.flatMap(({ key, erasedAt }) =>
      spellingsOf(key).map((spelling) => ({ spelling, erasedAt })),
    );
    this.add(spelt.map(({ spelling }) => this.#shortHashOf(tenant, spelling)));
    const sql = `INSERT INTO tombstones VALUES (?, ?, ?)
      ON CONFLICT DO UPDATE SET erased_at = max(erased_at, excluded.erased_at)`;
    for (const { spelling, erasedAt } of spelt) {
      this.#store.run(sql, tenant.no, tombstoneOf(tenant.id, spelling), erasedAt);
    }
  }

  #shortHashOf(tenant: Tenant, key: NormalisedKey): number {
    return runKeyOf(this.#store.hashOf, tenant.no, key)[0];
  }

  /** The short hashes of keys that were erased since the last call. */
  add(shortHashes: readonly number[]): void {
    if (this.#erasedHashes.size + shortHashes.length > ERASED_HASHES_MAX) this.startOver();
    for (const hash of shortHashes) this.#erasedHashes.add(hash);
  }

  /** Within a transaction: all erases that are committed now count as unknown. */
  startOver(): void {
    this.forget();
    const sql = 'SELECT coalesce(max(last_erased_at), 0) AS newest FROM tenants';
    this.#incompleteUntil = this.#store.get<{ newest: number }>(sql)?.newest ?? 0;
  }

  /** Until `startOver`, every key is looked up. */
  forget(): void {
    this.#incompleteUntil = Number.POSITIVE_INFINITY;
    this.#erasedHashes.clear();
  }
}
