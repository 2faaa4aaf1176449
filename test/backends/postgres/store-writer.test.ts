/** What is peculiar to writing the store on PostgreSQL: round trips, fencing, lost connections, numbers. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { PostgresClient } from '../../../src/backends/postgres/pool.ts';
import { StoreNumbers } from '../../../src/backends/postgres/write-records.ts';
import { NUMBERS_PER_BLOCK } from '../../../src/backends/postgres/store-schema.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import { headerOf } from '../../../src/processor/prepare.ts';
import { type Observation, StoreConflictError, StoreUnavailableError } from '../../../src/store-writer.ts';
import { processBatch } from '../../processor/process-batch.ts';
import {
  DAY_MS,
  eventsOf,
  feed,
  HOUR_MS,
  person,
  profileOf,
  request,
  START,
  send,
  TENANT,
} from '../../contract/store-feeding.ts';
import { eventually } from '../../server.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { openWireTo } from '../../scaling/wire.ts';
import { openFor, openOn } from './store-under-test.ts';

const CONTEXT = {
  options: { defaultCountry: null, junkValues: new Set<string>() },
  now: () => START,
  failpoint: () => undefined,
};

suite('The writing end of the store on PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('two processors that flush the catalogue at once add up, also where both bring the same new name', async (context) => {
    const under = await openFor(context);
    await send(under, [person({ user_id: 'u' })]);
    const seen = (count: number): Observation => ({
      ...{ tenantId: TENANT, kind: 'event', name: 'seen', count, examined: count, firstSeen: START, lastSeen: START },
      ...{ keyIds: [], otherProperties: 0 },
      properties: [
        {
          ...{ name: 'total', count, firstSeen: START, lastSeen: START, examples: [] },
          types: [{ type: 'number', count }],
        },
      ],
    });
    for (const [first, second] of [
      [1, 2],
      [10, 20],
    ] as const) {
      const [one, other] = [await under.writer.begin(), await under.writer.begin()];
      await one.writeCatalogue([seen(first)], START);
      const waiting = other.writeCatalogue([seen(second)], START);
      await eventually('the other one waits for a lock', async () => {
        const { rows } = await under.pool.query(
          `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
        );
        return rows.length > 0;
      });
      await one.commit(true);
      await waiting;
      await other.commit(true);
    }
    const details = await under.store.cataloguedEvent(TENANT, 'seen');
    assert.deepEqual([details?.count, details?.properties[0]?.count], [33, 33]);
  });

  test('a batch takes as many round trips for 1,000 users as for 10', async (context) => {
    const under = await openFor(context);
    let queries = 0;
    for (const method of ['query', 'copyIn'] as const) {
      const original = PostgresClient.prototype[method];
      context.mock.method(PostgresClient.prototype, method, function counted(this: PostgresClient, ...args: never) {
        queries += 1;
        return Reflect.apply(original, this, args) as unknown;
      });
    }
    const roundTrips = async (users: readonly unknown[], idempotencyKey: string): Promise<number> => {
      queries = 0;
      await feed(under, [request([...users, 'rejected'], { receivedAt: START, idempotencyKey })]);
      return queries;
    };
    const people = (count: number, from: number, make: (n: number) => object): object[] =>
      Array.from({ length: count }, (_, n) => make(from + n));
    let ids = 0;
    const event = (n: number): object => ({ $event_id: `id ${ids++}`, revenue: n, event_name: `event ${n % 100}` });
    // New people, then the same ones, then such that are joined to others.
    const stages: ((n: number) => object)[] = [
      (n) => person({ user_id: `u${n}` }, [event(n), {}], { n }),
      (n) => person({ user_id: `u${n}` }, [event(n), {}], { n: n + 1 }),
      (n) => person({ anon_id: `a${n}` }, [event(n)]),
      (n) => person({ user_id: `u${n}`, anon_id: `a${n}`, email: `e${n}@x.org` }, [event(n)]),
      (n) => person({ user_id: `u${n + 5}`, anon_id: `a${n}` }, [event(n)]),
    ];
    for (const make of stages.slice(0, 1)) await roundTrips(people(3, 5_000, make), 'first');
    for (const [stage, make] of stages.entries()) {
      const few = await roundTrips(people(10, 0, make), `few ${stage}`);
      const many = await roundTrips(people(999, 10_000, make), `many ${stage}`);
      // One more to look up the people that the cache had to displace: with 1,000 there is one in about 50 runs.
      assert.ok(many === few || many === few + 1, `stage ${stage}: ${many} and ${few} round trips`);
      assert.ok(few <= 30, `${few} round trips`);
    }
    assert.equal((await profileOf(under, 'anon_id', 'a10998')).identifiers.email[0], 'e10998@x.org');
  });

  test('a partition moves on only from where it is; one that was never read is at 0', async (context) => {
    const { writer } = await openFor(context);
    const advance = async (...[partition, from, to]: [number, number, number]): Promise<void> => {
      const transaction = await writer.begin();
      try {
        await transaction.advance(partition, from, to);
        await transaction.commit(false);
      } finally {
        await transaction.rollback();
      }
    };
    await assert.rejects(advance(3, 7, 9), StoreConflictError);
    await advance(3, 0, 5);
    await assert.rejects(advance(3, 0, 5), StoreConflictError);
    await assert.rejects(advance(3, 4, 9), StoreConflictError);
    await advance(3, 5, 9);
    await advance(0, 0, 2);
    assert.deepEqual(
      [...(await writer.processed()).positions].toSorted(([a], [b]) => a - b),
      [
        [0, 2],
        [3, 9],
      ],
    );
  });

  test('positions are those of the log that the writer was opened for', async (context) => {
    const under = await openFor(context);
    await send(under, [person({ user_id: 'u' })]);
    const other = openOn(under.pool, 'test:other');
    try {
      assert.deepEqual([...(await other.writer.processed()).positions], []);
      await send(other, [person({ user_id: 'u' })]);
      await send(other, [person({ user_id: 'u' })]);
      assert.deepEqual([...(await other.writer.processed()).positions], [[0, 2]]);
    } finally {
      await other.close();
    }
    assert.deepEqual([...(await under.writer.processed()).positions], [[0, 1]]);
    assert.equal((await profileOf(under, 'user_id', 'u')).eventCount, 3);
  });

  test('a record becomes a dead letter once, whichever processor tries, with its cause whatever that holds', async (context) => {
    const { writer, store } = await openFor(context);
    const record = { ...request([person({ user_id: 'u' }), 7]), partition: 2, position: 5 };
    const deadLetters = async (): Promise<void> => {
      const transaction = await writer.begin();
      try {
        await transaction.deadLetter(headerOf(record), record, 'TypeError: \0 is odd', START);
        await transaction.commit(false);
      } finally {
        await transaction.rollback();
      }
    };
    await deadLetters();
    await deadLetters();
    const rows = await store.deadLetters(10);
    assert.deepEqual(
      rows.map(({ partition, position, cause }) => [partition, position, cause]),
      [[2, 5, 'TypeError: \u{FFFD} is odd']],
    );
    assert.deepEqual(await writer.difference(), { users: 0, events: 0 });
  });

  test('two records that say to be the same user of the same request are a fault, and no conflict', async (context) => {
    const under = await openFor(context);
    const traceId = await send(under, [person({ user_id: 'u' })], { receivedAt: START });
    const failing = send(under, [person({ user_id: 'v' })], { receivedAt: START, traceId });
    await assert.rejects(failing, (error) => error instanceof Error && !(error instanceof StoreConflictError));
    await send(under, [person({ user_id: 'v' })], { receivedAt: START });
    assert.equal((await eventsOf(under)).length, 2);
  });

  test('the ledger difference is reported by amount', async (context) => {
    const { writer, pool, ...under } = await openFor(context);
    await send({ writer, ...under }, [person({ user_id: 'u' })], { receivedAt: START });
    await send({ writer, ...under }, [person({ user_id: 'u' })], { receivedAt: START + HOUR_MS });
    await pool.query('UPDATE ledger SET users_stored = users_stored + 2 WHERE hour = $1', [START]);
    await pool.query('UPDATE ledger SET users_stored = users_stored - 3 WHERE hour > $1', [START]);
    assert.deepEqual(await writer.difference(), { users: 5, events: 0 });
  });

  test('a connection that dies in a transaction is an unavailable store, and the next one is another', async (context) => {
    const under = await openFor(context);
    await send(under, [person({ user_id: 'u' })]);
    const transaction = await under.writer.begin();
    await transaction.advance(0, 1, 2);
    const { rowCount } = await under.pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND state = 'idle in transaction'`,
    );
    assert.equal(rowCount, 1);
    const records = [{ ...request([person({ user_id: 'u' })]), partition: 0, position: 1 }];
    await assert.rejects(processBatch(transaction, records, CONTEXT), StoreUnavailableError);
    await assert.rejects(transaction.commit(false), StoreUnavailableError);
    await transaction.rollback();
    await send(under, [person({ user_id: 'u' })]);
    assert.equal((await eventsOf(under)).length, 2);
  });

  test('when the response to COMMIT is lost the store is unavailable, and what was committed counts once', async (context) => {
    const under = await openFor(context);
    const wire = await openWireTo(under.database.url);
    const pool = await under.database.connect({ url: wire.url, max: 2 });
    const writer = openPostgresStoreWriter({ pool, logName: 'test:log' });
    const entry = request([person({ user_id: 'u' })]);
    try {
      const transaction = await writer.begin();
      await transaction.advance(0, 0, 1);
      await processBatch(transaction, [{ ...entry, partition: 0, position: 0 }], CONTEXT);
      const committing = assert.rejects(transaction.commit(false), StoreUnavailableError);
      wire.cut();
      await wire.close();
      await committing;
      await transaction.rollback();
    } finally {
      await writer.close();
    }
    // Whether it happened is unknown; the position says so.
    const position = (await under.writer.processed()).positions.get(0) ?? 0;
    if (position === 0) await feed(under, [entry]);
    assert.equal((await eventsOf(under)).length, 1);
    assert.deepEqual([...(await under.writer.processed()).positions], [[0, 1]]);
  });

  test('what a person knows is folded right also where it is too much to be read at once', async (context) => {
    const under = await openFor(context);
    const long = 'long '.repeat(10_000);
    await send(under, [person({ user_id: 'u' }, [{}], { long, old: 1 }), person({ user_id: 'v' })]);
    await send(under, [person({ user_id: 'u' }, [{}], { new: 2 }), person({ user_id: 'v' }, [{}], { new: 3 })]);
    await send(under, [person({ user_id: 'u' })]);
    const { userProperties, eventCount } = await profileOf(under, 'user_id', 'u');
    assert.deepEqual([...userProperties.keys()], ['long', 'new', 'old']);
    assert.equal(userProperties.get('long')?.value, JSON.stringify(long));
    assert.equal(eventCount, 3);
  });

  test('several batches of one transaction are folded as if they had come in one', async (context) => {
    const under = await openFor(context);
    const transaction = await under.writer.begin();
    await transaction.advance(0, 0, 3);
    const updates = [
      [{ a: 1, b: 1 }, START + 5],
      [{ a: 2 }, START + 9],
      [{ a: 3, c: 3 }, START + 2],
    ] as const;
    for (const [position, [properties, receivedAt]] of updates.entries()) {
      const users = [person({ user_id: 'u' }, [{ $event_id: 'same' }, { revenue: 0.1 }], properties)];
      await processBatch(transaction, [{ ...request(users, { receivedAt }), partition: 0, position }], CONTEXT);
    }
    await transaction.commit(false);
    const { userProperties, eventCount, firstSeen, lastSeen } = await profileOf(under, 'user_id', 'u');
    assert.deepEqual(
      [...userProperties].map(([name, { value }]) => [name, value]),
      [
        ['a', '2'],
        ['b', '1'],
        ['c', '3'],
      ],
    );
    assert.deepEqual([eventCount, firstSeen, lastSeen], [4, START + 2, START + 9]);
    const range = { from: START, to: START + DAY_MS };
    const [hour] = await under.store.counts(TENANT, { interval: 'hour', ...range, byEventName: false });
    assert.deepEqual([hour?.events, hour?.revenue[0]?.revenue], [4, 0.3]);
  });

  test('identifiers and names of the greatest length are stored, whatever characters they are of', async (context) => {
    const under = await openFor(context);
    // Each of these becomes three when it is normalised, of four bytes each.
    const notes = Array.from({ length: 512 }, (_, n) => String.fromCodePoint(0x1d15e + ((n * n * 7) % 7))).join('');
    const rare = Array.from({ length: 512 }, (_, n) => String.fromCodePoint(0x20000 + ((n * 48_271) % 40_000))).join(
      '',
    );
    const letters = Array.from({ length: 512 }, (_, n) => String.fromCodePoint(0x958 + ((n * 31) % 8))).join('');
    for (const value of [notes, rare, letters]) {
      await send(under, [person({ user_id: value, email: value, anon_id: value }, [{ event_name: value }])]);
      const { rows } = (await under.store.events(TENANT, {
        profileId: null,
        eventName: value,
        from: null,
        to: null,
        limit: 5,
        cursor: null,
      })) ?? { rows: [] };
      assert.equal(rows.length, 1);
    }
    assert.equal((await under.store.profiles(TENANT, { limit: 10, cursor: null })).rows.length, 3);
  });

  test('numbers of a transaction that was rolled back are left alone: after a crash others get them', async (context) => {
    const under = await openFor(context);
    const other = openOn(under.pool, 'test:other');
    context.after(() => other.close());
    const transaction = await under.writer.begin();
    await transaction.advance(0, 0, 1);
    const records = [{ ...request([person({ user_id: 'u' })]), partition: 0, position: 0 }];
    await processBatch(transaction, records, CONTEXT);
    await transaction.rollback();
    // What a server remembers that crashed before anything of this was on its disk.
    await under.pool.query(`SELECT setval('numbers', 1, false)`);
    await send(other, [
      person(
        { user_id: 'v' },
        Array.from({ length: 20 }, () => ({})),
      ),
    ]);
    await send(under, [person({ user_id: 'u' }, [{}, {}])]);
    const { rows } = await under.pool.query<{ no: number }>('SELECT DISTINCT no FROM events');
    assert.equal(rows.length, 22);
  });

  test('numbers within a block are consecutive, and a run that does not fit begins the next block', async (context) => {
    const { pool } = await openFor(context);
    const numbers = new StoreNumbers();
    const [first = 0] = await numbers.take(pool, [NUMBERS_PER_BLOCK - 10]);
    const others = await new StoreNumbers().take(pool, [1, 1]);
    assert.deepEqual(others, [first + NUMBERS_PER_BLOCK, first + NUMBERS_PER_BLOCK + 1]);
    const [a = 0, b = 0, c = 0] = await numbers.take(pool, [10, 7, 3]);
    assert.deepEqual([a, b, c], [first + NUMBERS_PER_BLOCK - 10, first + 2 * NUMBERS_PER_BLOCK, b + 7]);
    await assert.rejects(numbers.take(pool, [NUMBERS_PER_BLOCK + 1]), RangeError);
  });
});
