/**
 * Rejected users with their reasons, and the acts of the API, as people read them: newest first, page by page. A reason
 * is found by its hash, because it may be too long for an index. Where a message held U+0000, which PostgreSQL does not
 * take, U+FFFD is kept in its place, so a question with one is put the same way.
 */

import type {
  AuditQuery,
  AuditRow,
  Page,
  RejectionQuery,
  RejectionReason,
  StoredRejection,
  TimeRange,
} from '../../store.ts';
import { scopedCursorOf, scopedNumbersOf } from '../../views/cursor.ts';
import { pageOf } from '../../views/page.ts';
import type { Queryable } from './pool.ts';
import { uuidOf } from './store-reads.ts';

/** There are a few dozen rules; names that clients chose make more reasons of some of them. */
const REASONS_MAX = 100;

type RejectionColumns = StoredRejection & { readonly no: number };

export async function listRejections(
  db: Queryable,
  tenant: number,
  query: RejectionQuery,
): Promise<Page<StoredRejection>> {
  const end = { time: query.to ?? Number.MAX_SAFE_INTEGER, no: 0 };
  const [time = end.time, no = end.no] =
    query.cursor === null ? [] : scopedNumbersOf('rejections', [tenant, query.reason], query.cursor, 2);
  const before = time < end.time ? { time, no } : end;
  const values: unknown[] = [tenant, query.from ?? Number.MIN_SAFE_INTEGER, before.time, before.no, query.limit + 1];
  if (query.reason !== null) values.push(query.reason.replaceAll('\0', '\uFFFD'));
  const { rows } = await db.query<RejectionColumns>(
    `SELECT no, trace_id AS "traceId", user_index AS "userIndex", received_at AS "receivedAt", message, reason, payload,
       payload_is_cut AS "payloadIsCut"
     FROM rejections WHERE tenant = $1 AND received_at >= $2 AND (received_at, no) < ($3, $4)
       ${query.reason === null ? '' : 'AND md5(reason) = md5($6) AND reason = $6'}
     ORDER BY received_at DESC, no DESC LIMIT $5`,
    values,
  );
  return pageOf(rows, query.limit, storedRejection, (row) =>
    scopedCursorOf('rejections', [tenant, query.reason], row.receivedAt, row.no),
  );
}

function storedRejection(row: RejectionColumns): StoredRejection {
  const { traceId, userIndex, receivedAt, message, reason, payload, payloadIsCut } = row;
  return { traceId, userIndex, receivedAt, message, reason, payload, payloadIsCut };
}

export async function listRejectionReasons(
  db: Queryable,
  tenant: number,
  { from, to }: TimeRange,
): Promise<RejectionReason[]> {
  const { rows } = await db.query<RejectionReason>(
    `WITH reasons AS MATERIALIZED (
       SELECT reason, count(*) AS users, max(received_at) AS last_at FROM rejections
       WHERE tenant = $1 AND received_at >= $2 AND received_at < $3
       GROUP BY reason ORDER BY users DESC, last_at DESC, reason LIMIT ${REASONS_MAX}
     )
     SELECT reasons.reason, users, last_at AS "lastAt", newest.trace_id AS "traceId", newest.user_index AS "userIndex"
     FROM reasons CROSS JOIN LATERAL (
       SELECT trace_id, user_index FROM rejections
       WHERE tenant = $1 AND md5(reason) = md5(reasons.reason) AND reason = reasons.reason AND received_at = last_at
       ORDER BY no DESC LIMIT 1
     ) AS newest
     ORDER BY users DESC, last_at DESC, reasons.reason`,
    [tenant, from ?? Number.MIN_SAFE_INTEGER, to ?? Number.MAX_SAFE_INTEGER],
  );
  return rows;
}

/** Without an index for `traceId`: acts are what people did one by one, so there are few. */
export async function listActs(
  db: Queryable,
  tenant: number,
  { limit, cursor, traceId = null }: AuditQuery,
): Promise<Page<AuditRow>> {
  const [before = Number.MAX_SAFE_INTEGER] =
    cursor === null ? [] : scopedNumbersOf('audit', [tenant, traceId], cursor, 1);
  const uuid = traceId === null ? null : uuidOf(traceId);
  if (uuid === undefined) return { rows: [], nextCursor: null };
  const { rows } = await db.query<AuditRow & { readonly no: number }>(
    `SELECT no, kind, trace_id AS "traceId", at, detail FROM audit
     WHERE tenant = $1 AND no < $2 AND ($3::uuid IS NULL OR trace_id = $3) ORDER BY no DESC LIMIT $4`,
    [tenant, before, uuid, limit + 1],
  );
  return pageOf(
    rows,
    limit,
    ({ kind, traceId: id, at, detail }) => ({ kind, traceId: id, at, detail }),
    ({ no }) => scopedCursorOf('audit', [tenant, traceId], no),
  );
}
