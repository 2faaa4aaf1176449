/**
 * The partitions of events and records: one of each per UTC day of receipt. A writer creates those of its batch before it
 * writes to them, on a connection of its own, so that nothing waits for its transaction; the sweep (store-sweep.ts)
 * detaches and drops them. Both require PARTITION_LOCK. A detached table was about to be dropped: if its day is needed
 * again it is attached again, with its rows.
 *
 * Queries go by event time; `event_days` maps its days to days of receipt. Planning a statement over all of a thousand
 * partitions takes a tenth of a second and needs more locks than PostgreSQL allows by default. So a query reads time in
 * windows of a few partitions each, newest first, each window larger than the last (`eventWindows`).
 */

import { DAY_MS } from '../../model.ts';
import { ADVISORY_LOCKS, PARTITION_LOCK } from './make-tables.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';

const PARENTS = ['events', 'records'] as const;
type DayParent = (typeof PARENTS)[number];

export function dayOf(time: number): number {
  return Math.floor(time / DAY_MS);
}

/** A pair of day of receipt and day of timestamp (table event_days), as a text. */
export function pairOf(receivedAt: number, timestamp: number): string {
  return `${dayOf(receivedAt)} ${dayOf(timestamp)}`;
}

/** `events_2026_11_15`. */
export function dayTable(parent: DayParent, day: number): string {
  return `${parent}_${new Date(day * DAY_MS).toISOString().slice(0, 10).replaceAll('-', '_')}`;
}

export interface DayTable {
  readonly parent: DayParent;
  readonly day: number;
  readonly name: string;
  /** 'detaching': a detach was started and not finished. */
  readonly state: 'attached' | 'detaching' | 'detached';
}

/** All of them, oldest first. */
export async function dayTables(client: Pick<PostgresClient, 'query'>): Promise<DayTable[]> {
  const { rows } = await client.query<{ name: string; attached: boolean | null; pending: boolean | null }>({
    name: 'store_day_tables',
    text: `
      SELECT c.relname AS name, i.inhrelid IS NOT NULL AS attached, i.inhdetachpending AS pending
      FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
      WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
        AND c.relname ~ '^(events|records)_[0-9]{4}_[0-9]{2}_[0-9]{2}$'
      ORDER BY right(c.relname, 10), c.relname`,
  });
  return rows.map(({ name, attached, pending }) => {
    const at = name.indexOf('_');
    const time = Date.parse(`${name.slice(at + 1).replaceAll('_', '-')}T00:00:00Z`);
    const state = attached !== true ? 'detached' : pending === true ? 'detaching' : 'attached';
    return { parent: name.slice(0, at) as DayParent, day: dayOf(time), name, state };
  });
}

/** Whether both tables of a day exist and can be written to. */
export function isWhole(tables: readonly DayTable[], day: number): boolean {
  return tables.filter((table) => table.day === day && table.state === 'attached').length === PARENTS.length;
}

const NO_PAIRS: ReadonlySet<string> = new Set();
/** There are a few per day, unless clients invent times. */
const SEEN_PAIRS_MAX = 100_000;

/** The days that this process has seen; another may have dropped one since (`forget`). */
export class StoreDays {
  readonly #pool: PostgresPool;
  readonly #seen = new Set<number>();
  readonly #seenPairs = new Set<string>();

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  /** `pairs` (`pairOf`) of the events about to be written; they stay even if these are not written. */
  async ensure(days: Iterable<number>, pairs: ReadonlySet<string> = NO_PAIRS): Promise<void> {
    const unseen = [...new Set(days)].filter((day) => !this.#seen.has(day)).sort((a, b) => a - b);
    if (unseen.length > 0) {
      // Usually another process has created them: then no call waits for the lock, which a sweep may hold for long.
      const tables = await dayTables(this.#pool);
      const missing = unseen.filter((day) => !isWhole(tables, day));
      if (missing.length > 0) await withPartitionLock(this.#pool, (client) => makeDays(client, missing));
      for (const day of unseen) this.#seen.add(day);
    }
    await this.#ensurePairs([...pairs].filter((pair) => !this.#seenPairs.has(pair)));
  }

  async #ensurePairs(pairs: readonly string[]): Promise<void> {
    if (pairs.length === 0) return;
    const numbers = pairs
      .map((pair) => pair.split(' ').map(Number))
      .sort(([a = 0, b = 0], [c = 0, d = 0]) => a - c || b - d);
    await this.#pool.query(
      `INSERT INTO event_days (day, timestamp_day) SELECT * FROM unnest($1::integer[], $2::integer[])
       ON CONFLICT DO NOTHING`,
      [numbers.map(([day]) => day), numbers.map(([, timestampDay]) => timestampDay)],
    );
    if (this.#seenPairs.size > SEEN_PAIRS_MAX) this.#seenPairs.clear();
    for (const pair of pairs) this.#seenPairs.add(pair);
  }

  forget(): void {
    this.#seen.clear();
    this.#seenPairs.clear();
  }
}

/** A session lock, because detaching cannot run within a transaction. */
export async function withPartitionLock<T>(
  pool: PostgresPool,
  work: (client: PostgresClient) => Promise<T>,
): Promise<T> {
  return pool.withClient(async (client) => {
    await client.query('SELECT pg_advisory_lock($1, $2)', [ADVISORY_LOCKS, PARTITION_LOCK]);
    try {
      return await work(client);
    } finally {
      // A broken connection has lost the lock already.
      if (client.isUsable) await client.query('SELECT pg_advisory_unlock($1, $2)', [ADVISORY_LOCKS, PARTITION_LOCK]);
    }
  });
}

export async function makeDays(client: PostgresClient, days: readonly number[]): Promise<void> {
  const tables = new Map((await dayTables(client)).map((table) => [table.name, table]));
  for (const day of days) {
    for (const parent of PARENTS) {
      const name = dayTable(parent, day);
      const state = tables.get(name)?.state;
      if (state === 'detaching') await client.query(`ALTER TABLE ${parent} DETACH PARTITION ${name} FINALIZE`);
      if (state !== 'attached') await attachDay(client, parent, day, state === undefined);
    }
  }
}

/** Not CREATE … PARTITION OF, which would block reading and writing of all days meanwhile. */
async function attachDay(client: PostgresClient, parent: DayParent, day: number, isNew: boolean): Promise<void> {
  const name = dayTable(parent, day);
  const create = isNew
    ? `CREATE TABLE ${name} (LIKE ${parent} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES);`
    : '';
  try {
    await client.query(`
      BEGIN; ${create}
      ALTER TABLE ${parent} ATTACH PARTITION ${name} FOR VALUES FROM (${day * DAY_MS}) TO (${(day + 1) * DAY_MS});
      COMMIT`);
  } catch (error) {
    // The connection is reused after a conflict, and nothing works in a failed transaction.
    if (client.isUsable) await client.query('ROLLBACK');
    throw error;
  }
}

const PARTITIONS_FIRST = 8;
const PARTITIONS_MAX = 128;
const GROWTH = 4;
const PAIRS_PER_READ = 5_000;

interface EventTimes {
  /** Timestamps, both inclusive. */
  readonly from: number;
  readonly to: number;
  /** Days of receipt, both inclusive; null for any. */
  readonly days: { readonly first: number; readonly last: number } | null;
}

interface EventWindow {
  /** The oldest timestamp, inclusive. */
  readonly from: number;
  /** The newest timestamp, exclusive. */
  readonly to: number;
  /**
   * A condition on `received_at` that prunes all but a few partitions. Contains only numbers, so it is safe to inline.
   */
  readonly received: string;
}

interface Pair {
  readonly timestampDay: number;
  readonly day: number;
}

/** Newest first, without gaps that contain events. Nothing for a time range without events. */
export async function* eventWindows(db: Queryable, { from, to, days }: EventTimes): AsyncGenerator<EventWindow> {
  let partitions = PARTITIONS_FIRST;
  for (let newest = boundedDay(to); ; ) {
    const pairs = await readPairs(db, boundedDay(from), newest, days);
    const byTimestamp = [...Map.groupBy(pairs, ({ timestampDay }) => timestampDay)];
    // The last timestamp day may be incomplete, unless it is the only one.
    if (pairs.length === PAIRS_PER_READ && byTimestamp.length > 1) byTimestamp.pop();
    const received = new Set<number>();
    let oldest: number | undefined;
    for (const [timestampDay, some] of byTimestamp) {
      const more = some.filter(({ day }) => !received.has(day)).length;
      if (oldest !== undefined && received.size + more > partitions) break;
      for (const { day } of some) received.add(day);
      oldest = timestampDay;
    }
    if (oldest === undefined) return;
    yield { from: oldest * DAY_MS, to: (newest + 1) * DAY_MS, received: receivedOn(received) };
    newest = oldest - 1;
    partitions = Math.min(partitions * GROWTH, PARTITIONS_MAX);
  }
}

async function readPairs(db: Queryable, oldest: number, newest: number, days: EventTimes['days']): Promise<Pair[]> {
  const { rows } = await db.query<Pair>(
    `SELECT timestamp_day AS "timestampDay", day FROM event_days
     WHERE timestamp_day >= $1 AND timestamp_day <= $2 AND ($3::integer IS NULL OR day BETWEEN $3 AND $4)
     ORDER BY timestamp_day DESC, day DESC LIMIT ${PAIRS_PER_READ}`,
    [oldest, newest, days?.first ?? null, days?.last ?? null],
  );
  return rows;
}

/** Consecutive days become one range. */
function receivedOn(days: Iterable<number>): string {
  const ranges: { first: number; last: number }[] = [];
  for (const day of [...days].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last !== undefined && last.last === day - 1) last.last = day;
    else ranges.push({ first: day, last: day });
  }
  if (ranges.length === 0) return '(false)';
  const conditions = ranges.map(
    ({ first, last }) => `received_at >= ${first * DAY_MS} AND received_at < ${(last + 1) * DAY_MS}`,
  );
  return `(${conditions.join(' OR ')})`;
}

/** No events exist beyond the server's integer range. */
function boundedDay(time: number): number {
  const INTEGER_MAX = 2 ** 31 - 2;
  return Math.max(-INTEGER_MAX, Math.min(INTEGER_MAX, dayOf(time)));
}
