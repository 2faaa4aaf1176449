/**
 * Clients that mean harm or do not listen: bodies in crumbs, responses that no one reads, connections that close while the
 * response is on its way, requests that come in after their client was stopped.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { eventually, startServer, user } from '../server.ts';
import { bodyText, logOf, memoryBytes, metric, useServer } from './fixture.ts';
import { headOf, LAST_CHUNK, RawClient } from './raw-socket.ts';

const MB = 1024 * 1024;
const CHUNKED = 'Transfer-Encoding: chunked';

suite('Hostile clients', () => {
  const server = useServer();

  test('a body in chunks of one byte costs the memory of its bytes, not of its chunks', async () => {
    const before = memoryBytes(server().pid).now;
    const client = await RawClient.open(server().port);
    await client.send(headOf(server().key, [CHUNKED]));
    const crumbs = Buffer.from('1\r\n \r\n'.repeat(50_000));
    for (let n = 0; n < 20; n++) await client.send(crumbs);
    const body = Buffer.from(JSON.stringify({ users: [user('crumbs')] }));
    await client.send(`${body.length.toString(16)}\r\n${body.toString()}\r\n`);
    await client.send(LAST_CHUNK);
    assert.equal((await client.next())?.status, 202);
    client.destroy();
    // A million chunks of some 400 bytes each would be 400 MB.
    assert.ok(memoryBytes(server().pid).peak - before < 200 * MB);
  });

  test('messages cut long paths, so that no response is as long as its request', async () => {
    let value: unknown = '\u0000';
    for (let n = 0; n < 19; n++) value = { [`${n}`.padEnd(510, 'k')]: value };
    const users = Array.from({ length: 100 }, (_, n) => user(`u${n}`, [{ event_name: 'x', value }]));
    const client = await RawClient.open(server().port);
    const body = JSON.stringify({ users });
    await client.send(headOf(server().key, [`Content-Length: ${body.length}`]) + body);
    const response = await client.next();
    client.destroy();
    assert.equal(response?.status, 400);
    assert.ok(body.length > 900_000);
    assert.ok(response.body.length < 200_000);
    const { errors } = JSON.parse(response.body) as { errors: { message: string }[] };
    assert.match(errors[0]?.message ?? '', /^events\[0\]\.value.*….* contains a character that cannot be stored$/);
  });

  for (const [what, status, key, length] of [
    ['too large', 413, () => server().key, 30 * MB],
    ['without a good key', 401, () => 'sk_dev_nobody', 3 * MB],
  ] as const) {
    test(`a client that closes after one request reads its ${status} (${what}) though it is still sending`, async () => {
      const client = await RawClient.open(server().port);
      await client.send(headOf(key(), ['Connection: close', `Content-Length: ${length}`]));
      const piece = Buffer.alloc(64 * 1024, ' ');
      const responded = client.next();
      for (let sent = 0; sent < 3 * MB; sent += piece.length) await client.send(piece);
      const response = await responded;
      client.destroy();
      assert.equal(response?.status, status);
    });
  }

  test('a request whose client disconnected before it could get a response is not stored', async () => {
    // Judged in another thread because of its size, which leaves time to go away.
    const body = JSON.stringify({ users: [user('gone', [{ event_name: 'x', pad: 'x'.repeat(9 * MB) }])] });
    const client = await RawClient.open(server().port);
    await client.send(headOf(server().key, [`Content-Length: ${body.length}`]) + body);
    client.destroy();
    await eventually('nothing is in flight', async () => (await metric(server(), 'sluice_in_flight_bytes')) === 0);
    const stored = (await logOf(server())).filter((record) => bodyText(record).includes('"gone"'));
    // It may have been faster than the end of the connection; then it has a response, too.
    assert.ok(stored.length <= 1);
  });

  test('a client that stops in the middle of its headers does not delay the shutdown', async (t) => {
    const other = await startServer({ env: { SLUICE_SHUTDOWN: '10s' } });
    t.after(() => other.kill());
    const client = await RawClient.open(other.port);
    await client.send('POST /ingest/events HTTP/1.1\r\nHost: x\r\n');
    assert.equal(await other.stop(), 0);
    client.destroy();
  });
});
