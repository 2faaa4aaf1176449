/**
 * What `sluice doctor` and the check of a backup read from the embedded files: whether a start would refuse the newest
 * segment of the log, how much disk is free, whether every page and every link of the store is intact. Reads only; takes
 * no lock that a server would notice.
 */

import { statfsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { LogCorruptError, LogUnavailableError } from '../../log.ts';
import { damageIn, isDamage } from './database.ts';
import { inspectSegment } from './log/recovery.ts';
import { holdsRecords, listSegments } from './log/segments.ts';
import { StoreConnection } from './store/connection.ts';
import { type BlockEvent, unpackBlock } from './store/event-blocks.ts';
import type { BlockRow } from './store/stored-events.ts';

const FINDINGS_MAX = 5;

/** For users other than root. */
export function freeBytesOf(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

/**
 * Problems in the store's file, as messages; none if its pages are intact. Reads all of it. Deep: also checks links
 * between rows, which takes many times as long.
 */
export function findingsInStore(file: string, isDeep: boolean): string[] {
  using database = new DatabaseSync(file, { readOnly: true });
  try {
    database.exec('BEGIN');
    const findings = damageIn(database, FINDINGS_MAX);
    return findings.length > 0 || !isDeep ? findings : brokenLinksIn(database, FINDINGS_MAX);
  } catch (error) {
    if (!isDamage(error) || !(error instanceof Error)) throw error;
    return [error.message];
  }
}

/** Why a start would refuse the newest segment of the log; null if it would not. For a folder without a running server. */
export function problemOfNewestSegment(logFolder: string): string | null {
  const newest = listSegments(logFolder).at(-1);
  if (newest === undefined || !holdsRecords(newest)) return null;
  try {
    inspectSegment(newest);
    return null;
  } catch (error) {
    if (!(error instanceof LogCorruptError) && !(error instanceof LogUnavailableError)) throw error;
    return error.message;
  }
}

interface RecordRow {
  readonly no: number;
  readonly tenant: number;
  readonly first_event: number;
  readonly events: number;
}

type Sequences = ReadonlyMap<string, number>;

/**
 * Whether the rows of a store belong together, which SQLite's own checks cannot see: every event is in the range of its
 * record and of the same tenant, every node that it names exists, no number was issued that a sequence would
 * issue again. A store that mixes pages of two moments breaks these first. Reads every event once, in order, with the
 * records; memory is one byte for each node. Call it in a read transaction if a server may be writing. Returns `max`
 * messages at most.
 */
export function brokenLinksIn(database: DatabaseSync, max: number): string[] {
  const store = new StoreConnection(database);
  const sequences: Sequences = new Map(
    store.all<{ name: string; next: number }>('SELECT name, next FROM sequences').map(({ name, next }) => [name, next]),
  );
  return [...brokenLinks(store, sequences).take(max)];
}

function* brokenLinks(store: StoreConnection, sequences: Sequences): Generator<string> {
  const isNode = new Uint8Array(sequences.get('node') ?? 1);
  for (const { no } of store.iterate<{ no: number }>('SELECT no FROM nodes')) {
    if (no < isNode.length) isNode[no] = 1;
    else yield beyond('node', no, sequences);
  }
  const records = store.iterate<RecordRow>('SELECT no, tenant, first_event, events FROM records ORDER BY no');
  let record = records.next().value as RecordRow | undefined;
  let [lastEvent, lastRecord] = [0, 0];
  const blocks = 'SELECT first_event, tenant, events, numbers, texts, crc FROM events ORDER BY first_event';
  for (const block of store.iterate<BlockRow & { readonly events: number }>(blocks)) {
    const events = unpackBlock(block.tenant, block);
    if (events.length !== block.events) {
      yield `the block of events ${block.first_event} holds ${events.length}, and says ${block.events}`;
    }
    for (const event of events) {
      // Records and events are numbered in the same order.
      while (record !== undefined && record.no < event.record) record = records.next().value as RecordRow | undefined;
      if (!isOf(event, record)) yield `event ${event.no} is not one of its record ${event.record}`;
      if (event.node !== null && isNode[event.node] !== 1) {
        yield `event ${event.no} is of node ${event.node}, which is not there`;
      }
      if (event.no <= lastEvent) yield `event ${event.no} comes after event ${lastEvent}`;
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
