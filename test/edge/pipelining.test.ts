/**
 * Requests sent ahead of their responses, on connections that the server closes: each response belongs to its request,
 * and what gets no response has had no effect.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { eventually, removeFolder, sleep, startServer, type TestServer, user } from '../server.ts';
import { bodyText, logOf, useServer } from './fixture.ts';
import { headOf, type RawResponse, RawClient, requestOf } from './raw-socket.ts';

const bodyFor = (id: string): string => JSON.stringify({ users: [user(id)] });
const statusesOf = (responses: readonly RawResponse[]): number[] => responses.map(({ status }) => status);
const closes = ({ headers }: RawResponse): boolean => headers.get('connection') === 'close';

/** The names of those users in the log that begin with the prefix. */
async function stored({ dataFolder }: Pick<TestServer, 'dataFolder'>, prefix: string): Promise<string[]> {
  const text = (await logOf({ dataFolder })).map(bodyText).join('\n');
  return text.match(new RegExp(`${prefix}-\\w+`, 'g')) ?? [];
}

suite('Pipelined requests', { concurrency: true }, () => {
  const server = useServer();
  const requestFor = (id: string, more: readonly string[] = []): Buffer => requestOf(server().key, bodyFor(id), more);

  const responsesTo = (...pieces: (string | Uint8Array)[]): Promise<RawResponse[]> =>
    RawClient.responsesTo(server().port, pieces);

  const upgrades: [protocol: string, headers: string[]][] = [
    ['h2c', ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA']],
    ['websocket', ['Connection: Upgrade', 'Upgrade: websocket']],
  ];
  for (const [protocol, headers] of upgrades) {
    test(`a request that offers ${protocol} gets its response, the connection ends, and nothing behind it is stored`, async () => {
      const one = requestFor(`${protocol}-one`, headers);
      const two = requestFor(`${protocol}-two`);
      const three = requestFor(`${protocol}-three`);
      for (const pieces of [
        [one],
        [Buffer.concat([one, two])],
        [Buffer.concat([one, two]), three],
        [Buffer.concat([one, two.subarray(0, 10)]), two.subarray(10)],
        [one.subarray(0, 200), Buffer.concat([one.subarray(200), two]), three],
      ]) {
        const responses = await responsesTo(...pieces);
        assert.deepEqual(statusesOf(responses), [202]);
        assert.ok(responses.every(closes));
      }
      assert.deepEqual(new Set(await stored(server(), protocol)), new Set([`${protocol}-one`]));
    });

    test(`a GET that offers ${protocol} gets its response, and the connection ends`, async () => {
      const get = headOf(server().key, headers, 'GET /livez HTTP/1.1');
      for (const pieces of [[get], [get + requestFor(`${protocol}get-two`).toString()]]) {
        const responses = await responsesTo(...pieces);
        assert.deepEqual(statusesOf(responses), [200]);
        assert.ok(responses.every(closes));
      }
      assert.deepEqual(await stored(server(), `${protocol}get`), []);
    });
  }

  test('an upgrade offered behind other requests: those get their responses too, in order', async () => {
    const [, headers] = upgrades[0] ?? [];
    const requests = [requestFor('mid-one'), requestFor('mid-two', headers), requestFor('mid-three')];
    const responses = await responsesTo(Buffer.concat(requests));
    assert.deepEqual(responses.map(closes), [false, true]);
    assert.deepEqual(await stored(server(), 'mid'), ['mid-one', 'mid-two']);
  });

  test('requests behind a response of the API that closes the connection have no effect', async () => {
    const { key } = server();
    const invalid = `${headOf(key, ['Content-Length: 1'], 'POST /profiles/x/unmerge HTTP/1.1')}{`;
    const behind = [requestFor('invalid-two'), requestFor('invalid-three')];
    const before = requestFor('invalid-one');
    const responses = await responsesTo(Buffer.concat([before, Buffer.from(invalid), ...behind]));
    assert.deepEqual(statusesOf(responses), [202, 400]);
    assert.deepEqual(responses.map(closes), [false, true]);
    assert.deepEqual(await stored(server(), 'invalid'), ['invalid-one']);
  });

  test('a request whose body is cut short is not stored, and those before it get their responses', async () => {
    const client = await RawClient.open(server().port);
    await client.send(
      Buffer.concat([requestFor('cut-one'), requestFor('cut-two'), requestFor('cut-three').subarray(0, -5)]),
    );
    client.finish();
    assert.deepEqual(statusesOf(await client.rest()).slice(0, 2), [202, 202]);
    assert.deepEqual(await stored(server(), 'cut'), ['cut-one', 'cut-two']);
  });

  test('a client that sends ahead without end is not read on: its requests wait outside the server', async () => {
    const client = await RawClient.open(server().port);
    // Its response never ends.
    await client.send(headOf(server().key, [], 'GET /live HTTP/1.1'));
    const padded = JSON.stringify({ users: [user('ahead-one')], padding: 'x'.repeat(30_000) });
    const many = Buffer.concat(Array.from({ length: 1_500 }, () => requestOf(server().key, padded)));
    let isTaken = false;
    void client.send(many).then(() => {
      isTaken = true;
    });
    await sleep(1_000);
    assert.equal(isTaken, false, `${many.length} bytes of requests were read`);
    client.destroy();
  });

  test('large and small requests, all sent at once, are stored in order', async () => {
    const ids = Array.from({ length: 60 }, (_, n) => `mixed-${n}`);
    const client = await RawClient.open(server().port);
    const padding = 'x'.repeat(200_000);
    const bodies = ids.map((id, n) => JSON.stringify({ users: [user(id)], ...(n % 5 === 0 && { padding }) }));
    await client.send(Buffer.concat(bodies.map((body) => requestOf(server().key, body))));
    for (const id of ids) assert.equal((await client.next())?.status, 202, id);
    client.destroy();
    assert.deepEqual(await stored(server(), 'mixed'), ids);
  });
});

/** One after the other: the server drops what is unread for two seconds. */
suite('Pipelined requests that are not handled', () => {
  const server = useServer();

  test('however much is behind a response that closes the connection, the client can send it and read the response', async () => {
    const padding = 'x'.repeat(1_000_000);
    const long = requestOf(server().key, JSON.stringify({ users: [user('close-long')], padding }));
    const client = await RawClient.open(server().port);
    const behind = Array.from({ length: 20 }, () => long);
    await client.send(
      Buffer.concat([
        requestOf(server().key, bodyFor('close-one')),
        requestOf(server().key, bodyFor('close-two'), ['Connection: close']),
        ...behind,
      ]),
    );
    assert.deepEqual((await client.rest()).map(closes), [false, true]);
    assert.equal(client.error, undefined);
    assert.deepEqual(await stored(server(), 'close'), ['close-one', 'close-two']);
  });

  test('those behind a live view have no effect when the client goes away', async () => {
    const { port, key } = server();
    // One that asks all the time, so that the gauge is 2 with the view and 1 without: it is set every second.
    const asking = await RawClient.open(port);
    const responseTo = async (request: string | Uint8Array): Promise<string> => {
      await asking.send(request);
      return (await asking.next())?.body ?? '';
    };
    const connections = async (): Promise<number> =>
      Number(/^sluice_connections (\d+)$/m.exec(await responseTo(headOf(key, [], 'GET /metrics HTTP/1.1')))?.[1]);
    const client = await RawClient.open(port);
    await client.send(
      Buffer.concat([
        Buffer.from(headOf(key, [], 'GET /live HTTP/1.1')),
        requestOf(key, bodyFor('live-one')),
        requestOf(key, bodyFor('live-two')),
      ]),
    );
    assert.equal((await client.next())?.status, 200);
    await eventually('both connections are counted', async () => (await connections()) === 2);
    client.destroy();
    // The server notices when it writes to the view.
    await eventually('the connection is closed', async () => {
      await responseTo(requestOf(key, bodyFor('other')));
      return (await connections()) === 1;
    });
    asking.destroy();
    assert.deepEqual(await stored(server(), 'live'), []);
  });
});

suite('Pipelined requests to a server that stops', { concurrency: true }, () => {
  test('while it drains, only the request with the response is stored', async () => {
    const server = await startServer({ env: { SLUICE_DRAIN: '20s' } });
    process.kill(server.pid, 'SIGTERM');
    await eventually('draining', async () => (await fetch(`${server.baseUrl}/readyz`)).status === 503);
    const client = await RawClient.open(server.port);
    await client.send(
      Buffer.concat(Array.from({ length: 5 }, (_, n) => requestOf(server.key, bodyFor(`drained-${n}`)))),
    );
    const responses = await client.rest();
    assert.deepEqual(statusesOf(responses), [202]);
    assert.ok(responses.every(closes));
    await server.kill('SIGTERM');
    assert.deepEqual(await stored(server, 'drained'), ['drained-0']);
    removeFolder(server.dataFolder);
  });

  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    test(`${signal} in the middle of 400 requests: what is stored has a response`, async () => {
      const server = await startServer();
      const client = await RawClient.open(server.port);
      await client.send(
        Buffer.concat(Array.from({ length: 400 }, (_, n) => requestOf(server.key, bodyFor(`stopped-${n}`)))),
      );
      const first = await client.next();
      const ended = server.kill(signal);
      const responses = [...(first ? [first] : []), ...(await client.rest())];
      assert.equal(await ended, 0, server.stderr());
      const accepted = statusesOf(responses).filter((status) => status === 202).length;
      assert.ok(accepted > 0);
      assert.deepEqual(
        await stored(server, 'stopped'),
        Array.from({ length: accepted }, (_, n) => `stopped-${n}`),
      );
      removeFolder(server.dataFolder);
    });
  }
});
