/**
 * Retention on SQLite: the tables of this engine. A sweep runs on the connection of the writer, between two of its
 * transactions. The rest is in `backends/sql/retention.ts`.
 *
 * Events are removed record by record, oldest first, with the record itself, and a table of events is dropped once it
 * is empty; the newest table stays, because it is being written. Traces outlive their notes: a record stays as long as
 * its events. Records are scanned in the order of the log; one with a time of receipt in the future (from a wrong
 * clock) delays a few thousand after it at most.
 */

import type { Retention } from '../../../store-writer.ts';
import { NO_PROGRESS, reportOverLimit, ROWS_PER_SWEEP, sweepPiece, type SweepProgress } from '../../sql/retention.ts';
import { transaction } from '../database.ts';
import { freePages, VACUUM_PAGES } from './profile-changes.ts';
import { dropEntries, eventsBetween, removable, type RemovableEvent, removeEvents } from './stored-events.ts';
import type { EventTable, StoreConnection } from './connection.ts';
import type { FirstUses } from './first-uses.ts';
import { subtractEvents } from './profile-runs.ts';

const EVENTS_PER_SWEEP = 5_000;
const INDEX_BLOCKS_PER_SWEEP = 1_000;
/** 32 MB: room for new data, without releasing and allocating pages again and again. */
const FREE_PAGES_KEPT = 4_096;

interface Progress extends SweepProgress {
  /** Below this record no notes are too old. */
  notesFrom: number;
}

const progressOf = new WeakMap<StoreConnection, Progress>();

interface Sweep {
  readonly store: StoreConnection;
  readonly retention: Retention;
  readonly now: number;
  readonly progress: Progress;
}

/** True when there is more to remove. */
export function sweep(store: StoreConnection, firstUses: FirstUses, retention: Retention, now: number): boolean {
  const progress = { ...(progressOf.get(store) ?? { ...NO_PROGRESS, notesFrom: 0 }) };
  const own = { store, retention, now, progress };
  const engineParts = [() => firstUses.sweep(now), () => sweepNotes(own), () => sweepEvents(own), () => vacuum(store)];
  const hasMore = transaction(store.database, () =>
    store.steps((tables) => sweepPiece({ tables, retention, now, progress, engineParts })),
  );
  // Only now: a rolled-back transaction removed nothing.
  progressOf.set(store, progress);
  reportOverLimit(progress, retention);
  return hasMore;
}

interface RecordAge {
  readonly no: number;
  readonly tenant: number;
  readonly received_at: number;
  readonly first_event: number;
  readonly events: number;
}

function oldestRecords(store: StoreConnection, { no }: EventTable, from: number): RecordAge[] {
  return store.all(
    `SELECT no, tenant, received_at, first_event, events FROM records_${no} WHERE no >= ? ORDER BY no LIMIT ?`,
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
  /** Tenants of older records that are kept. */
  const kept = new Set<number>();
  for (const table of tables) {
    const records = oldestRecords(store, table, 0);
    if (records.length === 0 && table !== tables.at(-1)) {
      if (!dropEntries(store.database, table.no, INDEX_BLOCKS_PER_SWEEP)) dropTable(store, table);
      return true;
    }
    const expired: ExpiredRecord[] = [];
    for (const record of records) {
      if (record.received_at >= cutoff) kept.add(record.tenant);
      else expired.push({ ...record, isInOrder: !kept.has(record.tenant) });
    }
    if (expire(store, table, expired) > 0) return true;
  }
  return false;
}

interface ExpiredRecord extends RecordAge {
  /**
   * Whether its tenant keeps no older record. A resubmitted user and a retried dead letter keep their time of receipt, so
   * they expire before what arrived earlier; cursors before that stay valid.
   */
  readonly isInOrder: boolean;
}

function dropTable(store: StoreConnection, { no }: EventTable): void {
  store.database.exec(`DROP TABLE events_${no}; DROP TABLE records_${no}`);
  store.run('DELETE FROM event_tables WHERE no = ?', no);
}

/** How many records were removed. */
function expire(store: StoreConnection, table: EventTable, records: readonly ExpiredRecord[]): number {
  const events: RemovableEvent[] = [];
  /** By tenant: the last one in order. */
  const lastInOrder = new Map<number, number>();
  let removed = 0;
  for (const { first_event, events: count, received_at, isInOrder } of records) {
    for (const event of eventsBetween(store, table.no, first_event, first_event + count)) {
      events.push(removable(event, received_at));
      if (isInOrder) lastInOrder.set(event.tenant, event.no);
    }
    removed += 1;
    if (events.length >= EVENTS_PER_SWEEP) break;
  }
  removeEvents(store, table, events, 'expired');
  subtractEvents(store, events);
  for (const [tenant, no] of lastInOrder) {
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

function vacuum(store: StoreConnection): boolean {
  if (freePages(store) <= FREE_PAGES_KEPT) return false;
  store.database.exec(`PRAGMA incremental_vacuum(${VACUUM_PAGES})`);
  return freePages(store) > FREE_PAGES_KEPT;
}
