/**
 * The index of events: the events of a node, and those of a tenant, by time. Two families of sorted runs (sorted-runs/)
 * of keys (owner, timestamp, number of the event) without values; their groups are the tables of events, so that the
 * runs of a complete table become one, and a table is dropped with its entries.
 *
 * Entries of expired events stay until the table is dropped (store/retention.ts); those of an erased person are removed.
 */

import type { DatabaseSync } from 'node:sqlite';
import type { RunsShape } from '../sorted-runs/entries.ts';
import { type RunsSizes, SortedRuns } from '../sorted-runs/sorted-runs.ts';
import type { EventTable, StoreConnection } from './connection.ts';

const KEYS_ONLY = { keyColumns: 3, valueColumns: 0, hasBytes: false, hasFilters: false } as const;
export const EVENTS_BY_NODE: RunsShape = { name: 'events_by_node', ...KEYS_ONLY };
export const EVENTS_BY_TENANT: RunsShape = { name: 'events_by_tenant', ...KEYS_ONLY };

export interface EventKey {
  readonly timestamp: number;
  readonly no: number;
}

export interface EntryQuery {
  readonly index: RunsShape;
  readonly owner: number;
  /** Exclusive. */
  readonly before: EventKey;
  /** The oldest timestamp, inclusive. */
  readonly from: number;
}

/**
 * Under load a table of events is filled by fewer transactions than that, so its entries are merged once, when it is
 * complete. A read searches each of these runs, which takes some ten microseconds a run.
 */
export const INDEX_SIZES: RunsSizes = { fanOut: 24, blockRows: 256 };

/** Removes at most this many blocks of the entries of a table, in each family; true while there are more. */
export function dropEntries(database: DatabaseSync, table: number, blocksMax: number): boolean {
  const hasMore = [EVENTS_BY_NODE, EVENTS_BY_TENANT].map((index) =>
    new SortedRuns(database, index).drop(table, blocksMax),
  );
  return hasMore.includes(true);
}

/** One owner's entries in one run, newest first, from `first_kept` on; others may have expired too. */
export function* entriesOfRun(
  store: StoreConnection,
  { first_kept }: EventTable,
  run: number,
  { index, owner, before, from }: EntryQuery,
): Generator<EventKey> {
  const entries = store.runs(index).descending(run, [owner, from], [owner, before.timestamp, before.no]);
  for (const { key } of entries) {
    const [, timestamp, no] = key as readonly [number, number, number];
    if (no >= first_kept) yield { timestamp, no };
  }
}

/** At most `count`, from all runs of a table, unordered. */
export function entriesOf(store: StoreConnection, table: EventTable, query: EntryQuery, count: number): EventKey[] {
  const found: EventKey[] = [];
  for (const run of store.runs(query.index).listRuns(table.no)) {
    for (const key of entriesOfRun(store, table, run.no, query)) {
      if (found.length >= count) return found;
      found.push(key);
    }
  }
  return found;
}

/** Positive if `a` is newer. */
export function compareEventKeys(a: EventKey, b: EventKey): number {
  return a.timestamp - b.timestamp || a.no - b.no;
}
