/**
 * Which events a question asks for, newest first by (timestamp, number), as keys: cheap to gather from the indexes of
 * many tables of events, before any event is read.
 *
 * Every run of the index of a table, and for a profile that of every node, is a stream in order; the streams are merged.
 * A stream is asked only when its table's newest timestamp could be next, so recent events are found in the newest
 * tables alone.
 */

import type { NodeNumber } from '../../model.ts';
import { OWNER } from './event-index.ts';
import { HOUR_MS, MINUTE_MS } from '../../stored/sums.ts';
import type { EventTable, StoreConnection } from './store-connection.ts';
import { compareKeys, entriesOfRun, type EntryQuery, runsOf } from './store-event-index.ts';
import type { EventReader } from './stored-events.ts';

export interface EventKey {
  readonly timestamp: number;
  readonly no: number;
}

export interface FoundEvent extends EventKey {
  readonly table: number;
}

export interface KeyQuery {
  readonly tenant: number;
  /** Null for the events of all nodes, and of none. */
  readonly nodes: readonly NodeNumber[] | null;
  readonly eventName: string | null;
  /** Exclusive. */
  readonly before: EventKey;
  /** The oldest timestamp, inclusive. */
  readonly from: number;
}

/** So that a profile of many nodes over many tables does not fetch a whole page from each. */
const FETCH_MIN = 16;

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
 * Minutes that have events of this name, newest first. There is no index by name: the counts know where a name occurs,
 * so a rare one is found without reading the events in between, at two look-ups for every hour that has any events.
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

/** Events of one owner in one run, newest first. */
class Stream {
  readonly table: number;
  readonly #fetch: (before: EventKey) => EventKey[];
  #keys: EventKey[] = [];
  #at = 0;
  /** What comes next is this or older; once something was fetched, it is exactly the next one. */
  next: EventKey | undefined;
  #isFetched = false;
  #before: EventKey;

  constructor(table: EventTable, before: EventKey, fetch: (before: EventKey) => EventKey[]) {
    this.table = table.no;
    this.#fetch = fetch;
    this.#before = before;
    const timestamp = Math.min(table.timestamp_max ?? Number.NEGATIVE_INFINITY, before.timestamp);
    this.next = { timestamp, no: Number.MAX_SAFE_INTEGER };
  }

  /** The next key, or undefined when that is not known before other streams have been looked at. */
  take(): EventKey | undefined {
    if (!this.#isFetched) {
      this.#keys = this.#fetch(this.#before);
      this.#at = 0;
      this.#isFetched = true;
      this.next = this.#keys[0];
      return undefined;
    }
    const key = this.next;
    if (key === undefined) return undefined;
    this.#at += 1;
    this.next = this.#keys[this.#at];
    if (this.next === undefined) {
      this.#before = key;
      this.#isFetched = false;
      this.next = { timestamp: key.timestamp, no: key.no - 1 };
    }
    return key;
  }
}

function mergeStreams(
  store: StoreConnection,
  reader: EventReader,
  tables: readonly EventTable[],
  query: KeyQuery,
  wanted: number,
): FoundEvent[] {
  const overlapping = tables.filter(
    ({ timestamp_min, timestamp_max }) =>
      timestamp_min !== null &&
      timestamp_max !== null &&
      timestamp_min <= query.before.timestamp &&
      timestamp_max >= query.from,
  );
  const kind = query.nodes === null ? OWNER.tenant : OWNER.node;
  const owners = query.nodes ?? [query.tenant];
  const count = Math.min(wanted, FETCH_MIN + Math.ceil(wanted / Math.max(1, owners.length)));
  let streams = overlapping.flatMap((table) =>
    runsOf(table).flatMap((run) =>
      owners.map(
        (owner) =>
          new Stream(table, query.before, (before) =>
            fetchKeys(store, reader, table, run, { ...query, kind, owner, before }, count),
          ),
      ),
    ),
  );
  const found: FoundEvent[] = [];
  while (found.length < wanted) {
    const newest = newestOf(streams);
    if (newest === undefined) break;
    const key = newest.take();
    if (key !== undefined) found.push({ ...key, table: newest.table });
    if (newest.next === undefined) streams = streams.filter((stream) => stream !== newest);
  }
  return found;
}

function newestOf(streams: readonly Stream[]): Stream | undefined {
  let newest: Stream | undefined;
  for (const stream of streams) {
    if (stream.next === undefined) continue;
    if (newest?.next === undefined || compareKeys(stream.next, newest.next) > 0) newest = stream;
  }
  return newest;
}

/** Of the entries of one run, those whose events are stored, and have the name that is asked for. */
function fetchKeys(
  store: StoreConnection,
  reader: EventReader,
  table: EventTable,
  run: number,
  query: EntryQuery & Pick<KeyQuery, 'eventName'>,
  count: number,
): EventKey[] {
  const { eventName } = query;
  const isWanted = ({ no }: EventKey): boolean => {
    const event = reader.get(table.no, no);
    return event !== undefined && (eventName === null || event.name === eventName);
  };
  const keys: EventKey[] = [];
  for (let { before } = query; ; ) {
    const found = entriesOfRun(store, table, run, { ...query, before }, count);
    keys.push(...(eventName === null && table.expired === 0 ? found : found.filter(isWanted)));
    const last = found.at(-1);
    if (last === undefined || found.length < count || keys.length >= count) return keys;
    before = last;
  }
}
