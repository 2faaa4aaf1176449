/**
 * Sorted runs with hashes as keys (views/keyed-hash.ts), which the writer reads and writes one by one, and their
 * memtable: a hash table of the entries of a transaction, written as a run with the commit (`flush`), or earlier when
 * there are many. An entry replaces a buffered one of the same key.
 */

import type { DatabaseSync } from 'node:sqlite';
import type { Rows } from '../../../columnar/column-block.ts';
import type { KeyHash } from '../../../views/keyed-hash.ts';
import { type Entry, NO_BYTES, RowsToWrite, type RunsShape } from './entries.ts';
import { type RunsSizes, SortedRuns } from './sorted-runs.ts';

/** When the memtable is full, its entries are written as a run. */
const MEMTABLE_ENTRIES_MAX = 131_072;
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

  get({ hash, rest }: KeyHash): Entry | undefined {
    return this.#memtable.get(hash, rest) ?? this.runs.get([hash, rest]);
  }

  set({ hash, rest }: KeyHash, values: readonly number[], bytes: Uint8Array = NO_BYTES): void {
    if (this.#memtable.isFull) this.flush();
    this.#memtable.set(hash, rest, values, bytes);
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

/** A hash table over the rows of the next run: open addressing, at most half full. */
class Memtable {
  readonly rows: RowsToWrite;
  readonly #keyColumns: number;
  /** The row of each slot plus one; 0 if it is free. */
  readonly #slots = new Int32Array(2 * MEMTABLE_ENTRIES_MAX);

  constructor({ keyColumns, valueColumns, hasBytes }: RunsShape) {
    this.#keyColumns = keyColumns;
    this.rows = new RowsToWrite(keyColumns + valueColumns, hasBytes, MEMTABLE_ENTRIES_MAX);
  }

  get isFull(): boolean {
    return this.rows.count >= MEMTABLE_ENTRIES_MAX;
  }

  get(hash: number, rest: number): Entry | undefined {
    const { columns, bytes, count } = this.rows;
    if (count === 0) return undefined;
    const row = (this.#slots[this.#slotOf(hash, rest)] as number) - 1;
    if (row < 0) return undefined;
    const values = columns.slice(this.#keyColumns).map((column) => column[row] as number);
    return { key: [hash, rest], values, bytes: bytes?.get(row) ?? NO_BYTES };
  }

  set(hash: number, rest: number, values: readonly number[], bytes: Uint8Array): void {
    const { rows } = this;
    const slot = this.#slotOf(hash, rest);
    let row = (this.#slots[slot] as number) - 1;
    if (row < 0) {
      row = rows.count++;
      this.#slots[slot] = row + 1;
      (rows.columns[0] as Float64Array)[row] = hash;
      (rows.columns[1] as Float64Array)[row] = rest;
      rows.bytes?.push(bytes);
    } else rows.bytes?.set(row, bytes);
    for (let column = 0; column < values.length; column++) {
      (rows.columns[this.#keyColumns + column] as Float64Array)[row] = values[column] as number;
    }
  }

  clear(): void {
    const { rows } = this;
    const mask = this.#slots.length - 1;
    if (rows.count > CLEARED_ONE_BY_ONE_MAX) this.#slots.fill(0);
    else {
      for (let row = 0; row < rows.count; row++) {
        let slot = (rows.columns[1]?.[row] as number) & mask;
        while (this.#slots[slot] !== row + 1) slot = (slot + 1) & mask;
        this.#slots[slot] = 0;
      }
    }
    rows.count = 0;
    rows.bytes?.clear();
  }

  /** The slot of the key, or the free one where it belongs. */
  #slotOf(hash: number, rest: number): number {
    const [hashes, rests] = this.rows.columns as [Float64Array, Float64Array];
    const mask = this.#slots.length - 1;
    for (let slot = rest & mask; ; slot = (slot + 1) & mask) {
      const row = (this.#slots[slot] as number) - 1;
      if (row < 0 || (hashes[row] === hash && rests[row] === rest)) return slot;
    }
  }
}
