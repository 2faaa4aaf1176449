/**
 * Keeps the filter of keys (key-filter.ts) true for the writer. A small store's keys it reads itself; those of a large one come
 * from another thread (people-reading.ts). Nobody else inserts keys; should somebody do it all the same, then not without
 * writing records, and the filter is given up.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { KeyFilter } from './key-filter.ts';
import { PEOPLE_MIN } from './people-reading.ts';

export class FilterCare {
  readonly #filter: KeyFilter;
  readonly #keys: StatementSync;
  /** The number of the next record as of the last commit; undefined before the first transaction. */
  #committed: number | undefined;

  constructor(database: DatabaseSync, filter: KeyFilter) {
    this.#filter = filter;
    this.#keys = database.prepare('SELECT hash, rest FROM match_keys');
  }

  /** In a transaction, with the numbers that come next as they are in the file. */
  begun(next: { readonly node: number; readonly record: number }): void {
    if (this.#committed === undefined) {
      this.#committed = next.record;
      if (next.node < PEOPLE_MIN) this.#fill();
    } else if (this.#committed !== next.record) this.#filter.giveUp();
  }

  committed(nextRecord: number): void {
    this.#committed = nextRecord;
  }

  #fill(): void {
    for (const { hash, rest } of this.#keys.all()) this.#filter.add({ hash: hash as number, rest: rest as number });
    this.#filter.complete([]);
  }
}
