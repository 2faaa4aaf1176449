/**
 * Whether the rows of a store belong together, which SQLite's own checks cannot see: every event is in the range of its
 * record and of the same tenant, every node that it names exists, no number was given out that a sequence would give
 * out again. A store that mixes pages of two moments breaks these first. Reads every event once, in order, beside the
 * records; memory is one bit for each node. Call it in a read transaction if a server may be writing.
 */

import type { DatabaseSync } from 'node:sqlite';
import { type BlockEvent, unpackBlock } from './event-blocks.ts';
import { type EventTable, StoreConnection } from './connection.ts';
import type { BlockRow } from './stored-events.ts';

interface RecordRow {
  readonly no: number;
  readonly tenant: number;
  readonly first_event: number;
  readonly events: number;
}

type Sequences = ReadonlyMap<string, number>;

/** Messages, `max` at most; none if everything is consistent. */
export function brokenLinksIn(database: DatabaseSync, max: number): string[] {
  const store = new StoreConnection(database);
  const sequences: Sequences = new Map(
    store.all<{ name: string; next: number }>('SELECT name, next FROM sequences').map(({ name, next }) => [name, next]),
  );
  const findings: string[] = [];
  for (const finding of brokenLinks(store, sequences)) {
    findings.push(finding);
    if (findings.length >= max) break;
  }
  return findings;
}

function* brokenLinks(store: StoreConnection, sequences: Sequences): Generator<string> {
  const nodes = new NodeSet(sequences.get('node') ?? 1);
  for (const { no } of store.iterate<{ no: number }>('SELECT no FROM nodes')) {
    if (!nodes.add(no)) yield beyond('node', no, sequences);
  }
  for (const table of store.tables()) yield* brokenLinksOfTable(store, table, nodes, sequences);
}

function* brokenLinksOfTable(
  store: StoreConnection,
  { no: table }: EventTable,
  nodes: NodeSet,
  sequences: Sequences,
): Generator<string> {
  const records = store.iterate<RecordRow>(`SELECT no, tenant, first_event, events FROM records_${table} ORDER BY no`);
  let record = records.next().value as RecordRow | undefined;
  let [lastEvent, lastRecord] = [0, 0];
  const blocks = `SELECT first_event, tenant, events, numbers, texts FROM events_${table} ORDER BY first_event`;
  for (const block of store.iterate<BlockRow & { readonly events: number }>(blocks)) {
    const events = unpackBlock(block.tenant, block);
    if (events.length !== block.events) {
      yield `the block of events ${block.first_event} in events_${table} holds ${events.length}, and says ${block.events}`;
    }
    for (const event of events) {
      // Records and events are numbered in the same order.
      while (record !== undefined && record.no < event.record) record = records.next().value as RecordRow | undefined;
      if (!isOf(event, record)) yield `event ${event.no} in events_${table} is not one of its record ${event.record}`;
      if (event.node !== null && !nodes.has(event.node)) {
        yield `event ${event.no} in events_${table} is of node ${event.node}, which is not there`;
      }
      if (event.no <= lastEvent) yield `event ${event.no} in events_${table} comes after event ${lastEvent}`;
      [lastEvent, lastRecord] = [event.no, Math.max(lastRecord, event.record)];
    }
  }
  if (lastEvent >= (sequences.get('event') ?? 0)) yield beyond('event', lastEvent, sequences);
  if (lastRecord >= (sequences.get('record') ?? 0)) yield beyond('record', lastRecord, sequences);
}

function isOf({ no, tenant, record }: BlockEvent, row: RecordRow | undefined): boolean {
  return row?.no === record && row.tenant === tenant && no >= row.first_event && no < row.first_event + row.events;
}

function beyond(name: string, no: number, sequences: Sequences): string {
  return `${name} ${no} is stored, and the next ${name} would get the number ${sequences.get(name)}`;
}

/** Node numbers below a bound. */
class NodeSet {
  readonly #bits: Uint8Array;
  readonly #end: number;

  constructor(end: number) {
    this.#end = end;
    this.#bits = new Uint8Array(Math.ceil(end / 8));
  }

  /** False if it is not below the bound. */
  add(no: number): boolean {
    if (no >= this.#end) return false;
    const byte = Math.floor(no / 8);
    this.#bits[byte] = (this.#bits[byte] ?? 0) | (1 << (no % 8));
    return true;
  }

  has(no: number): boolean {
    return ((this.#bits[Math.floor(no / 8)] ?? 0) & (1 << (no % 8))) !== 0;
  }
}
