/**
 * Reads and removes stored events. By number: finds and unpacks blocks (event-blocks.ts). A block from which events are
 * removed keeps its row under its first number; an empty one is removed.
 *
 * By time: the events of a node, and those of a tenant, from an index of two families of sorted runs (sorted-runs/) of
 * keys (owner, timestamp, number of the event) without values. The runs of a complete group become one. Once all events
 * of a group have expired, it is dropped with its entries; entries of expired events stay until then.
 *
 * An erase and retention remove events within their own write transaction, a bounded number at a time, and every sum is
 * updated: the event count of groups, and the sums of `backends/sql/sums.ts`.
 */

import type { DatabaseSync } from 'node:sqlite';
import { currencyOfStored } from '../../../views/currency.ts';
import { selectStoredEvents } from '../../sql/ledger.ts';
import { rowsOf } from '../../sql/steps.ts';
import { type RemovedEvent, takeFromSums } from '../../sql/sums.ts';
import { type Block, type BlockEvent, BlockWriter, unpackBlock } from './event-blocks.ts';
import type { RunsShape } from '../sorted-runs/entries.ts';
import { type RunsSizes, SortedRuns } from '../sorted-runs/sorted-runs.ts';
import type { EventGroup, StoreConnection } from './connection.ts';

export interface BlockRow extends Block {
  readonly first_event: number;
  readonly tenant: number;
}

/** Limits of the cache: events, and characters of their properties. */
const KEPT_EVENTS_MAX = 4_096;
const KEPT_LENGTH_MAX = 2 * 1024 * 1024;

/** Reads single events, in any order, within one transaction. */
export class EventReader {
  readonly #store: StoreConnection;
  readonly #events = new Map<number, BlockEvent>();
  #length = 0;

  constructor(store: StoreConnection) {
    this.#store = store;
  }

  /** Undefined if it is no longer stored. */
  get(no: number): BlockEvent | undefined {
    const known = this.#events.get(no);
    if (known !== undefined) return known;
    const block = blockOf(this.#store, no);
    if (block === undefined) return undefined;
    if (this.#events.size > KEPT_EVENTS_MAX || this.#length > KEPT_LENGTH_MAX) {
      this.#events.clear();
      this.#length = 0;
    }
    for (const event of unpackBlock(block.tenant, block)) {
      this.#events.set(event.no, event);
      this.#length += event.properties.length;
    }
    return this.#events.get(no);
  }
}

/** Those with `from` <= number < `to`, in order; of one tenant, or of all. */
export function* eventsBetween(
  store: StoreConnection,
  from: number,
  to: number,
  tenant: number | null = null,
): Generator<BlockEvent> {
  const blocks = store.iterate<BlockRow>(
    `SELECT first_event, tenant, numbers, texts, crc FROM events
     WHERE first_event >= coalesce((SELECT max(first_event) FROM events WHERE first_event <= ?1), 0)
       AND first_event < ?2 AND (?3 IS NULL OR tenant = ?3) ORDER BY first_event`,
    from,
    to,
    tenant,
  );
  for (const block of blocks) {
    for (const event of unpackBlock(block.tenant, block)) if (event.no >= from && event.no < to) yield event;
  }
}

function removeStored(store: StoreConnection, numbers: readonly number[]): void {
  const left = new Set(numbers);
  for (const no of left) {
    const block = blockOf(store, no);
    if (block === undefined) throw new Error(`event ${no} cannot be removed: it is not stored`);
    const writer = new BlockWriter();
    for (const event of unpackBlock(block.tenant, block)) {
      if (left.delete(event.no)) continue;
      const isAdded = writer.add(event.no, event.node, event.record, event.userIndex, event);
      if (!isAdded) throw new Error('what is left of a block does not fit into a block');
    }
    const { events } = writer;
    if (events === 0) store.run('DELETE FROM events WHERE first_event = ?', block.first_event);
    else {
      const { numbers: bytes, texts, crc } = writer.take();
      const sql = 'UPDATE events SET events = ?, numbers = ?, texts = ?, crc = ? WHERE first_event = ?';
      store.run(sql, events, bytes, texts, crc, block.first_event);
    }
  }
}

/** Slow: reads every block. */
export function recount(store: StoreConnection): { eventsInLedger: number; eventsInTables: number } {
  const [ledger] = store.steps((tables) => rowsOf(selectStoredEvents(tables)));
  return { eventsInLedger: ledger?.events ?? 0, eventsInTables: countStored(store) };
}

export function countStored(store: StoreConnection): number {
  return store.get<{ events: number | null }>('SELECT sum(events) AS events FROM events')?.events ?? 0;
}

function blockOf(store: StoreConnection, no: number): BlockRow | undefined {
  return store.get<BlockRow>(
    'SELECT first_event, tenant, numbers, texts, crc FROM events WHERE first_event <= ? ORDER BY first_event DESC LIMIT 1',
    no,
  );
}

export type RemovableEvent = RemovedEvent & Pick<BlockEvent, 'no' | 'node'>;

/** Without its properties, which may be large. */
export function removable(event: BlockEvent, receivedAt: number): RemovableEvent {
  const { no, tenant, node, timestamp, record, userIndex, name, revenue } = event;
  const currency = currencyOfStored(revenue, event.properties);
  return { no, tenant, node, timestamp, name, revenue, currency, receivedAt, user: `${record} ${userIndex}` };
}

/**
 * All events of a user in a record have to be removed together, or the users in the ledger are wrong. Index entries of
 * erased events are removed; those of expired ones stay until the group is dropped.
 */
export function removeEvents(
  store: StoreConnection,
  group: EventGroup,
  events: readonly RemovableEvent[],
  becoming: 'erased' | 'expired',
): void {
  if (events.length === 0) return;
  const numbers = events.map(({ no }) => no);
  removeStored(store, numbers);
  if (becoming === 'erased') unindex(store, group, events);
  const expired = becoming === 'expired' ? 1 : group.expired;
  store.run('UPDATE event_groups SET events = events - ?, expired = ? WHERE no = ?', events.length, expired, group.no);
  store.steps((tables, locks) => takeFromSums(tables, locks, events, becoming));
}

function unindex(store: StoreConnection, { no: group }: EventGroup, events: readonly RemovableEvent[]): void {
  const byNode = events.flatMap(({ node, timestamp, no }) => (node === null ? [] : [[node, timestamp, no]]));
  store.runs(EVENTS_BY_NODE).remove(byNode, group);
  const byTenant = events.map(({ tenant, timestamp, no }) => [tenant, timestamp, no]);
  store.runs(EVENTS_BY_TENANT).remove(byTenant, group);
}

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
 * `fanOut` is high, so that under load the entries of a group are merged once, when it is complete. A read searches
 * each of the runs, which takes some ten microseconds a run.
 */
export const INDEX_SIZES: RunsSizes = { fanOut: 24, blockRows: 256 };

/** Removes at most this many blocks of the entries of a group, in each family; true while there are more. */
export function dropEntries(database: DatabaseSync, group: number, blocksMax: number): boolean {
  const hasMore = [EVENTS_BY_NODE, EVENTS_BY_TENANT].map((index) =>
    new SortedRuns(database, index).drop(group, blocksMax),
  );
  return hasMore.includes(true);
}

/** One owner's entries in one run, newest first, from `first_kept` on; some of these may have expired too. */
export function* entriesOfRun(
  store: StoreConnection,
  { first_kept }: EventGroup,
  run: number,
  { index, owner, before, from }: EntryQuery,
): Generator<EventKey> {
  const entries = store.runs(index).descending(run, [owner, from], [owner, before.timestamp, before.no]);
  for (const { key } of entries) {
    const [, timestamp, no] = key as readonly [number, number, number];
    if (no >= first_kept) yield { timestamp, no };
  }
}

/** At most `count`, from all runs of a group, unordered. */
export function entriesOf(store: StoreConnection, group: EventGroup, query: EntryQuery, count: number): EventKey[] {
  const found: EventKey[] = [];
  for (const run of store.runs(query.index).listRuns(group.no)) {
    for (const key of entriesOfRun(store, group, run.no, query)) {
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
