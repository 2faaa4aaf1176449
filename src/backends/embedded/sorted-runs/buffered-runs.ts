/**
 * Sorted runs with their memtable: the entries of a transaction, in a hash table, written as a run with the commit
 * (`flush`), or earlier when there are many. An entry is combined with a buffered one of the same key, or replaces it.
 */

import type { DatabaseSync } from 'node:sqlite';
import type { Rows } from '../../../columnar/column-block.ts';
import { type Entry, type Key, RowsToWrite, type RunsShape } from './entries.ts';
import { type RunsSizes, SortedRuns } from './sorted-runs.ts';

/** When the memtable is full, its entries are written as a run. */
const MEMTABLE_ENTRIES_MAX = 131_072;
/** Only people with megabytes of properties fill it before there are too many entries. */
const MEMTABLE_BYTES_MAX = 32 * 1024 * 1024;
const FIRST_ENTRIES = 16_384;
/** Up to this many entries are cleared one by one, which is faster than clearing all slots. */
const CLEARED_ONE_BY_ONE_MAX = 4_096;

export class BufferedRuns {
  readonly runs: SortedRuns;
  readonly #shape: RunsShape;
  readonly #groupOf: (rows: Rows) => number;
  /** The memtable: its rows, and a hash table over them with open addressing, at most half full. */
  readonly #rows: RowsToWrite;
  /** The row of each slot plus one; 0 if it is free. */
  readonly #slots = new Int32Array(2 * MEMTABLE_ENTRIES_MAX);

  /** `groupOf` returns the group of the buffered entries. */
  constructor(database: DatabaseSync, shape: RunsShape, groupOf: (rows: Rows) => number, sizes?: RunsSizes) {
    this.runs = new SortedRuns(database, shape, sizes);
    this.#shape = shape;
    this.#groupOf = groupOf;
    this.#rows = new RowsToWrite(shape, FIRST_ENTRIES);
  }

  /** Not for trees whose entries add up (profile deltas): a buffered entry is all that is returned. */
  get(key: Key): Entry | undefined {
    const row = (this.#slots[this.#slotOf(key)] as number) - 1;
    return row < 0 ? this.runs.get(key) : this.#rows.entryAt(row);
  }

  put(key: Key, values: readonly number[], bytes: Uint8Array | string = ''): void {
    const rows = this.#rows;
    if (rows.count >= MEMTABLE_ENTRIES_MAX || (rows.bytes?.bytesUsed ?? 0) >= MEMTABLE_BYTES_MAX) this.flush();
    const slot = this.#slotOf(key);
    const row = (this.#slots[slot] as number) - 1;
    rows.add(key, values, bytes);
    if (row < 0) {
      this.#slots[slot] = rows.count;
      return;
    }
    if (this.#shape.combine === undefined) rows.replace(row, rows.count - 1);
    else this.#shape.combine(rows, row, rows.count - 1);
    rows.removeLast();
  }

  /** Call it before the transaction is committed. */
  flush(): void {
    if (this.#rows.count === 0) return;
    this.runs.put(this.#groupOf(this.#rows), this.#rows);
    this.#clear();
  }

  /** Drops what is buffered and cached; call it after a rollback. */
  forget(): void {
    this.#clear();
    this.runs.forget();
  }

  #clear(): void {
    const rows = this.#rows;
    if (rows.count > CLEARED_ONE_BY_ONE_MAX) this.#slots.fill(0);
    // Newest first, so that a key is found past those that came before it.
    else for (let row = rows.count - 1; row >= 0; row--) this.#slots[this.#slotOf(rows.keyAt(row))] = 0;
    rows.clear();
  }

  /** The slot of the key, or the free one where it belongs. The last number of a key must serve as its hash. */
  #slotOf(key: Key): number {
    const { columns } = this.#rows;
    const mask = this.#slots.length - 1;
    for (let slot = (key.at(-1) as number) & mask; ; slot = (slot + 1) & mask) {
      const row = (this.#slots[slot] as number) - 1;
      if (row < 0) return slot;
      let column = 0;
      while (column < key.length && columns[column]?.[row] === key[column]) column++;
      if (column === key.length) return slot;
    }
  }
}
