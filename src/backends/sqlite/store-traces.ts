/**
 * What became of a request. Most of it follows from the events that are stored for it; the record's notes say the rest
 * (merges, warnings, duplicates, rejections). A request that a log cut into several records is put together again.
 * What was erased or has expired meanwhile is gone from the answer too: such a user has no profile and no events, and a
 * warning says so. Merges are those that still stand.
 */

import type { NodeNumber } from '../../model.ts';
import type { StoredTrace, TracedUser } from '../../store.ts';
import type { UserNote } from '../../store-writer.ts';
import { idBytes, type StoreConnection } from './store-connection.ts';
import { publicId } from './store-profiles.ts';
import type { RecordNotes } from './store-schema.ts';
import { uuidText } from './uuids.ts';
import { eventsBetween } from './stored-events.ts';

interface RecordRow {
  readonly no: number;
  readonly table: number;
  readonly trace_id: Uint8Array;
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

interface UserEvents {
  readonly node: NodeNumber | null;
  events: number;
}

/** `tenant` null looks at all of them; undefined is one that never sent anything. */
export function readTrace(
  store: StoreConnection,
  tenant: number | null | undefined,
  traceId: string,
): StoredTrace | undefined {
  const bytes = idBytes(traceId);
  if (bytes === undefined || tenant === undefined) return undefined;
  const records = store
    .tables()
    .toReversed()
    .flatMap(({ no }) =>
      store.all<RecordRow>(
        `SELECT no, ${no} AS "table", trace_id, received_at, processed_at, first_user_index, users_accepted,
           users_rejected, first_event, events, duplicate_of, key_id, notes
         FROM records_${no} WHERE trace_id = ? AND (?2 IS NULL OR tenant = ?2)`,
        bytes,
        tenant,
      ),
    )
    .sort((a, b) => a.first_user_index - b.first_user_index);
  const first = records[0];
  if (first === undefined) return undefined;
  const duplicateOf = records.find(({ duplicate_of }) => duplicate_of !== null)?.duplicate_of ?? null;
  return {
    traceId: traceId.toLowerCase(),
    status: 'processed',
    receivedAt: first.received_at,
    processedAt: Math.max(...records.map(({ processed_at }) => processed_at)),
    usersAccepted: records.reduce((sum, { users_accepted }) => sum + users_accepted, 0),
    usersRejected: records.reduce((sum, { users_rejected }) => sum + users_rejected, 0),
    duplicateOf: duplicateOf && uuidText(duplicateOf),
    keyId: first.key_id,
    users: records.flatMap((record) => usersOf(store, record)),
  };
}

function usersOf(store: StoreConnection, record: RecordRow): TracedUser[] {
  const notes = JSON.parse(record.notes ?? '{}') as RecordNotes;
  const rejected = new Map(notes.rejected);
  const noted = new Map(notes.users?.map((note) => [note.userIndex, note]));
  const stored = eventsOf(store, record);
  const storedEvents = stored.values().reduce((sum, { events }) => sum + events, 0);
  const hasLostEvents = storedEvents < record.events;
  // Without its notes nobody knows which users were rejected; only those with events are certain.
  const isCertain = record.users_rejected === rejected.size;
  const users: TracedUser[] = [];
  const end = record.first_user_index + record.users_accepted + record.users_rejected;
  for (let userIndex = record.first_user_index; userIndex < end; userIndex += 1) {
    const message = rejected.get(userIndex);
    if (message !== undefined) users.push(rejectedUser(userIndex, message));
    else if (isCertain || stored.has(userIndex) || noted.has(userIndex)) {
      const note = noted.get(userIndex);
      const user = acceptedUser(store, record, userIndex, stored.get(userIndex), note);
      const isGone = hasLostEvents && user.events === 0 && !wasNeverStored(note);
      users.push(isGone ? { ...user, warnings: [...user.warnings, EVENTS_ARE_GONE] } : user);
    }
  }
  return users;
}

function eventsOf(store: StoreConnection, { table, first_event, events }: RecordRow): Map<number, UserEvents> {
  const users = new Map<number, UserEvents>();
  for (const { userIndex, node } of eventsBetween(store, table, first_event, first_event + events)) {
    const user = users.get(userIndex);
    if (user === undefined) users.set(userIndex, { node, events: 1 });
    else user.events += 1;
  }
  return users;
}

const EVENTS_ARE_GONE = 'its events are not stored any more: erased, or older than SLUICE_EVENT_RETENTION';
const MERGE_WAS_UNDONE = 'a merge of this request was undone';
/** How the processor's warning begins when a user came in too late to be stored (rule 17). */
const NOT_STORED = 'not stored: ';

/** Who sent some events again and was erased later looks the same as who sent them all again: nothing is said of either. */
function wasNeverStored(note: UserNote | undefined): boolean {
  if ((note?.duplicateEvents ?? 0) > 0) return true;
  return note?.warnings?.some((warning) => warning.startsWith(NOT_STORED)) ?? false;
}

function acceptedUser(
  store: StoreConnection,
  record: RecordRow,
  userIndex: number,
  stored: UserEvents | undefined,
  note: UserNote | undefined,
): TracedUser {
  const node = stored?.node ?? null;
  const { merged, isUndone } = mergedBy(store, record, userIndex, node, note?.merged ?? []);
  const warnings = note?.warnings ?? [];
  return {
    userIndex,
    status: 'accepted',
    profileId: node === null ? null : profileIdOf(store, node),
    events: stored?.events ?? 0,
    duplicateEvents: note?.duplicateEvents ?? 0,
    merged,
    warnings: isUndone ? [...warnings, MERGE_WAS_UNDONE] : warnings,
    message: null,
  };
}

/**
 * Those of a user's merges that still stand. Each joined the user's node to another one, so they are found in the
 * profile that this node has now. Whoever was erased is not named, nor is it said that they were ever merged.
 */
function mergedBy(
  store: StoreConnection,
  record: RecordRow,
  userIndex: number,
  node: NodeNumber | null,
  noted: NonNullable<UserNote['merged']>,
): { readonly merged: TracedUser['merged']; readonly isUndone: boolean } {
  if (noted.length === 0 || node === null) return { merged: [], isUndone: false };
  // Not as noted: an unmerge of other merges may have changed who survived.
  const standing = store.all<{ from_node: NodeNumber; into_node: NodeNumber }>(
    `SELECT from_node, into_node FROM merges
     WHERE node_a IN (SELECT ?1 UNION ALL SELECT node FROM aliases WHERE root = ?1) AND trace_id = ?2 AND user_index = ?3
     ORDER BY no`,
    rootOf(store, node),
    record.trace_id,
    userIndex,
  );
  const merged = standing.flatMap(({ from_node, into_node }) => {
    const [from, into] = [publicId(store, from_node), publicId(store, into_node)];
    return from === undefined || into === undefined ? [] : [{ from, into }];
  });
  const living = noted.filter((nodes) => nodes.every((no) => publicId(store, no) !== undefined));
  return { merged, isUndone: merged.length < living.length };
}

export function rejectedUser(userIndex: number, message: string): TracedUser {
  return {
    userIndex,
    status: 'rejected',
    profileId: null,
    events: 0,
    duplicateEvents: 0,
    merged: [],
    warnings: [],
    message,
  };
}

/** Null when it was erased. */
function profileIdOf(store: StoreConnection, node: NodeNumber): string | null {
  return publicId(store, rootOf(store, node)) ?? null;
}

function rootOf(store: StoreConnection, node: NodeNumber): NodeNumber {
  return store.get<{ root: NodeNumber }>('SELECT root FROM aliases WHERE node = ?', node)?.root ?? node;
}
