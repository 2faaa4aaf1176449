/** The key store on PostgreSQL: the contract, and several nodes at once. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { openPostgresKeyStore } from '../../src/backends/postgres/keys.ts';
import { createKey, newAccount } from '../../src/keys/manage.ts';
import { lendDatabase, migratedDatabase } from '../backends/postgres/database.ts';
import { whyNoPostgres } from '../servers/postgres.ts';
import { keyStoreContract } from './keys.ts';

const NOW = Date.UTC(2026, 10, 15);

suite('The key store on PostgreSQL', { skip: whyNoPostgres() }, () => {
  keyStoreContract('PostgreSQL', async () => {
    const { pool, connect, giveBack } = await lendDatabase();
    const store = openPostgresKeyStore(pool.share());
    const reopen = async () => openPostgresKeyStore(await connect({ max: 2 }));
    return { store, reopen, dispose: () => store.close().then(giveBack) };
  });

  test('nodes that write key usage of the same keys in different orders all succeed', async () => {
    const { connect } = await migratedDatabase();
    const stores = await Promise.all([1, 2, 3, 4].map(async () => openPostgresKeyStore(await connect({ max: 1 }))));
    const [first] = stores;
    assert.ok(first);
    const account = await first.ensureAccount(newAccount('acme', NOW));
    const ids: string[] = [];
    for (let n = 0; n < 30; n++) {
      const options = { name: 'key', kind: 'secret', environment: 'production', origins: [], expiresAt: null } as const;
      ids.push((await createKey(first, { ...options, accountId: account.id, now: NOW })).row.id);
    }
    for (let round = 1; round <= 5; round++) {
      await Promise.all(
        stores.map((store, n) => {
          const seen = ids.map((keyId) => ({ keyId, usedAt: NOW + round * 10 + n, leakOrigin: null }));
          return store.recordUsage(n % 2 === 0 ? seen : seen.toReversed());
        }),
      );
    }
    const used = new Set((await first.list()).map(({ lastUsedAt }) => lastUsedAt));
    assert.deepEqual([...used], [NOW + 53]);
    await Promise.all(stores.map((store) => store.close()));
  });
});
