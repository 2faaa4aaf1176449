/**
 * What became of a request: reads the records and events of which stored/trace.ts makes the answer, and looks up what
 * they name.
 */

import type { NodeNumber } from '../../model.ts';
import type { StoredTrace } from '../../store.ts';
import { storedTrace, type TracedRecord, type UserEvents } from '../../stored/trace.ts';
import { idBytes, type StoreConnection } from './store-connection.ts';
import { publicId } from './store-profiles.ts';
import { uuidText } from './uuids.ts';
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

/** `tenant` null looks at all of them; undefined is one that never sent anything. */
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
