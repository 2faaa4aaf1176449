/**
 * Updates the sums when events are erased or expire: the counts by minute and hour with their revenue by currency
 * (`views/removed-counts.ts`), and the ledger, where the events move from stored to erased or expired. The last steps of
 * the caller's transaction, on a bounded number of events already removed from the tables: every transaction locks rows
 * of sums last, in one order.
 *
 * A writer of PostgreSQL may add another shard to a bucket until all of its shards are locked. So rows are locked before
 * anything else is read, and again afterwards: if no row was added meanwhile, what was read belongs to the locked rows.
 */

import { sql, type SqlBool } from 'kysely';
import { HOUR_MS, MINUTE_MS } from '../../model.ts';
import { compareBuckets } from '../../views/event-counts.ts';
import {
  type Bucket,
  type CountedRow,
  lossesOf,
  minutesToResum,
  minutesWithRevenue,
  type MinuteRevenue,
  type RemovedEventCount,
  rowsWithout,
} from '../../views/removed-counts.ts';
import type { RowLocks } from './database.ts';
import { changedBy, chunksOf, engineStep, rowsOf, type Steps, type Tables } from './steps.ts';
import { moveInLedger, type RemovedFromLedger } from './sums.ts';

const ROWS_PER_STATEMENT = 1_000;
const MINUTES_PER_HOUR = HOUR_MS / MINUTE_MS;
/** The primary key of counts, after the tenant. */
const BUCKET = ['width', 'start', 'event_name', 'currency'] as const;

export type RemovedEvent = RemovedEventCount & RemovedFromLedger;
type Revenues = Iterable<MinuteRevenue<number | string>>;

interface SumsEngine {
  readonly locks: RowLocks;
  /** Revenues of the stored events of these minutes, in the order of the log. */
  readonly revenuesIn: (tenant: number, starts: ReadonlySet<number>) => Revenues | Promise<Revenues>;
}

/** All events of a user of a request have to be removed together, or the users in the ledger are wrong. */
export function* takeFromSums(
  tables: Tables,
  engine: SumsEngine,
  events: readonly RemovedEvent[],
  becoming: 'erased' | 'expired',
): Steps<void> {
  const byTenant = [...Map.groupBy(events, ({ tenant }) => tenant)].sort(([a], [b]) => a - b);
  for (const [tenant, some] of byTenant) yield* takeFromCounts(tables, engine, tenant, some);
  yield* moveInLedger(tables, events, becoming);
}

function* takeFromCounts(
  tables: Tables,
  { locks, revenuesIn }: SumsEngine,
  tenant: number,
  events: readonly RemovedEvent[],
): Steps<void> {
  const [minutes, hours] = [lossesOf(events, MINUTE_MS), lossesOf(events, HOUR_MS)];
  const starts = minutesWithRevenue(minutes);
  const resummed = minutesToResum(starts, yield* eventsByMinute(tables, tenant, [...starts]));
  const buckets = [...minutes, ...hours].sort(compareBuckets);
  const rowsOfHours = hours.filter(({ hasRevenue }) => hasRevenue).flatMap(minutesOf);
  let rows = yield* readRows(tables, tenant, buckets, locks);
  for (;;) {
    const counted = {
      rows,
      revenues: yield* engineStep(() => revenuesIn(tenant, resummed)),
      minutes: yield* readRows(tables, tenant, rowsOfHours),
    };
    const again = yield* readRows(tables, tenant, buckets, locks);
    if (again.length === rows.length) {
      yield* writeRows(tables, tenant, rowsWithout({ minutes, hours, resummed }, counted));
      return;
    }
    rows = again;
  }
}

function minutesOf({ start, eventName, currency }: Bucket): Bucket[] {
  return Array.from({ length: MINUTES_PER_HOUR }, (_, n) => {
    return { width: MINUTE_MS, start: start + n * MINUTE_MS, eventName, currency };
  });
}

/** The number of events in these minutes, by start, whatever their names. */
function* eventsByMinute(tables: Tables, tenant: number, starts: readonly number[]): Steps<Map<number, number>> {
  const found = new Map<number, number>();
  for (const some of chunksOf(starts, ROWS_PER_STATEMENT)) {
    const rows = yield* rowsOf(
      tables
        .selectFrom('counts')
        .select((row) => ['start', row.fn.sum<number>('events').as('events')])
        .where('tenant', '=', tenant)
        .where('width', '=', MINUTE_MS)
        .where('start', 'in', some)
        .groupBy('start'),
    );
    for (const { start, events } of rows) found.set(start, events);
  }
  return found;
}

/** All shards of these buckets, locked if there are `locks`; then the buckets have to be in order. */
function* readRows(tables: Tables, tenant: number, buckets: readonly Bucket[], locks?: RowLocks): Steps<CountedRow[]> {
  const found: CountedRow[] = [];
  for (const some of chunksOf(buckets, ROWS_PER_STATEMENT)) {
    const query = tables
      .selectFrom('counts')
      .select(['width', 'start', 'event_name as eventName', 'currency', 'shard', 'events', 'revenue'])
      .where('tenant', '=', tenant)
      .where(isOneOf(BUCKET, some.map(keyOf)))
      .orderBy('width')
      .orderBy('start')
      .orderBy('event_name')
      .orderBy('currency')
      .orderBy('shard');
    found.push(...(yield* rowsOf(locks === undefined ? query : locks.lock(query))));
  }
  return found;
}

/** Those without events are removed. */
function* writeRows(tables: Tables, tenant: number, rows: readonly CountedRow[]): Steps<void> {
  const [empty, kept] = [rows.filter(({ events }) => events === 0), rows.filter(({ events }) => events !== 0)];
  for (const some of chunksOf(empty, ROWS_PER_STATEMENT)) {
    yield* changedBy(
      tables
        .deleteFrom('counts')
        .where('tenant', '=', tenant)
        .where(
          isOneOf(
            [...BUCKET, 'shard'],
            some.map((row) => keyOf(row).concat(row.shard)),
          ),
        ),
    );
  }
  for (const some of chunksOf(kept, ROWS_PER_STATEMENT)) {
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
