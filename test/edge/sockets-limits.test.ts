/**
 * The limits on size and time, over raw sockets: the body limit to the byte, responses that a client can read while
 * it is still sending, bodies without end, clients that are slow on purpose, clients that go away. The tests run side by
 * side on one server, so each also shows that the others do not disturb it.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { suite, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { createEdgeServer, type Intakes } from '../../src/edge/server.ts';
import { Ingest } from '../../src/edge/ingest.ts';
import type { IntakeParts } from '../../src/edge/request-intake.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { allocateMetrics, metricsWriter } from '../../src/telemetry/metrics.ts';
import { eventually, post, sleep, user } from '../server.ts';
import { ask, logOf, metric, useServer, UUID_V7 } from './fixture.ts';
import { chunkOf, headOf, LAST_CHUNK, type RawResponse, RawClient, requestOf } from './raw-socket.ts';

const BODY_BYTES_MAX = 10_485_760;
const CHUNKED = 'Transfer-Encoding: chunked';
const SMALL = JSON.stringify({ users: [user('small')] });

/** A good body of exactly so many bytes. */
function bodyOf(bytes: number, id: string): Buffer {
  const [start, end] = [`{"users":[${JSON.stringify(user(id))}],"pad":"`, '"}'];
  return Buffer.from(`${start}${'x'.repeat(bytes - start.length - end.length)}${end}`);
}

function assertTooLarge(reply: RawResponse | undefined): void {
  assert.equal(reply?.status, 413);
  const trace_id = reply.headers.get('x-trace-id') ?? '';
  assert.match(trace_id, UUID_V7);
  assert.deepEqual(JSON.parse(reply.body), { error: 'payload too large', trace_id });
}

suite('The limits of a connection', { concurrency: true }, () => {
  const server = useServer();
  const open = (): Promise<RawClient> => RawClient.open(server().port);
  const head = (...more: string[]): string => headOf(server().key, more);

  async function assertStillUsable(client: RawClient): Promise<void> {
    await client.send(requestOf(server().key, SMALL));
    assert.equal((await client.next())?.status, 202);
    client.destroy();
  }

  test('a body of exactly 10,485,760 bytes is accepted and stored', async () => {
    const client = await open();
    await client.send(requestOf(server().key, bodyOf(BODY_BYTES_MAX, 'exact')));
    const reply = await client.next();
    assert.equal(reply?.status, 202);
    const record = (await logOf(server())).find(({ traceId }) => traceId === reply.headers.get('x-trace-id'));
    assert.equal(record?.body.length, BODY_BYTES_MAX);
    await assertStillUsable(client);
  });

  test('a body of one byte more gets 413, and the connection continues', async () => {
    const client = await open();
    await client.send(requestOf(server().key, bodyOf(BODY_BYTES_MAX + 1, 'more')));
    assertTooLarge(await client.next());
    await assertStillUsable(client);
  });

  test('the 413 comes while the client is still sending, and the client may finish', async () => {
    const client = await open();
    const request = requestOf(server().key, bodyOf(BODY_BYTES_MAX + 1, 'more'));
    await client.send(request.subarray(0, 100_000));
    assertTooLarge(await client.next());
    for (let at = 100_000; at < request.length; at += 1_000_000)
      await client.send(request.subarray(at, at + 1_000_000));
    await assertStillUsable(client);
  });

  test('a client that waits for 100 Continue gets 413 without it', async () => {
    const client = await open();
    await client.send(head(`Content-Length: ${BODY_BYTES_MAX + 1}`, 'Expect: 100-continue'));
    assertTooLarge(await client.next());
    client.destroy();
  });

  test('a client that waits for 100 Continue gets 401 or 400 without it, and 100 when all is well', async () => {
    const expecting = [`Content-Length: ${SMALL.length}`, 'Expect: 100-continue'];
    for (const [status, bytes] of [
      [401, headOf('nobody', expecting)],
      [400, head('Content-Encoding: none', ...expecting)],
    ] as const) {
      const client = await open();
      await client.send(bytes);
      assert.equal((await client.next())?.status, status);
      client.destroy();
    }
    const client = await open();
    await client.send(head(...expecting));
    assert.equal((await client.next())?.status, 100);
    await client.send(SMALL);
    assert.equal((await client.next())?.status, 202);
    client.destroy();
  });

  test('chunks of exactly 10,485,760 bytes together are accepted, one byte more gets 413', async () => {
    for (const [bytes, status] of [
      [BODY_BYTES_MAX, 202],
      [BODY_BYTES_MAX + 1, 413],
    ] as const) {
      const client = await open();
      await client.send(head(CHUNKED));
      const body = bodyOf(bytes, 'chunks');
      for (let at = 0; at < bytes; at += 1_000_000) await client.send(chunkOf(body.subarray(at, at + 1_000_000)));
      await client.send(LAST_CHUNK);
      assert.equal((await client.next())?.status, status);
      await assertStillUsable(client);
    }
  });

  test('the limit counts what a compressed body holds, to the byte', async () => {
    for (const [bytes, status] of [
      [BODY_BYTES_MAX, 202],
      [BODY_BYTES_MAX + 1, 413],
    ] as const) {
      const client = await open();
      await client.send(requestOf(server().key, gzipSync(bodyOf(bytes, 'packed')), ['Content-Encoding: gzip']));
      assert.equal((await client.next())?.status, status);
      await assertStillUsable(client);
    }
  });

  test('chunks without end get 413 while they come, and the connection ends', async () => {
    const client = await open();
    await client.send(head(CHUNKED));
    const chunk = chunkOf(Buffer.alloc(1_000_000, 'x'));
    const deadline = performance.now() + 60_000;
    while (!client.isClosed && performance.now() < deadline) {
      await client.send(chunk);
      await sleep(100);
    }
    assert.ok(client.isClosed, 'the server closed the connection');
    const [reply, ...more] = await client.rest();
    assertTooLarge(reply);
    assert.deepEqual(more, []);
    client.destroy();
  });

  test('a client that was refused and does not hang up is let go after a moment', async () => {
    const socket = connect({ port: server().port, host: '127.0.0.1', allowHalfOpen: true });
    let isGone = false;
    socket.on('error', () => {});
    socket.on('close', () => {
      isGone = true;
    });
    socket.resume().write('nonsense\r\n\r\n');
    await once(socket, 'end');
    await eventually('the server has let go of the socket', () => {
      socket.write('more nonsense');
      return isGone;
    });
  });

  test('a client that goes away in the middle of a body leaves nothing behind', async () => {
    const clients = await Promise.all(Array.from({ length: 5 }, open));
    for (const client of clients) await client.send(Buffer.from(head('Content-Length: 1000000') + 'x'.repeat(500_000)));
    await eventually(
      'the bodies are counted',
      async () => (await metric(server(), 'sluice_in_flight_bytes')) >= 5_000_000,
    );
    for (const client of clients) client.destroy();
    await eventually(
      'nothing is in flight any more',
      async () => {
        const left = [
          await metric(server(), 'sluice_in_flight_bytes'),
          await metric(server(), 'sluice_in_flight_requests'),
        ];
        return left.every((value) => value === 0);
      },
      20_000,
    );
    assert.equal((await post(server(), server().key, SMALL)).status, 202);
  });

  test('slow headers get 408 after 10 s and the connection ends, while others are served', async () => {
    const started = performance.now();
    const silent = await open();
    const half = await open();
    await half.send('POST /ingest/events HTTP/1.1\r\nHost: loc');
    const dripping = await open();
    await dripping.send('POST /ingest/events HTTP/1.1\r\nX: ');
    const afterGood = await open();
    await afterGood.send(`${requestOf(server().key, SMALL).toString()}POST /ingest`);
    assert.equal((await afterGood.next())?.status, 202);

    const slow = [silent, half, dripping, afterGood];
    while (slow.some(({ isClosed }) => !isClosed) && performance.now() - started < 18_000) {
      await dripping.send('x');
      assert.equal((await post(server(), server().key, SMALL)).status, 202);
      await sleep(250);
    }
    for (const client of slow) {
      const [reply, ...more] = await client.rest();
      assert.equal(reply?.status, 408);
      assert.equal(reply.headers.get('connection'), 'close');
      assert.equal(reply.headers.get('retry-after'), '1');
      const { error, trace_id } = JSON.parse(reply.body) as Record<string, string>;
      assert.deepEqual([error, trace_id], ['request timeout', reply.headers.get('x-trace-id')]);
      assert.deepEqual(more, []);
      client.destroy();
    }
    assert.ok(performance.now() - started > 9_000, 'not before their time');
  });

  test('two hundred connections that do nothing disturb no other client', async () => {
    const idle = await Promise.all(Array.from({ length: 200 }, open));
    for (const client of idle) await client.send('POST /ingest/events HTTP/1.1\r\n');
    assert.equal((await post(server(), server().key, SMALL)).status, 202);
    assert.equal((await ask(server(), '/livez')).status, 200);
    for (const client of idle) client.destroy();
  });
});

suite('The timeout for slow bodies', () => {
  test('it is 60 s for a whole request; then the response is 408 and the connection ends', async () => {
    const parts = {
      intakes: { ingest: new Ingest({} as IntakeParts) } as Intakes,
      metrics: metricsWriter(allocateMetrics(1), 0),
      newTraceId: () => 'a-trace-id',
      isStopping: () => false,
      connections: {
        count: new Int32Array(new SharedArrayBuffer(4)),
        max: 100,
        logger: createLogger('silent', 'test'),
      },
    };
    const waiting: ServerResponse[] = [];
    const { server: edge } = createEdgeServer(parts, (_request, response) => waiting.push(response));
    assert.deepEqual([edge.requestTimeout, edge.headersTimeout, edge.keepAliveTimeout], [60_000, 10_000, 65_000]);
    // The mechanism is the same for any time; this test must not take a minute. But the headers have to be in time.
    edge.requestTimeout = 3_000;
    edge.headersTimeout = 2_500;
    edge.listen(0, '127.0.0.1');
    await once(edge, 'listening');
    const client = await RawClient.open((edge.address() as AddressInfo).port);
    await client.send('POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n');
    while (!client.isClosed) {
      await client.send('x');
      await sleep(50);
    }
    const responses = await client.rest();
    assert.deepEqual(
      responses.map(({ status, body }) => [status, body]),
      [
        [
          408,
          '{"error":"request timeout","trace_id":"a-trace-id","message":"the request did not arrive in time: send it again"}',
        ],
      ],
    );
    assert.equal(waiting.length, 1);
    client.destroy();
    edge.close();
  });
});
