/**
 * HTTP that is wrong on purpose, over raw sockets: shapes that have smuggled requests past other servers, lengths that
 * lie, requests sent ahead of their responses, nonsense behind good requests. What is not HTTP gets 400 and the
 * connection ends; a request that came in whole always gets its own, true response.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { sleep, user } from '../server.ts';
import { bodyText, logOf, useServer, UUID_V7 } from './fixture.ts';
import { chunkOf, headOf, LAST_CHUNK, type RawResponse, RawClient, requestOf } from './raw-socket.ts';

const bodyFor = (id: string): string => JSON.stringify({ users: [user(id)] });
const CHUNKED = 'Transfer-Encoding: chunked';

function assertRefused(responses: readonly RawResponse[], status = 400, error = 'bad request'): void {
  assert.equal(responses.length, 1);
  const [response] = responses;
  assert.equal(response?.status, status);
  assert.equal(response.headers.get('connection'), 'close');
  const {
    error: text,
    trace_id,
    message,
  } = JSON.parse(response.body) as Record<'error' | 'trace_id' | 'message', string>;
  assert.equal(text, error);
  assert.match(message, /\w+ \w+/, 'says what is wrong');
  assert.match(trace_id, UUID_V7);
  assert.equal(response.headers.get('x-trace-id'), trace_id);
}

suite('Raw bytes on a connection', { concurrency: true }, () => {
  const server = useServer();
  const usersInLog = async (): Promise<string> => (await logOf(server())).map(bodyText).join('\n');

  const responsesTo = (...pieces: (string | Uint8Array)[]): Promise<RawResponse[]> =>
    RawClient.responsesTo(server().port, pieces);

  const smuggled = bodyFor('smuggled');
  const length = `Content-Length: ${smuggled.length}`;
  const head = (...more: string[]): string => headOf(server().key, more);
  const withLine = (line: string): string => head(line, length) + smuggled;
  const chunked = (framing: string): string => head(CHUNKED) + framing;

  const refused: [what: string, bytes: () => string][] = [
    ['two different lengths', () => withLine(`Content-Length: ${smuggled.length + 1}`)],
    ['the same length twice', () => withLine(length)],
    ['a list of lengths', () => head(`Content-Length: ${smuggled.length}, ${smuggled.length}`) + smuggled],
    ['a length and chunks', () => head(length, CHUNKED) + chunkOf(smuggled).toString() + LAST_CHUNK.toString()],
    ['chunks and a length', () => head(CHUNKED, length) + chunkOf(smuggled).toString() + LAST_CHUNK.toString()],
    ['a length with a sign', () => head(`Content-Length: +${smuggled.length}`) + smuggled],
    ['a negative length', () => head('Content-Length: -1') + smuggled],
    ['a hexadecimal length', () => head('Content-Length: 0x10') + smuggled],
    ['a length beyond 2^64', () => head('Content-Length: 18446744073709551617') + smuggled],
    ['an empty length', () => head('Content-Length:') + smuggled],
    ['a transfer coding that is not chunked', () => withLine('Transfer-Encoding: gzip')],
    ['chunked that is not the last coding', () => withLine('Transfer-Encoding: chunked, gzip')],
    ['lines that end with a bare line feed', () => withLine('X: y').replaceAll('\r\n', '\n')],
    ['one line that ends with a bare line feed', () => withLine('X: y\nZ: z')],
    ['a bare carriage return in a header', () => withLine('X: y\rZ: z')],
    ['a NUL in a header', () => withLine('X: \0')],
    ['a header folded over two lines', () => withLine('X: y\r\n z')],
    ['a space before the colon', () => withLine('X : y')],
    ['a header without a name', () => withLine(': y')],
    ['a chunk size that is not a number', () => chunked('zz\r\n')],
    ['a chunk size with a sign', () => chunked(`+5\r\nhello\r\n`)],
    ['a chunk size beyond 2^64', () => chunked('fffffffffffffffff\r\n')],
    ['a chunk longer than it says', () => chunked('3\r\nhello\r\n0\r\n\r\n')],
    ['a chunk that ends with a bare line feed', () => chunked('5\r\nhello\n0\r\n\r\n')],
    ['a huge chunk extension', () => chunked(`5;${'x'.repeat(20_000)}\r\nhello\r\n0\r\n\r\n`)],
    ['a version of HTTP that is not there', () => withLine('X: y').replace('HTTP/1.1', 'HTTP/4.2')],
    ['a space in the path', () => withLine('X: y').replace('/ingest/events', '/ingest/events x')],
    ['a method that is not one', () => withLine('X: y').replace('POST', 'P\u00d6ST')],
    ['CONNECT to somewhere else', () => withLine('X: y').replace('POST /ingest/events', 'CONNECT example.com:443')],
    ['CONNECT to a path', () => withLine('X: y').replace('POST', 'CONNECT')],
    ['the beginning of HTTP/2 in it', () => 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['the beginning of TLS in it', () => '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
    ['nothing but noise in it', () => '\x00\xff\x00\xff'.repeat(100)],
  ];
  for (const [what, bytes] of refused) {
    test(`a request with ${what} gets 400 and the connection ends`, async () => {
      assertRefused(await responsesTo(bytes()));
    });
  }

  test('the refusal says what is wrong, where the parser knows', async () => {
    const messages = await Promise.all(
      [
        'CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n',
        head('Transfer-Encoding: chunked, gzip') + smuggled,
        head('Content-Length: 5', CHUNKED) + smuggled,
        head(CHUNKED, 'Content-Length: 5') + smuggled,
        head(CHUNKED, CHUNKED) + LAST_CHUNK.toString(),
        chunked('zz\r\n'),
      ].map(async (bytes) => (JSON.parse((await responsesTo(bytes))[0]?.body ?? '') as { message: string }).message),
    );
    assert.deepEqual(messages, [
      'CONNECT is not supported: this server is not a proxy',
      'Transfer-Encoding must be chunked, once and without Content-Length, or absent; compress a body with Content-Encoding',
      'Transfer-Encoding must be chunked, once and without Content-Length, or absent; compress a body with Content-Encoding',
      "this is not a valid HTTP request: Content-Length can't be present with Transfer-Encoding",
      'Transfer-Encoding must be chunked, once and without Content-Length, or absent; compress a body with Content-Encoding',
      'this is not a valid HTTP request: Invalid character in chunk size',
    ]);
  });

  test('nothing of what was refused got into the log', async () => {
    await Promise.all(refused.map(([, bytes]) => responsesTo(bytes())));
    assert.doesNotMatch(await usersInLog(), /smuggled/);
  });

  test('header fields over 16 kB get 431 and the connection ends', async () => {
    const responses = await responsesTo(head(`X: ${'x'.repeat(17_000)}`));
    assertRefused(responses, 431, 'request header fields too large');
    assertRefused(
      await responsesTo(head(...Array.from({ length: 2_000 }, () => 'X: 123'))),
      431,
      'request header fields too large',
    );
  });

  test('requests sent ahead of their responses get them in order', async () => {
    const { key, port } = server();
    const client = await RawClient.open(port);
    const bodies = Array.from({ length: 200 }, (_, n) =>
      n % 7 === 3 ? '{' : n % 7 === 5 ? '' : bodyFor(`piped-${n}`),
    );
    await client.send(Buffer.concat(bodies.map((body, n) => requestOf(n % 7 === 6 ? 'nobody' : key, body))));
    for (const [n] of bodies.entries()) {
      const response = await client.next();
      assert.equal(response?.status, [202, 202, 202, 400, 202, 400, 401][n % 7], `answer ${n}`);
    }
    client.destroy();
    const ids = (await usersInLog()).match(/piped-\d+/g);
    assert.deepEqual(
      ids,
      bodies.flatMap((body, n) => (n % 7 === 6 ? [] : (/piped-\d+/.exec(body)?.[0] ?? []))),
    );
  });

  test('a client that ends its side after its requests gets every response, then the connection ends', async () => {
    const { key, port } = server();
    const reading = headOf(key, [], 'GET /ledger HTTP/1.1');
    for (const requests of [
      [requestOf(key, bodyFor('half-closed'))],
      [requestOf(key, bodyFor('half-closed')), requestOf(key, '{'), Buffer.from(reading)],
      [Buffer.from(reading.replace('/ledger', '/livez'))],
    ]) {
      const client = await RawClient.open(port);
      await client.send(Buffer.concat(requests));
      client.finish();
      assert.equal((await client.rest()).length, requests.length);
    }
    assert.equal((await usersInLog()).match(/half-closed/g)?.length, 2);
    const idle = await RawClient.open(port);
    idle.finish();
    await idle.closed;
  });

  test('nonsense behind a whole request: the request gets its true response, then the connection ends', async () => {
    const { key } = server();
    const good = requestOf(key, bodyFor('before-nonsense'));
    const bad = requestOf(key, '{');
    const nonsense = Buffer.from('\0nonsense\r\n\r\n');
    const statuses = async (...pieces: Uint8Array[]): Promise<number[]> =>
      (await responsesTo(Buffer.concat(pieces))).map(({ status }) => status);
    const connect = Buffer.from('CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\nmore');
    assert.deepEqual(await statuses(good, nonsense), [202]);
    assert.deepEqual(await statuses(good, connect), [202]);
    assert.deepEqual(await statuses(good, bad, good, nonsense), [202, 400, 202]);
    assert.equal((await usersInLog()).match(/before-nonsense/g)?.length, 4);
  });

  test('a broken request behind a whole one: the whole one gets its true response, then the connection ends', async () => {
    const { key } = server();
    const good = requestOf(key, bodyFor('before-broken'));
    const responses = await responsesTo(Buffer.concat([good, Buffer.from(chunked('zz\r\n'))]));
    assert.deepEqual(
      responses.map(({ status }) => status),
      [202],
    );
    assert.equal((await usersInLog()).match(/before-broken/g)?.length, 1);
  });

  test('nonsense on a connection whose requests all have their responses gets 400', async () => {
    const client = await RawClient.open(server().port);
    await client.send(requestOf(server().key, bodyFor('earlier')));
    assert.equal((await client.next())?.status, 202);
    // The response is here, but the server may still be putting its pen down, and a busy machine takes its time.
    await sleep(500);
    await client.send('nonsense\r\n\r\n');
    assertRefused(await client.rest());
    client.destroy();
  });

  test('a body shorter than its length says gets 400 once the client has ended, and is not stored', async () => {
    const client = await RawClient.open(server().port);
    await client.send(head('Content-Length: 1000') + bodyFor('too-short'));
    client.finish();
    assertRefused(await client.rest());
    assert.doesNotMatch(await usersInLog(), /too-short/);
  });

  test('a body longer than its length says is validated by what the length covers, and the rest is not HTTP', async () => {
    const responses = await responsesTo(`${head('Content-Length: 10')}${bodyFor('too-long')}`);
    assert.deepEqual(
      responses.map(({ status }) => status),
      [400],
    );
    assert.match(responses[0]?.body ?? '', /"body is not valid JSON: ends too early at line 1, column 11/);
    assert.doesNotMatch(await usersInLog(), /too-long/);
  });

  test('a body in many small chunks, with extensions and trailers, is accepted as one', async () => {
    const client = await RawClient.open(server().port);
    await client.send(head(CHUNKED));
    for (const character of bodyFor('chunk by chunk')) await client.send(`1;a=b\r\n${character}\r\n`);
    await client.send('0\r\nTrailer: x\r\n\r\n');
    assert.equal((await client.next())?.status, 202);
    client.destroy();
    assert.match(await usersInLog(), /chunk by chunk/);
  });

  test('HTTP/1.1 without a Host gets 400, and the connection continues', async () => {
    const client = await RawClient.open(server().port);
    const good = requestOf(server().key, bodyFor('hosted'));
    await client.send(requestOf(server().key, bodyFor('hostless')).toString().replace('Host: localhost\r\n', ''));
    await client.send(good);
    const response = await client.next();
    assert.equal(response?.status, 400);
    const trace_id = response.headers.get('x-trace-id');
    assert.deepEqual(JSON.parse(response.body), {
      error: 'validation failed',
      trace_id,
      errors: [],
      message: 'the Host header is required',
    });
    assert.equal((await client.next())?.status, 202);
    client.destroy();
    assert.doesNotMatch(await usersInLog(), /hostless/);
  });

  test('HTTP/1.0 without a Host gets its response, and the connection ends', async () => {
    const request = requestOf(server().key, bodyFor('old'))
      .toString()
      .replace('HTTP/1.1\r\nHost: localhost', 'HTTP/1.0');
    const responses = await responsesTo(request);
    assert.deepEqual(
      responses.map(({ status }) => status),
      [202],
    );
  });

  test('an expectation that is not 100-continue is ignored', async () => {
    const client = await RawClient.open(server().port);
    await client.send(requestOf(server().key, bodyFor('expecting'), ['Expect: a miracle']));
    const response = await client.next();
    assert.equal(response?.status, 202);
    assert.match(response.headers.get('x-trace-id') ?? '', UUID_V7);
    client.destroy();
  });

  test('a request line with the whole address, as proxies may send it, is taken', async () => {
    const client = await RawClient.open(server().port);
    const line = 'POST http://localhost/ingest/events HTTP/1.1';
    await client.send(
      headOf(server().key, [`Content-Length: ${bodyFor('absolute').length}`], line) + bodyFor('absolute'),
    );
    assert.equal((await client.next())?.status, 202);
    await client.send('GET http://localhost/livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
    assert.equal((await client.next())?.status, 200);
    client.destroy();
  });
});
