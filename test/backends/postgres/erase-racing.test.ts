/**
 * Erase and unmerge while processors write about the same people, on PostgreSQL: whichever comes first, nothing is left of
 * an erased person but what came later, and every sum agrees with what can be read.
 */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import type { PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import type { LogEntry } from '../../../src/log.ts';
import type { Store } from '../../../src/store.ts';
import { StoreConflictError, type StoreWriter, type WriteTransaction } from '../../../src/store-writer.ts';
import { processBatch } from '../../processor/process-batch.ts';
import { ACT, DAY_MS, eventsOf, person, request, START, TENANT } from '../../contract/store-feeding.ts';
import { dumpOf } from '../../processor/store-dump.ts';
import { eventually } from '../../server.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor } from './database.ts';

const LOG = 'test:log';
const WRITERS = 3;
const TRIES_MAX = 100;
const CONTEXT = {
  options: { defaultCountry: null, junkValues: new Set<string>() },
  now: () => START,
  failpoint: () => undefined,
};

const WAITING = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;

type Entry = LogEntry & { firstUserIndex: number };

interface Setup {
  readonly pool: PostgresPool;
  readonly store: Store;
  readonly writers: readonly StoreWriter[];
}

async function setUp(context: TestContext): Promise<Setup> {
  const { pool, connect } = await databaseFor(context);
  const pools = await Promise.all(Array.from({ length: WRITERS }, () => connect({ max: 2 })));
  context.after(() => Promise.all(pools.map((own) => own.close())));
  const store = openPostgresStore({ pool: pool.share(), logName: LOG });
  context.after(() => store.close());
  return { pool, store, writers: pools.map((own) => openPostgresStoreWriter({ pool: own, logName: LOG })) };
}

/** Takes requests in, one transaction each, retried after every conflict. */
async function takeIn(writer: StoreWriter, partition: number, entries: readonly Entry[]): Promise<void> {
  for (const entry of entries) {
    for (let tries = 0; ; tries++) {
      assert.ok(tries < TRIES_MAX, 'a batch never gets its turn');
      const from = (await writer.processed()).positions.get(partition) ?? 0;
      const transaction = await writer.begin();
      try {
        await transaction.advance(partition, from, from + 1);
        await processBatch(transaction, [{ ...entry, partition, position: from }], CONTEXT);
        await transaction.commit(false);
        break;
      } catch (error) {
        await transaction.rollback();
        if (!(error instanceof StoreConflictError)) throw error;
      }
    }
  }
}

/** Each writer has a partition of its own, and its share of the requests. */
async function race({ writers }: Setup, entries: readonly Entry[]): Promise<void> {
  await Promise.all(
    writers.map((writer, index) =>
      takeIn(
        writer,
        index,
        entries.filter((_, n) => n % WRITERS === index),
      ),
    ),
  );
}

async function assertSums({ store, writers }: Setup): Promise<void> {
  const events = await eventsOf({ store });
  assert.deepEqual(await writers[0]?.difference(), { users: 0, events: 0 });
  assert.deepEqual(await store.recount(), { eventsInLedger: events.length, eventsInTables: events.length });
  const range = { from: START - 100 * DAY_MS, to: START + 100 * DAY_MS };
  const revenue = events.reduce((sum, event) => sum + Number(event.revenue ?? 0), 0);
  for (const interval of ['minute', 'hour', 'day'] as const) {
    const buckets = await store.counts(TENANT, { interval, ...range, byEventName: true });
    assert.equal(
      buckets.reduce((sum, bucket) => sum + bucket.events, 0),
      events.length,
    );
    assert.equal(
      buckets.flatMap((bucket) => bucket.revenue).reduce((sum, one) => sum + (one.revenue ?? 0), 0),
      revenue,
    );
    assert.ok(buckets.every((bucket) => bucket.events > 0));
  }
  const { rows: profiles } = await store.profiles(TENANT, { limit: 500, cursor: null });
  for (const { id, eventCount } of profiles) {
    assert.equal(events.filter(({ profileId }) => profileId === id).length, eventCount);
  }
}

/** A person who is to be erased, by ever other identifiers, and a person who stays, in the same requests. */
function requestsOf(count: number, receivedAt: (n: number) => number): Entry[] {
  return Array.from({ length: count }, (_, n) =>
    request(
      [
        person({ user_id: 'gone', anon_id: `gone-${n % 7}`, email: `gone-${n % 3}@x.org` }, [
          { revenue: 2, timestamp: new Date(START).toISOString() },
          { event_name: `gone ${n % 2}`, $event_id: `gone ${n}`, timestamp: new Date(START - n * 9_000).toISOString() },
        ]),
        person({ user_id: `friend-${n % 5}` }, [{ revenue: 1, timestamp: new Date(START).toISOString() }]),
        { identifiers: { user_id: 'gone' }, events: [] },
      ],
      { receivedAt: receivedAt(n) },
    ),
  );
}

async function goneId(store: Store): Promise<string> {
  const profile = await eventually('the person is there', () => store.findProfile(TENANT, 'user_id', 'gone'));
  return profile.id;
}

suite('Erases and unmerges that race with writers on PostgreSQL', { skip: whyNoPostgres() }, () => {
  for (const round of [1, 2, 3]) {
    test(`nothing is left of a person who is erased while their data comes in, round ${round}`, async (context) => {
      const setup = await setUp(context);
      const { store } = setup;
      const writing = race(
        setup,
        requestsOf(45, (n) => START + n),
      );
      const erasing = goneId(store).then((id) => store.erase(TENANT, id, ACT));
      assert.equal(await erasing, true);
      await writing;
      assert.equal(await store.findProfile(TENANT, 'user_id', 'gone'), undefined);
      const events = await eventsOf({ store });
      assert.equal(events.length, 45);
      await assertSums(setup);
      const left = (await dumpOf(store, [])).filter((line) => line.includes('gone') && !line.startsWith('rejection'));
      assert.deepEqual(left, []);
      const { hours } = await store.ledger(TENANT, { from: null, to: null });
      assert.equal(
        hours.reduce((sum, { users }) => sum + users.erased, 0),
        45,
      );
    });
  }

  test('of a person who is erased while later data comes in as well, only the later is left', async (context) => {
    const setup = await setUp(context);
    const { store } = setup;
    const isLater = (n: number): boolean => n % 3 === 1;
    const entries = requestsOf(60, (n) => (isLater(n) ? ACT.at + 1 + n : START + n));
    await race(
      setup,
      entries.slice(0, 10).filter((_, n) => !isLater(n)),
    );
    const id = await goneId(store);
    const [isErased] = await Promise.all([store.erase(TENANT, id, ACT), race(setup, entries.slice(10))]);
    assert.equal(isErased, true);
    await assertSums(setup);
    const profile = await store.findProfile(TENANT, 'user_id', 'gone');
    const own = profile ? await eventsOf({ store }, { profileId: profile.id }) : [];
    assert.ok(own.every(({ receivedAt }) => receivedAt > ACT.at));
    const identity = profile && (await store.identity(TENANT, profile.id));
    for (const { at } of identity?.identifiers ?? []) assert.ok(at > ACT.at);
  });

  test('a merge that is undone while more requests say the same stays undone', async (context) => {
    const setup = await setUp(context);
    const { store } = setup;
    await race(setup, [
      request([person({ anon_id: 'a' })], { receivedAt: START }),
      request([person({ user_id: 'u' })], { receivedAt: START + 1 }),
    ]);
    const joins = Array.from({ length: 30 }, (_, n) =>
      request([person({ user_id: 'u', anon_id: 'a' }, [{ revenue: 1 }])], { receivedAt: START + 2 + n }),
    );
    const [first, ...rest] = joins as [Entry, ...Entry[]];
    await race(setup, [first]);
    const profile = await store.findProfile(TENANT, 'user_id', 'u');
    assert.equal(profile?.mergedIds.length, 1);
    const [result] = await Promise.all([store.unmerge(TENANT, profile.id, first.traceId, ACT), race(setup, rest)]);
    assert.equal(result?.undone, 1);
    const known = await store.findProfile(TENANT, 'user_id', 'u');
    const anonymous = await store.findProfile(TENANT, 'anon_id', 'a');
    assert.deepEqual([anonymous?.id, known?.id], result.profileIds);
    await assertSums(setup);
  });

  test('of several erases of the same person at once all succeed', async (context) => {
    const setup = await setUp(context);
    const { store } = setup;
    await race(
      setup,
      requestsOf(12, (n) => START + n),
    );
    const id = await goneId(store);
    const responses = await Promise.all([1, 2, 3].map(() => store.erase(TENANT, id, ACT)));
    assert.ok(responses.includes(true));
    assert.equal(await store.profile(TENANT, id), undefined);
    assert.equal((await store.audit(TENANT, { limit: 10, cursor: null })).rows.length, 1);
    await assertSums(setup);
  });

  test('a rejected user that comes in while an erase waits is found and removed too', async (context) => {
    const setup = await setUp(context);
    const { pool, store } = setup;
    await race(
      setup,
      requestsOf(3, (n) => START + n),
    );
    const id = await goneId(store);
    const holding = await pool.begin();
    await holding.query('SELECT no FROM nodes WHERE id = $1 FOR UPDATE', [id]);
    const erasing = store.erase(TENANT, id, ACT);
    try {
      const waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
      await eventually('the erase waits', async () => (await pool.query(waits)).rows.length === 1);
      const gone = { identifiers: { user_id: 'gone' }, events: [] };
      const users = [person({ user_id: 'friend' }), gone, { identifiers: { user_id: 'other' } }];
      await race(setup, [request(users)]);
    } finally {
      await holding.rollback();
    }
    assert.equal(await erasing, true);
    const { rows } = await store.rejections(TENANT, { reason: null, from: null, to: null, limit: 50, cursor: null });
    assert.deepEqual(
      rows.map(({ payload }) => payload),
      ['{"identifiers":{"user_id":"other"}}'],
    );
  });

  test('a person with very many events is erased in pieces, with a correct ledger', async (context) => {
    const setup = await setUp(context);
    const { store } = setup;
    const events = Array.from({ length: 900 }, (_, n) => ({
      timestamp: new Date(START - n * 50_000).toISOString(),
      ...(n % 90 === 0 && { revenue: 0.1, $event_id: `${n}` }),
    }));
    const entries = Array.from({ length: 25 }, (_, n) =>
      request([
        person({ user_id: 'gone', anon_id: `a${n % 3}` }, events),
        person({ user_id: 'gone' }),
        person({ user_id: 'other' }, [{ revenue: 1 }]),
      ]),
    );
    await takeIn(setup.writers[0] as StoreWriter, 0, entries);
    const id = await goneId(store);
    const before = (await store.profile(TENANT, id))?.eventCount ?? 0;
    assert.equal(before, 25 * 901 - 24 * 10);
    assert.equal(await store.erase(TENANT, id, ACT), true);
    const { hours } = await store.ledger(TENANT, { from: null, to: null });
    assert.deepEqual([hours[0]?.users.stored, hours[0]?.users.erased], [25, 50]);
    assert.deepEqual([hours[0]?.events.stored, hours[0]?.events.erased], [25, before]);
    const [act] = (await store.audit(TENANT, { limit: 1, cursor: null })).rows;
    assert.deepEqual(JSON.parse(act?.detail ?? ''), { profile_id: id, nodes: 1, events: before });
    await assertSums(setup);
  });

  for (const step of ['looked up', 'written'] as const) {
    test(`a rejected user that names the person and was ${step} when the erase came is not kept`, async (context) => {
      const setup = await setUp(context);
      const { store, pool } = setup;
      const [writer] = setup.writers as [StoreWriter];
      await takeIn(writer, 0, [request([person({ user_id: 'gone', email: 'gone@x.org' })])]);
      const id = await goneId(store);
      const rejecting = request([person({ user_id: 'other' }), { identifiers: { email: 'gone@x.org' }, events: [] }]);
      const transaction = await writer.begin();
      let erasing: Promise<unknown> = Promise.resolve();
      try {
        await transaction.advance(0, 1, 2);
        const racing: Pick<WriteTransaction, 'lookUp' | 'write'> = {
          lookUp: async (questions) => {
            const responses = await transaction.lookUp(questions);
            if (step === 'looked up') await store.erase(TENANT, id, ACT);
            return responses;
          },
          write: (...args) => transaction.write(...args),
        };
        const records = [{ ...rejecting, partition: 0, position: 1 }];
        const processing = processBatch(racing as WriteTransaction, records, CONTEXT);
        if (step === 'looked up') await assert.rejects(processing, StoreConflictError);
        else {
          await processing;
          erasing = store.erase(TENANT, id, ACT);
          await eventually('the erase waits', async () => (await pool.query(WAITING)).rowCount);
          await transaction.commit(false);
        }
      } finally {
        await transaction.rollback();
      }
      await erasing;
      if (step === 'looked up') await takeIn(writer, 0, [rejecting]);
      const { rows } = await pool.query<{ payload: string }>('SELECT payload FROM rejections');
      assert.equal(rows.length, step === 'looked up' ? 1 : 0);
      assert.doesNotMatch(rows[0]?.payload ?? '', /gone/);
    });
  }

  test('a person whose events came in over most of a year is erased completely, with what comes in meanwhile', async (context) => {
    const setup = await setUp(context);
    const { store } = setup;
    const at = START + 400 * DAY_MS;
    const entries = requestsOf(12, (n) => START + (n % 4) * 90 * DAY_MS + n);
    await race(setup, entries.slice(0, 8));
    const id = await goneId(store);
    const [isErased] = await Promise.all([store.erase(TENANT, id, { ...ACT, at }), race(setup, entries.slice(8))]);
    assert.equal(isErased, true);
    assert.equal(await store.findProfile(TENANT, 'user_id', 'gone'), undefined);
    assert.equal((await eventsOf({ store })).length, 12);
    await assertSums(setup);
  });
});
