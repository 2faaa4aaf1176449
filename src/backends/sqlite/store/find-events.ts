/**
 * Finds the events that match a query, newest first by (timestamp, number), as keys: cheap to collect from the indexes
 * of many tables of events, before any event is read.
 *
 * Every run of the index of a table, and for a profile that of every node, is a sorted stream; the streams are merged.
 * A stream is read only when its table's newest timestamp could be next, so recent events are found in the newest
 * tables alone.
 */

import { HOUR_MS, MINUTE_MS, type NodeNumber } from '../../../model.ts';
import { merged } from '../merged.ts';
import {
  compareKeys,
  entriesOfRun,
  type EntryQuery,
  type EventKey,
  EVENTS_BY_NODE,
  EVENTS_BY_TENANT,
} from './event-index.ts';
import type { EventTable, StoreConnection } from './connection.ts';
import type { EventReader } from './stored-events.ts';

export interface FoundEvent extends EventKey {
  readonly table: number;
}

export interface KeyQuery {
  readonly tenant: number;
  /** Null for all events, with or without a node. */
  readonly nodes: readonly NodeNumber[] | null;
  readonly eventName: string | null;
  /** Exclusive. */
  readonly before: EventKey;
  /** The oldest timestamp, inclusive. */
  readonly from: number;
}

export function findEvents(store: StoreConnection, reader: EventReader, query: KeyQuery, wanted: number): FoundEvent[] {
  const tables = store.tables();
  if (query.eventName === null || query.nodes !== null) return mergeStreams(store, reader, tables, query, wanted);
  const found: FoundEvent[] = [];
  for (const minute of minutesWith(store, query.tenant, query.eventName, query)) {
    const end = { timestamp: minute + MINUTE_MS, no: 0 };
    const before = compareKeys(query.before, end) < 0 ? query.before : end;
    const part = { ...query, before, from: Math.max(query.from, minute) };
    found.push(...mergeStreams(store, reader, tables, part, wanted - found.length));
    if (found.length >= wanted) break;
  }
  return found;
}

/**
 * Minutes with events of this name, newest first. There is no index by name: the counts show where a name occurs, so a
 * rare one is found without reading the events in between, at two lookups for every hour that has any events.
 */
function* minutesWith(
  store: StoreConnection,
  tenant: number,
  eventName: string,
  { before, from }: Pick<KeyQuery, 'before' | 'from'>,
): Generator<number> {
  const steps = (width: number, start: number, end: number): Generator<number> =>
    bucketsWith(store, { tenant, width, eventName, from: start, to: end });
  for (const hour of steps(HOUR_MS, from, before.timestamp)) {
    const start = Math.max(from, hour);
    yield* steps(MINUTE_MS, start, Math.min(before.timestamp, hour + HOUR_MS - 1));
  }
}

interface BucketRange {
  readonly tenant: number;
  readonly width: number;
  readonly eventName: string;
  /** Both inclusive, anywhere in their buckets. */
  readonly from: number;
  readonly to: number;
}

function* bucketsWith(store: StoreConnection, range: BucketRange): Generator<number> {
  const { tenant, width, eventName } = range;
  const oldest = Math.floor(range.from / width) * width;
  let below = Math.floor(range.to / width) * width + 1;
  for (;;) {
    const bucket = store.get<{ start: number }>(
      'SELECT start FROM counts WHERE tenant = ? AND width = ? AND start < ? ORDER BY start DESC LIMIT 1',
      tenant,
      width,
      below,
    );
    if (bucket === undefined || bucket.start < oldest) return;
    below = bucket.start;
    const hasName = store.get(
      'SELECT 1 FROM counts WHERE tenant = ? AND width = ? AND start = ? AND event_name = ?',
      tenant,
      width,
      bucket.start,
      eventName,
    );
    if (hasName !== undefined) yield bucket.start;
  }
}

function mergeStreams(
  store: StoreConnection,
  reader: EventReader,
  tables: readonly EventTable[],
  query: KeyQuery,
  wanted: number,
): FoundEvent[] {
  const index = query.nodes === null ? EVENTS_BY_TENANT : EVENTS_BY_NODE;
  const owners = query.nodes ?? [query.tenant];
  const streams = tables.flatMap((table) => {
    const { no, timestamp_min: min, timestamp_max: max } = table;
    if (min === null || max === null || min > query.before.timestamp || max < query.from) return [];
    const runs = store.runs(index).listRuns(no);
    return runs.flatMap((run) =>
      owners.map((owner) => wantedKeys(store, reader, table, run.no, { ...query, index, owner })),
    );
  });
  const found: FoundEvent[] = [];
  for (const { timestamp, no, table } of merged(streams, (a, b) => compareKeys(b, a))) {
    if (table !== null) found.push({ timestamp, no, table });
    if (found.length >= wanted) break;
  }
  return found;
}

/**
 * The entries of one owner in one run whose events are stored and have the requested name, newest first. Before them
 * comes their upper limit, without a table: so the run is not read until that is the newest of all.
 */
function* wantedKeys(
  store: StoreConnection,
  reader: EventReader,
  table: EventTable,
  run: number,
  query: EntryQuery & Pick<KeyQuery, 'eventName'>,
): Generator<EventKey & { readonly table: number | null }, undefined> {
  const { eventName, before } = query;
  const timestamp = Math.min(table.timestamp_max ?? Number.NEGATIVE_INFINITY, before.timestamp);
  yield { timestamp, no: Number.MAX_SAFE_INTEGER, table: null };
  const isAlwaysWanted = eventName === null && table.expired === 0;
  for (const key of entriesOfRun(store, table, run, query)) {
    const event = isAlwaysWanted ? undefined : reader.get(table.no, key.no);
    if (isAlwaysWanted || (event !== undefined && (eventName === null || event.name === eventName))) {
      yield { ...key, table: table.no };
    }
  }
}
