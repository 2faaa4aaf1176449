/** The store's write-ahead log is copied into the file by a thread while the writer goes on, and does not grow for ever. */

import assert from 'node:assert/strict';
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { openSqliteStore } from '../../../src/backends/sqlite/store/store.ts';
import { openSqliteStoreWriter } from '../../../src/backends/sqlite/store/writer.ts';
import { eventsOf, person, send, type StoreUnderTest } from '../../contract/store-feeding.ts';
import { eventually, removeFolder, temporaryFolder } from '../../server.ts';

const MEGABYTE = 1024 * 1024;
const EVENTS = Array.from({ length: 20 }, () => ({ pad: 'x'.repeat(20_000) }));
/** Of 20 MB. */
const MANY = Array.from({ length: 50 }, (_, n) => person({ user_id: `u${n}` }, EVENTS));

function sizeOf(file: string): number {
  return existsSync(file) ? statSync(file).size : 0;
}

suite('A writer whose write-ahead log is copied aside', () => {
  test('has its transactions in the file while it is open, and all of them when it is closed', async () => {
    const folder = temporaryFolder();
    const file = join(folder, 'store.db');
    const [writer, store] = [openSqliteStoreWriter({ file, hasThreads: true }), openSqliteStore(file)];
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
    removeFolder(folder);
  });

  test('begins it anew when it has become large, however quickly it writes', async () => {
    const folder = temporaryFolder();
    const file = join(folder, 'store.db');
    const [writer, store] = [openSqliteStoreWriter({ file, hasThreads: true }), openSqliteStore(file)];
    const under: StoreUnderTest = { writer, store, close: async () => undefined };
    try {
      for (let n = 0; n < 12; n += 1) await send(under, MANY);
      const [written, left] = [sizeOf(file) / MEGABYTE, sizeOf(`${file}-wal`) / MEGABYTE];
      assert.ok(written > 60 && left < 200, `${written} MB in the file, ${left} MB in the write-ahead log`);
    } finally {
      await store.close();
      await writer.close();
      removeFolder(folder);
    }
  });
});
