/**
 * What the writer forgets when a person is erased or unmerged: those people, whatever they were known by, and no one
 * else. Lookups are counted by the hashes of single keys that they need; a writer that is rolled back before each batch knows nothing, and
 * is what the others are compared with.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test, type TestContext } from 'node:test';
import { ROWS_KEPT } from '../../../src/backends/embedded/store/invalidations.ts';
import { HASHED, type HashOfKey, keyHashes } from '../../../src/views/keyed-hash.ts';
import { PROFILE_RUNS } from '../../../src/backends/embedded/store/profile-runs.ts';
import { StoredRuns } from '../../../src/backends/embedded/sorted-runs/stored-runs.ts';
import { openSqliteStore } from '../../../src/backends/embedded/store/store.ts';
import { openSqliteStoreWriter, type StoreWriterSetup } from '../../../src/backends/embedded/store/writer.ts';
import type { LogEntry } from '../../../src/log.ts';
import type { Store } from '../../../src/store.ts';
import type { StoreWriter } from '../../../src/store-writer.ts';
import { feed, person, profileOf, send, START, TENANT } from '../../contract/store-feeding.ts';
import { entriesOf, type Random, randomOf, traceIdOf } from '../../processor/history.ts';
import { assertSame } from '../../processor/store-dump.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

const ACT = { traceId: '01957000-0000-7000-8000-00000000ac70', at: START };
const close = async (): Promise<void> => undefined;

function fileIn(context: TestContext): string {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  return join(folder, 'store.db');
}

interface Counting {
  readonly writer: StoreWriter;
  readonly store: Store;
  close(): Promise<void>;
  /** How many keys the writer has looked up since the last call. */
  lookUps(): number;
}

function openCounting(context: TestContext, file = fileIn(context)): Counting {
  const hashOf = keyHashes(new Uint8Array(32));
  let count = 0;
  const counting: HashOfKey = (tenant, kind, value) => {
    if (kind !== HASHED.severalKeys) count += 1;
    return hashOf(tenant, kind, value);
  };
  const [writer, store] = [openSqliteStoreWriter({ file, hashOf: counting }), openSqliteStore(file, { hashOf })];
  context.after(() => writer.close());
  context.after(() => store.close());
  const lookUps = (): number => {
    const before = count;
    count = 0;
    return before;
  };
  return { writer, store, close, lookUps };
}

const PEOPLE = Array.from({ length: 50 }, (_, n) => person({ user_id: `u${n}`, anon_id: `a${n}` }));

suite('After an erase or unmerge, the writer', () => {
  test('knows all others without looking them up, and the erased person is new', async (context) => {
    const under = openCounting(context);
    await send(under, PEOPLE);
    const gone = await profileOf(under, 'user_id', 'u7');
    under.lookUps();
    await send(under, PEOPLE);
    assert.equal(under.lookUps(), 0);
    await under.store.erase(TENANT, gone.id, ACT);
    await send(under, PEOPLE.toSpliced(7, 1), { receivedAt: START + 1_000_000 });
    assert.equal(under.lookUps(), 0, 'people were looked up who were not erased');
    await send(under, PEOPLE, { receivedAt: START + 1_000_001 });
    assert.ok(under.lookUps() > 0);
    const recreated = await profileOf(under, 'user_id', 'u7');
    assert.notEqual(recreated.id, gone.id);
    assert.equal(recreated.eventCount, 1);
    assert.equal((await profileOf(under, 'anon_id', 'a8')).eventCount, 4);
  });

  test('drops every mark of an erased person who was known by several nodes and sets of keys', async (context) => {
    const under = openCounting(context);
    const ways = [
      { user_id: 'ada' },
      { anon_id: 'phone' },
      { email: 'ada@x.org' },
      { email: 'ada@x.org', anon_id: 'tv' },
    ];
    const users = [...ways, { user_id: 'ada', anon_id: 'phone' }, { user_id: 'ada', email: 'ada@x.org' }];
    await send(
      under,
      users.map((own) => person(own)),
    );
    const { id, mergedIds } = await profileOf(under, 'user_id', 'ada');
    assert.equal(mergedIds.length, 2);
    await send(
      under,
      users.map((own) => person(own)),
    );
    await under.store.erase(TENANT, id, ACT);
    for (const [n, own] of ways.slice(0, 3).entries()) {
      await send(under, [person(own)], { receivedAt: START + 1_000_000 + n });
    }
    const profiles = [
      await profileOf(under, 'user_id', 'ada'),
      await profileOf(under, 'anon_id', 'phone'),
      await profileOf(under, 'email', 'ada@x.org'),
    ];
    assert.deepEqual(
      profiles.map(({ eventCount }) => eventCount),
      [1, 1, 1],
    );
    assert.equal(new Set([id, ...mergedIds, ...profiles.map((profile) => profile.id)]).size, 6);
  });

  test('puts an unmerged person on the right side, and knows all others', async (context) => {
    const under = openCounting(context);
    await send(under, [person({ user_id: 'ada' }), person({ anon_id: 'tv' }), ...PEOPLE]);
    const traceId = await send(under, [person({ user_id: 'ada', anon_id: 'tv' })]);
    const ways = [person({ user_id: 'ada' }), person({ anon_id: 'tv' }), person({ user_id: 'ada', anon_id: 'tv' })];
    await send(under, [...ways, ...PEOPLE]);
    const { id } = await profileOf(under, 'anon_id', 'tv');
    const result = await under.store.unmerge(TENANT, id, traceId, ACT);
    assert.equal(result?.profileIds.length, 2);
    under.lookUps();
    await send(under, PEOPLE);
    assert.equal(under.lookUps(), 0, 'people were looked up who were not unmerged');
    await send(under, ways);
    const [ada, tv] = [await profileOf(under, 'user_id', 'ada'), await profileOf(under, 'anon_id', 'tv')];
    // The request that names both counts for the stronger one, before the unmerge and after it.
    assert.deepEqual([ada.eventCount, tv.eventCount], [6, 3]);
    const { refusals = [] } = (await under.store.identity(TENANT, ada.id)) ?? {};
    assert.deepEqual(
      refusals.map(({ reason, count }) => [reason, count]),
      [['cannot_link', 1]],
    );
  });

  test('forgets everyone when it has missed what was touched', async (context) => {
    const file = fileIn(context);
    const under = openCounting(context, file);
    await send(under, PEOPLE);
    const gone = await profileOf(under, 'user_id', 'u7');
    await under.store.erase(TENANT, gone.id, ACT);
    const database = new DatabaseSync(file);
    // As when very many were erased while it was busy.
    database.exec('INSERT INTO invalidations (node) VALUES (0); DELETE FROM invalidations WHERE node > 0');
    database.close();
    under.lookUps();
    await send(under, PEOPLE, { receivedAt: START + 1_000_000 });
    assert.ok(under.lookUps() >= 50);
    assert.notEqual((await profileOf(under, 'user_id', 'u7')).id, gone.id);
  });

  test('forgets everyone when another writer was there, or when its own transaction was rolled back', async (context) => {
    const file = fileIn(context);
    const under = openCounting(context, file);
    await send(under, PEOPLE);
    under.lookUps();
    const other = openSqliteStoreWriter({ file, hashOf: keyHashes(new Uint8Array(32)) });
    await send({ ...under, writer: other }, [person({ user_id: 'eve' })]);
    await other.close();
    await send(under, PEOPLE);
    assert.ok(under.lookUps() >= 50);
    await (await under.writer.begin()).rollback();
    await send(under, PEOPLE);
    assert.ok(under.lookUps() >= 50);
    assert.equal((await profileOf(under, 'user_id', 'u7')).eventCount, 3);
  });

  test('finds a bounded number of rows, whatever was erased', async (context) => {
    const file = fileIn(context);
    const under = openCounting(context, file);
    await send(under, PEOPLE);
    const database = new DatabaseSync(file);
    const first = 1_000_000;
    database.exec(`INSERT INTO invalidations (no, node)
      WITH RECURSIVE numbers (no) AS (VALUES (${first}) UNION ALL SELECT no + 1 FROM numbers WHERE no < ${first + ROWS_KEPT})
      SELECT no, 0 FROM numbers`);
    await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'u7')).id, ACT);
    const row = database.prepare('SELECT count(*) AS rows, max(no) AS newest FROM invalidations').get();
    database.close();
    // One node, and two match keys.
    assert.deepEqual({ ...row }, { rows: ROWS_KEPT, newest: first + ROWS_KEPT + 3 });
  });
});

/** Which nodes there are, whose they are, and what is written of tables: more than readers see. */
function graphIn(file: string): unknown[] {
  const database = new DatabaseSync(file, { readOnly: true });
  const rows = [
    'SELECT no, hex(id) FROM nodes ORDER BY no',
    'SELECT node, root FROM aliases ORDER BY node',
    'SELECT tenant, type, value, node FROM identifiers ORDER BY node, type, value',
    'SELECT tenant, node_a, node_b, from_node, into_node FROM merges ORDER BY no',
    'SELECT node_a, node_b FROM cannot_link ORDER BY node_a, node_b',
    'SELECT name, next FROM sequences ORDER BY name',
    'SELECT * FROM profile_counts ORDER BY tenant',
    'SELECT * FROM event_groups ORDER BY no',
  ].map((sql) => database.prepare(sql).all());
  const states = Array.from(new StoredRuns(database, PROFILE_RUNS).all([0]), ({ key, values }) => [
    key,
    values.slice(0, 3),
  ]);
  database.close();
  return [...rows, states];
}

const SEEDS = [1, 2];
const ROUNDS = 30;
const REQUESTS_PER_ROUND = 4;
/** Few, so that most of those who are erased or unmerged come again, with fingerprints that the writer has cached. */
const PEOPLE_MAX = 8;

/** A person to be erased; or a person who was merged, and one request that did it. */
async function choose(store: Store, random: Random): Promise<{ id: string; mergedBy?: string } | undefined> {
  const { rows } = await store.profiles(TENANT, { limit: 500, cursor: null });
  const isErase = random() < 0.4;
  const ids = rows.filter(({ mergedIds }) => isErase || mergedIds.length > 0).map(({ id }) => id);
  const id = pick(ids.toSorted(), random);
  if (id === undefined || isErase) return id === undefined ? undefined : { id };
  const { merges = [] } = (await store.identity(TENANT, id)) ?? {};
  const mergedBy = pick(merges, random)?.traceId;
  return mergedBy === undefined ? undefined : { id, mergedBy };
}

function pick<T>(items: readonly T[], random: Random): T | undefined {
  return items[Math.floor(random() * items.length)];
}

suite('A writer that remembers people over erases and unmerges', () => {
  for (const seed of SEEDS)
    test(`writes the same as one with an empty cache (history ${seed})`, async (context) => {
      const [file, other] = [fileIn(context), fileIn(context)];
      const setup: Omit<StoreWriterSetup, 'file'> = {
        groupEvents: 40,
        indexSizes: { fanOut: 3, blockRows: 2, mergedBytesMin: 1 },
        profileSizes: { fanOut: 2, blockRows: 3, mergedBytesMin: 300 },
      };
      const remembering = openSqliteStoreWriter({ file, ...setup });
      const forgetful = openSqliteStoreWriter({ file: other, ...setup });
      const stores = [openSqliteStore(file), openSqliteStore(other)] as const;
      const random = randomOf(seed);
      const entries = entriesOf(seed, ROUNDS * REQUESTS_PER_ROUND, PEOPLE_MAX).map((entry) =>
        Object.assign(entry, { tenantId: TENANT }),
      );
      const traceIds = entries.map(({ traceId }) => traceId);
      let [erased, unmerged] = [0, 0];
      for (let round = 0; round < ROUNDS; round++) {
        const batch = entries.splice(0, REQUESTS_PER_ROUND);
        await feed({ writer: remembering }, batch);
        await (await forgetful.begin()).rollback();
        await feed({ writer: forgetful }, batch);
        // Sometimes two acts between two transactions, sometimes none.
        for (let acts = Math.floor(random() * 3); acts > 0; acts--) {
          const chosen = await choose(stores[0], random);
          if (chosen === undefined) continue;
          const { id, mergedBy } = chosen;
          // So that some of what comes next is late.
          const at = (batch.at(-1) as LogEntry).receivedAt + Math.floor(random() * 1_000);
          const act = { traceId: traceIdOf(at, 1_000_000 + round * 10 + acts), at };
          for (const store of stores) {
            if (mergedBy === undefined) assert.equal(await store.erase(TENANT, id, act), true);
            else assert.equal((await store.unmerge(TENANT, id, mergedBy, act))?.undone, 1);
          }
          if (mergedBy === undefined) erased += 1;
          else unmerged += 1;
        }
        assert.deepEqual(graphIn(file), graphIn(other), `after round ${round}`);
      }
      assert.ok(erased > 3 && unmerged > 3, `${erased} erases and ${unmerged} unmerges`);
      await assertSame(...stores, traceIds);
      for (const store of stores) await store.close();
      await remembering.close();
      await forgetful.close();
    });
});
