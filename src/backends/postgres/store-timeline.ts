/**
 * Events as people read them by time: newest first, by (timestamp, number), from the indexes of the days' partitions,
 * of which each gives its next few. A profile of several nodes is read node by node, in the same statement, and merged.
 *
 * A page ends early when it has become large, so that 500 events of megabytes each do not fill the memory: the server
 * leaves off where it is certain that the page ends before, and `cutToLength` ends it where every store would.
 */

import type { EventQuery, Page, StoredEvent } from '../../store.ts';
import { cursorOf, numbersOf } from '../../stored/cursor.ts';
import type { Queryable } from './pool.ts';
import { isStorable, uuidOf } from './store-reads.ts';

/** Of properties, in UTF-16 units; the event that goes over it is still given. */
const PAGE_LENGTH_MAX = 16 * 1024 * 1024;
/** A UTF-16 unit is three bytes of UTF-8 at most, so whoever has more bytes than this has more units than that. */
const PAGE_BYTES_MAX = 3 * PAGE_LENGTH_MAX;

export interface EventColumns {
  readonly no: number;
  readonly timestamp: number;
  readonly received_at: number;
  readonly trace_id: string;
  readonly key_id: string;
  readonly user_index: number;
  readonly event_index: number;
  readonly event_name: string;
  readonly revenue: string | null;
  readonly value: string | null;
  readonly properties: string;
  readonly profile_id: string | null;
}

interface PageColumns extends EventColumns {
  /** Of the whole page, before it was cut. */
  readonly found: number;
}

export const EVENT_COLUMNS =
  'no, node, timestamp, received_at, trace_id, key_id, user_index, event_index, event_name, revenue, value, properties';

/** The profile that an event `e` belongs to now. By a look-up for each of the few events of a page, never by a join. */
export const PROFILE_ID = `
  (SELECT profile.id FROM nodes JOIN nodes AS profile ON profile.no = coalesce(nodes.root, nodes.no)
   WHERE nodes.no = e.node) AS profile_id`;

/** For rows `e` that have `bytes_before`. */
export const IS_WITHIN_BYTES = `e.bytes_before <= ${PAGE_BYTES_MAX}`;

/** How many bytes of properties there are before each row, in this order. */
export function bytesBefore(order: string): string {
  const rows = 'ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING';
  return `coalesce(sum(octet_length(properties)) OVER (ORDER BY ${order} ${rows}), 0) AS bytes_before`;
}

const NEWEST_FIRST = 'timestamp DESC, no DESC';

/** `owner` is a condition on the events; $1 to $4: timestamps from, before (timestamp, no), how many. */
function eventsSql(owner: string, hasName: boolean): string {
  return `
    SELECT ${EVENT_COLUMNS} FROM events
    WHERE ${owner} AND timestamp >= $1 AND (timestamp, no) < ($2, $3) ${hasName ? 'AND event_name = $6' : ''}
    ORDER BY ${NEWEST_FIRST} LIMIT $4`;
}

const MEASURED = `SELECT *, count(*) OVER () AS found, ${bytesBefore(NEWEST_FIRST)} FROM page`;

/** $5 is the tenant. */
export function tenantSql(hasName: boolean): string {
  return `
    WITH page AS MATERIALIZED (${eventsSql('tenant = $5', hasName)}), measured AS (${MEASURED})
    SELECT e.*, ${PROFILE_ID} FROM measured AS e WHERE ${IS_WITHIN_BYTES} ORDER BY ${NEWEST_FIRST}`;
}

/** $5 is the tenant, $7 (or $6, without a name) the profile's id. One row without an event for a profile that has none. */
export function profileSql(hasName: boolean): string {
  return `
    WITH root AS MATERIALIZED (
      SELECT coalesce(root, no) AS no FROM nodes WHERE tenant = $5 AND id = ${hasName ? '$7' : '$6'}
    ), members AS MATERIALIZED (
      SELECT no FROM root UNION ALL SELECT nodes.no FROM root JOIN nodes ON nodes.root = root.no
    ), page AS MATERIALIZED (
      SELECT e.* FROM members CROSS JOIN LATERAL (${eventsSql('node = members.no', hasName)}) AS e
      ORDER BY ${NEWEST_FIRST} LIMIT $4
    ), measured AS (${MEASURED})
    SELECT e.*, ${PROFILE_ID} FROM root LEFT JOIN measured AS e ON ${IS_WITHIN_BYTES} ORDER BY ${NEWEST_FIRST}`;
}

/** Undefined when the query names a profile that there is not. */
export async function listEvents(
  db: Queryable,
  tenant: number,
  query: EventQuery,
): Promise<Page<StoredEvent> | undefined> {
  const before = beforeOf(query);
  const { eventName, profileId } = query;
  // There is no such event; whether there is such a profile has to be said all the same.
  const wanted = eventName === null || isStorable(eventName) ? query.limit + 1 : 0;
  const from = query.from ?? Number.MIN_SAFE_INTEGER;
  const values: unknown[] = [from, before.timestamp, before.no, wanted, tenant];
  if (eventName !== null) values.push(isStorable(eventName) ? eventName : '');
  if (profileId !== null) {
    const uuid = uuidOf(profileId);
    if (uuid === undefined) return undefined;
    values.push(uuid);
  }
  const sql = profileId === null ? tenantSql(eventName !== null) : profileSql(eventName !== null);
  const { rows } = await db.query<PageColumns>(sql, values);
  if (profileId !== null && rows.length === 0) return undefined;
  const there = rows.filter(({ no }) => no !== null);
  const given = cutToLength(there.slice(0, query.limit));
  const last = given.at(-1);
  const hasMore = (there[0]?.found ?? 0) > given.length && last !== undefined;
  return {
    rows: given.map(storedEvent),
    nextCursor: hasMore ? cursorOf('events', last.timestamp, last.no) : null,
  };
}

function beforeOf({ cursor, to }: EventQuery): { readonly timestamp: number; readonly no: number } {
  const end = { timestamp: to ?? Number.MAX_SAFE_INTEGER, no: 0 };
  if (cursor === null) return end;
  const [timestamp = 0, no = 0] = numbersOf('events', cursor, 2);
  return timestamp < end.timestamp ? { timestamp, no } : end;
}

/** Up to the event with which the page goes over its length. */
export function cutToLength<Row extends Pick<EventColumns, 'properties'>>(rows: readonly Row[]): readonly Row[] {
  let length = 0;
  const end = rows.findIndex(({ properties }) => (length += properties.length) > PAGE_LENGTH_MAX);
  return end === -1 ? rows : rows.slice(0, end + 1);
}

export function storedEvent(row: EventColumns): StoredEvent {
  return {
    id: `${row.trace_id}.${row.user_index}.${row.event_index}`,
    eventName: row.event_name,
    timestamp: row.timestamp,
    receivedAt: row.received_at,
    revenue: row.revenue,
    eventValue: row.value,
    properties: row.properties,
    profileId: row.profile_id,
    traceId: row.trace_id,
    userIndex: row.user_index,
    keyId: row.key_id,
  };
}
