/** The store in a thread of its own: the same responses, errors of the same class, and a life of its own. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openSqliteStoreClient } from '../../../src/backends/embedded/store/client.ts';
import { storeFileOf } from '../../../src/data-folder/files.ts';
import { BadCursorError, type Store } from '../../../src/store.ts';
import { StoreUnavailableError } from '../../../src/store-writer.ts';
import { ALL_EVENTS, person, request, TENANT } from '../../contract/store-feeding.ts';
import { entriesOf } from '../../processor/history.ts';
import { appendAll, processAll, withStore } from '../../processor/processing.ts';
import { dumpOf } from '../../processor/store-dump.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

const CLIENT = fileURLToPath(new URL('../../../src/backends/embedded/store/client.ts', import.meta.url));

suite('The store in a thread of its own', () => {
  async function inFolder(use: (folder: string, client: Store) => Promise<void>): Promise<void> {
    const folder = temporaryFolder();
    const client = openSqliteStoreClient({ dataFolder: folder });
    try {
      await use(folder, client);
    } finally {
      await client.close();
      removeFolder(folder);
    }
  }

  test('it gives the same results as the store itself', async () => {
    await inFolder(async (folder, client) => {
      const entries = entriesOf(5, 60);
      await appendAll(folder, entries);
      await processAll(folder);
      const ids = entries.map(({ traceId }) => traceId);
      const lines = await dumpOf(client, ids);
      assert.ok(lines.length > 100);
      await withStore(storeFileOf(folder), async (store) => assert.deepEqual(await dumpOf(store, ids), lines));
    });
  });

  test('a promise may resolve with it', { timeout: 30_000 }, async () => {
    await inFolder(async (_, client) => assert.equal(await Promise.resolve(client), client));
  });

  test('it knows what is still in the log', async () => {
    await inFolder(async (folder, client) => {
      const entry = request([person({ user_id: 'u' })]);
      await appendAll(folder, [entry]);
      assert.equal((await client.trace(TENANT, entry.traceId))?.status, 'pending');
      await processAll(folder);
      assert.equal((await client.trace(TENANT, entry.traceId))?.status, 'processed');
    });
  });

  test('unmerges and erases are done and seen', async () => {
    await inFolder(async (folder, client) => {
      const entry = request([person({ user_id: 'u' })]);
      await appendAll(folder, [entry]);
      await processAll(folder);
      const profile = await client.findProfile(TENANT, 'user_id', 'u');
      assert.ok(profile);
      const act = { traceId: entry.traceId, at: entry.receivedAt + 1 };
      assert.deepEqual(await client.unmerge(TENANT, profile.id, entry.traceId, act), {
        undone: 0,
        profileIds: [profile.id],
      });
      assert.equal(await client.erase(TENANT, profile.id, act), true);
      assert.equal(await client.profile(TENANT, profile.id), undefined);
    });
  });

  test('a bad cursor is a BadCursorError here too, and other calls succeed beside it', async () => {
    await inFolder(async (folder, client) => {
      await appendAll(folder, [request([person({ user_id: 'u' })])]);
      await processAll(folder);
      const [bad, good] = await Promise.allSettled([
        client.events(TENANT, { ...ALL_EVENTS, cursor: 'x' }),
        client.events(TENANT, ALL_EVENTS),
      ]);
      assert.ok(bad.status === 'rejected' && bad.reason instanceof BadCursorError);
      assert.ok(good.status === 'fulfilled' && good.value?.rows.length === 1);
    });
  });

  test('a file that is no store is reported as a store that is not available, and a later call tries again', async () => {
    await inFolder(async (folder, client) => {
      mkdirSync(folder, { recursive: true });
      writeFileSync(storeFileOf(folder), 'not a database, by far '.repeat(1_000));
      const calls = await Promise.allSettled([client.tenants(), client.recount()]);
      for (const call of calls) assert.ok(call.status === 'rejected' && call.reason instanceof StoreUnavailableError);
      await assert.rejects(client.tenants(), StoreUnavailableError);
      removeFolder(storeFileOf(folder));
      assert.deepEqual(await client.tenants(), []);
    });
  });

  test('after close every call is rejected, and closing twice or unused is no mistake', async () => {
    await inFolder(async (folder, client) => {
      await appendAll(folder, [request([person({ user_id: 'u' })])]);
      assert.deepEqual(await client.tenants(), []);
      await client.close();
      await assert.rejects(client.tenants(), StoreUnavailableError);
      await client.close();
    });
    await inFolder(async () => undefined);
  });

  test('it does not keep a process alive, but for the time of a call', async () => {
    const folder = temporaryFolder();
    const setup = JSON.stringify({ dataFolder: folder });
    const program = `
      import { openSqliteStoreClient } from ${JSON.stringify(CLIENT)};
      const client = openSqliteStoreClient(${setup});
      console.log(JSON.stringify(await client.tenants()));`;
    const file = join(folder, 'ask.ts');
    writeFileSync(file, program);
    const child = spawn(process.execPath, [file]);
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    assert.deepEqual(await once(child, 'close'), [0, null]);
    assert.equal(output, '[]\n');
    removeFolder(folder);
  });
});
