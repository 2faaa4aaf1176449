/** Sorted runs against a Map: whatever is put, merged, removed, dropped, rolled back or opened again. */

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { BloomFilter } from '../../../src/backends/embedded/sorted-runs/bloom-filter.ts';
import {
  combineEntries,
  type Entry,
  type Key,
  RowsToWrite,
  type RunsShape,
} from '../../../src/backends/embedded/sorted-runs/entries.ts';
import { sortedRunsSchema, StoredRuns } from '../../../src/backends/embedded/sorted-runs/stored-runs.ts';
import { type RunsSizes, SortedRuns } from '../../../src/backends/embedded/sorted-runs/sorted-runs.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

const SHAPES: readonly RunsShape[] = [
  { name: 'plain', keyColumns: 3, valueColumns: 0, hasBytes: false, hasFilters: false },
  { name: 'hashed', keyColumns: 2, valueColumns: 1, hasBytes: false, hasFilters: true },
  {
    name: 'summed',
    keyColumns: 1,
    valueColumns: 2,
    hasBytes: true,
    hasFilters: false,
    combine: (rows, into, other) => {
      const [, sums, lowest] = rows.columns as [Float64Array, Float64Array, Float64Array];
      sums[into] = (sums[into] ?? 0) + (sums[other] ?? 0);
      lowest[into] = Math.min(lowest[into] ?? 0, lowest[other] ?? 0);
      const bytes = rows.bytes ?? assert.fail('there are bytes');
      if (Buffer.compare(bytes.get(into), bytes.get(other)) < 0) bytes.replace(into, other);
    },
  },
];

const FEW: RunsSizes = { fanOut: 3, blockRows: 4, blockBytes: 8, mergedBytesMin: 150, filterBytesMax: 400 };

function opened(shape: RunsShape, file = ':memory:'): DatabaseSync {
  const database = new DatabaseSync(file);
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL');
  database.exec(sortedRunsSchema(shape.name, shape.hasFilters));
  return database;
}

function rowsOf(shape: RunsShape, entries: readonly Entry[]): RowsToWrite {
  const rows = new RowsToWrite(shape, entries.length);
  for (const { key, values, bytes } of entries) rows.add(key, values, bytes);
  return rows;
}

function keysOnly(shape: RunsShape, keys: readonly Key[]): RowsToWrite {
  return rowsOf(
    shape,
    keys.map((key) => ({ key, values: [], bytes: new Uint8Array() })),
  );
}

/** As a Map of Maps would have it: by group, then by key. */
class Model {
  groups = new Map<number, Map<string, Entry>>();

  copy(): Model {
    const other = new Model();
    for (const [group, entries] of this.groups) other.groups.set(group, new Map(entries));
    return other;
  }

  has(group: number, key: Key): boolean {
    return this.groups.get(group)?.has(String(key)) ?? false;
  }

  put(shape: RunsShape, group: number, entry: Entry): void {
    const entries = this.groups.get(group) ?? new Map<string, Entry>();
    this.groups.set(group, entries);
    const before = entries.get(String(entry.key));
    entries.set(
      String(entry.key),
      before === undefined || shape.combine === undefined ? entry : (combineEntries(shape, [before, entry]) as Entry),
    );
  }

  get(key: Key): Entry | undefined {
    const newestFirst = [...this.groups].sort(([a], [b]) => b - a);
    return newestFirst.map(([, entries]) => entries.get(String(key))).find((entry) => entry !== undefined);
  }
}

function readable(entry: Entry | undefined): unknown {
  return entry && [[...entry.key], [...entry.values], Buffer.from(entry.bytes).toString('hex')];
}

/** All that runs of a group have, combined. */
function contentOf(reader: StoredRuns, shape: RunsShape, group: number): Map<string, Entry> {
  const found = new Model();
  for (const { no } of reader.listRuns(group)) {
    const up = [...reader.ascending(no, [Number.MIN_SAFE_INTEGER], [Number.MAX_SAFE_INTEGER])];
    const down = [...reader.descending(no, [Number.MIN_SAFE_INTEGER], [Number.MAX_SAFE_INTEGER])];
    assert.deepEqual(down.map(readable).toReversed(), up.map(readable));
    for (const entry of up) {
      assert.ok(shape.combine !== undefined || !found.has(group, entry.key), 'a key is in two runs');
      found.put(shape, group, entry);
    }
  }
  return found.groups.get(group) ?? new Map();
}

const keyNumber = fc.oneof(fc.nat(9), fc.integer({ min: -5, max: 2 ** 47 }));
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('put' as const),
      group: fc.nat(2),
      entries: fc.array(
        fc.record({
          key: fc.tuple(keyNumber, keyNumber, keyNumber),
          values: fc.tuple(fc.nat(1_000), fc.integer()),
          bytes: fc.uint8Array({ maxLength: 6 }),
        }),
        { minLength: 1, maxLength: 25 },
      ),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('remove' as const),
      at: fc.nat(),
      count: fc.integer({ min: 1, max: 12 }),
    }),
  },
  { weight: 2, arbitrary: fc.constant({ kind: 'merge' as const }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('drop' as const), group: fc.nat(2) }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'reopen' as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'rollback' as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'commit' as const }) },
);

suite('Sorted runs', () => {
  for (const shape of SHAPES) {
    test(`have what a Map has, and nothing else (${shape.name})`, () => {
      fc.assert(
        fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
          const database = opened(shape);
          let runs = new SortedRuns(database, shape, FEW);
          const reader = new StoredRuns(database, shape);
          let model = new Model();
          let committed = model.copy();
          database.exec('BEGIN');
          for (const one of steps) {
            if (one.kind === 'put') {
              const entries = new Map<string, Entry>();
              for (const { key, values, bytes } of one.entries) {
                const entry = {
                  key: key.slice(0, shape.keyColumns),
                  values: values.slice(0, shape.valueColumns),
                  bytes: shape.hasBytes ? bytes : new Uint8Array(),
                };
                if (shape.combine !== undefined || !model.has(one.group, entry.key))
                  entries.set(String(entry.key), entry);
              }
              runs.putRun(one.group, rowsOf(shape, [...entries.values()]));
              for (const entry of entries.values()) model.put(shape, one.group, entry);
            } else if (one.kind === 'remove') {
              const groups = [...model.groups.keys()];
              const group = groups[one.at % Math.max(1, groups.length)];
              if (group === undefined) continue;
              const entries = model.groups.get(group) ?? new Map<string, Entry>();
              const start = one.at % Math.max(1, entries.size);
              const removed = [...entries].slice(start, start + one.count);
              // Some of them twice, some that are not there.
              const keys = removed.flatMap(([, { key }]) => [key, key.map((value) => value + 1), key]);
              const isThere = new Set(removed.map(([name]) => name));
              const isRemoved = ({ key: [first = 0] }: Pick<Entry, 'key'>): boolean =>
                one.at % 3 > 0 || first % 2 === 0;
              reader.remove(
                keys.filter((key) => isThere.has(String(key)) || !entries.has(String(key))),
                group,
                isRemoved,
              );
              for (const [name, entry] of removed) if (isRemoved(entry)) entries.delete(name);
            } else if (one.kind === 'drop') {
              while (runs.drop(one.group, 2));
              model.groups.delete(one.group);
            } else if (one.kind === 'merge') runs.compact();
            else if (one.kind === 'reopen') runs = new SortedRuns(database, shape, FEW);
            else if (one.kind === 'commit') {
              database.exec('COMMIT; BEGIN');
              committed = model.copy();
            } else {
              database.exec('ROLLBACK; BEGIN');
              runs.forget();
              model = committed.copy();
            }
          }
          const all = [...reader.all([Number.MIN_SAFE_INTEGER])];
          const names = new Set(Array.from(model.groups.values(), (entries) => Array.from(entries.keys())).flat());
          assert.deepEqual(new Set(all.map(({ key }) => String(key))), names);
          for (const entry of all) assert.deepEqual(readable(entry), readable(model.get(entry.key)));
          for (const group of [0, 1, 2]) {
            const expected = model.groups.get(group) ?? new Map<string, Entry>();
            const found = contentOf(reader, shape, group);
            assert.deepEqual([...found.keys()].sort(), [...expected.keys()].sort());
            for (const [name, entry] of expected) {
              assert.deepEqual(readable(found.get(name)), readable(entry));
              assert.deepEqual(readable(runs.get(entry.key)), readable(model.get(entry.key)));
              assert.deepEqual(readable(reader.get(entry.key)), readable(model.get(entry.key)));
              const next = [...entry.key.slice(0, -1), (entry.key.at(-1) ?? 0) + 1];
              assert.deepEqual(readable(runs.get(next)), readable(model.get(next)));
            }
          }
          database.close();
        }),
        { numRuns: 80 },
      );
    });
  }

  test('give a range of keys, in both directions', () => {
    const [shape] = SHAPES as [RunsShape];
    const database = opened(shape);
    const runs = new SortedRuns(database, shape, FEW);
    const keys = Array.from({ length: 50 }, (_, at) => [at % 5, at, -at]);
    runs.putRun(1, keysOnly(shape, keys));
    const run = runs.listRuns(1)[0]?.no ?? 0;
    const found = (generated: Iterable<Entry>): number[] => Array.from(generated, ({ key }) => key[1] ?? 0);
    assert.deepEqual(found(runs.descending(run, [3], [4])), [48, 43, 38, 33, 28, 23, 18, 13, 8, 3]);
    assert.deepEqual(found(runs.ascending(run, [3, 13], [3, 33])), [13, 18, 23, 28]);
    assert.deepEqual(found(runs.descending(run, [9], [10])), []);
    database.close();
  });

  test('become few, however many are put, and in a group that is complete, one', () => {
    const shape = SHAPES[1] as RunsShape;
    const database = opened(shape);
    const runs = new SortedRuns(database, shape, { fanOut: 4 });
    for (let at = 0; at < 2_000; at++) {
      const entries = [0, 1, 2].map((n) => ({
        key: [(at * 3 + n) * 1_000_003, at],
        values: [at],
        bytes: new Uint8Array(),
      }));
      runs.putRun(at < 1_000 ? 1 : 2, rowsOf(shape, entries));
      assert.ok(runs.listRuns().length <= 24, `${runs.listRuns().length} runs`);
    }
    do runs.compact();
    while (runs.isCompacting);
    assert.equal(runs.listRuns(1).length, 1);
    database.close();
  });

  test('become few as well when the keys of each come behind those of the last', () => {
    const [shape] = SHAPES as [RunsShape];
    const database = opened(shape);
    const runs = new SortedRuns(database, shape, { fanOut: 16, blockRows: 8, mergedBytesMin: 1_000 });
    for (let at = 0; at < 400; at++) {
      const keys = Array.from({ length: 20 }, (_, n) => [1, at, n]);
      runs.putRun(1, keysOnly(shape, keys));
      assert.ok(runs.listRuns().length <= 48, `${runs.listRuns().length} runs`);
    }
    assert.equal(contentOf(runs, shape, 1).size, 8_000);
    database.close();
  });

  test('can be dropped in pieces while others are put and merged', () => {
    const [shape] = SHAPES as [RunsShape];
    const database = opened(shape);
    const runs = new SortedRuns(database, shape, FEW);
    let last = 0;
    const put = (group: number, count: number): void => {
      const keys = Array.from({ length: count }, () => [++last, 0, 0]);
      runs.putRun(group, keysOnly(shape, keys));
    };
    for (const count of [100, 100, 3]) put(1, count);
    assert.ok(runs.isCompacting);
    for (let more = true; more; ) {
      more = runs.drop(1, 3);
      put(2, 5);
    }
    assert.deepEqual(runs.groups(), [2]);
    assert.equal(contentOf(runs, shape, 1).size, 0);
    assert.equal(contentOf(runs, shape, 2).size, last - 203);
    database.close();
  });

  test('say that there is something to merge until a group that is complete has one run', () => {
    const [shape] = SHAPES as [RunsShape];
    const database = opened(shape);
    const runs = new SortedRuns(database, shape, FEW);
    // Of the first group three are being merged when it is complete, and one waits.
    for (const [at, group, count] of [
      [0, 1, 100],
      [1, 1, 100],
      [2, 1, 3],
      [3, 1, 5],
      [4, 2, 1],
    ] as const) {
      const keys = Array.from({ length: count }, (_, n) => [n, at, 0]);
      runs.putRun(group, keysOnly(shape, keys));
    }
    while (runs.isCompacting) runs.compact();
    assert.deepEqual([runs.listRuns(1).length, runs.listRuns(2).length], [1, 1]);
    database.close();
  });

  test('write a block once when many of its keys are removed', () => {
    const [shape] = SHAPES as [RunsShape];
    const database = opened(shape);
    const runs = new SortedRuns(database, shape, { blockRows: 100 });
    const keys = Array.from({ length: 1_000 }, (_, at) => [at, 0, 0]);
    runs.putRun(1, keysOnly(shape, keys));
    database.exec(
      'CREATE TABLE written (no); CREATE TRIGGER one AFTER INSERT ON plain_blocks BEGIN INSERT INTO written VALUES (new.no); END',
    );
    runs.remove(keys.filter(([at = 0]) => at % 100 >= 50).toReversed());
    assert.equal(database.prepare('SELECT count(*) AS count FROM written').get()?.['count'], 10);
    assert.equal(contentOf(runs, shape, 1).size, 500);
    database.close();
  });

  test('have blocks of bounded bytes, but for an entry that is larger, and merge those too', () => {
    const shape = SHAPES[2] as RunsShape;
    const database = opened(shape);
    const runs = new SortedRuns(database, shape, { fanOut: 4, blockBytes: 1_000 });
    for (let put = 0; put < 40; put++) {
      // Every tenth is far larger than a block.
      const entries = Array.from({ length: 30 }, (_, n) => ({
        key: [put % 4 === 0 ? n : put * 100 + n],
        values: [1, put],
        bytes: new Uint8Array(n % 10 === 0 ? 150_000 : 90).fill(put),
      }));
      runs.putRun(1, rowsOf(shape, entries));
    }
    assert.ok(runs.listRuns().length <= 12, `${runs.listRuns().length} runs`);
    while (runs.isCompacting) runs.compact();
    const sizes = database.prepare('SELECT octet_length(entries) AS bytes FROM summed_blocks ORDER BY bytes').all();
    const bytes = sizes.map((row) => Number(row['bytes']));
    const large = bytes.filter((one) => one > 1_500);
    assert.ok(bytes.length - large.length < 300, `${bytes.length} blocks`);
    assert.ok(
      large.every((one) => one > 150_000 && one < 150_100),
      `blocks of ${large[0]} and ${large.at(-1)} bytes`,
    );
    for (let n = 0; n < 30; n++) assert.equal(runs.get([n])?.values[0], 10);
    assert.equal([...runs.all([0])].length, 31 * 30);
    database.close();
  });

  test('are merged by few bytes at a time, however many there are of an entry', () => {
    const shape = SHAPES[2] as RunsShape;
    const database = opened(shape);
    const runs = new SortedRuns(database, shape, { fanOut: 2 });
    const put = (count: number, length: number): void =>
      runs.putRun(
        1,
        rowsOf(
          shape,
          Array.from({ length: count }, (_, n) => ({ key: [n], values: [1, 1], bytes: new Uint8Array(length) })),
        ),
      );
    put(60, 100_000);
    put(60, 100_000);
    for (let merges = 1; runs.isCompacting; merges++) {
      const before = database.prepare('SELECT sum(octet_length(entries)) AS bytes FROM summed_blocks').get();
      runs.compact();
      const after = database.prepare('SELECT sum(octet_length(entries)) AS bytes FROM summed_blocks').get();
      // Of each of the two runs a few.
      assert.ok(Number(before?.['bytes']) - Number(after?.['bytes']) <= 300_000);
      assert.ok(merges < 100);
    }
    assert.equal(runs.listRuns().length, 1);
    database.close();
  });

  test('keep what was committed when their process is killed in the middle', async (context) => {
    const folder = temporaryFolder();
    context.after(() => removeFolder(folder));
    const shape = SHAPES[1] as RunsShape;
    const file = join(folder, 'runs.db');
    opened(shape, file).close();
    let from = 0;
    for (let round = 0; round < 4; round++) {
      const child = fork(new URL('./sorted-runs-writer.ts', import.meta.url), [file, String(from)], {
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      });
      let committed = from;
      child.on('message', (count) => {
        committed = count as number;
        if (committed >= from + 3 + round) child.kill('SIGKILL');
      });
      await once(child, 'exit');
      const database = new DatabaseSync(file);
      const runs = new SortedRuns(database, shape, FEW);
      const found = contentOf(runs, shape, 1).size + contentOf(runs, shape, 2).size;
      // The last commit may have been made without being reported.
      assert.ok(found >= committed * 10 && found % 10 === 0, `${found} entries after ${committed} commits`);
      for (let put = 0; put < found / 10; put++) {
        for (let n = 0; n < 10; n++) assert.equal(runs.get(writtenKey(put, n))?.values[0], put);
      }
      database.close();
      from = found / 10;
    }
  });
});

/** As sorted-runs-writer.ts writes them. */
function writtenKey(put: number, n: number): Key {
  return [((put * 10 + n) * 2_654_435_761) % 2 ** 40, n];
}

test('A Bloom filter never denies a key that it has, and few others are taken for one', () => {
  const filter = new BloomFilter(20_000);
  const key = (at: number): [number, number] => [(at * 40_503 * 65_537) % 2 ** 48, (at * 2_654_435_761) % 2 ** 45];
  for (let at = 1; at <= 20_000; at++) filter.add(...key(at));
  const stored = new BloomFilter(filter.bytes);
  let mistaken = 0;
  for (let at = 1; at <= 40_000; at++) {
    const mayHave = stored.mayHave(...key(at));
    if (at <= 20_000) assert.ok(mayHave);
    else if (mayHave) mistaken++;
  }
  assert.ok(mistaken < 600, `${mistaken} of 20,000`);
});
