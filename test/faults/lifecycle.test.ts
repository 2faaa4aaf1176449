/**
 * Starting and stopping real processes: who may use a folder and a port, and what SIGTERM and SIGINT leave behind while
 * clients are sending, waiting, or stuck in the middle of a body.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { keyFileOf } from '../../src/data-folder/files.ts';
import { eventually, sleep, type TestServer } from '../server.ts';
import { Connection, ConnectionLostError } from './connection.ts';
import { skipWithout } from './devices.ts';
import { assertLedger, Ledger, sendNext, startLoad } from './ledger.ts';
import { folderIn, launch, refusedStart } from './scope.ts';
import { attachStrace, straceHindrance } from './strace.ts';

const EXIT_MS_MAX = 30_000;

/** Its exit code, and how long it took. */
async function signalled(server: TestServer, signal: NodeJS.Signals): Promise<{ code: number | string; ms: number }> {
  const startedAt = performance.now();
  const code = await server.kill(signal);
  return { code, ms: performance.now() - startedAt };
}

suite('A second server', () => {
  test('on the same data folder refuses to start, names the first, and leaves it alone', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const first = await launch(scope, { dataFolder });
    const ledger = new Ledger();
    const connection = await Connection.open(first.port);
    await sendNext(connection, ledger, first.key);

    const words = await refusedStart({ dataFolder });
    assert.match(words, new RegExp(`^sluice: .*${dataFolder}.*in use.*process ${first.pid}\\b`, 'm'));

    assert.equal((await sendNext(connection, ledger, first.key)).status, 202);
    assert.equal(ledger.acknowledged.size, 2);
    await assertLedger(dataFolder, ledger);
  });

  test('may have the folder as soon as the first was killed, without any cleaning up', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    await (await launch(scope, { dataFolder })).kill('SIGKILL');
    await launch(scope, { dataFolder });
  });

  for (const edges of ['1', '2']) {
    test(`on the same port refuses to start, in words (${edges} edges)`, async () => {
      await using scope = new AsyncDisposableStack();
      const first = await launch(scope, { dataFolder: folderIn(scope), args: ['--edges', edges] });
      const words = await refusedStart({
        dataFolder: folderIn(scope),
        args: ['--edges', edges],
        env: { PORT: String(first.port) },
      });
      assert.match(words, new RegExp(`^sluice: Port ${first.port} .*is already in use`, 'm'));
    });
  }
});

function isUseWritten(dataFolder: string): boolean {
  const database = new DatabaseSync(keyFileOf(dataFolder), { readOnly: true });
  const row = database.prepare('SELECT max(last_used_at) AS used FROM keys').get();
  database.close();
  return typeof row?.['used'] === 'number';
}

suite('Stopping', () => {
  for (const [signal, edges] of [
    ['SIGTERM', '1'],
    ['SIGTERM', '2'],
    ['SIGINT', '1'],
  ] as const) {
    test(`by ${signal} under load loses nothing that was acknowledged and ends with 0 (${edges} edges)`, async (t) => {
      await using scope = new AsyncDisposableStack();
      const dataFolder = folderIn(scope);
      const args = ['--log-segment', '1MB', '--edges', edges];
      const server = await launch(scope, { dataFolder, args });
      const ledger = new Ledger(1_000);
      const load = startLoad(scope, server, server.key, ledger, 12);
      await eventually('some are acknowledged', () => ledger.acknowledged.size > 300);
      const { code, ms } = await signalled(server, signal);
      assert.equal(code, 0, server.stderr());
      assert.ok(ms < EXIT_MS_MAX);
      await eventually('nothing listens any more', () => (load.counts.get('refused') ?? 0) > 0);
      await load.stop();
      t.diagnostic(`ended after ${Math.round(ms)} ms: ${JSON.stringify([...load.counts])}`);
      await assertLedger(dataFolder, ledger);

      const again = await launch(scope, { dataFolder, args });
      const before = ledger.acknowledged.size;
      await sendNext(await Connection.open(again.port), ledger, server.key);
      assert.equal(ledger.acknowledged.size, before + 1);
      await assertLedger(dataFolder, ledger);
    });
  }

  test('by SIGTERM: not ready at once, serving while it drains, and a second signal ends the drain', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder, env: { SLUICE_DRAIN: '10m' } });
    const ledger = new Ledger();
    const kept = await Connection.open(server.port);
    assert.doesNotMatch((await sendNext(kept, ledger, server.key)).head, /^connection: close/im);
    process.kill(server.pid, 'SIGTERM');
    await eventually('it drains', () => server.stderr().includes('draining'));

    const ready = await (await Connection.open(server.port)).request('GET', '/readyz');
    assert.deepEqual(
      [ready.status, JSON.parse(ready.body)],
      [503, { status: 'not ready', reasons: ['shutting down'] }],
    );
    assert.match(ready.head, /^connection: close/im);
    assert.equal((await (await Connection.open(server.port)).request('GET', '/livez')).status, 200);
    // On a connection that was kept alive, and on a new one.
    for (const connection of [kept, await Connection.open(server.port)]) {
      const response = await sendNext(connection, ledger, server.key);
      assert.equal(response.status, 202);
      assert.match(response.head, /^connection: close/im);
    }
    assert.equal(await server.kill('SIGTERM'), 0, server.stderr());
    assert.equal(ledger.acknowledged.size, 3);
    await assertLedger(dataFolder, ledger);
  });

  test('by Ctrl-C does not drain: a person at a terminal does not wait for load balancers', async () => {
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { SLUICE_DRAIN: '10m' } });
    assert.equal(await server.kill('SIGINT'), 0, server.stderr());
    assert.doesNotMatch(server.stderr(), /draining/);
  });

  test('is not held up by connections that are open and idle', async () => {
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, { dataFolder: folderIn(scope) });
    const ledger = new Ledger();
    const connections = await Promise.all(Array.from({ length: 5 }, () => Connection.open(server.port)));
    for (const connection of connections.slice(1)) await sendNext(connection, ledger, server.key);
    const { code, ms } = await signalled(server, 'SIGTERM');
    assert.equal(code, 0, server.stderr());
    assert.ok(ms < 15_000, `took ${ms} ms`);
  });

  test('responds to a request in progress, says that the connection ends with it, and ends', async (t) => {
    if (skipWithout(t, straceHindrance())) return;
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder });
    const ledger = new Ledger();
    const connection = await Connection.open(server.port);
    await sendNext(connection, ledger, server.key);
    // That is written every two seconds, by the thread that handles signals: it must not be in a long sync when one comes.
    await eventually('it is written when the key was used', () => isUseWritten(dataFolder));
    // A long sync, so that the signal comes, and is heeded on a busy machine too, while the request waits for it.
    const strace = await attachStrace(
      server.pid,
      'fsync,fdatasync:delay_enter=5000000',
      join(folderIn(scope), 'trace'),
    );
    const underWay = sendNext(connection, ledger, server.key);
    await sleep(600);
    const ended = signalled(server, 'SIGTERM');
    const response = await underWay;
    await strace.detach();
    assert.equal(response.status, 202);
    assert.match(response.head, /^Connection: close/im);
    const { code, ms } = await ended;
    assert.equal(code, 0, server.stderr());
    assert.ok(ms < 25_000, `took ${ms} ms`);
    await assertLedger(dataFolder, ledger);
  });

  test('does not wait beyond the deadline for a client that is stuck in the middle of a body', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder, env: { SLUICE_SHUTDOWN: '2s' } });
    const ledger = new Ledger();
    await sendNext(await Connection.open(server.port), ledger, server.key);
    const stuck = await Connection.open(server.port);
    const head = `POST /ingest/events HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer ${server.key}\r\n`;
    const response = stuck.send(`${head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"users":[`);
    const outcome = response.then(
      ({ status }) => status,
      (error: unknown) => error,
    );
    await sleep(200);
    const { ms } = await signalled(server, 'SIGTERM');
    // It would wait for the rest of the body for a minute.
    assert.ok(ms < EXIT_MS_MAX, `took ${ms} ms`);
    const how = await outcome;
    assert.ok(how === 503 || how instanceof ConnectionLostError, `the stuck client got ${String(how)}`);

    await launch(scope, { dataFolder });
    const { records } = await assertLedger(dataFolder, ledger);
    assert.equal(records, 1);
  });
});
