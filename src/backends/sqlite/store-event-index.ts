/**
 * The index of events as it is read (event-index.ts writes it): entries of one owner in one run, newest first, and the
 * removal of entries. Within a run entries are in order; runs overlap, so whoever wants an order over all of them merges
 * (store-event-keys.ts).
 */

import { LOOSE_RUN, type OwnerKind, type Run } from './event-index.ts';
import {
  addEntry,
  CHUNK_ENTRIES_MAX,
  type Entries,
  type Entry,
  newEntries,
  packChunk,
  unpackChunk,
} from './index-entries.ts';
import type { EventTable, StoreConnection } from './store-connection.ts';
import type { EventKey } from './store-event-keys.ts';

export interface EntryQuery {
  readonly kind: OwnerKind;
  readonly owner: number;
  /** Exclusive. */
  readonly before: EventKey;
  /** The oldest timestamp, inclusive. */
  readonly from: number;
}

export function runsOf({ runs }: EventTable): number[] {
  return [LOOSE_RUN, ...(JSON.parse(runs) as readonly Run[]).map(({ no }) => no)];
}

/** Newest first, `count` at most. Those below `first_kept` are left out; others may have expired too. */
export function entriesOfRun(
  store: StoreConnection,
  table: EventTable,
  run: number,
  query: EntryQuery,
  count: number,
): EventKey[] {
  return run === LOOSE_RUN ? looseEntries(store, table, query, count) : packedEntries(store, table, run, query, count);
}

/** Of all runs, in no order. */
export function entriesOf(store: StoreConnection, table: EventTable, query: EntryQuery, count: number): EventKey[] {
  const found: EventKey[] = [];
  for (const run of runsOf(table)) {
    for (const key of entriesOfRun(store, table, run, query, count - found.length)) found.push(key);
    if (found.length >= count) break;
  }
  return found;
}

function looseEntries(
  store: StoreConnection,
  { no: table, first_kept }: EventTable,
  { kind, owner, before, from }: EntryQuery,
  count: number,
): EventKey[] {
  return store.all<EventKey>(
    `SELECT timestamp, no FROM index_${table}
     WHERE kind = ? AND run = ${LOOSE_RUN} AND owner = ? AND (timestamp, no) < (?, ?) AND timestamp >= ? AND no >= ?
     ORDER BY timestamp DESC, no DESC LIMIT ?`,
    kind,
    owner,
    before.timestamp,
    before.no,
    from,
    first_kept,
    count,
  );
}

interface ChunkRow extends Entry {
  readonly entries: Uint8Array;
}

function chunkBefore(
  store: StoreConnection,
  table: number,
  [kind, run]: readonly [kind: OwnerKind, run: number],
  { owner, timestamp, no }: Entry,
): ChunkRow | undefined {
  return store.get<ChunkRow>(
    `SELECT owner, timestamp, no, entries FROM index_${table}
     WHERE kind = ? AND run = ? AND (owner, timestamp, no) < (?, ?, ?)
     ORDER BY owner DESC, timestamp DESC, no DESC LIMIT 1`,
    kind,
    run,
    owner,
    timestamp,
    no,
  );
}

function packedEntries(
  store: StoreConnection,
  { no: table, first_kept }: EventTable,
  run: number,
  { kind, owner, before, from }: EntryQuery,
  count: number,
): EventKey[] {
  const found: EventKey[] = [];
  let end: Entry = { owner, ...before };
  while (found.length < count) {
    const chunk = chunkBefore(store, table, [kind, run], end);
    if (chunk === undefined) break;
    const { owners, timestamps, numbers, count: size } = unpacked(chunk);
    for (let at = size - 1; at >= 0 && found.length < count; at--) {
      const key = { timestamp: timestamps[at] as number, no: numbers[at] as number };
      if (owners[at] !== owner || compareKeys(key, before) >= 0) continue;
      if (key.timestamp < from) return found;
      if (key.no >= first_kept) found.push(key);
    }
    if (chunk.owner < owner) break;
    end = chunk;
  }
  return found;
}

function unpacked(chunk: ChunkRow): Entries {
  const entries = newEntries(CHUNK_ENTRIES_MAX);
  unpackChunk(chunk, chunk.entries, entries);
  return entries;
}

/** Takes these entries out, in whichever runs they are. */
export function removeEntries(
  store: StoreConnection,
  table: EventTable,
  kind: OwnerKind,
  entries: readonly Entry[],
): void {
  const packed = entries.filter(({ owner, timestamp, no }) => {
    const sql = `DELETE FROM index_${table.no}
      WHERE kind = ? AND run = ${LOOSE_RUN} AND owner = ? AND timestamp = ? AND no = ?`;
    return store.run(sql, kind, owner, timestamp, no) === 0;
  });
  for (const run of runsOf(table)) {
    if (run === LOOSE_RUN) continue;
    const chunks = new Map<number, { readonly chunk: ChunkRow; readonly removed: Set<number> }>();
    for (const { owner, timestamp, no } of packed) {
      // The chunk that has it, if this run does: numbers are whole, so "before the next number" includes this one.
      const chunk = chunkBefore(store, table.no, [kind, run], { owner, timestamp, no: no + 1 });
      if (chunk === undefined) continue;
      const known = chunks.get(chunk.no) ?? { chunk, removed: new Set() };
      known.removed.add(no);
      chunks.set(chunk.no, known);
    }
    for (const { chunk, removed } of chunks.values()) rewriteChunk(store, table.no, [kind, run], chunk, removed);
  }
}

function rewriteChunk(
  store: StoreConnection,
  table: number,
  [kind, run]: readonly [kind: OwnerKind, run: number],
  chunk: ChunkRow,
  removed: ReadonlySet<number>,
): void {
  const { owners, timestamps, numbers, count } = unpacked(chunk);
  const kept = newEntries(count);
  for (let at = 0; at < count; at++) {
    const no = numbers[at] as number;
    if (!removed.has(no)) addEntry(kept, owners[at] as number, timestamps[at] as number, no);
  }
  if (kept.count === count) return;
  const place = 'kind = ? AND run = ? AND owner = ? AND timestamp = ? AND no = ?';
  store.run(`DELETE FROM index_${table} WHERE ${place}`, kind, run, chunk.owner, chunk.timestamp, chunk.no);
  if (kept.count === 0) return;
  const order = Uint32Array.from({ length: kept.count }, (_, at) => at);
  const bytes = packChunk(kept, order, 0, kept.count);
  const [owner, timestamp, no] = [kept.owners[0] ?? 0, kept.timestamps[0] ?? 0, kept.numbers[0] ?? 0];
  store.run(`INSERT INTO index_${table} VALUES (?, ?, ?, ?, ?, ?)`, kind, run, owner, timestamp, no, bytes);
}

/** Positive if `a` is newer. */
export function compareKeys(a: EventKey, b: EventKey): number {
  return a.timestamp - b.timestamp || a.no - b.no;
}
