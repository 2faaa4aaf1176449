/**
 * Rejected users, as clients and operators read them. How they are written is up to the engine: SQLite inserts row by
 * row, PostgreSQL in one statement for a batch. A reason is found and counted by its hash, because it may be too long for
 * an index.
 */

import { type InferResult, type SelectQueryBuilder, sql, type SqlBool } from 'kysely';
import type {
  Page,
  RejectionFilter,
  RejectionQuery,
  RejectionReason,
  StoredRejection,
  TimeRange,
} from '../../store.ts';
import { type AcceptedRejection, StoreConflictError } from '../../store-writer.ts';
import { scopedCursorOf, scopedNumbersOf, pageOf } from '../../views/cursor.ts';
import { eventNamesIn, nameInText, reasonHash } from '../../views/kept-rejections.ts';
import { uuidOf } from '../../views/uuid.ts';
import { changedBy, chunksOf, rowsOf, type Steps, type Tables } from './steps.ts';
import type { StoreTables } from './store-tables.ts';

/** There are a few dozen rules; names that clients chose make more reasons of some of them. */
const REASONS_MAX = 100;

export function* listRejections(tables: Tables, tenant: number, query: RejectionQuery): Steps<Page<StoredRejection>> {
  const { eventName = null, keyId = null, isResubmitted = null } = query;
  const scope = [
    tenant,
    query.reason,
    eventName,
    keyId,
    isResubmitted === null ? null : String(isResubmitted),
  ] as const;
  const end = { time: query.to ?? Number.MAX_SAFE_INTEGER, no: 0 };
  const [time = end.time, no = end.no] =
    query.cursor === null ? [] : scopedNumbersOf('rejections', scope, query.cursor, 2);
  const before = time < end.time ? { time, no } : end;
  let rejections = selectRejections(tables, tenant)
    .where((where) => where(where.refTuple('received_at', 'no'), '<', where.tuple(before.time, before.no)))
    .orderBy('received_at', 'desc')
    .orderBy('no', 'desc')
    .limit(query.limit + 1);
  rejections = matching(rejections, { ...query, to: null });
  if (isResubmitted !== null) rejections = rejections.where('resubmitted_at', isResubmitted ? 'is not' : 'is', null);
  const rows = yield* rowsOf(rejections);
  return pageOf(rows, query.limit, rejectionOf, (row) => scopedCursorOf('rejections', scope, row.receivedAt, row.no));
}

export function selectRejections(tables: Tables, tenant: number) {
  return tables
    .selectFrom('rejections')
    .select([
      'no',
      'trace_id as traceId',
      'user_index as userIndex',
      'received_at as receivedAt',
      'message',
      'reason',
      'payload',
      'payload_is_cut as payloadIsCut',
      'key_id as keyId',
      'key_kind as keyKind',
      'format',
      'event_names as eventNames',
      'resubmitted_at as resubmittedAt',
      'accepted_by as acceptedBy',
    ])
    .where('tenant', '=', tenant);
}

function rejectionOf(row: InferResult<ReturnType<typeof selectRejections>>[number]): StoredRejection {
  const { no: _no, payloadIsCut, format, eventNames, ...rest } = row;
  return {
    ...rest,
    payloadIsCut: payloadIsCut === 1,
    format: format ?? 'sluice',
    eventNames: eventNamesIn(eventNames),
  };
}

/** Adds the conditions of a filter. */
export function matching<Row>(
  query: SelectQueryBuilder<StoreTables, 'rejections', Row>,
  { reason, from, to, eventName = null, keyId = null }: RejectionFilter,
): SelectQueryBuilder<StoreTables, 'rejections', Row> {
  let rejections = query;
  // Only if given: with a time range SQLite does not use the index by reason.
  if (from !== null) rejections = rejections.where('received_at', '>=', from);
  if (to !== null) rejections = rejections.where('received_at', '<', to);
  if (reason !== null) rejections = rejections.where('reason_hash', '=', reasonHash(reason));
  if (keyId !== null) rejections = rejections.where('key_id', '=', keyId);
  if (eventName !== null) {
    // The one function for this that both engines have.
    rejections = rejections.where(sql<SqlBool>`replace(event_names, ${nameInText(eventName)}, '') <> event_names`);
  }
  return rejections;
}

export function* readRejection(
  tables: Tables,
  tenant: number,
  traceId: string,
  userIndex: number,
): Steps<StoredRejection | undefined> {
  const uuid = uuidOf(traceId);
  if (uuid === undefined || !Number.isSafeInteger(userIndex)) return undefined;
  const [row] = yield* rowsOf(
    selectRejections(tables, tenant).where('trace_id', '=', uuid).where('user_index', '=', userIndex).orderBy('no'),
  );
  return row && rejectionOf(row);
}

/** Users of these requests that were rejected, and neither resubmitted nor accepted in a retry. By trace. */
export function* openRejections(
  tables: Tables,
  tenant: number,
  traceIds: readonly string[],
): Steps<Map<string, Set<number>>> {
  const open = new Map<string, Set<number>>();
  for (const some of chunksOf(traceIds)) {
    const rows = yield* rowsOf(
      tables
        .selectFrom('rejections')
        .select(['trace_id', 'user_index'])
        .where('trace_id', 'in', some)
        .where('tenant', '=', tenant)
        .where('resubmitted_at', 'is', null),
    );
    for (const { trace_id: traceId, user_index: userIndex } of rows) {
      open.getOrInsertComputed(traceId, () => new Set<number>()).add(userIndex);
    }
  }
  return open;
}

/** The same of one request. */
export function* openRejectionsOf(tables: Tables, tenant: number, traceId: string): Steps<ReadonlySet<number>> {
  return (yield* openRejections(tables, tenant, [traceId])).get(traceId) ?? new Set();
}

/** Marks rejections; one that is not open any more is a conflict. */
export function* markAccepted(
  tables: Tables,
  tenant: number,
  accepted: readonly AcceptedRejection[],
  at: number,
): Steps<void> {
  let marked = 0;
  // In one order, as rows are locked in it.
  const byRequest = Map.groupBy(accepted, ({ traceId, acceptedBy }) => `${traceId} ${acceptedBy}`);
  for (const [, some] of [...byRequest].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const [{ traceId, acceptedBy }] = some as [AcceptedRejection];
    marked += yield* changedBy(
      tables
        .updateTable('rejections')
        .set({ resubmitted_at: at, accepted_by: acceptedBy })
        .where('trace_id', '=', traceId)
        .where(
          'user_index',
          'in',
          some.map(({ userIndex }) => userIndex),
        )
        .where('tenant', '=', tenant)
        .where('resubmitted_at', 'is', null),
    );
  }
  if (marked < accepted.length) throw new StoreConflictError('a rejected user was resubmitted meanwhile');
}

export function* countRejections(tables: Tables, tenant: number, filter: RejectionFilter): Steps<number> {
  const [row] = yield* rowsOf(unresubmitted(tables, tenant, filter));
  return row?.rejections ?? 0;
}

/** How many of these are not resubmitted. */
export function unresubmitted(tables: Tables, tenant: number, filter: RejectionFilter) {
  const all = tables
    .selectFrom('rejections')
    .select(({ fn }) => fn.countAll<number>().as('rejections'))
    .where('tenant', '=', tenant)
    .where('resubmitted_at', 'is', null);
  return matching(all, filter);
}

/** Counted in the index alone; then the newest user of each reason is looked up. */
export function* listRejectionReasons(
  tables: Tables,
  tenant: number,
  { from, to }: TimeRange,
): Steps<RejectionReason[]> {
  const reasons = tables
    .with('reasons', (queries) =>
      queries
        .selectFrom('rejections')
        .select(({ fn }) => [
          'reason_hash',
          fn.countAll<number>().as('users'),
          fn.count<number>('resubmitted_at').as('resubmitted'),
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
    .select([
      'newest.reason',
      'reasons.users',
      'reasons.resubmitted',
      'reasons.last_at as lastAt',
      'newest.trace_id as traceId',
      'newest.user_index as userIndex',
    ]);
  return (yield* rowsOf(reasons)).sort(
    (a, b) => b.users - a.users || b.lastAt - a.lastAt || (a.reason < b.reason ? -1 : 1),
  );
}
