/** The store on PostgreSQL in a database of its own, for one test. */

import type { TestContext } from 'node:test';
import type { PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import type { StoreUnderTest } from '../../contract/store-feeding.ts';
import { databaseFor, type TestDatabase } from './database.ts';

export interface PostgresStoreUnderTest extends StoreUnderTest {
  readonly pool: PostgresPool;
  readonly database: TestDatabase;
}

export function openOn(pool: PostgresPool, logName = 'test:log'): StoreUnderTest {
  const writer = openPostgresStoreWriter({ pool: pool.share(), logName });
  const store = openPostgresStore({ pool: pool.share(), logName });
  return { writer, store, close: async () => void (await Promise.all([store.close(), writer.close()])) };
}

export async function openFor(context: TestContext): Promise<PostgresStoreUnderTest> {
  const { pool, ...database } = await databaseFor(context);
  const under = openOn(pool);
  context.after(() => under.close());
  return { ...under, pool, database };
}
