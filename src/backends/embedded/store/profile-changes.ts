/**
 * Unmerging (rule 16) and erasing (rule 17) a person. Changed nodes are written to `invalidations`, and the processor
 * drops them from its caches before its next transaction. An erase removes what `backends/sql/profile-changes.ts` does,
 * properties, events, and the first uses of their `$event_id`s.
 *
 * An erase is one transaction, except for a person with many events: these are removed in pieces first, with pauses for
 * the processor and for the other reads of this thread. After a crash in between, the profile exists with fewer events
 * and can be erased again, and the audit entry says what was removed. Freed bytes are overwritten (`secure_delete`).
 * Limits: where SQLite moved rows between pages earlier, copies may stay in the unused part of a page until it is reused
 * or the file is vacuumed; the event log keeps requests for its own retention; the `$event_id` of an event that had
 * already expired is remembered to the end of its window.
 */

import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { type SqlBool, sql } from 'kysely';
import type { NodeNumber } from '../../../model.ts';
import type { AuditContext, UnmergeResult } from '../../../store.ts';
import { StoreUnavailableError } from '../../../store-writer.ts';
import { auditErasure, endErasure } from '../../sql/audit.ts';
import {
  type ErasedPerson,
  type Erasure,
  erasePerson,
  findRejections,
  type RejectionHorizon,
  type MatchingRejections,
  writeUnmerge,
} from '../../sql/profile-changes.ts';
import { addToSums } from '../../sql/sums.ts';
import { BUSY_TIMEOUT_MS } from '../database.ts';
import {
  entriesOf,
  type EventKey,
  EventReader,
  EVENTS_BY_NODE,
  eventsBetween,
  removable,
  type RemovableEvent,
  removeEvents,
} from './stored-events.ts';
import { forgetEventIds, type UsedEventId } from './first-uses.ts';
import { invalidate } from './invalidations.ts';
import { type EventGroup, idBytes, inWriteTransaction, type StoreConnection } from './connection.ts';
import { MATCH_KEYS, runKeyOf } from './match-keys.ts';
import { PROFILE_RUNS, subtractEvents } from './profile-runs.ts';
import { identifiersOf, mergesOf, nodesById } from './profiles.ts';
import { erasedKeys, eventIdOf, spellingsOf } from '../../../views/erased-person.ts';
import type { ProfileNodes } from '../../../views/profile.ts';
import { planUnmerge } from '../../../views/unmerge.ts';
import { uuidBytes } from '../uuids.ts';

/** Rule 16. Undefined for an unknown profile. */
export function unmerge(
  store: StoreConnection,
  tenant: number,
  id: string,
  mergedBy: string,
  audit: AuditContext,
): UnmergeResult | undefined {
  const profile = nodesById(store, tenant, id);
  if (profile === undefined) return undefined;
  const cause = idBytes(mergedBy) === undefined ? null : mergedBy.toLowerCase();
  const plan = planUnmerge(profile, mergesOf(store, profile.nodes), cause);
  if (plan.undone.length === 0) return plan.result;
  for (const [node, root] of plan.roots) {
    store.run('DELETE FROM aliases WHERE node = ?', node);
    if (node !== root) store.run('INSERT INTO aliases VALUES (?, ?)', node, root);
  }
  invalidate(store, { nodes: profile.nodes.map(({ node }) => node) });
  store.steps((tables) => writeUnmerge(tables, tenant, plan, audit, uuidBytes(audit.traceId)));
  return plan.result;
}

/** How long a piece of an erase takes: the processor and other reads wait for it. */
const PIECE_MS = 100;
/** Between two pieces. SQLite's busy handler, by which the processor waits for the lock, looks every 100 ms at least. */
const PAUSE_MS = 120;
const EVENTS_AT_ONCE = 500;
export const VACUUM_PAGES = 512;
const CHECKPOINT_TRIES_MAX = 5;
/** Longer than the pauses of a processor that keeps up. */
const CLEAN_UP_MS_MAX = 10_000;

/** Rejections are numbered in the order in which the one writer stores them. */
const HORIZON: RejectionHorizon = {
  now: sql<number>`(SELECT coalesce(max(no), 0) FROM rejections)`,
  isLater: (horizon) => sql<SqlBool>`no > ${horizon}`,
};

/** False for an unknown profile, and for one that another erasure removes first. */
export async function erase(store: StoreConnection, erasure: Erasure): Promise<boolean> {
  const { tenant, id } = erasure;
  const known = store.read(() => nodesById(store, tenant, id));
  if (known === undefined) return false;
  // Searched before the transaction, since there may be many; rows added meanwhile are searched within it.
  const keys = erasedKeys(identifiersOf(store, known.nodes));
  const matching = await store.stepsInTurns((tables) => findRejections(tables, erasure, keys, HORIZON));
  let entry: number | null = null;
  for (;;) {
    const before: number | null = entry;
    const after: number | boolean = await inWriteTransaction(store, () => erasePiece(store, erasure, matching, before));
    if (typeof after === 'boolean') {
      await cleanUp(store);
      return after;
    }
    entry = after;
    await sleep(PAUSE_MS);
  }
}

/**
 * Within a transaction. The audit entry while more is left; true when the person is gone; false if another erasure
 * removed all of it.
 */
function erasePiece(
  store: StoreConnection,
  erasure: Erasure,
  matching: MatchingRejections,
  entry: number | null,
): number | boolean {
  const { tenant, id } = erasure;
  const profile = nodesById(store, tenant, id);
  if (profile === undefined) return store.steps((tables) => endErasure(tables, entry));
  const { removed, isDone } = eraseEvents(store, tenant, profile);
  const events = removed.length;
  if (isDone) {
    eraseProfile(store, erasure, profile, matching, { events, entry });
    return true;
  }
  subtractEvents(store, removed);
  const part = { profileId: profile.root.id, nodes: 0, events, isFinished: false };
  return store.steps((tables) => auditErasure(tables, erasure, entry, part));
}

/**
 * The erase is complete by now; this only removes bytes that are left in free pages, which the writer frees without
 * overwriting them, and in the write-ahead log, unless a read is running or the store is busy.
 */
async function cleanUp(store: StoreConnection): Promise<void> {
  const pause = { isUrgent: false, giveUpAt: performance.now() + CLEAN_UP_MS_MAX };
  try {
    for (let pages = freePages(store); pages > 0; pages -= VACUUM_PAGES) {
      await inWriteTransaction(store, () => store.database.exec(`PRAGMA incremental_vacuum(${VACUUM_PAGES})`), pause);
      // Reads of this thread go first.
      await setImmediate();
    }
    for (let tries = 0; tries < CHECKPOINT_TRIES_MAX; tries += 1) {
      // The lock was free a moment ago and still is: the processor's pause is longer than this.
      await inWriteTransaction(store, () => undefined, pause);
      if (emptyWriteAheadLog(store)) return;
    }
  } catch (error) {
    // The store is busy: its writer uses the free pages again, and a checkpoint overwrites the write-ahead log.
    if (!(error instanceof StoreUnavailableError)) throw error;
  }
}

export function freePages(store: StoreConnection): number {
  return store.get<{ freelist_count: number }>('PRAGMA freelist_count')?.freelist_count ?? 0;
}

/** Removes events for about `PIECE_MS`. */
function eraseEvents(
  store: StoreConnection,
  tenant: number,
  { nodes }: ProfileNodes,
): { readonly removed: readonly RemovableEvent[]; readonly isDone: boolean } {
  const startedAt = performance.now();
  const removed: RemovableEvent[] = [];
  for (const group of store.eventGroups()) {
    for (const { node } of nodes) {
      for (;;) {
        const keys = entriesOf(store, group, { ...ALL_ENTRIES, owner: node }, EVENTS_AT_ONCE);
        if (keys.length === 0) break;
        removed.push(...eraseKeys(store, tenant, group, node, keys));
        if (performance.now() - startedAt > PIECE_MS) return { removed, isDone: false };
      }
    }
  }
  return { removed, isDone: true };
}

const ALL_ENTRIES = {
  index: EVENTS_BY_NODE,
  before: { timestamp: Number.MAX_SAFE_INTEGER, no: 0 },
  from: Number.MIN_SAFE_INTEGER,
} as const;

/** Returns the removed events of a node; some in the index may have expired. */
function eraseKeys(
  store: StoreConnection,
  tenant: number,
  group: EventGroup,
  node: NodeNumber,
  keys: readonly EventKey[],
): RemovableEvent[] {
  const reader = new EventReader(store);
  const users = new Map<number, Set<number>>();
  for (const { no } of keys) {
    const event = reader.get(no);
    if (event !== undefined) users.getOrInsertComputed(event.record, () => new Set<number>()).add(event.userIndex);
  }
  const eventIds: UsedEventId[] = [];
  const events = [...users].flatMap(([record, ofRecord]) => eventsToErase(store, record, node, ofRecord, eventIds));
  forgetEventIds(store, tenant, eventIds);
  removeEvents(store, group, events, 'erased');
  // Events that had expired still have index entries.
  const entries = keys.map(({ timestamp, no }) => [node, timestamp, no]);
  store.runs(EVENTS_BY_NODE).remove(entries, group.no);
  return events;
}

/**
 * The events of a node that some users of a record have. All of them, also if a piece ends within a user, since a user
 * counts once in the ledger. Adds their ids to `eventIds`.
 */
function eventsToErase(
  store: StoreConnection,
  recordNo: number,
  node: NodeNumber,
  users: ReadonlySet<number>,
  eventIds: UsedEventId[],
): RemovableEvent[] {
  const record = store.get<{ received_at: number; processed_at: number; first_event: number; events: number }>(
    'SELECT received_at, processed_at, first_event, events FROM records WHERE no = ?',
    recordNo,
  );
  if (record === undefined) throw new Error(`record ${recordNo} is not stored, and its events are`);
  const { received_at, processed_at, first_event, events } = record;
  const found: RemovableEvent[] = [];
  for (const event of eventsBetween(store, first_event, first_event + events)) {
    if (event.node !== node || !users.has(event.userIndex)) continue;
    const eventId = eventIdOf(event.properties);
    // What a job applied has used its ids when it was processed.
    if (eventId !== undefined) eventIds.push({ id: eventId, usedAt: [received_at, processed_at] });
    found.push(removable(event, received_at));
  }
  return found;
}

function eraseProfile(
  store: StoreConnection,
  erasure: Erasure,
  profile: ProfileNodes,
  matching: MatchingRejections,
  removed: Pick<ErasedPerson, 'events' | 'entry'>,
): void {
  const { tenant } = erasure;
  const nodes = profile.nodes.map(({ node }) => node);
  const keys = erasedKeys(identifiersOf(store, profile.nodes));
  const person = { id: profile.root.id, nodes, keys, ...removed };
  store.steps((tables) => erasePerson(tables, erasure, person, matching, HORIZON));
  const runKeys = keys.map((key) => runKeyOf(store.hashOf, tenant, key));
  store.runs(MATCH_KEYS).remove(runKeys);
  for (const node of nodes) store.run('DELETE FROM aliases WHERE node = ?', node);
  store.runs(PROFILE_RUNS).remove(nodes.map((node) => [node]));
  const erased = keys.flatMap(spellingsOf).map((spelling) => runKeyOf(store.hashOf, tenant, spelling)[0]);
  invalidate(store, { nodes, erasedKeys: erased });
  store.steps((tables) => addToSums(tables, 'profile_counts', [{ tenant, profiles: -1 }]));
}

/** Without waiting for readers and writers, which would block the reads of this thread. */
function emptyWriteAheadLog(store: StoreConnection): boolean {
  store.database.exec('PRAGMA busy_timeout = 0');
  try {
    return store.get<{ busy: number }>('PRAGMA wal_checkpoint(TRUNCATE)')?.busy === 0;
  } finally {
    store.database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
  }
}
