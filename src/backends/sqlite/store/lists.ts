/**
 * What is read row by row from tables of its own: counts by interval, the books, rejections, acts, and records that
 * were set aside. The books and the positions in the log are read in one transaction, so that whoever adds what is
 * still in the log neither misses a record nor counts one twice.
 */

import type { LostRecords } from '../../../log.ts';
import type { TenantId } from '../../../model.ts';
import type {
  AuditQuery,
  AuditRow,
  CountBucket,
  CountQuery,
  StoredLedger,
  Page,
  RejectionQuery,
  RejectionReason,
  DeadLetter,
  StoredRejection,
  TimeRange,
} from '../../../store.ts';
import { BOOK_COLUMNS, booksOf, countBuckets, type CountRow, countRange, sumOfNames } from '../../../views/counts.ts';
import { scopedCursorOf, scopedNumbersOf } from '../../../views/cursor.ts';
import { pageOf } from '../../../views/page.ts';
import { HOUR_MS } from '../../../views/sums.ts';
import { idBytes, type StoreConnection } from './connection.ts';
import { uuidText } from '../uuids.ts';
import { countStored } from './stored-events.ts';

/** Buckets without events are left out. */
export function listCounts(store: StoreConnection, tenant: number, query: CountQuery): CountBucket[] {
  const { width, from, to } = countRange(query);
  const within = 'FROM counts WHERE tenant = ? AND width = ? AND start >= ? AND start < ?';
  const columns = 'start, event_name AS eventName, currency, events, revenue';
  const values = [tenant, width, from, to] as const;
  if (query.byEventName) {
    const rows = store.all<CountRow>(`SELECT ${columns} ${within} ORDER BY start, event_name, currency`, ...values);
    return countBuckets(query, rows);
  }
  const withoutRevenue = store.all<CountRow>(
    `SELECT start, NULL AS eventName, currency, sum(events) AS events, 0 AS revenue ${within} AND currency = ''
     GROUP BY start ORDER BY start`,
    ...values,
  );
  const withRevenue = store.all<CountRow>(
    `SELECT ${columns} ${within} AND currency <> '' ORDER BY start, event_name, currency`,
    ...values,
  );
  return countBuckets(query, [...withoutRevenue, ...sumOfNames(withRevenue)]);
}

/** Newest hour first. */
export function readLedger(
  store: StoreConnection,
  tenant: number | null | undefined,
  { from, to }: { readonly from: number | null; readonly to: number | null },
): StoredLedger {
  const sums = (['users', 'events'] as const).flatMap((what) =>
    BOOK_COLUMNS.map((column) => `sum(${what}_${column}) AS ${what}_${column}`),
  );
  const rows =
    tenant === undefined
      ? []
      : store.all<Record<string, number>>(
          `SELECT hour, sum(users_rejected) AS users_rejected, ${sums.join(', ')} FROM ledger
           WHERE (?1 IS NULL OR tenant = ?1) AND hour >= ?2 AND hour < ?3 GROUP BY hour ORDER BY hour DESC`,
          tenant,
          from === null ? Number.MIN_SAFE_INTEGER : Math.floor(from / HOUR_MS) * HOUR_MS,
          to ?? Number.MAX_SAFE_INTEGER,
        );
  const positions = store.all<{ partition: number; position: number; last_trace_id: string | null }>(
    'SELECT partition, position, last_trace_id FROM positions',
  );
  return {
    hours: rows.map((row) => ({
      hour: row.hour ?? 0,
      users: booksOf(row, 'users'),
      events: booksOf(row, 'events'),
      rejectedUsers: row.users_rejected ?? 0,
    })),
    positions: new Map(positions.map(({ partition, position }) => [partition, position])),
    lastTraceIds: new Map(
      positions.flatMap(({ partition, last_trace_id: id }) => (id === null ? [] : [[partition, id] as const])),
    ),
    lost: store
      .all<LostRecords>(
        `SELECT partition, first_position AS "from", next_position AS "to", records, found_at AS at
         FROM lost_records ORDER BY found_at, partition, first_position`,
      )
      .map(({ partition, from: first, to: next, records, at }) => ({ partition, from: first, to: next, records, at })),
    missingRecords: 0,
  };
}

interface RejectionRow {
  readonly no: number;
  readonly trace_id: Uint8Array;
  readonly user_index: number;
  readonly received_at: number;
  readonly message: string;
  readonly reason: string;
  readonly payload: string;
  readonly payload_is_cut: number;
}

export function listRejections(store: StoreConnection, tenant: number, query: RejectionQuery): Page<StoredRejection> {
  const end = { time: query.to ?? Number.MAX_SAFE_INTEGER, no: 0 };
  const [time = end.time, no = end.no] =
    query.cursor === null ? [] : scopedNumbersOf('rejections', [tenant, query.reason], query.cursor, 2);
  const before = time < end.time ? { time, no } : end;
  const rows = store.all<RejectionRow>(
    `SELECT * FROM rejections WHERE tenant = ? ${query.reason === null ? '' : 'AND reason = ?'}
       AND received_at <= ? AND received_at >= ? AND (received_at, no) < (?, ?)
     ORDER BY received_at DESC, no DESC LIMIT ?`,
    tenant,
    ...(query.reason === null ? [] : [query.reason]),
    before.time,
    query.from ?? Number.MIN_SAFE_INTEGER,
    before.time,
    before.no,
    query.limit + 1,
  );
  return pageOf(rows, query.limit, storedRejection, (row) =>
    scopedCursorOf('rejections', [tenant, query.reason], row.received_at, row.no),
  );
}

function storedRejection(row: RejectionRow): StoredRejection {
  return {
    traceId: uuidText(row.trace_id),
    userIndex: row.user_index,
    receivedAt: row.received_at,
    message: row.message,
    reason: row.reason,
    payload: row.payload,
    payloadIsCut: row.payload_is_cut === 1,
  };
}

/** There are a few dozen rules; names that clients chose make more reasons of some of them. */
const REASONS_MAX = 100;

/** Counted in the index alone; the newest user of each reason is looked up afterwards. */
export function listRejectionReasons(
  store: StoreConnection,
  tenant: number,
  { from, to }: TimeRange,
): RejectionReason[] {
  const range = [from ?? Number.MIN_SAFE_INTEGER, to ?? Number.MAX_SAFE_INTEGER] as const;
  const reasons = store.all<{ reason: string; users: number; last_at: number }>(
    `SELECT reason, count(*) AS users, max(received_at) AS last_at FROM rejections
     WHERE tenant = ? AND received_at >= ? AND received_at < ?
     GROUP BY reason ORDER BY users DESC, last_at DESC, reason LIMIT ?`,
    tenant,
    ...range,
    REASONS_MAX,
  );
  return reasons.map(({ reason, users, last_at: lastAt }) => {
    const newest = store.get<Pick<RejectionRow, 'trace_id' | 'user_index'>>(
      `SELECT trace_id, user_index FROM rejections WHERE tenant = ? AND reason = ? AND received_at = ?
       ORDER BY no DESC LIMIT 1`,
      tenant,
      reason,
      lastAt,
    );
    if (newest === undefined) throw new Error('a rejection is in the index and not in the table');
    return { reason, users, lastAt, traceId: uuidText(newest.trace_id), userIndex: newest.user_index };
  });
}

interface ActRow {
  readonly no: number;
  readonly kind: AuditRow['kind'];
  readonly trace_id: Uint8Array;
  readonly at: number;
  readonly detail: string;
}

/** Without an index for `traceId`: acts are what people did one by one, so there are few. */
export function listActs(
  store: StoreConnection,
  tenant: number,
  { limit, cursor, traceId = null }: AuditQuery,
): Page<AuditRow> {
  const [before = Number.MAX_SAFE_INTEGER] =
    cursor === null ? [] : scopedNumbersOf('audit', [tenant, traceId], cursor, 1);
  const bytes = traceId === null ? null : idBytes(traceId);
  if (bytes === undefined) return { rows: [], nextCursor: null };
  const rows = store.all<ActRow>(
    'SELECT * FROM audit WHERE tenant = ?1 AND no < ?2 AND (?3 IS NULL OR trace_id = ?3) ORDER BY no DESC LIMIT ?4',
    tenant,
    before,
    bytes,
    limit + 1,
  );
  const actOf = ({ kind, trace_id, at, detail }: ActRow): AuditRow => ({
    kind,
    traceId: uuidText(trace_id),
    at,
    detail,
  });
  return pageOf(rows, limit, actOf, ({ no }) => scopedCursorOf('audit', [tenant, traceId], no));
}

interface DeadLetterRow {
  readonly tenant_id: TenantId;
  readonly trace_id: Uint8Array;
  readonly partition: number;
  readonly position: number;
  readonly received_at: number;
  readonly set_aside_at: number;
  readonly cause: string;
}

/** Newest first. */
export function listDeadLetters(store: StoreConnection, limit: number): DeadLetter[] {
  const rows = store.all<DeadLetterRow>(
    `SELECT set_aside.*, tenants.id AS tenant_id FROM set_aside JOIN tenants ON tenants.no = set_aside.tenant
     ORDER BY set_aside.no DESC LIMIT ?`,
    limit,
  );
  return rows.map((row) => ({
    tenantId: row.tenant_id,
    traceId: uuidText(row.trace_id),
    partition: row.partition,
    position: row.position,
    receivedAt: row.received_at,
    failedAt: row.set_aside_at,
    cause: row.cause,
  }));
}

export function countEvents(store: StoreConnection): { eventsInLedger: number; eventsInTables: number } {
  const books = store.get<{ events: number | null }>('SELECT sum(events_stored) AS events FROM ledger');
  const eventsInTables = store
    .tables()
    .map(({ no }) => countStored(store, no))
    .reduce((sum, events) => sum + events, 0);
  return { eventsInLedger: books?.events ?? 0, eventsInTables };
}
