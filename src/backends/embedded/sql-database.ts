/**
 * A SQLite file as the `SqlDatabase` of `backends/sql/`, in a thread that must not block: an edge takes events while
 * another process holds the lock of the file. So a statement or transaction that finds the file locked is retried every
 * RETRY_MS, for BUSY_TIMEOUT_MS at most, and the thread does other work in between. Transactions run one after the
 * other on a connection of their own, so that reads neither wait for them nor see them half done.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import type { Kysely } from 'kysely';
import { SQLITE, sqliteCodeOf } from '../../runtime/sqlite-errors.ts';
import { StoreUnavailableError } from '../../store-writer.ts';
import { type Durability, queriesFor, type RowLocks, type SqlDatabase } from '../sql/database.ts';
import type { StatementResult } from '../sql/steps.ts';
import { BUSY_TIMEOUT_MS, type DatabaseFile, isBusy, openDatabase, RETRY_MS } from './database.ts';
import { markCommit } from './wal-chain.ts';

/** A transaction has the whole file to itself. */
export const NO_LOCKS: RowLocks = {
  lock: (query) => query,
  lockShared: (query) => query,
  skipLocked: (query) => query,
};

export function openSqlDatabase<Tables>(file: DatabaseFile): SqlDatabase<Tables> {
  const writer = openDatabase(file);
  try {
    return new SqliteSqlDatabase<Tables>(writer, openDatabase({ ...file, check: false }));
  } catch (error) {
    writer.close();
    throw error;
  }
}

class SqliteSqlDatabase<Tables> implements SqlDatabase<Tables> {
  readonly reading: Kysely<Tables>;
  readonly locks = NO_LOCKS;
  readonly #writing: Kysely<Tables>;
  readonly #writer: DatabaseSync;
  readonly #reader: DatabaseSync;
  /** The last requested transaction, which the next one waits for; never rejects. */
  #lastChange: Promise<unknown> = Promise.resolve();

  constructor(writer: DatabaseSync, reader: DatabaseSync) {
    this.#writer = writer;
    this.#reader = reader;
    // SQLite's own wait would block the thread.
    for (const database of [writer, reader]) database.exec('PRAGMA busy_timeout = 0');
    this.reading = queriesFor('sqlite', (sql, values) =>
      translateErrors(whenFree(() => run(reader, sql, values), giveUpAt())),
    );
    this.#writing = queriesFor('sqlite', async (sql, values) => run(writer, sql, values));
  }

  change<T>(work: (tables: Kysely<Tables>) => Promise<T>, durability: Durability = 'synced'): Promise<T> {
    const deadline = giveUpAt();
    const done = this.#lastChange.then(() => translateErrors(this.#transaction(work, durability, deadline)));
    this.#lastChange = done.catch(() => {});
    return done;
  }

  async close(): Promise<void> {
    await this.#lastChange;
    for (const database of [this.#reader, this.#writer]) if (database.isOpen) database.close();
  }

  async #transaction<T>(
    work: (tables: Kysely<Tables>) => Promise<T>,
    durability: Durability,
    deadline: number,
  ): Promise<T> {
    const database = this.#writer;
    database.exec(`PRAGMA synchronous = ${durability === 'synced' ? 'FULL' : 'NORMAL'}`);
    // IMMEDIATE takes the lock now: nothing later in this transaction waits.
    await whenFree(() => database.exec('BEGIN IMMEDIATE'), deadline);
    try {
      const result = await work(this.#writing);
      markCommit(database);
      database.exec('COMMIT');
      return result;
    } catch (error) {
      // Some errors (a full disk) make SQLite roll back by itself.
      if (database.isOpen && database.isTransaction) database.exec('ROLLBACK');
      throw error;
    }
  }
}

function run(database: DatabaseSync, sql: string, values: readonly unknown[]): StatementResult {
  return runStatement(database.prepare(sql), values as SQLInputValue[]);
}

export function runStatement(statement: StatementSync, parameters: readonly SQLInputValue[]): StatementResult {
  if (statement.columns().length === 0) return { rows: [], rowCount: Number(statement.run(...parameters).changes) };
  // SQLite's rows have no prototype; PostgreSQL's are plain objects.
  const rows = statement.all(...parameters).map((row) => Object.assign({}, row));
  return { rows, rowCount: rows.length };
}

function giveUpAt(): number {
  return performance.now() + BUSY_TIMEOUT_MS;
}

async function whenFree<T>(attempt: () => T, deadline: number): Promise<T> {
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      if (!isBusy(error) || performance.now() > deadline) throw error;
      await sleep(RETRY_MS);
    }
  }
}

async function translateErrors<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    // A constraint violation is a bug of ours, and reported as one.
    const code = sqliteCodeOf(error);
    const isClosed = error instanceof Error && 'code' in error && error.code === 'ERR_INVALID_STATE';
    if (!isClosed && (code === undefined || code === SQLITE.constraint)) throw error;
    throw new StoreUnavailableError('keys and members cannot be read or written', { cause: error });
  }
}
