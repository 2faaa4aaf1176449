import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import { ACTIVE_KEYS_MAX } from '../../src/api/routes/keys.ts';
import { createKey } from '../../src/keys/manage.ts';
import { hashKey, isWellFormedKey } from '../../src/keys/format.ts';
import { DAY_MS } from '../../src/model.ts';
import { StoreUnavailableError } from '../../src/store-writer.ts';
import { type BrowserResponse, NOW, startMemberApp } from './member-app.ts';
import type { StartOptions } from './running-app.ts';

interface Key {
  readonly id: string;
  readonly name: string;
  readonly state: string;
  readonly is_unused: boolean;
  readonly expires_at: string | null;
  readonly [field: string]: unknown;
}

const OPTIONS = { name: 'Web shop', kind: 'secret', environment: 'development' } as const;
const NOBODY = 'key_nobody000000';
const at = (milliseconds: number): string => new Date(milliseconds).toISOString();
const messageOf = ({ body }: BrowserResponse): string => (body as { message: string }).message;

/** A signed-in member of an account, and one of another. */
async function start(context: TestContext, options: StartOptions = {}) {
  const running = await startMemberApp(context, options);
  const as = ({ cookie }: { cookie: string }) => {
    return (method: string, path: string, json?: unknown): Promise<BrowserResponse> =>
      running.ask(method, path, { cookie, json });
  };
  const ask = as(await running.join('ada@example.com'));
  const askAsStranger = as(await running.join('eve@example.com', { account: 'other' }));
  const make = async (options: object = {}): Promise<{ key: string; row: Key }> => {
    const { status, body, text } = await ask('POST', '/keys', { ...OPTIONS, ...options });
    assert.equal(status, 201, text);
    return body as { key: string; row: Key };
  };
  const list = async (): Promise<Key[]> => ((await ask('GET', '/keys')).body as { keys: Key[] }).keys;
  return { ...running, browse: running.ask, ask, askAsStranger, make, list };
}

suite('Keys of an account', () => {
  test('a key is shown in full when it is made, and listed without it', async (t) => {
    const { make, list, ask, keyStore } = await start(t);
    const { key, row } = await make({ expires_at: at(NOW + DAY_MS) });
    assert.ok(isWellFormedKey(key) && key.startsWith('sk_dev_'));
    assert.equal((await keyStore.findByHash(hashKey(key)))?.id, row.id);
    assert.deepEqual(row, {
      id: row.id,
      ...OPTIONS,
      prefix: 'sk_dev_',
      last_four: key.slice(-4),
      origins: [],
      rate_limit: null,
      created_at: at(NOW),
      expires_at: at(NOW + DAY_MS),
      revoked_at: null,
      last_used_at: null,
      last_origin: null,
      volume: { users: 0, events: 0, users_rejected: 0, requests_limited: 0 },
      leak_suspected_at: null,
      leak_origin: null,
      state: 'active',
      is_unused: false,
    });
    assert.deepEqual(await list(), [row]);
    const { text, headers } = await ask('GET', '/keys');
    assert.ok(!text.includes(key) && !text.includes(hashKey(key).toString('hex')));
    assert.equal(headers['cache-control'], 'no-store');
  });

  test('origins are kept as browsers send them', async (t) => {
    const { make } = await start(t);
    const { row } = await make({ kind: 'publishable', origins: ['HTTPS://Shop.example', 'http://localhost:3000'] });
    assert.deepEqual(row['origins'], ['https://shop.example', 'http://localhost:3000']);
    assert.equal(row['prefix'], 'pk_');
  });

  test('a key for an environment that this server does not serve is refused', async (t) => {
    const { ask, make } = await start(t, { environment: 'production' });
    const refused = await ask('POST', '/keys', OPTIONS);
    assert.deepEqual([refused.status, messageOf(refused)], [400, 'environment must be production']);
    await make({ environment: 'production' });
  });

  test('they are listed newest first, with how they stand', async (t) => {
    const { list, keyStore, accountId } = await start(t);
    const madeBefore = async (days: number, name: string, expiresAt: number | null = null): Promise<string> => {
      const now = NOW - days * DAY_MS;
      const options = { ...OPTIONS, name, origins: [], expiresAt, accountId: await accountId(), now };
      return (await createKey(keyStore, options)).row.id;
    };
    const leaked = await madeBefore(40, 'leaked');
    await madeBefore(31, 'forgotten');
    await madeBefore(31, 'forgotten and expired', NOW);
    await keyStore.revoke(await madeBefore(31, 'revoked', NOW - 1), NOW - 1);
    const rusty = await madeBefore(31, 'rusty');
    await madeBefore(29, 'new');
    await keyStore.recordUsage([
      { keyId: leaked, usedAt: NOW - 5, leakOrigin: 'https://bad.example' },
      { keyId: rusty, usedAt: NOW - 30 * DAY_MS - 1, leakOrigin: null },
    ]);
    const rows = await list();
    assert.deepEqual(
      rows.map(({ name, state, is_unused: isUnused }) => [name, state, isUnused]),
      [
        ['new', 'active', false],
        ['rusty', 'active', true],
        ['revoked', 'revoked', false],
        ['forgotten and expired', 'expired', false],
        ['forgotten', 'active', true],
        ['leaked', 'active', false],
      ],
    );
    const last = rows.at(-1);
    assert.equal(last?.['last_used_at'], at(NOW - 5));
    assert.equal(last?.['leak_suspected_at'], at(NOW - 5));
    assert.equal(last?.['leak_origin'], 'https://bad.example');
  });

  for (const [what, json, message] of [
    ['no body', undefined, /^the body must be a JSON object/],
    ['an array', [], /^the body must be a JSON object/],
    ['an unknown field', { ...OPTIONS, scope: 'x' }, /unknown field/],
    ['no name', { kind: 'secret', environment: 'development' }, /^name must be a string/],
    ['a blank name', { ...OPTIONS, name: ' ' }, /^The key name must not be empty/],
    ['another kind', { ...OPTIONS, kind: 'admin' }, /^kind must be secret or publishable/],
    ['another environment', { ...OPTIONS, environment: 'staging' }, /^environment must be production or development/],
    ['a number as expiry', { ...OPTIONS, expires_at: 5 }, /^expires_at must be an ISO 8601 time/],
    ['a day that is not', { ...OPTIONS, expires_at: '2026-02-30' }, /^expires_at must be an ISO 8601 time/],
    ['an expiry in the past', { ...OPTIONS, expires_at: at(NOW) }, /would have expired already/],
    ['a text as origins', { ...OPTIONS, origins: 'https://a.example' }, /^origins must be an array of strings/],
    [
      'a path in an origin',
      { ...OPTIONS, kind: 'publishable', origins: ['https://a.example/x'] },
      /^The origin "https/,
    ],
    ['origins of a secret key', { ...OPTIONS, origins: ['https://a.example'] }, /^Origins are for publishable keys/],
  ] as const) {
    test(`a key cannot be made with ${what}`, async (t) => {
      const { ask, list } = await start(t);
      const response = await ask('POST', '/keys', json);
      assert.equal(response.status, 400);
      assert.match(messageOf(response), message);
      assert.deepEqual(await list(), []);
    });
  }

  test('a body that tries to be more than data is refused or only data', async (t) => {
    const running = await start(t);
    const { cookie } = await running.join('bob@example.com');
    const text =
      '{"name":"x","kind":"secret","environment":"development","__proto__":{"origins":["https://a.example"]}}';
    const headers = { 'content-type': 'application/json' };
    assert.equal((await running.browse('POST', '/keys', { cookie, text, headers })).status, 400);
    assert.deepEqual(running.errors, []);
  });
});

suite('Editing a key', () => {
  test('changes what is given and nothing else', async (t) => {
    const { ask, make, list } = await start(t);
    const limit = { users_per_second: 100, burst: 1_000 };
    const { row } = await make({ kind: 'publishable', rate_limit: limit });
    assert.deepEqual(row['rate_limit'], limit);
    const edit = async (json: object) => (await ask('PATCH', `/keys/${row.id}`, json)).body;
    assert.deepEqual(await edit({ name: ' Shop ' }), { ...row, name: 'Shop' });
    assert.deepEqual(await edit({ origins: ['HTTPS://Shop.example'], rate_limit: null }), {
      ...row,
      name: 'Shop',
      origins: ['https://shop.example'],
      rate_limit: null,
    });
    const edited = await edit({ name: row.name, origins: [], rate_limit: limit });
    assert.deepEqual(edited, row);
    assert.deepEqual(await edit({}), row);
    assert.deepEqual(await list(), [row]);
  });

  test('refuses what is wrong, by name, and a key that does not work any more', async (t) => {
    const { ask, make, list } = await start(t);
    const { row } = await make();
    const message = async (json: unknown): Promise<string> => {
      const answer = await ask('PATCH', `/keys/${row.id}`, json);
      assert.equal(answer.status, 400);
      return messageOf(answer);
    };
    assert.match(await message([]), /^the body must be a JSON object/);
    assert.match(await message({ kind: 'publishable' }), /unknown field; known are name, origins, rate_limit/);
    assert.match(await message({ name: null }), /^name must be a string/);
    assert.match(await message({ name: '' }), /^The key name must not be empty/);
    assert.match(await message({ origins: 'x' }), /^origins must be an array of strings/);
    assert.match(await message({ origins: ['https://a.example'] }), /^Origins are for publishable keys/);
    for (const limit of [5, [], {}, { users_per_second: 5 }, { users_per_second: 5, burst: 5, per: 'minute' }]) {
      assert.match(await message({ rate_limit: limit }), /^rate_limit must be an object with the numbers/);
    }
    for (const rate of [0, -1, 1.5, 1_000_001]) {
      const limit = { users_per_second: rate, burst: 5 };
      assert.match(
        await message({ rate_limit: limit }),
        /^The users per second of a rate limit must be a whole number/,
      );
    }
    assert.deepEqual(await list(), [row]);
    await ask('POST', `/keys/${row.id}/revoke`, { name: row.name });
    assert.equal(await message({ name: 'x' }), 'the key is revoked: create a new key');
  });

  test('what was received with each key is listed, of the last seven days', async (t) => {
    const { make, list, keyStore } = await start(t);
    const { row } = await make({ kind: 'publishable' });
    const volume = { users: 7, events: 9, usersRejected: 2, requestsLimited: 1 };
    const use = (usedAt: number) => ({
      keyId: row.id,
      usedAt,
      leakOrigin: null,
      origin: 'https://shop.example',
      volume,
    });
    await keyStore.recordUsage([use(NOW - 7 * DAY_MS), use(NOW - 6 * DAY_MS), use(NOW)]);
    const [listed] = await list();
    assert.deepEqual(listed?.['volume'], { users: 14, events: 18, users_rejected: 4, requests_limited: 2 });
    assert.equal(listed?.['last_origin'], 'https://shop.example');
  });
});

suite('Revoking a key', () => {
  test('needs its name, and keeps the first time', async (t) => {
    const { ask, make, list, clock } = await start(t);
    const { row } = await make();
    for (const json of [{ name: 'web shop' }, {}, { name: null }]) {
      const response = await ask('POST', `/keys/${row.id}/revoke`, json);
      assert.equal(response.status, 400);
      assert.equal(messageOf(response), 'name must be the name of the key that is to be revoked');
    }
    assert.deepEqual(await list(), [row]);
    const revoked = { ...row, revoked_at: at(NOW), state: 'revoked' };
    const { status, body } = await ask('POST', `/keys/${row.id}/revoke`, { name: row.name });
    assert.deepEqual([status, body], [200, revoked]);
    clock.now += 1_000;
    assert.deepEqual((await ask('POST', `/keys/${row.id}/revoke`, { name: row.name })).body, revoked);
  });
});

suite('Rolling a key', () => {
  test('makes another like it, and lets the old one go after the overlap', async (t) => {
    const { ask, make, list, keyStore } = await start(t);
    const options = { kind: 'publishable', environment: 'production', origins: ['https://shop.example'] };
    const { key: oldKey, row: oldRow } = await make(options);
    const { status, body } = await ask('POST', `/keys/${oldRow.id}/roll`, { overlap_seconds: 3_600 });
    const { key, row, old } = body as { key: string; row: Key; old: Key };
    assert.equal(status, 201);
    assert.deepEqual(old, { ...oldRow, expires_at: at(NOW + 3_600_000) });
    assert.deepEqual(row, { ...oldRow, id: row.id, last_four: key.slice(-4) });
    assert.ok(row.id !== old.id && key !== oldKey);
    assert.equal((await keyStore.findByHash(hashKey(key)))?.id, row.id);
    assert.deepEqual(await list(), [row, old]);
  });

  test('never lets the old one live longer, and without overlap it ends at once', async (t) => {
    const { ask, make } = await start(t);
    const roll = async (id: string, seconds: number): Promise<Key> =>
      ((await ask('POST', `/keys/${id}/roll`, { overlap_seconds: seconds })).body as { old: Key }).old;
    const short = await make({ expires_at: at(NOW + 60_000) });
    assert.equal((await roll(short.row.id, 2_592_000)).expires_at, at(NOW + 60_000));
    const { expires_at: expiresAt, state } = await roll((await make()).row.id, 0);
    assert.deepEqual([expiresAt, state], [at(NOW), 'expired']);
  });

  test('a key that does not work any more is not rolled', async (t) => {
    const { ask, make, clock } = await start(t);
    const expiring = await make({ expires_at: at(NOW + 1) });
    const revoked = await make();
    await ask('POST', `/keys/${revoked.row.id}/revoke`, { name: revoked.row.name });
    clock.now += 1;
    for (const [{ row }, state] of [
      [expiring, 'expired'],
      [revoked, 'revoked'],
    ] as const) {
      const response = await ask('POST', `/keys/${row.id}/roll`, { overlap_seconds: 0 });
      assert.equal(response.status, 400);
      assert.equal(messageOf(response), `the key is ${state}: create a new key`);
    }
  });

  test('the overlap is a number of whole seconds up to 30 days', async (t) => {
    const { ask, make, list } = await start(t);
    const { row } = await make();
    for (const overlap of [-1, 0.5, 2_592_001, '60', null, undefined]) {
      const response = await ask('POST', `/keys/${row.id}/roll`, { overlap_seconds: overlap });
      assert.equal(response.status, 400);
      assert.equal(messageOf(response), 'overlap_seconds must be a whole number from 0 to 2,592,000');
    }
    assert.deepEqual(await list(), [row]);
  });

  test('an account has a bounded number of active keys; revoking one makes room', async (t) => {
    const { make, ask, keyStore, accountId: idOf } = await start(t);
    const accountId = await idOf('own');
    for (let made = 0; made < ACTIVE_KEYS_MAX - 1; made++) {
      await createKey(keyStore, { ...OPTIONS, origins: [], expiresAt: null, accountId, now: NOW });
    }
    const { row } = await make();
    const refused = await ask('POST', '/keys', OPTIONS);
    assert.equal(refused.status, 400);
    assert.match(refused.text, /has 500 active keys: revoke keys/);
    await ask('POST', `/keys/${row.id}/revoke`, { name: row.name });
    await make();
  });

  test('when the old one cannot be changed it stays as it is: never gone without another', async (t) => {
    const running = await start(t);
    t.mock.method(running.keyStore, 'expire', () => Promise.reject(new StoreUnavailableError('the disk is gone')));
    const { row } = await running.make();
    const response = await running.ask('POST', `/keys/${row.id}/roll`, { overlap_seconds: 0 });
    assert.equal(response.status, 503);
    assert.deepEqual(
      (await running.list()).map(({ name, state }) => [name, state]),
      [
        [row.name, 'active'],
        [row.name, 'active'],
      ],
    );
  });
});

suite('Who may do it', () => {
  test('the keys of another account are not there, whatever is asked', async (t) => {
    const { make, list, askAsStranger, ask } = await start(t);
    const { row } = await make();
    assert.deepEqual((await askAsStranger('GET', '/keys')).body, { keys: [] });
    for (const [path, json] of [
      [`/keys/${row.id}/revoke`, { name: row.name }],
      [`/keys/${row.id}/revoke`, { name: 'a guess' }],
      [`/keys/${row.id}/roll`, { overlap_seconds: 0 }],
      [`/keys/${row.id}`, { name: 'mine' }],
    ] as const) {
      const method = path.endsWith(row.id) ? 'PATCH' : 'POST';
      const { status, text } = await askAsStranger(method, path, json);
      const unknown = await ask(method, path.replace(row.id, NOBODY), json);
      assert.deepEqual([status, unknown.status], [404, 404], path);
      const shapeOf = (response: string): unknown => ({ ...(JSON.parse(response) as object), trace_id: '' });
      assert.deepEqual(shapeOf(text), shapeOf(unknown.text));
    }
    assert.deepEqual(await list(), [row]);
  });

  test('are refused without a session, even with a secret key; from another page nothing is changed', async (t) => {
    const running = await start(t);
    const { make, list } = running;
    const { key, row } = await make();
    const { cookie } = await running.join('bob@example.com');
    for (const [method, path, json] of [
      ['GET', '/keys', undefined],
      ['POST', '/keys', OPTIONS],
      ['POST', `/keys/${row.id}/revoke`, { name: row.name }],
      ['POST', `/keys/${row.id}/roll`, { overlap_seconds: 0 }],
      ['PATCH', `/keys/${row.id}`, { name: 'mine' }],
    ] as const) {
      const withKey = { authorization: `Bearer ${key}` };
      assert.equal((await running.browse(method, path, { json })).status, 401, path);
      assert.equal((await running.browse(method, path, { json, headers: withKey })).status, 401, path);
      if (method === 'GET') continue;
      for (const origin of ['https://evil.example', null]) {
        assert.equal((await running.browse(method, path, { json, cookie, origin })).status, 403, path);
      }
    }
    assert.deepEqual(await list(), [row]);
  });

  test('a key store that cannot be read is 503, without details', async (t) => {
    const { ask, keyStore } = await start(t);
    t.mock.method(keyStore, 'list', () => Promise.reject(new StoreUnavailableError('SQLITE_IOERR secret detail')));
    const { status, text } = await ask('GET', '/keys');
    assert.equal(status, 503);
    assert.ok(!text.includes('detail'));
  });
});
