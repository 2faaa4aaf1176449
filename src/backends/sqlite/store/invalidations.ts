/**
 * Which nodes erases and unmerges have changed: the table `invalidations`. An erase or an unmerge adds all nodes of the
 * profile in its own transaction; the writer, which caches identities, reads them before its next transaction and drops
 * those nodes alone.
 *
 * Invariant: rows have consecutive numbers, and only the oldest are removed. A reader that remembers the last number it
 * has read therefore notices when it has missed some. Limit: `ROWS_KEPT` rows; a reader that is further behind has to
 * clear its caches.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { NodeNumber } from '../../../model.ts';
import type { StoreConnection } from './connection.ts';

/**
 * A profile has at most 100 nodes: at least the last 100 erases and unmerges, of which few fit between two
 * transactions.
 */
export const ROWS_KEPT = 10_000;

/** Call it in the transaction of the erase or unmerge. */
export function invalidate(store: StoreConnection, nodes: readonly NodeNumber[]): void {
  for (const node of nodes) store.run('INSERT INTO invalidations (node) VALUES (?)', node);
  store.run('DELETE FROM invalidations WHERE no <= (SELECT max(no) FROM invalidations) - ?', ROWS_KEPT);
}

export class Invalidations {
  readonly #newest: StatementSync;
  readonly #since: StatementSync;
  /** Number of the last row that was read. */
  #last: number | undefined;

  constructor(database: DatabaseSync) {
    this.#newest = database.prepare('SELECT coalesce(max(no), 0) AS no FROM invalidations');
    this.#since = database.prepare('SELECT no, node FROM invalidations WHERE no > ? ORDER BY no');
  }

  /** Nodes invalidated since the last call; undefined if unknown: on the first call, or if rows are missing. */
  take(): Set<NodeNumber> | undefined {
    const last = this.#last;
    if (last === undefined) {
      this.#last = this.#newest.get()?.no as number;
      return undefined;
    }
    const rows = this.#since.all(last) as unknown as readonly { readonly no: number; readonly node: NodeNumber }[];
    this.#last = rows.at(-1)?.no ?? last;
    return rows.length === this.#last - last ? new Set(rows.map(({ node }) => node)) : undefined;
  }
}
