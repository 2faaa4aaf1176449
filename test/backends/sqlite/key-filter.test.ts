/** A filter of keys may take one that nobody has for somebody's, but never the other way round. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { KeyFilter } from '../../../src/backends/sqlite/key-filter.ts';
import { keyHashes } from '../../../src/stored/keyed-hash.ts';
import { openSqliteStore } from '../../../src/backends/sqlite/store.ts';
import { openSqliteStoreWriter } from '../../../src/backends/sqlite/store-writer.ts';
import { person, profileOf, send, START } from '../../contract/store-feeding.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

const hashOf = keyHashes(new Uint8Array(32).fill(7));
const known = (n: number) => hashOf(1, 0, `known ${n}`);
const unknown = (n: number) => hashOf(1, 0, `unknown ${n}`);
/** More than two layers hold. */
const KEYS = 2_300_000;

suite('A filter of match keys', () => {
  test('knows every key that was added, however many there are, and few others', () => {
    const filter = new KeyFilter();
    filter.complete([]);
    assert.equal(filter.mayHave(known(0)), false);
    for (let n = 0; n < KEYS; n++) filter.add(known(n));
    assert.ok(filter.layers.length > 2);
    for (let n = 0; n < KEYS; n++) assert.ok(filter.mayHave(known(n)));
    let taken = 0;
    for (let n = 0; n < 100_000; n++) if (filter.mayHave(unknown(n))) taken++;
    assert.ok(taken < 5_000, `${taken} of 100,000 unknown keys are taken for known ones`);
  });

  test('says nothing before it is complete, and nothing any more when it has given up', () => {
    const [filter, others] = [new KeyFilter(), new KeyFilter()];
    filter.add(known(1));
    others.add(known(2));
    assert.ok(filter.mayHave(unknown(1)));
    filter.complete(others.layers);
    assert.deepEqual(
      [known(1), known(2), unknown(1)].map((hash) => filter.mayHave(hash)),
      [true, true, false],
    );
    filter.giveUp();
    assert.ok(filter.mayHave(unknown(1)));
    filter.add(known(3));
    filter.complete([]);
    assert.equal(filter.isComplete, false);
    assert.ok(filter.mayHave(unknown(1)));
  });

  test('gives up when there are too many keys, and then says nothing', () => {
    const filter = new KeyFilter(2 ** 22);
    filter.complete([]);
    let added = 0;
    for (; !filter.hasGivenUp; added++) filter.add(known(added));
    assert.ok(added > 400_000 && added < 450_000, `${added} keys`);
    assert.ok(filter.mayHave(unknown(1)));
    assert.deepEqual(filter.layers, []);
  });

  test('is not trusted by a writer when another one has written to the file', async () => {
    const folder = temporaryFolder();
    const file = join(folder, 'store.db');
    const [one, other] = [openSqliteStoreWriter({ file }), openSqliteStoreWriter({ file })];
    const store = openSqliteStore(file);
    const close = async (): Promise<void> => undefined;
    try {
      await send({ writer: one, store, close }, [person({ user_id: 'ada' })]);
      await send({ writer: other, store, close }, [person({ user_id: 'eve' })], { receivedAt: START + 1 });
      await send({ writer: one, store, close }, [person({ user_id: 'eve' })], { receivedAt: START + 2 });
      assert.equal((await profileOf({ writer: one, store, close }, 'user_id', 'eve')).eventCount, 2);
    } finally {
      await store.close();
      await one.close();
      await other.close();
      removeFolder(folder);
    }
  });
});
