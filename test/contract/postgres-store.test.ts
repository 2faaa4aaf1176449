/** The store's contract on PostgreSQL. */

import { suite } from 'node:test';
import { openPostgresStore } from '../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../src/backends/postgres/store-writer.ts';
import { lendDatabase } from '../backends/postgres/database.ts';
import { whyNoPostgres } from '../servers/postgres.ts';
import { storeContract } from './store.ts';
import type { StoreUnderTest } from './store-feeding.ts';

async function open(): Promise<StoreUnderTest> {
  const { pool, giveBack } = await lendDatabase();
  const logName = 'test:log';
  const writer = openPostgresStoreWriter({ pool: pool.share(), logName });
  const store = openPostgresStore({ pool: pool.share(), logName });
  return {
    writer,
    store,
    close: async () => {
      await store.close();
      await writer.close();
      await giveBack();
    },
  };
}

suite('On PostgreSQL', { skip: whyNoPostgres() }, () => {
  storeContract('PostgreSQL', open);
});
