/**
 * Whether the books balance. Each processor asks every few seconds, and the books of years are long: each time it looks
 * at the hours of the last days, in which nearly everything happens, and now and then at all of them. The latter is for
 * one at a time over all nodes (the sweeper's lock); who does not get it tries again the next time. What a whole look
 * found in old hours counts until the next one, so that a difference does not vanish from the metric.
 */

import { ADVISORY_LOCKS, SWEEP_LOCK } from './migrations.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';
import { DAY_MS } from './store-days.ts';

const RECENT_MS = 3 * DAY_MS;
const WHOLE_INTERVAL_MS = 3_600_000;

/** In milliseconds since 1970, by the clock that all nodes share. */
export const SERVER_NOW = 'floor(extract(epoch FROM clock_timestamp()) * 1000)::int8';

export interface Difference {
  readonly users: number;
  readonly events: number;
}

const OUT_OF_BALANCE = `
  sum(users_received - users_stored - users_duplicates - users_erased - users_expired - users_set_aside) AS users,
  sum(events_received - events_stored - events_duplicates - events_erased - events_expired - events_set_aside)
    AS events`;

/** Hours are added up by amount, so that one hour's surplus does not hide another's loss. */
const AMOUNTS = 'coalesce(sum(abs(users)), 0)::int8 AS users, coalesce(sum(abs(events)), 0)::int8 AS events';

const OLD = {
  name: 'store_balance_old',
  text: `
    SELECT ${AMOUNTS} FROM (
      SELECT ${OUT_OF_BALANCE} FROM ledger WHERE hour < $1 GROUP BY tenant, hour
    ) AS hours`,
};

/** By tenant, since the hours of each are in order and those of all are not. */
const RECENT = {
  name: 'store_balance_recent',
  text: `
    SELECT ${AMOUNTS} FROM tenants CROSS JOIN LATERAL (
      SELECT ${OUT_OF_BALANCE} FROM ledger WHERE tenant = tenants.no AND hour >= $1 GROUP BY hour
    ) AS hours`,
};

/** Of a whole look: the hours before `until` were out by this. */
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
    const recent = await ask(this.#pool, RECENT, since);
    const { users, events } = this.#old?.difference ?? NOTHING;
    return { users: users + recent.users, events: events + recent.events };
  }
}

const NOTHING: Difference = { users: 0, events: 0 };

/** Undefined while another has the lock. */
async function lookAtOld(client: PostgresClient): Promise<OldHours | undefined> {
  const lock = await client.query<{ taken: boolean }>('SELECT pg_try_advisory_xact_lock($1, $2) AS taken', [
    ADVISORY_LOCKS,
    SWEEP_LOCK,
  ]);
  if (lock.rows[0]?.taken !== true) return undefined;
  const until = await recentSince(client);
  return { until, lookedAt: performance.now(), difference: await ask(client, OLD, until) };
}

async function recentSince(connection: Queryable): Promise<number> {
  const { rows } = await connection.query<{ now: number }>(`SELECT ${SERVER_NOW} AS now`);
  return (rows[0]?.now ?? 0) - RECENT_MS;
}

async function ask(connection: Queryable, statement: typeof OLD, hour: number): Promise<Difference> {
  const { rows } = await connection.query<Difference>(statement, [hour]);
  return rows[0] ?? NOTHING;
}
