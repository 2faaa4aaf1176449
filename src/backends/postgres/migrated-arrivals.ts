/**
 * The order of arrival of events that were moved here from an embedded store. There it is the order of their numbers, which
 * they keep, so each MIGRATED_EVENTS_PER_TRANSACTION of them are told as if a transaction had stored them, the last of these
 * just before the first transaction that stores anything here. So a cursor that the embedded store gave, the number of an
 * event, has its exact place in the order of this store.
 */

import { follows, selectNextStart } from '../sql/starts.ts';
import { MIGRATED_EVENTS_PER_TRANSACTION, NEXT_TRANSACTION, SHIFT } from './arrival-numbers.ts';
import type { Queryable } from './pool.ts';
import { storeQueriesOn } from './sql-database.ts';
import { DAY_MS } from './store-days.ts';

export interface MigratedArrivals {
  /** As it was; `storeIdIn` makes the name in cursors of it. */
  readonly storeId: string;
  readonly firstTx: number;
  /** Below it are all numbers that the store had given out. */
  readonly nextNumber: number;
}

/** Undefined where nothing was moved. */
export async function readMigratedArrivals(db: Queryable): Promise<MigratedArrivals | undefined> {
  const { rows } = await db.query<MigratedArrivals>(
    `SELECT store_id AS "storeId", first_tx AS "firstTx", next_number AS "nextNumber" FROM data_migrations WHERE first_tx IS NOT NULL`,
  );
  return rows[0];
}

/** Whether the moved store could go on after an event number that it gave under a start, as it says of itself. */
export async function migratedStoreFollows(db: Queryable, startId: string, event: number): Promise<boolean> {
  return follows(await selectNextStart(storeQueriesOn(db).tables, startId).executeTakeFirst(), event);
}

export function migratedTransactionOf({ firstTx }: MigratedArrivals, event: number): number {
  return firstTx + Math.floor(event / MIGRATED_EVENTS_PER_TRANSACTION);
}

/** After records are there, within a transaction. May be done again. Records tell what their events would. */
export async function settleMigratedArrivals(client: Queryable, nextNumber: number): Promise<void> {
  const transactions = Math.floor(nextNumber / MIGRATED_EVENTS_PER_TRANSACTION) + 1;
  await client.query(
    `UPDATE data_migrations SET next_number = $1, first_tx = ${NEXT_TRANSACTION} + ${SHIFT} - $2::bigint WHERE first_tx IS NULL`,
    [nextNumber, transactions],
  );
  await client.query(
    `UPDATE expired_arrivals SET tx = event / ${MIGRATED_EVENTS_PER_TRANSACTION} + (SELECT first_tx FROM data_migrations)`,
  );
  await client.query('DELETE FROM arrivals');
  // Consecutive events of a tenant and a day have one difference between their number and how many there are before them.
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
