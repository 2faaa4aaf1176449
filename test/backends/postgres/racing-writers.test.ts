/**
 * Several processors write one store at once, each with connections and a partition of its own, about the same people.
 * Whatever the order in which they get their turns: what holds for one writer holds for all of them together, and where
 * nothing is ever refused, people are joined as a walk through all requests would join them.
 */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import type { PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import { PROFILE_LIMITS } from '../../../src/identity/graph.ts';
import type { LogEntry, LogRecord } from '../../../src/log.ts';
import { IDENTIFIER_TYPES } from '../../../src/model.ts';
import { prepareRecord } from '../../../src/processor/prepare.ts';
import { StoreConflictError, type StoreWriter } from '../../../src/store-writer.ts';
import { processBatch } from '../../processor/process-batch.ts';
import { HOUR_MS, MINUTE_MS, person, request, START, TENANT } from '../../contract/store-feeding.ts';
import { nameOf } from '../../identity/graph-in-memory.ts';
import { components } from '../../identity/oracle.ts';
import { type Random, randomOf, traceIdOf } from '../../processor/history.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { migratedDatabase, type TestDatabase } from './database.ts';

const WRITERS = 4;
const OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };
/** A batch that loses so often in a row would lose forever. */
const TRIES_MAX = 100;

type Entry = LogEntry & { firstUserIndex: number };

function recordsOf(entries: readonly Entry[], partition: number, from: number): LogRecord[] {
  const records: LogRecord[] = [];
  for (const [index, entry] of entries.entries()) records.push({ ...entry, partition, position: from + index });
  return records;
}

async function writeAll(writer: StoreWriter, partition: number, entries: readonly Entry[], random: Random) {
  const context = { options: OPTIONS, now: () => START, failpoint: () => undefined };
  let conflicts = 0;
  let tries = 0;
  for (let at = 0; at < entries.length; ) {
    const from = (await writer.processed()).positions.get(partition) ?? 0;
    const size = 1 + Math.floor(random() * 4);
    const records = recordsOf(entries.slice(at, at + size), partition, from);
    const transaction = await writer.begin();
    try {
      await transaction.advance(partition, from, from + records.length);
      await processBatch(transaction, records, context);
      await transaction.commit(false);
      at += records.length;
      tries = 0;
    } catch (error) {
      await transaction.rollback();
      if (!(error instanceof StoreConflictError)) throw error;
      conflicts += 1;
      tries += 1;
      assert.ok(tries < TRIES_MAX, 'a batch never gets its turn');
    }
  }
  return conflicts;
}

/** Deals the entries out, and lets the writers race. How many conflicts there were. */
async function race(database: TestDatabase, entries: readonly Entry[], random: Random): Promise<number> {
  const hands: Entry[][] = Array.from({ length: WRITERS }, () => []);
  for (const entry of entries) hands[Math.floor(random() * WRITERS)]?.push(entry);
  const pools = await Promise.all(hands.map(() => database.connect({ max: 2 })));
  const writers = pools.map((pool) => openPostgresStoreWriter({ pool, logName: 'test:log' }));
  try {
    const counts = await Promise.all(
      writers.map((writer, index) => writeAll(writer, index, hands[index] ?? [], random)),
    );
    const expected = hands.flatMap((hand, index) => (hand.length === 0 ? [] : [[index, hand.length] as const]));
    assert.deepEqual(
      [...((await writers[0]?.processed())?.positions ?? [])].toSorted(([a], [b]) => a - b),
      expected,
    );
    assert.deepEqual(await writers[0]?.difference(), { users: 0, events: 0 });
    return counts.reduce((sum, count) => sum + count, 0);
  } finally {
    await Promise.all(writers.map((writer) => writer.close()));
  }
}

async function numberOf(pool: PostgresPool, sql: string): Promise<number> {
  const { rows } = await pool.query<{ number: number }>(`SELECT coalesce(sum(number), 0) AS number FROM (${sql}) AS n`);
  return rows[0]?.number ?? Number.NaN;
}

/** What must hold in every store, whichever writer wrote it. */
async function assertWhole(pool: PostgresPool): Promise<void> {
  const none = async (what: string, sql: string): Promise<void> =>
    assert.equal(await numberOf(pool, `SELECT count(*) AS number FROM ${sql}`), 0, what);
  const profile = 'coalesce(n.root, n.no)';
  const keys = 'identifiers i JOIN nodes n ON n.no = i.node';
  await none('an alias of an alias', 'nodes n JOIN nodes r ON r.no = n.root WHERE r.root IS NOT NULL');
  await none(
    'an alias without a node',
    'nodes n LEFT JOIN nodes r ON r.no = n.root WHERE n.root <> r.no OR r.no = n.no',
  );
  await none('a key without a node', 'identifiers i LEFT JOIN nodes n ON n.no = i.node WHERE n.no IS NULL');
  for (const [type, limit] of [
    1,
    PROFILE_LIMITS.emails,
    PROFILE_LIMITS.phoneNumbers,
    PROFILE_LIMITS.anonIds,
  ].entries()) {
    const tooMany = `(SELECT 1 FROM ${keys} WHERE i.type = ${type} GROUP BY ${profile} HAVING count(*) > ${limit}) AS p`;
    await none(`more than ${limit} ${IDENTIFIER_TYPES[type]} on a profile`, tooMany);
  }
  const crowded = `(SELECT 1 FROM nodes n GROUP BY ${profile} HAVING count(*) > ${PROFILE_LIMITS.nodes}) AS p`;
  await none('a profile of too many nodes', crowded);
  const across = 'merges m JOIN nodes n ON n.no = m.node_a JOIN nodes o ON o.no = m.node_b';
  await none('a merge across profiles', `${across} WHERE coalesce(n.root, n.no) <> coalesce(o.root, o.no)`);
  // Edges never close a circle: as many as there are aliases, and with the above they join just those.
  const merges = await numberOf(pool, 'SELECT count(*) AS number FROM merges');
  assert.equal(merges, await numberOf(pool, 'SELECT count(root) AS number FROM nodes'), 'a merge was lost');
  await none(
    'a node that counts other events than it has',
    `nodes n WHERE n.events <> (SELECT count(*) FROM events e WHERE e.node = n.no)`,
  );
  const events = await numberOf(pool, 'SELECT count(*) AS number FROM events');
  assert.equal(await numberOf(pool, 'SELECT events_stored AS number FROM ledger'), events);
  // Of what was erased the run stays.
  assert.ok((await numberOf(pool, 'SELECT events AS number FROM arrivals')) >= events);
  const revenue = await numberOf(pool, 'SELECT revenue::float8 AS number FROM events');
  for (const width of [MINUTE_MS, HOUR_MS]) {
    const counts = `FROM counts WHERE width = ${width}`;
    assert.equal(await numberOf(pool, `SELECT events AS number ${counts}`), events);
    assert.equal(await numberOf(pool, `SELECT revenue AS number ${counts}`), revenue);
  }
  await none(
    'an event twice',
    '(SELECT 1 FROM events GROUP BY trace_id, user_index, event_index HAVING count(*) > 1) AS e',
  );
}

/** Match keys by profile. */
async function partitionOf(pool: PostgresPool): Promise<string[][]> {
  const { rows } = await pool.query<{ profile: number; type: number; value: string }>(
    'SELECT coalesce(n.root, n.no) AS profile, i.type, i.value FROM identifiers i JOIN nodes n ON n.no = i.node',
  );
  const parts = [...Map.groupBy(rows, (row) => row.profile).values()].map((part) =>
    part.map(({ type, value }) => nameOf({ type: IDENTIFIER_TYPES[type] ?? 'anon_id', value })).sort(),
  );
  return parts.sort((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1));
}

function pick<T>(random: Random, values: readonly T[]): T {
  return values[Math.floor(random() * values.length)] as T;
}

/** Some of these identifiers, at least one. */
function some(random: Random, identifiers: Record<string, string>): Record<string, string> {
  const all = Object.entries(identifiers);
  const kept = all.filter(() => random() < 0.5);
  return Object.fromEntries(kept.length > 0 ? kept : [pick(random, all)]);
}

/** People who share no identifier and have one user_id each: nothing is ever refused. */
function peaceful(random: Random, count: number): Entry[] {
  return Array.from({ length: count }, (_, n) => {
    const users = Array.from({ length: 1 + Math.floor(random() * 3) }, () => {
      const who = Math.floor(random() * 5);
      const nth = (): string => `${who}-${Math.floor(random() * 6)}`;
      const identifiers = { user_id: `u${who}`, email: `e${nth()}@x.org`, anon_id: `a${nth()}` };
      return person(some(random, identifiers), [{ revenue: 1 }, {}], { [`p${Math.floor(random() * 3)}`]: n });
    });
    return request(users, { receivedAt: START + Math.floor(n / 2) });
  });
}

/** All identifiers are drawn from few, with both kinds of keys: every refusal comes up, limits too. */
function messy(random: Random, count: number): Entry[] {
  return Array.from({ length: count }, (_, n) => {
    const users = Array.from({ length: 1 + Math.floor(random() * 3) }, () => {
      const nth = (values: number): number => Math.floor(random() * values);
      const identifiers = { user_id: `u${nth(3)}`, email: `e${nth(25)}@x.org`, anon_id: `a${nth(12)}` };
      return person(some(random, identifiers), [{ revenue: 1 }]);
    });
    return request(users, { receivedAt: START + n, keyKind: random() < 0.2 ? 'publishable' : 'secret' });
  });
}

suite('Racing writers on PostgreSQL', { skip: whyNoPostgres() }, () => {
  let conflicts = 0;

  async function raced(context: TestContext, entries: readonly Entry[], random: Random): Promise<PostgresPool> {
    const database = await migratedDatabase();
    conflicts += await race(database, entries, random);
    const pool = await database.connect();
    context.after(() => pool.close());
    await assertWhole(pool);
    return pool;
  }

  for (const seed of [1, 2, 3]) {
    test(`people without conflicting claims are joined as one writer would, history ${seed}`, async (context) => {
      const random = randomOf(seed);
      const entries = peaceful(random, 150);
      const pool = await raced(context, entries, random);
      const users = entries.flatMap((entry) => prepareRecord({ ...entry, partition: 0, position: 0 }, OPTIONS).users);
      assert.deepEqual(await partitionOf(pool), components(users));
      assert.equal(await numberOf(pool, 'SELECT count(*) AS number FROM events'), 2 * users.length);
      assert.equal(await numberOf(pool, 'SELECT revenue AS number FROM counts WHERE width = 60000'), users.length);
      assert.equal(await numberOf(pool, 'SELECT count(*) AS number FROM refusals'), 0);
    });

    test(`no rule is broken although all want the same identifiers, history ${seed}`, async (context) => {
      const random = randomOf(seed + 100);
      const pool = await raced(context, messy(random, 150), random);
      assert.ok((await numberOf(pool, 'SELECT count AS number FROM refusals')) > 20);
    });
  }

  test('of requests with one Idempotency-Key, and of events with one id, one is stored', async (context) => {
    const random = randomOf(9);
    const entries = Array.from({ length: 80 }, (_, n) => {
      const users = [person({ user_id: `u${(n % 20) % 7}` }, [{ $event_id: `id${n % 10}` }, {}])];
      return request(users, { receivedAt: START + n, idempotencyKey: n % 2 === 0 ? `key${n % 20}` : null });
    });
    const pool = await raced(context, entries, random);
    const once = await numberOf(pool, 'SELECT count(*) AS number FROM records WHERE duplicate_of IS NULL');
    assert.equal(once, 40 + 10);
    assert.equal(await numberOf(pool, 'SELECT count(*) AS number FROM event_ids'), 10);
    assert.equal(await numberOf(pool, 'SELECT users_stored + users_duplicates AS number FROM ledger'), 80);
    const named = await numberOf(pool, `SELECT count(*) AS number FROM events WHERE properties LIKE '%$event_id%'`);
    assert.equal(named, 10);
  });

  test('of requests with one Idempotency-Key and several bodies, one of each body is stored', async (context) => {
    const entries = Array.from({ length: 120 }, (_, n) =>
      request([person({ user_id: `u${n % 3}` })], { receivedAt: START + n, idempotencyKey: `key${n % 5}` }),
    );
    const pool = await raced(context, entries, randomOf(10));
    const stored = 'SELECT count(*) AS number FROM records WHERE duplicate_of IS NULL';
    assert.equal(await numberOf(pool, stored), 15);
    assert.equal(await numberOf(pool, `${stored} AND notes LIKE '%with another body%'`), 10);
    assert.equal(await numberOf(pool, 'SELECT count(*) AS number FROM idempotency_keys'), 15);
  });

  test('a partition that two processors believe to be theirs is written by one of them', async (context) => {
    const database = await migratedDatabase();
    const pools = await Promise.all([1, 2].map(() => database.connect({ max: 2 })));
    context.after(() => Promise.all(pools.map((pool) => pool.close())));
    const entries = peaceful(randomOf(5), 30);
    // Both read the log from the position that the store has, until both have seen its end.
    const readOn = async (pool: PostgresPool): Promise<void> => {
      const writer = openPostgresStoreWriter({ pool, logName: 'test:log' });
      for (;;) {
        const from = (await writer.processed()).positions.get(0) ?? 0;
        const records = recordsOf(entries.slice(from, from + 2), 0, from);
        if (records.length === 0) return;
        const transaction = await writer.begin();
        try {
          await transaction.advance(0, from, from + records.length);
          await processBatch(transaction, records, { options: OPTIONS, now: () => START, failpoint: () => undefined });
          await transaction.commit(false);
        } catch (error) {
          await transaction.rollback();
          if (!(error instanceof StoreConflictError)) throw error;
          conflicts += 1;
        }
      }
    };
    await Promise.all(pools.map(readOn));
    const [pool] = pools as [PostgresPool];
    await assertWhole(pool);
    const { rows } = await pool.query('SELECT tenant FROM records');
    assert.equal(rows.length, entries.length);
    assert.equal(await numberOf(pool, 'SELECT count(*) AS number FROM tenants'), 1);
    assert.equal(TENANT, entries[0]?.tenantId);
  });

  test('people are erased and unmerged in between, and nothing of them is left over', async (context) => {
    const random = randomOf(77);
    const database = await migratedDatabase();
    const pool = await database.connect();
    context.after(() => pool.close());
    const store = openPostgresStore({ pool: pool.share(), logName: 'test:log' });
    context.after(() => store.close());
    const over = new AbortController();
    const racing = race(database, messy(random, 300), random).finally(() => over.abort());
    let [erased, undone] = [0, 0];
    for (let n = 0; !over.signal.aborted; n++) {
      const { rows } = await store.profiles(TENANT, { limit: 100, cursor: null });
      const { id } = rows.length === 0 ? { id: '' } : pick(random, rows);
      // After everything that comes in, so that what is late meets the tombstones.
      const act = { traceId: traceIdOf(START, n), at: START + 150 };
      const merge = pick(random, (await store.identity(TENANT, id))?.merges ?? []);
      if (n % 2 === 0 && merge !== undefined)
        undone += (await store.unmerge(TENANT, id, merge.traceId, act))?.undone ?? 0;
      else if (await store.erase(TENANT, id, act)) erased += 1;
    }
    conflicts += await racing;
    await assertWhole(pool);
    assert.ok(erased > 3 && undone > 0, `${erased} people were erased, ${undone} merges undone`);
    const orphans = `SELECT count(*) AS number FROM events e LEFT JOIN nodes n ON n.no = e.node WHERE n.no IS NULL AND e.node IS NOT NULL`;
    assert.equal(await numberOf(pool, orphans), 0);
    const { rows } = await pool.query<{ users: number; events: number }>(
      'SELECT sum(users_erased) AS users, sum(events_erased) AS events FROM ledger',
    );
    assert.ok((rows[0]?.users ?? 0) > 3 && (rows[0]?.events ?? 0) > 3);
  });

  test('they did race', () => {
    assert.ok(conflicts > 10, `there were ${conflicts} conflicts`);
  });
});
