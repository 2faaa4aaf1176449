/**
 * The sums that a writer keeps: events by minute and hour with their revenue, the ledger by hour of receipt, receipts by
 * minute, the number of profiles, and violations of tracking plans. Gathered in memory and written once per
 * transaction, as its last statements, so that their rows are locked for a moment only. Counts of events, which may be
 * thousands of rows, are written by each engine.
 */

import type { Kysely } from 'kysely';
import { HOUR_MS } from '../../model.ts';
import type { PlanViolation, RecordHeader, RecordToStore } from '../../store-writer.ts';
import { type CountedBucket, EventCounts } from '../../views/event-counts.ts';
import { type LedgerSum, RECEIPT_COLUMNS, ReceivedSums, type ReceiptRow } from '../../views/received-sums.ts';
import { startOf } from '../../views/sums.ts';
import { plusExcluded, type SqlStatement } from './database.ts';
import { ViolationSums } from './plan-violations.ts';
import { changedBy, chunksOf, type Steps, type Tables } from './steps.ts';
import { LOCAL_SHARD, type StoreTables } from './store-tables.ts';

/** Rows per statement; both engines allow twice as many parameters as these take. */
const ROWS_MAX = 1_000;

export class TransactionSums {
  readonly #counts = new EventCounts();
  readonly #received = new ReceivedSums();
  /** By tenant: how many more profiles there are. */
  readonly #profiles = new Map<number, number>();
  readonly #violations = new ViolationSums();

  add(tenant: number, { header, duplicateOf, users, userTally, eventTally }: RecordToStore): void {
    for (const { events } of users) for (const event of events) this.#counts.add(tenant, event);
    this.#received.add(tenant, header, userTally, eventTally);
    // Those of a dead letter were counted when it failed.
    if (duplicateOf === null && header.isRetried === undefined) this.#received.addDropped(tenant, header);
  }

  addDeadLetter(tenant: number, header: RecordHeader): void {
    this.#received.addFailed(tenant, header);
    this.#received.addDropped(tenant, header);
  }

  /** Negative for fewer. */
  addProfiles(tenant: number, more: number): void {
    if (more !== 0) this.#profiles.set(tenant, (this.#profiles.get(tenant) ?? 0) + more);
  }

  addViolations(tenant: number, violations: readonly PlanViolation[]): void {
    for (const violation of violations) this.#violations.add(tenant, violation);
  }

  takeCounts(): CountedBucket[] {
    return this.#counts.take();
  }

  /** Everything but the counts of events. In one order for all writers, so that none of them wait for each other. */
  *write(tables: Tables, shard: number): Steps<void> {
    // First: it reads as well, and the rows of the others are to be locked for a moment only.
    yield* this.#violations.write(tables, shard);
    const { hours, minutes } = this.#received.take();
    const profiles = [...this.#profiles].sort(([a], [b]) => a - b);
    this.#profiles.clear();
    for (const rows of chunksOf(hours, ROWS_MAX)) yield* changedBy(addToLedger(tables, shard, rows));
    for (const rows of chunksOf(minutes, ROWS_MAX)) yield* changedBy(addToReceipts(tables, shard, rows));
    for (const rows of chunksOf(profiles, ROWS_MAX)) yield* changedBy(addToProfiles(tables, shard, rows));
  }

  clear(): void {
    this.#counts.clear();
    this.#received.clear();
    this.#profiles.clear();
    this.#violations.clear();
  }
}

/** An event that is removed from the store. */
export interface RemovedFromLedger {
  readonly tenant: number;
  readonly receivedAt: number;
  /** The same for all events of one user of a request: these have to be removed together, or users are miscounted. */
  readonly user: string;
}

/** Counts stored events as erased or expired. */
export function* moveInLedger(
  tables: Tables,
  events: readonly RemovedFromLedger[],
  becoming: 'erased' | 'expired',
): Steps<void> {
  const byHour = Map.groupBy(events, ({ tenant, receivedAt }) => `${tenant} ${startOf(receivedAt, HOUR_MS)}`);
  const rows = [...byHour.values()].map((removed) => {
    const [{ tenant, receivedAt }] = removed as [RemovedFromLedger];
    const users = new Set(removed.map(({ user }) => user)).size;
    return {
      tenant,
      hour: startOf(receivedAt, HOUR_MS),
      users_stored: -users,
      [`users_${becoming}` as const]: users,
      events_stored: -removed.length,
      [`events_${becoming}` as const]: removed.length,
    };
  });
  rows.sort((a, b) => a.tenant - b.tenant || a.hour - b.hour);
  for (const some of chunksOf(rows, ROWS_MAX)) yield* changedBy(addToLedger(tables, LOCAL_SHARD, some));
}

/** All rows have the same sums; negative ones are subtracted. */
export function addToLedger(
  tables: Kysely<StoreTables>,
  shard: number,
  rows: readonly ({ readonly tenant: number; readonly hour: number } & Readonly<Partial<Record<LedgerSum, number>>>)[],
): SqlStatement {
  const { tenant: _tenant, hour: _hour, ...sums } = rows[0] ?? { tenant: 0, hour: 0 };
  return tables
    .insertInto('ledger')
    .values(rows.map((row) => ({ ...row, shard })))
    .onConflict((conflict) =>
      conflict.columns(['tenant', 'hour', 'shard']).doUpdateSet(plusExcluded('ledger', Object.keys(sums))),
    );
}

function addToReceipts(tables: Kysely<StoreTables>, shard: number, rows: readonly ReceiptRow[]): SqlStatement {
  return tables
    .insertInto('receipts')
    .values(rows.map((row) => ({ ...row, shard })))
    .onConflict((conflict) =>
      conflict.columns(['tenant', 'minute', 'shard']).doUpdateSet(plusExcluded('receipts', RECEIPT_COLUMNS)),
    );
}

export function addToProfiles(
  tables: Kysely<StoreTables>,
  shard: number,
  rows: readonly (readonly [tenant: number, more: number])[],
): SqlStatement {
  return tables
    .insertInto('profile_counts')
    .values(rows.map(([tenant, profiles]) => ({ tenant, shard, profiles })))
    .onConflict((conflict) =>
      conflict.columns(['tenant', 'shard']).doUpdateSet(plusExcluded('profile_counts', ['profiles'])),
    );
}
