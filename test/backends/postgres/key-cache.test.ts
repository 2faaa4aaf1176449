/** Key caches over PostgreSQL: changes made by another node, and a database that cannot be reached. */

import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import { openPostgresKeyStore } from '../../../src/backends/postgres/keys.ts';
import { openPool } from '../../../src/backends/postgres/pool.ts';
import { FRESH_MS, KeyCache, TIMEOUT_MS } from '../../../src/keys/cache.ts';
import { createKey, newAccount } from '../../../src/keys/manage.ts';
import type { KeyStore } from '../../../src/keys.ts';
import { StoreUnavailableError } from '../../../src/store-writer.ts';
import { eventually } from '../../server.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor, testPoolOptions } from './database.ts';
import { openWireTo } from '../../scaling/wire.ts';

const NOW = Date.UTC(2026, 10, 15);

interface Setup {
  readonly url: string;
  readonly store: KeyStore;
  readonly addKey: () => Promise<{ key: string; id: string }>;
}

async function setUp(context: TestContext): Promise<Setup> {
  const { url, pool } = await databaseFor(context);
  const store = openPostgresKeyStore(pool.share());
  context.after(() => store.close());
  const account = await store.ensureAccount(newAccount('acme', NOW));
  const options = { name: 'test', kind: 'secret', environment: 'production', origins: [], expiresAt: null } as const;
  return {
    url,
    store,
    addKey: async () => {
      const { key, row } = await createKey(store, { ...options, accountId: account.id, now: NOW });
      return { key, id: row.id };
    },
  };
}

async function wireTo(context: TestContext, url: string): ReturnType<typeof openWireTo> {
  const wire = await openWireTo(url);
  context.after(() => wire.close());
  return wire;
}

/** A key cache of another node, which reaches the database by way of the URL. */
async function cacheOn(context: TestContext, url: string): Promise<KeyCache> {
  const store = openPostgresKeyStore(await openPool(testPoolOptions(url, { max: 2 })));
  context.after(() => store.close());
  return new KeyCache(store);
}

suite('The key cache on PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('what another node changes takes effect within a second: a revocation, a tracking plan, a new key', async (context) => {
    const { url, store, addKey } = await setUp(context);
    const cache = await cacheOn(context, url);
    const { key, id } = await addKey();
    const apiKey = await cache.lookup(key, NOW);
    assert.ok(apiKey);
    assert.equal(apiKey.enforcedPlan, null);
    await store.plans.push(apiKey, {
      text: '{}',
      enforces: true,
      warns: false,
      createdAt: NOW,
      createdBy: 'key_1',
      basedOn: null,
    });
    assert.equal((await cache.lookup(key, NOW + FRESH_MS))?.enforcedPlan, 1);
    await store.revoke(id, NOW + 1);
    assert.equal((await cache.lookup(key, NOW + 2 * FRESH_MS))?.revokedAt, NOW + 1);
    const added = await addKey();
    assert.equal((await cache.lookup(added.key, NOW + 2 * FRESH_MS))?.id, added.id);
  });

  test('a request with a known key waits a second at most for a database that has fallen silent', async (context) => {
    const { url, store, addKey } = await setUp(context);
    const wire = await wireTo(context, url);
    const cache = await cacheOn(context, wire.url);
    const [known, unknown] = [await addKey(), await addKey()];
    assert.equal((await cache.lookup(known.key, NOW))?.id, known.id);
    wire.cut();
    const waits: number[] = [];
    for (let second = 2; second < 20; second++) {
      const startedAt = performance.now();
      assert.equal((await cache.lookup(known.key, NOW + second * 1_000))?.id, known.id);
      waits.push(performance.now() - startedAt);
    }
    const [first = 0, ...others] = waits;
    assert.ok(first >= TIMEOUT_MS - 50 && first < TIMEOUT_MS + 5_000, `${first} ms`);
    // Not the longest: a busy machine may stop for a moment in any of them.
    const longer = others.filter((wait) => wait >= TIMEOUT_MS / 2);
    assert.ok(longer.length <= 2, `${longer.length} of ${others.length} waited again: ${longer.join(', ')} ms`);
    await assert.rejects(cache.lookup(unknown.key, NOW), StoreUnavailableError);

    wire.repair();
    await store.revoke(known.id, NOW + 30_000);
    let now = NOW + 31_000;
    await eventually('the cache asks again', async () => {
      now += 1_000;
      return (await cache.lookup(known.key, now))?.revokedAt === NOW + 30_000;
    });
  });
});
