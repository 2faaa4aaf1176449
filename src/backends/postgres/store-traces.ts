/**
 * Reads the records and events from which views/trace.ts builds the trace of a request, and looks up what they name.
 * One statement for nearly all requests; one that merged people is read again in a snapshot, with its merges.
 */

import { DAY_MS, type NodeNumber, type TenantId } from '../../model.ts';
import type { Page, StoredTrace, TraceQuery, TraceSummary } from '../../store.ts';
import {
  HIGHEST_TRACE_ID,
  parsedNotes,
  storedTrace,
  type SummarisedRecord,
  type TracedRecord,
  traceIdBefore,
  TracePage,
  traceScope,
  type UserEvents,
  VISITED_MAX,
} from '../../views/trace.ts';
import { leadingTimeOf, timeOfUuid7, uuidOf } from '../../views/uuid.ts';
import { TRACE_COLUMNS } from '../sql/trace-columns.ts';
import type { PostgresPool, Queryable } from './pool.ts';
import { dayTables } from './store-days.ts';

type UserCells = readonly [userIndex: number, node: NodeNumber | null, events: number, profileId: string | null];

interface RecordRow extends TracedRecord {
  readonly users: readonly UserCells[] | null;
}

/** A request is received within minutes of its trace_id, whose version 7 contains the time; unless a clock jumped. */
const RECEIVED_WITHIN_MS = DAY_MS;

const ANY_TIME = [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER] as const;

/** When a request was probably received: conditions that leave few partitions, if the trace_id has a time. */
function receivedAround(traceId: string): readonly [from: number, to: number] {
  const time = timeOfUuid7(traceId);
  if (time === undefined) return ANY_TIME;
  return [time - RECEIVED_WITHIN_MS, time + RECEIVED_WITHIN_MS];
}

/**
 * $1 the trace, $2 a tenant or null, $3 and $4 when it was received. The events of a record are in the partition of its
 * day.
 */
export const TRACE_SQL = `
  WITH found AS MATERIALIZED (
    SELECT * FROM records
    WHERE trace_id = $1 AND ($2::integer IS NULL OR tenant = $2) AND received_at >= $3 AND received_at <= $4
  )
  SELECT no, notes, ${TRACE_COLUMNS},
    (SELECT json_agg(json_build_array(u.user_index, u.node, u.events,
       (SELECT profile.id FROM nodes JOIN nodes AS profile ON profile.no = coalesce(nodes.root, nodes.no)
        WHERE nodes.no = u.node)))
     FROM (
       SELECT user_index, min(node) AS node, count(*) AS events FROM events
       WHERE received_at = r.received_at AND received_at >= $3 AND received_at <= $4
         AND no >= r.first_event AND no < r.first_event + r.events
       GROUP BY user_index
     ) AS u) AS users
  FROM found AS r`;

/** $1 and $2: users of the request and their nodes; $3 the trace. */
const MERGES_SQL = `
  SELECT wanted.user_index AS "userIndex", merge.from_node AS "from", merge.into_node AS "into"
  FROM unnest($1::integer[], $2::bigint[]) AS wanted (user_index, node)
  CROSS JOIN LATERAL (
    SELECT merges.no, from_node, into_node FROM nodes
    JOIN nodes AS member ON member.no = coalesce(nodes.root, nodes.no) OR member.root = coalesce(nodes.root, nodes.no)
    JOIN merges ON merges.node_a = member.no
    WHERE nodes.no = wanted.node AND merges.trace_id = $3 AND merges.user_index = wanted.user_index
  ) AS merge
  ORDER BY merge.no`;

interface StandingMerge {
  readonly userIndex: number;
  readonly from: NodeNumber;
  readonly into: NodeNumber;
}

/** `tenant` null searches all of them; undefined is one that never sent anything. */
export async function readTrace(
  pool: PostgresPool,
  tenant: number | null | undefined,
  traceId: string,
): Promise<StoredTrace | undefined> {
  const uuid = uuidOf(traceId);
  if (uuid === undefined || tenant === undefined) return undefined;
  const records = await readRecords(pool, tenant, uuid);
  if (mergersOf(records).length === 0) return traceOf(uuid, records, [], new Map());
  return pool.inSnapshot(async (client) => {
    const again = await readRecords(client, tenant, uuid);
    const mergers = mergersOf(again);
    const { rows: merges } = await client.query<StandingMerge>(MERGES_SQL, [
      mergers.map(({ userIndex }) => userIndex),
      mergers.map(({ node }) => node),
      uuid,
    ]);
    const named = [...mergers.flatMap(({ noted }) => noted), ...merges.flatMap(({ from, into }) => [from, into])];
    const { rows: ids } = await client.query<{ no: NodeNumber; id: string }>(
      'SELECT no, id FROM nodes WHERE no = ANY($1)',
      [[...new Set(named)]],
    );
    return traceOf(uuid, again, merges, new Map(ids.map(({ no, id }) => [no, id])));
  });
}

async function readRecords(db: Queryable, tenant: number | null, traceId: string): Promise<RecordRow[]> {
  const { rows } = await db.query<RecordRow>(TRACE_SQL, [traceId, tenant, ...receivedAround(traceId)]);
  // Not where the trace_id says: search everywhere, since the caller wants to know where the request went.
  return rows.length > 0 ? rows : (await db.query<RecordRow>(TRACE_SQL, [traceId, tenant, ...ANY_TIME])).rows;
}

interface Merger {
  readonly userIndex: number;
  readonly node: NodeNumber;
  /** The nodes that its notes name. */
  readonly noted: readonly NodeNumber[];
}

/** Users that caused a merge and still have events. */
function mergersOf(records: readonly RecordRow[]): Merger[] {
  return records.flatMap((record) => {
    const nodes = new Map(record.users?.map(([userIndex, node]) => [userIndex, node]));
    return (parsedNotes(record).users ?? []).flatMap(({ userIndex, merged = [] }) => {
      const node = nodes.get(userIndex) ?? null;
      return node === null || merged.length === 0 ? [] : [{ userIndex, node, noted: merged.flat() }];
    });
  });
}

function traceOf(
  traceId: string,
  records: readonly RecordRow[],
  merges: readonly StandingMerge[],
  ids: ReadonlyMap<NodeNumber, string>,
): StoredTrace | undefined {
  const profiles = new Map(records.flatMap(({ users }) => users ?? []).map(([, node, , id]) => [node, id]));
  return storedTrace(traceId, records, {
    eventsOf: ({ users }) =>
      new Map(users?.map(([userIndex, node, events]): [number, UserEvents] => [userIndex, { node, events }])),
    publicId: (node) => ids.get(node),
    profileId: (node) => profiles.get(node) ?? null,
    standingMerges: (_, user) => merges.filter(({ userIndex }) => userIndex === user),
  });
}

/** Partitions that one statement of the list reads, in days: more with each step back. */
const DAYS_FIRST = 4;
const DAYS_MAX = 128;
/** Records that one statement reads: most lists need few. More than one request can have. */
const ROWS_FIRST = 2_048;

/** $1 and $2: trace_ids before and from; $3 how many records. `received` is a condition on partitions. */
function recordsSql(received: string): string {
  return `
    SELECT tenant, trace_id AS "traceId", ${TRACE_COLUMNS}
    FROM records WHERE trace_id < $1 AND trace_id >= $2 AND ${received} ORDER BY trace_id DESC LIMIT $3`;
}

interface VisitedRecord extends SummarisedRecord {
  readonly tenant: number;
}

/**
 * Goes back in time in windows of few partitions each. A record whose trace_id and time of receipt differ by more than
 * a day, because a clock jumped, is found by its trace_id and may be missing here.
 */
export async function listTraces(
  db: PostgresPool,
  tenant: number,
  tenantId: TenantId,
  query: TraceQuery,
): Promise<Page<TraceSummary>> {
  const scope = traceScope(tenantId, query);
  let before = traceIdBefore(scope, query.cursor);
  if (query.status === 'pending') return { rows: [], nextCursor: null };
  const days = (await dayTables(db)).filter(({ parent, state }) => parent === 'records' && state === 'attached');
  const [oldest, newest] = [days[0]?.day, days.at(-1)?.day];
  if (oldest === undefined || newest === undefined) return { rows: [], nextCursor: null };
  const page = new TracePage(tenant, scope, query.limit);
  const timeBefore = before === HIGHEST_TRACE_ID ? Number.POSITIVE_INFINITY : leadingTimeOf(before);
  let end = Math.min(newest + 2, Math.floor(timeBefore / DAY_MS) + 1);
  let width = DAYS_FIRST;
  let rowsMax = ROWS_FIRST;
  for (;;) {
    const start = end - width;
    const isLast = start < oldest;
    const received = [
      ...(isLast ? [] : [`received_at >= ${(start - 1) * DAY_MS}`]),
      ...(end > newest ? [] : [`received_at < ${(end + 1) * DAY_MS}`]),
    ];
    const from = isLast ? LOWEST_TRACE_ID : firstTraceIdOf(start * DAY_MS);
    const values = [before, from, rowsMax];
    const { rows } = await db.query<VisitedRecord>(recordsSql(received.join(' AND ') || 'true'), values);
    const isCut = rows.length === rowsMax;
    // The last request may have more records than were read.
    const last = rows.at(-1)?.traceId;
    for (const { tenant: owner, ...record } of rows) {
      if (isCut && record.traceId === last) break;
      if (!page.add(owner, record)) return page.take(false);
      before = record.traceId;
    }
    if (isCut) rowsMax = VISITED_MAX;
    else if (isLast) return page.take(true);
    else {
      end = start;
      before = from;
      width = Math.min(DAYS_MAX, width * 4);
    }
  }
}

const LOWEST_TRACE_ID = '00000000-0000-0000-0000-000000000000';

/** The lowest trace_id of that time. */
function firstTraceIdOf(time: number): string {
  const hex = Math.max(0, time).toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}
