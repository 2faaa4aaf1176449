/** Match keys by their hashes: the same after reopening, apart where hashes are nearly alike. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test, type TestContext } from 'node:test';
import type { HashOfKey } from '../../../src/views/keyed-hash.ts';
import type { Entry } from '../../../src/backends/embedded/sorted-runs/entries.ts';
import { BufferedRuns } from '../../../src/backends/embedded/sorted-runs/sorted-runs.ts';
import { StoredRuns } from '../../../src/backends/embedded/sorted-runs/stored-runs.ts';
import { findOwner, hashesOf, MATCH_KEYS, runKeyOf } from '../../../src/backends/embedded/store/match-keys.ts';
import { openStoreFile } from '../../../src/backends/embedded/store/schema.ts';
import { openSqliteStore } from '../../../src/backends/embedded/store/store.ts';
import { openSqliteStoreWriter } from '../../../src/backends/embedded/store/writer.ts';
import { feed, person, request, TENANT } from '../../contract/store-feeding.ts';
import { entriesOf } from '../../processor/history.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

const ADA = { type: 'user_id', value: 'ada' } as const;
const EVE = { type: 'user_id', value: 'eve' } as const;

function storeFileIn(context: TestContext): string {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  return join(folder, 'store.db');
}

function keysIn(file: string): readonly Entry[] {
  const database = new DatabaseSync(file);
  const entries = [...new StoredRuns(database, MATCH_KEYS).all([Number.MIN_SAFE_INTEGER])];
  database.close();
  return entries;
}

suite('The match keys of a store', () => {
  test('have the same hashes after it was opened again, and others in another file', (context) => {
    const [file, other] = [storeFileIn(context), storeFileIn(context)];
    const hashes = [file, file, other].map((name) => {
      const database = openStoreFile(name, 'writer');
      const hash = hashesOf(database)(1, 0, 'ada');
      database.close();
      return hash;
    });
    assert.deepEqual(hashes[0], hashes[1]);
    assert.notDeepEqual(hashes[0], hashes[2]);
  });

  test('stay apart where only the rest of the hash differs', (context) => {
    const database = openStoreFile(storeFileIn(context), 'writer');
    const hashOf: HashOfKey = (_tenant, _type, value) => ({ hash: -5, rest: value.charCodeAt(0) });
    const keys = new BufferedRuns(database, MATCH_KEYS, () => 0);
    const [ada, eve] = [runKeyOf(hashOf, 1, ADA), runKeyOf(hashOf, 1, EVE)];
    keys.put(ada, [10]);
    assert.equal(findOwner(keys, eve), undefined);
    keys.put(eve, [20]);
    assert.equal(findOwner(keys, ada), 10);
    assert.equal(findOwner(keys, eve), 20);
    keys.flush();
    new StoredRuns(database, MATCH_KEYS).remove([ada]);
    assert.equal(findOwner(keys, ada), undefined);
    assert.equal(findOwner(keys, eve), 20);
    database.close();
  });

  test('are compared with the text too where a profile is read', async (context) => {
    const file = storeFileIn(context);
    const hashOf: HashOfKey = () => ({ hash: 1, rest: 1 });
    const writer = openSqliteStoreWriter({ file, hashOf });
    const store = openSqliteStore(file, { hashOf });
    await feed({ writer }, [request([person({ user_id: 'ada' })])]);
    assert.ok(await store.findProfile(TENANT, 'user_id', 'ada'));
    assert.equal(await store.findProfile(TENANT, 'user_id', 'eve'), undefined);
    await store.close();
    await writer.close();
  });

  test('give a writer with an empty cache the same result as one with a full cache', async (context) => {
    const [file, other] = [storeFileIn(context), storeFileIn(context)];
    const remembering = openSqliteStoreWriter({ file });
    for (const record of entriesOf(5, 200)) {
      const entry = { ...record, tenantId: TENANT };
      await feed({ writer: remembering }, [entry]);
      const forgetful = openSqliteStoreWriter({ file: other });
      await feed({ writer: forgetful }, [entry]);
      await forgetful.close();
    }
    await remembering.close();
    const [one, two] = [openSqliteStore(file), openSqliteStore(other)];
    const page = { limit: 500, cursor: null };
    const profiles = await one.profiles(TENANT, page);
    assert.ok(profiles.rows.some(({ mergedIds }) => mergedIds.length > 0));
    assert.deepEqual(await two.profiles(TENANT, page), profiles);
    await one.close();
    await two.close();
  });

  test('of an erased person are gone from both tables, and those of others are not', async (context) => {
    const file = storeFileIn(context);
    const writer = openSqliteStoreWriter({ file });
    const store = openSqliteStore(file);
    await feed({ writer }, [
      request([person({ user_id: 'ada', anon_id: 'a' }), person({ email: 'ada@x.org', anon_id: 'b' })]),
      request([person({ user_id: 'ada', email: 'ada@x.org' }), person({ user_id: 'eve', anon_id: 'e' })]),
    ]);
    const ada = await store.findProfile(TENANT, 'user_id', 'ada');
    assert.ok(ada);
    await store.erase(TENANT, ada.id, { traceId: '01957000-0000-7000-8000-00000000ac70', at: Date.now() });
    assert.ok(await store.findProfile(TENANT, 'anon_id', 'e'));
    await store.close();
    await writer.close();
    const database = new DatabaseSync(file);
    assert.equal(keysIn(file).length, 2);
    assert.equal(database.prepare('SELECT count(*) AS count FROM identifiers').get()?.['count'], 2);
    database.close();
  });
});
