/**
 * What is read row by row from tables of its own: counts by interval, the books, what came in, and records that were
 * set aside. Sums are kept in shards and added up here. The books, and what came in, come with the positions in the log
 * in one statement, so that whoever adds what is still in the log neither misses a record nor counts one twice.
 */

import type { TenantId } from '../../model.ts';
import type { LostRecords } from '../../log.ts';
import type { CountBucket, CountQuery, StoredLedger, ReceiptMinute, DeadLetter, TimeRange } from '../../store.ts';
import { BOOK_COLUMNS, booksOf, countBuckets, countRange, sumOfRevenues } from '../../views/counts.ts';
import type { CountedCurrency } from '../../views/currency.ts';
import { HOUR_MS, MINUTE_MS, startOf } from '../../views/sums.ts';
import type { PostgresPool, Queryable } from './pool.ts';
import { inSnapshot } from './store-reads.ts';

const RECOUNT_MS_MAX = 3_600_000;

interface CountColumns {
  readonly start: number;
  readonly eventName: string | null;
  readonly currency: CountedCurrency;
  readonly events: number;
  readonly revenues: readonly number[] | null;
}

/**
 * Buckets without events are left out. Revenues are added up here and not by the server, which stops with an error
 * where absurd amounts come to more than a double.
 */
export async function listCounts(db: Queryable, tenant: number, query: CountQuery): Promise<CountBucket[]> {
  const { width, from, to } = countRange(query);
  const name = query.byEventName ? 'event_name' : 'NULL::text';
  const { rows } = await db.query<CountColumns>(
    `SELECT start, ${name} AS "eventName", currency, sum(events)::bigint AS events,
       array_agg(revenue ORDER BY event_name, shard) FILTER (WHERE revenue <> 0) AS revenues
     FROM counts WHERE tenant = $1 AND width = $2 AND start >= $3 AND start < $4
     GROUP BY start, ${query.byEventName ? 'event_name, currency ORDER BY start, event_name' : 'currency ORDER BY start'}`,
    [tenant, width, from, to],
  );
  const summed = rows.map(({ start, eventName, currency, events, revenues }) => {
    return { start, eventName, currency, events, revenue: sumOfRevenues(revenues ?? []) };
  });
  return countBuckets(query, summed);
}

type Positions = readonly (readonly [partition: number, position: number, lastTraceId: string | null])[] | null;

/** $1 is the name of the log. */
const POSITIONS = `
  (SELECT json_agg(json_build_array(partition, position, last_trace_id) ORDER BY partition) AS positions
   FROM positions WHERE log = $1) AS p`;

/** Of all logs. Read in one statement with the positions: what a position has passed is in here, and only that. */
const LOST = `
  (SELECT json_agg(json_build_object('partition', partition, 'from', first_position, 'to', next_position,
                                     'records', records, 'at', found_at)
                   ORDER BY found_at, log, partition, first_position) AS lost
   FROM lost_records) AS lost`;

const LEDGER_COLUMNS = [
  'users_rejected',
  ...BOOK_COLUMNS.map((column) => `users_${column}`),
  ...BOOK_COLUMNS.map((column) => `events_${column}`),
];
const LEDGER_SUMS = LEDGER_COLUMNS.map((column) => `sum(${column})::bigint AS ${column}`).join(', ');

type LedgerColumns = Readonly<Record<string, number | null>> & { readonly hour: number | null };

/**
 * Newest hour first. `tenant` null is all of them. Its number is looked up in the statement that reads the positions: a tenant
 * whose first records are stored in between would seem to have none, neither stored nor pending.
 */
export async function readLedger(
  db: Queryable,
  log: string,
  tenant: TenantId | null,
  { from, to }: TimeRange,
): Promise<StoredLedger> {
  const { rows } = await db.query<
    LedgerColumns & { readonly positions: Positions; readonly lost: LostRecords[] | null }
  >(
    `SELECT p.positions, lost.lost, l.* FROM ${POSITIONS} CROSS JOIN ${LOST} LEFT JOIN (
       SELECT hour, ${LEDGER_SUMS} FROM ledger
       WHERE ($2::text IS NULL OR tenant = (SELECT no FROM tenants WHERE id = $2)) AND hour >= $3 AND hour < $4 GROUP BY hour
     ) AS l ON true ORDER BY l.hour DESC`,
    [log, tenant, from === null ? Number.MIN_SAFE_INTEGER : startOf(from, HOUR_MS), to ?? Number.MAX_SAFE_INTEGER],
  );
  const hours = rows.flatMap((row) => {
    const { hour } = row;
    if (hour === null) return [];
    return [
      { hour, users: booksOf(row, 'users'), events: booksOf(row, 'events'), rejectedUsers: row['users_rejected'] ?? 0 },
    ];
  });
  const positions = rows[0]?.positions ?? [];
  return {
    hours,
    positions: byPartition(positions),
    lastTraceIds: new Map(positions.flatMap(([partition, , id]) => (id === null ? [] : [[partition, id] as const]))),
    lost: rows[0]?.lost ?? [],
    missingRecords: 0,
  };
}

function byPartition(positions: NonNullable<Positions>): Map<number, number> {
  return new Map(positions.map(([partition, position]) => [partition, position]));
}

interface ReceiptColumns {
  readonly start: number | null;
  readonly usersAccepted: number;
  readonly usersRejected: number;
  readonly eventsAccepted: number;
  readonly positions: Positions;
}

/** Every minute that has a part in the range, oldest first. The tenant is looked up as in `readLedger`. */
export async function readReceipts(
  db: Queryable,
  log: string,
  tenant: TenantId,
  { from, to }: TimeRange,
): Promise<{ minutes: ReceiptMinute[]; positions: Map<number, number> }> {
  const { rows } = await db.query<ReceiptColumns>(
    `SELECT p.positions, r.* FROM ${POSITIONS} LEFT JOIN (
       SELECT minute AS start, sum(users_accepted)::bigint AS "usersAccepted",
         sum(users_rejected)::bigint AS "usersRejected", sum(events_accepted)::bigint AS "eventsAccepted"
       FROM receipts WHERE tenant = (SELECT no FROM tenants WHERE id = $2) AND minute >= $3 AND minute < $4 GROUP BY minute
     ) AS r ON true ORDER BY r.start`,
    [log, tenant, from === null ? Number.MIN_SAFE_INTEGER : startOf(from, MINUTE_MS), to ?? Number.MAX_SAFE_INTEGER],
  );
  const minutes = rows.flatMap(({ start, usersAccepted, usersRejected, eventsAccepted }) =>
    start === null ? [] : [{ start, usersAccepted, usersRejected, eventsAccepted }],
  );
  return { minutes, positions: byPartition(rows[0]?.positions ?? []) };
}

/** Newest first, of all logs that come into this store. */
export async function listDeadLetters(db: Queryable, limit: number): Promise<DeadLetter[]> {
  const { rows } = await db.query<DeadLetter>(
    `SELECT tenants.id AS "tenantId", trace_id AS "traceId", partition, position, received_at AS "receivedAt",
       set_aside_at AS "failedAt", cause
     FROM set_aside JOIN tenants ON tenants.no = set_aside.tenant ORDER BY set_aside.no DESC LIMIT $1`,
    [limit],
  );
  return rows;
}

/** Slow: looks at every event. */
export async function countEvents(pool: PostgresPool): Promise<{ eventsInLedger: number; eventsInTables: number }> {
  return inSnapshot(pool, async (client) => {
    await client.query(`SET LOCAL statement_timeout = ${RECOUNT_MS_MAX}`);
    const { rows } = await client.query<{ eventsInLedger: number; eventsInTables: number }>({
      text: `SELECT (SELECT coalesce(sum(events_stored), 0)::bigint FROM ledger) AS "eventsInLedger",
               (SELECT count(*) FROM events) AS "eventsInTables"`,
      timeoutMs: RECOUNT_MS_MAX,
    });
    return rows[0] ?? { eventsInLedger: 0, eventsInTables: 0 };
  });
}

export async function listTenants(db: Queryable): Promise<TenantId[]> {
  const { rows } = await db.query<{ id: TenantId }>('SELECT id FROM tenants ORDER BY no');
  return rows.map(({ id }) => id);
}
