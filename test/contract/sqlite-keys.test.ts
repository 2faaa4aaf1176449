/**
 * The embedded key store: the contract, and what only a file is exposed to: several processes at once, damage,
 * permissions, a newer version.
 */

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, open, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { OperatorError } from '../../src/errors.ts';
import { createKey, newAccount } from '../../src/keys/manage.ts';
import { hashKey } from '../../src/keys/format.ts';
import { temporaryFolder, temporaryKeyStore } from '../keys/temporary-store.ts';
import { keyStoreContract } from './keys.ts';

const NOW = Date.UTC(2026, 10, 15);
const OPTIONS = {
  name: 'test',
  kind: 'secret',
  environment: 'production',
  origins: [],
  expiresAt: null,
  now: NOW,
} as const;

keyStoreContract('SQLite', async () => {
  const { folder, remove } = await temporaryFolder();
  const file = join(folder, 'keys.db');
  const store = openSqliteKeyStore(file);
  return {
    store,
    reopen: async () => openSqliteKeyStore(file),
    dispose: async () => {
      await store.close();
      await remove();
    },
  };
});

test('four processes that start at once on a new file all write their keys, and none is lost', async (context) => {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const file = join(folder, 'keys.db');
  const keysEach = 25;
  const writers = [1, 2, 3, 4].map(() => fork(join(import.meta.dirname, 'key-writer.ts'), [file, String(keysEach)]));
  await Promise.all(writers.map((writer) => once(writer, 'message')));
  for (const writer of writers) writer.send('go');
  const exits = await Promise.all(writers.map((writer) => once(writer, 'exit')));
  assert.deepEqual(
    exits.map(([code]) => code as unknown),
    [0, 0, 0, 0],
  );

  const store = openSqliteKeyStore(file);
  assert.equal((await store.list()).length, 4 * keysEach);
  assert.equal((await store.accounts()).length, 1);
  await store.close();
});

test('a new file that another process is just setting up is waited for', async (context) => {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const file = join(folder, 'keys.db');
  const holder = new Worker(new URL('lock-holder.ts', import.meta.url), { workerData: { file, holdMs: 200 } });
  const ended = once(holder, 'exit');
  await once(holder, 'message');
  const store = openSqliteKeyStore(file);
  assert.deepEqual(await store.list(), []);
  await store.close();
  await ended;
});

test('the file is for its owner alone, and so are the files beside it and a new folder', async (context) => {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const file = join(folder, 'new', 'data', 'keys.db');
  const store = openSqliteKeyStore(file);
  await store.ensureAccount(newAccount('acme', NOW));
  const modes = await Promise.all(
    [join(folder, 'new', 'data'), file, `${file}-wal`, `${file}-shm`].map(
      async (path) => (await stat(path)).mode & 0o777,
    ),
  );
  await store.close();
  assert.deepEqual(modes, [0o700, 0o600, 0o600, 0o600]);
});

test('the file holds neither a key nor its random part', async (context) => {
  const { file, store } = await temporaryKeyStore(context);
  const account = await store.ensureAccount(newAccount('acme', NOW));
  const { key } = await createKey(store, { ...OPTIONS, accountId: account.id });
  await store.close();
  const content = await readFile(file, 'latin1');
  assert.ok(content.includes(account.id));
  assert.ok(!content.includes(key.slice('sk_prod_'.length, -6)));
});

test('no read stays open: another process can empty the write-ahead log while the store is in use', async (context) => {
  const { file, store } = await temporaryKeyStore(context);
  const account = await store.ensureAccount(newAccount('acme', NOW));
  const { key } = await createKey(store, { ...OPTIONS, accountId: account.id });
  await store.findByHash(hashKey(key));
  await store.list();
  await store.accounts();
  const other = new DatabaseSync(file);
  const result = other.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get();
  other.close();
  assert.deepEqual({ ...result }, { busy: 0, log: 0, checkpointed: 0 });
  assert.equal((await store.list()).length, 1);
});

test('the file is in write-ahead mode, so readers and a writer do not wait for each other', async (context) => {
  const { file, store } = await temporaryKeyStore(context);
  await store.accounts();
  const other = new DatabaseSync(file);
  assert.equal(other.prepare('PRAGMA journal_mode').get()?.journal_mode, 'wal');
  other.close();
});

test('a file that is no database is refused in words that say what to do', async (context) => {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const file = join(folder, 'keys.db');
  const garbage = Buffer.alloc(8_192, 'garbage ');
  await writeFile(file, garbage);
  assertRefused(() => openSqliteKeyStore(file), file, /is damaged .*backup.*sluice keys create/s);
  assert.deepEqual(await readFile(file), garbage);
});

test('a file with a damaged page is refused at opening', async (context) => {
  const { file, store } = await temporaryKeyStore(context);
  const account = await store.ensureAccount(newAccount('acme', NOW));
  for (let i = 0; i < 50; i++) await createKey(store, { ...OPTIONS, accountId: account.id });
  await store.close();
  const handle = await open(file, 'r+');
  await handle.write(Buffer.alloc(4_096, 0xa5), 0, 4_096, 3 * 4_096);
  await handle.close();
  assertRefused(() => openSqliteKeyStore(file), file, /is damaged/);
});

test('a file of a newer version is refused and left alone', async (context) => {
  const { file, store } = await temporaryKeyStore(context);
  await store.close();
  const database = new DatabaseSync(file);
  database.exec('PRAGMA user_version = 99');
  database.close();
  assertRefused(() => openSqliteKeyStore(file), file, /newer Sluice/);
});

test('a folder in the place of the file is refused in words', async (context) => {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const file = join(folder, 'keys.db');
  await mkdir(file);
  assertRefused(() => openSqliteKeyStore(file), file, /cannot be opened/);
});

test('a file in the place of the folder is refused in words', async (context) => {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  await writeFile(join(folder, 'data'), '');
  const file = join(folder, 'data', 'keys.db');
  assertRefused(() => openSqliteKeyStore(file), file, /cannot be opened/);
});

function assertRefused(opening: () => unknown, file: string, message: RegExp): void {
  assert.throws(opening, (error) => {
    assert.ok(error instanceof OperatorError);
    assert.match(error.message, message);
    assert.ok(error.message.includes(file));
    return true;
  });
}
