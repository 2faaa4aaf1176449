/**
 * Writes the events of a transaction by minute and hour, in a fixed number of statements, since an import may count
 * thousands of minutes in one transaction. Each writer has rows of its own among a few (`shard`), and readers add them
 * up.
 *
 * A sum of revenues does not depend on where transactions end: the stored sum is read and locked, and each event is
 * added to it in the order of the log. Where two writers that share a shard both start a bucket, their sums are added.
 */

import { addAmounts, compareBuckets, type CountedBucket } from '../../views/event-counts.ts';
import { float8s, int4s, int8s, texts } from './binary-arrays.ts';
import type { Queryable } from './pool.ts';

const LOCK_COUNTS = {
  name: 'store_lock_counts',
  text: `
    SELECT q.ordinal, c.revenue
    FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::text[], $5::text[]) WITH ORDINALITY
      AS q (tenant, width, start, event_name, currency, ordinal)
    JOIN counts c ON c.tenant = q.tenant AND c.width = q.width AND c.start = q.start AND c.event_name = q.event_name
      AND c.currency = q.currency
    WHERE c.shard = $6
    ORDER BY q.ordinal FOR NO KEY UPDATE OF c`,
};

/** For buckets that were read: `revenue` is the whole sum. */
const UPDATE_COUNTS = {
  name: 'store_update_counts',
  text: `
    UPDATE counts c SET events = c.events + q.events, revenue = q.revenue
    FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::text[], $5::text[], $6::int8[], $7::float8[])
      AS q (tenant, width, start, event_name, currency, events, revenue)
    WHERE c.tenant = q.tenant AND c.width = q.width AND c.start = q.start AND c.event_name = q.event_name
      AND c.currency = q.currency AND c.shard = $8`,
};

const LARGEST = `'${Number.MAX_VALUE}'::float8`;

/** Halved, so that not even two absurd sums add up to what PostgreSQL rejects as out of range. */
const INSERT_COUNTS = {
  name: 'store_insert_counts',
  text: `
    INSERT INTO counts (tenant, width, start, event_name, currency, events, revenue, shard)
    SELECT *, $8::int4
    FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::text[], $5::text[], $6::int8[], $7::float8[])
    ON CONFLICT (tenant, width, start, event_name, currency, shard) DO UPDATE SET events = counts.events + excluded.events,
      revenue = CASE WHEN abs(counts.revenue / 2 + excluded.revenue / 2) > ${LARGEST} / 2
        THEN sign(counts.revenue) * ${LARGEST} ELSE counts.revenue + excluded.revenue END`,
};

/** Call it as late as possible: its locks last until the transaction ends. */
export async function writeCounts(client: Queryable, shard: number, unsorted: readonly CountedBucket[]): Promise<void> {
  const buckets = [...unsorted].sort(compareBuckets);
  const sums = new Map<CountedBucket, number>();
  if (buckets.some(({ amounts }) => amounts.length > 0)) {
    // All of them, although only some are needed: all writers lock them in one order.
    const parameters = [...bucketColumns(buckets), shard];
    const { rows } = await client.query<{ ordinal: number; revenue: number }>(LOCK_COUNTS, parameters);
    for (const { ordinal, revenue } of rows) sums.set(buckets[ordinal - 1] as CountedBucket, revenue);
  }
  const [stored, added] = [buckets.filter((bucket) => sums.has(bucket)), buckets.filter((bucket) => !sums.has(bucket))];
  if (stored.length > 0) await client.query(UPDATE_COUNTS, [...sumColumns(stored, sums), shard]);
  if (added.length > 0) await client.query(INSERT_COUNTS, [...sumColumns(added, sums), shard]);
}

function bucketColumns(buckets: readonly CountedBucket[]): Buffer[] {
  return [
    int4s(buckets.map(({ tenant }) => tenant)),
    int4s(buckets.map(({ width }) => width)),
    int8s(buckets.map(({ start }) => start)),
    texts(buckets.map(({ eventName }) => eventName)),
    texts(buckets.map(({ currency }) => currency)),
  ];
}

function sumColumns(buckets: readonly CountedBucket[], stored: ReadonlyMap<CountedBucket, number>): Buffer[] {
  return [
    ...bucketColumns(buckets),
    int8s(buckets.map(({ events }) => events)),
    float8s(buckets.map((bucket) => addAmounts(stored.get(bucket) ?? 0, bucket.amounts))),
  ];
}
