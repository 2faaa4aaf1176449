/**
 * What is counted, as it is read: profiles, and events by minute, hour and day of their own timestamps, with their revenue
 * by currency. Revenues are added up here and not by the database: SQLite has no exact decimal numbers.
 */

import { sql } from 'kysely';
import type { CountBucket, CountQuery } from '../../store.ts';
import { countBuckets, countRange, type CountRow } from '../../views/event-counts.ts';
import { NO_REVENUE } from '../../views/currency.ts';
import type { StoreQueries } from './store-tables.ts';
import { decimalText } from './tables.ts';

/** Buckets without events are left out. */
export async function listCounts({ tables }: StoreQueries, tenant: number, query: CountQuery): Promise<CountBucket[]> {
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
  const rows: CountRow[] = await withoutRevenue.unionAll(withRevenue).orderBy('start').orderBy('eventName').execute();
  return countBuckets(query, rows);
}

export async function countProfiles({ tables }: StoreQueries, tenant: number): Promise<number> {
  const row = await tables
    .selectFrom('profile_counts')
    .select((counts) => counts.fn.sum<number | null>('profiles').as('profiles'))
    .where('tenant', '=', tenant)
    .executeTakeFirst();
  return row?.profiles ?? 0;
}
