/**
 * A PostgreSQL database as the `SqlDatabase` of `backends/sql/`, which any number of servers share. A transaction that
 * conflicts with another is retried; after a few attempts the database counts as unavailable. It owns the pool that it
 * is given.
 */

import { StoreConflictError, StoreUnavailableError } from '../../store-writer.ts';
import type { AccountTables } from '../sql/account-tables.ts';
import { type AccountSteps, queriesFor, type SqlDatabase } from '../sql/database.ts';
import { type RowLocks, runStepsAsync, type Steps, type StepsOf, type Tables } from '../sql/steps.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';

const CONFLICT_ATTEMPTS = 5;
/** A request may be waiting for the result. A read that takes longer fails, and its connection is closed. */
const READ_TIMEOUT_MS = 3_000;

const ROW_LOCKS: RowLocks = {
  lock: (query) => query.forNoKeyUpdate(),
  lockShared: (query) => query.forShare(),
  skipLocked: (query) => query.forUpdate().skipLocked(),
};

const ACCOUNT_TABLES = queriesFor<AccountTables>('postgres');
const STORE_TABLES: Tables = queriesFor('postgres');

export class PostgresSqlDatabase implements SqlDatabase {
  readonly #pool: PostgresPool;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  read<T>(stepsOf: AccountSteps<T>): Promise<T> {
    return run(this.#pool, stepsOf(ACCOUNT_TABLES, ROW_LOCKS), { timeoutMs: READ_TIMEOUT_MS });
  }

  change<T>(stepsOf: AccountSteps<T>): Promise<T> {
    const problem = 'too many concurrent changes to the same rows; try again';
    return inRetriedTransaction(this.#pool, CONFLICT_ATTEMPTS, problem, (client) =>
      run(client, stepsOf(ACCOUNT_TABLES, ROW_LOCKS)),
    );
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

/** Within the transaction of a client; on a pool, each statement by itself. */
export function runSteps<T>(connection: Queryable, stepsOf: StepsOf<T>): Promise<T> {
  return run(connection, stepsOf(STORE_TABLES, ROW_LOCKS));
}

function run<T>(connection: Queryable, steps: Steps<T>, limit: { readonly timeoutMs?: number } = {}): Promise<T> {
  return runStepsAsync(steps, ({ sql, parameters }) => connection.query<unknown>({ text: sql, ...limit }, parameters));
}
