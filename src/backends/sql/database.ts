/**
 * What the stores in this folder need from a database: Kysely queries, transactions and row locks. The stores are
 * written once for both engines, which implement this interface in `backends/embedded/sql-database.ts` and
 * `backends/postgres/sql-database.ts`. Not for hot paths: building a query takes about 50 µs.
 */

import {
  type CompiledQuery,
  type DatabaseConnection,
  type Driver,
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryResult,
  type RawBuilder,
  type SelectQueryBuilder,
  sql,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely';
import { jsonArrayFrom as jsonArrayFromPostgres } from 'kysely/helpers/postgres';
import { jsonArrayFrom as jsonArrayFromSqlite } from 'kysely/helpers/sqlite';

/**
 * Whether a commit is synced to disk, or may be lost on power failure. PostgreSQL ignores it: `synchronous_commit`
 * decides.
 */
export type Durability = 'synced' | 'unsynced';

/**
 * Every method rejects with `StoreUnavailableError` when the database cannot be read or written. Other errors are bugs.
 */
export interface SqlDatabase<Tables> {
  /** For single statements that only read, outside of any transaction. */
  readonly reading: Kysely<Tables>;
  readonly locks: RowLocks;
  /** In one transaction; `work` may be called again after a conflict, and awaits nothing but its own queries. */
  change<T>(work: (tables: Kysely<Tables>) => Promise<T>, durability?: Durability): Promise<T>;
  close(): Promise<void>;
}

/** PostgreSQL locks rows. On SQLite a transaction has the whole file to itself, so the query stays as it is. */
export interface RowLocks {
  /** Locks the rows that are selected until the transaction ends; take them in one order everywhere. */
  lock<Tables, Table extends keyof Tables, Row>(
    query: SelectQueryBuilder<Tables, Table, Row>,
  ): SelectQueryBuilder<Tables, Table, Row>;
  /** The same against changes only: several transactions may hold it. */
  lockShared<Tables, Table extends keyof Tables, Row>(
    query: SelectQueryBuilder<Tables, Table, Row>,
  ): SelectQueryBuilder<Tables, Table, Row>;
  /** Selects and locks only rows that no other transaction has locked. */
  skipLocked<Tables, Table extends keyof Tables, Row>(
    query: SelectQueryBuilder<Tables, Table, Row>,
  ): SelectQueryBuilder<Tables, Table, Row>;
}

/** Queries of some tables, with what an engine writes in its own way. */
export interface SqlQueries<Tables> {
  readonly tables: Kysely<Tables>;
  /** The rows of a subquery as one value, so that one statement, which sees one moment, gives several lists. */
  readonly jsonArrayFrom: JsonArrayFrom;
}

type JsonArrayFrom = typeof jsonArrayFromSqlite;

/** Runs one statement, and says how many rows it returned or changed. */
type RunStatement = (
  sql: string,
  parameters: readonly unknown[],
) => Promise<{ readonly rows: unknown[]; readonly rowCount: number }>;

/** In the dialect of an engine, each run by `run`. */
export function sqlQueriesFor<Tables>(engine: Engine, run: RunStatement): SqlQueries<Tables> {
  const jsonArrayFrom = engine === 'sqlite' ? jsonArrayFromSqlite : jsonArrayFromPostgres;
  return { tables: queriesFor(engine, run), jsonArrayFrom };
}

/** What `jsonArrayFrom` gives: SQLite has no type for JSON, so there it is text. */
export function rowsOf<Row>(value: Row[] | string): Row[] {
  return typeof value === 'string' ? (JSON.parse(value) as Row[]) : value;
}

/** For the conflict of an upsert of sums: what is stored plus what was to be inserted. */
export function plusExcluded(table: string, columns: readonly string[]): Record<string, RawBuilder<number>> {
  return Object.fromEntries(
    columns.map((column) => [column, sql<number>`${sql.ref(`${table}.${column}`)} + ${sql.ref(`excluded.${column}`)}`]),
  );
}

type Engine = 'sqlite' | 'postgres';

export function queriesFor<Tables>(engine: Engine, run: RunStatement): Kysely<Tables> {
  const isSqlite = engine === 'sqlite';
  return new Kysely<Tables>({
    dialect: {
      createAdapter: () => (isSqlite ? new SqliteAdapter() : new PostgresAdapter()),
      createDriver: () => driverFor(run),
      createIntrospector: (queries) => (isSqlite ? new SqliteIntrospector(queries) : new PostgresIntrospector(queries)),
      createQueryCompiler: () => (isSqlite ? new SqliteQueryCompiler() : new PostgresQueryCompiler()),
    },
  });
}

/** `SqlDatabase` owns connections and transactions, so Kysely's part in them is empty. */
function driverFor(run: RunStatement): Driver {
  const connection: DatabaseConnection = {
    async executeQuery<Row>({ sql, parameters }: CompiledQuery): Promise<QueryResult<Row>> {
      const { rows, rowCount } = await run(sql, parameters);
      return { rows: rows as Row[], numAffectedRows: BigInt(rowCount) };
    },
    streamQuery() {
      throw new Error('statements are not streamed');
    },
  };
  return Object.assign(new DummyDriver(), {
    acquireConnection: async () => connection,
    beginTransaction: () => Promise.reject(new Error('transactions are started by SqlDatabase.change')),
  });
}
