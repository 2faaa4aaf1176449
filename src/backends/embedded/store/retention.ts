/**
 * Retention on SQLite: the tables of this engine. A sweep runs on the connection of the writer, between two of its
 * transactions. The rest is in `backends/sql/retention.ts`.
 *
 * Events are removed record by record, oldest first, with the record itself, and a group of the index of events is dropped
 * once it has no records; the newest group stays, because it is being written. Traces outlive their notes: a record stays
 * as long as its events. Records are scanned in the order of the log, for events group by group: records with a time of
 * receipt in the future (from a wrong clock) delay the expiry of others in their group only.
 */

import type { Retention } from '../../../store-writer.ts';
import { NO_PROGRESS, reportOverLimit, ROWS_PER_SWEEP, sweepPiece, type SweepProgress } from '../../sql/retention.ts';
import { transaction } from '../database.ts';
import { freePages, VACUUM_PAGES } from './profile-changes.ts';
import { dropEntries, eventsBetween, removable, type RemovableEvent, removeEvents } from './stored-events.ts';
import type { EventGroup, StoreConnection } from './connection.ts';
import type { FirstUses } from './first-uses.ts';
import { subtractEvents } from './profile-runs.ts';

const EVENTS_PER_SWEEP = 5_000;
const INDEX_BLOCKS_PER_SWEEP = 1_000;
/** 32 MB: room for new data, without releasing and allocating pages again and again. */
const FREE_PAGES_KEPT = 4_096;
const NO_END = Number.MAX_SAFE_INTEGER;

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

/** Of those with `from` <= number < `to`. */
function oldestRecords(store: StoreConnection, from: number, to: number): RecordAge[] {
  return store.all(
    'SELECT no, tenant, received_at, first_event, events FROM records WHERE no >= ? AND no < ? ORDER BY no LIMIT ?',
    from,
    to,
    ROWS_PER_SWEEP,
  );
}

function sweepNotes({ store, retention, now, progress }: Sweep): boolean {
  const cutoff = now - retention.tracesMs;
  const from = progress.notesFrom;
  const records = oldestRecords(store, from, NO_END);
  const last = records.at(-1);
  if (last === undefined) return false;
  const young = records.find(({ received_at }) => received_at >= cutoff);
  const cleared = store.run(
    'UPDATE records SET notes = NULL WHERE no >= ? AND no <= ? AND received_at < ? AND notes IS NOT NULL',
    from,
    last.no,
    cutoff,
  );
  progress.notesFrom = young?.no ?? last.no + 1;
  return young === undefined || cleared > 0;
}

function sweepEvents({ store, retention, now }: Sweep): boolean {
  const cutoff = now - retention.eventsMs;
  const groups = store.eventGroups();
  /** Tenants of older records that are kept. */
  const kept = new Set<number>();
  for (const [index, group] of groups.entries()) {
    const next = groups[index + 1];
    const records = oldestRecords(store, group.first_record, next?.first_record ?? NO_END);
    if (records.length === 0 && next !== undefined) {
      const hasMore = dropEntries(store.database, group.no, INDEX_BLOCKS_PER_SWEEP);
      if (!hasMore) store.run('DELETE FROM event_groups WHERE no = ?', group.no);
      return true;
    }
    const expired: ExpiredRecord[] = [];
    for (const record of records) {
      if (record.received_at >= cutoff) kept.add(record.tenant);
      else expired.push({ ...record, isInOrder: !kept.has(record.tenant) });
    }
    if (expire(store, group, expired) > 0) return true;
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

/** How many records were removed. */
function expire(store: StoreConnection, group: EventGroup, records: readonly ExpiredRecord[]): number {
  const events: RemovableEvent[] = [];
  /** By tenant: the last one in order. */
  const lastInOrder = new Map<number, number>();
  let removed = 0;
  for (const { first_event, events: count, received_at, isInOrder } of records) {
    for (const event of eventsBetween(store, first_event, first_event + count)) {
      events.push(removable(event, received_at));
      if (isInOrder) lastInOrder.set(event.tenant, event.no);
    }
    removed += 1;
    if (events.length >= EVENTS_PER_SWEEP) break;
  }
  removeEvents(store, group, events, 'expired');
  subtractEvents(store, events);
  for (const [tenant, no] of lastInOrder) {
    store.run(
      'INSERT INTO expired_arrivals VALUES (?, ?) ON CONFLICT DO UPDATE SET event = max(event, excluded.event)',
      tenant,
      no,
    );
  }
  for (const { no } of records.slice(0, removed)) store.run('DELETE FROM records WHERE no = ?', no);
  return removed;
}

function vacuum(store: StoreConnection): boolean {
  if (freePages(store) <= FREE_PAGES_KEPT) return false;
  store.database.exec(`PRAGMA incremental_vacuum(${VACUUM_PAGES})`);
  return freePages(store) > FREE_PAGES_KEPT;
}
