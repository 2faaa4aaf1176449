/**
 * Retention: removes what is too old, a bounded piece at a time, on the connection of the writer, between two of its
 * transactions. Each call is one transaction, after which every sum agrees with what can be read. The parts take turns,
 * so that one which always has something to remove does not keep the others waiting.
 *
 * Events go record by record, oldest first, with the record itself, and a table of events is dropped once it is empty;
 * the newest table stays, because it is being written. Traces outlive their notes: a record stays as long as its
 * events. Records are looked for in the order of the log; one with a time of receipt in the future (a clock that was
 * wrong) keeps the few thousand behind it at most.
 */

import type { DatabaseSync } from 'node:sqlite';
import type { Retention } from '../../../store-writer.ts';
import { transaction } from '../database.ts';
import { dropEntries } from './event-index.ts';
import { type EventTable, StoreConnection } from './connection.ts';
import type { FirstUses } from './first-uses.ts';
import { freePages } from './erase.ts';
import { type RemovableEvent, removable, removeEvents } from './event-removal.ts';
import { eventsBetween } from './stored-events.ts';

const ROWS_PER_SWEEP = 2_000;
const EVENTS_PER_SWEEP = 5_000;
const INDEX_BLOCKS_PER_SWEEP = 1_000;
/** Counts of what came in are for looking at the last few days. */
const RECEIPTS_KEPT_MS = 7 * 24 * 3_600_000;
const VACUUM_PAGES = 512;
/** 32 MB: room for what comes next, without moving pages to and fro. */
const FREE_PAGES_KEPT = 4_096;

/** How often, in calls, the rejections are added up while other parts have work. */
const EXCESS_CHECK_CALLS = 64;

/** Kept in memory: a new process begins again, a piece at a time. */
interface Progress {
  calls: number;
  /** The part that is next. */
  turn: number;
  /** Below this record there are no notes that are too old. */
  notesFrom: number;
  /** The call that added up the rejections last, and whether it found too many. */
  excessCheckedAt: number;
  hasExcess: boolean;
}

const NO_PROGRESS: Progress = { calls: 0, turn: 0, notesFrom: 0, excessCheckedAt: 0, hasExcess: false };
const progressOf = new WeakMap<DatabaseSync, Progress>();

interface Sweep {
  readonly store: StoreConnection;
  readonly firstUses: FirstUses;
  readonly retention: Retention;
  readonly now: number;
  readonly progress: Progress;
}

/** Each removes a bounded piece; true when there may be more. */
const PARTS: readonly ((sweep: Sweep) => boolean)[] = [
  sweepFirstUses,
  sweepReceipts,
  sweepNotes,
  sweepEvents,
  sweepRejections,
  (sweep) => isExcessDue(sweep.progress) && sweepExcessRejections(sweep),
  vacuum,
];

/** True when there is more to remove. */
export function sweep(database: DatabaseSync, firstUses: FirstUses, retention: Retention, now: number): boolean {
  const progress = { ...(progressOf.get(database) ?? NO_PROGRESS) };
  progress.calls += 1;
  const hasMore = transaction(database, () =>
    sweepPiece({ store: new StoreConnection(database), firstUses, retention, now, progress }),
  );
  // Only now: what was rolled back is still there.
  progressOf.set(database, progress);
  return hasMore;
}

function sweepPiece(sweep: Sweep): boolean {
  const { progress } = sweep;
  for (const _ of PARTS) {
    const part = PARTS[progress.turn];
    progress.turn = (progress.turn + 1) % PARTS.length;
    if (part?.(sweep)) return true;
  }
  return progress.excessCheckedAt < progress.calls && sweepExcessRejections(sweep);
}

function sweepFirstUses({ firstUses, now }: Sweep): boolean {
  return firstUses.sweep(now);
}

/** By tenant, since the minutes of each are in order and those of all are not. */
function sweepReceipts({ store, now }: Sweep): boolean {
  const removed = store.run(
    `DELETE FROM receipts WHERE (tenant, minute) IN
       (SELECT old.tenant, old.minute FROM tenants CROSS JOIN receipts AS old
        WHERE old.tenant = tenants.no AND old.minute < ? LIMIT ?)`,
    now - RECEIPTS_KEPT_MS,
    ROWS_PER_SWEEP,
  );
  return removed > 0;
}

function sweepRejections({ store, retention, now }: Sweep): boolean {
  const removed = store.run(
    `DELETE FROM rejections WHERE received_at < ? AND no IN (SELECT no FROM rejections ORDER BY no LIMIT ?)`,
    now - retention.rejectionsMs,
    ROWS_PER_SWEEP,
  );
  return removed > 0;
}

function isExcessDue({ calls, excessCheckedAt, hasExcess }: Progress): boolean {
  return hasExcess || calls - excessCheckedAt >= EXCESS_CHECK_CALLS;
}

/** Adds up the sizes of all of them, so it is done now and then, and when there is nothing else to do. */
function sweepExcessRejections({ store, retention, progress }: Sweep): boolean {
  progress.excessCheckedAt = progress.calls;
  const kept = store.get<{ bytes: number | null }>('SELECT sum(octet_length(payload)) AS bytes FROM rejections');
  let excess = (kept?.bytes ?? 0) - retention.rejectionBytesMax;
  progress.hasExcess = excess > 0;
  if (!progress.hasExcess) return false;
  const oldest = store.all<{ no: number; bytes: number }>(
    'SELECT no, octet_length(payload) AS bytes FROM rejections ORDER BY no LIMIT ?',
    ROWS_PER_SWEEP,
  );
  for (const { no, bytes } of oldest) {
    if (excess <= 0) break;
    store.run('DELETE FROM rejections WHERE no = ?', no);
    excess -= bytes;
  }
  return true;
}

interface RecordAge {
  readonly no: number;
  readonly received_at: number;
  readonly first_event: number;
  readonly events: number;
}

function oldestRecords(store: StoreConnection, { no }: EventTable, from: number): RecordAge[] {
  return store.all(
    `SELECT no, received_at, first_event, events FROM records_${no} WHERE no >= ? ORDER BY no LIMIT ?`,
    from,
    ROWS_PER_SWEEP,
  );
}

function sweepNotes({ store, retention, now, progress }: Sweep): boolean {
  const cutoff = now - retention.tracesMs;
  const from = progress.notesFrom;
  for (const table of store.tables()) {
    const records = oldestRecords(store, table, from);
    const last = records.at(-1);
    if (last === undefined) continue;
    const young = records.find(({ received_at }) => received_at >= cutoff);
    const cleared = store.run(
      `UPDATE records_${table.no} SET notes = NULL
       WHERE no >= ? AND no <= ? AND received_at < ? AND notes IS NOT NULL`,
      from,
      last.no,
      cutoff,
    );
    progress.notesFrom = young?.no ?? last.no + 1;
    return young === undefined || cleared > 0;
  }
  return false;
}

function sweepEvents({ store, retention, now }: Sweep): boolean {
  const cutoff = now - retention.eventsMs;
  const tables = store.tables();
  for (const table of tables) {
    const records = oldestRecords(store, table, 0);
    if (records.length === 0 && table !== tables.at(-1)) {
      if (!dropEntries(store.database, table.no, INDEX_BLOCKS_PER_SWEEP)) dropTable(store, table);
      return true;
    }
    if (
      expire(
        store,
        table,
        records.filter(({ received_at }) => received_at < cutoff),
      ) > 0
    )
      return true;
  }
  return false;
}

function dropTable(store: StoreConnection, { no }: EventTable): void {
  store.database.exec(`DROP TABLE events_${no}; DROP TABLE records_${no}`);
  store.run('DELETE FROM event_tables WHERE no = ?', no);
}

/** How many records went. */
function expire(store: StoreConnection, table: EventTable, records: readonly RecordAge[]): number {
  const events: RemovableEvent[] = [];
  let removed = 0;
  for (const { first_event, events: count, received_at } of records) {
    for (const event of eventsBetween(store, table.no, first_event, first_event + count)) {
      events.push(removable(event, received_at));
    }
    removed += 1;
    if (events.length >= EVENTS_PER_SWEEP) break;
  }
  removeEvents(store, table, events, 'expired');
  // In order, so the last one of a tenant stays.
  for (const [tenant, no] of new Map(events.map((event) => [event.tenant, event.no]))) {
    store.run(
      'INSERT INTO expired_arrivals VALUES (?, ?) ON CONFLICT DO UPDATE SET event = max(event, excluded.event)',
      tenant,
      no,
    );
  }
  for (const { no } of records.slice(0, removed)) store.run(`DELETE FROM records_${table.no} WHERE no = ?`, no);
  store.run(
    `UPDATE event_tables SET first_kept =
       coalesce((SELECT first_event FROM records_${table.no} ORDER BY no LIMIT 1), first_kept) WHERE no = ?`,
    table.no,
  );
  return removed;
}

function vacuum({ store }: Sweep): boolean {
  if (freePages(store) <= FREE_PAGES_KEPT) return false;
  store.database.exec(`PRAGMA incremental_vacuum(${VACUUM_PAGES})`);
  return freePages(store) > FREE_PAGES_KEPT;
}
