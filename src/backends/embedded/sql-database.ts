/**
 * A SQLite file as the `SqlDatabase` of `backends/sql/`, in a thread that must not block: an edge takes events while
 * another process holds the lock of the file. So what finds the file locked is tried again every RETRY_MS, for
 * BUSY_TIMEOUT_MS at most, and the thread does other work in between.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import { SQLITE, sqliteCodeOf } from '../../runtime/sqlite-errors.ts';
import { StoreUnavailableError } from '../../store-writer.ts';
import type { AccountTables } from '../sql/account-tables.ts';
import { type AccountSteps, type Durability, queriesFor, type SqlDatabase } from '../sql/database.ts';
import { type RowLocks, runStepsSync, type StatementResult } from '../sql/steps.ts';
import { BUSY_TIMEOUT_MS, type DatabaseFile, isBusy, openDatabase, RETRY_MS, transaction } from './database.ts';

/** A transaction has the whole file to itself. */
export const NO_LOCKS: RowLocks = {
  lock: (query) => query,
  lockShared: (query) => query,
  skipLocked: (query) => query,
};

const TABLES = queriesFor<AccountTables>('sqlite');

export class SqliteSqlDatabase implements SqlDatabase {
  readonly #database: DatabaseSync;
  /** Resolves when all calls so far have ended. */
  #ended: Promise<unknown> = Promise.resolve();

  constructor(file: DatabaseFile) {
    this.#database = openDatabase(file);
    // SQLite's own wait would block the thread.
    this.#database.exec('PRAGMA busy_timeout = 0');
  }

  read<T>(stepsOf: AccountSteps<T>): Promise<T> {
    return this.#whenFree(() => this.#run(stepsOf));
  }

  change<T>(stepsOf: AccountSteps<T>, durability: Durability = 'synced'): Promise<T> {
    return this.#whenFree(() => {
      this.#database.exec(`PRAGMA synchronous = ${durability === 'synced' ? 'FULL' : 'NORMAL'}`);
      return transaction(this.#database, () => this.#run(stepsOf), 0);
    });
  }

  async close(): Promise<void> {
    await this.#ended;
    if (this.#database.isOpen) this.#database.close();
  }

  #run<T>(stepsOf: AccountSteps<T>): T {
    return runStepsSync(stepsOf(TABLES, NO_LOCKS), ({ sql, parameters }) =>
      runStatement(this.#database.prepare(sql), parameters as SQLInputValue[]),
    );
  }

  #whenFree<T>(attempt: () => T): Promise<T> {
    const result = whenFree(attempt);
    this.#ended = Promise.allSettled([this.#ended, result]).then(() => undefined);
    return result;
  }
}

export function runStatement(statement: StatementSync, parameters: readonly SQLInputValue[]): StatementResult {
  if (statement.columns().length === 0) return { rows: [], rowCount: Number(statement.run(...parameters).changes) };
  // SQLite's rows have no prototype; PostgreSQL's are plain objects.
  const rows = statement.all(...parameters).map((row) => Object.assign({}, row));
  return { rows, rowCount: rows.length };
}

async function whenFree<T>(attempt: () => T): Promise<T> {
  const giveUpAt = performance.now() + BUSY_TIMEOUT_MS;
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      if (!isBusy(error) || performance.now() > giveUpAt) throw translated(error);
      await sleep(RETRY_MS);
    }
  }
}

function translated(error: unknown): unknown {
  // A constraint violation is a bug of ours, and reported as one.
  const code = sqliteCodeOf(error);
  const isClosed = error instanceof Error && 'code' in error && error.code === 'ERR_INVALID_STATE';
  if (!isClosed && (code === undefined || code === SQLITE.constraint)) return error;
  return new StoreUnavailableError('keys and members cannot be read or written', { cause: error });
}
