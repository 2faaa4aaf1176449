/**
 * Events by time (a timeline, newest first) and by arrival (for live views). Rows are read one by one after their keys
 * were found, and a page ends early when it becomes large, so that 500 events of megabytes each do not fill the memory:
 * its cursor continues where it ended.
 */

import type {
  ArrivalFilter,
  ArrivedEvent,
  Arrivals,
  EventQuery,
  NewestArrivals,
  Page,
  StoredEvent,
} from '../../../store.ts';
import { HOUR_MS, MINUTE_MS, type NodeNumber } from '../../../model.ts';
import { merged } from '../merged.ts';
import { BLOCK_EVENTS_MAX, type BlockEvent } from './event-blocks.ts';
import {
  compareEventKeys,
  entriesOfRun,
  type EntryQuery,
  type EventKey,
  EventReader,
  EVENTS_BY_NODE,
  EVENTS_BY_TENANT,
  eventsBetween,
} from './stored-events.ts';
import { type EventGroup, storeIdOf, type StoreConnection } from './connection.ts';
import {
  arrivalCursorIn,
  arrivalCursorOf,
  type CursorIssuer,
  eventCursorOf,
  eventsBefore,
  expiredCursor,
  cursorFromFuture,
  storeIdIn,
  malformedCursor,
  cursorOfOtherHistory,
  cursorOfOtherStore,
  OLDEST,
  PAGE_LENGTH_MAX,
} from '../../../views/cursor.ts';
import { amountText } from '../../../views/currency.ts';
import { startOf } from '../../../views/sums.ts';
import { followsStart } from '../../sql/starts.ts';
import { nodesById } from './profiles.ts';
import { uuidText } from '../uuids.ts';
import { latestStart } from './starts.ts';

/** Events that one call scans before it returns what it found. */
const ARRIVALS_SCANNED_MAX = 20_000;

/** Undefined if the query names an unknown profile. */
export function listEvents(store: StoreConnection, tenant: number, query: EventQuery): Page<StoredEvent> | undefined {
  const before = eventsBefore(tenant, query);
  const profile = query.profileId === null ? null : nodesById(store, tenant, query.profileId);
  if (profile === undefined) return undefined;
  const reader = new EventReader(store);
  const keys = findEvents(
    store,
    reader,
    {
      tenant,
      nodes: profile && profile.nodes.map(({ node }) => node),
      eventName: query.eventName,
      before,
      from: query.from ?? Number.MIN_SAFE_INTEGER,
    },
    query.limit + 1,
  );
  const rows: StoredEvent[] = [];
  let length = 0;
  for (const { no } of keys.slice(0, query.limit)) {
    const row = reader.get(no);
    if (row === undefined) throw new Error(`event ${no} is in the index and not in the table`);
    rows.push(storedEvent(store, row));
    length += row.properties.length;
    if (length > PAGE_LENGTH_MAX) break;
  }
  const last = keys[rows.length - 1];
  const hasMore = keys.length > rows.length && last !== undefined;
  return {
    rows,
    nextCursor: hasMore ? eventCursorOf(tenant, query, last) : null,
  };
}

interface KeyQuery {
  readonly tenant: number;
  /** Null for all events, with or without a node. */
  readonly nodes: readonly NodeNumber[] | null;
  readonly eventName: string | null;
  /** Exclusive. */
  readonly before: EventKey;
  /** The oldest timestamp, inclusive. */
  readonly from: number;
}

/**
 * The events that match a query, newest first by (timestamp, number), as keys: cheap to collect from many groups of the
 * index, before any event is read.
 *
 * Every run of a group, and for a profile that of every node, is a sorted stream; the streams are merged. A stream is
 * read only when its group's newest timestamp could be next, so recent events are found in the newest groups alone.
 */
function findEvents(store: StoreConnection, reader: EventReader, query: KeyQuery, wanted: number): EventKey[] {
  const groups = store.eventGroups();
  if (query.eventName === null || query.nodes !== null) return mergeStreams(store, reader, groups, query, wanted);
  const found: EventKey[] = [];
  for (const minute of minutesWith(store, query.tenant, query.eventName, query)) {
    const end = { timestamp: minute + MINUTE_MS, no: 0 };
    const before = compareEventKeys(query.before, end) < 0 ? query.before : end;
    const part = { ...query, before, from: Math.max(query.from, minute) };
    found.push(...mergeStreams(store, reader, groups, part, wanted - found.length));
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
  for (const hour of bucketsWith(store, tenant, eventName, HOUR_MS, from, before.timestamp)) {
    const to = Math.min(before.timestamp, hour + HOUR_MS - 1);
    yield* bucketsWith(store, tenant, eventName, MINUTE_MS, Math.max(from, hour), to);
  }
}

/** `from` and `to` are inclusive, and anywhere in their buckets. */
function* bucketsWith(
  store: StoreConnection,
  tenant: number,
  eventName: string,
  width: number,
  from: number,
  to: number,
): Generator<number> {
  const oldest = startOf(from, width);
  for (let below = startOf(to, width) + 1; ; ) {
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
  groups: readonly EventGroup[],
  query: KeyQuery,
  wanted: number,
): EventKey[] {
  const index = query.nodes === null ? EVENTS_BY_TENANT : EVENTS_BY_NODE;
  const owners = query.nodes ?? [query.tenant];
  const streams = groups.flatMap((group) => {
    const { no, timestamp_min: min, timestamp_max: max } = group;
    if (min === null || max === null || min > query.before.timestamp || max < query.from) return [];
    const runs = store.runs(index).listRuns(no);
    return runs.flatMap((run) =>
      owners.map((owner) => wantedKeys(store, reader, group, run.no, { ...query, index, owner })),
    );
  });
  const found: EventKey[] = [];
  for (const key of merged(streams, (a, b) => compareEventKeys(b, a))) {
    if (key.no !== NO_EVENT) found.push(key);
    if (found.length >= wanted) break;
  }
  return found;
}

/** The number of an upper limit: above those of all events. */
const NO_EVENT = Number.MAX_SAFE_INTEGER;

/**
 * The entries of one owner in one run whose events are stored and have the requested name, newest first. Before them
 * comes their upper limit, `NO_EVENT`: so the run is not read until that is the newest of all.
 */
function* wantedKeys(
  store: StoreConnection,
  reader: EventReader,
  group: EventGroup,
  run: number,
  query: EntryQuery & Pick<KeyQuery, 'eventName'>,
): Generator<EventKey, undefined> {
  const { eventName, before } = query;
  const timestamp = Math.min(group.timestamp_max ?? Number.NEGATIVE_INFINITY, before.timestamp);
  yield { timestamp, no: NO_EVENT };
  const isAlwaysWanted = eventName === null && group.expired === 0;
  for (const key of entriesOfRun(store, group, run, query)) {
    const event = isAlwaysWanted ? undefined : reader.get(key.no);
    if (isAlwaysWanted || (event !== undefined && (eventName === null || event.name === eventName))) yield key;
  }
}

interface EventContext {
  readonly trace_id: Uint8Array;
  readonly received_at: number;
  readonly key_id: string;
  readonly profile_id: Uint8Array | null;
}

/** With the columns of its record and its profile. */
function storedEvent(store: StoreConnection, event: BlockEvent): StoredEvent {
  const context = store.get<EventContext>(
    `SELECT record.trace_id, record.received_at, record.key_id, node.id AS profile_id FROM records AS record
     LEFT JOIN aliases ON aliases.node = ?1 LEFT JOIN nodes AS node ON node.no = coalesce(aliases.root, ?1)
     WHERE record.no = ?2`,
    event.node,
    event.record,
  );
  if (context === undefined) throw new Error(`event ${event.no} is stored without its record`);
  const traceId = uuidText(context.trace_id);
  return {
    id: `${traceId}.${event.userIndex}.${event.eventIndex}`,
    eventName: event.name,
    timestamp: event.timestamp,
    receivedAt: context.received_at,
    revenue: amountText(event.revenue),
    eventValue: amountText(event.value),
    properties: event.properties,
    profileId: context.profile_id && uuidText(context.profile_id),
    traceId,
    userIndex: event.userIndex,
    keyId: context.key_id,
  };
}

/** Numbers of events are issued in order of arrival and never reused. */
export function listArrivals(
  store: StoreConnection,
  tenant: number | undefined,
  after: string | null,
  limit: number,
): Arrivals {
  const issuer = issuerOf(store);
  const events: ArrivedEvent[] = [];
  let length = 0;
  const last = scanArrivals(store, tenant, issuer, after, (event) => {
    events.push(arrivedEvent(store, issuer, event));
    length += event.properties.length;
    return events.length >= limit || length > PAGE_LENGTH_MAX;
  });
  return { events, last: arrivalCursorOf(issuer, last) };
}

/**
 * Only returned events are read with their record and profile: a live view shows a few events of thousands a second.
 */
export function listNewestArrivals(
  store: StoreConnection,
  tenant: number | undefined,
  after: string,
  filter: ArrivalFilter,
  limit: number,
): NewestArrivals {
  const issuer = issuerOf(store);
  const matches = matcherOf(store, tenant, filter);
  const newest: BlockEvent[] = [];
  let length = 0;
  let skippedEvents = 0;
  let lastSkipped = 0;
  const last = scanArrivals(store, tenant, issuer, after, (event) => {
    if (!matches(event)) return false;
    newest.push(event);
    length += event.properties.length;
    while (newest.length > limit || (length > PAGE_LENGTH_MAX && newest.length > 1)) {
      const oldest = newest.shift() as BlockEvent;
      length -= oldest.properties.length;
      skippedEvents += 1;
      lastSkipped = oldest.no;
    }
    return false;
  });
  return {
    events: newest.map((event) => arrivedEvent(store, issuer, event)),
    last: arrivalCursorOf(issuer, last),
    skipped: skippedEvents === 0 ? null : { events: skippedEvents, cursor: arrivalCursorOf(issuer, lastSkipped) },
  };
}

function issuerOf(store: StoreConnection): CursorIssuer {
  return { storeId: storeIdIn(storeIdOf(store)), historyId: latestStart(store) };
}

function arrivedEvent(store: StoreConnection, issuer: CursorIssuer, event: BlockEvent): ArrivedEvent {
  return { ...storedEvent(store, event), cursor: arrivalCursorOf(issuer, event.no) };
}

function matcherOf(
  store: StoreConnection,
  tenant: number | undefined,
  { eventName, profileId, keyId }: ArrivalFilter,
): (event: BlockEvent) => boolean {
  const person = profileId === null || tenant === undefined ? null : nodesById(store, tenant, profileId);
  const nodes = person === null ? null : new Set(person?.nodes.map(({ node }) => node));
  // Events of a request are consecutive.
  let record = 0;
  let isOfKey = keyId === null;
  return (event) => {
    if (eventName !== null && event.name !== eventName) return false;
    if (nodes !== null && (event.node === null || !nodes.has(event.node))) return false;
    if (keyId !== null && event.record !== record) {
      record = event.record;
      const sql = 'SELECT key_id FROM records WHERE no = ?';
      isOfKey = store.get<{ key_id: string }>(sql, record)?.key_id === keyId;
    }
    return isOfKey;
  };
}

/**
 * Visits events after a number, in order of arrival, until `visit` returns true or the scan limit is reached. Returns
 * the last scanned number.
 */
function scanArrivals(
  store: StoreConnection,
  tenant: number | undefined,
  issuer: CursorIssuer,
  after: string | null,
  visit: (event: BlockEvent) => boolean,
): number {
  const row = store.get<{ next: number }>("SELECT next FROM sequences WHERE name = 'event'");
  const end = (row?.next ?? 1) - 1;
  let last = after === null ? end : numberIn(store, tenant, issuer, after, end);
  if (tenant === undefined) return end;
  while (last < end) {
    const from = last + 1;
    const wanted = last + ARRIVALS_SCANNED_MAX;
    // To the end of a block: the rest of a started one would be skipped.
    last = beforeNextBlock(store, wanted, end);
    for (const event of eventsBetween(store, from, last + 1, tenant)) if (visit(event)) return event.no;
    // Skipped numbers cost nothing, and a page must not end among them.
    if (last - wanted < BLOCK_EVENTS_MAX) break;
  }
  return last;
}

/** The number in a cursor. Throws `BadCursorError` for one after which something may be missing. */
function numberIn(
  store: StoreConnection,
  tenant: number | undefined,
  issuer: CursorIssuer,
  after: string,
  end: number,
): number {
  if (after === OLDEST) return 0;
  const cursor = arrivalCursorIn(after);
  if (cursor.storeId !== issuer.storeId) throw cursorOfOtherStore();
  const [no = -1, ...more] = cursor.numbers;
  if (no < 0 || more.length > 0) throw malformedCursor();
  const { historyId } = cursor;
  if (historyId === null || !store.steps((tables) => followsStart(tables, historyId, no))) throw cursorOfOtherHistory();
  if (no > end) throw cursorFromFuture();
  const gone = store.get<{ event: number }>('SELECT event FROM expired_arrivals WHERE tenant = ?', tenant ?? null);
  if (gone !== undefined && no < gone.event) throw expiredCursor();
  return no;
}

/** Every start skips numbers (starts.ts): none of them is read. */
function beforeNextBlock(store: StoreConnection, after: number, end: number): number {
  const sql = 'SELECT min(first_event) AS next FROM events WHERE first_event > ?';
  return (store.get<{ next: number | null }>(sql, after)?.next ?? end + 1) - 1;
}
