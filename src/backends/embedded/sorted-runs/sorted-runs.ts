/**
 * A log-structured merge tree on SQLite. A transaction's entries are written together as one run, sorted by key, which
 * for hashes costs a tenth of inserting them into a B-tree one by one, however much is stored. A lookup searches every
 * run, so runs of similar size are merged when there are many (size-tiered compaction), and runs may have Bloom filters
 * in memory, which rule out nearly every absent key.
 *
 * A key is unique among the runs of a group, unless the tree has `combine`, which makes one entry of two. The result
 * must not depend on their order: a merged run has a new number and old entries, so the numbers of runs say nothing
 * about age. Runs of different groups (days, groups of events) are never merged, so that a group can be dropped.
 *
 * Merging is incremental: a merge moves entries from its input runs, which become empty, to its output run. Every run
 * that is written advances each running merge by a multiple of its bytes, in the caller's transaction. So the cost is
 * spread evenly; after a crash merging continues where the last commit left it. One connection writes, merges and
 * drops. Others may read and remove entries (`StoredRuns`). If another connection writes a run, this one has to
 * `forget` before it continues.
 */

import { totalmem } from 'node:os';
import type { DatabaseSync } from 'node:sqlite';
import type { ColumnBlock, Rows } from '../../../columnar/column-block.ts';
import { sortedOrder } from '../../../columnar/sorted-order.ts';
import { BloomFilter } from './bloom-filter.ts';
import { compareKeys, encodeKey, type Entry, type Key, nextKey, RowsToWrite, type RunsShape } from './entries.ts';
import { type ListedRun, rowOrder, StoredRuns } from './stored-runs.ts';

const SIZES = {
  /**
   * How many runs of similar size are merged into one. Few, since every unsuccessful lookup checks the filter of every
   * run, and merging is cheap: with 16 instead of 4, writing a hash takes half as long, and finding one twice as long.
   */
  fanOut: 4,
  /** Few enough that finding one entry is quick, many enough that a SQLite row costs little per entry. */
  blockRows: 128,
  /** Limit for the bytes of the entries in a block of several, which then fits a page of the store. */
  blockBytes: 7_000,
  /** The minimum amount to merge with each written run. */
  mergedBytesMin: 64 * 1024,
  /**
   * Limit for the filters of a tree in memory. A run beyond it is searched on disk: with 100 million ids and a limit of
   * 64 MB, finding out that an id is new takes eight times as long.
   */
  filterBytesMax: Math.max(64 * 1024 * 1024, availableMemory() / 16),
};

export type RunsSizes = Partial<typeof SIZES>;

/** Of the machine, or of the container if it has a limit. */
function availableMemory(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}

/** Limit for the input blocks that one step of a merge holds in memory; one larger entry may exceed it. */
const MERGED_AT_ONCE_BYTES = 4 * 1024 * 1024;
/** Smaller runs are all on level 0. */
const LOWEST_LEVEL_BYTES = 16 * 1024;
/**
 * Bytes that each merge moves per byte of a written run. More than one, or a merge would not end before the next
 * begins.
 */
const MERGED_PER_PUT = 4;
/** The step while idle, as a multiple of the minimum step: 1 MB, a few tens of milliseconds. */
const IDLE_STEPS = 16;

/** When the memtable is full, its entries are written as a run. */
const MEMTABLE_ENTRIES_MAX = 131_072;
/** Only people with megabytes of properties reach this before `MEMTABLE_ENTRIES_MAX`. */
const MEMTABLE_BYTES_MAX = 32 * 1024 * 1024;
const FIRST_ENTRIES = 16_384;
/** Up to this many entries are cleared one by one, which is faster than clearing all slots. */
const CLEARED_ONE_BY_ONE_MAX = 4_096;

interface FilterPart {
  /** The first number of its first key. */
  readonly first: number;
  readonly filter: BloomFilter;
}

interface Run extends ListedRun {
  bytes: number;
  /** The output run of the merge that it is an input of. */
  mergedInto: number | null;
  /** In the order of their keys; null if they are not in memory. */
  filters: FilterPart[] | null;
}

export class SortedRuns extends StoredRuns {
  readonly #sizes: typeof SIZES;
  /** Newest group first; undefined until loaded. */
  #runs: Run[] | undefined;
  #filterBytes = 0;

  constructor(database: DatabaseSync, shape: RunsShape, sizes: RunsSizes = {}) {
    super(database, shape);
    this.#sizes = { ...SIZES, ...sizes };
  }

  /** Drops what is cached in memory; call it after a rollback. */
  forget(): void {
    this.#runs = undefined;
    this.#filterBytes = 0;
  }

  protected override runsToSearch(key: Key): readonly Run[] {
    const [hash = 0, rest = 0] = key;
    return this.#loaded().filter(({ filters }) => filters === null || mayHave(filters, hash, rest));
  }

  /** Writes a run, and continues merging. Within a transaction of the caller; the keys of the rows are unique. */
  putRun(group: number, rows: Rows): void {
    if (rows.count === 0) return;
    const run = this.#create(group);
    this.#writePart(run, rows, sortedOrder(rows.columns.slice(0, this.shape.keyColumns), rows.count), rows.count);
    this.#storeBytes(run);
    this.#advanceMerges(Math.max(this.#sizes.mergedBytesMin, MERGED_PER_PUT * run.bytes));
  }

  /** Whether any merge is running. */
  get isCompacting(): boolean {
    return this.#loaded().some(({ mergedInto }) => mergedInto !== null);
  }

  /** Continues every merge while idle, by a bounded step. */
  compact(): void {
    this.#advanceMerges(IDLE_STEPS * this.#sizes.mergedBytesMin);
  }

  #advanceMerges(bytes: number): void {
    this.#beginMerges();
    const outputs = new Set(this.#loaded().flatMap(({ mergedInto }) => mergedInto ?? []));
    for (const output of outputs) {
      for (let left = bytes; left > 0; ) {
        const moved = this.#mergeStep(output, Math.min(left, MERGED_AT_ONCE_BYTES));
        if (moved === 0) break;
        left -= moved;
      }
    }
    // A completed run may be the last one that another merge waited for.
    this.#beginMerges();
  }

  /** The existing groups, oldest first. */
  groups(): number[] {
    return [...new Set(this.#loaded().map(({ group }) => group))].sort((a, b) => a - b);
  }

  /**
   * Removes at most this many blocks of a group; true while there are more. Until it returns false, some of its entries
   * are still found.
   */
  drop(group: number, blocksMax: number): boolean {
    const { name } = this.shape;
    let left = blocksMax;
    // Oldest first: the output of a merge is removed after its inputs.
    const oldestFirst = this.#loaded().filter((one) => one.group === group);
    for (const run of oldestFirst.sort((a, b) => a.no - b.no)) {
      const sql = `DELETE FROM ${name}_blocks WHERE no IN (SELECT no FROM ${name}_blocks WHERE run = ? LIMIT ?)`;
      left -= Number(this.prepared(sql).run(run.no, left).changes);
      if (left <= 0) return true;
      this.#removeRun(run);
    }
    return false;
  }

  #loaded(): Run[] {
    this.#runs ??= this.#load();
    return this.#runs;
  }

  /** Loads filters of the newest runs first, as many as fit the memory limit. */
  #load(): Run[] {
    const { name } = this.shape;
    const sql = `SELECT no, group_no AS "group", bytes, merged_into AS "mergedInto" FROM ${name}_runs
      ORDER BY group_no DESC, no DESC`;
    const runs = this.prepared(sql)
      .all()
      .map((row) => Object.assign({ filters: null }, row) as unknown as Run);
    if (!this.shape.hasFilters) return runs;
    const size = this.database.prepare(`SELECT sum(octet_length(filter)) AS bytes FROM ${name}_filters WHERE run = ?`);
    const select = this.database.prepare(`SELECT first, filter FROM ${name}_filters WHERE run = ? ORDER BY first, no`);
    for (const run of runs) {
      const bytes = (size.get(run.no)?.['bytes'] as number | null) ?? 0;
      if (this.#filterBytes + bytes > this.#sizes.filterBytesMax) continue;
      this.#filterBytes += bytes;
      run.filters = Array.from(select.iterate(run.no), ({ first, filter }) => ({
        first: first as number,
        filter: new BloomFilter(filter as Uint8Array),
      }));
    }
    return runs;
  }

  #create(group: number): Run {
    const { name } = this.shape;
    const runs = this.#loaded();
    const no = runs.reduce((highest, run) => Math.max(highest, run.no), 0) + 1;
    this.prepared(`INSERT INTO ${name}_runs VALUES (?, ?, 0, NULL)`).run(group, no);
    const run = { no, group, bytes: 0, mergedInto: null, filters: this.shape.hasFilters ? [] : null };
    const at = runs.findIndex((other) => other.group <= group);
    runs.splice(at < 0 ? runs.length : at, 0, run);
    return run;
  }

  /** Appends rows to the run; the first `count` of the order. */
  #writePart(run: Run, rows: Rows, order: Uint32Array, count: number): void {
    for (let start = 0, end = 0; start < count; start = end) {
      end = this.#endOfBlock(rows, order, start, count);
      run.bytes += this.writeBlock(run.no, rows, order, start, end);
    }
    if (this.shape.hasFilters && count > 0) this.#writeFilter(run, rows, order, count);
  }

  #endOfBlock({ bytes }: Rows, order: Uint32Array, start: number, count: number): number {
    const most = Math.min(count, start + this.#sizes.blockRows);
    if (bytes === null) return most;
    let sum = bytes.length(order[start] as number);
    for (let end = start + 1; end < most; end++) {
      sum += bytes.length(order[end] as number);
      if (sum > this.#sizes.blockBytes) return end;
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

  /** The largest filters go first: searching one run on disk costs the same however large it is. */
  #keepFiltersBounded(): void {
    while (this.#filterBytes > this.#sizes.filterBytesMax) {
      let largest: Run | undefined;
      for (const run of this.#loaded()) {
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
    this.#runs = this.#loaded().filter((other) => other !== run);
  }

  /**
   * Starts a merge where a group has `fanOut` runs of one level. In an older group, which gets no more runs, all are
   * merged.
   */
  #beginMerges(): void {
    const runs = this.#loaded();
    const outputs = new Set(runs.flatMap(({ mergedInto }) => mergedInto ?? []));
    const free = runs.filter(({ no, mergedInto }) => mergedInto === null && !outputs.has(no));
    const newest = runs[0]?.group;
    for (const [group, ofGroup] of Map.groupBy(free, (run) => run.group)) {
      if (group !== newest && ofGroup.length > 1) {
        this.#beginMerge(group, ofGroup);
        continue;
      }
      for (const ofLevel of Map.groupBy(ofGroup, ({ bytes }) => this.#levelOf(bytes)).values()) {
        if (ofLevel.length >= this.#sizes.fanOut) this.#beginMerge(group, ofLevel);
      }
    }
  }

  #levelOf(bytes: number): number {
    if (bytes < LOWEST_LEVEL_BYTES) return 0;
    return 1 + Math.floor(Math.log(bytes / LOWEST_LEVEL_BYTES) / Math.log(this.#sizes.fanOut));
  }

  #beginMerge(group: number, inputs: readonly Run[]): void {
    const output = this.#create(group);
    for (const run of inputs) {
      run.mergedInto = output.no;
      const sql = `UPDATE ${this.shape.name}_runs SET merged_into = ? WHERE group_no = ? AND no = ?`;
      this.prepared(sql).run(output.no, group, run.no);
    }
  }

  /**
   * Moves about `wanted` bytes of the lowest entries of all inputs. Returns how many; 0 once the inputs are empty, and
   * it has removed them.
   */
  #mergeStep(outputNo: number, wanted: number): number {
    const output = this.#loaded().find(({ no }) => no === outputNo) as Run;
    // Oldest first: entries that are already in order need not be sorted.
    const inputs = this.#loaded()
      .filter(({ mergedInto }) => mergedInto === outputNo)
      .toReversed()
      .map((run): MergeInput => ({ run, blocks: [], first: undefined, last: undefined, isAtEnd: false }));
    let bytes = 0;
    // Entries can be merged up to the smallest of the inputs' last keys read so far, so the input with that key is read
    // next.
    let least = leastAdvanced(inputs);
    while (least !== undefined && (least.last === undefined || bytes < wanted)) {
      bytes += this.#readNextBlock(least);
      least = leastAdvanced(inputs);
    }
    const bound = least?.last;
    const merged = new RowsToWrite(
      this.shape,
      inputs.reduce((sum, { blocks }) => blocks.reduce((all, { count }) => all + count, sum), 0),
    );
    for (const input of inputs) this.#moveUpTo(bound, input, merged);
    const order = sortedOrder(merged.columns.slice(0, this.shape.keyColumns), merged.count);
    this.#writePart(output, merged, order, this.#combine(merged, order));
    this.#storeBytes(output);
    if (bound !== undefined) return bytes;
    for (const { run } of inputs) this.#removeRun(run);
    return 0;
  }

  /** Reads the next block of an input; returns its size in bytes. */
  #readNextBlock(input: MergeInput): number {
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

  /** Moves the entries of an input up to and including a key, or all of them. */
  #moveUpTo(bound: Key | undefined, { run, blocks }: MergeInput, rows: RowsToWrite): void {
    const { name } = this.shape;
    if (bound === undefined) this.prepared(`DELETE FROM ${name}_blocks WHERE run = ?`).run(run.no);
    else this.prepared(`DELETE FROM ${name}_blocks WHERE run = ? AND first <= ?`).run(run.no, encodeKey(bound));
    const after = bound === undefined ? undefined : nextKey(bound);
    for (const block of blocks) {
      const end = after === undefined ? block.count : block.firstFrom(after);
      if (end === 0) return;
      this.append(rows, block, 0, end);
      if (end === block.count) continue;
      const rest = new RowsToWrite(this.shape, block.count - end);
      this.append(rest, block, end, block.count);
      this.writeBlock(run.no, rest, rowOrder(rest.count), 0, rest.count);
    }
  }

  /** Combines rows of the same key; returns how many are left, at the beginning of the order. */
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

/**
 * Sorted runs with their memtable: the entries of a transaction, in a hash table, written as a run with the commit
 * (`flush`), or earlier when there are many. An entry is combined with a buffered one of the same key, or replaces it.
 */
export class BufferedRuns extends SortedRuns {
  readonly #groupOf: (rows: Rows) => number;
  /** The memtable: its rows, and a hash table over them with open addressing, at most half full. */
  readonly #rows: RowsToWrite;
  /** The row of each slot plus one; 0 if it is free. */
  readonly #slots = new Int32Array(2 * MEMTABLE_ENTRIES_MAX);

  /** `groupOf` returns the group of the buffered entries. */
  constructor(database: DatabaseSync, shape: RunsShape, groupOf: (rows: Rows) => number, sizes?: RunsSizes) {
    super(database, shape, sizes);
    this.#groupOf = groupOf;
    this.#rows = new RowsToWrite(shape, FIRST_ENTRIES);
  }

  /** A buffered entry hides those in runs, so this is not for trees whose entries add up (profile deltas). */
  override get(key: Key): Entry | undefined {
    const row = (this.#slots[this.#slotOf(key)] as number) - 1;
    return row < 0 ? super.get(key) : this.#rows.entryAt(row);
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
    if (this.shape.combine === undefined) rows.replace(row, rows.count - 1);
    else this.shape.combine(rows, row, rows.count - 1);
    rows.removeLast();
  }

  /** Call it before the transaction is committed. */
  flush(): void {
    if (this.#rows.count === 0) return;
    this.putRun(this.#groupOf(this.#rows), this.#rows);
    this.#clear();
  }

  /** Also drops what is buffered. */
  override forget(): void {
    this.#clear();
    super.forget();
  }

  #clear(): void {
    const rows = this.#rows;
    if (rows.count > CLEARED_ONE_BY_ONE_MAX) this.#slots.fill(0);
    // Newest first: a key is found only while the slots of those that came before it are taken.
    else for (let row = rows.count - 1; row >= 0; row--) this.#slots[this.#slotOf(rows.keyAt(row))] = 0;
    rows.clear();
  }

  /** The slot of the key, or the free one where it belongs. The last number of a key is its hash here. */
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

/** An input of a merge, as far as it was read. */
interface MergeInput {
  readonly run: Run;
  readonly blocks: ColumnBlock[];
  /** First and last key of its last block. */
  first: Uint8Array | undefined;
  last: Key | undefined;
  isAtEnd: boolean;
}

/** The input that has been read least far, of those not at their end; an unread one first. */
function leastAdvanced(inputs: readonly MergeInput[]): MergeInput | undefined {
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
  // The last part that begins at or before the key. Keys with the same first number may be in several parts.
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
