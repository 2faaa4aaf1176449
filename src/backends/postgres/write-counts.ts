/**
 * Writes the events of a transaction by minute and hour, in one statement, since an import may count thousands of minutes
 * in one transaction. Each writer has rows of its own among a few (`shard`), and readers add them up.
 */

import { compareBuckets, type CountedBucket } from '../../views/event-counts.ts';
import { int4s, int8s, texts } from './binary-arrays.ts';
import type { Queryable } from './pool.ts';

const ADD_TO_COUNTS = {
  name: 'store_add_to_counts',
  text: `
    INSERT INTO counts (tenant, width, start, event_name, currency, events, revenue, shard)
    SELECT *, $8::int4
    FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::text[], $5::text[], $6::int8[], $7::numeric[])
    ON CONFLICT (tenant, width, start, event_name, currency, shard)
    DO UPDATE SET events = counts.events + excluded.events, revenue = counts.revenue + excluded.revenue`,
};

/** Call it as late as possible: its locks last until the transaction ends. */
export async function writeCounts(client: Queryable, shard: number, unsorted: readonly CountedBucket[]): Promise<void> {
  if (unsorted.length === 0) return;
  const buckets = [...unsorted].sort(compareBuckets);
  await client.query(ADD_TO_COUNTS, [
    int4s(buckets.map(({ tenant }) => tenant)),
    int4s(buckets.map(({ width }) => width)),
    int8s(buckets.map(({ start }) => start)),
    texts(buckets.map(({ eventName }) => eventName)),
    texts(buckets.map(({ currency }) => currency)),
    int8s(buckets.map(({ events }) => events)),
    buckets.map(({ revenue }) => String(revenue)),
    shard,
  ]);
}
