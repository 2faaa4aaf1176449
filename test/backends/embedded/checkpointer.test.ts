/** One thread makes all checkpoints, of the log and the store, while both continue; no write-ahead log grows forever. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { MessageChannel } from 'node:worker_threads';
import {
  CheckpointClient,
  Checkpointer,
  type CheckpointRequest,
  serveCheckpoints,
} from '../../../src/backends/embedded/checkpointer.ts';
import { openSqliteLogAppender } from '../../../src/backends/embedded/log/appender.ts';
import { hasWal, listSegments } from '../../../src/backends/embedded/log/segments.ts';
import { openSqliteStore } from '../../../src/backends/embedded/store/store.ts';
import { openSqliteStoreWriter } from '../../../src/backends/embedded/store/writer.ts';
import { startCheckpointer } from '../../checkpointer-thread.ts';
import { entry } from '../../contract/log-entries.ts';
import { eventsOf, person, send, type StoreUnderTest } from '../../contract/store-feeding.ts';
import { folderIn, launch, type Scope } from '../../faults/scope.ts';
import { incompressibleText } from '../../incompressible.ts';
import { eventually, post, user } from '../../server.ts';

const MEGABYTE = 1024 * 1024;
/** Of 20 MB. */
const MANY = Array.from({ length: 50 }, (_, n) => {
  const events = Array.from({ length: 20 }, () => ({ pad: incompressibleText(20_000) }));
  return person({ user_id: `u${n}` }, events);
});

function sizeOf(file: string): number {
  return existsSync(file) ? statSync(file).size : 0;
}

function checkpointerIn(scope: Scope) {
  const checkpointer = startCheckpointer();
  scope.defer(() => checkpointer.stop());
  return checkpointer;
}

/** With a write-ahead log, and the connection that keeps it. */
function databaseIn(scope: Scope): { readonly file: string; readonly database: DatabaseSync } {
  const file = join(folderIn(scope), 'some.db');
  const database = new DatabaseSync(file);
  scope.defer(() => void (database.isOpen && database.close()));
  database.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE numbers (n INTEGER)');
  database.exec('INSERT INTO numbers VALUES (1)');
  return { file, database };
}

suite('A store with a checkpointer', () => {
  test('has its transactions in the file while it is open, and all of them when it is closed', async () => {
    await using scope = new AsyncDisposableStack();
    const file = join(folderIn(scope), 'store.db');
    const checkpointer = checkpointerIn(scope).port();
    const [writer, store] = [openSqliteStoreWriter({ file, checkpointer }), openSqliteStore(file)];
    const under: StoreUnderTest = { writer, store, close: async () => undefined };
    try {
      await send(under, [person({ user_id: 'small' })]);
      await send(under, MANY);
      await eventually('what was committed is in the file', () => sizeOf(file) > 15 * MEGABYTE);
      assert.equal((await eventsOf(under)).length, 1_001);
      assert.ok(sizeOf(`${file}-wal`) > 0);
    } finally {
      await store.close();
      await writer.close();
    }
    assert.equal(sizeOf(`${file}-wal`), 0);
    const again = openSqliteStore(file);
    assert.equal((await eventsOf({ ...under, store: again })).length, 1_001);
    await again.close();
  });

  test('restarts its write-ahead log when that has become large, however quickly it writes', async () => {
    await using scope = new AsyncDisposableStack();
    const file = join(folderIn(scope), 'store.db');
    const checkpointer = checkpointerIn(scope).port();
    const [writer, store] = [openSqliteStoreWriter({ file, checkpointer }), openSqliteStore(file)];
    const under: StoreUnderTest = { writer, store, close: async () => undefined };
    try {
      for (let n = 0; n < 12; n += 1) await send(under, MANY);
      const [written, left] = [sizeOf(file) / MEGABYTE, sizeOf(`${file}-wal`) / MEGABYTE];
      assert.ok(written > 60 && left < 200, `${written} MB in the file, ${left} MB in the write-ahead log`);
    } finally {
      await store.close();
      await writer.close();
    }
  });
});

suite('A segment of the log', () => {
  test('is in its file little by little while it is written, and its write-ahead log is used again', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = join(folderIn(scope), 'log');
    mkdirSync(folder);
    const log = await openSqliteLogAppender({
      folder,
      segmentBytes: 1_000 * MEGABYTE,
      metrics: null,
      checkpointer: checkpointerIn(scope).port(),
      onFatal: (message) => assert.fail(message),
    });
    // Its thread would keep the process alive where something fails. Closing it twice does nothing.
    scope.defer(() => log.close());
    const [segment] = listSegments(folder);
    assert.ok(segment);
    const pad = incompressibleText(MEGABYTE);
    await eventually('some of it is in the file', async () => {
      await log.append(entry({ users: [{ pad }] }));
      return sizeOf(segment.file) > 5 * MEGABYTE;
    });
    await eventually('the write-ahead log is smaller than the file', async () => {
      await log.append(entry({ users: [{ pad }] }));
      return sizeOf(`${segment.file}-wal`) < sizeOf(segment.file) / 2;
    });
    await log.close();
    assert.ok(!hasWal(segment.file), 'closing did not make the last checkpoint');
  });

  test('that is read keeps its write-ahead log, does not hold up others for long, and is finished afterwards', async () => {
    await using scope = new AsyncDisposableStack();
    const [{ file, database }, other] = [databaseIn(scope), databaseIn(scope)];
    const reader = new DatabaseSync(file, { readOnly: true });
    scope.defer(() => reader.close());
    reader.exec('BEGIN');
    reader.prepare('SELECT n FROM numbers').all();
    database.exec('INSERT INTO numbers VALUES (2)');
    const checkpointer = new Checkpointer();
    scope.defer(() => checkpointer.close());
    assert.equal(checkpointer.checkpoint({ file, mode: 'TRUNCATE' }), false);
    assert.ok(sizeOf(`${file}-wal`) > 0);
    assert.equal(checkpointer.checkpoint({ file: other.file, mode: 'TRUNCATE' }), true);
    assert.equal(sizeOf(`${other.file}-wal`), 0);
    reader.exec('COMMIT');
    assert.equal(checkpointer.checkpoint({ file, mode: 'TRUNCATE' }), true);
    assert.equal(sizeOf(`${file}-wal`), 0);
  });

  test('stays open until its write-ahead log is empty, which is tried again and again', async () => {
    await using scope = new AsyncDisposableStack();
    const { file, database } = databaseIn(scope);
    const reader = new DatabaseSync(file, { readOnly: true });
    scope.defer(() => reader.close());
    reader.exec('BEGIN');
    reader.prepare('SELECT n FROM numbers').all();
    const checkpointClient = new CheckpointClient(checkpointerIn(scope).port(), 10);
    const finished = checkpointClient.finish(file, database);
    await checkpointClient.checkpoint(file);
    assert.ok(database.isOpen && sizeOf(`${file}-wal`) > 0);
    reader.exec('COMMIT');
    await finished;
    assert.ok(!database.isOpen);
    assert.equal(sizeOf(`${file}-wal`), 0);
    await checkpointClient.close();
  });

  test('that was removed meanwhile counts as done and is not made again', async () => {
    await using scope = new AsyncDisposableStack();
    const file = join(folderIn(scope), 'gone.db');
    for (const mode of ['PASSIVE', 'TRUNCATE'] as const) {
      assert.equal(new Checkpointer().checkpoint({ file, mode }), true);
    }
    assert.ok(!existsSync(file));
  });
});

suite('The checkpointer', () => {
  test('touches no file any more once a checkpoint has failed', async () => {
    await using scope = new AsyncDisposableStack();
    const { file } = databaseIn(scope);
    const broken = join(folderIn(scope), 'broken.db');
    writeFileSync(broken, 'no database '.repeat(100));
    const failures: string[] = [];
    const serve = serveCheckpoints((message) => failures.push(message));
    const [first, second] = [new MessageChannel(), new MessageChannel()];
    for (const { port1, port2 } of [first, second]) {
      serve(port1);
      scope.defer(() => port2.close());
    }
    const request = (path: string): CheckpointRequest => ({ file: path, mode: 'TRUNCATE' });
    second.port2.postMessage({ file, mode: 'PASSIVE' } satisfies CheckpointRequest);
    assert.deepEqual(await once(second.port2, 'message'), [true]);
    let replies = 0;
    for (const { port2 } of [first, second]) port2.on('message', () => (replies += 1));
    first.port2.postMessage(request(broken));
    await eventually('it has failed', () => failures.length > 0);
    first.port2.postMessage(request(broken));
    second.port2.postMessage(request(file));
    second.port2.postMessage('close');
    // The port delivers in order: once the other side has closed, it has seen all of it.
    const closed = once(second.port1, 'close');
    second.port2.close();
    await closed;
    assert.equal(failures.length, 1);
    assert.match(failures[0] ?? '', /^the checkpoint of .*broken\.db failed: /);
    assert.equal(replies, 0);
    assert.ok(sizeOf(`${file}-wal`) > 0, 'a file was checkpointed after a failure');
  });

  test('is one thread for all edges and the store, and a stop leaves nothing of the store in a write-ahead log', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder, args: ['--edges', '2', '--log-segment', '1MB'] });
    const events = [{ event_name: 'tested', properties: { pad: 'x'.repeat(10_000) } }];
    const body = { users: Array.from({ length: 50 }, (_, n) => user(`u${n}`, events)) };
    for (let n = 0; n < 20; n += 1) assert.equal((await post(server, server.key, body)).status, 202);
    const tasks = `/proc/${server.pid}/task`;
    const names = readdirSync(tasks).map((task) => readFileSync(join(tasks, task, 'comm'), 'utf8').trim());
    assert.equal(names.filter((name) => name === 'checkpointer').length, 1, names.join(', '));
    const finished = listSegments(join(dataFolder, 'log')).slice(0, -1);
    assert.ok(finished.length > 3);
    // One that is being read is tried again after some seconds.
    await eventually('full segments are in their files', () => finished.every(({ file }) => !hasWal(file)), 30_000);
    assert.equal(await server.stop(), 0);
    assert.equal(sizeOf(join(dataFolder, 'store.db-wal')), 0);
  });
});
