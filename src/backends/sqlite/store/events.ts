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
import { BLOCK_EVENTS_MAX, type BlockEvent } from './event-blocks.ts';
import { storeIdOf, type StoreConnection } from './connection.ts';
import {
  arrivalCursorIn,
  arrivalCursorOf,
  type CursorGiver,
  eventCursorOf,
  eventsBefore,
  expiredCursor,
  cursorFromFuture,
  storeIdIn,
  malformedCursor,
  cursorOfOtherHistory,
  cursorOfOtherStore,
  OLDEST,
} from '../../../views/cursor.ts';
import { amountText } from '../../../views/currency.ts';
import { findEvents } from './find-events.ts';
import { nodesById } from './profiles.ts';
import { uuidText } from '../uuids.ts';
import { followsStart, latestStart } from './starts.ts';
import { EventReader, eventsBetween } from './stored-events.ts';

/** Limit of the properties on a page; the event that exceeds it is still returned. */
const PAGE_LENGTH_MAX = 16 * 1024 * 1024;
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
  for (const { table, no } of keys.slice(0, query.limit)) {
    const row = reader.get(table, no);
    if (row === undefined) throw new Error(`event ${no} is in the index and not in the table`);
    rows.push(storedEvent(store, table, row));
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

interface Surroundings {
  readonly trace_id: Uint8Array;
  readonly received_at: number;
  readonly key_id: string;
  readonly profile_id: Uint8Array | null;
}

/** With the columns of its record and its profile. */
function storedEvent(store: StoreConnection, table: number, event: BlockEvent): StoredEvent {
  const around = store.get<Surroundings>(
    `SELECT record.trace_id, record.received_at, record.key_id, node.id AS profile_id FROM records_${table} AS record
     LEFT JOIN aliases ON aliases.node = ?1 LEFT JOIN nodes AS node ON node.no = coalesce(aliases.root, ?1)
     WHERE record.no = ?2`,
    event.node,
    event.record,
  );
  if (around === undefined) throw new Error(`event ${event.no} is stored without its record`);
  const traceId = uuidText(around.trace_id);
  return {
    id: `${traceId}.${event.userIndex}.${event.eventIndex}`,
    eventName: event.name,
    timestamp: event.timestamp,
    receivedAt: around.received_at,
    revenue: amountText(event.revenue),
    eventValue: amountText(event.value),
    properties: event.properties,
    profileId: around.profile_id && uuidText(around.profile_id),
    traceId,
    userIndex: event.userIndex,
    keyId: around.key_id,
  };
}

/** Numbers of events are given out in order of arrival and never reused. */
export function listArrivals(
  store: StoreConnection,
  tenant: number | undefined,
  after: string | null,
  limit: number,
): Arrivals {
  const giver = giverOf(store);
  const events: ArrivedEvent[] = [];
  let length = 0;
  const last = scanArrivals(store, tenant, giver, after, (table, event) => {
    events.push(arrivedEvent(store, giver, table, event));
    length += event.properties.length;
    return events.length >= limit || length > PAGE_LENGTH_MAX;
  });
  return { events, last: arrivalCursorOf(giver, last), lastSequence: last };
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
  const giver = giverOf(store);
  const matches = matcherOf(store, tenant, filter);
  const newest: { table: number; event: BlockEvent }[] = [];
  let length = 0;
  let skippedEvents = 0;
  let lastSkipped = 0;
  const last = scanArrivals(store, tenant, giver, after, (table, event) => {
    if (!matches(table, event)) return false;
    newest.push({ table, event });
    length += event.properties.length;
    while (newest.length > limit || (length > PAGE_LENGTH_MAX && newest.length > 1)) {
      const { event: oldest } = newest.shift() as (typeof newest)[number];
      length -= oldest.properties.length;
      skippedEvents += 1;
      lastSkipped = oldest.no;
    }
    return false;
  });
  return {
    events: newest.map(({ table, event }) => arrivedEvent(store, giver, table, event)),
    last: arrivalCursorOf(giver, last),
    lastSequence: last,
    skipped:
      skippedEvents === 0
        ? null
        : { events: skippedEvents, cursor: arrivalCursorOf(giver, lastSkipped), sequence: lastSkipped },
  };
}

function giverOf(store: StoreConnection): CursorGiver {
  return { storeId: storeIdIn(storeIdOf(store)), historyId: latestStart(store) };
}

function arrivedEvent(store: StoreConnection, giver: CursorGiver, table: number, event: BlockEvent): ArrivedEvent {
  return { ...storedEvent(store, table, event), cursor: arrivalCursorOf(giver, event.no), sequence: event.no };
}

function matcherOf(
  store: StoreConnection,
  tenant: number | undefined,
  { eventName, profileId, keyId }: ArrivalFilter,
): (table: number, event: BlockEvent) => boolean {
  const person = profileId === null || tenant === undefined ? null : nodesById(store, tenant, profileId);
  const nodes = person === null ? null : new Set(person?.nodes.map(({ node }) => node));
  // Events of a request are consecutive.
  let record = 0;
  let isOfKey = keyId === null;
  return (table, event) => {
    if (eventName !== null && event.name !== eventName) return false;
    if (nodes !== null && (event.node === null || !nodes.has(event.node))) return false;
    if (keyId !== null && event.record !== record) {
      record = event.record;
      const sql = `SELECT key_id FROM records_${table} WHERE no = ?`;
      isOfKey = store.get<{ key_id: string }>(sql, record)?.key_id === keyId;
    }
    return isOfKey;
  };
}

/**
 * Visits events after a number, in order of arrival, until `visit` returns false or the scan limit is reached. Returns
 * the last scanned number.
 */
function scanArrivals(
  store: StoreConnection,
  tenant: number | undefined,
  giver: CursorGiver,
  after: string | null,
  visit: (table: number, event: BlockEvent) => boolean,
): number {
  const row = store.get<{ next: number }>("SELECT next FROM sequences WHERE name = 'event'");
  const end = (row?.next ?? 1) - 1;
  let last = after === null ? end : numberAfter(store, tenant, giver, after, end);
  let left = ARRIVALS_SCANNED_MAX;
  const tables = tenant === undefined ? [] : store.tables();
  for (const [index, table] of tables.entries()) {
    const tableEnd = (tables[index + 1]?.first_event ?? end + 1) - 1;
    if (tableEnd <= last) continue;
    for (let from = Math.max(last + 1, table.first_event); from <= tableEnd; from = last + 1) {
      const wanted = Math.min(tableEnd, from + left - 1);
      // To the end of a block: the rest of a started one would be skipped.
      last = wanted < tableEnd ? beforeNextBlock(store, table.no, wanted, tableEnd) : tableEnd;
      for (const event of eventsBetween(store, table.no, from, last + 1, tenant)) {
        if (visit(table.no, event)) return event.no;
      }
      // Skipped numbers cost nothing, and a page must not end among them.
      left = last - wanted >= BLOCK_EVENTS_MAX ? ARRIVALS_SCANNED_MAX : left - (wanted - from + 1);
      if (left <= 0) return last;
    }
  }
  return end;
}

/** The number in a cursor. Throws `BadCursorError` for one after which something may be missing. */
function numberAfter(
  store: StoreConnection,
  tenant: number | undefined,
  giver: CursorGiver,
  after: string,
  end: number,
): number {
  if (after === OLDEST) return 0;
  const cursor = arrivalCursorIn(after);
  if (cursor.storeId !== giver.storeId) throw cursorOfOtherStore();
  const [no = -1, ...more] = cursor.numbers;
  if (no < 0 || more.length > 0) throw malformedCursor();
  if (cursor.historyId === null || !followsStart(store, cursor.historyId, no)) throw cursorOfOtherHistory();
  if (no > end) throw cursorFromFuture();
  const gone = store.get<{ event: number }>('SELECT event FROM expired_arrivals WHERE tenant = ?', tenant ?? null);
  if (gone !== undefined && no < gone.event) throw expiredCursor();
  return no;
}

/** Every start skips numbers (store/starts.ts): none of them is read. */
function beforeNextBlock(store: StoreConnection, table: number, after: number, tableEnd: number): number {
  const sql = `SELECT min(first_event) AS next FROM events_${table} WHERE first_event > ?`;
  return (store.get<{ next: number | null }>(sql, after)?.next ?? tableEnd + 1) - 1;
}
