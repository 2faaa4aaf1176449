/** Jobs where several processors write one store: one of them has a job at a time, and each rejection has one effect. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import { decide, lookupRequestOf } from '../../../src/processor/decide.ts';
import { headerOf, prepareRecord } from '../../../src/processor/prepare.ts';
import { StoreConflictError } from '../../../src/store-writer.ts';
import { feed, person, profileOf, request, START, TENANT } from '../../contract/store-feeding.ts';
import { jobRunner, runJobs } from '../../contract/job-tools.ts';
import { traceIdOf } from '../../processor/history.ts';
import { eventually } from '../../server.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { migratedDatabase } from './database.ts';

const OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };
const FILTER = { reason: null, from: null, to: null };
const PATCH = JSON.stringify([{ op: 'replace', path: '/identifiers/user_id', value: 'ada' }]);

suite('Jobs on PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('with two processors, and one that is cut off in the middle, have each effect once', async (context) => {
    const pool = await (await migratedDatabase()).connect({ max: 12 });
    const store = openPostgresStore({ pool, logName: 'test:log' });
    const writers = Array.from({ length: 3 }, () =>
      openPostgresStoreWriter({ pool: pool.share(), logName: 'test:log' }),
    );
    const [first] = writers;
    assert.ok(first);
    context.after(async () => {
      for (const writer of writers) await writer.close();
      await store.close();
    });
    const under = { writer: first, store, close: () => Promise.resolve() };
    const rejected = Array.from({ length: 90 }, (_, n) => ({
      identifiers: { user_id: n },
      events: [{ event_name: 'x' }],
    }));
    for (let n = 0; n < 3; n++) await feed(under, [request([person({ user_id: 'other' }), ...rejected])]);

    // Twice at once from two places: of the same user, and of all.
    const one = {
      traceId: traceIdOf(START, 0),
      userIndex: 1,
      user: JSON.stringify(person({ user_id: 'one' })),
      steps: [],
    };
    const [row] = (await store.rejections(TENANT, { ...FILTER, limit: 1, cursor: null })).rows;
    const fixed = { ...one, traceId: row?.traceId ?? '', userIndex: row?.userIndex ?? 0 };
    const act = (n: number) => ({ traceId: traceIdOf(START, 1_000 + n), at: START + 86_400_000 });
    const both = await Promise.all([1, 2].map((n) => store.resubmitUser(TENANT, fixed, act(n))));
    assert.deepEqual(both.map((job) => (typeof job === 'object' ? 'job' : job)).sort(), ['already', 'job']);
    await Promise.all([3, 4].map((n) => store.resubmitAll(TENANT, { filter: FILTER, patch: PATCH }, act(n))));

    // It holds a job, and what it wrote is rolled back.
    const lost = await writers[2]?.begin();
    const held = await lost?.takeJob(50);
    assert.ok(held && lost);
    await lost.markResubmitted(
      held.items.map(({ no }) => no),
      START,
    );
    const running = writers.slice(0, 2).map((writer) => jobRunner({ writer }));
    for (let n = 0; n < 3; n++) await Promise.all(running.map((runner) => runner.step(true)));
    await lost.rollback();
    await Promise.all(writers.slice(0, 2).map((writer) => runJobs({ writer })));

    assert.equal((await profileOf(under, 'user_id', 'one')).eventCount, 1);
    assert.equal((await profileOf(under, 'user_id', 'ada')).eventCount, 269);
    assert.equal(await store.countRejections(TENANT, FILTER), 0);
    const { rows } = await store.jobs(TENANT, { limit: 9, cursor: null });
    assert.deepEqual(
      rows.map(({ status }) => status),
      ['done', 'done', 'done'],
    );
    assert.equal(
      rows.reduce((sum, { counts }) => sum + counts.resubmitted, 0),
      270,
    );
    assert.deepEqual(await first.difference(), { users: 0, events: 0 });
  });

  test('a retry that would store a user who is resubmitted at the same moment is processed again', async (context) => {
    const pool = await (await migratedDatabase()).connect({ max: 6 });
    const store = openPostgresStore({ pool, logName: 'test:log' });
    const writer = openPostgresStoreWriter({ pool: pool.share(), logName: 'test:log' });
    context.after(async () => {
      await writer.close();
      await store.close();
    });
    const under = { writer, store, close: () => Promise.resolve() };
    const ada = person({ user_id: 'ada' });
    const retry = request([ada], { idempotencyKey: 'once' });
    const rejections = [{ userIndex: 0, message: 'not in the plan' }];
    const first = { ...request([ada], { idempotencyKey: 'once' }), eventCount: 0, rejections };
    await feed(under, [first]);

    const racing = await writer.begin();
    const prepared = [prepareRecord({ ...retry, partition: 0, position: 1 }, OPTIONS)];
    const [result] = await racing.lookUp([lookupRequestOf(TENANT, prepared)]);
    assert.ok(result);
    const at = START + 86_400_000;
    const fixed = { traceId: first.traceId, userIndex: 0, user: JSON.stringify(ada), steps: [] };
    await store.resubmitUser(TENANT, fixed, { traceId: traceIdOf(at, 1), at });
    await assert.rejects(racing.write([decide(TENANT, result, prepared)], at), StoreConflictError);
    await racing.rollback();
    await feed(under, [retry]);
    await runJobs(under);
    assert.equal((await profileOf(under, 'user_id', 'ada')).eventCount, 1);
  });

  test('an erase waits for the job that retries a dead letter of the person', async (context) => {
    const pool = await (await migratedDatabase()).connect({ max: 6 });
    const store = openPostgresStore({ pool, logName: 'test:log' });
    const writer = openPostgresStoreWriter({ pool: pool.share(), logName: 'test:log' });
    context.after(async () => {
      await writer.close();
      await store.close();
    });
    const under = { writer, store, close: () => Promise.resolve() };
    await feed(under, [request([person({ user_id: 'gone' })], { receivedAt: START })]);
    const users = [person({ user_id: 'stays' }), person({ user_id: 'gone' })];
    const record = { ...request(users, { receivedAt: START + 1 }), partition: 3, position: 1 };
    const failing = await writer.begin();
    await failing.deadLetter(headerOf(record), record, 'Error: broken', START + 2);
    await failing.commit(true);
    const at = START + 86_400_000;
    await store.retryDeadLetters(TENANT, { cause: null, from: null, to: null }, { traceId: traceIdOf(at, 1), at });

    const taking = await writer.begin();
    assert.equal((await taking.takeJob(1))?.items.length, 1);
    const { id } = await profileOf(under, 'user_id', 'gone');
    let isErased = false;
    const erasing = store.erase(TENANT, id, { traceId: traceIdOf(at, 2), at }).then(() => {
      isErased = true;
    });
    await eventually('the erase waits, or is done', async () => {
      const { rows } = await pool.query(WAITING);
      return isErased || rows.length > 0 || undefined;
    });
    const hasWaited = !isErased;
    await taking.rollback();
    await erasing;
    assert.ok(hasWaited);
    await runJobs(under);
    assert.equal(await store.findProfile(TENANT, 'user_id', 'gone'), undefined);
    assert.equal((await profileOf(under, 'user_id', 'stays')).eventCount, 1);
    assert.deepEqual(await writer.difference(), { users: 0, events: 0 });
  });
});

const WAITING = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
