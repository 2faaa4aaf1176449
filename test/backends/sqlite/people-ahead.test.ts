/** People who are read ahead of being met: those who are found are the right ones, and nobody is found who was forgotten. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test, type TestContext } from 'node:test';
import type { HashOfKey } from '../../../src/stored/keyed-hash.ts';
import { KeyFilter } from '../../../src/backends/sqlite/key-filter.ts';
import { DROPPED_MAX, PEOPLE_AHEAD_MAX, PeopleAhead } from '../../../src/backends/sqlite/people-ahead.ts';
import { PeopleReading } from '../../../src/backends/sqlite/people-reading.ts';
import { hashesOf, StoreMatchKeys } from '../../../src/backends/sqlite/store-match-keys.ts';
import { openStoreFile } from '../../../src/backends/sqlite/store-schema.ts';
import { openSqliteStore } from '../../../src/backends/sqlite/store.ts';
import { openSqliteStoreWriter } from '../../../src/backends/sqlite/store-writer.ts';
import { person, profileOf, send, START, TENANT } from '../../contract/store-feeding.ts';
import { eventually, removeFolder, temporaryFolder } from '../../server.ts';

const PEOPLE = 20_500;

function storeFileIn(context: TestContext): string {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  return join(folder, 'store.db');
}

/** Two keys each, the weaker one without a company. */
function fill(file: string): void {
  const database = openStoreFile(file, 'writer');
  const keys = new StoreMatchKeys(database);
  database.exec('BEGIN');
  for (let node = 1; node <= PEOPLE; node++) {
    const [strongest, other] = keysOf(node);
    keys.insert(1, strongest, node, keys.companyOf(1, [strongest, other]));
    keys.insert(1, other, node, null);
  }
  database.exec('COMMIT');
  database.close();
}

function keysOf(node: number) {
  return [{ type: 'user_id', value: `u${node}` } as const, { type: 'anon_id', value: `a${node}` } as const] as const;
}

suite('People who are read ahead', () => {
  test('are found by the hash of their strongest key and that of all keys, and by nothing else', () => {
    const ahead = new PeopleAhead();
    assert.deepEqual([ahead.isEmpty, ahead.get(1, 2)], [true, undefined]);
    ahead.makeRoom(100);
    const hashes = Array.from({ length: 100 }, (_, n) => (((n + 1) * 2_654_435_761) % 2 ** 31) * 2 ** 17 - 2 ** 47 + n);
    ahead.add(Float64Array.from(hashes.flatMap((hash, n) => [hash, -n * 2 ** 40 - 1, n + 1])));
    const found = hashes.filter((hash, n) => ahead.get(hash, -n * 2 ** 40 - 1) === n + 1);
    assert.equal(found.length, 100);
    for (const [n, hash] of hashes.entries()) {
      assert.equal(ahead.get(hash, n * 2 ** 40 + 1), undefined);
      assert.equal(ahead.get(hash + 1, -n * 2 ** 40 - 1), undefined);
    }
    assert.equal(ahead.get(0, 0), undefined, 'nobody is in a free slot');
    ahead.clear();
    assert.deepEqual([ahead.isEmpty, found.map((hash) => ahead.get(hash, -1))[0]], [true, undefined]);
  });

  test('are left out where there is no room for them', () => {
    const ahead = new PeopleAhead();
    ahead.makeRoom(2);
    ahead.add(Float64Array.from({ length: 300 }, (_, n) => n + 1));
    let found = 0;
    for (let n = 0; n < 100; n++) if (ahead.get(3 * n + 1, 3 * n + 2) === 3 * n + 3) found++;
    assert.ok(found > 0 && found < 100, `${found} of 100`);
    assert.ok(PEOPLE_AHEAD_MAX > 1_000_000);
  });

  test('are all that are in the store, each with the node of its keys', async (context) => {
    const file = storeFileIn(context);
    fill(file);
    const ahead = new PeopleAhead();
    const filter = new KeyFilter();
    const reading = new PeopleReading({ file }, ahead, filter);
    reading.start(PEOPLE);
    const database = openStoreFile(file, 'reader');
    const keys = new StoreMatchKeys(database);
    const nodeOf = (node: number): number | undefined => {
      const [strongest, other] = keysOf(node);
      return ahead.get(keys.hashOf(1, strongest).hash, keys.companyOf(1, [strongest, other]));
    };
    const countFound = (): number => {
      let found = 0;
      for (let node = 1; node <= PEOPLE; node++) {
        const seen = nodeOf(node);
        assert.ok(seen === undefined || seen === node);
        if (seen !== undefined) found++;
      }
      return found;
    };
    // One in thousands finds no room.
    await eventually('nearly all are read', () => countFound() > 0.99 * PEOPLE, 20_000);
    const [strongest] = keysOf(7);
    assert.equal(ahead.get(keys.hashOf(1, strongest).hash, keys.companyOf(1, [strongest])), undefined);
    await reading.ended();
    assert.ok(filter.isComplete);
    for (let node = 1; node <= PEOPLE; node++) {
      for (const key of keysOf(node)) assert.ok(filter.mayHave(keys.hashOf(1, key)));
    }
    let taken = 0;
    for (let node = 1; node <= PEOPLE; node++) {
      if (filter.mayHave(keys.hashOf(1, { type: 'email', value: `u${node}` }))) taken++;
    }
    assert.ok(taken < PEOPLE / 20, `${taken} of ${PEOPLE} unknown keys are taken for known ones`);
    database.close();
  });

  test('are forgotten with the rest, also while they are read', async (context) => {
    const file = storeFileIn(context);
    fill(file);
    const ahead = new PeopleAhead();
    let added = 0;
    const add = ahead.add.bind(ahead);
    ahead.add = (people) => {
      added++;
      add(people);
    };
    const reading = new PeopleReading({ file }, ahead, new KeyFilter());
    reading.start(PEOPLE);
    reading.forget();
    assert.ok(ahead.isEmpty);
    // Not again at once: whoever erases people all day would read all day.
    reading.start(PEOPLE);
    await reading.ended();
    assert.deepEqual([ahead.isEmpty, added], [true, 0]);
    reading.start(PEOPLE, performance.now() + 3_600_000);
    await reading.ended();
    assert.ok(added > 0 && !ahead.isEmpty);
  });

  test('are not found once they were dropped, also while they are read, and others are', async (context) => {
    const file = storeFileIn(context);
    fill(file);
    const ahead = new PeopleAhead();
    const reading = new PeopleReading({ file }, ahead, new KeyFilter());
    reading.start(PEOPLE);
    reading.drop(new Set([7, 8]));
    await reading.ended();
    const database = openStoreFile(file, 'reader');
    const keys = new StoreMatchKeys(database);
    const nodeOf = (node: number): number | undefined => {
      const [strongest, other] = keysOf(node);
      return ahead.get(keys.hashOf(1, strongest).hash, keys.companyOf(1, [strongest, other]));
    };
    const found = (): number[] => Array.from({ length: 200 }, (_, n) => n + 1).filter((node) => nodeOf(node) === node);
    const before = found();
    assert.ok(before.length > 190 && !before.includes(7) && !before.includes(8), `${before.length} of 200`);
    reading.drop(new Set([9, 10]));
    assert.deepEqual(
      found(),
      before.filter((node) => node !== 9 && node !== 10),
    );
    database.close();
    // Too many to remember: all are forgotten, and read again.
    reading.drop(new Set(Array.from({ length: DROPPED_MAX }, (_, n) => n + 100)));
    assert.ok(ahead.isEmpty);
    reading.start(PEOPLE, performance.now() + 3_600_000);
    await reading.ended();
    assert.ok(!ahead.isEmpty);
  });

  test('come without a filter where there are too many keys for one', async (context) => {
    const file = storeFileIn(context);
    fill(file);
    const [ahead, filter] = [new PeopleAhead(), new KeyFilter()];
    const reading = new PeopleReading({ file, filterBitsMax: 1 }, ahead, filter);
    reading.start(PEOPLE);
    await reading.ended();
    assert.deepEqual([filter.isComplete, ahead.isEmpty], [false, false]);
    assert.ok(filter.mayHave({ hash: 1, rest: 1 }));
  });

  test('are not read from a file of another version, and that is not changed', async (context) => {
    const file = storeFileIn(context);
    fill(file);
    const database = new DatabaseSync(file);
    database.exec('PRAGMA user_version = 2');
    const filter = new KeyFilter();
    const reading = new PeopleReading({ file }, new PeopleAhead(), filter);
    reading.start(PEOPLE);
    await reading.ended();
    assert.equal(filter.isComplete, false);
    assert.equal(database.prepare('PRAGMA user_version').get()?.['user_version'], 2);
    database.close();
  });

  test('do not matter where the file cannot be read', async (context) => {
    const ahead = new PeopleAhead();
    const reading = new PeopleReading(
      { file: join(storeFileIn(context), 'no', 'such', 'file.db') },
      ahead,
      new KeyFilter(),
    );
    reading.start(PEOPLE);
    await reading.ended();
    assert.equal(ahead.get(1, 1), undefined);
  });

  test('come to the same profiles as those who are looked up, and whoever was erased meanwhile is somebody new', async (context) => {
    const file = storeFileIn(context);
    const everybody = Array.from({ length: PEOPLE }, (_, n) => person({ user_id: `u${n}`, anon_id: `a${n}` }));
    const first = openSqliteStoreWriter({ file });
    const store = openSqliteStore(file);
    for (let from = 0; from < PEOPLE; from += 1_000) {
      await send({ writer: first, store, close: async () => undefined }, everybody.slice(from, from + 1_000));
    }
    await first.close();
    const database = new DatabaseSync(file, { readOnly: true });
    const hashOf = hashesOf(database);
    let hashes = 0;
    const counting: HashOfKey = (...key) => {
      hashes += 1;
      return hashOf(...key);
    };
    const writer = openSqliteStoreWriter({ file, hasThreads: true, hashOf: counting });
    const under = { writer, store, close: async () => undefined };
    await send(under, everybody.slice(0, 10), { receivedAt: START + 1 });
    const { id } = await profileOf(under, 'user_id', 'u20');
    await store.erase(TENANT, id, { traceId: '01957000-0000-7000-8000-00000000ac70', at: START + 2 });
    for (let n = 0; n < 3; n++) await send(under, everybody.slice(10, 1_000), { receivedAt: START + 10 + n });
    assert.equal(database.prepare('SELECT count(*) AS n FROM nodes').get()?.['n'], PEOPLE);
    database.close();
    assert.notEqual((await profileOf(under, 'user_id', 'u20')).id, id);
    assert.equal((await profileOf(under, 'anon_id', 'a20')).eventCount, 3);
    assert.equal((await profileOf(under, 'anon_id', 'a999')).eventCount, 4);
    // Whoever was read ahead takes two hashes, of the strongest key and of all; whoever is looked up takes more.
    let next = 3_000;
    await eventually('all are read', async () => {
      hashes = 0;
      await send(under, everybody.slice(next, next + 10), { receivedAt: START + next });
      next += 10;
      return hashes <= 24;
    });
    const read = await profileOf(under, 'user_id', 'u2000');
    await store.erase(TENANT, read.id, { traceId: '01957000-0000-7000-8000-00000000ac71', at: START + 2 });
    await send(under, everybody.slice(2_000, 2_002), { receivedAt: START + 3 });
    assert.notEqual((await profileOf(under, 'user_id', 'u2000')).id, read.id);
    assert.equal((await profileOf(under, 'anon_id', 'a2001')).eventCount, 2);
    await store.close();
    await writer.close();
  });
});
