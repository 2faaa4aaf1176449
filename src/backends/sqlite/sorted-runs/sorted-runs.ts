/**
 * A log-structured merge tree on SQLite. Entries are put as a whole run, sorted by key, instead of into a B-tree one by
 * one: that costs a tenth, and stays so however much is stored. Whoever looks for a key looks into every run; so runs are
 * merged when there are many of about one size, and a run may have a Bloom filter in memory, which says of nearly every
 * key that is not there that it is not.
 *
 * A key is a few whole numbers, and so are the values that come with it; an entry may have bytes, too. Keys differ, over
 * all runs of a group, or `combine` makes one entry of two; in which order must not matter to it. Runs of different
 * groups (days, tables of events) are never merged, so that a group can be dropped.
 *
 * Merging is done bit by bit: with every run that is put some times as many bytes are moved on in each merge that is
 * under way, in the caller's transaction, from runs that become empty to one that grows. So it costs the same again and
 * again, never a lot at once; after a crash it goes on where the last commit left it.
 *
 *   NAME_runs     one row for each run
 *   NAME_blocks   the entries of a run in order, some dozens or a hundred in a row (columnar/column-block.ts), found by
 *                 their first key; an entry with many bytes has a row of its own
 *   NAME_filters  the Bloom filters of a run; one for each part of it that was written at once
 *
 * How much is merged, and which runs are about as large, goes by bytes: entries may have megabytes of them.
 *
 * One connection puts, merges and drops. Others may read (`RunReader`), and change or remove entries.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { ByteColumn } from '../../../columnar/byte-column.ts';
import { ColumnBlock, encodeBlock, type Rows } from '../../../columnar/column-block.ts';
import { sortedOrder } from '../../../columnar/sorted-order.ts';
import { BloomFilter } from './bloom-filter.ts';
import { damaged } from '../database.ts';

export type Key = readonly number[];

export interface Entry {
  readonly key: Key;
  readonly values: readonly number[];
  /** Empty where entries have none. */
  readonly bytes: Uint8Array;
}

/** What is stored under one name, the same for everybody who opens it. */
export interface RunsShape {
  /** Its tables begin with it. */
  readonly name: string;
  readonly keyColumns: number;
  readonly valueColumns: number;
  readonly hasBytes: boolean;
  /** For keys that begin with two hashes, and are looked for one by one. */
  readonly hasFilters: boolean;
  /** What two entries of one key amount to, whichever came first. Without it, keys differ. */
  readonly combine?: (one: Entry, other: Entry) => Entry;
}

export interface RunsSizes {
  /** So many runs of about one size are merged into one. */
  readonly fanOut?: number;
  /** So few that finding one entry is quick, so many that a row of SQLite costs little an entry. */
  readonly blockRows?: number;
  /** Of the bytes that entries have, in a block of several. */
  readonly blockBytes?: number;
  /** The least that is merged with a run that is put. */
  readonly mergedBytesMin?: number;
  /** Of all filters in memory. A run beyond it is looked into on the disk. */
  readonly filterBytesMax?: number;
}

/**
 * Few, since every look-up that finds nothing asks the filter of every run, and merging is cheap: with 16 instead of 4, putting
 * a hash takes half as long, and looking for one twice as long.
 */
const FAN_OUT = 4;
const BLOCK_ROWS = 128;
/** So that a block fits a page of the store. */
const BLOCK_BYTES = 7_000;
const MERGED_BYTES_MIN = 64 * 1024;
/** Of blocks that are in memory at once, but for entries that are larger. */
const MERGED_AT_ONCE_BYTES = 4 * 1024 * 1024;
const FILTER_BYTES_MAX = 64 * 1024 * 1024;
/** Smaller runs are all of the lowest level. */
const LOWEST_LEVEL_BYTES = 16 * 1024;
/** For each byte that is put, in each merge. More than one, or merges would not end before the next begins. */
const MERGED_PER_PUT = 4;

/** As `RunsShape` says. */
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

export function dropSortedRunsSchema(name: string): string {
  return `DROP TABLE ${name}_runs; DROP TABLE ${name}_blocks; DROP TABLE IF EXISTS ${name}_filters;`;
}

interface StoredBlock {
  readonly entries: Uint8Array;
  /** CRC-32 of them: SQLite notices damage in its pages, not in what lies on them. */
  readonly crc: number;
}

interface BlockRow extends StoredBlock {
  readonly no: number;
  readonly first: Uint8Array;
}

interface FirstAndEntries extends StoredBlock {
  readonly first: Uint8Array;
}

/** Reads runs, on any connection, and takes keys out of them. Keeps nothing in memory. */
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

  /** Of a group, or of the newest group that has the key: its entries in all runs, combined. */
  find(key: Key, group: number | null = null): Entry | undefined {
    let found: Entry | undefined;
    for (const entry of this.parts(key, group)) {
      if (this.shape.combine === undefined) return entry;
      found = found === undefined ? entry : this.shape.combine(found, entry);
    }
    return found;
  }

  /** The same, as each run has it. To be gone through at once: nothing else of this reader may be used meanwhile. */
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

  /** The entries of a run with `from` <= key < `to`, the last of them first. Both may be shorter than a key. */
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

  /** The same, in order. */
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

  /** All entries from a key on, over all runs and in order; of several groups that have a key, those of the newest. */
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
      let found: { readonly group: number; readonly entry: Entry } | undefined;
      for (const stream of streams) {
        const { group, next } = stream;
        if (next === undefined || compareKeys(next.key, key) !== 0) continue;
        if (found === undefined || group > found.group) found = { group, entry: next };
        else if (group === found.group) found = { group, entry: combinedIn(this.shape, found.entry, next) };
        stream.next = stream.entries.next().value as Entry | undefined;
      }
      if (found !== undefined) yield found.entry;
    }
  }

  /** Takes keys out, in whichever runs they are. Within a transaction of the caller. */
  remove(keys: readonly Key[], group: number | null = null): void {
    const inOrder = keys.toSorted(compareKeys);
    for (const run of this.runNumbers(group)) {
      for (let next = 0; next < inOrder.length; ) next = this.#removeFromBlock(run, inOrder, next);
    }
  }

  /** Takes out those that lie in the block of the first of them, `keys[from]`; gives which key comes next. */
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

  /** Changes the entry of a key in one of the runs that have it; false where none has. As `remove`, for a few keys. */
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

  /** Puts what is left of a block in its place. */
  protected rewrite(run: number, no: number, rest: RowsToWrite): void {
    this.prepared(`DELETE FROM ${this.shape.name}_blocks WHERE no = ?`).run(no);
    if (rest.count > 0) this.writeBlock(run, rest, sameOrder(rest.count), 0, rest.count);
  }

  /** Gives how many bytes it has. */
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

  /** The block that has a key, if the run has it. */
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

function combinedIn({ combine, name }: RunsShape, one: Entry, other: Entry): Entry {
  if (combine === undefined) throw new Error(`${name} has a key twice, which cannot be combined`);
  return combine(one, other);
}

/** Rows that are gathered to be written. */
export class RowsToWrite implements Rows {
  columns: readonly Float64Array[];
  readonly bytes: ByteColumn | null;
  count = 0;

  constructor(columns: number, hasBytes: boolean, capacity: number) {
    this.columns = Array.from({ length: columns }, () => new Float64Array(capacity));
    this.bytes = hasBytes ? new ByteColumn() : null;
  }

  add(values: readonly number[], bytes: Uint8Array): void {
    this.#add(values);
    this.bytes?.push(bytes);
  }

  addText(values: readonly number[], text: string): void {
    this.#add(values);
    this.bytes?.pushText(text);
  }

  #add(values: readonly number[]): void {
    if (this.count === this.columns[0]?.length) this.columns = this.columns.map(doubled);
    for (let column = 0; column < values.length; column++) {
      (this.columns[column] as Float64Array)[this.count] = values[column] as number;
    }
    this.count++;
  }

  entryAt(row: number, { keyColumns, valueColumns }: RunsShape): Entry {
    const [key, values]: [number[], number[]] = [[], []];
    for (let column = 0; column < keyColumns + valueColumns; column++) {
      (column < keyColumns ? key : values).push((this.columns[column] as Float64Array)[row] as number);
    }
    return { key, values, bytes: this.bytes?.get(row) ?? NO_BYTES };
  }

  /** Makes one row of it and another entry of its key. */
  combine(row: number, other: Entry, shape: RunsShape): void {
    const before = this.entryAt(row, shape);
    const { values, bytes } = combinedIn(shape, before, other);
    for (let column = 0; column < values.length; column++) {
      (this.columns[shape.keyColumns + column] as Float64Array)[row] = values[column] as number;
    }
    if (bytes !== before.bytes) this.bytes?.set(row, bytes);
  }

  clear(): void {
    this.count = 0;
    this.bytes?.clear();
  }
}

function doubled(column: Float64Array): Float64Array {
  const larger = new Float64Array(Math.max(1, 2 * column.length));
  larger.set(column);
  return larger;
}

interface FilterPart {
  /** The first number of its first key. */
  readonly first: number;
  readonly filter: BloomFilter;
}

interface Run {
  readonly no: number;
  readonly group: number;
  bytes: number;
  /** The run that takes over its entries, one part after the other. */
  mergedInto: number | null;
  /** Keys that begin with a lower number have been taken over, as far as this process knows. */
  from: number;
  /** In the order of their keys; null where they are not in memory. */
  filters: FilterPart[] | null;
}

export class SortedRuns extends RunReader {
  readonly #fanOut: number;
  readonly #blockRows: number;
  readonly #blockBytes: number;
  readonly #mergedBytesMin: number;
  readonly #filterBytesMax: number;
  /** Newest group first; undefined until they were read. */
  #runs: Run[] | undefined;
  #filterBytes = 0;

  constructor(database: DatabaseSync, shape: RunsShape, sizes: RunsSizes = {}) {
    super(database, shape);
    this.#fanOut = sizes.fanOut ?? FAN_OUT;
    this.#blockRows = sizes.blockRows ?? BLOCK_ROWS;
    this.#blockBytes = sizes.blockBytes ?? BLOCK_BYTES;
    this.#mergedBytesMin = sizes.mergedBytesMin ?? MERGED_BYTES_MIN;
    this.#filterBytesMax = sizes.filterBytesMax ?? FILTER_BYTES_MAX;
  }

  /** After a rollback: what was written is not there. */
  forget(): void {
    this.#runs = undefined;
    this.#filterBytes = 0;
  }

  get count(): number {
    return this.#known().length;
  }

  /** Of the newest group that has the key. */
  get(key: Key): Entry | undefined {
    const { combine } = this.shape;
    const [hash = 0, rest = 0] = key;
    let found: Entry | undefined;
    let group = 0;
    for (const run of this.#known()) {
      if (found !== undefined && run.group !== group) break;
      if (hash < run.from || (run.filters !== null && !mayHave(run.filters, hash, rest))) continue;
      const entry = this.findIn(run.no, key);
      if (entry === undefined) continue;
      if (combine === undefined) return entry;
      found = found === undefined ? entry : combine(found, entry);
      group = run.group;
    }
    return found;
  }

  /** Writes a run, and merges some. Within a transaction of the caller; the keys of the rows differ. */
  put(group: number, rows: Rows): void {
    if (rows.count === 0) return;
    const run = this.#create(group);
    this.#writePart(run, rows, sortedOrder(rows.columns.slice(0, this.shape.keyColumns), rows.count), rows.count);
    this.#storeBytes(run);
    this.merge(run.bytes);
  }

  /** Whether there are merges to go on with. */
  get isMerging(): boolean {
    return this.#known().some(({ mergedInto }) => mergedInto !== null);
  }

  /** Goes on with every merge, by so many bytes and some more. */
  merge(bytes: number): void {
    this.#beginMerges();
    const outputs = new Set(this.#known().flatMap(({ mergedInto }) => mergedInto ?? []));
    for (const output of outputs) {
      for (let left = Math.max(this.#mergedBytesMin, MERGED_PER_PUT * bytes); left > 0; ) {
        const moved = this.#mergePart(output, Math.min(left, MERGED_AT_ONCE_BYTES));
        if (moved === 0) break;
        left -= moved;
      }
    }
    // What has become one run may be the last that another merge waited for.
    this.#beginMerges();
  }

  /** Which groups there are, oldest first. */
  groups(): number[] {
    return [...new Set(this.#known().map(({ group }) => group))].sort((a, b) => a - b);
  }

  /** Removes at most so many blocks of a group; true while there are more. Until then, some of its entries are found. */
  drop(group: number, blocksMax: number): boolean {
    const { name } = this.shape;
    let left = blocksMax;
    // Oldest first: a run that others are merged into goes after them.
    const oldestFirst = this.#known().filter((one) => one.group === group);
    for (const run of oldestFirst.sort((a, b) => a.no - b.no)) {
      const sql = `DELETE FROM ${name}_blocks WHERE no IN (SELECT no FROM ${name}_blocks WHERE run = ? LIMIT ?)`;
      left -= Number(this.prepared(sql).run(run.no, left).changes);
      if (left <= 0) return true;
      this.#removeRun(run);
    }
    return false;
  }

  #known(): Run[] {
    this.#runs ??= this.#load();
    return this.#runs;
  }

  /** Filters of the newest runs first, as many as memory may take. */
  #load(): Run[] {
    const { name } = this.shape;
    const rows = this.database
      .prepare(`SELECT no, group_no, bytes, merged_into FROM ${name}_runs ORDER BY group_no DESC, no DESC`)
      .all();
    const runs = rows.map((row) => ({
      no: row['no'] as number,
      group: row['group_no'] as number,
      bytes: row['bytes'] as number,
      mergedInto: row['merged_into'] as number | null,
      from: Number.NEGATIVE_INFINITY,
      filters: null as FilterPart[] | null,
    }));
    if (!this.shape.hasFilters) return runs;
    const size = this.database.prepare(`SELECT sum(octet_length(filter)) AS bytes FROM ${name}_filters WHERE run = ?`);
    const select = this.database.prepare(`SELECT first, filter FROM ${name}_filters WHERE run = ? ORDER BY first, no`);
    for (const run of runs) {
      const bytes = (size.get(run.no)?.['bytes'] as number | null) ?? 0;
      if (this.#filterBytes + bytes > this.#filterBytesMax) continue;
      this.#filterBytes += bytes;
      run.filters = select.all(run.no).map(({ first, filter }) => ({
        first: first as number,
        filter: new BloomFilter(filter as Uint8Array),
      }));
    }
    return runs;
  }

  #create(group: number): Run {
    const { name } = this.shape;
    const runs = this.#known();
    const no = runs.reduce((highest, run) => Math.max(highest, run.no), 0) + 1;
    this.prepared(`INSERT INTO ${name}_runs VALUES (?, ?, 0, NULL)`).run(group, no);
    const run = {
      no,
      group,
      bytes: 0,
      mergedInto: null,
      from: Number.NEGATIVE_INFINITY,
      filters: this.shape.hasFilters ? [] : null,
    };
    const at = runs.findIndex((other) => other.group <= group);
    runs.splice(at < 0 ? runs.length : at, 0, run);
    return run;
  }

  /** Writes rows behind all that the run has; `count` of the order. */
  #writePart(run: Run, rows: Rows, order: Uint32Array, count: number): void {
    for (let start = 0, end = 0; start < count; start = end) {
      end = this.#endOfBlock(rows, order, start, count);
      run.bytes += this.writeBlock(run.no, rows, order, start, end);
    }
    if (this.shape.hasFilters && count > 0) this.#writeFilter(run, rows, order, count);
  }

  #endOfBlock({ bytes }: Rows, order: Uint32Array, start: number, count: number): number {
    const most = Math.min(count, start + this.#blockRows);
    if (bytes === null) return most;
    let sum = bytes.length(order[start] as number);
    for (let end = start + 1; end < most; end++) {
      sum += bytes.length(order[end] as number);
      if (sum > this.#blockBytes) return end;
    }
    return most;
  }

  #writeFilter(run: Run, { columns }: Rows, order: Uint32Array, count: number): void {
    const [hashes, rests] = columns as [Float64Array, Float64Array];
    const filter = new BloomFilter(count);
    for (let at = 0; at < count; at++) {
      const row = order[at] as number;
      filter.add(hashes[row] as number, rests[row] as number);
    }
    const first = hashes[order[0] as number] as number;
    const { bytes } = filter;
    this.prepared(`INSERT INTO ${this.shape.name}_filters (run, first, filter) VALUES (?, ?, ?)`).run(
      run.no,
      first,
      bytes,
    );
    if (run.filters === null) return;
    run.filters.push({ first, filter });
    this.#filterBytes += bytes.length;
    this.#keepFiltersBounded();
  }

  /** The largest go first: looking into one run on the disk costs the same however large it is. */
  #keepFiltersBounded(): void {
    while (this.#filterBytes > this.#filterBytesMax) {
      let largest: Run | undefined;
      for (const run of this.#known()) {
        if (run.filters !== null && run.filters.length > 0 && run.bytes >= (largest?.bytes ?? 0)) largest = run;
      }
      if (largest === undefined) return;
      this.#forgetFilters(largest);
    }
  }

  #forgetFilters(run: Run): void {
    for (const { filter } of run.filters ?? []) this.#filterBytes -= filter.bytes.length;
    run.filters = null;
  }

  #storeBytes({ no, group, bytes }: Run): void {
    const sql = `UPDATE ${this.shape.name}_runs SET bytes = ? WHERE group_no = ? AND no = ?`;
    this.prepared(sql).run(bytes, group, no);
  }

  #removeRun(run: Run): void {
    const { name } = this.shape;
    this.prepared(`DELETE FROM ${name}_runs WHERE group_no = ? AND no = ?`).run(run.group, run.no);
    if (this.shape.hasFilters) this.prepared(`DELETE FROM ${name}_filters WHERE run = ?`).run(run.no);
    this.#forgetFilters(run);
    this.#runs = this.#known().filter((other) => other !== run);
  }

  /** Where many runs of a group are of one level. In a group that gets no more runs, all of them. */
  #beginMerges(): void {
    const runs = this.#known();
    const outputs = new Set(runs.flatMap(({ mergedInto }) => mergedInto ?? []));
    const free = runs.filter(({ no, mergedInto }) => mergedInto === null && !outputs.has(no));
    const newest = runs[0]?.group;
    for (const [group, ofGroup] of Map.groupBy(free, (run) => run.group)) {
      if (group !== newest && ofGroup.length > 1) {
        this.#beginMerge(group, ofGroup);
        continue;
      }
      for (const ofLevel of Map.groupBy(ofGroup, ({ bytes }) => this.#levelOf(bytes)).values()) {
        if (ofLevel.length >= this.#fanOut) this.#beginMerge(group, ofLevel);
      }
    }
  }

  #levelOf(bytes: number): number {
    if (bytes < LOWEST_LEVEL_BYTES) return 0;
    return 1 + Math.floor(Math.log(bytes / LOWEST_LEVEL_BYTES) / Math.log(this.#fanOut));
  }

  #beginMerge(group: number, inputs: readonly Run[]): void {
    const output = this.#create(group);
    for (const run of inputs) {
      run.mergedInto = output.no;
      const sql = `UPDATE ${this.shape.name}_runs SET merged_into = ? WHERE group_no = ? AND no = ?`;
      this.prepared(sql).run(output.no, group, run.no);
    }
  }

  /** Moves the lowest entries of all inputs on, about so many bytes. Gives how many; 0 if the inputs are empty, and gone. */
  #mergePart(outputNo: number, wanted: number): number {
    const output = this.#known().find(({ no }) => no === outputNo) as Run;
    // Oldest first: what is in order by then need not be sorted.
    const inputs = this.#known()
      .filter(({ mergedInto }) => mergedInto === outputNo)
      .toReversed()
      .map((run): MergeInput => ({ run, blocks: [], first: undefined, last: undefined, isAtEnd: false }));
    let bytes = 0;
    // All inputs have been read up to the last key of the one that has been read least far; so that one is read on.
    let least = leastFar(inputs);
    while (least !== undefined && (least.last === undefined || bytes < wanted)) {
      bytes += this.#readOn(least);
      least = leastFar(inputs);
    }
    const bound = least?.last;
    const merged = this.rowsFor(
      inputs.reduce((sum, { blocks }) => blocks.reduce((all, { count }) => all + count, sum), 0),
    );
    for (const input of inputs) this.#takeUpTo(bound, input, merged);
    const order = sortedOrder(merged.columns.slice(0, this.shape.keyColumns), merged.count);
    this.#writePart(output, merged, order, this.#combine(merged, order));
    this.#storeBytes(output);
    for (const { run } of inputs) {
      if (bound === undefined) this.#removeRun(run);
      else run.from = bound[0] as number;
    }
    return bound === undefined ? 0 : bytes;
  }

  /** Reads the next block of an input; gives how many bytes it has. */
  #readOn(input: MergeInput): number {
    const row = this.blockAfter(input.run.no, input.first);
    if (row === undefined) {
      input.isAtEnd = true;
      return 0;
    }
    const block = this.decoded(row);
    input.blocks.push(block);
    input.first = row.first;
    input.last = this.entryAt(block, block.count - 1).key;
    return row.entries.length;
  }

  /** Moves the entries of an input up to and with a key, or all of them. */
  #takeUpTo(bound: Key | undefined, { run, blocks }: MergeInput, rows: RowsToWrite): void {
    const { name } = this.shape;
    if (bound === undefined) this.prepared(`DELETE FROM ${name}_blocks WHERE run = ?`).run(run.no);
    else this.prepared(`DELETE FROM ${name}_blocks WHERE run = ? AND first <= ?`).run(run.no, bytesOf(bound));
    const after = bound === undefined ? undefined : nextKey(bound);
    for (const block of blocks) {
      const end = after === undefined ? block.count : block.firstFrom(after);
      if (end === 0) return;
      this.append(rows, block, 0, end);
      if (end === block.count) continue;
      const rest = this.rowsFor(block.count - end);
      this.append(rest, block, end, block.count);
      this.writeBlock(run.no, rest, sameOrder(rest.count), 0, rest.count);
    }
  }

  /** Makes one row of those of one key; gives how many are left, at the beginning of the order. */
  #combine(rows: RowsToWrite, order: Uint32Array): number {
    const { combine, keyColumns } = this.shape;
    if (combine === undefined) return order.length;
    const isSameKey = (one: number, other: number): boolean => {
      for (let column = 0; column < keyColumns; column++) {
        if (rows.columns[column]?.[one] !== rows.columns[column]?.[other]) return false;
      }
      return true;
    };
    let kept = 0;
    for (let at = 0; at < order.length; at++) {
      const row = order[at] as number;
      const before = order[kept - 1] as number;
      if (kept === 0 || !isSameKey(before, row)) {
        order[kept++] = row;
        continue;
      }
      rows.combine(before, rows.entryAt(row, this.shape), this.shape);
    }
    return kept;
  }
}

/** A run that is merged, as far as it was read. */
interface MergeInput {
  readonly run: Run;
  readonly blocks: ColumnBlock[];
  /** With which key its last block begins and ends. */
  first: Uint8Array | undefined;
  last: Key | undefined;
  isAtEnd: boolean;
}

/** Of those that have not been read to their end; one that has not been read at all first. */
function leastFar(inputs: readonly MergeInput[]): MergeInput | undefined {
  let least: MergeInput | undefined;
  for (const input of inputs) {
    if (input.isAtEnd) continue;
    if (input.last === undefined) return input;
    if (least === undefined || compareKeys(input.last, least.last as Key) < 0) least = input;
  }
  return least;
}

const NO_BYTES = new Uint8Array();

function mayHave(filters: readonly FilterPart[], hash: number, rest: number): boolean {
  let low = 0;
  let high = filters.length;
  // The last part that begins at or before the key; and those before it that begin there too, or end there.
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((filters[middle] as FilterPart).first <= hash) low = middle + 1;
    else high = middle;
  }
  for (let at = low - 1; at >= 0; at--) {
    const { first, filter } = filters[at] as FilterPart;
    if (filter.mayHave(hash, rest)) return true;
    if (first < hash) return false;
  }
  return false;
}

function compareKeys(one: Key, other: Key): number {
  for (const [column, value] of one.entries()) {
    const difference = value - (other[column] as number);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** The least key beyond this one: keys are whole numbers. */
function nextKey(key: Key): Key {
  return [...key.slice(0, -1), (key.at(-1) as number) + 1];
}

function sameOrder(count: number): Uint32Array {
  return Uint32Array.from({ length: count }, (_, at) => at);
}

const WORD = 2 ** 32;
const SIGN = 2 ** 31;
const NUMBER_BYTES = 8;

/** In the order of the numbers. A shorter key comes before all that begin with it. */
function bytesOf(key: Key): Uint8Array {
  const bytes = new Uint8Array(key.length * NUMBER_BYTES);
  for (let column = 0, at = 0; column < key.length; column++, at += NUMBER_BYTES) {
    const value = key[column] as number;
    const high = Math.floor(value / WORD);
    putWord(bytes, at, high + SIGN);
    putWord(bytes, at + 4, value - high * WORD);
  }
  return bytes;
}

/** Without a DataView, which would take the bytes out of the heap of JavaScript. */
function putWord(bytes: Uint8Array, at: number, word: number): void {
  bytes[at] = word >>> 24;
  bytes[at + 1] = word >>> 16;
  bytes[at + 2] = word >>> 8;
  bytes[at + 3] = word;
}
