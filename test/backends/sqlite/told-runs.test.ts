/** What is told of nodes beside their rows: packed and unpacked, and brought into the rows slice by slice, nothing twice. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { openSqliteStore } from '../../../src/backends/sqlite/store.ts';
import { openSqliteStoreWriter } from '../../../src/backends/sqlite/store-writer.ts';
import { type Told, ToldChunkWriter, unpackTold } from '../../../src/backends/sqlite/told-chunks.ts';
import { person, profileOf, send, START } from '../../contract/store-feeding.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

/** Their texts as texts. */
function readable(told: Iterable<Told>): unknown[] {
  const all = [];
  for (const { node, events, first, last, known } of told) {
    all.push([node, events, first, last, known && Buffer.from(known).toString()]);
  }
  return all;
}

function unpacked(told: readonly Told[]): unknown[] {
  const writer = new ToldChunkWriter();
  for (const one of told) writer.add(one);
  const { first } = writer;
  const chunk = writer.take();
  assert.ok(writer.isEmpty);
  return readable(unpackTold(first, chunk));
}

suite('What is told of nodes', () => {
  test('comes out of a chunk as it went in', () => {
    const told: Told[] = [
      { node: 5, events: 0, first: -1, last: 7, known: Buffer.from('é') },
      { node: 6, events: 300, first: 1_794_752_401_558, last: 1_794_752_401_559, known: undefined },
      { node: 2 ** 33, events: 2 ** 40, first: 0, last: 2 ** 44, known: Buffer.alloc(200_000, 'x') },
      { node: 2 ** 33 + 1, events: 1, first: 9, last: 9, known: Buffer.alloc(0) },
    ];
    assert.deepEqual(unpacked(told), readable(told));
    assert.deepEqual(unpacked(told.slice(1)), readable(told.slice(1)));
  });

  test('a chunk is full when it has many nodes or much text, and never before it has one', () => {
    const writer = new ToldChunkWriter();
    const long = { events: 1, first: 1, last: 1, known: Buffer.alloc(50_000) };
    assert.equal(writer.isFullFor({ node: 1, ...long }), false);
    writer.add({ node: 1, ...long });
    assert.equal(writer.isFullFor({ node: 2, ...long, known: Buffer.alloc(1) }), true);
    writer.take();
    let nodes = 0;
    for (; !writer.isFullFor({ node: nodes, ...long, known: undefined }); nodes += 1) {
      writer.add({ node: nodes, ...long, known: undefined });
    }
    assert.ok(nodes > 10 && nodes < 1_000);
  });

  test('is in the rows of the nodes after as many transactions as it takes, and reads the same all the while', async () => {
    const folder = temporaryFolder();
    const file = join(folder, 'store.db');
    const toldSizes = { runNodesMin: 10, sparseFrom: 1, sliceNodesMax: 40 };
    const [writer, store] = [openSqliteStoreWriter({ file, toldSizes }), openSqliteStore(file)];
    const under = { writer, store, close: async () => undefined };
    const database = new DatabaseSync(file, { readOnly: true });
    const count = (table: string): number =>
      Number(database.prepare(`SELECT count(*) AS n FROM ${table}`).get()?.['n']);
    const everybody = (n: number): unknown[] =>
      Array.from({ length: 200 }, (_, p) =>
        person({ user_id: `u${p}` }, [{}], { a: n, [`b${p % 3 === 0 ? n : 0}`]: n }),
      );
    try {
      await send(under, everybody(0));
      assert.equal(count('told'), 0);
      for (let n = 1; n <= 6; n += 1) await send(under, everybody(n), { receivedAt: START + n });
      assert.ok(count('told') > 0 && count('told_runs') > 1);
      const expected = async (events: number): Promise<void> => {
        for (const p of [0, 1, 39, 40, 41, 198, 199]) {
          const { eventCount, lastSeen, userProperties } = await profileOf(under, 'user_id', `u${p}`);
          assert.deepEqual([eventCount, lastSeen - START], [events, 6]);
          assert.equal(userProperties.get('a')?.value, '6');
          assert.equal(userProperties.size, p % 3 === 0 ? 8 : 2);
        }
      };
      await expected(7);
      await writer.catchUp();
      await expected(7);
      // So few that they write no run, but each brings a slice of the others up to date.
      for (let n = 0; count('told_runs') > 0; n += 1) {
        assert.ok(n < 100, 'what is told never comes to an end');
        await send(under, [person({ user_id: `somebody${n}` })]);
        await expected(7);
      }
      assert.equal(count('told'), 0);
      for (let n = 1; n <= 6; n += 1) await send(under, everybody(n), { receivedAt: START + n });
      let pieces = 0;
      while (await writer.catchUp()) pieces += 1;
      assert.ok(pieces > 1, `${pieces} pieces`);
      assert.deepEqual([count('told'), count('told_runs')], [0, 0]);
      await expected(13);
      const sums = database.prepare('SELECT sum(events) AS events FROM nodes WHERE no <= 200').get();
      assert.equal(sums?.['events'], 13 * 200);
    } finally {
      database.close();
      await store.close();
      await writer.close();
      removeFolder(folder);
    }
  });

  test('is not lost when the row was written to, and thought to be of one group, before it came there', async () => {
    const folder = temporaryFolder();
    const file = join(folder, 'store.db');
    const toldSizes = { runNodesMin: 100, sparseFrom: 1, sliceNodesMax: 1 };
    const [writer, store] = [openSqliteStoreWriter({ file, toldSizes }), openSqliteStore(file)];
    const under = { writer, store, close: async () => undefined };
    const everybody = (properties: object): unknown[] =>
      Array.from({ length: 200 }, (_, p) => person({ user_id: `u${p}` }, [{}], properties));
    const last = (properties: object): unknown[] => [person({ user_id: 'u199' }, [{}], properties)];
    try {
      await send(under, everybody({ plan: 'a' }), { receivedAt: START });
      await send(under, everybody({ city: 'b' }), { receivedAt: START + 1 });
      await send(under, everybody({ plan: 'c' }), { receivedAt: START + 8 });
      // Straight to the row, while a city and a newer plan are still beside it; then those come to the row.
      await send(under, last({ plan: 'd' }), { receivedAt: START + 3 });
      while (await writer.catchUp());
      await send(under, last({ plan: 'e' }), { receivedAt: START + 5 });
      const { userProperties } = await profileOf(under, 'user_id', 'u199');
      const values = [...userProperties].map(([name, { value }]) => `${name} ${value}`);
      assert.deepEqual(values, ['city "b"', 'plan "c"']);
    } finally {
      await store.close();
      await writer.close();
      removeFolder(folder);
    }
  });
});
