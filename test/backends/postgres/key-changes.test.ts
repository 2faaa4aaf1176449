/** Keys that change on one node, as another hears of it; and key caches over a PostgreSQL that cannot be reached. */

import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import { KeyChangeListener, openPostgresKeyStore } from '../../../src/backends/postgres/keys.ts';
import { openPool } from '../../../src/backends/postgres/pool.ts';
import { KeyCache, KeyStoreUnavailableError, TIMEOUT_MS } from '../../../src/keys/cache.ts';
import { createKey, newAccount } from '../../../src/keys/create.ts';
import type { KeyStore } from '../../../src/keys.ts';
import { eventually } from '../../server.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor, testPoolOptions } from './database.ts';
import { openProxy, type Proxy } from './proxy.ts';

const NOW = Date.UTC(2026, 10, 15);
const AT_ONCE_MS = 1_000;

interface Setup {
  readonly url: string;
  readonly store: KeyStore;
  readonly addKey: () => Promise<{ key: string; id: string }>;
  readonly killListeners: () => Promise<unknown>;
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
    killListeners: () =>
      pool.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name LIKE '%key changes'`,
      ),
  };
}

function listen(context: TestContext, url: string): { heard: (string | undefined)[]; listener: KeyChangeListener } {
  const heard: (string | undefined)[] = [];
  const ping = { pingEveryMs: 100, pingTimeoutMs: 300 };
  const listener = new KeyChangeListener(testPoolOptions(url), (keyId) => heard.push(keyId), ping);
  context.after(() => listener.close());
  return { heard, listener };
}

async function proxyTo(context: TestContext, url: string): Promise<Proxy> {
  const proxy = await openProxy(url);
  context.after(() => proxy.close());
  return proxy;
}

/** A key cache of another node, which reaches the database by way of the URL. */
async function cacheOn(context: TestContext, url: string): Promise<KeyCache> {
  const store = openPostgresKeyStore(await openPool(testPoolOptions(url, { max: 2 })));
  context.after(() => store.close());
  return new KeyCache(store);
}

suite('Changes of keys', { skip: whyNoPostgres() }, () => {
  test('a tracking plan that is pushed reaches another node within a second, since keys say what is enforced', async (context) => {
    const { url, store, addKey } = await setUp(context);
    const { key } = await addKey();
    const cache = await cacheOn(context, url);
    const { heard, listener } = listen(context, url);
    await eventually('it listens', () => listener.isListening && heard.length > 0);
    const apiKey = await cache.lookup(key);
    assert.equal(apiKey?.enforcedPlan, null);
    await store.plans.push(apiKey, {
      text: '{}',
      enforces: true,
      warns: false,
      createdAt: NOW,
      createdBy: 'key_1',
      basedOn: null,
    });
    await eventually('it is announced', () => heard.length > 1, AT_ONCE_MS);
    await eventually('the cache has it', async () => (await cache.lookup(key))?.enforcedPlan === 1);
  });

  test('changes of a key reach another node within a second, uses of it do not', async (context) => {
    const { url, store, addKey } = await setUp(context);
    const { heard, listener } = listen(context, url);
    await eventually('it listens', () => listener.isListening);
    assert.equal(heard.length, 1);
    const { id } = await addKey();
    await eventually('the new key is heard of', () => heard.length >= 2, AT_ONCE_MS);
    await store.recordUsage([{ keyId: id, usedAt: NOW, leakOrigin: 'https://shop.example' }]);
    await store.revoke(id, NOW);
    await eventually('the revocation is heard of', () => heard.length >= 3, AT_ONCE_MS);
    await store.expire(id, NOW);
    await eventually('the expiry is heard of', () => heard.length >= 4, AT_ONCE_MS);
    assert.deepEqual(heard, [undefined, undefined, id, id]);
  });

  test('a connection that was ended is made again, and what was missed meanwhile is asked for', async (context) => {
    const { url, store, addKey, killListeners } = await setUp(context);
    const { heard, listener } = listen(context, url);
    await eventually('it listens', () => listener.isListening);
    const { id } = await addKey();
    // Else it could be heard of after the connection is ended, and be taken for the reconnection.
    await eventually('the new key is heard of', () => heard.length >= 2);
    for (let round = 1; round <= 3; round++) {
      const before = heard.length;
      await killListeners();
      await eventually('it says that any key may have changed', () => heard.indexOf(undefined, before) >= 0);
      await store.revoke(id, NOW);
      await eventually('the change is heard of', () => heard.at(-1) === id, AT_ONCE_MS);
    }
  });

  test('a connection that falls silent is noticed and made again', async (context) => {
    const { url, store, addKey } = await setUp(context);
    const proxy = await proxyTo(context, url);
    const { heard, listener } = listen(context, proxy.url);
    const { id } = await addKey();
    await eventually('it listens', () => listener.isListening);
    proxy.fallSilent();
    await eventually('the silence is noticed', () => !listener.isListening);
    const before = heard.length;
    proxy.forward();
    await eventually('it listens again', () => heard.length > before && listener.isListening);
    await store.revoke(id, NOW);
    await eventually('the change is heard of', () => heard.at(-1) === id, AT_ONCE_MS);
  });

  test('a cache of another node rejects a revoked key before its entry is a second old', async (context) => {
    const { url, store, addKey, killListeners } = await setUp(context);
    const cache = await cacheOn(context, url);
    for (const isKilled of [false, true]) {
      if (isKilled) await killListeners();
      const { key, id } = await addKey();
      // The clock of the cache stands still: by itself it would never ask again.
      await eventually('the cache knows the key', async () => (await cache.lookup(key, NOW))?.id === id);
      await store.revoke(id, NOW + 1);
      await eventually(
        'the cache knows of the revocation',
        async () => (await cache.lookup(key, NOW))?.revokedAt === NOW + 1,
      );
    }
  });

  test('a request with a known key waits a second at most for a database that has fallen silent', async (context) => {
    const { url, store, addKey } = await setUp(context);
    const proxy = await proxyTo(context, url);
    const cache = await cacheOn(context, proxy.url);
    const [known, unknown] = [await addKey(), await addKey()];
    assert.equal((await cache.lookup(known.key, NOW))?.id, known.id);
    proxy.fallSilent();
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
    await assert.rejects(cache.lookup(unknown.key, NOW), KeyStoreUnavailableError);

    proxy.forward();
    await store.revoke(known.id, NOW + 30_000);
    let now = NOW + 31_000;
    await eventually('the cache asks again', async () => {
      now += 1_000;
      return (await cache.lookup(known.key, now))?.revokedAt === NOW + 30_000;
    });
  });
});
