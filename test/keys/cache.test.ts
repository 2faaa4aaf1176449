/**
 * The cache of keys at the edge, over a real SQLite store. The clock is an argument, so no test waits. Reads of the
 * store are counted by a wrapper around it, the only stand-in here.
 */

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { FRESH_MS, isUsable, KeyCache, KEYS_MAX, PROBE_MS, STALE_MS } from '../../src/keys/cache.ts';
import { createKey, newAccount } from '../../src/keys/manage.ts';
import { hashKey, makeKey } from '../../src/keys/format.ts';
import type { ApiKey, KeyStore } from '../../src/keys.ts';
import { StoreUnavailableError } from '../../src/store-writer.ts';
import { eventually } from '../server.ts';
import { temporaryKeyStore } from './temporary-store.ts';

const NOW = Date.UTC(2026, 10, 15);
const OPTIONS = {
  name: 'test',
  kind: 'secret',
  environment: 'production',
  origins: [],
  expiresAt: null,
  now: NOW,
} as const;

interface Setup {
  readonly file: string;
  readonly store: KeyStore;
  /** What the cache should be built on: the store, with its reads counted. */
  readonly counted: KeyStore;
  readonly reads: () => number;
  readonly addKey: () => Promise<{ key: string; id: string }>;
}

async function setUp(context: TestContext): Promise<Setup> {
  const { file, store } = await temporaryKeyStore(context);
  const account = await store.ensureAccount(newAccount('acme', NOW));
  let reads = 0;
  const counted = new Proxy(store, {
    get(target, property) {
      if (property === 'findByHash') {
        return (hash: Uint8Array) => {
          reads += 1;
          return target.findByHash(hash);
        };
      }
      return Reflect.get(target, property) as unknown;
    },
  });
  const addKey = async (): Promise<{ key: string; id: string }> => {
    const { key, row } = await createKey(store, { ...OPTIONS, accountId: account.id });
    return { key, id: row.id };
  };
  return { file, store, counted, reads: () => reads, addKey };
}

test('a key is read from the store once, then served from memory while it is fresh', async (context) => {
  const { counted, reads, addKey } = await setUp(context);
  const { key, id } = await addKey();
  const cache = new KeyCache(counted);
  assert.equal(cache.peek(key, NOW), undefined);
  assert.equal((await cache.lookup(key, NOW))?.id, id);
  assert.equal((await cache.lookup(key, NOW + FRESH_MS - 1))?.id, id);
  assert.equal(cache.peek(key, NOW + FRESH_MS - 1)?.id, id);
  assert.equal(reads(), 1);
  assert.equal(cache.peek(key, NOW + FRESH_MS), undefined);
  assert.equal((await cache.lookup(key, NOW + FRESH_MS))?.id, id);
  assert.equal(reads(), 2);
});

test('a revocation takes effect within a second', async (context) => {
  const { store, counted, addKey } = await setUp(context);
  const { key, id } = await addKey();
  const cache = new KeyCache(counted);
  await cache.lookup(key, NOW);
  await store.revoke(id, NOW + 1);
  const later = await cache.lookup(key, NOW + 1_000);
  assert.equal(later?.revokedAt, NOW + 1);
  assert.ok(FRESH_MS <= 1_000);
});

test('malformed keys and wrong checksums never reach the store', async (context) => {
  const { counted, reads } = await setUp(context);
  const cache = new KeyCache(counted);
  const key = makeKey('secret', 'production');
  const typo = key.slice(0, -1) + (key.endsWith('0') ? '1' : '0');
  for (const text of ['', 'Bearer', '__proto__', 'constructor', 'x'.repeat(100_000), typo, ` ${key}`]) {
    assert.equal(await cache.lookup(text, NOW), undefined);
  }
  assert.equal(reads(), 0);
  assert.deepEqual(cache.sizes, { found: 0, notFound: 0 });
});

test('a key that does not exist is asked for once while that response is fresh', async (context) => {
  const { counted, reads } = await setUp(context);
  const cache = new KeyCache(counted);
  const key = makeKey('secret', 'production');
  assert.equal(await cache.lookup(key, NOW), undefined);
  assert.equal(await cache.lookup(key, NOW + FRESH_MS - 1), undefined);
  assert.equal(reads(), 1);
  assert.equal(await cache.lookup(key, NOW + FRESH_MS), undefined);
  assert.equal(reads(), 2);
});

test('a key that appears in the store after it was not found is taken within a second', async (context) => {
  const { store, counted } = await setUp(context);
  const cache = new KeyCache(counted);
  const [account] = await store.accounts();
  const { key, row } = await createKey(store, { ...OPTIONS, accountId: account?.id ?? '' });
  const unborn = makeKey('secret', 'production');
  assert.equal(await cache.lookup(unborn, NOW), undefined);
  await store.create({ ...row, id: 'key_later0000000', hash: hashKey(unborn) });
  assert.equal((await cache.lookup(unborn, NOW + 1_000))?.id, 'key_later0000000');
  assert.equal((await cache.lookup(key, NOW + 1_000))?.id, row.id);
  assert.deepEqual(cache.sizes, { found: 2, notFound: 0 });
});

test('concurrent lookups of one key are one read of the store', async (context) => {
  const { counted, reads, addKey } = await setUp(context);
  const { key, id } = await addKey();
  const cache = new KeyCache(counted);
  const responses = await Promise.all(Array.from({ length: 50 }, () => cache.lookup(key, NOW)));
  assert.deepEqual(new Set(responses.map((reply) => reply?.id)), new Set([id]));
  assert.equal(reads(), 1);
});

test('concurrent lookups of one key all fail when the one read fails, and the next one reads again', async (context) => {
  const { store, counted, reads, addKey } = await setUp(context);
  const { key } = await addKey();
  const cache = new KeyCache(counted);
  await store.close();
  const responses = await Promise.allSettled([cache.lookup(key, NOW), cache.lookup(key, NOW)]);
  for (const reply of responses) assert.ok(isUnavailable(reply));
  assert.equal(reads(), 1);
  await assert.rejects(cache.lookup(key, NOW), StoreUnavailableError);
  assert.equal(reads(), 2);
});

test('a flood of guesses stays within its bound and pushes out no real key', async (context) => {
  const { counted, reads, addKey } = await setUp(context);
  const { key, id } = await addKey();
  const cache = new KeyCache(counted, { keysMax: 5 });
  await cache.lookup(key, NOW);
  for (let i = 0; i < 50; i++) await cache.lookup(makeKey('secret', 'production'), NOW);
  assert.deepEqual(cache.sizes, { found: 1, notFound: 5 });
  const readsBefore = reads();
  assert.equal((await cache.lookup(key, NOW))?.id, id);
  assert.equal(reads(), readsBefore);
});

test('over the bound of found keys, the one that was not used for longest goes', async (context) => {
  const { counted, addKey } = await setUp(context);
  const [first, second, third] = [await addKey(), await addKey(), await addKey()];
  const cache = new KeyCache(counted, { keysMax: 2 });
  await cache.lookup(first.key, NOW);
  await cache.lookup(second.key, NOW + 1);
  await cache.lookup(first.key, NOW + FRESH_MS);
  await cache.lookup(third.key, NOW + FRESH_MS);
  assert.equal(cache.sizes.found, 2);
  assert.equal(cache.peek(first.key, NOW + FRESH_MS)?.id, first.id);
  assert.equal(cache.peek(third.key, NOW + FRESH_MS)?.id, third.id);
  assert.equal(cache.peek(second.key, NOW + FRESH_MS), undefined);
});

test('the bounds are 10,000 found and 10,000 not found keys, fresh for one second, stale for ten minutes', () => {
  assert.deepEqual([KEYS_MAX, FRESH_MS, STALE_MS], [10_000, 1_000, 600_000]);
});

test('while the file of the store is garbage, known keys keep working for ten minutes and others are unknown', async (context) => {
  const { file, counted, reads, addKey } = await setUp(context);
  const [known, unknown] = [await addKey(), await addKey()];
  const cache = new KeyCache(counted);
  await cache.lookup(known.key, NOW);

  // A commit of another connection makes the first one read the file again, and find the garbage.
  const other = openSqliteKeyStore(file);
  await other.ensureAccount(newAccount('other', NOW));
  await other.close();
  const garbage = Buffer.alloc(65_536, 'garbage ');
  await Promise.all([writeFile(file, garbage), writeFile(`${file}-wal`, garbage)]);

  assert.equal((await cache.lookup(known.key, NOW + STALE_MS - 1))?.id, known.id);
  await assert.rejects(cache.lookup(unknown.key, NOW + 1), StoreUnavailableError);
  await assert.rejects(cache.lookup(known.key, NOW + STALE_MS), StoreUnavailableError);
  assert.equal(reads(), 4);
});

test('once the store responds again, so does the cache, with what changed meanwhile', async (context) => {
  const { file, counted, addKey } = await setUp(context);
  const { key, id } = await addKey();
  const cache = new KeyCache(counted);
  await cache.lookup(key, NOW);
  const operator = new DatabaseSync(file);
  operator.exec('ALTER TABLE keys RENAME TO away');
  assert.equal((await cache.lookup(key, NOW + 2_000))?.revokedAt, null);
  operator.prepare('UPDATE away SET revoked_at = ? WHERE id = ?').run(NOW, id);
  operator.exec('ALTER TABLE away RENAME TO keys');
  operator.close();
  assert.equal((await cache.lookup(key, NOW + 3_000))?.revokedAt, NOW);
});

test('a failing store is asked once per second and key, not once per request', async (context) => {
  const { store, counted, reads, addKey } = await setUp(context);
  const { key, id } = await addKey();
  const cache = new KeyCache(counted);
  await cache.lookup(key, NOW);
  await store.close();
  const later = NOW + 5_000;
  for (let i = 0; i < 10; i++) assert.equal((await cache.lookup(key, later + i))?.id, id);
  assert.equal(cache.peek(key, later + 10)?.id, id);
  assert.equal(reads(), 2);
});

test('staleness counts from the last response of the store, however often it failed since', async (context) => {
  const { store, counted, addKey } = await setUp(context);
  const { key } = await addKey();
  const cache = new KeyCache(counted);
  await cache.lookup(key, NOW);
  await store.close();
  for (const ageMs of [1_000, 2_000, 3_000, STALE_MS - 1]) assert.ok(await cache.lookup(key, NOW + ageMs));
  assert.equal(cache.peek(key, NOW + STALE_MS), undefined);
  await assert.rejects(cache.lookup(key, NOW + STALE_MS), StoreUnavailableError);
});

test('a store that fails is never taken for a key that does not exist, and the cause is kept', async (context) => {
  const { store, counted } = await setUp(context);
  const cache = new KeyCache(counted);
  const key = makeKey('secret', 'production');
  await cache.lookup(key, NOW);
  await store.close();
  await assert.rejects(cache.lookup(key, NOW + FRESH_MS), (error) => {
    assert.ok(error instanceof StoreUnavailableError);
    assert.ok(error.cause instanceof Error);
    assert.ok(!`${error.message} ${error.cause.message}`.includes(key));
    return true;
  });
});

test('a failing store is a problem once no key is trusted any more, until it responds to a probe', async (context) => {
  const { counted, addKey } = await setUp(context);
  const { key } = await addKey();
  let isBroken = false;
  const store = new Proxy(counted, {
    get: (target, property) =>
      property === 'findByHash' && isBroken
        ? async () => Promise.reject(new Error('gone'))
        : (Reflect.get(target, property) as unknown),
  });
  const cache = new KeyCache(store);
  await cache.lookup(key, NOW);
  isBroken = true;
  await cache.lookup(key, NOW + FRESH_MS);
  assert.equal(cache.problem(NOW + STALE_MS - 1), null, 'the key still works');
  assert.equal(cache.problem(NOW + STALE_MS), 'gone');
  isBroken = false;
  await cache.probe(NOW + STALE_MS);
  assert.equal(cache.problem(NOW + STALE_MS), null);
});

test('the store is probed only if no request queried it, and more often while it fails', async (context) => {
  const { store, counted, reads, addKey } = await setUp(context);
  const { key } = await addKey();
  const cache = new KeyCache(counted);
  await cache.lookup(key, NOW);
  await cache.probe(NOW + PROBE_MS - 1);
  assert.equal(reads(), 1);
  await cache.probe(NOW + PROBE_MS);
  assert.equal(reads(), 2);
  await store.close();
  await cache.probe(NOW + 2 * PROBE_MS);
  await cache.probe(NOW + 2 * PROBE_MS + FRESH_MS - 1);
  assert.equal(reads(), 3);
  await cache.probe(NOW + 2 * PROBE_MS + FRESH_MS);
  assert.equal(reads(), 4);
});

/** A store whose responses are held back while it hangs, as those of a database behind a network that is down. */
function hanging(store: KeyStore): { store: KeyStore; hang: () => void; recover: () => void } {
  let gate: PromiseWithResolvers<void> | undefined;
  const proxy = new Proxy(store, {
    get(target, property) {
      if (property !== 'findByHash') return Reflect.get(target, property) as unknown;
      return async (hash: Uint8Array) => {
        await gate?.promise;
        return target.findByHash(hash);
      };
    },
  });
  return {
    store: proxy,
    hang: () => {
      gate = Promise.withResolvers<void>();
    },
    recover: () => {
      gate?.resolve();
      gate = undefined;
    },
  };
}

test('a store that hangs keeps a known key waiting for a moment once, and not again until it responds', async (context) => {
  const { store, counted, reads, addKey } = await setUp(context);
  const { key, id } = await addKey();
  const slow = hanging(counted);
  const timeoutMs = 200;
  const cache = new KeyCache(slow.store, { timeoutMs });
  await cache.lookup(key, NOW);
  slow.hang();
  const startedAt = performance.now();
  const responses = await Promise.all([cache.lookup(key, NOW + 2_000), cache.lookup(key, NOW + 2_001)]);
  const waitedMs = performance.now() - startedAt;
  assert.deepEqual(
    responses.map((reply) => reply?.id),
    [id, id],
  );
  assert.ok(waitedMs >= timeoutMs - 10 && waitedMs < timeoutMs + 20_000, String(waitedMs));
  const waits: number[] = [];
  for (let tries = 0; tries < 8; tries++) {
    const again = performance.now();
    assert.equal((await cache.lookup(key, NOW + 4_000 + 2_000 * tries))?.id, id);
    waits.push(performance.now() - again);
  }
  // Not the longest: a busy machine may stop for a moment in any of them.
  assert.ok(Math.min(...waits) < timeoutMs / 2, `${waits.join(', ')} ms`);

  await store.revoke(id, NOW + 20_001);
  slow.recover();
  await eventually('the answer that was waited for arrives', () => reads() === 2);
  assert.equal((await cache.lookup(key, NOW + 21_001))?.revokedAt, NOW + 20_001);
});

test('a store that hangs is waited for by a key that it never confirmed', async (context) => {
  const { counted, addKey } = await setUp(context);
  const { key, id } = await addKey();
  const slow = hanging(counted);
  const cache = new KeyCache(slow.store, { timeoutMs: 10 });
  slow.hang();
  let responded = false;
  const looking = cache.lookup(key, NOW).then((reply) => {
    responded = true;
    return reply;
  });
  await sleep(50);
  assert.equal(responded, false);
  slow.recover();
  assert.equal((await looking)?.id, id);
});

test('when any key may have changed all are asked for again, and continue if the store fails', async (context) => {
  const { store, counted, reads, addKey } = await setUp(context);
  const [one, two] = [await addKey(), await addKey()];
  const cache = new KeyCache(counted);
  for (const { key } of [one, two]) await cache.lookup(key, NOW);
  await store.revoke(one.id, NOW);
  cache.invalidate();
  assert.equal(cache.peek(one.key, NOW), undefined);
  assert.equal((await cache.lookup(one.key, NOW))?.revokedAt, NOW);
  assert.equal(reads(), 3);
  await store.close();
  assert.equal((await cache.lookup(two.key, NOW))?.id, two.id);
});

test('a wall clock that is set neither ends what is known nor makes it last', async (context) => {
  const { counted, reads, addKey } = await setUp(context);
  const { key, id } = await addKey();
  context.mock.timers.enable({ apis: ['Date'], now: NOW });
  const monotonic = context.mock.method(performance, 'now', () => 5_000);
  const cache = new KeyCache(counted);
  await cache.lookup(key);
  for (const wall of [NOW + 2 * STALE_MS, 0]) {
    context.mock.timers.setTime(wall);
    assert.equal(cache.peek(key)?.id, id);
    assert.equal((await cache.lookup(key))?.id, id);
  }
  assert.equal(reads(), 1);
  monotonic.mock.mockImplementation(() => 5_000 + FRESH_MS);
  assert.equal(cache.peek(key), undefined);
  await cache.lookup(key);
  assert.equal(reads(), 2);
});

test('what the cache hands out cannot be changed by anyone', async (context) => {
  const { counted, addKey } = await setUp(context);
  const { key } = await addKey();
  const cache = new KeyCache(counted);
  const apiKey = await cache.lookup(key, NOW);
  assert.ok(apiKey !== undefined);
  assert.ok(Object.isFrozen(apiKey) && Object.isFrozen(apiKey.scopes) && Object.isFrozen(apiKey.origins));
  assert.throws(() => Object.assign(apiKey, { environment: 'development' }), TypeError);
  assert.equal(cache.peek(key, NOW), apiKey);
});

test('a key is usable unless it is revoked, expired or of another environment', () => {
  const key: ApiKey = {
    id: 'key_1',
    accountId: 'acct_1',
    accountName: 'acme',
    name: 'test',
    kind: 'secret',
    environment: 'production',
    scopes: [],
    origins: [],
    rateLimit: null,
    lastOrigin: null,
    prefix: 'sk_prod_',
    lastFour: '0000',
    createdAt: NOW,
    expiresAt: null,
    revokedAt: null,
    lastUsedAt: null,
    leakSuspectedAt: NOW,
    leakOrigin: 'https://other.example',
    enforcedPlan: null,
  };
  assert.equal(isUsable(key, NOW, 'any'), true);
  assert.equal(isUsable(key, NOW, 'production'), true);
  assert.equal(isUsable(key, NOW, 'development'), false);
  assert.equal(isUsable({ ...key, revokedAt: NOW }, NOW, 'any'), false);
  assert.equal(isUsable({ ...key, revokedAt: NOW + 60_000 }, NOW, 'any'), false);
  assert.equal(isUsable({ ...key, expiresAt: NOW + 1 }, NOW, 'any'), true);
  assert.equal(isUsable({ ...key, expiresAt: NOW }, NOW, 'any'), false);
});

function isUnavailable(reply: PromiseSettledResult<unknown>): boolean {
  return reply.status === 'rejected' && reply.reason instanceof StoreUnavailableError;
}
