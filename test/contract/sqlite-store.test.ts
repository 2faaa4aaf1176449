/** The store's contract on SQLite, and what only SQLite's file does. */

import assert from 'node:assert/strict';
import { copyFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, suite, test } from 'node:test';
import { EVENTS_BY_NODE, EVENTS_BY_TENANT } from '../../src/backends/embedded/store/stored-events.ts';
import { HASHED, type HashOfKey, keyHashes } from '../../src/views/keyed-hash.ts';
import { StoredRuns } from '../../src/backends/embedded/sorted-runs/stored-runs.ts';
import { openSqliteStore } from '../../src/backends/embedded/store/store.ts';
import { recordStart, skipNumbersAfterRestore } from '../../src/backends/embedded/store/starts.ts';
import { openSqliteStoreWriter, type StoreWriterSetup } from '../../src/backends/embedded/store/writer.ts';
import { OLDEST } from '../../src/views/cursor.ts';
import { processBatch } from '../processor/process-batch.ts';
import { entriesOf } from '../processor/history.ts';
import { incompressibleText } from '../incompressible.ts';
import { removeFolder, sleep, temporaryFolder } from '../server.ts';
import { arrivedAfter, cursorFrom, cursorWords } from './store-arrivals.ts';
import { storeContract, storeLayoutContract } from './store.ts';
import {
  ACT,
  DAY_MS,
  eventsOf,
  feed,
  HOUR_MS,
  MINUTE_MS,
  person,
  profileOf,
  request,
  type StoreOfContract,
  START,
  send,
  sweepAll,
  TENANT,
} from './store-feeding.ts';

/** Few, so that every test has several groups. */
const GROUP_EVENTS = 5;
/** So that every test has runs of several blocks, and merges that take several steps. */
const RUNS = { indexSizes: { fanOut: 3, blockRows: 2, mergedBytesMin: 1 } };
/** So that a node is in several runs, and its run in several blocks. */
const PROFILES = { profileSizes: { fanOut: 2, blockRows: 3, blockBytes: 200, mergedBytesMin: 1 } };

/** Every test has a copy: a file is made once only. */
const original = temporaryFolder();
const fileIn = (folder: string): string => join(folder, 'store.db');
before(() => openSqliteStoreWriter({ file: fileIn(original) }).close());
after(() => removeFolder(original));

interface SqliteStoreUnderTest extends StoreOfContract {
  readonly file: string;
}

function openIn(
  folder: string,
  groupEvents = GROUP_EVENTS,
  setup: Pick<StoreWriterSetup, 'indexSizes' | 'profileSizes' | 'hashOf'> = {},
): SqliteStoreUnderTest {
  const { hashOf } = setup;
  const file = fileIn(folder);
  copyFileSync(fileIn(original), file);
  const writer = openSqliteStoreWriter({ file, groupEvents, ...setup });
  const another = () => openSqliteStore(file, hashOf === undefined ? {} : { hashOf });
  const store = another();
  return {
    file,
    writer,
    store,
    another,
    close: async () => {
      await store.close();
      await writer.close();
      removeFolder(folder);
    },
  };
}

storeContract('SQLite, in one group', () => Promise.resolve(openIn(temporaryFolder(), 1_000_000)));
storeLayoutContract('SQLite, in many groups, runs merged in many steps, match keys with one of three hashes', () => {
  const hashOf = keyHashes(new Uint8Array(32));
  /** Few hashes, so that most match keys share one and are distinguished by the rest alone, and some differ in it. */
  const alike: HashOfKey = (tenant, kind, value) => {
    const { hash, rest } = hashOf(tenant, kind, value);
    return { hash: kind === HASHED.severalKeys ? hash : 7 + Math.abs(hash % 3), rest };
  };
  return Promise.resolve(openIn(temporaryFolder(), 30, { ...RUNS, ...PROFILES, hashOf: alike }));
});

suite('The file of the SQLite store', () => {
  async function inFile(
    use: (under: SqliteStoreUnderTest) => Promise<void>,
    groupEvents?: number,
    sizes: Pick<StoreWriterSetup, 'indexSizes' | 'profileSizes'> = {},
  ): Promise<void> {
    const under = openIn(temporaryFolder(), groupEvents, sizes);
    try {
      await use(under);
    } finally {
      await under.close();
    }
  }

  function bytesOf({ file }: SqliteStoreUnderTest): string {
    const files = [file, `${file}-wal`].filter((name) => existsSync(name));
    return files.map((name) => readFileSync(name).toString('latin1')).join('');
  }

  function groupsIn({ file }: SqliteStoreUnderTest): number[] {
    const database = new DatabaseSync(file, { readOnly: true });
    const rows = database.prepare('SELECT no FROM event_groups ORDER BY no').all();
    database.close();
    return rows.map(({ no }) => Number(no));
  }

  for (const [words, sizes] of [
    ['', {}],
    [', in small blocks of profiles', PROFILES],
  ] as const)
    test(`the bytes of an erased person are gone from the file and its write-ahead log${words}`, async () => {
      await inFile(
        async (under) => {
          for (const entry of entriesOf(3, 300)) await feed(under, [{ ...entry, tenantId: TENANT }]);
          for (let n = 0; n < 60; n++) {
            await send(under, [
              person(
                { user_id: 'gone-sesame', email: `sesame${n % 9}@x.org`, first_name: `sesame ${n}` },
                [{ a: 'sesame', $event_id: `sesame ${n}` }],
                {
                  [`sesame${n % 7}`]: 'sesame'.repeat(1 + (n % 40)),
                },
              ),
              { identifiers: { user_id: 'gone-sesame' }, events: [] },
              person({ user_id: `other${n}` }, [{ pad: 'x'.repeat(n * 30) }]),
            ]);
          }
          assert.ok(bytesOf(under).includes('sesame'));
          const { id } = await profileOf(under, 'user_id', 'gone-sesame');
          assert.equal(await under.store.erase(TENANT, id, ACT), true);
          assert.equal(bytesOf(under).includes('sesame'), false);
        },
        1_000_000,
        sizes,
      );
    });

  test('groups of events are dropped once they are empty, the newest never', async () => {
    await inFile(async (under) => {
      for (let day = 0; day < 4; day++) {
        for (let n = 0; n < 10; n++)
          await send(under, [person({ user_id: 'u' })], { receivedAt: START + day * DAY_MS });
      }
      assert.equal(groupsIn(under).length, 8);
      await sweepAll(under, { eventsMs: 2 * DAY_MS }, START + 4 * DAY_MS - 1);
      assert.equal((await eventsOf(under)).length, 20);
      assert.equal(groupsIn(under).length, 4);
      await sweepAll(under, { eventsMs: 0 }, START + 9 * DAY_MS);
      assert.deepEqual(groupsIn(under), [8]);
      assert.ok(entriesIn(under) <= 2 * GROUP_EVENTS, 'entries of dropped groups are left');
      await send(under, [person({ user_id: 'u' })], { receivedAt: START + 9 * DAY_MS });
      assert.equal((await eventsOf(under)).length, 1);
    });
  });

  test('retention gives the space back', async () => {
    await inFile(async (under) => {
      const padded = () => ({ pad: incompressibleText(20_000) });
      const users = Array.from({ length: 40 }, (_, n) => person({ user_id: `u${n}` }, [padded(), padded()]));
      for (let n = 0; n < 40; n++) await feed(under, [request(users, { receivedAt: START })]);
      const pagesOf = (): number => {
        const database = new DatabaseSync(under.file);
        const pages = Number(database.prepare('PRAGMA page_count').get()?.page_count);
        database.close();
        return pages;
      };
      const before = pagesOf();
      await sweepAll(under, { eventsMs: DAY_MS }, START + 9 * DAY_MS);
      assert.deepEqual(await eventsOf(under), []);
      assert.ok(pagesOf() < before * 0.6, `${pagesOf()} of ${before} pages are left`);
    }, 100);
  });

  test('a person with very many events is erased in pieces, with a correct ledger', async () => {
    await inFile(async (under) => {
      const events = Array.from({ length: 900 }, (_, n) => ({ timestamp: new Date(START - n * 50_000).toISOString() }));
      for (let n = 0; n < 25; n++) {
        await send(under, [
          person({ user_id: 'busy' }, events),
          person({ user_id: 'busy' }),
          person({ user_id: 'other' }),
        ]);
      }
      const { id, eventCount } = await profileOf(under, 'user_id', 'busy');
      assert.equal(eventCount, 25 * 901);
      assert.equal(await under.store.erase(TENANT, id, ACT), true);
      const { hours } = await under.store.ledger(TENANT, { from: null, to: null });
      assert.deepEqual([hours[0]?.users.stored, hours[0]?.users.erased], [25, 50]);
      assert.deepEqual([hours[0]?.events.stored, hours[0]?.events.erased], [25, 25 * 901]);
      assert.equal((await eventsOf(under)).length, 25);
      const range = { from: START - DAY_MS * 2, to: START + DAY_MS };
      const [bucket] = await under.store.counts(TENANT, { interval: 'hour', ...range, byEventName: false });
      assert.equal(bucket?.events, 25);
    }, 10_000);
  });

  /** By families: the entries of the index, and of each of them the runs of each group. */
  function indexOf({ file }: SqliteStoreUnderTest): { entries: number; runs: number[] }[] {
    const database = new DatabaseSync(file, { readOnly: true });
    const families = [EVENTS_BY_NODE, EVENTS_BY_TENANT].map((index) => {
      const reader = new StoredRuns(database, index);
      let entries = 0;
      for (const { no } of reader.listRuns()) {
        entries += Array.from(reader.ascending(no, [Number.MIN_SAFE_INTEGER], [Number.MAX_SAFE_INTEGER])).length;
      }
      const groups = database.prepare('SELECT no FROM event_groups ORDER BY no').all();
      return { entries, runs: groups.map(({ no }) => reader.listRuns(Number(no)).length) };
    });
    database.close();
    return families;
  }

  function entriesIn(under: SqliteStoreUnderTest): number {
    return indexOf(under).reduce((sum, { entries }) => sum + entries, 0);
  }

  test('an erase takes its entries out of every run of the index, and an event has two', async () => {
    for (const sizes of [{}, RUNS]) {
      const under = openIn(temporaryFolder(), 50, sizes);
      try {
        for (let n = 0; n < 40; n++) {
          const users = [person({ user_id: 'gone' }), person({ user_id: `u${n}` }), person({ user_id: '0' })];
          await send(under, n % 4 === 0 ? users.slice(0, 2) : users);
        }
        // '0' is no person: its events have no node, and so no entry by node.
        const nobodies = (await eventsOf(under)).filter(({ profileId }) => profileId === null).length;
        assert.equal(entriesIn(under), 2 * 110 - nobodies);
        await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'gone')).id, ACT);
        assert.equal((await eventsOf(under)).length, 70);
        assert.equal(entriesIn(under), 2 * 70 - nobodies);
      } finally {
        await under.close();
      }
    }
  });

  test('a person is erased whose older events have expired, with nothing left in the index by person', async () => {
    for (const sizes of [{}, RUNS]) {
      const under = openIn(temporaryFolder(), 1_000_000, sizes);
      try {
        for (let day = 0; day < 6; day++) {
          const users = [person({ user_id: 'gone' }, [{}, {}]), person({ user_id: 'other' })];
          await send(under, users, { receivedAt: START + day * DAY_MS });
        }
        await sweepAll(under, { eventsMs: 3 * DAY_MS }, START + 6 * DAY_MS - 1);
        assert.equal((await eventsOf(under)).length, 9);
        await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'gone')).id, {
          ...ACT,
          at: START + 9 * DAY_MS,
        });
        assert.equal((await eventsOf(under)).length, 3);
        const { id } = await profileOf(under, 'user_id', 'other');
        assert.equal((await eventsOf(under, { profileId: id })).length, 3);
      } finally {
        await under.close();
      }
    }
  });

  test('a full group has one run once the writer was idle, and a timeline over many runs is whole and in order', async () => {
    const under = openIn(temporaryFolder(), 300, RUNS);
    try {
      for (let n = 0; n < 90; n++) {
        const times = Array.from(
          { length: 2 + (n % 7) },
          (_, k) => new Date(START - ((n * 7 + k * 13) % 50) * MINUTE_MS),
        );
        const events = times.map((time) => ({ timestamp: time.toISOString(), n: `${n}` }));
        await send(under, [person({ user_id: 'u' }, events), person({ user_id: `v${n}` })]);
      }
      const all = await eventsOf(under);
      const { id, eventCount } = await profileOf(under, 'user_id', 'u');
      const timeline = await eventsOf(under, { profileId: id, limit: 7 });
      assert.equal(timeline.length, eventCount);
      assert.deepEqual(
        timeline.map((event) => event.id),
        all.filter(({ profileId }) => profileId === id).map((event) => event.id),
      );
      for (const [n, event] of all.entries()) assert.ok(n === 0 || event.timestamp <= (all[n - 1]?.timestamp ?? 0));
      while (await under.writer.compact());
      for (const { entries, runs } of indexOf(under)) {
        assert.equal(entries, all.length);
        assert.equal(runs[0], 1);
        assert.ok(runs.length === 2 && (runs[1] ?? 0) < 12, `${runs[1]} runs`);
      }
    } finally {
      await under.close();
    }
  });

  test('an erase waits for the writer without keeping readers waiting, and the writer sees it', async () => {
    await inFile(async (under) => {
      await send(under, [person({ user_id: 'u' })]);
      const { id } = await profileOf(under, 'user_id', 'u');
      const transaction = await under.writer.begin();
      let isErased = false;
      const erasing = under.store.erase(TENANT, id, ACT).then((result) => {
        isErased = true;
        return result;
      });
      for (let n = 0; n < 20; n++) {
        assert.equal((await eventsOf(under)).length, 1);
        await sleep(1);
      }
      assert.equal(isErased, false);
      await transaction.commit(false);
      assert.equal(await erasing, true);
      await send(under, [person({ user_id: 'u' })], { receivedAt: ACT.at + 1 });
      assert.notEqual((await profileOf(under, 'user_id', 'u')).id, id);
    });
  });

  test('a rejected user that comes in while an erase waits is found and removed too', async () => {
    await inFile(async (under) => {
      await send(under, [person({ user_id: 'u' })], { receivedAt: START });
      const { id } = await profileOf(under, 'user_id', 'u');
      const entry = request([person({ user_id: 'v' }), { identifiers: { user_id: ' u ' }, events: [] }]);
      const transaction = await under.writer.begin();
      const erasing = under.store.erase(TENANT, id, ACT);
      // It has looked at what is there and waits for the lock.
      await sleep(20);
      await processBatch(transaction, [{ ...entry, partition: 0, position: 1 }], {
        options: { defaultCountry: null, junkValues: new Set() },
        now: () => START,
        failpoint: () => undefined,
      });
      await transaction.commit(false);
      assert.equal(await erasing, true);
      const query = { reason: null, from: null, to: null, limit: 9, cursor: null };
      assert.deepEqual((await under.store.rejections(TENANT, query)).rows, []);
      assert.equal((await eventsOf(under)).length, 1);
    });
  });

  for (const [what, skip] of [
    ['was restored', (file: string) => skipNumbersAfterRestore(file, Date.now())],
    ['may have lost commits in a crash', (file: string) => startOn(file, START)],
    ['was put back from a copy', (file: string) => startOn(file, Date.UTC(2026, 10, 16))],
  ] as const)
    test(`a store that ${what} continues after all numbers that the lost one gave, and no cursor misses anything`, async () => {
      await inFile(async (under) => {
        const first = await send(under, [person({ user_id: 'u' })]);
        const { last: start } = await under.store.arrivals(TENANT, OLDEST, 5);
        const [list = '', installation = '', number] = cursorWords(start);
        skip(under.file);
        // Given by the store that was lost, after the backup was made.
        const lost = cursorFrom([list, installation, Number(number) + 30_000]);
        const nothing = await under.store.arrivals(TENANT, start, 5);
        assert.deepEqual(nothing.events, []);
        const second = await send(under, [person({ user_id: 'u' })]);
        for (const after of [start, lost, nothing.last]) {
          assert.deepEqual(
            (await arrivedAfter(under, after)).events.map(({ traceId }) => traceId),
            [second],
          );
        }
        assert.deepEqual(
          (await arrivedAfter(under, OLDEST)).events.map(({ traceId }) => traceId),
          [first, second],
        );
      });
    });

  test('first uses that no longer matter are removed from the file, a day of receipt at a time', async () => {
    await inFile(async (under) => {
      const uses = (): unknown[] => {
        const database = new DatabaseSync(under.file, { readOnly: true });
        const sql = `SELECT (SELECT count(*) FROM idempotency_keys_blocks) AS keys, (SELECT count(*) FROM event_ids_blocks) AS ids`;
        const row = database.prepare(sql).get();
        database.close();
        return [row?.keys, row?.ids];
      };
      await send(under, [person({ user_id: 'u' }, [{ $event_id: 'e' }])], { idempotencyKey: 'k', receivedAt: START });
      for (const [hours, left] of [
        [23, [1, 1]],
        [2 * 24, [0, 1]],
        [7 * 24 - 1, [0, 1]],
        [8 * 24, [0, 0]],
      ] as const) {
        await sweepAll(under, {}, START + hours * HOUR_MS);
        assert.deepEqual(uses(), left);
      }
    });
  });
});

function startOn(file: string, now: number): void {
  const database = new DatabaseSync(file);
  recordStart(database, now);
  database.close();
}
