/**
 * `POST /ingest/events` over HTTP: the responses to good, partly good and bad users, and what every response has. The
 * rules for single users have their own tests; here it is their way to the wire and into the log that counts.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { type HttpResponse, post, user } from '../server.ts';
import { ask, bodyText, recordOf, useServer, UUID_V7 } from './fixture.ts';

const NO_IDENTIFIER = 'at least one identifier is required (user_id, email, phone_number, or anon_id)';
const NO_EVENTS = 'events array is required and must not be empty';

/** Asserts that the trace_id is in the header, has the right form, and returns it. */
function traceIdOf(response: HttpResponse): string {
  const traceId = response.headers.get('x-trace-id') ?? '';
  assert.match(traceId, UUID_V7);
  return traceId;
}

suite('The responses of POST /ingest/events', () => {
  const server = useServer();
  const send = (body: unknown, headers?: Record<string, string>): Promise<HttpResponse> =>
    post(server(), server().key, body, headers);

  test('a request whose users are all valid gets 202 with the counts, and nothing else', async () => {
    const response = await send({ users: [user('ada'), user('grace')] });
    assert.equal(response.status, 202);
    assert.equal(response.headers.get('content-type'), 'application/json');
    const trace_id = traceIdOf(response);
    assert.deepEqual(response.body, { trace_id, users_accepted: 2, users_rejected: 0, errors: [] });
    assert.deepEqual(Object.keys(response.body as object), ['trace_id', 'users_accepted', 'users_rejected', 'errors']);
  });

  test('an accepted request is in the log, byte for byte, by the time of its 202', async () => {
    const body = `{ "users" :[${JSON.stringify(user('béla'))} ] ,\n\t"extra":1.50}`;
    const response = await send(body);
    assert.equal(response.status, 202);
    const record = await recordOf(server(), response);
    assert.equal(bodyText(record), body);
    assert.equal(record?.userCount, 1);
    assert.equal(record.keyKind, 'secret');
    assert.match(record.tenantId, /^acct_[0-9A-Za-z]{12}\/development$/);
    assert.ok(Math.abs(record.receivedAt - Date.now()) < 60_000);
  });

  test('a request with valid and invalid users gets 202 with one entry per rejected user', async () => {
    const users = [{ events: [{ event_name: 'a' }] }, user('ok'), { identifiers: { email: 'e' } }, user('ok2'), 7];
    const response = await send({ users });
    const errors = [
      { userIndex: 0, message: NO_IDENTIFIER },
      { userIndex: 2, message: NO_EVENTS },
      { userIndex: 4, message: 'user must be an object' },
    ];
    assert.equal(response.status, 202);
    assert.deepEqual(response.body, { trace_id: traceIdOf(response), users_accepted: 2, users_rejected: 3, errors });
    const record = await recordOf(server(), response);
    assert.equal(record?.userCount, 5);
    assert.deepEqual(record.rejections, errors);
  });

  test('a request without a valid user gets 400 with one entry per user, and is kept in the log', async () => {
    const response = await send({ users: [{ identifiers: {}, events: [{ event_name: 'a' }] }, user('x', [])] });
    const errors = [
      { userIndex: 0, message: NO_IDENTIFIER },
      { userIndex: 1, message: NO_EVENTS },
    ];
    assert.equal(response.status, 400);
    assert.deepEqual(response.body, { error: 'validation failed', trace_id: traceIdOf(response), errors });
    assert.deepEqual((await recordOf(server(), response))?.rejections, errors);
  });

  test('what a client dropped goes to the log with a 202 alone: after a 400 the client reports it again', async () => {
    const bad = await send({ dropped_by_client: 3, users: [{}] });
    const good = await send({ dropped_by_client: 3, users: [{}, user('x')] });
    assert.deepEqual([bad.status, good.status], [400, 202]);
    assert.equal((await recordOf(server(), bad))?.droppedByClient, undefined);
    assert.equal((await recordOf(server(), good))?.droppedByClient, 3);
  });

  test('a thousand users are taken; each rejected one keeps its place in the request', async () => {
    const users = Array.from({ length: 1_000 }, (_, n) => (n % 100 === 99 ? {} : user(`user-${n}`)));
    const response = await send({ users });
    assert.equal(response.status, 202);
    const { users_accepted, users_rejected, errors } = response.body as {
      users_accepted: number;
      users_rejected: number;
      errors: { userIndex: number }[];
    };
    assert.deepEqual([users_accepted, users_rejected], [990, 10]);
    assert.deepEqual(
      errors.map(({ userIndex }) => userIndex),
      [99, 199, 299, 399, 499, 599, 699, 799, 899, 999],
    );
  });

  test('an integer beyond 2^53 is kept digit for digit, as is every other way to write a number', async () => {
    const numbers = '"a":12345678901234567890123,"b":-9007199254740993,"c":1.10,"d":1E+2,"e":0.1000000000000000055';
    const response = await send(`{"users":[{"identifiers":{"user_id":"n"},"events":[{"event_name":"e",${numbers}}]}]}`);
    assert.equal(response.status, 202);
    assert.ok(bodyText(await recordOf(server(), response)).includes(numbers));
  });

  test('an $event_id of 1 to 255 characters is accepted and kept, another is an error of its user', async () => {
    const event = (id: unknown): object => ({ event_name: 'e', $event_id: id });
    const users = [event('1'), event('x'.repeat(255)), event(''), event('x'.repeat(256)), event(7), event(null)];
    const response = await send({ users: users.map((one, n) => user(`u${n}`, [one])) });
    const message = 'events[0].$event_id must be a string of 1 to 255 characters';
    assert.equal(response.status, 202);
    assert.deepEqual(
      (response.body as { errors: unknown }).errors,
      [2, 3, 4].map((userIndex) => ({ userIndex, message })),
    );
    assert.ok(bodyText(await recordOf(server(), response)).includes('"$event_id":"1"'));
  });

  /** As a client that writes headers in UTF-8 sends it: each byte is a character to `fetch` and to Node. */
  const utf8 = (text: string): string => Buffer.from(text).toString('latin1');

  test('an Idempotency-Key of 1 to 255 bytes is kept with the request', async () => {
    for (const key of ['1', 'retry of order 17', 'k'.repeat(255), utf8('ü'.repeat(127))]) {
      const response = await send({ users: [user('i')] }, { 'idempotency-key': key });
      assert.equal(response.status, 202);
      assert.equal((await recordOf(server(), response))?.idempotencyKey, key);
    }
    const without = await send({ users: [user('i')] });
    assert.equal((await recordOf(server(), without))?.idempotencyKey, null);
  });

  test('an Idempotency-Key that is empty or longer gets 400, and nothing is stored', async () => {
    for (const key of ['', 'k'.repeat(256), utf8('ü'.repeat(128))]) {
      const response = await send({ users: [user('i')] }, { 'idempotency-key': key });
      assert.equal(response.status, 400);
      assert.deepEqual(response.body, {
        error: 'validation failed',
        trace_id: traceIdOf(response),
        errors: [],
        message: 'Idempotency-Key must have 1 to 255 bytes',
      });
      assert.equal(await recordOf(server(), response), undefined);
    }
  });

  test('keys such as __proto__ and constructor are data like any other', async () => {
    const body =
      '{"users":[{"identifiers":{"user_id":"p"},"user_properties":{"__proto__":{"polluted":1},"constructor":{"prototype":2}},' +
      '"events":[{"event_name":"e","__proto__":{"polluted":1},"toString":1}]}]}';
    const response = await send(body);
    assert.equal(response.status, 202);
    assert.equal(bodyText(await recordOf(server(), response)), body);
    const clean = await send({ users: [user('after')] });
    assert.deepEqual(Object.keys(clean.body as object), ['trace_id', 'users_accepted', 'users_rejected', 'errors']);
  });

  test('every other method gets 405 with the methods that there are', async () => {
    for (const method of ['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND']) {
      const response = await ask(server(), '/ingest/events', { method });
      assert.equal(response.status, 405, method);
      assert.equal(response.headers.get('allow'), 'POST, OPTIONS');
      assert.deepEqual(response.body, { error: 'method not allowed', trace_id: traceIdOf(response) });
    }
    const head = await ask(server(), '/ingest/events', { method: 'HEAD' });
    assert.deepEqual([head.status, head.text], [405, '']);
    traceIdOf(head);
  });

  test('every other path gets 404, also with a good key and a good body', async () => {
    const init = {
      method: 'POST',
      headers: { authorization: `Bearer ${server().key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ users: [user('lost')] }),
    };
    for (const path of ['/ingest', '/ingest/', '/ingest/events/', '/ingest/event', '/Ingest/Events', '/%zz']) {
      const response = await ask(server(), path, init);
      assert.equal(response.status, 404, path);
      assert.deepEqual(response.body, { error: 'not found', trace_id: traceIdOf(response) });
    }
  });

  test('every response of every path has a trace_id of its own, and they ascend', async () => {
    const responses: HttpResponse[] = [];
    for (const path of [
      '/livez',
      '/readyz',
      '/metrics',
      '/version',
      '/openapi.json',
      '/docs',
      '/nowhere',
      '/ingest/events',
    ]) {
      responses.push(await ask(server(), path));
    }
    responses.push(await send({ users: [user('t')] }), await send('{'), await post(server(), null, '{}'));
    const traceIds = responses.map(traceIdOf);
    assert.equal(new Set(traceIds).size, responses.length);
    assert.deepEqual(traceIds.toSorted(), traceIds);
    for (const [index, { body }] of responses.entries()) {
      const inBody = (body as { trace_id?: string } | undefined)?.trace_id;
      if (inBody !== undefined) assert.equal(inBody, traceIds[index]);
    }
  });
});
