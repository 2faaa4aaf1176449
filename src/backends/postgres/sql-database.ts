/**
 * A PostgreSQL database as the `SqlDatabase` of `backends/sql/`, which any number of servers share. A transaction that
 * conflicts with another is retried; after a few attempts the database counts as unavailable. It owns the pool that it
 * is given.
 */

import type { Kysely } from 'kysely';
import { StoreConflictError, StoreUnavailableError } from '../../store-writer.ts';
import { queriesFor, type RowLocks, type SqlDatabase, sqlQueriesFor } from '../sql/database.ts';
import { runStepsAsync, type Steps } from '../sql/steps.ts';
import type { StoreQueries } from '../sql/store-tables.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';

const CONFLICT_ATTEMPTS = 5;
/** A request may be waiting for the result. A read that takes longer fails, and its connection is closed. */
const READ_TIMEOUT_MS = 3_000;

export const ROW_LOCKS: RowLocks = {
  lock: (query) => query.forNoKeyUpdate(),
  lockShared: (query) => query.forShare(),
  skipLocked: (query) => query.forUpdate().skipLocked(),
};

export class PostgresSqlDatabase<Tables> implements SqlDatabase<Tables> {
  readonly reading: Kysely<Tables>;
  readonly locks = ROW_LOCKS;
  readonly #pool: PostgresPool;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
    this.reading = queriesOn(pool, READ_TIMEOUT_MS);
  }

  change<T>(work: (tables: Kysely<Tables>) => Promise<T>): Promise<T> {
    const problem = 'too many concurrent changes to the same rows; try again';
    return inRetriedTransaction(this.#pool, CONFLICT_ATTEMPTS, problem, (client) => work(queriesOn(client)));
  }

  close(): Promise<void> {
    return this.#pool.close();
  }
}

/** After so many conflicts it rejects with `StoreUnavailableError`: callers handle that, but not conflicts. */
export async function inRetriedTransaction<T>(
  pool: PostgresPool,
  attempts: number,
  problem: string,
  work: (client: PostgresClient) => Promise<T>,
): Promise<T> {
  try {
    return await pool.inTransaction(work, attempts);
  } catch (error) {
    throw error instanceof StoreConflictError ? new StoreUnavailableError(problem, { cause: error }) : error;
  }
}

/** For the store's own statements on a pool, or within the transaction of a client. */
export function storeQueriesOn(connection: Queryable): StoreQueries {
  return sqlQueriesFor('postgres', (text, values) => connection.query<unknown>(text, values));
}

/** Within the transaction of a client; on a pool, each statement by itself. */
export function runSteps<T>(connection: Queryable, stepsOf: (tables: StoreQueries['tables']) => Steps<T>): Promise<T> {
  const { tables } = storeQueriesOn(connection);
  return runStepsAsync(stepsOf(tables), ({ sql, parameters }) => connection.query<unknown>(sql, parameters));
}

function queriesOn<Tables>(connection: Queryable, timeoutMs?: number): Kysely<Tables> {
  const limit = timeoutMs === undefined ? {} : { timeoutMs };
  return queriesFor('postgres', (text, values) => connection.query<unknown>({ text, ...limit }, values));
}
