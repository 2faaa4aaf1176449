/**
 * The numbers that order arrivals (store-arrivals.ts): those of the server's transactions, plus a shift, so that they only
 * ever grow although a server may begin to count again. A database that was restored from a dump has the arrivals of
 * another server, and clients have cursors that were given after the dump: its numbers go on well behind both.
 *
 * Limit: a server whose files were set back (point-in-time recovery, a failover that lost transactions) counts on from there
 * and cannot be recognised; an operator raises the shift (docs/scaling.md).
 */

import { NUMBERED_DATABASE } from './identity.ts';
import { ADVISORY_LOCKS, MIGRATION_LOCK } from './migrations.ts';
import type { PostgresPool, Queryable } from './pool.ts';

/** The number that the next transaction will have. */
export const NEXT_TRANSACTION = 'pg_snapshot_xmax(pg_current_snapshot())::text::bigint';
/** Added to the number of a transaction. */
export const SHIFT = '(SELECT shift FROM arrival_numbers)';

/** More than a database is behind the one that it was copied from: four months of a hundred transactions a second. */
const SKIPPED_NUMBERS = 2 ** 30;

const LAST_NUMBER = `(
  SELECT coalesce(max(last.tx), 0) FROM tenants CROSS JOIN LATERAL (
    SELECT tx FROM arrivals WHERE arrivals.tenant = tenants.no ORDER BY tx DESC LIMIT 1
  ) AS last)`;

const IS_RIGHT = `database = ${NUMBERED_DATABASE} AND ${LAST_NUMBER} < shift + ${NEXT_TRANSACTION}`;

/** At every start, before anything is stored. */
export async function continueArrivalNumbers(pool: PostgresPool): Promise<void> {
  if (await isRight(pool)) return;
  await pool.inTransaction(async (client) => {
    await client.query('SELECT pg_advisory_xact_lock($1, $2)', [ADVISORY_LOCKS, MIGRATION_LOCK]);
    if (await isRight(client)) return;
    await client.query(
      `UPDATE arrival_numbers SET database = ${NUMBERED_DATABASE},
         shift = greatest(shift, ${LAST_NUMBER} + 1 - ${NEXT_TRANSACTION}) + ${SKIPPED_NUMBERS}`,
    );
  });
}

async function isRight(connection: Queryable): Promise<boolean> {
  const { rows } = await connection.query<{ isRight: boolean }>(`SELECT ${IS_RIGHT} AS "isRight" FROM arrival_numbers`);
  return rows[0]?.isRight === true;
}
