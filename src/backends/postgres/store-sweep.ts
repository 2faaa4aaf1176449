/**
 * Retention: removes what is too old, a bounded piece at a time, each a transaction after which every sum agrees with
 * what can be read. One sweeper at a time over all nodes: who does not get the lock has nothing to do. The parts take
 * turns, so that one which always has something to remove does not keep the others waiting.
 *
 * Events go by whole days of receipt (store-expiry.ts), so they are kept up to a day longer than asked for. Traces
 * outlive their notes: a record stays as long as its events.
 */

import { EVENT_ID_WINDOW_MS, IDEMPOTENCY_WINDOW_MS } from '../../model.ts';
import { type Retention, StoreConflictError } from '../../store-writer.ts';
import { int8s } from './binary-arrays.ts';
import { ADVISORY_LOCKS, SWEEP_LOCK } from './migrations.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';
import { SERVER_NOW } from './store-balance.ts';
import { DAY_MS, dayOf, type StoreDays } from './store-days.ts';
import { dropDays, expireEvents, type ExpiryProgress } from './store-expiry.ts';

const ROWS_PER_SWEEP = 2_000;
/**
 * First uses are kept for this much longer than they count. Who sweeps knows how late it is itself, and not what waits in
 * partitions and logs of others, which must still find the first uses of what they process late. This costs only space.
 */
const LATENESS_MAX_MS = 7 * DAY_MS;
/** Counts of what came in are for looking at the last few days. */
const RECEIPTS_KEPT_MS = 7 * DAY_MS;
/** How often, in calls, the rejections are added up while other parts have work. */
const EXCESS_CHECK_CALLS = 64;

/** Kept in memory: a new process begins again. */
interface Progress {
  calls: number;
  /** The part that is next. */
  turn: number;
  /** The call that added up the rejections last, and whether it found too many. */
  excessCheckedAt: number;
  hasExcess: boolean;
  readonly expiry: ExpiryProgress;
}

interface Sweep {
  readonly client: PostgresClient;
  readonly retention: Retention;
  readonly now: number;
  readonly progress: Progress;
  /** Days of which nothing is left, to be dropped after the transaction. */
  readonly emptyDays: Set<number>;
}

/** Each removes a bounded piece; true when there may be more. */
const PARTS: readonly ((sweep: Sweep) => Promise<boolean>)[] = [
  sweepFirstUses,
  sweepReceipts,
  sweepNotes,
  sweepEvents,
  sweepRejections,
  async (sweep) => isExcessDue(sweep.progress) && sweepExcessRejections(sweep),
];

export class StoreSweep {
  readonly #pool: PostgresPool;
  readonly #days: StoreDays;
  #progress: Progress = { calls: 0, turn: 0, excessCheckedAt: 0, hasExcess: false, expiry: new Map() };

  constructor(pool: PostgresPool, days: StoreDays) {
    this.#pool = pool;
    this.#days = days;
  }

  /** True when there is more to remove. */
  async sweep(retention: Retention, now: number): Promise<boolean> {
    const { calls, expiry } = this.#progress;
    const progress = { ...this.#progress, calls: calls + 1, expiry: new Map(expiry) };
    const emptyDays = new Set<number>();
    try {
      const hasMore = await this.#pool.inTransaction(async (client) => {
        const serverNow = await takeLock(client);
        if (serverNow === undefined) return false;
        // A node whose clock is ahead does not sweep early for all.
        return sweepPiece({ client, retention, now: Math.min(now, serverNow), progress, emptyDays });
      });
      // Only now: what was rolled back is still there.
      this.#progress = progress;
      if (emptyDays.size === 0) return hasMore;
      // Should anything be left of them, it is looked for from the beginning.
      for (const day of emptyDays) progress.expiry.delete(day);
      const isDone = await this.#drop(emptyDays);
      return hasMore || isDone;
    } catch (error) {
      // Whoever was in the way is done by the next call.
      if (error instanceof StoreConflictError) return true;
      throw error;
    }
  }

  /** False when somebody still reads one of them: that may take hours, so it is not tried again at once. */
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

/** The time by the server's clock; undefined when another sweeps. */
async function takeLock(client: Queryable): Promise<number | undefined> {
  // As in store-writer.ts: what the server believes of its tables may be old.
  const settings = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), pg_try_advisory_xact_lock($1, $2) AS taken, ${SERVER_NOW} AS now`;
  const { rows } = await client.query<{ taken: boolean; now: number }>(settings, [ADVISORY_LOCKS, SWEEP_LOCK]);
  return rows[0]?.taken === true ? rows[0].now : undefined;
}

async function sweepPiece(sweep: Sweep): Promise<boolean> {
  const { progress } = sweep;
  for (const _ of PARTS) {
    const part = PARTS[progress.turn];
    progress.turn = (progress.turn + 1) % PARTS.length;
    if ((await part?.(sweep)) === true) return true;
  }
  return progress.excessCheckedAt < progress.calls && sweepExcessRejections(sweep);
}

/** Rows that somebody is writing just now are left to the next call. */
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

/** By tenant, since the minutes of each are in order and those of all are not. */
async function sweepReceipts({ client, now }: Sweep): Promise<boolean> {
  const { rowCount } = await client.query(
    `DELETE FROM receipts USING (
       SELECT old.tenant, old.minute, old.shard FROM tenants CROSS JOIN LATERAL (
         SELECT tenant, minute, shard FROM receipts WHERE tenant = tenants.no AND minute < $1 LIMIT ${ROWS_PER_SWEEP}
       ) AS old LIMIT ${ROWS_PER_SWEEP}
     ) AS old WHERE receipts.tenant = old.tenant AND receipts.minute = old.minute AND receipts.shard = old.shard`,
    [now - RECEIPTS_KEPT_MS],
  );
  return rowCount > 0;
}

async function sweepNotes({ client, retention, now }: Sweep): Promise<boolean> {
  const { rowCount } = await client.query(
    `UPDATE records SET notes = NULL WHERE notes IS NOT NULL AND received_at < $1 AND no = ANY (ARRAY (
       SELECT no FROM records WHERE notes IS NOT NULL AND received_at < $1 LIMIT ${ROWS_PER_SWEEP}))`,
    [Math.trunc(now - retention.tracesMs)],
  );
  return rowCount > 0;
}

/** A day's arrivals go before its events, so that no reader finds a run without knowing that events of it may be gone. */
async function sweepEvents({ client, retention, now, progress, emptyDays }: Sweep): Promise<boolean> {
  if (await expireArrivals(client, now - retention.eventsMs)) return true;
  const { expired, empty } = await expireEvents(client, now - retention.eventsMs, progress.expiry);
  for (const day of empty) emptyDays.add(day);
  return expired > 0;
}

/** By tenant and time, as the index has them: what was processed first need not have been received first. */
async function sweepRejections({ client, retention, now }: Sweep): Promise<boolean> {
  const { rowCount } = await client.query(
    `DELETE FROM rejections WHERE no = ANY (ARRAY (
       SELECT old.no FROM tenants CROSS JOIN LATERAL (
         SELECT no FROM rejections WHERE tenant = tenants.no AND received_at < $1
         ORDER BY received_at, no LIMIT ${ROWS_PER_SWEEP}
       ) AS old LIMIT ${ROWS_PER_SWEEP}))`,
    [Math.trunc(now - retention.rejectionsMs)],
  );
  return rowCount > 0;
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

function isExcessDue({ calls, excessCheckedAt, hasExcess }: Progress): boolean {
  return hasExcess || calls - excessCheckedAt >= EXCESS_CHECK_CALLS;
}

/** Adds up the sizes of all of them, so it is done now and then, and when there is nothing else to do. */
async function sweepExcessRejections({ client, retention, progress }: Sweep): Promise<boolean> {
  progress.excessCheckedAt = progress.calls;
  const kept = await client.query<{ bytes: number | null }>(
    'SELECT sum(octet_length(payload)) AS bytes FROM rejections',
  );
  let excess = (kept.rows[0]?.bytes ?? 0) - retention.rejectionBytesMax;
  progress.hasExcess = excess > 0;
  if (!progress.hasExcess) return false;
  const oldest = await client.query<{ no: number; bytes: number }>(
    `SELECT no, octet_length(payload) AS bytes FROM rejections ORDER BY no LIMIT ${ROWS_PER_SWEEP}`,
  );
  const removed: number[] = [];
  for (const { no, bytes } of oldest.rows) {
    if (excess <= 0) break;
    removed.push(no);
    excess -= bytes;
  }
  await client.query('DELETE FROM rejections WHERE no = ANY ($1::int8[])', [int8s(removed)]);
  return true;
}
