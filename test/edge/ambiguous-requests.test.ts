/**
 * Requests that may mean one thing to a proxy and another to the server, over raw sockets, on the ingest route and on the
 * API behind the same port: headers sent twice, transfer codings besides chunked, other charsets, other versions of HTTP.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { user } from '../server.ts';
import { bodyText, logOf, useServer, UUID_V7 } from './fixture.ts';
import { chunkOf, headOf, LAST_CHUNK, type RawResponse, RawClient, requestOf } from './raw-socket.ts';

const BODY = JSON.stringify({ users: [user('ambiguous')] });

suite('A request that can be read in two ways', { concurrency: true }, () => {
  const server = useServer();

  async function firstResponse(bytes: string | Uint8Array): Promise<{ response: RawResponse; client: RawClient }> {
    const client = await RawClient.open(server().port);
    await client.send(bytes);
    const response = await client.next();
    assert.ok(response !== undefined, 'the connection was closed without a response');
    return { response, client };
  }

  /** The 400 of the ingest route, or of the API, with the words given. */
  function assertRefused(response: RawResponse, message: RegExp, isIngest: boolean): void {
    assert.equal(response.status, 400);
    const { trace_id, message: given, ...rest } = JSON.parse(response.body) as Record<string, string>;
    assert.deepEqual(rest, isIngest ? { error: 'validation failed', errors: [] } : { error: 'bad request' });
    assert.match(given ?? '', message);
    assert.match(trace_id ?? '', UUID_V7);
    assert.equal(response.headers.get('x-trace-id'), trace_id);
  }

  /** For the API: the request reads, so it needs no body. */
  function reading(...more: string[]): string {
    const lines = ['GET /events HTTP/1.1', 'Host: localhost', `Authorization: Bearer ${server().key}`, ...more];
    return `${lines.join('\r\n')}\r\n\r\n`;
  }

  const twice: [header: string, line: () => string, same: () => string][] = [
    ['Authorization', () => 'authorization: Bearer sk_dev_other', () => `Authorization: Bearer ${server().key}`],
    ['Host', () => 'HOST: elsewhere.example', () => 'Host: localhost'],
    ['Content-Type', () => 'Content-Type: text/plain', () => 'Content-Type: application/json'],
    ['Idempotency-Key', () => 'Idempotency-Key: two', () => 'idempotency-key: one'],
  ];
  for (const [header, other, same] of twice) {
    test(`has two ${header} headers, different or the same, and gets 400 on every route; the connection continues`, async () => {
      const message = new RegExp(`^the ${header} header must not be sent twice$`);
      // The one that is there already; others are in every request.
      const first = { 'Idempotency-Key': 'Idempotency-Key: one', 'Content-Type': 'Content-Type: application/json' };
      const ofReading = Object.entries(first).flatMap(([name, line]) => (name === header ? [line] : []));
      for (const line of [other(), same()]) {
        const more = header === 'Idempotency-Key' ? ['Idempotency-Key: one', line] : [line];
        const { response, client } = await firstResponse(requestOf(server().key, BODY, more));
        assertRefused(response, message, true);
        await client.send(requestOf(server().key, JSON.stringify({ users: [user('fine')] })));
        assert.equal((await client.next())?.status, 202);
        client.destroy();
        const api = await firstResponse(reading(...ofReading, line));
        assertRefused(api.response, message, false);
        api.client.destroy();
      }
    });
  }

  test('has a transfer coding besides chunked and gets 400, and the connection ends', async () => {
    for (const coding of ['gzip, chunked', 'chunked, chunked', 'identity, chunked', 'xchunked']) {
      const { response, client } = await firstResponse(
        headOf(server().key, [`Transfer-Encoding: ${coding}`]) + chunkOf(BODY).toString() + LAST_CHUNK.toString(),
      );
      assert.equal(response.status, 400, coding);
      assert.equal(response.headers.get('connection'), 'close');
      await client.closed;
      const api = await firstResponse(
        `POST /session HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: ${coding}\r\n\r\n${LAST_CHUNK.toString()}`,
      );
      assert.equal(api.response.status, 400, coding);
      await api.client.closed;
    }
    const { response, client } = await firstResponse(
      headOf(server().key, ['Transfer-Encoding: gzip, chunked']) + chunkOf(BODY).toString() + LAST_CHUNK.toString(),
    );
    assertRefused(response, /^Transfer-Encoding must be chunked, once and without Content-Length, or absent/, true);
    client.destroy();
  });

  test('ends the connection with what was sent behind it: the request before gets its response, the one behind is not taken', async () => {
    const bodyOf = (id: string): string => JSON.stringify({ users: [user(id)] });
    const chunks = chunkOf(BODY).toString() + LAST_CHUNK.toString();
    for (const [name, ambiguous] of [
      ['coding', headOf(server().key, ['Transfer-Encoding: gzip, chunked']) + chunks],
      ['version', 'GET /livez HTTP/0.9\r\n\r\n'],
    ] as const) {
      const [before, behind] = [`before-${name}`, `behind-${name}`];
      const client = await RawClient.open(server().port);
      await client.send(
        Buffer.concat([
          requestOf(server().key, bodyOf(before)),
          Buffer.from(ambiguous),
          requestOf(server().key, bodyOf(behind)),
        ]),
      );
      const statuses = (await client.rest()).map(({ status }) => status);
      assert.deepEqual(statuses, [202, 400], name);
      const stored = (await logOf(server())).map(bodyText).join('\n');
      assert.ok(stored.includes(before) && !stored.includes(behind), name);
      client.destroy();
    }
  });

  test('says that its body is not UTF-8 and gets 400; UTF-8 may be named in every spelling', async () => {
    const withType = (type: string): Buffer =>
      Buffer.from(requestOf(server().key, BODY).toString().replace('application/json', type));
    const message = /^the charset of Content-Type must be utf-8, or absent$/;
    for (const charset of ['utf-16', 'UTF-16LE', '"utf-16"', '"ISO-8859-1"', 'latin1', 'utf-8; charset=utf-16', '']) {
      const type = `application/json; Charset=${charset}`;
      const { response, client } = await firstResponse(withType(type));
      assertRefused(response, message, true);
      client.destroy();
      const body = '{}';
      const api = await firstResponse(
        `POST /session HTTP/1.1\r\nHost: localhost\r\nContent-Type: ${type}\r\nContent-Length: 2\r\n\r\n${body}`,
      );
      assertRefused(api.response, message, false);
      api.client.destroy();
    }
    for (const charset of ['utf-8', 'UTF-8', '"utf-8"', '"Utf-8"', 'utf8']) {
      const fine = JSON.stringify({ users: [user('fine')] });
      const request = requestOf(server().key, fine).toString().replace('json', `json;charset=${charset};x=y`);
      const { response, client } = await firstResponse(request);
      assert.equal(response.status, 202, charset);
      client.destroy();
    }
  });

  test('is of another version of HTTP than 1.0 and 1.1, or names none, and gets 400; the connection ends', async () => {
    const lines = ['GET /livez HTTP/0.9\r\n\r\n', 'GET /livez\r\n\r\n', 'GET /livez HTTP/2.0\r\n\r\n'];
    for (const line of [...lines, headOf(server().key).replace('HTTP/1.1', 'HTTP/0.9')]) {
      const { response, client } = await firstResponse(line);
      assert.equal(response.status, 400, line);
      await client.closed;
      assert.deepEqual(client.take(), []);
      client.destroy();
    }
  });

  test('is never stored', async () => {
    const { client } = await firstResponse(requestOf(server().key, BODY, ['Host: localhost']));
    client.destroy();
    assert.doesNotMatch((await logOf(server())).map(bodyText).join('\n'), /ambiguous/);
  });
});
