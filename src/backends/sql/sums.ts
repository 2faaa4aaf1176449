/**
 * The sums of the store: events by minute and hour with their revenue, the ledger by hour of receipt, receipts by
 * minute, the number of profiles, and violations of tracking plans. A writer gathers them in memory and writes them once
 * per transaction; an erase and retention take out of them what they removed. Both do so in the last statements of their
 * transaction, and in one order, so that rows of sums are locked for a moment only. Counts of events, which may be
 * thousands of rows, are added by each engine. The ledger is read in `ledger.ts`.
 */

import { type Kysely, sql, type SqlBool } from 'kysely';
import { HOUR_MS } from '../../model.ts';
import type { CountBucket, CountQuery } from '../../store.ts';
import type { PlanViolation, RecordHeader, RecordToStore } from '../../store-writer.ts';
import { NO_REVENUE } from '../../views/currency.ts';
import {
  type Bucket,
  compareBuckets,
  countBuckets,
  type CountedBucket,
  type CountedEvent,
  type CountedRow,
  countRange,
  type CountRow,
  EventCounts,
  rowsWithout,
} from '../../views/event-counts.ts';
import { type LedgerSum, ReceivedSums, type ReceiptRow } from '../../views/received-sums.ts';
import { startOf } from '../../views/sums.ts';
import { plusExcluded } from './database.ts';
import { ViolationSums } from './plan-violations.ts';
import { changedBy, chunksOf, type RowLocks, rowsOf, type Steps, type Tables } from './steps.ts';
import { LOCAL_SHARD } from './store-tables.ts';
import { decimalText } from './tables.ts';

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
  *write(tables: Tables, shard = LOCAL_SHARD): Steps<void> {
    // First: it reads as well, and the rows of the others are to be locked for a moment only.
    yield* this.#violations.write(tables, shard);
    const { hours, minutes } = this.#received.take();
    const profiles = Array.from(this.#profiles, ([tenant, more]) => ({ tenant, profiles: more }));
    profiles.sort((a, b) => a.tenant - b.tenant);
    this.#profiles.clear();
    yield* addToSums(tables, 'ledger', hours, shard);
    yield* addToSums(tables, 'receipts', minutes, shard);
    yield* addToSums(tables, 'profile_counts', profiles, shard);
  }

  clear(): void {
    this.#counts.clear();
    this.#received.clear();
    this.#profiles.clear();
    this.#violations.clear();
  }
}

type LedgerRow = { readonly tenant: number; readonly hour: number } & Readonly<Partial<Record<LedgerSum, number>>>;

interface SumRows {
  readonly ledger: LedgerRow;
  readonly receipts: ReceiptRow;
  readonly profile_counts: { readonly tenant: number; readonly profiles: number };
}

/** The primary key of each, besides the shard. */
const SUM_KEYS: Readonly<Record<keyof SumRows, readonly string[]>> = {
  ledger: ['tenant', 'hour'],
  receipts: ['tenant', 'minute'],
  profile_counts: ['tenant'],
};

/** All rows have the same sums; negative ones are subtracted. */
export function* addToSums<Table extends keyof SumRows>(
  tables: Tables,
  table: Table,
  rows: readonly SumRows[Table][],
  shard = LOCAL_SHARD,
): Steps<void> {
  const key = [...SUM_KEYS[table], 'shard'];
  const sums = Object.keys(rows[0] ?? {}).filter((column) => !key.includes(column));
  // Without the types of each table, whose rows are checked above.
  const untyped = tables as unknown as Kysely<Record<string, Record<string, number>>>;
  for (const some of chunksOf(rows)) {
    yield* changedBy(
      untyped
        .insertInto<string>(table)
        .values(some.map((row) => Object.assign<Record<string, number>, object>({ shard }, row)))
        .onConflict((conflict) => conflict.columns(key).doUpdateSet(plusExcluded(table, sums))),
    );
  }
}

/** An event that was removed from the tables. */
export interface RemovedEvent extends CountedEvent {
  readonly tenant: number;
  readonly receivedAt: number;
  /** The same for all events of one user of a request. */
  readonly user: string;
}

/**
 * Takes removed events, a bounded number of them, out of the counts, and moves them in the ledger. All events of a user
 * of a request have to be removed together, or the users in the ledger are wrong.
 */
export function* takeFromSums(
  tables: Tables,
  locks: RowLocks,
  events: readonly RemovedEvent[],
  becoming: 'erased' | 'expired',
): Steps<void> {
  const counts = new EventCounts();
  for (const event of events) counts.add(event.tenant, event);
  for (const [tenant, losses] of Map.groupBy(counts.take().sort(compareBuckets), ({ tenant }) => tenant)) {
    // A shard that another writer adds meanwhile has none of these events.
    yield* writeCounts(tables, tenant, rowsWithout(losses, yield* lockCounts(tables, tenant, losses, locks)));
  }
  const byHour = Map.groupBy(events, ({ tenant, receivedAt }) => `${tenant} ${startOf(receivedAt, HOUR_MS)}`);
  const rows = [...byHour.values()].map((removed) => {
    const [{ tenant, receivedAt }] = removed as [RemovedEvent];
    const users = new Set(removed.map(({ user }) => user)).size;
    return movedInLedger({ tenant, receivedAt }, { users, events: removed.length }, 'stored', becoming);
  });
  rows.sort((a, b) => a.tenant - b.tenant || a.hour - b.hour);
  yield* addToSums(tables, 'ledger', rows);
}

/** To be added to the first shard of the ledger. */
export function movedInLedger(
  { tenant, receivedAt }: { readonly tenant: number; readonly receivedAt: number },
  { users, events }: { readonly users: number; readonly events: number },
  from: 'stored' | 'dead_letters',
  to: 'erased' | 'expired',
): LedgerRow {
  return {
    tenant,
    hour: startOf(receivedAt, HOUR_MS),
    [`users_${from}` as const]: -users,
    [`users_${to}` as const]: users,
    [`events_${from}` as const]: -events,
    [`events_${to}` as const]: events,
  };
}

/** The primary key of counts, after the tenant. */
const BUCKET = ['width', 'start', 'event_name', 'currency'] as const;

/** All shards of these buckets, which are in order. */
function* lockCounts(tables: Tables, tenant: number, buckets: readonly Bucket[], locks: RowLocks): Steps<CountedRow[]> {
  const found: CountedRow[] = [];
  for (const some of chunksOf(buckets)) {
    const query = tables
      .selectFrom('counts')
      .select(['width', 'start', 'event_name as eventName', 'currency', 'shard', 'events'])
      .select(decimalText('revenue').as('revenue'))
      .where('tenant', '=', tenant)
      .where(isOneOf(BUCKET, some.map(keyOf)))
      .orderBy('width')
      .orderBy('start')
      .orderBy('event_name')
      .orderBy('currency')
      .orderBy('shard');
    found.push(...(yield* rowsOf(locks.lock(query))));
  }
  return found;
}

/** Those without events are removed. */
function* writeCounts(tables: Tables, tenant: number, rows: readonly CountedRow[]): Steps<void> {
  const [empty, kept] = [rows.filter(({ events }) => events === 0), rows.filter(({ events }) => events !== 0)];
  for (const some of chunksOf(empty)) {
    const keys = some.map((row) => keyOf(row).concat(row.shard));
    yield* changedBy(
      tables
        .deleteFrom('counts')
        .where('tenant', '=', tenant)
        .where(isOneOf([...BUCKET, 'shard'], keys)),
    );
  }
  for (const some of chunksOf(kept)) {
    const values = some.map(({ width, start, eventName, currency, shard, events, revenue }) => {
      return { tenant, width, start, event_name: eventName, currency, shard, events, revenue };
    });
    yield* changedBy(
      tables
        .insertInto('counts')
        .values(values)
        .onConflict((conflict) =>
          conflict.columns(['tenant', ...BUCKET, 'shard']).doUpdateSet((set) => ({
            events: set.ref('excluded.events'),
            revenue: set.ref('excluded.revenue'),
          })),
        ),
    );
  }
}

function keyOf({ width, start, eventName, currency }: Bucket): (number | string)[] {
  return [width, start, eventName, currency];
}

/** The types of the first row are those of all: without them PostgreSQL takes every parameter for a text. */
function isOneOf(columns: readonly string[], [first = [], ...others]: readonly (readonly (number | string)[])[]) {
  const typed = first.map((value) => (typeof value === 'number' ? sql`CAST(${value} AS bigint)` : sql`${value}`));
  const rows = [typed, ...others].map((values) => sql`(${sql.join(values)})`);
  return sql<SqlBool>`(${sql.join(columns.map((column) => sql.ref(column)))}) IN (VALUES ${sql.join(rows)})`;
}

/**
 * Events by minute, hour and day of their own timestamps, with their revenue by currency; without buckets that have
 * none. Revenues are added up here and not by the database: SQLite has no exact decimal numbers.
 */
export function* listCounts(tables: Tables, tenant: number, query: CountQuery): Steps<CountBucket[]> {
  const { width, from, to } = countRange(query);
  const within = tables
    .selectFrom('counts')
    .where('tenant', '=', tenant)
    .where('width', '=', width)
    .where('start', '>=', from)
    .where('start', '<', to);
  const name = query.byEventName ? sql<string | null>`event_name` : sql<string | null>`NULL`;
  const withoutRevenue = within
    .where('currency', '=', NO_REVENUE)
    .select((row) => ['start', 'currency', name.as('eventName'), row.fn.sum<number>('events').as('events')])
    .select(sql<string>`'0'`.as('revenue'))
    .groupBy(query.byEventName ? ['start', 'currency', 'event_name'] : ['start', 'currency']);
  const withRevenue = within
    .where('currency', '<>', NO_REVENUE)
    .select(['start', 'currency', name.as('eventName'), 'events', decimalText('revenue').as('revenue')]);
  const both = withoutRevenue.unionAll(withRevenue).orderBy('start').orderBy('eventName');
  const rows: CountRow[] = yield* rowsOf(both);
  return countBuckets(query, rows);
}

export function* countProfiles(tables: Tables, tenant: number): Steps<number> {
  const sum = tables
    .selectFrom('profile_counts')
    .select(({ fn }) => fn.sum<number | null>('profiles').as('profiles'))
    .where('tenant', '=', tenant);
  const [row] = yield* rowsOf(sum);
  return row?.profiles ?? 0;
}
