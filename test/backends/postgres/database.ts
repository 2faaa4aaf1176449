/** A database of its own for a test, with tables, and with pools to it that are closed afterwards. */

import { after, type TestContext } from 'node:test';
import { makeTables } from '../../../src/backends/postgres/make-tables.ts';
import { openPool, type PoolOptions, type PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { testPostgres } from '../../servers/postgres.ts';

export interface TestDatabase {
  readonly url: string;
  /** The caller closes what it gets. */
  readonly connect: (options?: Partial<PoolOptions>) => Promise<PostgresPool>;
}

export async function emptyDatabase(): Promise<TestDatabase> {
  const url = await (await testPostgres()).newDatabase();
  return { url, connect: (options) => openPool(testPoolOptions(url, options)) };
}

let template: Promise<string> | undefined;

/** A copy of one that has its tables: much quicker than making them in each. */
export async function migratedDatabase(): Promise<TestDatabase> {
  template ??= migratedOnce();
  const url = await (await testPostgres()).newDatabase(await template);
  return { url, connect: (options) => openPool(testPoolOptions(url, options)) };
}

async function migratedOnce(): Promise<string> {
  const database = await emptyDatabase();
  const pool = await database.connect({ max: 1 });
  await makeTables(pool);
  await pool.close();
  return database.url;
}

export interface LentDatabase extends TestDatabase {
  /** Stays open: a store that closes its pool gets another handle of it. */
  readonly pool: PostgresPool;
  /** After all else that uses it was closed. */
  readonly giveBack: () => Promise<void>;
}

type Lendable = Omit<LentDatabase, 'giveBack'>;

const free: Lendable[] = [];
after(() => Promise.all(free.map(({ pool }) => pool.close())));

/** For many small tests: as good as new, but one that another test gave back if there is one, since a copy takes long. */
export async function lendDatabase(): Promise<LentDatabase> {
  const database = free.pop() ?? (await lendable());
  const giveBack = async (): Promise<void> => {
    await database.pool.query(EMPTYING);
    free.push(database);
  };
  return { ...database, giveBack };
}

async function lendable(): Promise<Lendable> {
  const database = await migratedDatabase();
  return { ...database, pool: await database.connect() };
}

/** Leaves what was made at first: the tables without days, and the rows of the tables named. */
const EMPTYING = `
  DO $$
  DECLARE
    name regclass;
    filled text[];
    has_rows boolean;
  BEGIN
    FOR name IN SELECT inhrelid FROM pg_inherits WHERE inhparent IN ('events'::regclass, 'records'::regclass) LOOP
      EXECUTE format('DROP TABLE %s', name);
    END LOOP;
    FOR name IN
      SELECT oid FROM pg_class
      WHERE relnamespace = 'sluice'::regnamespace AND relkind = 'r'
        AND relname NOT IN ('tables_made', 'identity')
    LOOP
      EXECUTE format('SELECT EXISTS (SELECT FROM %s)', name) INTO has_rows;
      IF has_rows THEN filled := filled || name::text; END IF;
    END LOOP;
    IF filled IS NOT NULL THEN EXECUTE 'TRUNCATE ' || array_to_string(filled, ', ') || ' CASCADE'; END IF;
    UPDATE identity SET log = NULL WHERE log IS NOT NULL;
    PERFORM setval(format('%I.%I', schemaname, sequencename), start_value, false)
    FROM pg_sequences WHERE last_value IS NOT NULL;
  END $$`;

/** With a pool that is closed after the test. */
export async function databaseFor(context: TestContext): Promise<TestDatabase & { readonly pool: PostgresPool }> {
  const database = await migratedDatabase();
  const pool = await database.connect();
  context.after(() => pool.close());
  return { ...database, pool };
}

export function testPoolOptions(url: string, options: Partial<PoolOptions> = {}): PoolOptions {
  return { url, max: 4, applicationName: 'sluice test', ...options };
}
