/** The store's contract on PostgreSQL. */

import { suite } from 'node:test';
import { openPostgresStore } from '../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../src/backends/postgres/store-writer.ts';
import { lendDatabase } from '../backends/postgres/database.ts';
import { whyNoPostgres } from '../servers/postgres.ts';
import { storeContract } from './store.ts';
import type { StoreOfContract } from './store-feeding.ts';

async function open(): Promise<StoreOfContract> {
  const { pool, giveBack } = await lendDatabase();
  const logName = 'test:log';
  const writer = openPostgresStoreWriter({ pool: pool.share(), logName });
  const another = () => openPostgresStore({ pool: pool.share(), logName });
  const store = another();
  return {
    writer,
    store,
    another,
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
