/**
 * The sums that a writer keeps: events by minute and hour with their revenue by currency, the number of profiles, the books by hour of receipt, what came in by minute of
 * receipt. Gathered in memory and written last in the transaction, so that their rows are locked for a moment only; each
 * writer has rows of its own among a few (`shard`), and readers add them up.
 *
 * A sum of revenues does not depend on where transactions end: the stored sum is fetched and locked, and each event is
 * added to it in the order of the log. Where two writers that share a shard both begin a bucket, their sums are added.
 */

import type { EventToStore, RecordHeader, RecordToStore } from '../../store-writer.ts';
import { amountToSum, type CountedCurrency } from '../../views/currency.ts';
import { LEDGER_COLUMNS, RECEIPT_COLUMNS, ReceivedSums } from '../../views/received-sums.ts';
import { finite, HOUR_MS, MINUTE_MS, startOf } from '../../views/sums.ts';
import { float8s, int4s, int8s, texts } from './binary-arrays.ts';
import type { Queryable } from './pool.ts';

const LOCK_COUNTS = {
  name: 'store_lock_counts',
  text: `
    SELECT q.place, c.revenue
    FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::text[], $5::text[]) WITH ORDINALITY
      AS q (tenant, width, start, event_name, currency, place)
    JOIN counts c ON c.tenant = q.tenant AND c.width = q.width AND c.start = q.start AND c.event_name = q.event_name
      AND c.currency = q.currency
    WHERE c.shard = $6
    ORDER BY q.place FOR NO KEY UPDATE OF c`,
};

/** Of buckets that were fetched: `revenue` is the whole sum. */
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

/** Halved, so that not even two absurd sums add up to what PostgreSQL refuses as no number. */
const INSERT_COUNTS = {
  name: 'store_insert_counts',
  text: `
    INSERT INTO counts (tenant, width, start, event_name, currency, events, revenue, shard)
    SELECT *, $8::int2
    FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::text[], $5::text[], $6::int8[], $7::float8[])
    ON CONFLICT (tenant, width, start, event_name, currency, shard) DO UPDATE SET events = counts.events + excluded.events,
      revenue = CASE WHEN abs(counts.revenue / 2 + excluded.revenue / 2) > ${LARGEST} / 2
        THEN sign(counts.revenue) * ${LARGEST} ELSE counts.revenue + excluded.revenue END`,
};

const ADD_TO_LEDGER = {
  name: 'store_add_to_ledger',
  text: `
    INSERT INTO ledger (tenant, hour, shard, ${LEDGER_COLUMNS.join(', ')}, users_expired, events_expired)
    SELECT q.tenant, q.hour, $1::int2, ${LEDGER_COLUMNS.map((name) => `q.${name}`).join(', ')}, 0, 0
    FROM unnest($2::int4[], $3::int8[], ${LEDGER_COLUMNS.map((_, index) => `$${index + 4}::int8[]`).join(', ')})
      AS q (tenant, hour, ${LEDGER_COLUMNS.join(', ')})
    ON CONFLICT (tenant, hour, shard) DO UPDATE SET
      ${LEDGER_COLUMNS.map((name) => `${name} = ledger.${name} + excluded.${name}`).join(', ')}`,
};

const ADD_TO_RECEIPTS = {
  name: 'store_add_to_receipts',
  text: `
    INSERT INTO receipts (tenant, minute, shard, users_accepted, users_rejected, events_accepted)
    SELECT q.tenant, q.minute, $1::int2, q.users_accepted, q.users_rejected, q.events_accepted
    FROM unnest($2::int4[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])
      AS q (tenant, minute, users_accepted, users_rejected, events_accepted)
    ON CONFLICT (tenant, minute, shard) DO UPDATE SET users_accepted = receipts.users_accepted + excluded.users_accepted,
      users_rejected = receipts.users_rejected + excluded.users_rejected,
      events_accepted = receipts.events_accepted + excluded.events_accepted`,
};

const ADD_TO_PROFILES = {
  name: 'store_add_to_profiles',
  text: `
    INSERT INTO profile_counts (tenant, shard, profiles)
    SELECT q.tenant, $1::int2, q.profiles FROM unnest($2::int4[], $3::int8[]) AS q (tenant, profiles)
    ON CONFLICT (tenant, shard) DO UPDATE SET profiles = profile_counts.profiles + excluded.profiles`,
};

/** More profiles by tenant, fewer where it is below 0. Locked last of all sums, and in the order of the tenants. */
export async function addProfiles(
  client: Queryable,
  shard: number,
  more: readonly (readonly [tenant: number, profiles: number])[],
): Promise<void> {
  const rows = more.filter(([, profiles]) => profiles !== 0).sort(([a], [b]) => a - b);
  if (rows.length === 0) return;
  const columns = [int4s(rows.map(([tenant]) => tenant)), int8s(rows.map(([, profiles]) => profiles))];
  await client.query(ADD_TO_PROFILES, [shard, ...columns]);
}

interface Bucket {
  readonly tenant: number;
  readonly width: number;
  readonly start: number;
  readonly eventName: string;
  readonly currency: CountedCurrency;
  events: number;
  /** Those that are not 0, in the order of the log. */
  readonly amounts: number[];
  revenue: number;
}

export class WriterBooks {
  readonly #shard: number;
  readonly #buckets = new Map<string, Bucket>();
  readonly #received = new ReceivedSums();
  readonly #profiles = new Map<number, number>();

  constructor(shard: number) {
    this.#shard = shard;
  }

  add(tenant: number, { header, users, userTally, eventTally }: RecordToStore): void {
    for (const { events } of users) {
      for (const event of events) {
        this.#count(tenant, MINUTE_MS, event);
        this.#count(tenant, HOUR_MS, event);
      }
    }
    this.#received.add(tenant, header, userTally, eventTally);
  }

  /** More profiles; fewer where it is below 0. */
  addProfiles(tenant: number, more: number): void {
    this.#profiles.set(tenant, (this.#profiles.get(tenant) ?? 0) + more);
  }

  addDeadLetter(tenant: number, header: RecordHeader): void {
    this.#received.addFailed(tenant, header);
  }

  /** The last to be called before the transaction is committed. */
  async flush(client: Queryable): Promise<void> {
    await this.#flushCounts(client);
    const { hours, minutes } = this.#received.take();
    if (hours.length > 0) await client.query(ADD_TO_LEDGER, [this.#shard, ...columnsOf(hours, LEDGER_COLUMNS)]);
    if (minutes.length > 0) await client.query(ADD_TO_RECEIPTS, [this.#shard, ...columnsOf(minutes, RECEIPT_COLUMNS)]);
    await addProfiles(client, this.#shard, [...this.#profiles]);
    this.#profiles.clear();
  }

  #count(tenant: number, width: number, { timestamp, name: eventName, revenue, currency }: EventToStore): void {
    const start = startOf(timestamp, width);
    const name = `${tenant} ${width} ${start} ${currency} ${eventName}`;
    let bucket = this.#buckets.get(name);
    if (bucket === undefined) {
      bucket = { tenant, width, start, eventName, currency, events: 0, amounts: [], revenue: 0 };
      this.#buckets.set(name, bucket);
    }
    bucket.events += 1;
    const amount = amountToSum(revenue, currency);
    if (amount !== 0) bucket.amounts.push(amount);
  }

  async #flushCounts(client: Queryable): Promise<void> {
    const buckets = [...this.#buckets.values()].sort(compareBuckets);
    this.#buckets.clear();
    const stored = new Set<Bucket>();
    if (buckets.some(({ amounts }) => amounts.length > 0)) {
      // All of them, although only some are needed: everybody locks them in one order.
      const parameters = [...placeColumns(buckets), this.#shard];
      const { rows } = await client.query<{ place: number; revenue: number }>(LOCK_COUNTS, parameters);
      for (const { place, revenue } of rows) {
        const bucket = buckets[place - 1] as Bucket;
        bucket.revenue = revenue;
        stored.add(bucket);
      }
    }
    for (const bucket of buckets) {
      for (const amount of bucket.amounts) bucket.revenue = finite(bucket.revenue + amount);
    }
    if (stored.size > 0) await client.query(UPDATE_COUNTS, [...sumColumns([...stored]), this.#shard]);
    const added = buckets.filter((bucket) => !stored.has(bucket));
    if (added.length > 0) await client.query(INSERT_COUNTS, [...sumColumns(added), this.#shard]);
  }
}

function columnsOf<Column extends string>(
  rows: readonly (Record<Column, number> & { readonly tenant: number; readonly start: number })[],
  columns: readonly Column[],
): Buffer[] {
  const starts = int8s(rows.map(({ start }) => start));
  const sums = columns.map((column) => int8s(rows.map((row) => row[column])));
  return [int4s(rows.map(({ tenant }) => tenant)), starts, ...sums];
}

/** One order for everybody, so that two writers of one shard never wait for each other. */
function compareBuckets(a: Bucket, b: Bucket): number {
  return (
    a.tenant - b.tenant ||
    a.width - b.width ||
    a.start - b.start ||
    (a.eventName < b.eventName ? -1 : +(a.eventName > b.eventName)) ||
    (a.currency < b.currency ? -1 : +(a.currency > b.currency))
  );
}

function placeColumns(buckets: readonly Bucket[]): Buffer[] {
  return [
    int4s(buckets.map(({ tenant }) => tenant)),
    int4s(buckets.map(({ width }) => width)),
    int8s(buckets.map(({ start }) => start)),
    texts(buckets.map(({ eventName }) => eventName)),
    texts(buckets.map(({ currency }) => currency)),
  ];
}

function sumColumns(buckets: readonly Bucket[]): Buffer[] {
  return [
    ...placeColumns(buckets),
    int8s(buckets.map(({ events }) => events)),
    float8s(buckets.map(({ revenue }) => revenue)),
  ];
}
