/**
 * Reads the records and events from which views/trace.ts builds the trace of a request, and looks up what they name.
 */

import type { NodeNumber, TenantId } from '../../../model.ts';
import type { Page, StoredTrace, TraceQuery, TraceSummary } from '../../../store.ts';
import {
  storedTrace,
  type SummarisedRecord,
  type TracedRecord,
  traceIdBefore,
  TracePage,
  traceScope,
  type UserEvents,
} from '../../../views/trace.ts';
import { TRACE_COLUMNS } from '../../sql/trace-columns.ts';
import { idBytes, type StoreConnection } from './connection.ts';
import { publicId, rootOf } from './profiles.ts';
import { uuidBytes, uuidText } from '../uuids.ts';
import { eventsBetween } from './stored-events.ts';

/** As SQLite returns it. */
type Stored<Row, Id extends keyof Row> = Omit<Row, Id> & {
  readonly [name in Id]: Uint8Array | Extract<Row[name], null>;
};

interface RecordRow extends TracedRecord {
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
    .all<Stored<RecordRow, 'duplicateOf'>>(
      `SELECT no, first_event AS "firstEvent", notes, ${TRACE_COLUMNS}
       FROM records WHERE trace_id = ? AND (?2 IS NULL OR tenant = ?2)`,
      bytes,
      tenant,
    )
    .map((row): RecordRow => Object.assign(row, { duplicateOf: row.duplicateOf && uuidText(row.duplicateOf) }));
  return storedTrace(traceId, rows, {
    eventsOf: (record) => eventsOf(store, record),
    publicId: (node) => publicId(store, node),
    profileId: (node) => publicId(store, rootOf(store, node)) ?? null,
    standingMerges: (node, userIndex) => standingMerges(store, bytes, node, userIndex),
  });
}

function eventsOf(store: StoreConnection, { firstEvent, events }: RecordRow): Map<number, UserEvents> {
  const users = new Map<number, { readonly node: NodeNumber | null; events: number }>();
  for (const { userIndex, node } of eventsBetween(store, firstEvent, firstEvent + events)) {
    users.getOrInsertComputed(userIndex, () => ({ node, events: 0 })).events += 1;
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

interface VisitedRecord extends SummarisedRecord {
  readonly tenant: number;
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
  // Of all tenants, newest first.
  const records = store.iterate<Stored<VisitedRecord, 'traceId' | 'duplicateOf'>>(
    `SELECT trace_id AS "traceId", tenant, ${TRACE_COLUMNS} FROM records WHERE trace_id < ? ORDER BY trace_id DESC`,
    uuidBytes(before),
  );
  for (const { tenant: owner, ...row } of records) {
    const [traceId, duplicateOf] = [uuidText(row.traceId), row.duplicateOf && uuidText(row.duplicateOf)];
    if (!page.add(owner, { ...row, traceId, duplicateOf })) return page.take(false);
  }
  return page.take(true);
}
