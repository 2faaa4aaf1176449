/**
 * What the stores of accounts need from a database: queries compiled by Kysely, transactions and row locks. They are
 * written once for both engines, which implement this interface in `backends/embedded/sql-database.ts` and
 * `backends/postgres/sql-database.ts`. Not for hot paths: building a query takes about 50 µs.
 */

import {
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresQueryCompiler,
  type RawBuilder,
  sql,
  SqliteAdapter,
  SqliteQueryCompiler,
} from 'kysely';
import type { AccountTables } from './account-tables.ts';
import type { RowLocks, Steps } from './steps.ts';

/**
 * Whether a commit is synced to disk, or may be lost on power failure. PostgreSQL ignores it: `synchronous_commit`
 * decides.
 */
export type Durability = 'synced' | 'unsynced';

export type AccountSteps<T> = (tables: Kysely<AccountTables>, locks: RowLocks) => Steps<T>;

/**
 * Accounts, their keys and members. Every method rejects with `StoreUnavailableError` when the database cannot be read or
 * written. Other errors are bugs.
 */
export interface SqlDatabase {
  /** Each statement by itself, outside of any transaction. */
  read<T>(stepsOf: AccountSteps<T>): Promise<T>;
  /** In one transaction; its steps may be run again after a conflict. */
  change<T>(stepsOf: AccountSteps<T>, durability?: Durability): Promise<T>;
  close(): Promise<void>;
}

/** For the conflict of an upsert of sums: what is stored plus what was to be inserted. */
export function plusExcluded(table: string, columns: readonly string[]): Record<string, RawBuilder<number>> {
  return Object.fromEntries(
    columns.map((column) => [column, sql<number>`${sql.ref(`${table}.${column}`)} + ${sql.ref(`excluded.${column}`)}`]),
  );
}

/** Compiles queries in the dialect of an engine. They are run as steps (`steps.ts`), never by Kysely. */
export function queriesFor<Tables>(engine: 'sqlite' | 'postgres'): Kysely<Tables> {
  const isSqlite = engine === 'sqlite';
  return new Kysely<Tables>({
    dialect: {
      createAdapter: () => (isSqlite ? new SqliteAdapter() : new PostgresAdapter()),
      createDriver: () => Object.assign(new DummyDriver(), { acquireConnection: neverRun }),
      createIntrospector: neverRun,
      createQueryCompiler: () => (isSqlite ? new SqliteQueryCompiler() : new PostgresQueryCompiler()),
    },
  });
}

function neverRun(): never {
  throw new Error('queries are compiled here, and run as steps');
}
