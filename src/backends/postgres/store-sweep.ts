/**
 * Retention on PostgreSQL: the tables of this engine, and the lock that lets one node sweep at a time; a node that does
 * not get it has nothing to do. The rest is in `backends/sql/retention.ts`.
 *
 * Events are removed by whole days of receipt (store-expiry.ts), so they are kept up to a day longer than configured.
 * Traces outlive their notes: a record stays as long as its events.
 */

import { DAY_MS, EVENT_ID_WINDOW_MS, IDEMPOTENCY_WINDOW_MS } from '../../model.ts';
import { type Retention, StoreConflictError } from '../../store-writer.ts';
import { NO_PROGRESS, ROWS_PER_SWEEP, sweepPiece, type SweepProgress } from '../sql/retention.ts';
import { ADVISORY_LOCKS, SWEEP_LOCK } from './migrations.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';
import { runSteps } from './sql-database.ts';
import { SERVER_NOW } from './store-balance.ts';
import { dayOf, type StoreDays } from './store-days.ts';
import { dropDays, expireEvents, type ExpiryProgress } from './store-expiry.ts';

/**
 * First uses are kept this much longer than they are valid. A sweep knows how late its own node is, but not what waits
 * in other partitions and logs, whose late records must still find their first uses. This costs only space.
 */
const LATENESS_MAX_MS = 7 * DAY_MS;

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

/** True when there may be more of them. */
async function expireArrivals(client: Queryable, cutoff: number): Promise<boolean> {
  const { rows } = await client.query<{ gone: number }>(
    `WITH gone AS (
       DELETE FROM arrivals WHERE ctid = ANY (ARRAY (
         SELECT ctid FROM arrivals WHERE received_at_max < $1 ORDER BY received_at_max LIMIT ${ROWS_PER_SWEEP}))
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
