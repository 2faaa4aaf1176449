/**
 * Times that the clocks of all servers on a database have in common (`clock/clock.ts`). A server whose clock is ahead of the
 * wall clock waits for it at half speed, from wherever it started. So that servers which started at different moments do
 * not differ, they agree on the newest of their times, every second for as long as they wait.
 */

import { WAITING_SPEED } from '../../clock/clock.ts';
import type { Queryable } from './pool.ts';

/** The agreed time continues like the clocks, by the database's clock; for no longer than this, should that be set. */
const ELAPSED_SECONDS_MAX = 10;

/** What a server that starts continues from: the last erase of any tenant, and the time agreed on; 0 if there is neither. */
export async function newestTime(db: Queryable): Promise<number> {
  const { rows } = await db.query<{ newest: number | null }>(
    'SELECT greatest((SELECT max(last_erased_at) FROM tenants), (SELECT newest FROM receipt_time)) AS newest',
  );
  return rows[0]?.newest ?? 0;
}

/** Returns the newest time of all servers that have called this; `time` is that of this one. */
export async function agreeOnTime(db: Queryable, time: number): Promise<number> {
  const { rows } = await db.query<{ newest: number }>(
    `INSERT INTO receipt_time AS agreed (newest, agreed_at) VALUES ($1, clock_timestamp())
     ON CONFLICT ((true)) DO UPDATE SET agreed_at = excluded.agreed_at, newest = greatest(excluded.newest, agreed.newest
       + $2 * least(greatest(extract(epoch FROM excluded.agreed_at - agreed.agreed_at), 0), ${ELAPSED_SECONDS_MAX}))
     RETURNING newest`,
    [time, 1_000 * WAITING_SPEED],
  );
  return rows[0]?.newest ?? time;
}
