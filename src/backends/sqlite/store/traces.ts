/**
 * Reads the records and events from which views/trace.ts builds the trace of a request, and looks up what they name.
 */

import type { NodeNumber, TenantId } from '../../../model.ts';
import type { Page, StoredTrace, TraceQuery, TraceSummary } from '../../../store.ts';
import { type SummarisedRecord, traceIdBefore, TracePage, traceScope } from '../../../views/trace-list.ts';
import { storedTrace, type TracedRecord, type UserEvents } from '../../../views/trace.ts';
import { idBytes, type StoreConnection } from './connection.ts';
import { publicId } from './profiles.ts';
import { uuidBytes, uuidText } from '../uuids.ts';
import { eventsBetween } from './stored-events.ts';

interface RecordColumns {
  readonly no: number;
  readonly table: number;
  readonly received_at: number;
  readonly processed_at: number;
  readonly first_user_index: number;
  readonly users_accepted: number;
  readonly users_rejected: number;
  readonly first_event: number;
  readonly events: number;
  readonly duplicate_of: Uint8Array | null;
  readonly key_id: string;
  readonly notes: string | null;
}

interface RecordRow extends TracedRecord {
  readonly table: number;
  readonly firstEvent: number;
}

/** `tenant` null searches all of them; undefined is one that never sent anything. */
export function readTrace(
  store: StoreConnection,
  tenant: number | null | undefined,
  traceId: string,
): StoredTrace | undefined {
  const bytes = idBytes(traceId);
  if (bytes === undefined || tenant === undefined) return undefined;
  const rows = store
    .tables()
    .toReversed()
    .flatMap(({ no }) =>
      store.all<RecordColumns>(
        `SELECT no, ${no} AS "table", received_at, processed_at, first_user_index, users_accepted,
           users_rejected, first_event, events, duplicate_of, key_id, notes
         FROM records_${no} WHERE trace_id = ? AND (?2 IS NULL OR tenant = ?2)`,
        bytes,
        tenant,
      ),
    );
  return storedTrace(traceId, rows.map(recordRow), {
    eventsOf: (record) => eventsOf(store, record),
    publicId: (node) => publicId(store, node),
    profileId: (node) => publicId(store, rootOf(store, node)) ?? null,
    standingMerges: (node, userIndex) => standingMerges(store, bytes, node, userIndex),
  });
}

function recordRow(row: RecordColumns): RecordRow {
  return {
    no: row.no,
    table: row.table,
    receivedAt: row.received_at,
    processedAt: row.processed_at,
    firstUserIndex: row.first_user_index,
    usersAccepted: row.users_accepted,
    usersRejected: row.users_rejected,
    firstEvent: row.first_event,
    events: row.events,
    duplicateOf: row.duplicate_of && uuidText(row.duplicate_of),
    keyId: row.key_id,
    notes: row.notes,
  };
}

function eventsOf(store: StoreConnection, { table, firstEvent, events }: RecordRow): Map<number, UserEvents> {
  const users = new Map<number, { readonly node: NodeNumber | null; events: number }>();
  for (const { userIndex, node } of eventsBetween(store, table, firstEvent, firstEvent + events)) {
    const user = users.get(userIndex);
    if (user === undefined) users.set(userIndex, { node, events: 1 });
    else user.events += 1;
  }
  return users;
}

function standingMerges(
  store: StoreConnection,
  traceId: Uint8Array,
  node: NodeNumber,
  userIndex: number,
): { from: NodeNumber; into: NodeNumber }[] {
  return store.all(
    `SELECT from_node AS "from", into_node AS "into" FROM merges
     WHERE node_a IN (SELECT ?1 UNION ALL SELECT node FROM aliases WHERE root = ?1) AND trace_id = ?2 AND user_index = ?3
     ORDER BY no`,
    rootOf(store, node),
    traceId,
    userIndex,
  );
}

function rootOf(store: StoreConnection, node: NodeNumber): NodeNumber {
  return store.get<{ root: NodeNumber }>('SELECT root FROM aliases WHERE node = ?', node)?.root ?? node;
}

interface VisitedColumns extends Omit<RecordColumns, 'no' | 'table' | 'first_event' | 'notes'> {
  readonly trace_id: Uint8Array;
  readonly tenant: number;
}

/** Records of all tenants by trace_id, newest first, merged from all tables: those of each table are in order. */
function* visitRecords(store: StoreConnection, before: string): Generator<VisitedColumns> {
  const tables = store.tables().map(({ no }) => {
    const rows = store.iterate<VisitedColumns>(
      `SELECT trace_id, tenant, received_at, processed_at, first_user_index, users_accepted, users_rejected, events,
         duplicate_of, key_id
       FROM records_${no} WHERE trace_id < ? ORDER BY trace_id DESC`,
      uuidBytes(before),
    );
    return { rows, next: rows.next() };
  });
  try {
    for (;;) {
      let newest: (typeof tables)[number] | undefined;
      for (const table of tables) {
        if (table.next.done === true) continue;
        if (newest === undefined || Buffer.compare(table.next.value.trace_id, newest.next.value.trace_id) > 0) {
          newest = table;
        }
      }
      if (newest === undefined) return;
      yield newest.next.value;
      newest.next = newest.rows.next();
    }
  } finally {
    // An unfinished statement keeps the read transaction open.
    for (const { rows } of tables) rows.return?.();
  }
}

export function listTraces(
  store: StoreConnection,
  tenant: number,
  tenantId: TenantId,
  query: TraceQuery,
): Page<TraceSummary> {
  const scope = traceScope(tenantId, query);
  const before = traceIdBefore(scope, query.cursor);
  if (query.status === 'pending') return { rows: [], nextCursor: null };
  const page = new TracePage(tenant, scope, query.limit);
  for (const row of visitRecords(store, before)) {
    if (!page.add(row.tenant, summarised(row))) return page.take(false);
  }
  return page.take(true);
}

function summarised(row: VisitedColumns): SummarisedRecord {
  return {
    traceId: uuidText(row.trace_id),
    receivedAt: row.received_at,
    processedAt: row.processed_at,
    firstUserIndex: row.first_user_index,
    usersAccepted: row.users_accepted,
    usersRejected: row.users_rejected,
    events: row.events,
    duplicateOf: row.duplicate_of && uuidText(row.duplicate_of),
    keyId: row.key_id,
  };
}
