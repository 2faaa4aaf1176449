/**
 * The content of sorted runs: entries of a key, values and bytes, all of one shape. Many entries at once are rows:
 * numbers in columns, bytes in one piece of memory. As an object for each of hundreds of thousands of entries they
 * would cause most of the garbage collector's work.
 */

import { ByteColumn, doubled } from '../../../columnar/byte-column.ts';
import { NO_BYTES, type Rows } from '../../../columnar/column-block.ts';

/** A few integers. `encodeKey` makes bytes of them that sort alike, so that SQLite finds blocks by them. */
export type Key = readonly number[];

export interface Entry {
  readonly key: Key;
  readonly values: readonly number[];
  /** Empty for entries without bytes. */
  readonly bytes: Uint8Array;
}

/** The layout of the runs of one name, the same for every connection. */
export interface RunsShape {
  /** The prefix of its tables. */
  readonly name: string;
  readonly keyColumns: number;
  readonly valueColumns: number;
  readonly hasBytes: boolean;
  /** Whether runs have Bloom filters: for keys that begin with two hashes, and are looked up one by one. */
  readonly hasFilters: boolean;
  /** Merges another row of the same key into the row `into`; the order must not matter. Without it, keys are unique. */
  readonly combine?: (rows: RowsToWrite, into: number, other: number) => void;
}

export class RowsToWrite implements Rows {
  columns: readonly Float64Array[];
  readonly bytes: ByteColumn | null;
  count = 0;
  readonly #keyColumns: number;

  constructor({ keyColumns, valueColumns, hasBytes }: RunsShape, capacity: number) {
    this.columns = Array.from({ length: keyColumns + valueColumns }, () => new Float64Array(capacity));
    this.bytes = hasBytes ? new ByteColumn() : null;
    this.#keyColumns = keyColumns;
  }

  /** A text becomes UTF-8. */
  add(key: Key, values: readonly number[], bytes: Uint8Array | string): void {
    if (this.count === this.columns[0]?.length) this.columns = this.columns.map(doubled);
    this.#set(0, key);
    this.#set(key.length, values);
    this.bytes?.push(bytes);
    this.count++;
  }

  #set(firstColumn: number, values: readonly number[]): void {
    for (let at = 0; at < values.length; at++) {
      (this.columns[firstColumn + at] as Float64Array)[this.count] = values[at] as number;
    }
  }

  keyAt(row: number): Key {
    return this.columns.slice(0, this.#keyColumns).map((column) => column[row] as number);
  }

  entryAt(row: number): Entry {
    const values = this.columns.slice(this.#keyColumns).map((column) => column[row] as number);
    return { key: this.keyAt(row), values, bytes: this.bytes?.get(row) ?? NO_BYTES };
  }

  /** Replaces the values and bytes of a row by those of another. */
  replace(row: number, by: number): void {
    for (const column of this.columns) column[row] = column[by] as number;
    this.bytes?.replace(row, by);
  }

  removeLast(): void {
    this.count--;
    this.bytes?.removeLast();
  }

  clear(): void {
    this.count = 0;
    this.bytes?.clear();
  }
}

/** Combines entries of one key; undefined if there are none. */
export function combineEntries(shape: RunsShape, entries: readonly Entry[]): Entry | undefined {
  if (entries.length <= 1) return entries[0];
  if (shape.combine === undefined) throw new Error(`${shape.name} has a key twice, which cannot be combined`);
  const rows = new RowsToWrite(shape, entries.length);
  for (const { key, values, bytes } of entries) rows.add(key, values, bytes);
  for (let other = 1; other < entries.length; other++) shape.combine(rows, 0, other);
  return rows.entryAt(0);
}

export function compareKeys(one: Key, other: Key): number {
  for (const [column, value] of one.entries()) {
    const difference = value - (other[column] as number);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** The smallest key after this one: keys are integers. */
export function nextKey(key: Key): Key {
  return [...key.slice(0, -1), (key.at(-1) as number) + 1];
}

const WORD = 2 ** 32;
const SIGN = 2 ** 31;
const NUMBER_BYTES = 8;

/** As bytes that sort like the numbers. A shorter key sorts before all that begin with it. */
export function encodeKey(key: Key): Uint8Array {
  const bytes = Buffer.allocUnsafe(key.length * NUMBER_BYTES);
  for (let column = 0, at = 0; column < key.length; column++, at += NUMBER_BYTES) {
    const value = key[column] as number;
    const high = Math.floor(value / WORD);
    bytes.writeUInt32BE(high + SIGN, at);
    bytes.writeUInt32BE(value - high * WORD, at + 4);
  }
  return bytes;
}
