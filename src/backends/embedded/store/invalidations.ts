/**
 * Which nodes erases and unmerges have changed, and the short hashes of erased match keys: the table `invalidations`. An
 * erase or an unmerge adds all nodes of the profile in its own transaction; the writer, which caches identities, reads
 * them before its next transaction and drops those nodes alone.
 *
 * Invariant: rows have consecutive numbers, and only the oldest are removed. A reader that remembers the last number it
 * has read therefore notices when it has missed some. Limit: `ROWS_KEPT` rows; a reader that is further behind has to
 * clear its caches.
 */

import type { NodeNumber } from '../../../model.ts';
import type { StoreConnection } from './connection.ts';

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
  /** Short hashes (`tombstones.ts`). */
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
