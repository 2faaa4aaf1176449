/**
 * Who may send: the 401 in all its cases, keys that are made and revoked beside a running server, deployments for one
 * environment, the order of the checks, and what happens when keys or disk cannot be used. Over HTTP, with real keys.
 */

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { makeKey as makeUnknownKey } from '../../src/keys/format.ts';
import { type HttpResponse, createKey, eventually, post, runSluice, user } from '../server.ts';
import { ask, logOf, makeKey, metric, recordOf, useServer, UUID_V7, withWrongChecksum } from './fixture.ts';

const GOOD = JSON.stringify({ users: [user('ada')] });
const TOO_LARGE = Buffer.alloc(10_485_761, ' ');
/** The promise: requests that are sent later than this after a change of keys see it. */
const TAKES_EFFECT_MS = 2_000;

function assertUnauthorized(response: HttpResponse): void {
  assert.equal(response.status, 401);
  assert.equal(response.text, '{"error":"unauthorized"}');
  assert.match(response.headers.get('x-trace-id') ?? '', UUID_V7);
}

function assertUnavailable(response: HttpResponse): void {
  assert.equal(response.status, 503);
  const trace_id = response.headers.get('x-trace-id');
  assert.deepEqual(response.body, { error: 'service temporarily unavailable', trace_id });
  assert.match(response.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
}

suite('Keys at POST /ingest/events', () => {
  const server = useServer();
  const sendWith = (authorization: string | null): Promise<HttpResponse> =>
    post(server(), null, GOOD, authorization === null ? {} : { authorization });

  /** The first response by which the change is seen; how late it was asked for does not count. */
  async function takesEffect(
    what: string,
    key: string,
    isSeen: (response: HttpResponse) => boolean,
  ): Promise<HttpResponse> {
    const changedAt = performance.now();
    let lastUnseen = 0;
    const response = await eventually(what, async () => {
      const sentAt = performance.now();
      const received = await sendWith(`Bearer ${key}`);
      if (isSeen(received)) return received;
      lastUnseen = sentAt - changedAt;
      return null;
    });
    assert.ok(lastUnseen <= TAKES_EFFECT_MS, `not yet after ${lastUnseen} ms`);
    return response;
  }

  test('a request without a key gets 401, and the body says nothing more', async () => {
    assertUnauthorized(await sendWith(null));
    assertUnauthorized(await sendWith(''));
  });

  test('an Authorization header of another form gets 401', async () => {
    const { key } = server();
    for (const header of [
      key,
      'Bearer',
      'Bearer ',
      `Basic ${key}`,
      `Bearer${key}`,
      `Bearer ${key} x`,
      `Bearer "${key}"`,
    ]) {
      assertUnauthorized(await sendWith(header));
    }
  });

  test('the word Bearer is taken in any case', async () => {
    assert.equal((await sendWith(`bearer ${server().key}`)).status, 202);
    assert.equal((await sendWith(`BEARER  ${server().key}`)).status, 202);
  });

  test('a key that is malformed, mistyped or unknown gets 401', async () => {
    const { key } = server();
    const wrong = [key.slice(0, -1), `${key}0`, key.toUpperCase(), key.replace('sk_dev_', 'sk_prod_'), 'sk_dev_', '*'];
    for (const one of [...wrong, withWrongChecksum(key), makeUnknownKey('secret', 'development')]) {
      assertUnauthorized(await sendWith(`Bearer ${one}`));
    }
  });

  test('a key that is revoked or expired gets 401', async () => {
    const revoked = await makeKey(server().dataFolder, { revoked: true });
    const expired = await makeKey(server().dataFolder, { expired: true });
    assertUnauthorized(await sendWith(`Bearer ${revoked.key}`));
    assertUnauthorized(await sendWith(`Bearer ${expired.key}`));
  });

  test('a key made by the command beside the running server works within 2 s', async () => {
    const { key } = await createKey(server().dataFolder, { kind: 'publishable', env: 'production' });
    const response = await takesEffect('the new key works', key, ({ status }) => status === 202);
    const record = await recordOf(server(), response);
    assert.equal(record?.keyKind, 'publishable');
    assert.match(record.tenantId, /\/production$/);
  });

  test('a key revoked by the command stops working within 2 s, also while it is in use', async () => {
    const { id, key } = await makeKey(server().dataFolder);
    assert.equal((await sendWith(`Bearer ${key}`)).status, 202);
    const { code } = await runSluice(['keys', 'revoke', id], { SLUICE_DATA: server().dataFolder });
    assert.equal(code, 0);
    const refused = await takesEffect('the revoked key is refused', key, ({ status }) => status !== 202);
    assertUnauthorized(refused);
    assert.equal((await sendWith(`Bearer ${server().key}`)).status, 202);
  });

  test('several keys of one account work at once and write to the same tenant', async () => {
    const keys = [await makeKey(server().dataFolder), await makeKey(server().dataFolder)];
    const responses = await Promise.all(keys.map(({ key }) => sendWith(`Bearer ${key}`)));
    const records = await Promise.all(responses.map((response) => recordOf(server(), response)));
    assert.deepEqual(
      records.map((record) => record?.keyId),
      keys.map(({ id }) => id),
    );
    assert.equal(records[0]?.tenantId, records[1]?.tenantId);
  });

  test('what is wrong is reported in order: method, key, type and encoding, size, JSON', async () => {
    const { key } = server();
    const put = await ask(server(), '/ingest/events', { method: 'PUT', body: TOO_LARGE });
    assert.equal(put.status, 405);
    const badType = { 'content-type': 'text/html', 'content-encoding': 'none' };
    assertUnauthorized(await post(server(), withWrongChecksum(key), TOO_LARGE, badType));
    const message = async (body: string | Buffer, headers: Record<string, string>): Promise<unknown> => {
      const response = await post(server(), key, body, headers);
      return [response.status, (response.body as { message?: string }).message?.split(' ')[0]];
    };
    assert.deepEqual(await message(TOO_LARGE, badType), [400, 'Content-Type']);
    assert.deepEqual(await message(TOO_LARGE, { 'content-encoding': 'none' }), [400, 'Content-Encoding']);
    assert.deepEqual(await message(TOO_LARGE, { 'idempotency-key': '' }), [400, 'Idempotency-Key']);
    assert.deepEqual(await message(TOO_LARGE, {}), [413, undefined]);
    assert.deepEqual(await message('{', {}), [400, 'body']);
  });
});

suite('A server that may not write because the disk is nearly full', () => {
  const server = useServer({ env: { SLUICE_DISK_FREE_MIN: '1000000GB' } });

  test('it responds with 503 and the time to retry after, and says so to load balancers', async () => {
    assertUnavailable(await post(server(), server().key, GOOD));
    assert.equal((await ask(server(), '/readyz')).status, 503);
    assert.equal((await ask(server(), '/livez')).status, 200);
    assert.deepEqual(await logOf(server()), []);
  });

  test('it still tells what is wrong before admission, and does not look at the JSON after', async () => {
    assertUnauthorized(await post(server(), null, GOOD));
    assert.equal((await post(server(), server().key, GOOD, { 'content-type': 'text/html' })).status, 400);
    assert.equal((await post(server(), server().key, TOO_LARGE)).status, 413);
    assertUnavailable(await post(server(), server().key, '{'));
  });
});

for (const [own, other] of [
  ['production', 'development'],
  ['development', 'production'],
] as const) {
  suite(`A deployment for ${own}`, () => {
    const server = useServer({ env: { SLUICE_ENVIRONMENT: own } });

    test(`it takes keys of ${own} and responds with 401 to those of ${other}`, async () => {
      for (const kind of ['secret', 'publishable'] as const) {
        const [good, bad] = await Promise.all([
          makeKey(server().dataFolder, { kind, environment: own }),
          makeKey(server().dataFolder, { kind, environment: other }),
        ]);
        assert.equal((await post(server(), good.key, GOOD)).status, 202);
        assertUnauthorized(await post(server(), bad.key, GOOD));
      }
    });
  });
}

suite('A server whose key store cannot be read', () => {
  const server = useServer();

  test('it responds with 503 to keys that it does not know, never 401, and continues with those that it does', async () => {
    const { dataFolder, key } = server();
    assert.equal((await post(server(), key, GOOD)).status, 202);
    const fresh = await makeKey(dataFolder);
    for (const file of ['keys.db', 'keys.db-wal']
      .map((name) => join(dataFolder, name))
      .filter((name) => existsSync(name))) {
      writeFileSync(file, randomBytes(Math.max(readFileSync(file).length, 65_536)), { flag: 'r+' });
    }
    assertUnavailable(await post(server(), fresh.key, GOOD));
    assertUnavailable(await post(server(), makeUnknownKey('secret', 'development'), GOOD));
    assert.equal(await metric(server(), 'sluice_unavailable_total{reason="keys"}'), 2);
    assertUnauthorized(await post(server(), withWrongChecksum(fresh.key), GOOD));
    assert.equal((await post(server(), key, GOOD)).status, 202);
  });
});
