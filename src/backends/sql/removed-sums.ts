/**
 * Updates the sums when events are erased or expire: the counts by minute and hour with their revenue by currency
 * (`views/event-counts.ts`), and the ledger, where the events move from stored to erased or expired. The last steps of
 * the caller's transaction, on a bounded number of events already removed from the tables: every transaction locks rows
 * of sums last, in one order.
 */

import { sql, type SqlBool } from 'kysely';
import {
  type Bucket,
  compareBuckets,
  type CountedEvent,
  type CountedRow,
  EventCounts,
  rowsWithout,
} from '../../views/event-counts.ts';
import type { RowLocks } from './database.ts';
import { changedBy, chunksOf, rowsOf, type Steps, type Tables } from './steps.ts';
import { moveInLedger, type RemovedFromLedger } from './sums.ts';
import { decimalText } from './tables.ts';

const ROWS_PER_STATEMENT = 1_000;
/** The primary key of counts, after the tenant. */
const BUCKET = ['width', 'start', 'event_name', 'currency'] as const;

export type RemovedEvent = CountedEvent & RemovedFromLedger;

/** All events of a user of a request have to be removed together, or the users in the ledger are wrong. */
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
    yield* writeRows(tables, tenant, rowsWithout(losses, yield* lockRows(tables, tenant, losses, locks)));
  }
  yield* moveInLedger(tables, events, becoming);
}

/** All shards of these buckets, which are in order. */
function* lockRows(tables: Tables, tenant: number, buckets: readonly Bucket[], locks: RowLocks): Steps<CountedRow[]> {
  const found: CountedRow[] = [];
  for (const some of chunksOf(buckets, ROWS_PER_STATEMENT)) {
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
