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
 * Merging is done bit by bit: with every run that is put some times as many entries are moved on in each merge that is
 * under way, in the caller's transaction, from runs that become empty to one that grows. So it costs the same again and
 * again, never a lot at once; after a crash it goes on where the last commit left it.
 *
 *   NAME_runs     one row for each run
 *   NAME_blocks   the entries of a run in order, some hundred in a row (columnar/column-block.ts), found by their first key
 *   NAME_filters  the Bloom filters of a run; one for each part of it that was written at once
 *
 * One connection puts, merges and drops. Others may read (`RunReader`) and remove keys.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { ColumnBlock, encodeBlock, type Rows } from '../../columnar/column-block.ts';
import { sortedOrder } from '../../columnar/sorted-order.ts';
import { BloomFilter } from './bloom-filter.ts';

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
  /** The least that is merged at a time. */
  readonly mergedRowsMin?: number;
  /** Of all filters in memory. A run beyond it is looked into on the disk. */
  readonly filterBytesMax?: number;
}

/**
 * Few, since every look-up that finds nothing asks the filter of every run, and merging is cheap: with 16 instead of 4, putting
 * a hash takes half as long, and looking for one twice as long.
 */
const FAN_OUT = 4;
const BLOCK_ROWS = 128;
const MERGED_ROWS_MIN = 4_096;
const FILTER_BYTES_MAX = 64 * 1024 * 1024;
/** Runs of fewer entries are all of the lowest level. */
const LOWEST_LEVEL_ENTRIES = 1_024;
/** For each entry that is put, in each merge. More than one, or merges would not end before the next begins. */
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
      entries     INTEGER NOT NULL,
      merged_into INTEGER,
      PRIMARY KEY (group_no, no)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE ${name}_blocks (
      no      INTEGER PRIMARY KEY,
      run     INTEGER NOT NULL,
      first   BLOB    NOT NULL,
      entries BLOB    NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX ${name}_blocks_by_first ON ${name}_blocks (run, first);
    ${hasFilters ? filters : ''}`;
}

export function dropSortedRunsSchema(name: string): string {
  return `DROP TABLE ${name}_runs; DROP TABLE ${name}_blocks; DROP TABLE IF EXISTS ${name}_filters;`;
}

interface BlockRow {
  readonly no: number;
  readonly first: Uint8Array;
  readonly entries: Uint8Array;
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

  /** All entries of a key, over all runs, combined; of a group, or of all groups. */
  find(key: Key, group: number | null = null): Entry | undefined {
    let found: Entry | undefined;
    for (const run of this.runNumbers(group)) {
      const entry = this.findIn(run, key);
      if (entry === undefined) continue;
      if (this.shape.combine === undefined) return entry;
      found = found === undefined ? entry : this.shape.combine(found, entry);
    }
    return found;
  }

  protected findIn(run: number, key: Key): Entry | undefined {
    const row = this.blockOf(run, key);
    if (row === undefined) return undefined;
    const block = this.decoded(row);
    const at = block.firstFrom(key);
    return at < block.count && block.compare(at, key) === 0 ? this.entryAt(block, at) : undefined;
  }

  /** The entries of a run with `from` <= key < `to`, the last of them first. Both may be shorter than a key. */
  *descending(run: number, from: Key, to: Key): Generator<Entry> {
    const select = this.prepared(
      `SELECT first, entries FROM ${this.shape.name}_blocks WHERE run = ? AND first < ? ORDER BY first DESC LIMIT 1`,
    );
    let below = bytesOf(to);
    for (;;) {
      const row = select.get(run, below) as { first: Uint8Array; entries: Uint8Array } | undefined;
      if (row === undefined) return;
      const block = this.decoded(row);
      for (let at = block.firstFrom(to) - 1; at >= 0; at--) {
        if (block.compare(at, from) < 0) return;
        yield this.entryAt(block, at);
      }
      below = new Uint8Array(row.first);
    }
  }

  /** The same, in order. */
  *ascending(run: number, from: Key, to: Key): Generator<Entry> {
    const select = this.prepared(
      `SELECT first, entries FROM ${this.shape.name}_blocks WHERE run = ? AND first > ? ORDER BY first LIMIT 1`,
    );
    let row = this.blockOf(run, from) ?? (select.get(run, bytesOf(from)) as BlockRow | undefined);
    while (row !== undefined) {
      const block = this.decoded(row);
      for (let at = block.firstFrom(from); at < block.count; at++) {
        if (block.compare(at, to) >= 0) return;
        yield this.entryAt(block, at);
      }
      row = select.get(run, new Uint8Array(row.first)) as BlockRow | undefined;
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
        else if (group === found.group) found = { group, entry: this.combined(found.entry, next) };
        stream.next = stream.entries.next().value as Entry | undefined;
      }
      if (found !== undefined) yield found.entry;
    }
  }

  protected combined(one: Entry, other: Entry): Entry {
    const { combine, name } = this.shape;
    if (combine === undefined) throw new Error(`${name} has a key twice, which cannot be combined`);
    return combine(one, other);
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

  /** Puts what is left of a block in its place. */
  protected rewrite(run: number, no: number, rest: RowsToWrite): void {
    this.prepared(`DELETE FROM ${this.shape.name}_blocks WHERE no = ?`).run(no);
    if (rest.count > 0) this.writeBlock(run, rest, sameOrder(rest.count), 0, rest.count);
  }

  protected writeBlock(run: number, rows: Rows, order: Uint32Array, start: number, end: number): void {
    const first = rows.columns
      .slice(0, this.shape.keyColumns)
      .map((column) => column[order[start] as number] as number);
    this.prepared(`INSERT INTO ${this.shape.name}_blocks (run, first, entries) VALUES (?, ?, ?)`).run(
      run,
      bytesOf(first),
      encodeBlock(rows, order, start, end),
    );
  }

  /** The block that has a key, if the run has it. */
  protected blockOf(run: number, key: Key): BlockRow | undefined {
    const sql = `SELECT no, first, entries FROM ${this.shape.name}_blocks
      WHERE run = ? AND first <= ? ORDER BY first DESC LIMIT 1`;
    return this.prepared(sql).get(run, bytesOf(key)) as BlockRow | undefined;
  }

  protected decoded({ entries }: Pick<BlockRow, 'entries'>): ColumnBlock {
    return new ColumnBlock(entries, this.shape.keyColumns + this.shape.valueColumns, this.shape.hasBytes);
  }

  protected entryAt(block: ColumnBlock, row: number): Entry {
    const { keyColumns, valueColumns } = this.shape;
    return {
      key: Array.from({ length: keyColumns }, (_, column) => block.value(column, row)),
      values: Array.from({ length: valueColumns }, (_, column) => block.value(keyColumns + column, row)),
      bytes: block.bytes(row),
    };
  }

  protected rowsFor(count: number): RowsToWrite {
    return new RowsToWrite(this.shape.keyColumns + this.shape.valueColumns, this.shape.hasBytes, count);
  }

  protected append(rows: RowsToWrite, block: ColumnBlock, from: number, to: number): void {
    for (const [column, values] of rows.columns.entries()) block.copy(column, from, to, values, rows.count);
    for (let row = from; row < to && rows.bytes !== null; row++) rows.bytes.push(block.bytes(row));
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

/** Rows that are gathered to be written. */
export class RowsToWrite implements Rows {
  readonly columns: readonly Float64Array[];
  readonly bytes: Uint8Array[] | null;
  count = 0;

  constructor(columns: number, hasBytes: boolean, capacity: number) {
    this.columns = Array.from({ length: columns }, () => new Float64Array(capacity));
    this.bytes = hasBytes ? [] : null;
  }
}

interface FilterPart {
  /** The first number of its first key. */
  readonly first: number;
  readonly filter: BloomFilter;
}

interface Run {
  readonly no: number;
  readonly group: number;
  entries: number;
  /** The run that takes over its entries, one part after the other. */
  mergedInto: number | null;
  /** Keys that begin with a lower number have been taken over, as far as this process knows. */
  from: number;
  /** In the order of their keys; null where they are not in memory. */
  filters: FilterPart[] | null;
}

/** What was read of a run that is merged into another. */
class Input {
  readonly run: number;
  readonly rows: { readonly no: number; readonly block: ColumnBlock }[] = [];
  /** Of the last block: behind it there may be more. */
  first: Uint8Array = NO_BYTES;
  /** The last key that was read; undefined when there are no more. */
  last: Key | undefined;
  /** How many entries were read last. */
  newest = 0;

  constructor(run: number) {
    this.run = run;
  }
}

export class SortedRuns extends RunReader {
  readonly #fanOut: number;
  readonly #blockRows: number;
  readonly #mergedRowsMin: number;
  readonly #filterBytesMax: number;
  /** Newest group first; undefined until they were read. */
  #runs: Run[] | undefined;
  #filterBytes = 0;

  constructor(database: DatabaseSync, shape: RunsShape, sizes: RunsSizes = {}) {
    super(database, shape);
    this.#fanOut = sizes.fanOut ?? FAN_OUT;
    this.#blockRows = sizes.blockRows ?? BLOCK_ROWS;
    this.#mergedRowsMin = sizes.mergedRowsMin ?? MERGED_ROWS_MIN;
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
    this.#storeEntries(run);
    this.merge(rows.count);
  }

  /** Whether there are merges to go on with. */
  get isMerging(): boolean {
    return this.#known().some(({ mergedInto }) => mergedInto !== null);
  }

  /** Goes on with every merge, by so many entries and some more. */
  merge(entries: number): void {
    this.#beginMerges();
    const outputs = new Set(this.#known().flatMap(({ mergedInto }) => mergedInto ?? []));
    for (const output of outputs) this.#mergePart(output, Math.max(this.#mergedRowsMin, MERGED_PER_PUT * entries));
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
      .prepare(`SELECT no, group_no, entries, merged_into FROM ${name}_runs ORDER BY group_no DESC, no DESC`)
      .all();
    const runs = rows.map((row) => ({
      no: row['no'] as number,
      group: row['group_no'] as number,
      entries: row['entries'] as number,
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
      entries: 0,
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
    for (let start = 0; start < count; start += this.#blockRows) {
      this.writeBlock(run.no, rows, order, start, Math.min(count, start + this.#blockRows));
    }
    run.entries += count;
    if (this.shape.hasFilters && count > 0) this.#writeFilter(run, rows, order, count);
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
        if (run.filters !== null && run.filters.length > 0 && run.entries >= (largest?.entries ?? 0)) largest = run;
      }
      if (largest === undefined) return;
      this.#forgetFilters(largest);
    }
  }

  #forgetFilters(run: Run): void {
    for (const { filter } of run.filters ?? []) this.#filterBytes -= filter.bytes.length;
    run.filters = null;
  }

  #storeEntries({ no, group, entries }: Run): void {
    const sql = `UPDATE ${this.shape.name}_runs SET entries = ? WHERE group_no = ? AND no = ?`;
    this.prepared(sql).run(entries, group, no);
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
      for (const ofLevel of Map.groupBy(ofGroup, ({ entries }) => this.#levelOf(entries)).values()) {
        if (ofLevel.length >= this.#fanOut) this.#beginMerge(group, ofLevel);
      }
    }
  }

  #levelOf(entries: number): number {
    if (entries < LOWEST_LEVEL_ENTRIES) return 0;
    return 1 + Math.floor(Math.log(entries / LOWEST_LEVEL_ENTRIES) / Math.log(this.#fanOut));
  }

  #beginMerge(group: number, inputs: readonly Run[]): void {
    const output = this.#create(group);
    for (const run of inputs) {
      run.mergedInto = output.no;
      const sql = `UPDATE ${this.shape.name}_runs SET merged_into = ? WHERE group_no = ? AND no = ?`;
      this.prepared(sql).run(output.no, group, run.no);
    }
  }

  /** Moves the lowest entries of all inputs on, about `wanted` of them; if they were the last, the inputs go. */
  #mergePart(outputNo: number, wanted: number): void {
    const output = this.#known().find(({ no }) => no === outputNo) as Run;
    // Oldest first: what is in order by then need not be sorted.
    const inputs = this.#known()
      .filter(({ mergedInto }) => mergedInto === outputNo)
      .toReversed();
    const { read, bound } = this.#readLowest(inputs, wanted);
    const merged = this.rowsFor(
      read.reduce((sum, { rows }) => sum + rows.reduce((all, { block }) => all + block.count, 0), 0),
    );
    const after = bound === undefined ? undefined : nextKey(bound);
    for (const { run, rows } of read) {
      for (const { no, block } of rows) {
        const end = after === undefined ? block.count : block.firstFrom(after);
        if (end === 0) break;
        this.append(merged, block, 0, end);
        const rest = this.rowsFor(block.count - end);
        this.append(rest, block, end, block.count);
        this.rewrite(run, no, rest);
      }
    }
    const order = sortedOrder(merged.columns.slice(0, this.shape.keyColumns), merged.count);
    this.#writePart(output, merged, order, this.#combine(merged, order));
    this.#storeEntries(output);
    for (const run of inputs) {
      if (bound === undefined) this.#removeRun(run);
      else run.from = bound[0] as number;
    }
  }

  /**
   * Reads inputs until `wanted` entries or more of them are known to be the lowest: those up to `bound`, or all where it is
   * undefined. What is read next is always of the input that was read the least far, since keys may be anywhere: those of
   * one run may all come before those of the next.
   */
  #readLowest(inputs: readonly Run[], wanted: number): { read: readonly Input[]; bound: Key | undefined } {
    const blocks = Math.max(1, Math.ceil(wanted / (inputs.length * this.#blockRows)));
    const read = inputs.map(({ no }) => new Input(no));
    for (const input of read) this.#readMore(input, blocks);
    for (let lowest = 0; ; ) {
      let least: Input | undefined;
      for (const input of read) {
        if (input.last !== undefined && (least?.last === undefined || compareKeys(input.last, least.last) < 0)) {
          least = input;
        }
      }
      if (least === undefined || lowest >= wanted) return { read, bound: least?.last };
      lowest += least.newest;
      this.#readMore(least, blocks);
    }
  }

  #readMore(input: Input, blocks: number): void {
    const sql = `SELECT no, first, entries FROM ${this.shape.name}_blocks
      WHERE run = ? AND first > ? ORDER BY first LIMIT ?`;
    const rows = this.prepared(sql).all(input.run, input.first, blocks) as unknown as (BlockRow & {
      readonly first: Uint8Array;
    })[];
    input.last = undefined;
    input.newest = 0;
    for (const { no, first, entries } of rows) {
      const block = this.decoded({ entries });
      input.rows.push({ no, block });
      input.first = first;
      input.newest += block.count;
    }
    const last = input.rows.at(-1)?.block;
    if (rows.length > 0 && last !== undefined) input.last = this.entryAt(last, last.count - 1).key;
  }

  /** Makes one row of those of one key; gives how many are left, at the beginning of the order. */
  #combine(rows: RowsToWrite, order: Uint32Array): number {
    const { combine, keyColumns, valueColumns } = this.shape;
    if (combine === undefined) return order.length;
    const entryAt = (row: number): Entry => ({
      key: Array.from({ length: keyColumns }, (_, column) => rows.columns[column]?.[row] as number),
      values: Array.from({ length: valueColumns }, (_, column) => rows.columns[keyColumns + column]?.[row] as number),
      bytes: rows.bytes?.[row] ?? NO_BYTES,
    });
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
      const { values, bytes } = combine(entryAt(before), entryAt(row));
      for (const [column, value] of values.entries())
        (rows.columns[keyColumns + column] as Float64Array)[before] = value;
      if (rows.bytes !== null) rows.bytes[before] = bytes;
    }
    return kept;
  }
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
