/**
 * Events as people read them: by time (a timeline, newest first) and by arrival (for live views). Rows are read one by
 * one after their keys were found, and a page ends early when it has become large, so that 500 events of megabytes
 * each do not fill the memory: its cursor goes on where it ended.
 */

import type { ArrivedEvent, Arrivals, EventQuery, JsonText, Page, StoredEvent } from '../../store.ts';
import type { BlockEvent } from './event-blocks.ts';
import type { StoreConnection } from './store-connection.ts';
import { cursorOf, numbersOf } from '../../stored/cursor.ts';
import { type EventKey, findEvents } from './store-event-keys.ts';
import { nodesById } from './store-profiles.ts';
import { uuidText } from './uuids.ts';
import { EventReader, eventsBetween } from './stored-events.ts';

/** Of properties; the event that goes over it is still given. */
const PAGE_LENGTH_MAX = 16 * 1024 * 1024;
/** Events of other tenants that one call looks through before it answers with what it has. */
const ARRIVALS_SCANNED_MAX = 20_000;

/** Undefined when the query names a profile that there is not. */
export function listEvents(store: StoreConnection, tenant: number, query: EventQuery): Page<StoredEvent> | undefined {
  const before = beforeOf(query);
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
  return { rows, nextCursor: hasMore ? cursorOf('events', last.timestamp, last.no) : null };
}

function beforeOf({ cursor, to }: EventQuery): EventKey {
  const end = { timestamp: to ?? Number.MAX_SAFE_INTEGER, no: 0 };
  if (cursor === null) return end;
  const [timestamp = 0, no = 0] = numbersOf('events', cursor, 2);
  return timestamp < end.timestamp ? { timestamp, no } : end;
}

interface Surroundings {
  readonly trace_id: Uint8Array;
  readonly received_at: number;
  readonly key_id: string;
  readonly profile_id: Uint8Array | null;
}

/** With what its record and its profile say. */
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

/** A number that a double would change was stored as the text that it came as. */
function amountText(value: number | string | null): JsonText | null {
  return typeof value === 'number' ? JSON.stringify(value) : value;
}

export function listArrivals(
  store: StoreConnection,
  tenant: number | undefined,
  after: string | null,
  limit: number,
): Arrivals {
  const row = store.get<{ next: number }>("SELECT next FROM sequences WHERE name = 'event'");
  const end = (row?.next ?? 1) - 1;
  const [start = end] = after === null ? [] : numbersOf('arrivals', after, 1);
  const events: ArrivedEvent[] = [];
  let last = Math.min(start, end);
  const scanEnd = Math.min(end, start + ARRIVALS_SCANNED_MAX);
  let length = 0;
  const tables = tenant === undefined ? [] : store.tables();
  for (const [index, table] of tables.entries()) {
    const next = tables[index + 1];
    if (next !== undefined && next.first_event <= last + 1) continue;
    if (table.first_event > scanEnd) break;
    for (const event of eventsBetween(store, table.no, last + 1, scanEnd + 1, tenant)) {
      const { no } = event;
      events.push({ ...storedEvent(store, table.no, event), place: cursorOf('arrivals', no), sequence: no });
      last = no;
      length += event.properties.length;
      if (events.length >= limit || length > PAGE_LENGTH_MAX) return arrivalsUpTo(last, events);
    }
  }
  return arrivalsUpTo(Math.max(last, scanEnd), events);
}

function arrivalsUpTo(no: number, events: readonly ArrivedEvent[]): Arrivals {
  return { events, last: cursorOf('arrivals', no), lastSequence: no };
}
