/**
 * What web pages get: preflights, CORS headers for publishable keys, none for secret ones, none outside `/ingest/`. The
 * form for pages that are closing, with the key in the query. And secret keys that turn up on a page.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { type HttpResponse, eventually, post, runSluice, type TestServer, user } from '../server.ts';
import { ask, makeKey, recordOf, useServer, UUID_V7, withWrongChecksum } from './fixture.ts';

const GOOD = JSON.stringify({ users: [user('ada')] });
const PAGE = 'https://shop.example';

function corsHeadersOf({ headers }: HttpResponse): Record<string, string> {
  return Object.fromEntries([...headers].filter(([name]) => name.startsWith('access-control-')));
}

interface ListedKey {
  readonly id: string;
  readonly state: string;
  readonly last_used_at: string | null;
  readonly leak_origin: string | null;
  readonly leak_suspected_at: string | null;
}

async function listedKeys({ dataFolder }: TestServer): Promise<Map<string, ListedKey>> {
  const { stdout } = await runSluice(['keys', 'list', '--json'], { SLUICE_DATA: dataFolder });
  return new Map((JSON.parse(stdout) as ListedKey[]).map((key) => [key.id, key]));
}

suite('Web pages at POST /ingest/events', () => {
  const server = useServer();

  test('a preflight gets 204 with all that a page needs, and without credentials', async () => {
    const response = await ask(server(), '/ingest/events', {
      method: 'OPTIONS',
      headers: {
        origin: PAGE,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,content-type,idempotency-key',
      },
    });
    assert.equal(response.status, 204);
    assert.equal(response.text, '');
    assert.match(response.headers.get('x-trace-id') ?? '', UUID_V7);
    assert.deepEqual(corsHeadersOf(response), {
      'access-control-allow-origin': '*',
      'access-control-allow-methods': 'POST',
      'access-control-allow-headers': 'Authorization, Content-Type, Content-Encoding, Idempotency-Key',
      'access-control-max-age': '86400',
    });
  });

  test('a publishable key may be used from any page, which may read the response and its trace_id', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable' });
    const responses = [
      await post(server(), key, GOOD, { origin: PAGE }),
      await post(server(), key, '{', { origin: PAGE }),
    ];
    assert.deepEqual(
      responses.map(({ status }) => status),
      [202, 400],
    );
    for (const response of responses) {
      assert.deepEqual(corsHeadersOf(response), {
        'access-control-allow-origin': '*',
        'access-control-expose-headers': 'X-Trace-Id, Retry-After',
      });
      assert.equal(response.headers.get('vary'), 'Origin');
    }
  });

  test('a page may read that its key is wrong', async () => {
    const response = await post(server(), null, GOOD, { origin: PAGE });
    assert.equal(response.status, 401);
    assert.equal(response.headers.get('access-control-allow-origin'), '*');
  });

  test('a key with a list of origins works from those alone, and they are named in the response', async () => {
    const origins = [PAGE, 'http://localhost:3000'];
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable', origins });
    for (const origin of origins) {
      const response = await post(server(), key, GOOD, { origin });
      assert.equal(response.status, 202);
      assert.equal(response.headers.get('access-control-allow-origin'), origin);
      assert.equal(response.headers.get('vary'), 'Origin');
    }
    assert.equal((await post(server(), key, GOOD)).status, 202);
  });

  test('a key with a list of origins gets 403 from any other page, without CORS headers', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable', origins: [PAGE] });
    for (const origin of [
      'https://other.example',
      `${PAGE}:444`,
      'http://shop.example',
      `${PAGE}.evil.example`,
      'null',
    ]) {
      const response = await post(server(), key, GOOD, { origin });
      assert.equal(response.status, 403);
      assert.deepEqual(corsHeadersOf(response), {});
      const trace_id = response.headers.get('x-trace-id');
      assert.deepEqual(response.body, {
        error: 'forbidden',
        trace_id,
        message: `this key may not be used from ${origin}`,
      });
      assert.equal(await recordOf(server(), response), undefined);
    }
  });

  test('a request without an Origin gets no CORS headers', async () => {
    assert.deepEqual(corsHeadersOf(await post(server(), server().key, GOOD)), {});
  });

  test('there are no CORS headers and no preflights anywhere else', async () => {
    for (const path of ['/livez', '/readyz', '/metrics', '/version', '/openapi.json', '/docs', '/', '/ingest/other']) {
      for (const method of ['GET', 'OPTIONS']) {
        const headers = { origin: PAGE, 'access-control-request-method': 'GET' };
        const response = await ask(server(), path, { method, headers });
        assert.deepEqual(corsHeadersOf(response), {}, path);
        assert.notEqual(response.status, 204);
      }
    }
  });

  test('a publishable key gets 403 outside /ingest/, and 404 where nothing is below it', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable' });
    const headers = { authorization: `Bearer ${key}` };
    for (const path of ['/livez', '/metrics', '/openapi.json', '/docs', '/profiles', '/ingest']) {
      assert.equal((await ask(server(), path, { headers })).status, 403, path);
    }
    assert.equal((await ask(server(), '/ingest/other', { headers })).status, 404);
  });
});

suite('The form for pages that are closing', () => {
  const server = useServer();
  const beacon = (query: string, type: string, headers: Record<string, string> = {}): Promise<HttpResponse> =>
    ask(server(), `/ingest/events${query}`, {
      method: 'POST',
      headers: { origin: PAGE, ...(type !== '' && { 'content-type': type }), ...headers },
      body: GOOD,
    });

  test('a publishable key in the query is taken, with text/plain or with application/json', async () => {
    const { key, id } = await makeKey(server().dataFolder, { kind: 'publishable' });
    for (const type of ['text/plain', 'text/plain;charset=UTF-8', 'application/json']) {
      const response = await beacon(`?key=${key}`, type);
      assert.equal(response.status, 202);
      assert.equal(response.headers.get('access-control-allow-origin'), '*');
      assert.equal((await recordOf(server(), response))?.keyId, id);
    }
    assert.equal((await beacon(`?a=1&key=${key}&b=2`, 'text/plain')).status, 202);
  });

  test('a secret key in the query gets 401, whatever the content type', async () => {
    for (const type of ['text/plain', 'application/json']) {
      const response = await beacon(`?key=${server().key}`, type);
      assert.equal(response.status, 401);
      assert.equal(response.text, '{"error":"unauthorized"}');
    }
  });

  test('text/plain with the key in the header gets 400', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable' });
    const response = await beacon('', 'text/plain', { authorization: `Bearer ${key}` });
    assert.equal(response.status, 400);
    assert.equal((response.body as { message: string }).message, 'Content-Type must be application/json');
  });

  test('a wrong, an empty and a missing key in the query get 401', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable' });
    for (const query of [`?key=${withWrongChecksum(key)}`, '?key=', '?key', '?', `?Key=${key}`, `?k=${key}`]) {
      assert.equal((await beacon(query, 'text/plain')).status, 401, query);
    }
  });

  test('the list of origins holds for a key in the query too', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable', origins: ['https://other.example'] });
    assert.equal((await beacon(`?key=${key}`, 'text/plain')).status, 403);
  });

  test('other content types get 400 with a key in the query as well', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable' });
    assert.equal((await beacon(`?key=${key}`, 'application/x-www-form-urlencoded')).status, 400);
    assert.equal((await beacon(`?key=${key}`, 'text/plainer')).status, 400);
  });
});

suite('A secret key on a web page', () => {
  const server = useServer();

  test('from another site its data is taken, the page gets no CORS headers, and the key is listed as leaked', async () => {
    const { key, id } = await makeKey(server().dataFolder);
    const atHome = await makeKey(server().dataFolder);
    const onNoPage = await makeKey(server().dataFolder);
    assert.equal((await post(server(), atHome.key, GOOD, { origin: server().baseUrl })).status, 202);
    assert.equal((await post(server(), onNoPage.key, GOOD)).status, 202);
    const response = await post(server(), key, GOOD, { origin: PAGE });
    assert.equal(response.status, 202);
    assert.deepEqual(corsHeadersOf(response), {});
    assert.equal((await post(server(), key, GOOD, { origin: 'https://second.example' })).status, 202);

    const listed = await eventually('the leak is listed', async () => {
      const keys = await listedKeys(server());
      return keys.get(id)?.leak_origin === null ? null : keys;
    });
    assert.equal(listed.get(id)?.leak_origin, PAGE);
    assert.equal(listed.get(id)?.state, 'probably leaked');
    assert.notEqual(listed.get(id)?.leak_suspected_at, null);
    // They were used before the leaked one, so what was seen of them has been written by now.
    for (const other of [atHome, onNoPage]) {
      const row = listed.get(other.id);
      assert.notEqual(row?.last_used_at, null);
      assert.deepEqual([row?.state, row?.leak_origin], ['active', null]);
    }
  });
});
