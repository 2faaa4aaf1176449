/**
 * Events by time: newest first, by (timestamp, number), from the indexes of the daily partitions, each of which returns
 * its next few; a window of few partitions at a time (store-days.ts), until the page is full. A profile of several
 * nodes is read node by node in the same statement, and merged.
 *
 * A page ends early when it becomes large, so that 500 events of megabytes each do not fill the memory: the server
 * stops where the page certainly ends before, and `cutToLength` ends it where every store would.
 */

import type { EventQuery, Page, StoredEvent } from '../../store.ts';
import { eventCursorOf, eventsBefore, PAGE_LENGTH_MAX } from '../../views/cursor.ts';
import { dayOf, eventWindows } from './store-days.ts';
import type { Queryable } from './pool.ts';
import { findNodes, isPostgresText } from './store-profiles.ts';

/** A UTF-16 unit is at most three bytes of UTF-8, so more bytes than this are more units than that. */
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
  /** Events on the whole page, before it was cut. */
  readonly found: number;
}

export const EVENT_COLUMNS =
  'no, node, timestamp, received_at, trace_id, key_id, user_index, event_index, event_name, revenue, value, properties';

/** The current profile of an event `e`. A lookup for each of the few events of a page, never a join. */
export const PROFILE_ID = `
  (SELECT profile.id FROM nodes JOIN nodes AS profile ON profile.no = coalesce(nodes.root, nodes.no)
   WHERE nodes.no = e.node) AS profile_id`;

/** For rows `e` that have `bytes_before`. */
export const IS_WITHIN_BYTES = `e.bytes_before <= ${PAGE_BYTES_MAX}`;

/** Bytes of properties before each row, in this order. */
export function bytesBefore(order: string): string {
  const rows = 'ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING';
  return `coalesce(sum(octet_length(properties)) OVER (ORDER BY ${order} ${rows}), 0) AS bytes_before`;
}

const NEWEST_FIRST = 'timestamp DESC, no DESC';

/** $1 to $4: timestamps from, before (timestamp, no), how many. `owner` and `received` are conditions on the events. */
function eventsSql(owner: string, received: string, hasName: boolean): string {
  return `
    SELECT ${EVENT_COLUMNS} FROM events
    WHERE ${owner} AND ${received} AND timestamp >= $1 AND (timestamp, no) < ($2, $3)
      ${hasName ? 'AND event_name = $6' : ''}
    ORDER BY ${NEWEST_FIRST} LIMIT $4`;
}

const MEASURED = `SELECT *, count(*) OVER () AS found, ${bytesBefore(NEWEST_FIRST)} FROM page`;
const CUT = `SELECT e.*, ${PROFILE_ID} FROM measured AS e WHERE ${IS_WITHIN_BYTES} ORDER BY ${NEWEST_FIRST}`;

/** $5 is the tenant, $6 the name, if any. */
export function tenantSql(received: string, hasName: boolean): string {
  const events = eventsSql('tenant = $5', received, hasName);
  return `WITH page AS MATERIALIZED (${events}), measured AS (${MEASURED}) ${CUT}`;
}

/** $5 are the nodes of the profile, $6 the name, if any. */
export function nodesSql(received: string, hasName: boolean): string {
  return `
    WITH page AS MATERIALIZED (
      SELECT e.* FROM unnest($5::bigint[]) AS member (no)
      CROSS JOIN LATERAL (${eventsSql('node = member.no', received, hasName)}) AS e
      ORDER BY ${NEWEST_FIRST} LIMIT $4
    ), measured AS (${MEASURED}) ${CUT}`;
}

/** Whose events are queried. */
interface Owner {
  readonly tenant: number;
  /** Null for all events, with or without a node. */
  readonly nodes: readonly number[] | null;
  readonly days: { readonly first: number; readonly last: number } | null;
  /** Upper bound; null if unknown. */
  readonly events: number | null;
}

/** Undefined when the query names an unknown profile. */
export async function listEvents(
  db: Queryable,
  tenant: number,
  query: EventQuery,
): Promise<Page<StoredEvent> | undefined> {
  const before = eventsBefore(tenant, query);
  const owner = await ownerOf(db, tenant, query.profileId);
  if (owner === undefined) return undefined;
  const { rows: found, isCut } = await readEvents(db, owner, query, before);
  const given = cutToLength(found.slice(0, query.limit));
  const last = given.at(-1);
  const hasMore = (isCut || found.length > given.length) && last !== undefined;
  return {
    rows: given.map(storedEvent),
    nextCursor: hasMore ? eventCursorOf(tenant, query, last) : null,
  };
}

async function ownerOf(db: Queryable, tenant: number, profileId: string | null): Promise<Owner | undefined> {
  if (profileId === null) return { tenant, nodes: null, days: null, events: null };
  const rows = await findNodes(db, tenant, profileId);
  if (rows === undefined) return undefined;
  // First and last seen are times of receipt.
  const first = dayOf(Math.min(...rows.map(({ firstSeen }) => firstSeen)));
  const last = dayOf(Math.max(...rows.map(({ lastSeen }) => lastSeen)));
  const events = rows.reduce((sum, row) => sum + row.events, 0);
  return { tenant, nodes: rows.map(({ node }) => node), days: { first, last }, events };
}

/** One more than the limit, if there are that many; `isCut` when the server left some out because of their size. */
async function readEvents(
  db: Queryable,
  { tenant, nodes, days, events }: Owner,
  query: EventQuery,
  before: EventLocation,
): Promise<{ readonly rows: readonly PageColumns[]; readonly isCut: boolean }> {
  const { eventName } = query;
  const rows: PageColumns[] = [];
  // No accepted text contains such a character, so there is no such event.
  if (eventName !== null && !isPostgresText(eventName)) return { rows, isCut: false };
  const from = query.from ?? Number.MIN_SAFE_INTEGER;
  for await (const window of eventWindows(db, { from, to: before.timestamp, days })) {
    const start = window.to <= before.timestamp ? { timestamp: window.to, no: 0 } : before;
    const wanted = query.limit + 1 - rows.length;
    const values: unknown[] = [Math.max(from, window.from), start.timestamp, start.no, wanted, nodes ?? tenant];
    if (eventName !== null) values.push(eventName);
    const sql = (nodes === null ? tenantSql : nodesSql)(window.received, eventName !== null);
    const page = (await db.query<PageColumns>(sql, values)).rows;
    rows.push(...page);
    if ((page[0]?.found ?? 0) > page.length) return { rows, isCut: true };
    if (page.length === wanted || rows.length === events) break;
  }
  return { rows, isCut: false };
}

interface EventLocation {
  readonly timestamp: number;
  readonly no: number;
}

/** Up to and including the event that exceeds the length of a page. */
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
