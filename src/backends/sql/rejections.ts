/**
 * Rejected users and dead letters (records that could not be processed), as clients and operators read them. How rejected
 * users are written is up to the engine: SQLite inserts row by row, PostgreSQL in one statement for a batch. A reason is
 * found and counted by its hash, because it may be too long for an index.
 */

import type { Kysely } from 'kysely';
import type { DeadLetter, Page, RejectionQuery, RejectionReason, StoredRejection, TimeRange } from '../../store.ts';
import type { RecordHeader } from '../../store-writer.ts';
import { scopedCursorOf, scopedNumbersOf } from '../../views/cursor.ts';
import { reasonHash } from '../../views/kept-rejections.ts';
import { pageOf } from '../../views/page.ts';
import { withoutNul } from '../../views/storable-text.ts';
import type { StoreQueries, StoreTables } from './store-tables.ts';

/** There are a few dozen rules; names that clients chose make more reasons of some of them. */
const REASONS_MAX = 100;

export async function listRejections(
  { tables }: StoreQueries,
  tenant: number,
  query: RejectionQuery,
): Promise<Page<StoredRejection>> {
  const scope = [tenant, query.reason] as const;
  const end = { time: query.to ?? Number.MAX_SAFE_INTEGER, no: 0 };
  const [time = end.time, no = end.no] =
    query.cursor === null ? [] : scopedNumbersOf('rejections', scope, query.cursor, 2);
  const before = time < end.time ? { time, no } : end;
  let rejections = tables
    .selectFrom('rejections')
    .select(['no', 'trace_id', 'user_index', 'received_at', 'message', 'reason', 'payload', 'payload_is_cut'])
    .where('tenant', '=', tenant)
    .where((where) => where(where.refTuple('received_at', 'no'), '<', where.tuple(before.time, before.no)))
    .orderBy('received_at', 'desc')
    .orderBy('no', 'desc')
    .limit(query.limit + 1);
  // Only if given: with a time range SQLite does not use the index by reason.
  if (query.from !== null) rejections = rejections.where('received_at', '>=', query.from);
  if (query.reason !== null) rejections = rejections.where('reason_hash', '=', reasonHash(query.reason));
  const rows = await rejections.execute();
  return pageOf(
    rows,
    query.limit,
    (row) => ({
      traceId: row.trace_id,
      userIndex: row.user_index,
      receivedAt: row.received_at,
      message: row.message,
      reason: row.reason,
      payload: row.payload,
      payloadIsCut: row.payload_is_cut === 1,
    }),
    (row) => scopedCursorOf('rejections', scope, row.received_at, row.no),
  );
}

/** Counted in the index alone; then the newest user of each reason is looked up. */
export async function listRejectionReasons(
  { tables }: StoreQueries,
  tenant: number,
  { from, to }: TimeRange,
): Promise<RejectionReason[]> {
  const rows = await tables
    .with('reasons', (queries) =>
      queries
        .selectFrom('rejections')
        .select(({ fn }) => [
          'reason_hash',
          fn.countAll<number>().as('users'),
          fn.max<number>('received_at').as('last_at'),
        ])
        .where('tenant', '=', tenant)
        .where('received_at', '>=', from ?? Number.MIN_SAFE_INTEGER)
        .where('received_at', '<', to ?? Number.MAX_SAFE_INTEGER)
        .groupBy('reason_hash')
        .orderBy('users', 'desc')
        .orderBy('last_at', 'desc')
        .orderBy('reason_hash')
        .limit(REASONS_MAX),
    )
    .selectFrom('reasons')
    .innerJoin('rejections as newest', (join) =>
      join.on('newest.no', '=', (on) =>
        on
          .selectFrom('rejections as r')
          .select('r.no')
          .where('r.tenant', '=', tenant)
          .whereRef('r.reason_hash', '=', 'reasons.reason_hash')
          .whereRef('r.received_at', '=', 'reasons.last_at')
          .orderBy('r.no', 'desc')
          .limit(1),
      ),
    )
    .select(['newest.reason', 'reasons.users', 'reasons.last_at', 'newest.trace_id', 'newest.user_index'])
    .execute();
  return rows
    .map((row) => ({
      reason: row.reason,
      users: row.users,
      lastAt: row.last_at,
      traceId: row.trace_id,
      userIndex: row.user_index,
    }))
    .sort((a, b) => b.users - a.users || b.lastAt - a.lastAt || (a.reason < b.reason ? -1 : 1));
}

/** Newest first, of all logs that come into this store. */
export async function listDeadLetters({ tables }: StoreQueries, limit: number): Promise<DeadLetter[]> {
  const rows = await tables
    .selectFrom('dead_letters')
    .innerJoin('tenants', 'tenants.no', 'dead_letters.tenant')
    .select(['tenants.id as tenantId', 'trace_id', 'partition', 'position', 'received_at', 'failed_at', 'cause'])
    .orderBy('dead_letters.no', 'desc')
    .limit(limit)
    .execute();
  return rows.map(({ tenantId, trace_id, partition, position, received_at, failed_at, cause }) => ({
    tenantId,
    traceId: trace_id,
    partition,
    position,
    receivedAt: received_at,
    failedAt: failed_at,
    cause,
  }));
}

/** In the transaction that passes over the record. */
export function insertDeadLetter(
  tables: Kysely<StoreTables>,
  tenant: number,
  log: string,
  { partition, position, receivedAt, traceId }: RecordHeader,
  cause: string,
  failedAt: number,
) {
  return tables.insertInto('dead_letters').values({
    tenant,
    log,
    partition,
    position,
    received_at: receivedAt,
    trace_id: traceId,
    failed_at: failedAt,
    cause: withoutNul(cause),
  });
}
