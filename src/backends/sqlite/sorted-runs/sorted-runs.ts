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
 * How much is merged, and which runs are about as large, goes by bytes: entries may have megabytes of them.
 *
 * One connection puts, merges and drops. Others may read (`RunReader`), and change or remove entries.
 */

import type { DatabaseSync } from 'node:sqlite';
import type { ColumnBlock, Rows } from '../../../columnar/column-block.ts';
import { sortedOrder } from '../../../columnar/sorted-order.ts';
import { BloomFilter } from './bloom-filter.ts';
import { combineEntries, type Entry, type RowsToWrite, type RunsShape } from './entries.ts';
import { bytesOf, compareKeys, type Key, nextKey } from './keys.ts';
import { RunReader, sameOrder } from './run-reader.ts';

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
    const [hash = 0, rest = 0] = key;
    let found: Entry | undefined;
    let group = 0;
    for (const run of this.#known()) {
      if (found !== undefined && run.group !== group) break;
      if (hash < run.from || (run.filters !== null && !mayHave(run.filters, hash, rest))) continue;
      const entry = this.findIn(run.no, key);
      if (entry === undefined) continue;
      if (this.shape.combine === undefined) return entry;
      found = found === undefined ? entry : combineEntries(this.shape, [found, entry]);
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
      combine(rows, before, row);
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
