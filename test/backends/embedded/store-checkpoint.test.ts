/** The store's writer copies its write-ahead log into the file as it goes, so that it does not grow forever. */

import assert from 'node:assert/strict';
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { openSqliteStore } from '../../../src/backends/embedded/store/store.ts';
import { openSqliteStoreWriter } from '../../../src/backends/embedded/store/writer.ts';
import { eventsOf, person, send, type StoreUnderTest } from '../../contract/store-feeding.ts';
import { folderIn, launch, type Scope } from '../../faults/scope.ts';
import { incompressibleText } from '../../incompressible.ts';
import { post, user } from '../../server.ts';

const MEGABYTE = 1024 * 1024;
/** Of 20 MB. */
const MANY = Array.from({ length: 50 }, (_, n) => {
  const events = Array.from({ length: 20 }, () => ({ pad: incompressibleText(20_000) }));
  return person({ user_id: `u${n}` }, events);
});

function sizeOf(file: string): number {
  return existsSync(file) ? statSync(file).size : 0;
}

function openStore(scope: Scope): StoreUnderTest & { readonly file: string } {
  const file = join(folderIn(scope), 'store.db');
  const [writer, store] = [openSqliteStoreWriter({ file }), openSqliteStore(file)];
  const close = async (): Promise<void> => {
    await store.close();
    await writer.close();
  };
  scope.defer(close);
  return { writer, store, close, file };
}

suite('The write-ahead log of the store', () => {
  test('is in the file after a large transaction, and all of it when the store is closed', async () => {
    await using scope = new AsyncDisposableStack();
    const under = openStore(scope);
    await send(under, [person({ user_id: 'small' })]);
    assert.ok(sizeOf(under.file) < MEGABYTE);
    await send(under, MANY);
    assert.ok(sizeOf(under.file) > 15 * MEGABYTE, `${sizeOf(under.file)} bytes`);
    assert.equal((await eventsOf(under)).length, 1_001);
    await under.close();
    assert.equal(sizeOf(`${under.file}-wal`), 0);
    const again = openSqliteStore(under.file);
    assert.equal((await eventsOf({ ...under, store: again })).length, 1_001);
    await again.close();
  });

  test('is used again, however quickly the store is written', async () => {
    await using scope = new AsyncDisposableStack();
    const under = openStore(scope);
    for (let n = 0; n < 12; n += 1) await send(under, MANY);
    const [written, left] = [sizeOf(under.file) / MEGABYTE, sizeOf(`${under.file}-wal`) / MEGABYTE];
    assert.ok(written > 200 && left < 60, `${written} MB in the file, ${left} MB in the write-ahead log`);
  });

  test('grows while a program reads an old state, without failing a transaction, and is used again afterwards', async () => {
    await using scope = new AsyncDisposableStack();
    const under = openStore(scope);
    await send(under, [person({ user_id: 'small' })]);
    const reader = new DatabaseSync(under.file, { readOnly: true });
    reader.exec('BEGIN');
    reader.prepare('SELECT count(*) FROM sqlite_schema').get();
    for (let n = 0; n < 3; n += 1) await send(under, MANY);
    const grown = sizeOf(`${under.file}-wal`);
    assert.ok(grown > 50 * MEGABYTE, `${grown} bytes`);
    reader.close();
    await send(under, MANY);
    const copied = sizeOf(`${under.file}-wal`);
    for (let n = 0; n < 2; n += 1) await send(under, MANY);
    assert.equal(sizeOf(`${under.file}-wal`), copied, 'it grew although nobody reads it');
  });

  test('is empty after a server has stopped', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder });
    const events = [{ event_name: 'tested', properties: { pad: 'x'.repeat(10_000) } }];
    const body = { users: Array.from({ length: 50 }, (_, n) => user(`u${n}`, events)) };
    for (let n = 0; n < 5; n += 1) assert.equal((await post(server, server.key, body)).status, 202);
    assert.equal(await server.stop(), 0);
    assert.equal(sizeOf(join(dataFolder, 'store.db-wal')), 0);
  });
});
