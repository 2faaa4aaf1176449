/**
 * The index of a table of events, by node and by tenant and time, as it is written. It is a table of its own
 * (`index_7`): a transaction with many events writes its entries as one sorted run, packed in chunks, which costs a
 * tenth of what as many rows would; one with few events writes a row for each entry, all of them together being run 0.
 *
 * Whoever asks has to look into every run, so runs of a level are merged into one of the next when there are
 * `RUNS_PER_LEVEL_MAX` of them, and all of them when the table of events is full. Entries wait in memory until the
 * commit, up to `ENTRIES_WAITING_MAX`; nobody looks for events within the transaction that writes them.
 *
 * Entries of events that have expired stay until the table is dropped (store-sweep.ts); those of an erased person go.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { NodeNumber } from '../../model.ts';
import {
  addEntry,
  CHUNK_ENTRIES_MAX,
  type Entries,
  newEntries,
  orderOf,
  packChunk,
  unpackChunk,
} from './index-entries.ts';

/** Which index an entry belongs to, by what its owner is. */
export const OWNER = { node: 0, tenant: 1 } as const;
export type OwnerKind = (typeof OWNER)[keyof typeof OWNER];

/** The run of entries that have a row each. */
export const LOOSE_RUN = 0;

export interface Run {
  readonly no: number;
  /** Those of a higher level hold older events. */
  readonly level: number;
}

/** Fewer entries than this get a row each: so few events are no load, and runs would be many. */
const RUN_ENTRIES_MIN = 2_048;
const ENTRIES_WAITING_MAX = 65_536;
const RUNS_PER_LEVEL_MAX = 24;

export interface IndexSizes {
  readonly runEntriesMin?: number;
  readonly runsPerLevelMax?: number;
}

/** What is waiting to be written, for whichever table of events is the newest. */
export class EventIndex {
  readonly #database: DatabaseSync;
  readonly #runEntriesMin: number;
  readonly #runsPerLevelMax: number;
  readonly #byNode = newEntries(ENTRIES_WAITING_MAX);
  readonly #byTenant = newEntries(ENTRIES_WAITING_MAX);

  constructor(database: DatabaseSync, sizes: IndexSizes = {}) {
    this.#database = database;
    this.#runEntriesMin = sizes.runEntriesMin ?? RUN_ENTRIES_MIN;
    this.#runsPerLevelMax = sizes.runsPerLevelMax ?? RUNS_PER_LEVEL_MAX;
  }

  get isFull(): boolean {
    return this.#byTenant.count === ENTRIES_WAITING_MAX;
  }

  add(tenant: number, node: NodeNumber | null, timestamp: number, no: number): void {
    addEntry(this.#byTenant, tenant, timestamp, no);
    if (node !== null) addEntry(this.#byNode, node, timestamp, no);
  }

  /** Writes what waits into the index of a table, which has these runs; gives the runs that it has then. */
  flush(table: number, runs: readonly Run[]): readonly Run[] {
    const { count } = this.#byTenant;
    if (count === 0) return runs;
    const insert = insertInto(this.#database, table);
    if (count < this.#runEntriesMin) {
      writeLoose(insert, OWNER.node, this.#byNode);
      writeLoose(insert, OWNER.tenant, this.#byTenant);
      this.forget();
      return runs;
    }
    const no = nextRun(runs);
    writeRun(insert, OWNER.node, no, this.#byNode);
    writeRun(insert, OWNER.tenant, no, this.#byTenant);
    this.forget();
    return this.#mergeFullLevels(table, [...runs, { no, level: 0 }]);
  }

  /** For a table that gets no more events: one run is left. */
  mergeAll(table: number, runs: readonly Run[]): readonly Run[] {
    return runs.length < 2 ? runs : this.#merge(table, runs, runs);
  }

  forget(): void {
    this.#byNode.count = 0;
    this.#byTenant.count = 0;
  }

  #mergeFullLevels(table: number, runs: readonly Run[]): readonly Run[] {
    let left = runs;
    for (let level = 0; ; level++) {
      const ofLevel = left.filter((run) => run.level === level);
      if (ofLevel.length < this.#runsPerLevelMax) return left;
      left = this.#merge(table, left, ofLevel);
    }
  }

  #merge(table: number, runs: readonly Run[], merged: readonly Run[]): readonly Run[] {
    const run = { no: nextRun(runs), level: Math.max(...merged.map(({ level }) => level)) + 1 };
    // Oldest events first: entries of one owner and timestamp must come in the order of their numbers.
    const oldestFirst = merged.toSorted((a, b) => b.level - a.level || a.no - b.no);
    const insert = insertInto(this.#database, table);
    for (const kind of Object.values(OWNER)) {
      writeRun(insert, kind, run.no, readRuns(this.#database, table, kind, oldestFirst));
    }
    const remove = this.#database.prepare(`DELETE FROM index_${table} WHERE kind = ? AND run = ?`);
    for (const { no } of merged) for (const kind of Object.values(OWNER)) remove.run(kind, no);
    return [...runs.filter(({ no }) => !merged.some((one) => one.no === no)), run];
  }
}

function nextRun(runs: readonly Run[]): number {
  return Math.max(LOOSE_RUN, ...runs.map(({ no }) => no)) + 1;
}

function insertInto(database: DatabaseSync, table: number): StatementSync {
  return database.prepare(`INSERT INTO index_${table} VALUES (?, ?, ?, ?, ?, ?)`);
}

function writeLoose(insert: StatementSync, kind: OwnerKind, { owners, timestamps, numbers, count }: Entries): void {
  for (let at = 0; at < count; at++) {
    insert.run(kind, LOOSE_RUN, owners[at] as number, timestamps[at] as number, numbers[at] as number, null);
  }
}

function writeRun(insert: StatementSync, kind: OwnerKind, run: number, entries: Entries): void {
  const { owners, timestamps, numbers, count } = entries;
  const order = orderOf(entries);
  for (let start = 0; start < count; start += CHUNK_ENTRIES_MAX) {
    const first = order[start] as number;
    const bytes = packChunk(entries, order, start, Math.min(count, start + CHUNK_ENTRIES_MAX));
    insert.run(kind, run, owners[first] as number, timestamps[first] as number, numbers[first] as number, bytes);
  }
}

interface ChunkRow {
  readonly owner: number;
  readonly timestamp: number;
  readonly no: number;
  readonly entries: Uint8Array;
}

function readRuns(database: DatabaseSync, table: number, kind: OwnerKind, runs: readonly Run[]): Entries {
  const count = database.prepare(`SELECT count(*) AS chunks FROM index_${table} WHERE kind = ? AND run = ?`);
  const select = database.prepare(
    `SELECT owner, timestamp, no, entries FROM index_${table} WHERE kind = ? AND run = ? ORDER BY owner, timestamp, no`,
  );
  const chunks = runs.reduce((sum, { no }) => sum + Number(count.get(kind, no)?.chunks), 0);
  const entries = newEntries(chunks * CHUNK_ENTRIES_MAX);
  for (const { no } of runs) {
    for (const row of select.iterate(kind, no)) {
      const chunk = row as unknown as ChunkRow;
      unpackChunk(chunk, chunk.entries, entries);
    }
  }
  return entries;
}
