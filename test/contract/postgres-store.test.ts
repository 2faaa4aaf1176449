/** The store's contract on PostgreSQL. */

import { suite } from 'node:test';
import { migrate } from '../../src/backends/postgres/migrations.ts';
import { openPool } from '../../src/backends/postgres/pool.ts';
import { openPostgresStore } from '../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../src/backends/postgres/store-writer.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { storeContract } from './store.ts';
import type { StoreUnderTest } from './store-feeding.ts';

async function open(): Promise<StoreUnderTest> {
  const { newDatabase } = await testPostgres();
  const pool = await openPool({ url: await newDatabase(), max: 4, applicationName: 'sluice test' });
  await migrate(pool);
  const logName = 'test:log';
  const writer = openPostgresStoreWriter({ pool, logName });
  const store = openPostgresStore({ pool: pool.share(), logName });
  return {
    writer,
    store,
    close: async () => {
      await store.close();
      await writer.close();
    },
  };
}

suite('On PostgreSQL', { skip: whyNoPostgres() }, () => {
  storeContract('PostgreSQL', open);
});
