/**
 * Reconciliation: whether every user and event is accounted for. Each processor checks every few seconds, and the
 * ledger of years is long: it reads the hours of the last days, where nearly everything happens, each time, and all
 * hours once an hour. Only one node at a time reads all of them (under the sweeper's lock); a processor that does not
 * get the lock tries again at the next check. The result for old hours is kept until they are read again, so that a
 * difference does not vanish from the metric.
 */

import { DAY_MS, HOUR_MS } from '../../model.ts';
import { type Difference, readDifference } from '../sql/ledger.ts';
import { ADVISORY_LOCKS, SWEEP_LOCK } from './migrations.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';
import { storeQueriesOn } from './sql-database.ts';

const RECENT_MS = 3 * DAY_MS;
const WHOLE_INTERVAL_MS = HOUR_MS;

/** In milliseconds since 1970, by the clock that all nodes share. */
export const SERVER_NOW = 'floor(extract(epoch FROM clock_timestamp()) * 1000)::int8';

/** The result of the last full check: the difference over all hours before `until`. */
interface OldHours {
  readonly until: number;
  readonly lookedAt: number;
  readonly difference: Difference;
}

export class StoreBalance {
  readonly #pool: PostgresPool;
  #old: OldHours | undefined;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  async difference(): Promise<Difference> {
    const isDue = this.#old === undefined || performance.now() - this.#old.lookedAt >= WHOLE_INTERVAL_MS;
    if (isDue) this.#old = (await this.#pool.inTransaction(lookAtOld)) ?? this.#old;
    // From where the old hours end, so that no hour is left out as time goes by.
    const since = this.#old?.until ?? (await recentSince(this.#pool));
    const recent = await readDifference(storeQueriesOn(this.#pool), { since });
    const { users, events } = this.#old?.difference ?? { users: 0, events: 0 };
    return { users: users + recent.users, events: events + recent.events };
  }
}

/** Undefined while another has the lock. */
async function lookAtOld(client: PostgresClient): Promise<OldHours | undefined> {
  const lock = await client.query<{ taken: boolean }>('SELECT pg_try_advisory_xact_lock($1, $2) AS taken', [
    ADVISORY_LOCKS,
    SWEEP_LOCK,
  ]);
  if (lock.rows[0]?.taken !== true) return undefined;
  const until = await recentSince(client);
  return {
    until,
    lookedAt: performance.now(),
    difference: await readDifference(storeQueriesOn(client), { before: until }),
  };
}

async function recentSince(connection: Queryable): Promise<number> {
  const { rows } = await connection.query<{ now: number }>(`SELECT ${SERVER_NOW} AS now`);
  return (rows[0]?.now ?? 0) - RECENT_MS;
}
