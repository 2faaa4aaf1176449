/**
 * Sorted runs as their tables hold them, on any connection: reads one key or a range, and removes single keys. Caches
 * no data. The writer (sorted-runs.ts) is built on it. The tables of runs of one name:
 *
 *   NAME_runs     one row for each run
 *   NAME_blocks   the entries of a run in order, up to `blockRows` per row (columnar/column-block.ts), found by the
 *                 first key of the row; an entry with many bytes has a row of its own
 *   NAME_filters  the Bloom filters of a run; one for each part of it that was written at once
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { ColumnBlock, encodeBlock, NO_BYTES, type Rows } from '../../../columnar/column-block.ts';
import { damaged } from '../database.ts';
import { merged } from '../merged.ts';
import {
  combineEntries,
  compareKeys,
  encodeKey,
  type Entry,
  type Key,
  RowsToWrite,
  type RunsShape,
} from './entries.ts';

/** With the `name` and `hasFilters` of the `RunsShape`. */
export function sortedRunsSchema(name: string, hasFilters = true): string {
  const filters = `
    CREATE TABLE ${name}_filters (
      no     INTEGER PRIMARY KEY,
      run    INTEGER NOT NULL,
      first  INTEGER NOT NULL,
      filter BLOB    NOT NULL
    ) STRICT;
    CREATE INDEX ${name}_filters_by_run ON ${name}_filters (run, first);`;
  return `
    CREATE TABLE ${name}_runs (
      group_no    INTEGER NOT NULL,
      no          INTEGER NOT NULL,
      bytes       INTEGER NOT NULL,
      merged_into INTEGER,
      PRIMARY KEY (group_no, no)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE ${name}_blocks (
      no      INTEGER PRIMARY KEY,
      run     INTEGER NOT NULL,
      first   BLOB    NOT NULL,
      entries BLOB    NOT NULL,
      crc     INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX ${name}_blocks_by_first ON ${name}_blocks (run, first);
    ${hasFilters ? filters : ''}`;
}

export interface ListedRun {
  readonly no: number;
  readonly group: number;
}

interface BlockRow {
  readonly no: number;
  readonly first: Uint8Array;
  readonly entries: Uint8Array;
  /** CRC-32 of the entries: SQLite notices damage in its page structure, not in their content. */
  readonly crc: number;
}

export class StoredRuns {
  protected readonly shape: RunsShape;
  protected readonly database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  constructor(database: DatabaseSync, shape: RunsShape) {
    this.database = database;
    this.shape = shape;
  }

  /** The runs of a group, or of all groups, newest group first. */
  listRuns(group: number | null = null): readonly ListedRun[] {
    const sql = `SELECT no, group_no AS "group" FROM ${this.shape.name}_runs
      WHERE ?1 IS NULL OR group_no = ?1 ORDER BY group_no DESC, no`;
    return this.prepared(sql).all(group) as unknown as readonly ListedRun[];
  }

  /** The runs that may have the key, newest group first. Here all of them; the writer uses its Bloom filters. */
  protected runsToSearch(_key: Key): readonly ListedRun[] {
    return this.listRuns();
  }

  /** Searches the newest group that has the key: its entries in all runs, combined. */
  get(key: Key): Entry | undefined {
    return combineEntries(this.shape, this.entriesByRun(key));
  }

  /** The entries that `get` combines: those of the newest group that has the key, one per run. */
  entriesByRun(key: Key): readonly Entry[] {
    const found: Entry[] = [];
    let newest: number | undefined;
    for (const run of this.runsToSearch(key)) {
      if (newest !== undefined && run.group !== newest) break;
      const entry = this.#getIn(run.no, key);
      if (entry === undefined) continue;
      found.push(entry);
      if (this.shape.combine === undefined) break;
      newest = run.group;
    }
    return found;
  }

  #getIn(run: number, key: Key): Entry | undefined {
    const row = this.#blockOf(run, key);
    if (row === undefined) return undefined;
    const block = this.decoded(row);
    const at = block.firstFrom(key);
    return at < block.count && block.compare(at, key) === 0 ? this.entryAt(block, at) : undefined;
  }

  /** The entries of a run with `from` <= key < `to`, in descending order. Both may be shorter than a key. */
  *descending(run: number, from: Key, to: Key): Generator<Entry> {
    for (let below = encodeKey(to); ; ) {
      const row = this.#block('first < ? ORDER BY first DESC', run, below);
      if (row === undefined) return;
      const block = this.decoded(row);
      for (let at = block.firstFrom(to) - 1; at >= 0; at--) {
        if (block.compare(at, from) < 0) return;
        yield this.entryAt(block, at);
      }
      below = row.first;
    }
  }

  /** The same, in ascending order. */
  *ascending(run: number, from: Key, to: Key): Generator<Entry> {
    let row = this.#blockOf(run, from) ?? this.blockAfter(run, encodeKey(from));
    for (; row !== undefined; row = this.blockAfter(run, row.first)) {
      const block = this.decoded(row);
      for (let at = block.firstFrom(from); at < block.count; at++) {
        if (block.compare(at, to) >= 0) return;
        yield this.entryAt(block, at);
      }
    }
  }

  /** All entries from a key on, over all runs and in order; if several groups have a key, those of the newest. */
  *all(from: Key): Generator<Entry> {
    // Newest group first, so its entries of a key come first.
    const streams = this.listRuns().map(({ no, group }) =>
      this.ascending(no, from, [Number.MAX_SAFE_INTEGER]).map((entry) => ({ group, entry })),
    );
    let found: Entry[] = [];
    let newest = 0;
    for (const { group, entry } of merged(streams, (a, b) => compareKeys(a.entry.key, b.entry.key))) {
      if (found[0] !== undefined && compareKeys(found[0].key, entry.key) !== 0) {
        yield combineEntries(this.shape, found) as Entry;
        found = [];
      }
      if (found.length === 0) newest = group;
      if (group === newest) found.push(entry);
    }
    if (found.length > 0) yield combineEntries(this.shape, found) as Entry;
  }

  /** Removes keys from all runs: their entries that `isRemoved` names. Within a transaction of the caller. */
  remove(keys: readonly Key[], group: number | null = null, isRemoved: (entry: Entry) => boolean = () => true): void {
    const inOrder = keys.toSorted(compareKeys);
    for (const { no } of this.listRuns(group)) {
      for (let next = 0; next < inOrder.length; ) next = this.#removeFromBlock(no, inOrder, next, isRemoved);
    }
  }

  /** Removes the keys that are in the block of the first of them, `keys[from]`; returns the index of the next key. */
  #removeFromBlock(run: number, keys: readonly Key[], from: number, isRemoved: (entry: Entry) => boolean): number {
    const row = this.#blockOf(run, keys[from] as Key);
    if (row === undefined) return from + 1;
    const block = this.decoded(row);
    const rest = new RowsToWrite(this.shape, block.count);
    let next = from;
    let kept = 0;
    for (; next < keys.length; next++) {
      const key = keys[next] as Key;
      const at = block.firstFrom(key);
      if (at === block.count) break;
      if (at < kept || block.compare(at, key) !== 0 || !isRemoved(this.entryAt(block, at))) continue;
      this.append(rest, block, kept, at);
      kept = at + 1;
    }
    if (kept > 0) {
      this.append(rest, block, kept, block.count);
      this.prepared(`DELETE FROM ${this.shape.name}_blocks WHERE no = ?`).run(row.no);
      if (rest.count > 0) this.writeBlock(run, rest, rowOrder(rest.count), 0, rest.count);
    }
    return Math.max(next, from + 1);
  }

  /** Returns the size of the block in bytes. */
  protected writeBlock(run: number, rows: Rows, order: Uint32Array, start: number, end: number): number {
    const first = rows.columns
      .slice(0, this.shape.keyColumns)
      .map((column) => column[order[start] as number] as number);
    const block = encodeBlock(rows, order, start, end);
    this.prepared(`INSERT INTO ${this.shape.name}_blocks (run, first, entries, crc) VALUES (?, ?, ?, ?)`).run(
      run,
      encodeKey(first),
      block,
      crc32(block),
    );
    return block.length;
  }

  /** The block that contains a key, if the run has it. */
  #blockOf(run: number, key: Key): BlockRow | undefined {
    return this.#block('first <= ? ORDER BY first DESC', run, encodeKey(key));
  }

  /** The next block of a run, after the one that begins with `first`; without it, the first block. */
  protected blockAfter(run: number, first: Uint8Array = NO_BYTES): BlockRow | undefined {
    return this.#block('first > ? ORDER BY first', run, first);
  }

  #block(which: string, run: number, first: Uint8Array): BlockRow | undefined {
    const sql = `SELECT no, first, entries, crc FROM ${this.shape.name}_blocks WHERE run = ? AND ${which} LIMIT 1`;
    return this.prepared(sql).get(run, first) as BlockRow | undefined;
  }

  protected decoded({ entries, crc }: BlockRow): ColumnBlock {
    if (crc32(entries) !== crc) throw damaged(`a block of ${this.shape.name} is not what was written`);
    return new ColumnBlock(entries, this.shape.keyColumns + this.shape.valueColumns, this.shape.hasBytes);
  }

  protected entryAt(block: ColumnBlock, row: number): Entry {
    const { keyColumns, valueColumns } = this.shape;
    const [key, values]: [number[], number[]] = [[], []];
    for (let column = 0; column < keyColumns + valueColumns; column++) {
      (column < keyColumns ? key : values).push(block.value(column, row));
    }
    return { key, values, bytes: block.bytes(row) };
  }

  protected append(rows: RowsToWrite, block: ColumnBlock, from: number, to: number): void {
    for (const [column, values] of rows.columns.entries()) block.copy(column, from, to, values, rows.count);
    if (rows.bytes !== null) for (let row = from; row < to; row++) rows.bytes.push(block.bytes(row));
    rows.count += to - from;
  }

  protected prepared(sql: string): StatementSync {
    return this.#statements.getOrInsertComputed(sql, () => this.database.prepare(sql));
  }
}

/** For rows that are sorted already: the order in which they are. */
export function rowOrder(count: number): Uint32Array {
  return Uint32Array.from({ length: count }, (_, at) => at);
}
