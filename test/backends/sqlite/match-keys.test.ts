/** Match keys by their hashes: the same after reopening, apart where hashes are nearly alike, and of files of version 1. */

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test, type TestContext } from 'node:test';
import type { HashOfKey } from '../../../src/stored/keyed-hash.ts';
import { hashesOf, StoreMatchKeys } from '../../../src/backends/sqlite/store-match-keys.ts';
import { openStoreFile } from '../../../src/backends/sqlite/store-schema.ts';
import { openSqliteStore } from '../../../src/backends/sqlite/store.ts';
import { openSqliteStoreWriter } from '../../../src/backends/sqlite/store-writer.ts';
import { IDENTIFIER_TYPES } from '../../../src/model.ts';
import { feed, OTHER_TENANT, person, request, TENANT } from '../../contract/store-feeding.ts';
import { entriesOf } from '../../processor/history.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';
import { VERSION_1 } from './store-version-1.ts';

const ADA = { type: 'user_id', value: 'ada' } as const;
const EVE = { type: 'user_id', value: 'eve' } as const;

function storeFileIn(context: TestContext): string {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  return join(folder, 'store.db');
}

function companiesIn(file: string): number {
  const database = new DatabaseSync(file);
  const row = database.prepare('SELECT count(company) AS count FROM match_keys').get();
  database.close();
  return Number(row?.['count']);
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
    const keys = new StoreMatchKeys(database, hashOf);
    keys.insert(1, ADA, 10, null);
    assert.equal(keys.find(1, EVE), undefined);
    keys.insert(1, EVE, 20, -(2 ** 52));
    assert.deepEqual(keys.find(1, ADA), { node: 10, company: null });
    assert.deepEqual(keys.find(1, EVE), { node: 20, company: -(2 ** 52) });
    keys.remove(1, ADA);
    assert.equal(keys.find(1, ADA), undefined);
    assert.deepEqual(keys.find(1, EVE), { node: 20, company: -(2 ** 52) });
    assert.throws(() => keys.insert(1, EVE, 30, null), /UNIQUE/);
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

  test('say the same to a writer that knows nobody yet as to one that remembers everybody', async (context) => {
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
    assert.ok(companiesIn(other) > 0);
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
    assert.equal(database.prepare('SELECT count(*) AS count FROM match_keys').get()?.['count'], 2);
    assert.equal(database.prepare('SELECT count(*) AS count FROM identifiers').get()?.['count'], 2);
    database.close();
  });
});

/** Three people: two of them merged, and one of another tenant with the same identifiers; and many more. */
function makeVersion1(file: string, more: number): void {
  const database = new DatabaseSync(file);
  database.exec(`PRAGMA journal_mode = WAL; BEGIN; ${VERSION_1}`);
  database.prepare('INSERT INTO tenants VALUES (1, ?), (2, ?)').run(TENANT, OTHER_TENANT);
  const node = database.prepare('INSERT INTO nodes VALUES (?, ?, ?, 1000, ?, 0, 1, 1000, 1000, NULL)');
  const identifier = database.prepare('INSERT INTO identifiers VALUES (?, ?, ?, ?, ?, ?, ?, ?)');
  for (const [no, tenant] of [
    [1, 1],
    [2, 1],
    [3, 2],
  ] as const) {
    node.run(no, tenant, randomBytes(16), randomBytes(16));
    identifier.run(tenant, 3, `device-${no}`, no, null, null, null, null);
  }
  identifier.run(1, 0, 'ada', 1, ' ada ', null, null, null);
  identifier.run(1, 1, 'ada@x.org', 1, 'Ada@x.org', 5_000, randomBytes(16), 7);
  identifier.run(1, 2, '+49151123456', 2, null, null, null, null);
  identifier.run(1, 3, 'ünï\u{1f600}'.repeat(200), 2, null, null, null, null);
  identifier.run(2, 0, 'ada', 3, null, null, null, null);
  database.exec('INSERT INTO aliases VALUES (2, 1)');
  for (let no = 10; no < 10 + more; no++) {
    node.run(no, 1, randomBytes(16), randomBytes(16));
    for (const type of [0, 3]) identifier.run(1, type, `${more - no}`, no, null, null, null, null);
  }
  database.exec(`UPDATE sequences SET next = ${10 + more} WHERE name = 'node'; COMMIT`);
  database.close();
}

function rowsOf(file: string): unknown[] {
  const database = new DatabaseSync(file);
  const rows = database.prepare('SELECT * FROM identifiers ORDER BY node, type, value').all();
  database.close();
  return rows;
}

suite('A store of version 1', () => {
  test('is brought up to date: every key finds its node, and every row is there', async (context) => {
    const file = storeFileIn(context);
    makeVersion1(file, 5_000);
    const before = rowsOf(file) as { tenant: number; type: number; value: string; node: number }[];
    const database = openStoreFile(file, 'writer');
    const keys = new StoreMatchKeys(database);
    for (const { tenant, type, value, node } of before) {
      const found = keys.find(tenant, { type: IDENTIFIER_TYPES[type] ?? 'user_id', value });
      assert.equal(found?.node, node);
    }
    // Those that came with the node, and not the one that came later.
    const together = [ADA, { type: 'anon_id', value: 'device-1' } as const];
    assert.equal(keys.find(1, ADA)?.company, keys.companyOf(1, together));
    assert.equal(keys.find(1, { type: 'email', value: 'ada@x.org' })?.company, null);
    assert.equal(keys.find(1, { type: 'anon_id', value: 'device-1' })?.company, null);
    assert.equal(database.prepare('SELECT count(*) AS count FROM match_keys').get()?.['count'], before.length);
    assert.equal(database.prepare('PRAGMA integrity_check').get()?.['integrity_check'], 'ok');
    database.close();
    assert.deepEqual(rowsOf(file), before);
  });

  test('goes on: known people are known, their profiles are read, and erased', async (context) => {
    const file = storeFileIn(context);
    makeVersion1(file, 3);
    const writer = openSqliteStoreWriter({ file });
    const store = openSqliteStore(file);
    await feed({ writer }, [request([person({ user_id: 'ada', anon_id: 'device-2', email: 'new@x.org' })])]);
    const ada = await store.findProfile(TENANT, 'email', 'new@x.org');
    assert.equal(ada?.identifiers.anon_id.length, 3);
    assert.equal(ada.id, (await store.findProfile(TENANT, 'phone_number', '+49151123456'))?.id);
    assert.equal(ada.eventCount, 3);
    // Ada, and the three more.
    assert.equal(await store.profileCount(TENANT), 4);
    await store.erase(TENANT, ada.id, { traceId: '01957000-0000-7000-8000-00000000ac70', at: Date.now() });
    assert.equal(await store.findProfile(TENANT, 'email', 'ada@x.org'), undefined);
    assert.ok(await store.findProfile(OTHER_TENANT, 'user_id', 'ada'));
    await store.close();
    await writer.close();
  });
});
