/**
 * What is counted, as it is read: profiles, and events by minute, hour and day of their own timestamps, with their revenue
 * by currency. Revenues are added up here and not by the database: PostgreSQL fails where absurd amounts come to more
 * than a double.
 */

import { sql } from 'kysely';
import type { CountBucket, CountQuery } from '../../store.ts';
import { countBuckets, countRange, type CountRow, sumsOfRows } from '../../views/counts.ts';
import { NO_REVENUE } from '../../views/currency.ts';
import type { StoreQueries } from './store-tables.ts';

/** Buckets without events are left out. */
export async function listCounts({ tables }: StoreQueries, tenant: number, query: CountQuery): Promise<CountBucket[]> {
  const { width, from, to } = countRange(query);
  const within = tables
    .selectFrom('counts')
    .where('tenant', '=', tenant)
    .where('width', '=', width)
    .where('start', '>=', from)
    .where('start', '<', to);
  const withoutRevenue = within
    .where('currency', '=', NO_REVENUE)
    .select(['start', 'currency'])
    .select((row) => [
      sql<string>`${query.byEventName ? sql.ref('event_name') : sql.lit('')}`.as('eventName'),
      row.fn.sum<number>('events').as('events'),
      sql<number>`0`.as('revenue'),
      sql<number>`0`.as('shard'),
    ])
    .groupBy(query.byEventName ? ['start', 'currency', 'event_name'] : ['start', 'currency']);
  const withRevenue = within
    .where('currency', '<>', NO_REVENUE)
    .select(['start', 'currency', 'event_name as eventName', 'events', 'revenue', 'shard']);
  const rows: CountRow[] = await withoutRevenue
    .unionAll(withRevenue)
    .orderBy('start')
    .orderBy('eventName')
    .orderBy('shard')
    .execute();
  return countBuckets(query, sumsOfRows(rows, query.byEventName));
}

export async function countProfiles({ tables }: StoreQueries, tenant: number): Promise<number> {
  const row = await tables
    .selectFrom('profile_counts')
    .select((counts) => counts.fn.sum<number | null>('profiles').as('profiles'))
    .where('tenant', '=', tenant)
    .executeTakeFirst();
  return row?.profiles ?? 0;
}
