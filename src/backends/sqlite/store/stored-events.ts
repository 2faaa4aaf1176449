/**
 * Reads and removes the stored events of a table by number: finds and unpacks blocks (store/event-blocks.ts). A block
 * from which events are removed keeps its row under its first number; an empty one is removed. Events of a block that
 * were just read are cached for the rest of the query, up to a limit.
 */

import { selectStoredEvents } from '../../sql/ledger.ts';
import { rowsOf } from '../../sql/steps.ts';
import { type Block, type BlockEvent, BlockWriter, unpackBlock } from './event-blocks.ts';
import type { StoreConnection } from './connection.ts';

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
  get(table: number, no: number): BlockEvent | undefined {
    const known = this.#events.get(no);
    if (known !== undefined) return known;
    const block = blockOf(this.#store, table, no);
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
  table: number,
  from: number,
  to: number,
  tenant: number | null = null,
): Generator<BlockEvent> {
  const blocks = store.iterate<BlockRow>(
    `SELECT first_event, tenant, numbers, texts FROM events_${table}
     WHERE first_event >= coalesce((SELECT max(first_event) FROM events_${table} WHERE first_event <= ?1), 0)
       AND first_event < ?2 AND (?3 IS NULL OR tenant = ?3) ORDER BY first_event`,
    from,
    to,
    tenant,
  );
  for (const block of blocks) {
    for (const event of unpackBlock(block.tenant, block)) if (event.no >= from && event.no < to) yield event;
  }
}

export function removeStored(store: StoreConnection, table: number, numbers: readonly number[]): void {
  const left = new Set(numbers);
  for (const no of left) {
    const block = blockOf(store, table, no);
    if (block === undefined) throw new Error(`event ${no} cannot be removed: it is not stored`);
    const writer = new BlockWriter();
    for (const event of unpackBlock(block.tenant, block)) {
      if (left.delete(event.no)) continue;
      writer.add(event.no, event.node, event.record, event.userIndex, event);
    }
    const { events } = writer;
    if (events === 0) store.run(`DELETE FROM events_${table} WHERE first_event = ?`, block.first_event);
    else {
      const { numbers: bytes, texts } = writer.take();
      const sql = `UPDATE events_${table} SET events = ?, numbers = ?, texts = ? WHERE first_event = ?`;
      store.run(sql, events, bytes, texts, block.first_event);
    }
  }
}

/** Slow: reads every block. */
export function recount(store: StoreConnection): { eventsInLedger: number; eventsInTables: number } {
  const [ledger] = store.steps((tables) => rowsOf(selectStoredEvents(tables)));
  const eventsInTables = store.tables().reduce((sum, { no }) => sum + countStored(store, no), 0);
  return { eventsInLedger: ledger?.events ?? 0, eventsInTables };
}

export function countStored(store: StoreConnection, table: number): number {
  return store.get<{ events: number | null }>(`SELECT sum(events) AS events FROM events_${table}`)?.events ?? 0;
}

function blockOf(store: StoreConnection, table: number, no: number): BlockRow | undefined {
  return store.get<BlockRow>(
    `SELECT first_event, tenant, numbers, texts FROM events_${table}
     WHERE first_event <= ? ORDER BY first_event DESC LIMIT 1`,
    no,
  );
}
