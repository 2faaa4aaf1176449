/** A database of its own for a test, brought up to date, with pools to it that are closed afterwards. */

import type { TestContext } from 'node:test';
import { migrate } from '../../../src/backends/postgres/migrations.ts';
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

/** A copy of one that was brought up to date: much quicker than bringing each up to date. */
export async function migratedDatabase(): Promise<TestDatabase> {
  template ??= migratedOnce();
  const url = await (await testPostgres()).newDatabase(await template);
  return { url, connect: (options) => openPool(testPoolOptions(url, options)) };
}

async function migratedOnce(): Promise<string> {
  const database = await emptyDatabase();
  const pool = await database.connect({ max: 1 });
  await migrate(pool);
  await pool.close();
  return database.url;
}

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
