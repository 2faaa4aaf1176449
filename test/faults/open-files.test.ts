/**
 * File descriptors: clients that hold on to connections, and a process that can open nothing more at all. The server goes
 * on with what it has, says what is wrong, and everything heals by itself. The limit is set with prlimit (util-linux),
 * on the server's process alone.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import { connect, type Socket } from 'node:net';
import { suite, test } from 'node:test';
import { loadConfig } from '../../src/config/config.ts';
import { connectionsMaxOf } from '../../src/runtime/open-files.ts';
import { createKey, eventually, sleep, type TestServer, user } from '../server.ts';
import { Connection, type RawResponse } from './connection.ts';
import { assertLedger, Ledger, sendNext } from './ledger.ts';
import { folderIn, launch, refusedStart, type Scope } from './scope.ts';

const SEGMENTS = ['--log-segment', '1MB'];
/** How often an edge says that it closes connections for others. */
const LOG_INTERVAL_MS = 10_000;

function underLimit(files: number): readonly string[] {
  return ['prlimit', `--nofile=${files}:${files}`];
}

/** Of the running process; the hard limit stays, so that it can be given back. */
function setLimit({ pid }: TestServer, files: number): void {
  execFileSync('prlimit', ['--pid', String(pid), `--nofile=${files}:`]);
}

async function openSockets(scope: Scope, port: number, count: number): Promise<Socket[]> {
  const sockets = Array.from({ length: count }, () =>
    connect({ port, host: '127.0.0.1' }).on('error', () => undefined),
  );
  scope.defer(() => {
    for (const socket of sockets) socket.destroy();
  });
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  return sockets;
}

/** On a connection of its own: one that is kept open is closed for others when there are too many. */
async function request(server: TestServer, method: 'GET' | 'POST', path: string, body?: object): Promise<RawResponse> {
  const connection = await Connection.open(server.port);
  const headers = { Authorization: `Bearer ${server.key}`, 'Content-Type': 'application/json' };
  try {
    return await connection.request(method, path, headers, body === undefined ? '' : JSON.stringify(body));
  } finally {
    connection.close();
  }
}

async function metric(server: TestServer, series: string): Promise<number> {
  const { body } = await request(server, 'GET', '/metrics');
  const line = body.split('\n').find((row) => row.startsWith(`${series} `));
  return Number(line?.slice(series.length + 1));
}

async function storedEvents(server: TestServer): Promise<number> {
  const { body } = await request(server, 'GET', '/ledger');
  const { hours = [] } = JSON.parse(body) as { hours?: { events: { stored: number } }[] };
  return hours.reduce((sum, { events }) => sum + events.stored, 0);
}

suite('Idle connections', () => {
  for (const edges of ['1', '2']) {
    test(`more than the limit of open files leave room for everyone else, with ${edges} edge(s)`, async () => {
      await using scope = new AsyncDisposableStack();
      const dataFolder = folderIn(scope);
      const args = [...SEGMENTS, '--edges', edges];
      const server = await launch(scope, { dataFolder, args, under: underLimit(256) });
      const max = await metric(server, 'sluice_connections_max');
      assert.equal(max, edges === '1' ? 128 : 80);
      const openedAt = performance.now();
      const idle = await openSockets(scope, server.port, 400);

      for (let n = 0; n < 20; n++) {
        const body = { users: [user(`u${n}`)] };
        assert.equal((await request(server, 'POST', '/ingest/events', body)).status, 202);
      }
      assert.equal((await request(server, 'GET', '/readyz')).status, 200);
      await eventually('all of it is stored', async () => (await storedEvents(server)) === 20);
      const { key } = await createKey(dataFolder);
      const body = { users: [user('b')] };
      await eventually('a new key works', async () => {
        return (await request({ ...server, key }, 'POST', '/ingest/events', body)).status === 202;
      });

      assert.ok((await metric(server, 'sluice_connections_over_limit_total{closed="idle"}')) >= 400 - max);
      assert.ok((await metric(server, 'sluice_connections')) <= max);
      await eventually('the others are closed', () => idle.filter((socket) => !socket.closed).length <= max);
      const lines = server.stderr().match(/SLUICE_CONNECTIONS_MAX is reached/g) ?? [];
      const linesMax = Number(edges) * (1 + Math.floor((performance.now() - openedAt) / LOG_INTERVAL_MS));
      assert.ok(lines.length >= 1 && lines.length <= linesMax, `it was logged ${lines.length} times`);
      assert.equal(await server.stop(), 0);
    });
  }

  test('are closed for new ones, but never a connection with a request under way; then the newest is', async () => {
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, {
      dataFolder: folderIn(scope),
      env: { SLUICE_CONNECTIONS_MAX: '4' },
    });
    const idle = await openSockets(scope, server.port, 2);
    const busy = await openSockets(scope, server.port, 2);
    const body = JSON.stringify({ users: [user('slow')] });
    for (const socket of busy) {
      socket.write(
        `POST /ingest/events HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer ${server.key}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: ${body.length}\r\n\r\n`,
      );
    }
    // The server has seen the head of each.
    for (const socket of busy) assert.match(String((await once(socket, 'data'))[0]), /^HTTP\/1\.1 100 /);
    const more = await openSockets(scope, server.port, 2);
    for (const socket of more) socket.write('POST /ingest/events HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\n');
    await eventually('the idle ones are closed', () => idle.every(({ closed }) => closed));
    // The two that took their place have a response, but still have to send the body.
    for (const socket of more) assert.match(String((await once(socket, 'data'))[0]), /^HTTP\/1\.1 401 /);
    const [refused] = await openSockets(scope, server.port, 1);
    await eventually('the newest is closed', () => refused?.closed);
    for (const socket of busy) socket.write(body);
    const responses = await Promise.all(busy.map(async (socket) => String((await once(socket, 'data'))[0])));
    for (const response of responses) assert.match(response, /^HTTP\/1\.1 202 /);
  });
});

/** One per user. */
function eventsOf({ acknowledged, sent }: Ledger): number {
  return acknowledged.values().reduce((sum, key) => sum + (sent.get(key)?.users ?? 0), 0);
}

suite('A process without file descriptors', () => {
  test('keeps taking events, waits with the rest, and heals by itself', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder, args: SEGMENTS });
    const ledger = new Ledger(8_000);
    const connection = await Connection.open(server.port);
    scope.defer(() => connection.close());
    await sendNext(connection, ledger, server.key);
    // Every thread that the server begins with has started.
    await eventually('it is processed', async () => (await metric(server, 'sluice_processed_records_total')) === 1);
    const authorization = `Bearer ${server.key}`;
    const segments = (): number =>
      readdirSync(join(dataFolder, 'log')).filter((name) => /^\d{16}\.log$/.test(name)).length;
    const before = segments();

    // Nothing can be opened, whatever is closed meanwhile: descriptors are numbered from the lowest free one.
    setLimit(server, 3);
    for (let n = 0; n < 300; n++) await sendNext(connection, ledger, server.key);
    assert.equal(segments(), before, 'a segment was made although no file can be opened');
    await eventually('the processor waits', () => /the processor waits.*/.test(server.stderr()));
    for (const path of ['/events', '/dashboard', '/ledger']) {
      assert.equal((await connection.request('GET', path, { authorization })).status, 503, path);
    }
    for (const path of ['/metrics', '/livez', '/readyz']) {
      assert.equal((await connection.request('GET', path, { authorization })).status, 200, path);
    }
    const [stranger] = await openSockets(scope, server.port, 1);
    await sleep(500);
    stranger?.destroy();
    const lines = server.stderr().split('\n').length;
    assert.ok(lines < 60, `${lines} lines were logged`);

    setLimit(server, 4_096);
    await eventually('all of it is stored', async () => (await storedEvents(server)) === eventsOf(ledger));
    for (const path of ['/events', '/ledger', '/dashboard'])
      assert.equal((await request(server, 'GET', path)).status, 200, path);
    // The thread that reads is there by now, and meets the same.
    setLimit(server, 3);
    const [traceId] = ledger.acknowledged.keys();
    for (const path of ['/ledger', '/events', `/traces/${traceId}`, '/receipts', '/profiles/search?q=user-1']) {
      const { status } = await connection.request('GET', path, { authorization });
      assert.ok(status === 200 || status === 503 || status === 400, `${path} gets ${status}`);
    }
    setLimit(server, 4_096);
    for (let n = 0; n < 20; n++) await sendNext(connection, ledger, server.key);
    await eventually('a new segment is begun', async () => {
      await sendNext(connection, ledger, server.key);
      return segments() > before;
    });
    assert.equal(await server.stop(), 0);
    await assertLedger(dataFolder, ledger);
    const again = await launch(scope, { dataFolder, args: SEGMENTS });
    await eventually('it balances', async () =>
      /"balanced":true/.test((await request({ ...again, key: server.key }, 'GET', '/ledger')).body),
    );
  });
});

suite('A limit of open files', () => {
  test('that leaves too few connections is refused in words', async () => {
    await using scope = new AsyncDisposableStack();
    const words = await refusedStart({ dataFolder: folderIn(scope), under: underLimit(128) });
    assert.match(words, /may open 128 files.*needs 128 for itself and 16 for connections.*at least 144.*LimitNOFILE/);
  });

  test('below the connections that are asked for is refused in words, with the most that is possible', async () => {
    await using scope = new AsyncDisposableStack();
    const env = { SLUICE_CONNECTIONS_MAX: '1000' };
    const words = await refusedStart({ dataFolder: folderIn(scope), env, under: underLimit(256) });
    assert.match(words, /at least 1128.*or set SLUICE_CONNECTIONS_MAX to at most 128\./);
  });

  test('makes the default: what it leaves, never more than 10,000, less for databases; a fixed number where it is unknown', () => {
    const of = (env: Record<string, string>, limit: number | null): number =>
      connectionsMaxOf(loadConfig({ env, args: [] }).config, limit);
    assert.equal(of({}, 1_024), 896);
    assert.equal(of({}, 1_048_576), 10_000);
    assert.equal(of({ SLUICE_CONNECTIONS_MAX: '50000' }, 1_048_576), 50_000);
    assert.equal(of({ STORE_URL: 'postgres://localhost/sluice' }, 1_024), 1_024 - 128 - 16 - 20);
    assert.equal(of({}, null), 1_000);
    assert.equal(of({ SLUICE_CONNECTIONS_MAX: '7' }, null), 7);
  });
});
