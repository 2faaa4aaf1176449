/**
 * The order of arrival when several processors write at once: a client that follows it sees every event once, whatever the
 * order in which transactions are begun and committed, and is not held up by anyone else's transactions.
 */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { deriveMigratedArrivals } from '../../../src/backends/postgres/store-arrivals.ts';
import { openPool, type PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import { type ArrivedEvent, BadCursorError, type Store } from '../../../src/store.ts';
import { OLDEST } from '../../../src/views/cursor.ts';
import type { StoreWriter, WriteTransaction } from '../../../src/store-writer.ts';
import { processBatch } from '../../processor/process-batch.ts';
import { person, request, START, TENANT } from '../../contract/store-feeding.ts';
import { randomOf } from '../../processor/history.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';
import { dumpDatabase, restoreDatabase, whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor, testPoolOptions } from './database.ts';

const LOG = 'test:log';
const CONTEXT = {
  options: { defaultCountry: null, junkValues: new Set<string>() },
  now: () => START,
  failpoint: () => undefined,
};

interface Writing {
  readonly transaction: WriteTransaction;
  /** Of the events that it stores. */
  readonly traceId: string;
}

/** To be ended after a test that failed: connections in use would keep their pools open. */
const begun = new Set<Pick<WriteTransaction, 'rollback'>>();

async function setUp(context: TestContext, writers: number) {
  context.after(async () => {
    await Promise.all([...begun].map((transaction) => transaction.rollback()));
    begun.clear();
  });
  const database = await databaseFor(context);
  const pools = await Promise.all(Array.from({ length: writers }, () => database.connect({ max: 2 })));
  context.after(() => Promise.all(pools.map((pool) => pool.close())));
  const store = openPostgresStore({ pool: database.pool.share(), logName: LOG });
  context.after(() => store.close());
  return { ...database, store, writers: pools.map((pool) => openPostgresStoreWriter({ pool, logName: LOG })) };
}

/** A dump of the database, restored into another one. */
async function openRestored(context: TestContext, original: string) {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  await dumpDatabase(original, join(folder, 'dump'));
  const url = await restoreDatabase(join(folder, 'dump'));
  const [pool, writing] = (await Promise.all([1, 2].map(() => openPool(testPoolOptions(url))))) as [
    PostgresPool,
    PostgresPool,
  ];
  context.after(() => Promise.all([pool.close(), writing.close()]));
  const store = openPostgresStore({ pool: pool.share(), logName: LOG });
  context.after(() => store.close());
  return { pool, store, writer: openPostgresStoreWriter({ pool: writing, logName: LOG }) };
}

/** Stores a request of `count` events of a person of its own, and leaves the transaction open. */
async function write(writer: StoreWriter, partition: number, count: number): Promise<Writing> {
  const entry = request([
    person(
      { user_id: `u ${partition} ${Math.random()}` },
      Array.from({ length: count }, () => ({})),
    ),
  ]);
  const from = (await writer.processed()).positions.get(partition) ?? 0;
  const transaction = await writer.begin();
  begun.add(transaction);
  await transaction.advance(partition, from, from + 1);
  await processBatch(transaction, [{ ...entry, partition, position: from }], CONTEXT);
  return { transaction, traceId: entry.traceId };
}

/** Everything from a place on, page by page, and where that ends. */
async function follow(store: Store, start: string, limit: number): Promise<{ events: ArrivedEvent[]; last: string }> {
  const events: ArrivedEvent[] = [];
  for (let last = start; ; ) {
    const page = await store.arrivals(TENANT, last, limit);
    events.push(...page.events);
    if (page.last === last) return { events, last };
    last = page.last;
  }
}

const tracesOf = (events: readonly ArrivedEvent[]): string[] => events.map(({ traceId }) => traceId);

suite('Arrivals on PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('a transaction that commits late is not passed over', async (context) => {
    const { store, writers } = await setUp(context, 2);
    const [one, two] = writers as [StoreWriter, StoreWriter];
    await (await write(one, 0, 1)).transaction.commit(false);
    const start = (await store.arrivals(TENANT, null, 10)).last;
    const late = await write(one, 0, 2);
    const early = await write(two, 1, 3);
    await early.transaction.commit(false);
    const meanwhile = await follow(store, start, 10);
    assert.deepEqual(meanwhile.events, []);
    await late.transaction.commit(false);
    const { events } = await follow(store, meanwhile.last, 2);
    assert.deepEqual(tracesOf(events), [late.traceId, late.traceId, early.traceId, early.traceId, early.traceId]);
    assert.deepEqual((await follow(store, start, 10)).events, events);
  });

  test('a transaction that is given up holds nothing back', async (context) => {
    const { store, writers } = await setUp(context, 2);
    const [one, two] = writers as [StoreWriter, StoreWriter];
    await (await write(one, 0, 1)).transaction.commit(false);
    const start = (await store.arrivals(TENANT, null, 10)).last;
    const given = await write(one, 0, 2);
    const kept = await write(two, 1, 1);
    await kept.transaction.commit(false);
    await given.transaction.rollback();
    assert.deepEqual(tracesOf((await follow(store, start, 10)).events), [kept.traceId]);
  });

  test('transactions of others that stay open hold nothing back', async (context) => {
    const { pool, store, writers } = await setUp(context, 1);
    const [writer] = writers as [StoreWriter];
    await (await write(writer, 0, 1)).transaction.commit(false);
    const start = (await store.arrivals(TENANT, null, 10)).last;
    const others = await pool.begin();
    begun.add(others);
    // So that it has a number, lower than the writer's.
    await others.query('SELECT pg_current_xact_id(), pg_advisory_xact_lock(1, 1), pg_advisory_xact_lock(1)');
    const written = await write(writer, 0, 1);
    await written.transaction.commit(false);
    assert.deepEqual(tracesOf((await follow(store, start, 10)).events), [written.traceId]);
    await others.rollback();
  });

  test('a client that follows many writers sees each event once, in one order, from any place on', async (context) => {
    const { store, writers } = await setUp(context, 4);
    await (await write(writers[0] as StoreWriter, 0, 1)).transaction.commit(false);
    const start = (await store.arrivals(TENANT, null, 1)).last;
    const random = randomOf(3);
    const stored: string[] = [];
    let isWriting = true;
    const writeOn = async (writer: StoreWriter, partition: number): Promise<void> => {
      for (let n = 0; n < 15; n++) {
        const { transaction, traceId } = await write(writer, partition, 1 + Math.floor(random() * 4));
        if (random() < 0.2) await transaction.rollback();
        else {
          await transaction.commit(false);
          stored.push(traceId);
        }
      }
    };
    const seen: ArrivedEvent[] = [];
    const read = async (): Promise<void> => {
      for (let last = start; ; ) {
        const isLast = !isWriting;
        const page = await follow(store, last, 3);
        seen.push(...page.events);
        ({ last } = page);
        if (isLast) return;
      }
    };
    const reading = read();
    await Promise.all(writers.map(writeOn));
    isWriting = false;
    await reading;
    assert.deepEqual(new Set(tracesOf(seen)), new Set(stored));
    assert.equal(new Set(seen.map(({ id }) => id)).size, seen.length);
    assert.deepEqual((await follow(store, start, 500)).events, seen);
    for (const [index, { cursor }] of [...seen.entries()].filter((_, n) => n % 9 === 0)) {
      assert.deepEqual((await follow(store, cursor, 7)).events, seen.slice(index + 1));
    }
  });

  test('a client that has seen everything before a dump was made sees what comes after it was restored', async (context) => {
    const { url, store, writers } = await setUp(context, 1);
    const [writer] = writers as [StoreWriter];
    for (let n = 0; n < 3; n++) await (await write(writer, 0, 1)).transaction.commit(false);
    const { last } = await store.arrivals(TENANT, null, 1);
    const copy = await openRestored(context, url);
    // All has expired there: the numbers are those of events that are not stored any more.
    await copy.pool.query(`WITH gone AS (DELETE FROM arrivals RETURNING *)
      INSERT INTO expired_arrivals (tenant, id, tx, event)
      SELECT tenant, id, tx, first_event FROM gone ORDER BY tx DESC LIMIT 1`);
    assert.deepEqual((await follow(copy.store, last, 9)).events, []);
    const after = await write(copy.writer, 0, 1);
    await after.transaction.commit(false);
    assert.deepEqual(tracesOf((await follow(copy.store, last, 9)).events), [after.traceId]);
  });

  test('of two histories that began with one dump, neither takes a cursor of the other', async (context) => {
    const { url, store, writers } = await setUp(context, 1);
    const [writer] = writers as [StoreWriter];
    await (await write(writer, 0, 2)).transaction.commit(false);
    const { last: common } = await store.arrivals(TENANT, null, 1);
    const copies = [];
    for (const copy of [await openRestored(context, url), await openRestored(context, url)]) {
      const { transaction, traceId } = await write(copy.writer, 0, 2);
      await transaction.commit(false);
      copies.push({ ...copy, traceId, events: (await follow(copy.store, OLDEST, 9)).events });
    }
    const [one, two] = copies as [(typeof copies)[0], (typeof copies)[0]];
    const numbersIn = (cursor: string): string[] => Buffer.from(cursor, 'base64url').toString().split(' ').slice(2);
    assert.deepEqual(
      one.events.map(({ cursor }) => numbersIn(cursor)),
      two.events.map(({ cursor }) => numbersIn(cursor)),
    );
    assert.equal(one.events[1]?.cursor, common);
    for (const [here, there] of [
      [one, two],
      [two, one],
    ] as const) {
      for (const [index, { cursor }] of there.events.entries()) {
        if (index < 2) assert.deepEqual((await follow(here.store, cursor, 9)).events, here.events.slice(index + 1));
        else await assert.rejects(here.store.arrivals(TENANT, cursor, 9), /a dump or a backup was put back.*"oldest"/);
      }
      const { last } = await there.store.arrivals(TENANT, null, 1);
      await assert.rejects(here.store.arrivals(TENANT, last, 9), BadCursorError);
    }
  });

  test('a cursor from before a database was set back is refused, also where its tenant is not known any more', async (context) => {
    const { pool, store, writers } = await setUp(context, 1);
    const [writer] = writers as [StoreWriter];
    await (await write(writer, 0, 1)).transaction.commit(false);
    const { last } = await store.arrivals(TENANT, null, 1);
    await assert.rejects(store.arrivals('acct_unknown/production', last, 1), /was put back/);
    await pool.query('DELETE FROM arrivals');
    await assert.rejects(store.arrivals(TENANT, last, 1), /was put back/);
    // What comes now has a higher number, and would be given after it: that others have come before it is not known.
    await (await write(writer, 0, 1)).transaction.commit(false);
    await assert.rejects(store.arrivals(TENANT, last, 1), /was put back/);
  });

  test('what was moved from an embedded store is read in the order that it had there', async (context) => {
    const { pool, store, writers } = await setUp(context, 1);
    const [writer] = writers as [StoreWriter];
    const written: Writing[] = [];
    for (let n = 0; n < 7; n++) {
      const one = await write(writer, 0, 1 + (n % 3));
      await one.transaction.commit(false);
      written.push(one);
    }
    const all = (await follow(store, OLDEST, 500)).events;
    const numbers = (await pool.query<{ no: number }>('SELECT no FROM events ORDER BY no')).rows.map(({ no }) => no);
    const installation = randomUUID();
    await pool.query(
      `INSERT INTO data_migrations (id, log, started_at, store_id) VALUES (gen_random_uuid(), 'l', 1, $1)`,
      [installation],
    );
    for (let run = 1; run <= 2; run++) await pool.inTransaction((client) => deriveMigratedArrivals(client, 70_000));
    const later = await write(writer, 0, 1);
    await later.transaction.commit(false);

    const moved = openPostgresStore({ pool: pool.share(), logName: LOG });
    context.after(() => moved.close());
    const { events } = await follow(moved, OLDEST, 2);
    assert.deepEqual(tracesOf(events), [...tracesOf(all), later.traceId]);
    const [first, last, unknown] = ['1', '2', '3'].map((digit) => digit.repeat(16));
    await pool.query('INSERT INTO starts VALUES (1, $1, 1), (2, $2, 69990)', [first, last]);
    const embedded = (no: number, start = last): string =>
      Buffer.from(`arrivals ${installation.replaceAll('-', '').slice(0, 12)}${start} ${no}`).toString('base64url');
    for (let no = (numbers[0] ?? 0) - 1; no <= (numbers.at(-1) ?? 0) + 1; no++) {
      const rest = await follow(moved, embedded(no), 3);
      assert.deepEqual(rest.events, events.slice(numbers.filter((number) => number <= no).length), `after ${no}`);
    }
    assert.deepEqual(tracesOf((await follow(moved, embedded(69_999), 3)).events), [later.traceId]);
    await assert.rejects(moved.arrivals(TENANT, embedded(70_000), 1), /ahead of all that is stored/);
    // As on the embedded store, after a copy was put back there.
    assert.deepEqual(tracesOf((await follow(moved, embedded(69_989, first), 3)).events), [later.traceId]);
    for (const cursor of [embedded(69_990, first), embedded(1, unknown), embedded(1, '')]) {
      await assert.rejects(moved.arrivals(TENANT, cursor, 1), /a backup was put back since/);
    }
    await assert.rejects(store.arrivals('acct_unknown/production', embedded(-1), 1), BadCursorError);
  });

  test('what was erased is passed over without ending the list', async (context) => {
    const { store, writers } = await setUp(context, 1);
    const [writer] = writers as [StoreWriter];
    await (await write(writer, 0, 1)).transaction.commit(false);
    const start = (await store.arrivals(TENANT, null, 1)).last;
    const traces: string[] = [];
    for (let n = 0; n < 6; n++) {
      const { transaction, traceId } = await write(writer, 0, 2);
      await transaction.commit(false);
      traces.push(traceId);
    }
    for (const traceId of traces.slice(0, 4)) {
      const id = (await store.trace(TENANT, traceId))?.users[0]?.profileId ?? '';
      assert.ok(await store.erase(TENANT, id, { traceId, at: START }));
    }
    assert.deepEqual(
      tracesOf((await follow(store, start, 2)).events),
      traces.slice(4).flatMap((id) => [id, id]),
    );
  });
});
