/** Who may read: every reading call with every kind of key, other tenants' ids, hostile ids, methods, and failures. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { KeyCache } from '../../src/keys/cache.ts';
import { makeKey as makeUnknownKey } from '../../src/keys/format.ts';
import type { ApiKey } from '../../src/keys.ts';
import { openApiDocument } from './document.ts';
import { type Asked, PROFILE_ID, TRACE_ID } from './canned-store.ts';
import { goodBody, goodPath, goodStatus } from './good-call.ts';
import { type AskOptions, NOW, type ReadingApp, startReadingApp } from './reading-app.ts';
import { brokenStore, type StartOptions } from './running-app.ts';

interface ReadingCall {
  readonly method: string;
  readonly path: string;
  readonly options: AskOptions;
}

/** One good call for each operation that the document describes: a new one is in every test here from its first day. */
const CALLS: readonly ReadingCall[] = Object.entries((await openApiDocument()).paths).flatMap(([path, item]) =>
  Object.entries(item)
    .filter(([, { tags }]) => tags.includes('Reading back'))
    .map(([name]): ReadingCall => {
      const method = name.toUpperCase();
      const query = { '/profiles': '?user_id=u-1', '/profiles/search': '?value=u-1' }[path] ?? '';
      const json = method === 'POST' || method === 'PUT' ? { json: goodBody(path) } : {};
      return { method, path: goodPath(path) + query, options: { method, ...json } };
    }),
);

/** Kept beside the keys, so the store is not asked. */
const isOfKeys = (path: string): boolean => /^\/plan(\/versions)?$/.test(path);

const UNAUTHORIZED = '{"error":"unauthorized"}';

test('there are calls to test', () => assert.ok(CALLS.length >= 15));

/** For all calls that change nothing: to start one takes longer than to ask it. */
let app: ReadingApp;
/** The key of each use that was noted. */
const uses: [string, number, string | undefined][] = [];
/** The same keys a moment later, when one has expired. */
let later: ReadingApp;
let [revoked, expired] = ['', ''];
let production: ReadingApp;
let [noKeys, noStore]: ReadingApp[] = [];
const unavailable: string[] = [];

const scope = new AsyncDisposableStack();
after(() => scope.disposeAsync());
before(async () => {
  const start = (options: StartOptions = {}): Promise<ReadingApp> =>
    startReadingApp({ after: (close) => scope.defer(close as () => Promise<void>) }, options);
  const noteUse = (key: ApiKey, at: number, origin: string | undefined): void => {
    uses.push([key.id, at, origin]);
  };
  const onUnavailable = (error: Error): void => {
    unavailable.push(error.name);
  };
  app = await start({ noteUse });
  revoked = await app.makeKey();
  const [newest] = await app.keyStore.list();
  await app.keyStore.revoke(newest?.id ?? '', NOW);
  expired = await app.makeKey({ expiresAt: NOW + 1 });
  later = await start({ keys: new KeyCache(app.keyStore), now: () => NOW + 1 });
  production = await start({ environment: 'production' });
  noKeys = await start({ keys: new KeyCache(brokenStore()), onUnavailable });
  noStore = await start({ store: brokenStore(), onUnavailable });
});

/** What the store was asked meanwhile. */
async function askedBy(work: () => Promise<void>): Promise<readonly Asked[]> {
  const before = app.asked.length;
  await work();
  return app.asked.slice(before);
}

for (const { method, path, options } of CALLS) {
  suite(`${method} ${path}`, () => {
    test('is available to a secret key of the tenant, and its use is noted', async () => {
      uses.length = 0;
      const headers = { origin: 'https://elsewhere.example' };
      const { status, headers: responded } = await app.ask(path, { ...options, headers });
      assert.equal(status, goodStatus(method, path));
      assert.equal(responded['access-control-allow-origin'], undefined);
      assert.deepEqual(uses, [[app.keyId, NOW, 'https://elsewhere.example']]);
    });

    test('is 401 and nothing else without a good key, and the store is not asked', async () => {
      const asked = await askedBy(async () => {
        const unknown = makeUnknownKey('secret', 'development');
        for (const bad of [null, '', 'sk_dev_short', `${app.key}x`, unknown, revoked]) {
          const { status, text, headers } = await app.ask(path, { ...options, key: bad });
          assert.equal(status, 401, String(bad));
          assert.equal(text, UNAUTHORIZED);
          assert.ok(headers['x-trace-id']);
        }
      });
      assert.deepEqual(asked, []);
      assert.equal((await later.ask(path, { ...options, key: expired })).status, 401);
    });

    test('takes no key from the address, nor by another scheme', async () => {
      const { ask, key } = app;
      const asked = await askedBy(async () => {
        const inAddress = `${path}${path.includes('?') ? '&' : '?'}key=${key}`;
        assert.equal((await ask(inAddress, { ...options, key: null })).status, 401);
        for (const authorization of [`Basic ${key}`, key, `Bearer ${key} ${key}`]) {
          assert.equal((await ask(path, { ...options, key: null, headers: { authorization } })).status, 401);
        }
      });
      assert.deepEqual(asked, []);
    });

    test('is 403 for a publishable key', async () => {
      const key = await app.makeKey({ kind: 'publishable' });
      const asked = await askedBy(async () => {
        const { status, text } = await app.ask(path, { ...options, key });
        assert.equal(status, 403);
        assert.ok(text.includes('"error":"forbidden"'));
      });
      assert.deepEqual(asked, []);
    });

    test('is 401 for a key of the environment that is not served', async () => {
      const { ask, makeKey } = production;
      assert.equal((await ask(path, options)).status, 401);
      const key = await makeKey({ environment: 'production' });
      assert.notEqual((await ask(path, { ...options, key })).status, 401);
    });

    test('shows nothing to another account, nor to the other environment of the same one', async (t) => {
      const { ask, makeKey, asked } = await startReadingApp(t);
      for (const owner of [{ account: 'another' }, { environment: 'production' as const }]) {
        const { status, text, body } = await ask(path, { ...options, key: await makeKey(owner) });
        assert.ok(!text.includes(PROFILE_ID) && !text.includes(TRACE_ID));
        if (/[0-9a-f]{12}|\?user_id|^\/catalogue\//.test(path) || method === 'POST') assert.equal(status, 404);
        else if (method === 'PUT') assert.equal(status, 200);
        else assert.ok(Object.values(body as object).some(isNothing));
      }
      if (isOfKeys(path)) {
        // What the others pushed is theirs.
        assert.equal(((await ask('/plan')).body as { version: number }).version, 0);
        return;
      }
      const tenants = asked.map(({ arguments: [tenantId] }) => tenantId);
      assert.equal(new Set(tenants).size, 2);
    });

    test('is 503 with Retry-After while keys or the store cannot be read', async () => {
      unavailable.length = 0;
      for (const { ask, errors } of [noKeys, isOfKeys(path) ? undefined : noStore].filter((one) => one !== undefined)) {
        const { status, body, headers } = await ask(path, options);
        assert.equal(status, 503);
        assert.equal(headers['retry-after'], '1');
        assert.deepEqual(body, { error: 'service temporarily unavailable', trace_id: headers['x-trace-id'] });
        assert.deepEqual(errors, []);
      }
      assert.deepEqual(unavailable, Array(isOfKeys(path) ? 1 : 2).fill('StoreUnavailableError'));
    });

    if (method === 'GET') {
      test('responds to HEAD as to GET, without the body, and needs the key for it', async () => {
        const { ask } = app;
        const get = await ask(path);
        const head = await ask(path, { method: 'HEAD' });
        assert.deepEqual([head.status, head.text], [200, '']);
        assert.equal(head.headers['content-length'], get.headers['content-length']);
        assert.equal((await ask(path, { method: 'HEAD', key: null })).status, 401);
      });
    }

    test('is 405 for methods that it does not have', async () => {
      for (const other of path === '/plan' ? ['PATCH', 'OPTIONS'] : ['PUT', 'PATCH', 'OPTIONS']) {
        const { status, headers } = await app.ask(path, { method: other });
        assert.equal(status, 405);
        assert.ok(headers.allow?.includes(method));
      }
    });
  });
}

test('a key that is revoked stops reading within two seconds', async (t) => {
  const { ask, keyId, keyStore } = await startReadingApp(t);
  assert.equal((await ask('/events')).status, 200);
  await keyStore.revoke(keyId, NOW);
  const later = performance.now() + 2_000;
  t.mock.method(performance, 'now', () => later);
  assert.equal((await ask('/events')).status, 401);
});

suite('An id that cannot be one', () => {
  const hostile = [
    'x',
    '{id}',
    '%00',
    '%27%20OR%201=1--',
    "'; DROP TABLE nodes;--".replaceAll(' ', '%20'),
    '..%2f..%2fkeys.db',
    '__proto__',
    'constructor',
    `${PROFILE_ID}%00`,
    ` ${PROFILE_ID}`.replace(' ', '%20'),
    `${PROFILE_ID}0`,
    PROFILE_ID.replaceAll('-', ''),
    'x'.repeat(10_000),
    '%F0%9F%98%80',
    '%zz',
    '%ff',
  ];

  for (const id of hostile) {
    test(`is not found: ${id.slice(0, 40)}`, async () => {
      const asked = await askedBy(async () => {
        for (const { path, options } of CALLS) {
          const changed = path.replace(PROFILE_ID, id).replace(TRACE_ID, id);
          if (changed === path) continue;
          const { status, body } = await app.ask(changed, options);
          assert.equal(status, 404, changed);
          assert.deepEqual(Object.keys(body as object), ['error', 'trace_id']);
        }
      });
      assert.deepEqual([asked, app.errors], [[], []]);
    });
  }

  test('is not found: an unknown one', async (t) => {
    const { ask } = await startReadingApp(t);
    const nobody = '019a8262-f0d8-83b1-a1c5-000000000000';
    for (const { path, options } of CALLS) {
      const changed = path.replace(PROFILE_ID, nobody).replace(TRACE_ID, nobody);
      if (changed !== path) assert.equal((await ask(changed, options)).status, 404, changed);
    }
    assert.equal((await ask('/profiles?user_id=nobody')).status, 404);
  });
});

/** An empty list, or none. */
function isNothing(value: unknown): boolean {
  return value === 0 || (Array.isArray(value) && value.length === 0);
}
