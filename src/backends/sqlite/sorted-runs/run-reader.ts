/**
 * Reads sorted runs on any connection, one key or a range of them, and changes or removes single keys. Caches nothing.
 * The writer (sorted-runs.ts) is built on it.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { ColumnBlock, encodeBlock, type Rows } from '../../../columnar/column-block.ts';
import { damaged } from '../database.ts';
import { combineEntries, type Entry, NO_BYTES, RowsToWrite, type RunsShape } from './entries.ts';
import { bytesOf, compareKeys, type Key } from './keys.ts';

interface StoredBlock {
  readonly entries: Uint8Array;
  /** CRC-32 of the entries: SQLite notices damage in its page structure, not in their content. */
  readonly crc: number;
}

interface BlockRow extends StoredBlock {
  readonly no: number;
  readonly first: Uint8Array;
}

interface FirstAndEntries extends StoredBlock {
  readonly first: Uint8Array;
}

export class RunReader {
  protected readonly shape: RunsShape;
  protected readonly database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  constructor(database: DatabaseSync, shape: RunsShape) {
    this.database = database;
    this.shape = shape;
  }

  /** The runs of a group, or of all groups. */
  runNumbers(group: number | null = null): number[] {
    const { name } = this.shape;
    const rows =
      group === null
        ? this.prepared(`SELECT no FROM ${name}_runs ORDER BY no`).all()
        : this.prepared(`SELECT no FROM ${name}_runs WHERE group_no = ? ORDER BY no`).all(group);
    return rows.map((row) => row['no'] as number);
  }

  /** Searches a group, or the newest group that has the key: its entries in all runs, combined. */
  find(key: Key, group: number | null = null): Entry | undefined {
    const found: Entry[] = [];
    for (const entry of this.parts(key, group)) {
      if (this.shape.combine === undefined) return entry;
      found.push(entry);
    }
    return isAny(found) ? combineEntries(this.shape, found) : undefined;
  }

  /** The same, one entry per run. Iterate it at once: nothing else of this reader may be used meanwhile. */
  *parts(key: Key, group: number | null = null): Generator<Entry> {
    const { name } = this.shape;
    const sql = `SELECT group_no, blocks.entries, blocks.crc FROM ${name}_runs AS runs JOIN ${name}_blocks AS blocks ON blocks.no =
        (SELECT no FROM ${name}_blocks WHERE run = runs.no AND first <= ?2 ORDER BY first DESC LIMIT 1)
      WHERE ?1 IS NULL OR group_no = ?1 ORDER BY group_no DESC`;
    let newest: number | undefined;
    const rows = this.prepared(sql).iterate(group, bytesOf(key)) as unknown as Iterable<
      StoredBlock & { readonly group_no: number }
    >;
    for (const row of rows) {
      if (newest !== undefined && row.group_no !== newest) return;
      const entry = this.entryOf(row, key);
      if (entry === undefined) continue;
      newest = row.group_no;
      yield entry;
    }
  }

  protected findIn(run: number, key: Key): Entry | undefined {
    const row = this.blockOf(run, key);
    return row && this.entryOf(row, key);
  }

  protected entryOf(row: StoredBlock, key: Key): Entry | undefined {
    const block = this.decoded(row);
    const at = block.firstFrom(key);
    return at < block.count && block.compare(at, key) === 0 ? this.entryAt(block, at) : undefined;
  }

  /** The entries of a run with `from` <= key < `to`, in descending order. Both may be shorter than a key. */
  *descending(run: number, from: Key, to: Key): Generator<Entry> {
    const select = this.prepared(
      `SELECT first, entries, crc FROM ${this.shape.name}_blocks WHERE run = ? AND first < ? ORDER BY first DESC LIMIT 1`,
    );
    let below = bytesOf(to);
    for (;;) {
      const row = select.get(run, below) as FirstAndEntries | undefined;
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
    let row: FirstAndEntries | undefined = this.blockOf(run, from) ?? this.blockAfter(run, bytesOf(from));
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
    const sql = `SELECT no, group_no FROM ${this.shape.name}_runs`;
    const streams = this.prepared(sql)
      .all()
      .map((row) => {
        const entries = this.ascending(row['no'] as number, from, [Number.MAX_SAFE_INTEGER]);
        return { group: row['group_no'] as number, entries, next: entries.next().value as Entry | undefined };
      });
    for (;;) {
      let lowest: Entry | undefined;
      for (const { next } of streams) {
        if (next !== undefined && (lowest === undefined || compareKeys(next.key, lowest.key) < 0)) lowest = next;
      }
      if (lowest === undefined) return;
      const { key } = lowest;
      let newest = Number.NEGATIVE_INFINITY;
      let found: Entry[] = [];
      for (const stream of streams) {
        const { group, next } = stream;
        if (next === undefined || compareKeys(next.key, key) !== 0) continue;
        if (group > newest) [newest, found] = [group, [next]];
        else if (group === newest) found.push(next);
        stream.next = stream.entries.next().value as Entry | undefined;
      }
      if (isAny(found)) yield combineEntries(this.shape, found);
    }
  }

  /** Removes keys from all runs. Within a transaction of the caller. */
  remove(keys: readonly Key[], group: number | null = null): void {
    const inOrder = keys.toSorted(compareKeys);
    for (const run of this.runNumbers(group)) {
      for (let next = 0; next < inOrder.length; ) next = this.#removeFromBlock(run, inOrder, next);
    }
  }

  /** Removes the keys that are in the block of the first of them, `keys[from]`; returns the index of the next key. */
  #removeFromBlock(run: number, keys: readonly Key[], from: number): number {
    const row = this.blockOf(run, keys[from] as Key);
    if (row === undefined) return from + 1;
    const block = this.decoded(row);
    const rest = this.rowsFor(block.count);
    let next = from;
    let kept = 0;
    for (; next < keys.length; next++) {
      const key = keys[next] as Key;
      const at = block.firstFrom(key);
      if (at === block.count) break;
      if (at < kept || block.compare(at, key) !== 0) continue;
      this.append(rest, block, kept, at);
      kept = at + 1;
    }
    if (kept > 0) {
      this.append(rest, block, kept, block.count);
      this.rewrite(run, row.no, rest);
    }
    return Math.max(next, from + 1);
  }

  /** Changes the entry of a key in one of the runs that have it; false if none has. Like `remove`, for a few keys. */
  change(key: Key, changed: (entry: Entry) => Pick<Entry, 'values' | 'bytes'>, group: number | null = null): boolean {
    return this.runNumbers(group).some((run) => this.#changeIn(run, key, changed));
  }

  #changeIn(run: number, key: Key, changed: (entry: Entry) => Pick<Entry, 'values' | 'bytes'>): boolean {
    const row = this.blockOf(run, key);
    if (row === undefined) return false;
    const block = this.decoded(row);
    const at = block.firstFrom(key);
    if (at === block.count || block.compare(at, key) !== 0) return false;
    const entry = changed(this.entryAt(block, at));
    const rows = this.rowsFor(block.count);
    this.append(rows, block, 0, at);
    rows.add([...key, ...entry.values], entry.bytes);
    this.append(rows, block, at + 1, block.count);
    this.rewrite(run, row.no, rows);
    return true;
  }

  /** Replaces a block by other rows; removes it if there are none. */
  protected rewrite(run: number, no: number, rest: RowsToWrite): void {
    this.prepared(`DELETE FROM ${this.shape.name}_blocks WHERE no = ?`).run(no);
    if (rest.count > 0) this.writeBlock(run, rest, sameOrder(rest.count), 0, rest.count);
  }

  /** Returns the size of the block in bytes. */
  protected writeBlock(run: number, rows: Rows, order: Uint32Array, start: number, end: number): number {
    const first = rows.columns
      .slice(0, this.shape.keyColumns)
      .map((column) => column[order[start] as number] as number);
    const block = encodeBlock(rows, order, start, end);
    this.prepared(`INSERT INTO ${this.shape.name}_blocks (run, first, entries, crc) VALUES (?, ?, ?, ?)`).run(
      run,
      bytesOf(first),
      block,
      crc32(block),
    );
    return block.length;
  }

  /** The block that contains a key, if the run has it. */
  protected blockOf(run: number, key: Key): BlockRow | undefined {
    const sql = `SELECT no, first, entries, crc FROM ${this.shape.name}_blocks
      WHERE run = ? AND first <= ? ORDER BY first DESC LIMIT 1`;
    return this.prepared(sql).get(run, bytesOf(key)) as BlockRow | undefined;
  }

  /** The next block of a run, after the one that begins with `first`; without it, the first block. */
  protected blockAfter(run: number, first: Uint8Array = NO_BYTES): FirstAndEntries | undefined {
    const sql = `SELECT first, entries, crc FROM ${this.shape.name}_blocks WHERE run = ? AND first > ? ORDER BY first LIMIT 1`;
    return this.prepared(sql).get(run, first) as FirstAndEntries | undefined;
  }

  protected decoded({ entries, crc }: StoredBlock): ColumnBlock {
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

  rowsFor(count: number): RowsToWrite {
    return new RowsToWrite(this.shape.keyColumns + this.shape.valueColumns, this.shape.hasBytes, count);
  }

  protected append(rows: RowsToWrite, block: ColumnBlock, from: number, to: number): void {
    for (const [column, values] of rows.columns.entries()) block.copy(column, from, to, values, rows.count);
    if (rows.bytes !== null) block.copyBytes(from, to, rows.bytes);
    rows.count += to - from;
  }

  protected prepared(sql: string): StatementSync {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const statement = this.database.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }
}

export function sameOrder(count: number): Uint32Array {
  return Uint32Array.from({ length: count }, (_, at) => at);
}

function isAny<T>(list: readonly T[]): list is readonly [T, ...T[]] {
  return list.length > 0;
}
