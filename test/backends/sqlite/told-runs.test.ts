/** What is told of nodes beside their rows: packed and unpacked, and brought into the rows slice by slice, nothing twice. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { openSqliteStore } from '../../../src/backends/sqlite/store.ts';
import { openStoreFile } from '../../../src/backends/sqlite/store-schema.ts';
import { openSqliteStoreWriter } from '../../../src/backends/sqlite/store-writer.ts';
import {
  type Chunk,
  findTold,
  NO_NAMES,
  type TakeTold,
  ToldChunkWriter,
  unpackTold,
} from '../../../src/backends/sqlite/told-chunks.ts';
import { ToldRuns } from '../../../src/backends/sqlite/told-runs.ts';
import { person, profileOf, send, START } from '../../contract/store-feeding.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

type ToldOfNode = Parameters<TakeTold>;

/** Their texts as texts. */
function readable(told: readonly ToldOfNode[]): unknown[] {
  return told.map((numbers) => numbers.map((one) => (one instanceof Uint8Array ? Buffer.from(one).toString() : one)));
}

function packed(told: readonly ToldOfNode[]): { readonly first: number; readonly chunk: Chunk } {
  const writer = new ToldChunkWriter();
  for (const one of told) writer.add(...one);
  const { first } = writer;
  const chunk = writer.take();
  assert.ok(writer.isEmpty);
  return { first, chunk };
}

function unpacked(told: readonly ToldOfNode[]): unknown[] {
  const { first, chunk } = packed(told);
  const all: ToldOfNode[] = [];
  unpackTold(first, chunk, (...one) => all.push(one));
  return readable(all);
}

const TOLD: readonly ToldOfNode[] = [
  [5, 0, -1, 7, Buffer.from('é'), 2 ** 53 - 1, -1],
  [6, 300, 1_794_752_401_558, 1_794_752_401_559, undefined, NO_NAMES, 1_794_752_401_559],
  [9, 1, 2, 3, Buffer.from('of the same names'), 2 ** 53 - 1, 3],
  [2 ** 33, 2 ** 40, 0, 2 ** 44, Buffer.alloc(200_000, 'x'), NO_NAMES, 2 ** 44],
  [2 ** 33 + 1, 1, 9, 9, Buffer.from('and after none'), 2 ** 53 - 1, 9],
  [2 ** 33 + 2, 1, 9, 9, Buffer.from('of others'), 17, 9],
  [2 ** 33 + 3, 1, 9, 9, Buffer.alloc(0), 17, 9],
];

suite('What is told of nodes', () => {
  test('comes out of a chunk as it went in', () => {
    for (let from = 0; from < TOLD.length; from++) {
      const told = TOLD.slice(from);
      assert.deepEqual(unpacked(told), readable(told));
    }
  });

  test('is found in a chunk for each node, and not for others', () => {
    const { first, chunk } = packed(TOLD);
    for (const [node, events, seenFirst, seenLast, known] of TOLD) {
      const found = findTold(first, chunk.numbers, node);
      assert.deepEqual([found?.events, found?.first, found?.last], [events, seenFirst, seenLast]);
      const text =
        found && found.length >= 0 ? chunk.texts.subarray(found.start, found.start + found.length) : undefined;
      assert.deepEqual(text && Buffer.from(text).toString(), known && Buffer.from(known).toString());
    }
    for (const node of [4, 7, 8, 10, 2 ** 33 - 1, 2 ** 33 + 4]) {
      assert.equal(findTold(first, chunk.numbers, node), undefined);
    }
  });

  test('a chunk is full when it has many nodes or much text, and never before it has one', () => {
    const writer = new ToldChunkWriter();
    assert.equal(writer.isFullFor(50_000), false);
    writer.add(1, 1, 1, 1, Buffer.alloc(50_000), NO_NAMES, 1);
    assert.equal(writer.isFullFor(1), true);
    writer.take();
    let nodes = 0;
    for (; !writer.isFullFor(0); nodes += 1) writer.add(nodes, 1, 1, 1, undefined, NO_NAMES, 1);
    assert.ok(nodes > 10 && nodes < 1_000);
  });

  test('is in the rows of the nodes after as many transactions as it takes, and reads the same all the while', async () => {
    const folder = temporaryFolder();
    const file = join(folder, 'store.db');
    const toldSizes = { runNodesMin: 10, sliceNodesMax: 40 };
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

  test('stays in few runs, with low numbers, also where only the oldest people go on coming', async () => {
    const folder = temporaryFolder();
    const file = join(folder, 'store.db');
    const [writer, store] = [openSqliteStoreWriter({ file, toldSizes: { runNodesMin: 24 } }), openSqliteStore(file)];
    const under = { writer, store, close: async () => undefined };
    const database = new DatabaseSync(file, { readOnly: true });
    const people = (from: number, to: number, plan: string): unknown[] =>
      Array.from({ length: to - from }, (_, n) => person({ user_id: `u${from + n}` }, [{}], { plan }));
    try {
      for (let from = 0; from < 4_000; from += 1_000) await send(under, people(from, from + 1_000, 'a'));
      for (let n = 0; n < 24; n += 1) {
        const from = (n % 4) * 1_000;
        await send(under, people(from, from + 1_000, 'b'.repeat(4_000)), { receivedAt: START + 1 + n });
      }
      for (let n = 0; n < 300; n += 1) await send(under, people(0, 24, 'c'), { receivedAt: START + 100 + n });
      const runs = database.prepare('SELECT count(*) AS count, max(no) AS last FROM told_runs').get();
      assert.ok(Number(runs?.['count']) <= 110 && Number(runs?.['last']) <= 110, JSON.stringify(runs));
      assert.equal((await profileOf(under, 'user_id', 'u7')).eventCount, 307);
      assert.equal((await profileOf(under, 'user_id', 'u3999')).eventCount, 7);
    } finally {
      database.close();
      await store.close();
      await writer.close();
      removeFolder(folder);
    }
  });

  test('is taken by as much as fits in memory, and all of it in the end', () => {
    const folder = temporaryFolder();
    const database = openStoreFile(join(folder, 'store.db'), 'writer');
    const runs = new ToldRuns(database);
    const long = Buffer.alloc(1_000_000, 'x');
    for (let run = 0; run < 4; run++) {
      runs.write((take) => {
        for (let node = 1; node <= 20; node++) take(node, 1, 1, 1, long, NO_NAMES, 1);
      });
    }
    const taken = new Map<number, number>();
    let most = 0;
    while (!runs.isEmpty) {
      let bytes = 0;
      runs.takeSlice(1_000, (node, _events, _first, _last, known) => {
        bytes += known?.length ?? 0;
        taken.set(node, (taken.get(node) ?? 0) + 1);
      });
      assert.ok(bytes > 0);
      most = Math.max(most, bytes);
    }
    assert.ok(most <= 32 * 1024 * 1024, `${most} bytes`);
    assert.deepEqual([taken.size, new Set(taken.values())], [20, new Set([4])]);
    database.close();
    removeFolder(folder);
  });

  test('is not lost when the row was written to, and thought to be of one group, before it came there', async () => {
    const folder = temporaryFolder();
    const file = join(folder, 'store.db');
    const toldSizes = { runNodesMin: 100, sliceNodesMax: 1 };
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
