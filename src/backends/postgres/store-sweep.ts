/**
 * Retention on PostgreSQL: the tables of this engine, and the lock that lets one node sweep at a time. The rest is in
 * `backends/sql/retention.ts`. Events are removed by whole days of receipt, so they are kept up to a day longer than
 * configured: record by record, a bounded number at a time, with every sum updated, until the tables of the day are
 * dropped, which frees the space. Traces outlive their notes: a record stays as long as its events. Locks are taken in
 * the usual order: nodes by number first, sums last. A day is detached without blocking readers or writers; rows added
 * until then cause it to be attached again, so nothing is dropped that was not counted.
 */

import { DAY_MS, EVENT_ID_WINDOW_MS, IDEMPOTENCY_WINDOW_MS } from '../../model.ts';
import { type Retention, StoreConflictError } from '../../store-writer.ts';
import { NO_PROGRESS, reportOverLimit, ROWS_PER_SWEEP, sweepPiece, type SweepProgress } from '../sql/retention.ts';
import { takeFromSums } from '../sql/sums.ts';
import { ADVISORY_LOCKS, SWEEP_LOCK } from './make-tables.ts';
import type { PostgresClient, PostgresPool, Queryable, Statement } from './pool.ts';
import { REMOVED_COLUMNS, type RemovedEvent, takeFromNodes } from './profile-changes.ts';
import { runSteps } from './sql-database.ts';
import {
  dayOf,
  dayTable,
  type DayTable,
  dayTables,
  isWhole,
  makeDays,
  type StoreDays,
  withPartitionLock,
} from './store-days.ts';

/**
 * First uses are kept this much longer than they are valid. A sweep knows how late its own node is, but not what waits
 * in other partitions and logs, whose late records must still find their first uses. This costs only space.
 */
const LATENESS_MAX_MS = 7 * DAY_MS;
/** In milliseconds since 1970, by the clock that all nodes share. */
const SERVER_NOW = 'floor(extract(epoch FROM clock_timestamp()) * 1000)::int8';

interface Progress extends SweepProgress {
  readonly expiry: ExpiryProgress;
}

interface Sweep {
  readonly client: PostgresClient;
  readonly retention: Retention;
  readonly now: number;
  readonly progress: Progress;
  /** Days to be dropped after the transaction. */
  readonly emptyDays: Set<number>;
}

export class StoreSweep {
  readonly #pool: PostgresPool;
  readonly #days: StoreDays;
  #progress: Progress = { ...NO_PROGRESS, expiry: new Map() };

  constructor(pool: PostgresPool, days: StoreDays) {
    this.#pool = pool;
    this.#days = days;
  }

  /** True when there is more to remove. */
  async sweep(retention: Retention, now: number): Promise<boolean> {
    const progress = { ...this.#progress, expiry: new Map(this.#progress.expiry) };
    const emptyDays = new Set<number>();
    try {
      const hasMore = await this.#pool.inTransaction(async (client) => {
        const serverNow = await takeLock(client);
        if (serverNow === undefined) return false;
        // A node whose clock is ahead must not sweep early for all.
        return sweepOnce({ client, retention, now: Math.min(now, serverNow), progress, emptyDays });
      });
      // Only now: a rolled-back transaction removed nothing.
      this.#progress = progress;
      reportOverLimit(progress, retention);
      if (emptyDays.size === 0) return hasMore;
      // If anything is left of them, it is searched for from the beginning.
      for (const day of emptyDays) progress.expiry.delete(day);
      const isDone = await this.#drop(emptyDays);
      return hasMore || isDone;
    } catch (error) {
      // The conflicting transaction is done by the next call.
      if (error instanceof StoreConflictError) return true;
      throw error;
    }
  }

  /** False while a transaction still reads one of them: that may take hours, so it is not retried at once. */
  async #drop(days: ReadonlySet<number>): Promise<boolean> {
    try {
      await dropDays(this.#pool, days);
      return true;
    } catch (error) {
      if (error instanceof StoreConflictError) return false;
      throw error;
    } finally {
      this.#days.forget();
    }
  }
}

/** The time by the server's clock; undefined while another node sweeps. */
async function takeLock(client: Queryable): Promise<number | undefined> {
  // As in store-writer.ts: the server's statistics may be old.
  const settings = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), pg_try_advisory_xact_lock($1, $2) AS taken, ${SERVER_NOW} AS now`;
  const { rows } = await client.query<{ taken: boolean; now: number }>(settings, [ADVISORY_LOCKS, SWEEP_LOCK]);
  return rows[0]?.taken === true ? rows[0].now : undefined;
}

function sweepOnce(sweep: Sweep): Promise<boolean> {
  const { client, retention, now, progress } = sweep;
  const engineParts = [() => sweepFirstUses(sweep), () => sweepNotes(sweep), () => sweepEvents(sweep)];
  return runSteps(client, (tables) => sweepPiece({ tables, retention, now, progress, engineParts }));
}

/** Rows that another transaction has locked are left to the next call. */
async function removeSome(
  client: Queryable,
  table: string,
  oldest: string,
  values: readonly unknown[],
): Promise<number> {
  const sql = `DELETE FROM ${table} WHERE ctid = ANY (ARRAY (${oldest} LIMIT ${ROWS_PER_SWEEP} FOR UPDATE SKIP LOCKED))`;
  return (await client.query(sql, values)).rowCount;
}

async function sweepFirstUses({ client, now }: Sweep): Promise<boolean> {
  const oldest = (table: string): string => `SELECT ctid FROM ${table} WHERE received_at < $1 ORDER BY received_at`;
  const late = now - LATENESS_MAX_MS;
  const ids = await removeSome(client, 'event_ids', oldest('event_ids'), [late - EVENT_ID_WINDOW_MS]);
  const keys = await removeSome(client, 'idempotency_keys', oldest('idempotency_keys'), [late - IDEMPOTENCY_WINDOW_MS]);
  return ids + keys > 0;
}

async function sweepNotes({ client, retention, now }: Sweep): Promise<boolean> {
  const { rowCount } = await client.query(
    `UPDATE records SET notes = NULL WHERE notes IS NOT NULL AND received_at < $1 AND no = ANY (ARRAY (
       SELECT no FROM records WHERE notes IS NOT NULL AND received_at < $1 LIMIT ${ROWS_PER_SWEEP}))`,
    [Math.trunc(now - retention.tracesMs)],
  );
  return rowCount > 0;
}

/**
 * Arrivals of a day are removed before its events, so that no reader finds a range whose events may be gone without
 * noticing.
 */
async function sweepEvents({ client, retention, now, progress, emptyDays }: Sweep): Promise<boolean> {
  if (await expireArrivals(client, now - retention.eventsMs)) return true;
  const { expired, empty } = await expireEvents(client, now - retention.eventsMs, progress.expiry);
  for (const day of empty) emptyDays.add(day);
  return expired > 0;
}

/**
 * True when there may be more of them. A range stays while its tenant has one before it that is not expired: a
 * resubmitted user and a retried dead letter keep their time of receipt, so they expire before what arrived earlier, and
 * cursors before that stay valid.
 */
async function expireArrivals(client: Queryable, cutoff: number): Promise<boolean> {
  const { rows } = await client.query<{ gone: number }>(
    `WITH kept AS MATERIALIZED (
       SELECT expired.tenant, first.tx, first.first_event
       FROM (SELECT DISTINCT tenant FROM arrivals WHERE received_at_max < $1) AS expired
       LEFT JOIN LATERAL (
         SELECT tx, first_event FROM arrivals WHERE tenant = expired.tenant AND received_at_max >= $1
         ORDER BY tx, first_event LIMIT 1) AS first ON true
     ), gone AS (
       DELETE FROM arrivals WHERE ctid = ANY (ARRAY (
         SELECT arrivals.ctid FROM arrivals JOIN kept USING (tenant)
         WHERE received_at_max < $1
           AND (kept.tx IS NULL OR (arrivals.tx, arrivals.first_event) < (kept.tx, kept.first_event))
         ORDER BY received_at_max LIMIT ${ROWS_PER_SWEEP}))
       RETURNING tenant, id, tx, first_event + events - 1 AS event
     ), remembered AS (
       INSERT INTO expired_arrivals (tenant, id, tx, event)
       SELECT DISTINCT ON (tenant) tenant, id, tx, event FROM gone ORDER BY tenant, tx DESC, event DESC
       ON CONFLICT (tenant) DO UPDATE SET id = excluded.id, tx = excluded.tx, event = excluded.event
       WHERE (excluded.tx, excluded.event) > (expired_arrivals.tx, expired_arrivals.event)
     )
     SELECT count(*) AS gone FROM gone`,
    [dayOf(cutoff) * DAY_MS],
  );
  return (rows[0]?.gone ?? 0) >= ROWS_PER_SWEEP;
}

const RECORDS_PER_SWEEP = 2_000;
const EVENTS_PER_SWEEP = 5_000;
/** Includes waiting for transactions that read the day, and scanning the table, which may be large though empty. */
const DROP_TIMEOUT_MS = 600_000;
/** For each transaction that has read the day: the processor waits meanwhile. A backup may read for hours. */
const DROP_WAIT_MS = 1_000;

interface RecordRow {
  readonly no: number;
  readonly first_event: number;
  readonly events: number;
}

/**
 * By day: records up to this number are gone. Continuing from there skips rows whose removal other transactions do not
 * see yet.
 */
type ExpiryProgress = Map<number, number>;

/** How many records were removed, and the days before `cutoff` that seem to be empty. */
async function expireEvents(
  client: PostgresClient,
  cutoff: number,
  progress: ExpiryProgress,
): Promise<{ expired: number; empty: number[] }> {
  const empty: number[] = [];
  const old = (await dayTables(client)).filter(({ day }) => (day + 1) * DAY_MS <= cutoff);
  for (const [day, tables] of Map.groupBy(old, (table) => table.day)) {
    const expired = isWhole(tables, day) ? await expireSome(client, day, progress) : 0;
    if (expired > 0) return { expired, empty };
    empty.push(day);
  }
  return { expired: 0, empty };
}

/** The oldest records of a day, with their events. */
async function expireSome(client: PostgresClient, day: number, progress: ExpiryProgress): Promise<number> {
  const records = await oldestRecords(client, day, progress.get(day) ?? 0);
  const last = records.at(-1);
  if (last === undefined) return 0;
  progress.set(day, last.no);
  const ranges = [records.map((row) => row.first_event), records.map((row) => row.first_event + row.events)];
  const within = `unnest($1::int8[], $2::int8[]) AS r (first, stop) WHERE e.no >= r.first AND e.no < r.stop`;
  const events = dayTable('events', day);
  await client.query(
    `SELECT no FROM nodes WHERE no IN (SELECT e.node FROM ${events} e, ${within})
     ORDER BY no FOR NO KEY UPDATE`,
    ranges,
  );
  const { rows } = await client.query<RemovedEvent>(
    `DELETE FROM ${events} e USING ${within} RETURNING ${REMOVED_COLUMNS}`,
    ranges,
  );
  await client.query(`DELETE FROM ${dayTable('records', day)} WHERE no = ANY ($1::int8[])`, [
    records.map(({ no }) => no),
  ]);
  await takeFromNodes(client, rows);
  await runSteps(client, (tables, locks) => takeFromSums(tables, locks, rows, 'expired'));
  return records.length;
}

async function oldestRecords(client: Queryable, day: number, after: number): Promise<RecordRow[]> {
  const { rows } = await client.query<RecordRow>(
    `SELECT no, first_event, events FROM ${dayTable('records', day)} WHERE no > $1 ORDER BY no LIMIT ${RECORDS_PER_SWEEP}`,
    [after],
  );
  let events = 0;
  const enough = rows.findIndex((row) => (events += row.events) >= EVENTS_PER_SWEEP);
  return enough < 0 ? rows : rows.slice(0, enough + 1);
}

/**
 * Drops days that seemed to be empty; one that is not, stays. Records go first: a writer that finds no table for a
 * record writes nothing, while a record without its events would be left in a day that has no table for them.
 */
async function dropDays(pool: PostgresPool, days: ReadonlySet<number>): Promise<void> {
  await withPartitionLock(pool, async (client) => {
    await client.query(`SET statement_timeout = ${DROP_TIMEOUT_MS}; SET lock_timeout = ${DROP_WAIT_MS}`);
    try {
      const old = (await dayTables(client)).filter(({ day }) => days.has(day));
      for (const [day, tables] of Map.groupBy(old, (table) => table.day)) {
        let isEmpty = true;
        for (const table of tables.toReversed()) isEmpty &&= await dropDay(client, table);
        if (!isEmpty) await makeDays(client, [day]);
      }
    } finally {
      if (client.isUsable) await client.query('RESET statement_timeout; RESET lock_timeout');
    }
  });
}

/**
 * False for a day that contains rows; it stays detached. A process may die after any step: the next sweep finds the
 * table in that state and continues.
 */
async function dropDay(client: PostgresClient, { parent, name, state }: DayTable): Promise<boolean> {
  const slow = (text: string): Statement => ({ text, timeoutMs: DROP_TIMEOUT_MS });
  if (state === 'attached') await client.query(slow(`ALTER TABLE ${parent} DETACH PARTITION ${name} CONCURRENTLY`));
  if (state === 'detaching') await client.query(slow(`ALTER TABLE ${parent} DETACH PARTITION ${name} FINALIZE`));
  // From here on nothing writes to it.
  const { rows } = await client.query<{ exists: boolean }>(slow(`SELECT EXISTS (SELECT FROM ${name}) AS exists`));
  if (rows[0]?.exists !== false) return false;
  await client.query(`DROP TABLE ${name}`);
  return true;
}
