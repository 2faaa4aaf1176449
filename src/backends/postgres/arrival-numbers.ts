/**
 * The numbers that order arrivals (store-arrivals.ts): PostgreSQL's transaction ids plus an offset, so that they always
 * increase, even across servers. A database restored from a dump contains arrivals numbered by another server, whose
 * transaction ids may have been higher; the offset makes numbering continue after them. Numbers assigned after the dump
 * was taken may be assigned again; cursors distinguish such ranges by their ids.
 */

import { ADVISORY_LOCKS, MIGRATION_LOCK } from './migrations.ts';
import type { PostgresPool, Queryable } from './pool.ts';

/** The number of the next transaction. */
export const NEXT_TRANSACTION = 'pg_snapshot_xmax(pg_current_snapshot())::text::bigint';
/** Added to the number of a transaction. */
export const SHIFT = '(SELECT shift FROM arrival_numbers)';
/** How many migrated events share one number (migrated-arrivals.ts). */
export const MIGRATED_EVENTS_PER_TRANSACTION = 65_536;

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
