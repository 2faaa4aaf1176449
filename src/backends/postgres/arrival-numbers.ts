/**
 * The numbers that order arrivals (store-arrivals.ts): PostgreSQL's transaction ids plus an offset, so that they always
 * increase, even across servers. A database restored from a dump contains arrivals numbered by another server, whose
 * transaction ids may have been higher; the offset makes numbering continue after them. Numbers assigned after the dump
 * was taken may be assigned again; cursors distinguish such ranges by their ids.
 *
 * Events migrated from an embedded store keep the order of their event numbers: every MIGRATED_EVENTS_PER_TRANSACTION of
 * them count as stored by one transaction; the last of these comes just before the first transaction that stores
 * anything in this database. So a cursor of the embedded store, which is an event number, maps to an exact position here.
 */

import { DAY_MS } from '../../model.ts';
import { follows, selectNextStart } from '../sql/starts.ts';
import { ADVISORY_LOCKS, MIGRATION_LOCK } from './migrations.ts';
import type { PostgresPool, Queryable } from './pool.ts';
import { storeQueriesOn } from './sql-database.ts';

/** The number of the next transaction. */
export const NEXT_TRANSACTION = 'pg_snapshot_xmax(pg_current_snapshot())::text::bigint';
/** Added to the number of a transaction. */
export const SHIFT = '(SELECT shift FROM arrival_numbers)';
/** How many migrated events share one number. */
const MIGRATED_EVENTS_PER_TRANSACTION = 65_536;

/** The highest number that a cursor of this database may name: of stored, expired or migrated events. */
const LAST_NUMBER = `(
  SELECT coalesce(max(tx), 0) FROM (
    SELECT last.tx FROM tenants CROSS JOIN LATERAL (
      SELECT tx FROM arrivals WHERE arrivals.tenant = tenants.no ORDER BY tx DESC LIMIT 1
    ) AS last
    UNION ALL SELECT tx FROM expired_arrivals
    UNION ALL SELECT first_tx + next_number / ${MIGRATED_EVENTS_PER_TRANSACTION} FROM data_migrations
  ) AS newest)`;

/** Called at every start, before anything is stored: raises the offset if the database has seen higher numbers. */
export async function continueArrivalNumbers(pool: PostgresPool): Promise<void> {
  if (await isRight(pool)) return;
  await pool.inTransaction(async (client) => {
    await client.query('SELECT pg_advisory_xact_lock($1, $2)', [ADVISORY_LOCKS, MIGRATION_LOCK]);
    if (await isRight(client)) return;
    await client.query(`UPDATE arrival_numbers SET shift = ${LAST_NUMBER} + 1 - ${NEXT_TRANSACTION}`);
  });
}

async function isRight(connection: Queryable): Promise<boolean> {
  const { rows } = await connection.query<{ isRight: boolean }>(
    `SELECT ${LAST_NUMBER} < shift + ${NEXT_TRANSACTION} AS "isRight" FROM arrival_numbers`,
  );
  return rows[0]?.isRight === true;
}

export interface MigratedArrivals {
  /** The id of the embedded store; `storeIdIn` derives the form used in cursors. */
  readonly storeId: string;
  readonly firstTx: number;
  /** Every number that the embedded store assigned is below this. */
  readonly nextNumber: number;
}

/** Undefined if nothing was migrated. */
export async function readMigratedArrivals(db: Queryable): Promise<MigratedArrivals | undefined> {
  const { rows } = await db.query<MigratedArrivals>(
    `SELECT store_id AS "storeId", first_tx AS "firstTx", next_number AS "nextNumber" FROM data_migrations WHERE first_tx IS NOT NULL`,
  );
  return rows[0];
}

/** Whether the migrated store could continue after an event number that it gave out during a start. */
export async function migratedStoreFollows(db: Queryable, startId: string, event: number): Promise<boolean> {
  return follows(await selectNextStart(storeQueriesOn(db).tables, startId).executeTakeFirst(), event);
}

export function migratedTransactionOf({ firstTx }: MigratedArrivals, event: number): number {
  return firstTx + Math.floor(event / MIGRATED_EVENTS_PER_TRANSACTION);
}

/** Call it in a transaction, after all records are copied. Idempotent. The ranges are derived from the records alone. */
export async function deriveMigratedArrivals(client: Queryable, nextNumber: number): Promise<void> {
  const transactions = Math.floor(nextNumber / MIGRATED_EVENTS_PER_TRANSACTION) + 1;
  await client.query(
    `UPDATE data_migrations SET next_number = $1, first_tx = ${NEXT_TRANSACTION} + ${SHIFT} - $2::bigint WHERE first_tx IS NULL`,
    [nextNumber, transactions],
  );
  await client.query(
    `UPDATE expired_arrivals SET tx = event / ${MIGRATED_EVENTS_PER_TRANSACTION} + (SELECT first_tx FROM data_migrations)`,
  );
  await client.query('DELETE FROM arrivals');
  // Consecutive events of a tenant and day have the same difference between their number and the count of those before.
  await client.query(
    `INSERT INTO arrivals (tx, tenant, first_event, events, received_at_min, received_at_max)
     SELECT tx, tenant, min(first_event), sum(events), min(received_at), max(received_at) FROM (
       SELECT *, first_event + events - sum(events) OVER (PARTITION BY tenant, tx, day ORDER BY first_event) AS run FROM (
         SELECT (SELECT first_tx FROM data_migrations) + part AS tx, tenant, received_at, floor(received_at / ${DAY_MS}::numeric) AS day,
           greatest(first_event, part * ${MIGRATED_EVENTS_PER_TRANSACTION}) AS first_event,
           least(first_event + events, (part + 1) * ${MIGRATED_EVENTS_PER_TRANSACTION})
             - greatest(first_event, part * ${MIGRATED_EVENTS_PER_TRANSACTION}) AS events
         FROM records CROSS JOIN LATERAL generate_series(first_event / ${MIGRATED_EVENTS_PER_TRANSACTION},
           (first_event + events - 1) / ${MIGRATED_EVENTS_PER_TRANSACTION}) AS part
         WHERE events > 0
       ) AS pieces
     ) AS numbered GROUP BY tx, tenant, day, run`,
  );
}
