/**
 * The routes for the SDKs of Segment and RudderStack over HTTP: keys, forms of bodies, and each response that an SDK would
 * misread if it were like that of `POST /ingest/events`.
 */

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { suite, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Check } from 'typebox/value';
import type { OpenApiDocument } from '../../src/api/openapi-document.ts';
import type { Response as OpenApiResponse } from '../../src/api/openapi-types.ts';
import { inlined } from '../api/document.ts';
import { eventually, get, type HttpResponse, processed, readResponse, type TestServer } from '../server.ts';
import { ask, bodyText, makeKey, metric, recordOf, useServer } from './fixture.ts';

const TRACK = { type: 'track', event: 'Order Completed', userId: 'ada', properties: { revenue: 3 } };
const BROKEN = { type: 'track', userId: 'ada' };
const NO_EVENT = 'event is required and must be a non-empty string';
const PAGE = 'https://shop.example';

interface Trace {
  readonly status: string;
  readonly users: {
    readonly profile_id: string | null;
    readonly warnings: string[];
    readonly merged: unknown[];
  }[];
}

function basic(key: string): Record<string, string> {
  return { authorization: `Basic ${Buffer.from(`${key}:`).toString('base64')}` };
}

async function send(
  server: TestServer,
  path: string,
  body: unknown,
  headers: Record<string, string> = basic(server.key),
): Promise<HttpResponse> {
  const bytes = typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
  const init = { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: bytes };
  return readResponse(await fetch(`${server.baseUrl}/ingest/${path}`, init));
}

function failure(response: HttpResponse): Record<string, unknown> {
  const { success, trace_id, ...rest } = response.body as Record<string, unknown>;
  assert.equal(success, false);
  assert.equal(trace_id, response.headers.get('x-trace-id'));
  assert.ok(typeof rest['message'] === 'string' && rest['message'] !== '');
  return rest;
}

suite('The routes for Segment’s SDKs', () => {
  const server = useServer();
  const ofSecretKey = (path: string): Promise<HttpResponse> => get(server(), server().key, path);

  const processedTrace = (response: HttpResponse): Promise<Trace> =>
    processed(server(), server().key, response.headers.get('x-trace-id') ?? '');

  test('a batch gets 200 with counts of messages, and its trace says that it came in Segment’s form', async () => {
    const response = await send(server(), 'v1/batch', { batch: [TRACK, { ...TRACK, event: 'Refunded' }] });
    const traceId = response.headers.get('x-trace-id');
    assert.equal(response.status, 200);
    assert.deepEqual(response.body, { success: true, trace_id: traceId, accepted: 2, rejected: 0, errors: [] });
    const formatOf = async () => ((await ofSecretKey(`/traces/${traceId}`)).body as { format: string }).format;
    assert.equal(await formatOf(), 'segment');
    await processedTrace(response);
    assert.equal(await formatOf(), 'segment');
  });

  test('a batch that is valid in part gets 200, and the others are kept as they were sent', async () => {
    const response = await send(server(), 'v1/batch', { batch: [BROKEN, TRACK] });
    const trace_id = response.headers.get('x-trace-id');
    assert.equal(response.status, 200);
    const errors = [{ index: 0, message: NO_EVENT }];
    assert.deepEqual(response.body, { success: true, trace_id, accepted: 1, rejected: 1, errors });
    const rejection = await eventually('the rejection is stored', async () => {
      const { body } = await ofSecretKey('/rejections');
      const { rejections } = body as { rejections: { trace_id: string; message: string; payload: unknown }[] };
      return rejections.find((one) => one.trace_id === trace_id);
    });
    assert.deepEqual([rejection.message, rejection.payload], [NO_EVENT, BROKEN]);
  });

  test('a rejected message is kept without the key that it came with', async () => {
    const answer = await send(server(), 'v1/track', { ...BROKEN, writeKey: server().key }, {});
    assert.equal(answer.status, 400);
    const body = bodyText(await recordOf(server(), answer));
    assert.deepEqual(JSON.parse(body), { users: [BROKEN] });
  });

  test('a batch without any valid message gets 400 with code and message, and an error for each', async () => {
    const response = await send(server(), 'v1/batch', { batch: [BROKEN] });
    assert.equal(response.status, 400);
    assert.deepEqual(failure(response), {
      error: 'validation failed',
      code: 'validation_failed',
      message: 'no message is valid: see errors',
      accepted: 0,
      rejected: 1,
      errors: [{ index: 0, message: NO_EVENT }],
    });
  });

  test('every route of messages takes them, with the type that the route says', async () => {
    const names = new Map([
      ['track t', 'Order Completed'],
      ['identify i', '$identify'],
      ['page p', 'page_viewed'],
      ['screen s', 'screen_viewed'],
      ['group g', '$group'],
      ['alias a', '$alias'],
    ]);
    const message = { ...TRACK, groupId: 'g', previousId: 'anon' };
    for (const [routes, name] of names) {
      for (const route of routes.split(' ')) {
        const response = await send(server(), `v1/${route}`, message);
        assert.equal(response.status, 200, route);
        assert.ok(bodyText(await recordOf(server(), response)).includes(`"event_name":"${name}"`), route);
      }
    }
    for (const route of ['v1/batch', 'v1/b', 'v1/import', 'v1/import/', 'beacon/v1/batch']) {
      assert.equal((await send(server(), route, { batch: [TRACK] })).status, 200, route);
    }
  });

  test('a key is taken from Basic, from the body, and, if it is publishable, from the address', async () => {
    const { key: secret } = server();
    const { key: publishable } = await makeKey(server().dataFolder, { kind: 'publishable' });
    const large = { ...TRACK, properties: { pad: 'x'.repeat(40_000) } };
    for (const key of [secret, publishable]) {
      assert.equal((await send(server(), 'v1/batch', { batch: [TRACK] }, basic(key))).status, 200);
      assert.equal((await send(server(), 'v1/batch', { batch: [TRACK], writeKey: key }, {})).status, 200);
      assert.equal((await send(server(), 'v1/batch', { batch: [large], writeKey: key }, {})).status, 200);
      assert.equal((await send(server(), 'v1/t', { ...TRACK, writeKey: key }, {})).status, 200);
    }
    const inAddress = (key: string) => send(server(), `beacon/v1/batch?writeKey=${key}`, { batch: [TRACK] }, {});
    assert.equal((await inAddress(publishable)).status, 200);
    assert.equal((await inAddress(secret)).status, 401);
  });

  test('without a valid key the response is 401 with code and message, and nothing is stored', async () => {
    const NO_KEY = 'no key found: send the write key as the user of Authorization: Basic, or as writeKey in the body';
    const INVALID = 'the key is not valid: unknown, revoked, expired or for another environment';
    const { key: revoked } = await makeKey(server().dataFolder, { revoked: true });
    const { key: expired } = await makeKey(server().dataFolder, { expired: true });
    const without = [{}, basic(''), basic('nonsense'), { authorization: 'Basic %%' }, basic(revoked), basic(expired)];
    const responses = await Promise.all(
      without.map((headers) => send(server(), 'v1/batch', { batch: [TRACK] }, headers)),
    );
    responses.push(await send(server(), 'v1/batch', { batch: [TRACK], writeKey: revoked }, {}));
    responses.push(await send(server(), 'v1/batch', 'not even JSON', {}));
    for (const response of responses) {
      assert.equal(response.status, 401);
      assert.equal(failure(response)['code'], 'unauthorized');
      assert.equal(await recordOf(server(), response), undefined);
    }
    assert.deepEqual(
      responses.map((response) => String(failure(response)['message']).split(';')[0]),
      [NO_KEY, NO_KEY, INVALID, NO_KEY, INVALID, INVALID, INVALID, NO_KEY],
    );
  });

  test('bodies may be plain text, compressed, chunked, and larger than what is converted at once', async () => {
    const batch = JSON.stringify({ batch: [TRACK] });
    const plain = { ...basic(server().key), 'content-type': 'text/plain;charset=UTF-8' };
    assert.equal((await send(server(), 'v1/batch', batch, plain)).status, 200);
    // As rudder-sdk-node sends them.
    const form = 'application/x-www-form-urlencoded';
    const gzip = { ...basic(server().key), 'content-encoding': 'gzip', 'content-type': form };
    assert.equal((await send(server(), 'v1/batch', gzipSync(batch), gzip)).status, 200);
    const chunked = new ReadableStream({
      start(controller) {
        for (const part of batch.match(/.{1,20}/g) ?? []) controller.enqueue(Buffer.from(part));
        controller.close();
      },
    });
    const init = { method: 'POST', headers: { 'content-type': 'application/json', ...basic(server().key) } };
    const response = await fetch(`${server().baseUrl}/ingest/v1/batch`, {
      ...init,
      body: chunked,
      duplex: 'half',
    });
    assert.equal(response.status, 200);
    await response.text();
    const many = { batch: Array.from({ length: 2_500 }, (_, index) => ({ ...TRACK, userId: `user-${index}` })) };
    const large = await send(server(), 'v1/batch', many);
    assert.equal((large.body as { accepted: number }).accepted, 2_500);
    assert.equal((await recordOf(server(), large))?.userCount, 2_500);
    assert.equal((await processedTrace(large)).users.length, 2_500);
  });

  test('bodies that cannot be used get 400 or 413 with code and message', async () => {
    const unusable: [body: string | Buffer, headers: Record<string, string>, status: number, message: RegExp][] = [
      ['{', {}, 400, /^body is not valid JSON/],
      [Buffer.from([0x7b, 0xff]), {}, 400, /^body is not valid UTF-8/],
      ['{}', { 'content-type': 'text/plain;charset=utf-16' }, 400, /^the charset of Content-Type must be/],
      ['{}', { 'content-encoding': 'gzip' }, 400, /^body cannot be decompressed/],
      ['{}', {}, 400, /^batch is required/],
      ['x'.repeat(10_485_761), {}, 413, /must not exceed 10485760 bytes/],
    ];
    for (const [body, headers, status, message] of unusable) {
      const response = await send(server(), 'v1/batch', body, { ...basic(server().key), ...headers });
      assert.equal(response.status, status);
      assert.match(String(failure(response)['message']), message);
      assert.equal(typeof failure(response)['code'], 'string');
    }
  });

  test('measurements of SDKs get 200 without a key and are not kept', async () => {
    const before = await metric(server(), 'sluice_log_entries_total');
    const response = await send(server(), 'v1/m', { series: [{ type: 'Counter', metric: 'x', value: 1 }] }, {});
    assert.deepEqual([response.status, response.body], [200, { success: true }]);
    assert.equal(await metric(server(), 'sluice_log_entries_total'), before);
  });

  test('the settings of a publishable key get exactly 200 and say where to send', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable' });
    const response = await ask(server(), `/ingest/v1/projects/${key}/settings`, { headers: { origin: PAGE } });
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('access-control-allow-origin'), '*');
    const apiHost = `127.0.0.1:${server().port}/ingest/v1`;
    assert.deepEqual(response.body, {
      integrations: { 'Segment.io': { apiKey: key, apiHost, protocol: 'http' } },
      plan: { track: { __default: { enabled: true } } },
    });
    for (const wrong of [server().key, 'nonsense', '%00']) {
      assert.equal((await ask(server(), `/ingest/v1/projects/${wrong}/settings`)).status, 401);
    }
  });

  test('the settings of RudderStack’s browser SDK name an enabled source without destinations', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable' });
    const path = `/ingest/sourceConfig/?p=npm&v=3&writeKey=${key}`;
    for (const headers of [{}, basic(key)]) {
      const { status, body } = await ask(server(), path, { headers });
      const { source } = body as { source: Record<string, unknown> };
      assert.equal(status, 200);
      assert.deepEqual([source['enabled'], source['destinations'], source['writeKey']], [true, [], key]);
    }
  });

  test('a preflight allows the headers that browser SDKs send', async () => {
    for (const path of ['v1/t', 'v1/batch', 'v1/projects/x/settings', 'sourceConfig/', 'beacon/v1/batch']) {
      const response = await ask(server(), `/ingest/${path}`, { method: 'OPTIONS', headers: { origin: PAGE } });
      assert.equal(response.status, 204);
      assert.equal(response.headers.get('access-control-allow-origin'), '*');
      assert.match(String(response.headers.get('access-control-allow-methods')), /GET, POST/);
      const allowed = String(response.headers.get('access-control-allow-headers')).split(', ');
      for (const name of ['Authorization', 'Content-Type', 'X-Retry-Count', 'AnonymousId', 'SentAt', '*']) {
        assert.ok(allowed.includes(name), name);
      }
    }
  });

  test('a key with a list of origins is refused elsewhere, and a secret key on a page gets no CORS headers', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable', origins: [PAGE] });
    const from = (origin: string, key: string) => send(server(), 'v1/t', { ...TRACK, writeKey: key }, { origin });
    assert.equal((await from(PAGE, key)).headers.get('access-control-allow-origin'), PAGE);
    assert.equal((await from('https://other.example', key)).status, 403);
    assert.equal((await from(PAGE, server().key)).headers.get('access-control-allow-origin'), null);
  });

  test('other methods get 405 and other paths 404, with code and message', async () => {
    const get = await ask(server(), '/ingest/v1/batch');
    assert.deepEqual([get.status, get.headers.get('allow')], [405, 'POST, OPTIONS']);
    assert.equal(failure(get)['code'], 'method_not_allowed');
    for (const path of ['v1/unknown', 'v1/', 'sourceConfigX', 'v1/batch/x']) {
      const response = await send(server(), path, { batch: [TRACK] });
      assert.equal(response.status, 404, path);
      assert.equal(failure(response)['code'], 'not_found');
    }
  });

  test('requests that mean two things to two servers get 400 with code and message too: Python would retry one without', async () => {
    const lines = ['POST /ingest/v1/batch HTTP/1.1', 'Host: x', 'Connection: close', 'Content-Length: 0'];
    const head = [...lines, 'Authorization: Basic YTo=', 'Authorization: Basic Yjo='].join('\r\n');
    const socket = connect(server().port, '127.0.0.1');
    socket.end(`${head}\r\n\r\n`);
    const [top = '', body = ''] = (await text(socket)).split('\r\n\r\n');
    assert.match(top, /^HTTP\/1\.1 400 /);
    const { success, code, message } = JSON.parse(body) as Record<string, unknown>;
    assert.deepEqual(
      [success, code, message],
      [false, 'validation_failed', 'the Authorization header must not be sent twice'],
    );
  });

  test('an alias of two people who are known by different user ids is refused, and the trace says so', async () => {
    const call = (message: object) => send(server(), 'v1/batch', { batch: [message] });
    await call({ type: 'identify', userId: 'owner', anonymousId: 'tablet' });
    await call({ type: 'identify', userId: 'other' });
    const response = await call({ type: 'alias', userId: 'other', previousId: 'tablet' });
    assert.equal(response.status, 200);
    const trace = await processedTrace(response);
    assert.deepEqual(trace.users[0]?.warnings, [
      'identifiers.anon_id was not linked: it belongs to a profile with another user_id',
    ]);
    const personOf = async (identifier: string): Promise<unknown> =>
      ((await ofSecretKey(`/profiles?${identifier}`)).body as { id: string }).id;
    assert.equal(await personOf('anon_id=tablet'), await personOf('user_id=owner'));
    assert.equal(trace.users[0]?.profile_id, await personOf('user_id=other'));
    assert.notEqual(await personOf('user_id=owner'), await personOf('user_id=other'));
  });

  test('an alias of a visitor who is not known by a user id makes one person of two', async () => {
    const call = (message: object) => send(server(), 'v1/batch', { batch: [message] });
    await call({ type: 'track', event: 'Visited', anonymousId: 'visitor' });
    await call({ type: 'identify', userId: 'member' });
    const trace = await processedTrace(await call({ type: 'alias', userId: 'member', previousId: 'visitor' }));
    assert.deepEqual([trace.users[0]?.warnings, trace.users[0]?.merged.length], [[], 1]);
    const { body } = await ofSecretKey('/profiles?anon_id=visitor');
    assert.deepEqual((body as { identifiers: { user_id: string[] } }).identifiers.user_id, ['member']);
  });

  test('every accepted message is accounted for, also one that was sent twice', async () => {
    const { key } = await makeKey(server().dataFolder, { account: 'accounted' });
    const batch = [{ ...TRACK, messageId: 'a' }, { ...TRACK, messageId: 'a' }, { ...TRACK, messageId: 'b' }, BROKEN];
    assert.equal((await send(server(), 'v1/batch', { batch }, basic(key))).status, 200);
    const events = await eventually('it is processed', async () => {
      const { body } = await ask(server(), '/ledger', { headers: { authorization: `Bearer ${key}` } });
      const { events } = (body as { totals: { events: Record<string, number> } }).totals;
      return events['pending'] === 0 && events['stored'] !== 0 ? events : undefined;
    });
    const { received, stored, duplicates, difference } = events;
    assert.deepEqual(
      { received, stored, duplicates, difference },
      { received: 3, stored: 2, duplicates: 1, difference: 0 },
    );
  });

  test('every response is as the OpenAPI document says', async () => {
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable', origins: [PAGE] });
    const document = (await ask(server(), '/openapi.json')).body as OpenApiDocument;
    const post = (path: string, body: unknown, headers: Record<string, string>): Promise<HttpResponse> =>
      send(server(), path, body, headers);
    const elsewhere = { ...basic(key), origin: 'https://other.example' };
    const get = (path: string, headers = {}): Promise<HttpResponse> => ask(server(), path, { headers });
    const responses: [path: string, method: 'get' | 'post', status: number, response: HttpResponse][] = [
      ['/ingest/v1/batch', 'post', 200, await post('v1/batch', { batch: [TRACK, BROKEN] }, basic(key))],
      ['/ingest/v1/batch', 'post', 400, await post('v1/batch', { batch: [BROKEN] }, basic(key))],
      ['/ingest/v1/batch', 'post', 400, await post('v1/batch', '{', basic(key))],
      ['/ingest/v1/batch', 'post', 401, await post('v1/batch', { batch: [TRACK] }, {})],
      ['/ingest/v1/batch', 'post', 403, await post('v1/batch', { batch: [TRACK] }, elsewhere)],
      ['/ingest/v1/batch', 'post', 413, await post('v1/batch', 'x'.repeat(10_485_761), basic(key))],
      ['/ingest/v1/{type}', 'post', 200, await post('v1/track', TRACK, basic(key))],
      ['/ingest/v1/m', 'post', 200, await post('v1/m', {}, {})],
      ['/ingest/beacon/v1/batch', 'post', 200, await post(`beacon/v1/batch?writeKey=${key}`, { batch: [TRACK] }, {})],
      ['/ingest/v1/projects/{key}/settings', 'get', 200, await get(`/ingest/v1/projects/${key}/settings`)],
      ['/ingest/v1/projects/{key}/settings', 'get', 401, await get('/ingest/v1/projects/x/settings')],
      ['/ingest/sourceConfig/', 'get', 200, await get('/ingest/sourceConfig/', basic(key))],
      ['/ingest/sourceConfig/', 'get', 401, await get('/ingest/sourceConfig/')],
    ];
    for (const [path, method, status, response] of responses) {
      assert.equal(response.status, status, `${method} ${path}`);
      const described = document.paths[path]?.[method]?.responses[status] as OpenApiResponse | undefined;
      const schema = described?.content?.['application/json']?.schema;
      assert.ok(schema && Check(inlined(document, schema) as object, response.body), `${path} ${response.text}`);
    }
    const paths = Object.keys(document.paths).filter((path) => /^\/ingest\/(?!events(\/check)?$)/.test(path));
    assert.deepEqual(new Set(paths), new Set(responses.map(([path]) => path)));
  });

  test('the same message again is stored once, and the trace of the second request says so', async () => {
    const message = { ...TRACK, userId: 'twice', messageId: 'message-1', timestamp: '2026-01-01T00:00:00Z' };
    for (const sentAt of ['2026-01-01T00:00:01Z', '2026-01-01T00:00:02Z']) {
      assert.equal((await send(server(), 'v1/batch', { batch: [message], sentAt })).status, 200);
    }
    const { events, duplicates } = await eventually('both are processed', async () => {
      const { body: ledger } = await ofSecretKey('/ledger');
      const { pending } = (ledger as { totals: { events: { pending: number } } }).totals.events;
      const { body } = await ofSecretKey('/profiles?user_id=twice');
      const count = (body as { event_count?: number }).event_count;
      const { body: traces } = await ofSecretKey('/traces?limit=1');
      const [last] = (traces as { traces: { trace_id: string; status: string }[] }).traces;
      if (pending > 0 || count === undefined || last?.status !== 'processed') return undefined;
      const { body: trace } = await ofSecretKey(`/traces/${last.trace_id}`);
      return {
        events: count,
        duplicates: (trace as { users: { duplicate_events?: number }[] }).users[0]?.duplicate_events,
      };
    });
    assert.deepEqual([events, duplicates], [1, 1]);
  });
});

suite('The routes for Segment’s SDKs on a server that cannot accept', () => {
  const server = useServer({ env: { SLUICE_DISK_FREE_MIN: '1000000GB' } });

  test('the response is 429, not 503, with Retry-After in whole seconds', async () => {
    const response = await eventually('the disk is found to be full', async () => {
      const one = await send(server(), 'v1/batch', { batch: [TRACK] });
      return one.status === 200 ? undefined : one;
    });
    assert.equal(response.status, 429);
    assert.match(String(response.headers.get('retry-after')), /^[1-9]\d*$/);
    assert.equal(failure(response)['code'], 'overloaded');
    assert.ok((await metric(server(), 'sluice_requests_total{status="429"}')) >= 1);
  });
});

suite('The routes for Segment’s SDKs on a server whose memory is taken', () => {
  const server = useServer({ env: { SLUICE_IN_FLIGHT_BYTES: '32MB' } });

  test('the response is 429 with Retry-After, and 200 once there is room', async () => {
    const head = [
      'POST /ingest/v1/batch HTTP/1.1',
      'Host: x',
      'Content-Type: application/json',
      `Authorization: ${basic(server().key)['authorization']}`,
      'Content-Length: 10000000',
    ].join('\r\n');
    // Large bodies may take three quarters of it.
    const sockets = [1, 2].map(() => connect(server().port, '127.0.0.1'));
    for (const socket of sockets) socket.write(`${head}\r\n\r\n{`);
    await eventually('they hold memory', async () => (await metric(server(), 'sluice_in_flight_bytes')) >= 20_000_000);
    const batch = [{ ...TRACK, properties: { pad: 'x'.repeat(6_000_000) } }];
    const answer = await send(server(), 'v1/batch', { batch });
    assert.deepEqual([answer.status, failure(answer)['code']], [429, 'overloaded']);
    assert.match(String(answer.headers.get('retry-after')), /^[1-9]\d*$/);
    for (const socket of sockets) socket.destroy();
    await eventually('there is room', async () => (await send(server(), 'v1/batch', { batch })).status === 200);
  });
});
