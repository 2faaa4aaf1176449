/** Days of the store on PostgreSQL: tables that are made and dropped while others read and write. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { ADVISORY_LOCKS, PARTITION_LOCK, SWEEP_LOCK } from '../../../src/backends/postgres/make-tables.ts';
import { PostgresClient, type PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { StoreDays } from '../../../src/backends/postgres/store-days.ts';
import { StoreConflictError, type StoreWriter } from '../../../src/store-writer.ts';
import {
  DAY_MS,
  eventsOf,
  feed,
  KEEP_ALL,
  person,
  profileOf,
  request,
  START,
  send,
  sweepAll,
  TENANT,
} from '../../contract/store-feeding.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { openFor, openOn } from './store-under-test.ts';

async function dayTablesOf(pool: PostgresPool, parent: 'events' | 'records' = 'events'): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class WHERE relname ~ '^${parent}_[0-9_]{10}$' AND relkind = 'r' ORDER BY 1`,
  );
  return rows.map(({ name }) => name);
}

suite('Days of the store on PostgreSQL', { skip: whyNoPostgres() }, () => {
  const OLD = { eventsMs: DAY_MS };

  test('a day has a table of its own, with tomorrow’s made ahead, and goes once it is old and empty', async (context) => {
    const under = await openFor(context);
    for (const day of [0, 1, 3]) await send(under, [person({ user_id: 'u' })], { receivedAt: START + day * DAY_MS });
    // The processor's clock in these tests is on the 2nd.
    const days = (...all: number[]): string[] => all.map((day) => `events_2026_03_0${day}`);
    assert.deepEqual(await dayTablesOf(under.pool), days(1, 2, 3, 4));
    // A day whose last hours are not old enough stays.
    await sweepAll(under, OLD, START + 2 * DAY_MS);
    assert.deepEqual(await dayTablesOf(under.pool), days(2, 3, 4));
    assert.deepEqual(await dayTablesOf(under.pool, 'records'), [
      'records_2026_03_02',
      'records_2026_03_03',
      'records_2026_03_04',
    ]);
    assert.equal((await eventsOf(under)).length, 2);
    await sweepAll(under, OLD, START + 30 * DAY_MS);
    assert.deepEqual(await dayTablesOf(under.pool), []);
    assert.deepEqual(await eventsOf(under), []);
    assert.deepEqual(await under.writer.difference(), { users: 0, events: 0 });
  });

  test('a day that another process dropped is made again for what comes late', async (context) => {
    const under = await openFor(context);
    const other = openOn(under.pool);
    context.after(() => other.close());
    await send(under, [person({ user_id: 'u' })], { receivedAt: START });
    await sweepAll(other, OLD, START + 30 * DAY_MS);
    const late = request([person({ user_id: 'u' })], { receivedAt: START + 1 });
    await assert.rejects(feed(under, [late]), StoreConflictError);
    await feed(under, [late]);
    assert.equal((await eventsOf(under)).length, 1);
    assert.equal((await profileOf(under, 'user_id', 'u')).eventCount, 1);
  });

  test('what came into a day while it was being dropped brings it back and is counted when it goes', async (context) => {
    const under = await openFor(context);
    await send(under, [person({ user_id: 'u' }, [{}, {}])], { receivedAt: START });
    // As a process leaves it that died between detaching and dropping.
    for (const parent of ['events', 'records']) {
      await under.pool.query(`ALTER TABLE ${parent} DETACH PARTITION ${parent}_2026_03_01`);
    }
    assert.deepEqual(await eventsOf(under), []);
    await under.writer.sweep({ ...KEEP_ALL, ...OLD }, START + 5 * DAY_MS);
    assert.equal((await eventsOf(under)).length, 2);
    await sweepAll(under, OLD, START + 30 * DAY_MS);
    assert.deepEqual(await dayTablesOf(under.pool), []);
    assert.equal((await profileOf(under, 'user_id', 'u')).eventCount, 0);
    const { hours } = await under.store.ledger(TENANT, { from: null, to: null });
    assert.deepEqual([hours[0]?.events.stored, hours[0]?.events.expired], [0, 2]);
  });

  test('a day is dropped, and another made, while another transaction reads and writes', async (context) => {
    const under = await openFor(context);
    await send(under, [person({ user_id: 'u' })], { receivedAt: START });
    await send(under, [person({ user_id: 'u' })], { receivedAt: START + 9 * DAY_MS });
    const reading = await under.pool.begin();
    await reading.query('SELECT count(*) FROM nodes');
    await sweepAll(under, OLD, START + 9 * DAY_MS);
    await send(under, [person({ user_id: 'u' })], { receivedAt: START + 12 * DAY_MS });
    await reading.rollback();
    assert.equal((await eventsOf(under)).length, 2);
    assert.equal((await dayTablesOf(under.pool)).includes('events_2026_03_01'), false);
  });

  test('a day that cannot be made now is a conflict, whatever keeps it from being made', async (context) => {
    const under = await openFor(context);
    const { query } = { ...Object.getOwnPropertyDescriptors(PostgresClient.prototype) };
    context.mock.method(PostgresClient.prototype, 'query', function hasty(this: PostgresClient, ...args: never[]) {
      const [text, ...rest] = args as unknown as [unknown, ...unknown[]];
      const isAttaching = typeof text === 'string' && text.includes('ATTACH PARTITION');
      const sooner = isAttaching ? text.replace('BEGIN;', 'BEGIN; SET LOCAL lock_timeout = 50;') : text;
      return Reflect.apply(query.value as () => unknown, this, [sooner, ...rest] as unknown as []);
    });
    const analysing = await under.pool.begin();
    await analysing.query('LOCK TABLE events IN SHARE UPDATE EXCLUSIVE MODE');
    try {
      await assert.rejects(send(under, [person({ user_id: 'u' })]), StoreConflictError);
    } finally {
      await analysing.rollback();
    }
    await send(under, [person({ user_id: 'u' })]);
    assert.equal((await eventsOf(under)).length, 1);
  });

  test('a day that is there is found while another process makes or drops one', async (context) => {
    const under = await openFor(context);
    await new StoreDays(under.pool).ensure([20_000]);
    const busy = await under.pool.begin();
    try {
      await busy.query('SELECT pg_advisory_xact_lock($1, $2)', [ADVISORY_LOCKS, PARTITION_LOCK]);
      await new StoreDays(under.pool).ensure([20_000]);
    } finally {
      await busy.rollback();
    }
  });

  test('a day that another transaction reads for long keeps no sweep waiting, and goes later', async (context) => {
    const under = await openFor(context);
    await send(under, [person({ user_id: 'u' })], { receivedAt: START });
    const backup = await under.pool.begin();
    await backup.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
    await backup.query('SELECT count(*) FROM events, records');
    try {
      let sweeps = 1;
      while (await under.writer.sweep({ ...KEEP_ALL, ...OLD }, START + 30 * DAY_MS)) assert.ok(++sweeps < 10);
      assert.ok((await dayTablesOf(under.pool)).includes('events_2026_03_01'));

      // What it left on the connection would let any statement take as long.
      const { rows } = await under.pool.query<{ statement_timeout: string }>('SHOW statement_timeout');
      assert.equal(rows[0]?.statement_timeout, '30s');
    } finally {
      await backup.rollback();
    }
    await sweepAll(under, OLD, START + 30 * DAY_MS);
    assert.deepEqual([...(await dayTablesOf(under.pool)), ...(await dayTablesOf(under.pool, 'records'))], []);
  });

  test('a day that has records and no table for events goes as well', async (context) => {
    const under = await openFor(context);
    const idempotencyKey = 'once';
    for (const _ of [1, 2]) await send(under, [person({ user_id: 'u' })], { receivedAt: START, idempotencyKey });
    // As if a record without events had come in between the two tables' being dropped.
    await under.pool.query('DELETE FROM records WHERE events > 0');
    await under.pool.query('DROP TABLE events_2026_03_01');
    await sweepAll(under, OLD, START + 30 * DAY_MS);
    assert.deepEqual([...(await dayTablesOf(under.pool)), ...(await dayTablesOf(under.pool, 'records'))], []);
  });

  test('one sweeper works at a time', async (context) => {
    const under = await openFor(context);
    await send(under, [person({ user_id: 'u' })], { receivedAt: START });
    const sweeping = await under.pool.begin();
    await sweeping.query('SELECT pg_advisory_xact_lock($1, $2)', [ADVISORY_LOCKS, SWEEP_LOCK]);
    const sweep = (writer: StoreWriter): Promise<boolean> => writer.sweep({ ...KEEP_ALL, ...OLD }, START + 5 * DAY_MS);
    assert.equal(await sweep(under.writer), false);
    assert.equal((await eventsOf(under)).length, 1);
    await sweeping.rollback();
    assert.equal(await sweep(under.writer), true);
    assert.equal((await eventsOf(under)).length, 0);
  });

  test('runs of arrivals are of one day each, and are kept for as long as its events', async (context) => {
    const under = await openFor(context);
    const midnight = Math.ceil(START / DAY_MS) * DAY_MS;
    const entries = [-2, -1, 0, 1].map((offset) =>
      request([person({ user_id: 'u' })], { receivedAt: midnight + offset }),
    );
    await feed(under, entries);
    const left = async (): Promise<[runs: number, events: number]> => [
      (await under.pool.query('SELECT FROM arrivals')).rowCount,
      (await eventsOf(under)).length,
    ];
    const retention = { eventsMs: 3 * DAY_MS };
    await sweepAll(under, retention, midnight + 3 * DAY_MS - 1);
    assert.deepEqual(await left(), [2, 4]);
    await sweepAll(under, retention, midnight + 3 * DAY_MS);
    assert.deepEqual(await left(), [1, 2]);
    await sweepAll(under, retention, midnight + 4 * DAY_MS);
    assert.deepEqual(await left(), [0, 0]);
  });
});
