/**
 * Sorted runs with their memtable: the entries of a transaction, in a hash table, written as a run with the commit
 * (`flush`), or earlier when there are many. An entry is combined with a buffered one of the same key, or replaces it.
 */

import type { DatabaseSync } from 'node:sqlite';
import type { Rows } from '../../../columnar/column-block.ts';
import { type Entry, RowsToWrite, type RunsShape } from './entries.ts';
import type { Key } from './keys.ts';
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
  readonly #groupOf: (rows: Rows) => number;
  readonly #memtable: Memtable;

  /** `groupOf` returns the group of the buffered entries. */
  constructor(database: DatabaseSync, shape: RunsShape, groupOf: (rows: Rows) => number, sizes?: RunsSizes) {
    this.runs = new SortedRuns(database, shape, sizes);
    this.#groupOf = groupOf;
    this.#memtable = new Memtable(shape);
  }

  /** Not for trees whose entries add up (profile deltas): a buffered entry is all that is returned. */
  get(key: Key): Entry | undefined {
    return this.#memtable.get(key) ?? this.runs.get(key);
  }

  put(key: Key, values: readonly number[], bytes: Uint8Array | string = ''): void {
    if (this.#memtable.isFull) this.flush();
    this.#memtable.put(key, values, bytes);
  }

  /** Call it before the transaction is committed. */
  flush(): void {
    const { rows } = this.#memtable;
    if (rows.count === 0) return;
    this.runs.put(this.#groupOf(rows), rows);
    this.#memtable.clear();
  }

  /** Drops what is buffered and cached; call it after a rollback. */
  forget(): void {
    this.#memtable.clear();
    this.runs.forget();
  }
}

/**
 * A hash table over the rows of the next run: open addressing, at most half full. The last number of a key must differ
 * enough between keys to be its hash.
 */
class Memtable {
  readonly rows: RowsToWrite;
  readonly #shape: RunsShape;
  /** The row of each slot plus one; 0 if it is free. */
  readonly #slots = new Int32Array(2 * MEMTABLE_ENTRIES_MAX);

  constructor(shape: RunsShape) {
    this.#shape = shape;
    this.rows = new RowsToWrite(shape.keyColumns + shape.valueColumns, shape.hasBytes, FIRST_ENTRIES);
  }

  get isFull(): boolean {
    return this.rows.count >= MEMTABLE_ENTRIES_MAX || (this.rows.bytes?.bytesUsed ?? 0) >= MEMTABLE_BYTES_MAX;
  }

  get(key: Key): Entry | undefined {
    const row = (this.#slots[this.#slotOf(key)] as number) - 1;
    return row < 0 ? undefined : this.rows.entryAt(row, this.#shape);
  }

  put(key: Key, values: readonly number[], bytes: Uint8Array | string): void {
    const { rows } = this;
    const slot = this.#slotOf(key);
    const row = (this.#slots[slot] as number) - 1;
    rows.add([...key, ...values], bytes);
    if (row < 0) {
      this.#slots[slot] = rows.count;
      return;
    }
    if (this.#shape.combine === undefined) rows.replace(row, rows.count - 1);
    else this.#shape.combine(rows, row, rows.count - 1);
    rows.removeLast();
  }

  clear(): void {
    const { rows } = this;
    if (rows.count > CLEARED_ONE_BY_ONE_MAX) this.#slots.fill(0);
    // Newest first, so that a key is found past those that came before it.
    else for (let row = rows.count - 1; row >= 0; row--) this.#slots[this.#slotOf(rows.keyAt(row, this.#shape))] = 0;
    rows.clear();
  }

  /** The slot of the key, or the free one where it belongs. */
  #slotOf(key: Key): number {
    const { columns } = this.rows;
    const mask = this.#slots.length - 1;
    for (let slot = (key.at(-1) as number) & mask; ; slot = (slot + 1) & mask) {
      const row = (this.#slots[slot] as number) - 1;
      if (row < 0 || key.every((value, column) => columns[column]?.[row] === value)) return slot;
    }
  }
}
