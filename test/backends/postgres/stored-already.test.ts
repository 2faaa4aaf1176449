/** Copies of records that are stored: written into the log again, or read again after an operator set a position back. */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import { headerOf } from '../../../src/processor/prepare.ts';
import { AlreadyStoredError } from '../../../src/store-writer.ts';
import { DAY_MS, feed, KEEP_ALL, person, PROCESSED_AT, request, TENANT } from '../../contract/store-feeding.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor } from './database.ts';

const ALL_HOURS = { from: null, to: null };

async function storeUnderTest(context: TestContext) {
  const { connect } = await databaseFor(context);
  const writer = openPostgresStoreWriter({ pool: await connect({ max: 2 }), logName: 'test' });
  const store = openPostgresStore({ pool: await connect({ max: 1 }), logName: 'test' });
  context.after(() => Promise.all([writer.close(), store.close()]));
  const totals = async () => {
    const [hour] = (await store.ledger(TENANT, ALL_HOURS)).hours;
    return [hour?.users.received, hour?.users.stored, hour?.users.deadLetters, hour?.users.expired];
  };
  return { writer, store, totals, close: async () => undefined };
}

suite('A record that is stored already', { skip: whyNoPostgres() }, () => {
  test('is not written again, nor the second of two copies in one batch', async (context) => {
    const under = await storeUnderTest(context);
    const [first, second] = [request([person({ user_id: 'ada' })]), request([person({ user_id: 'bob' })])];
    await feed(under, [first]);
    await assert.rejects(feed(under, [second, first]), AlreadyStoredError);
    await assert.rejects(feed(under, [second, second]), AlreadyStoredError);
    assert.deepEqual(await under.totals(), [1, 1, 0, 0]);
    const transaction = await under.writer.begin();
    const headers = [second, first, second].map((entry, position) => headerOf({ ...entry, partition: 0, position }));
    assert.deepEqual(await transaction.findStored(headers), new Set([headers[1], headers[2]]));
    await transaction.rollback();
  });

  test('is no dead letter, and a dead letter is none twice', async (context) => {
    const under = await storeUnderTest(context);
    const [stored, broken] = [request([person({ user_id: 'ada' })]), request([person({ user_id: 'bob' })])];
    await feed(under, [stored]);
    for (const [position, entry] of [stored, broken, broken].entries()) {
      const record = { ...entry, partition: 0, position };
      const transaction = await under.writer.begin();
      await transaction.deadLetter(headerOf(record), record, 'Error: it is broken', PROCESSED_AT);
      await transaction.commit(true);
    }
    assert.deepEqual(
      (await under.store.deadLetters(5)).map(({ traceId }) => traceId),
      [broken.traceId],
    );
    assert.deepEqual(await under.totals(), [2, 1, 1, 0]);
    const another = { ...request([person({ user_id: 'carl' })]), partition: 0, position: 1 };
    const transaction = await under.writer.begin();
    await transaction.deadLetter(headerOf(another), another, 'Error: at a position that was used before', PROCESSED_AT);
    const header = headerOf({ ...broken, partition: 0, position: 9 });
    assert.deepEqual(await transaction.findStored([header]), new Set([header]));
    await transaction.rollback();
  });

  test('is recognised for as long as its day is kept', async (context) => {
    const under = await storeUnderTest(context);
    const entry = request([person({ user_id: 'ada' })]);
    await feed(under, [entry]);
    while (await under.writer.sweep({ ...KEEP_ALL, eventsMs: DAY_MS }, entry.receivedAt + 30 * DAY_MS));
    await feed(under, [entry]);
    assert.deepEqual(await under.totals(), [2, 1, 0, 1]);
  });
});
