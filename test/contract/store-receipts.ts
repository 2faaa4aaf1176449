/** The contract of the store: received users by minute, and rejections by reason. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import type { ReceiptMinute, TimeRange } from '../../src/store.ts';
import { processBatch } from '../processor/process-batch.ts';
import {
  ACT,
  DAY_MS,
  feed,
  MINUTE_MS,
  type OpenStore,
  OTHER_TENANT,
  PROCESSED_AT,
  person,
  profileOf,
  request,
  type StoreUnderTest,
  START,
  send,
  sweepAll,
  TENANT,
} from './store-feeding.ts';

const ALL: TimeRange = { from: null, to: null };

export function storeReceiptsContract(open: OpenStore): void {
  suite('receipts', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    const minutesOf = async (range = ALL, tenantId = TENANT): Promise<readonly ReceiptMinute[]> =>
      (await under.store.receipts(tenantId, range)).minutes;
    const minute = (start: number, usersAccepted: number, usersRejected: number, eventsAccepted: number) => ({
      start,
      usersAccepted,
      usersRejected,
      eventsAccepted,
    });

    test('what came in is counted by minute of receipt, oldest first, over transactions', async () => {
      assert.deepEqual(await minutesOf(), []);
      await feed(under, [
        request([person({ user_id: 'u' }, [{ timestamp: '2020-01-01' }, {}]), 7], {
          receivedAt: START + 2 * MINUTE_MS,
        }),
        request([person({ user_id: 'v' })], { receivedAt: START + 1 }),
        request([person({ user_id: 'w' })], { receivedAt: START, tenantId: OTHER_TENANT }),
      ]);
      await send(under, [person({ user_id: 'u' }, [{}, {}, {}])], { receivedAt: START + MINUTE_MS - 1 });
      assert.deepEqual(await minutesOf(), [minute(START, 2, 0, 4), minute(START + 2 * MINUTE_MS, 1, 1, 2)]);
      assert.deepEqual(await minutesOf(ALL, OTHER_TENANT), [minute(START, 1, 0, 1)]);
      assert.deepEqual((await under.store.receipts(TENANT, ALL)).positions, new Map([[0, 4]]));
    });

    test('a minute that has a part in the range is given whole', async () => {
      for (const n of [0, 1, 2, 3]) {
        await send(under, [person({ user_id: 'u' })], { receivedAt: START + n * MINUTE_MS });
      }
      const starts = async (from: number, to: number): Promise<number[]> =>
        (await minutesOf({ from: START + from, to: START + to })).map(({ start }) => (start - START) / MINUTE_MS);
      assert.deepEqual(await starts(MINUTE_MS, 3 * MINUTE_MS), [1, 2]);
      assert.deepEqual(await starts(2 * MINUTE_MS - 1, 3 * MINUTE_MS + 1), [1, 2, 3]);
      assert.deepEqual(await starts(4 * MINUTE_MS, 5 * MINUTE_MS), []);
    });

    test('requests without a valid user, repeated ones and dead letters count as received too', async () => {
      const again = { receivedAt: START, idempotencyKey: 'k' };
      for (let n = 0; n < 2; n++) await send(under, [person({ user_id: 'u' }), 7], again);
      assert.deepEqual(await minutesOf(), [minute(START, 2, 2, 2)]);

      const { body, ...nobody } = request([person({ user_id: 'u' })], { receivedAt: START });
      assert.ok(body.byteLength > 0);
      const rejections = [{ userIndex: 0, message: 'user must be an object' }];
      await feed(under, [{ ...nobody, body: Buffer.from('{"users":[7]}'), userCount: 1, eventCount: 0, rejections }]);
      assert.deepEqual(await minutesOf(), [minute(START, 2, 3, 2)]);

      const transaction = await under.writer.begin();
      const counts = { usersAccepted: 3, usersRejected: 1, eventsAccepted: 5 };
      const { traceId } = request([person({ user_id: 'u' })], { receivedAt: START });
      const letter = { ...nobody, traceId, partition: 3, position: 9 };
      await transaction.deadLetter(
        { ...letter, ...counts, bodyHash: null },
        { ...letter, body },
        'Error: it is broken',
        77,
      );
      await transaction.commit(true);
      assert.deepEqual(await minutesOf(), [minute(START, 5, 4, 7)]);
    });

    test('what was rolled back did not come in', async () => {
      const entry = request([person({ user_id: 'u' })], { receivedAt: START });
      const transaction = await under.writer.begin();
      await processBatch(transaction, [{ ...entry, partition: 0, position: 0 }], {
        options: { defaultCountry: null, junkValues: new Set() },
        now: () => PROCESSED_AT,
        failpoint: () => undefined,
      });
      await transaction.rollback();
      assert.deepEqual(await minutesOf(), []);
      await feed(under, [entry]);
      assert.deepEqual(await minutesOf(), [minute(START, 1, 0, 1)]);
    });

    test('who is erased came in all the same', async () => {
      await send(under, [person({ user_id: 'u' }, [{}, {}])], { receivedAt: START });
      const { id } = await profileOf(under, 'user_id', 'u');
      await under.store.erase(TENANT, id, ACT);
      await send(under, [person({ user_id: 'u' })], { receivedAt: START + 1 });
      assert.deepEqual(await minutesOf(), [minute(START, 2, 0, 3)]);
    });

    test('minutes are kept for seven days, of every tenant, whatever is kept of events', async () => {
      for (const tenantId of [TENANT, OTHER_TENANT]) {
        await send(under, [person({ user_id: 'u' })], { receivedAt: START, tenantId });
        await send(under, [person({ user_id: 'u' })], { receivedAt: START + MINUTE_MS, tenantId });
      }
      await sweepAll(under, { eventsMs: 0 }, START + 7 * DAY_MS);
      assert.equal((await minutesOf()).length, 2);
      await sweepAll(under, {}, START + 7 * DAY_MS + 1);
      for (const tenantId of [TENANT, OTHER_TENANT]) {
        assert.deepEqual(await minutesOf(ALL, tenantId), [minute(START + MINUTE_MS, 1, 0, 1)]);
      }
      await sweepAll(under, {}, START + 8 * DAY_MS);
      assert.deepEqual(await minutesOf(), []);
    });
  });

  suite('reasons of rejections', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    const NO_OBJECT = 'user must be an object';
    const NO_NAME = 'events[].event_name is required and must be a non-empty string';
    const nameless = (before: number): object =>
      person({ user_id: 'x' }, [...Array.from({ length: before }, () => ({})), { event_name: '' }]);

    test('are counted, the most frequent first, each with its newest user', async () => {
      assert.deepEqual(await under.store.rejectionReasons(TENANT, ALL), []);
      const fine = person({ user_id: 'u' });
      await send(under, [fine, 7, 8], { receivedAt: START + 5 });
      const newest = await send(under, [nameless(0), fine, nameless(3), nameless(1)], { receivedAt: START + 9 });
      const oldest = await send(under, [fine, 7, nameless(0)], { receivedAt: START });
      await send(under, [fine, 7], { receivedAt: START + 50, tenantId: OTHER_TENANT });
      assert.deepEqual(
        (await under.store.rejectionReasons(TENANT, ALL)).map(({ reason, users, lastAt }) => [reason, users, lastAt]),
        [
          [NO_NAME, 4, START + 9],
          [NO_OBJECT, 3, START + 5],
        ],
      );
      const [first] = await under.store.rejectionReasons(TENANT, ALL);
      assert.deepEqual(first, {
        reason: NO_NAME,
        users: 4,
        resubmitted: 0,
        lastAt: START + 9,
        traceId: newest,
        userIndex: 3,
      });
      // Of the range alone, its end left out; of as many the newest first, then by name.
      assert.deepEqual(await under.store.rejectionReasons(TENANT, { from: null, to: START + 5 }), [
        { reason: NO_NAME, users: 1, resubmitted: 0, lastAt: START, traceId: oldest, userIndex: 2 },
        { reason: NO_OBJECT, users: 1, resubmitted: 0, lastAt: START, traceId: oldest, userIndex: 1 },
      ]);
      assert.deepEqual(
        (await under.store.rejectionReasons(TENANT, { from: START + 5, to: START + 9 })).map(({ reason }) => reason),
        [NO_OBJECT],
      );
    });

    test('agree with the rejections that are kept, also after some of them went', async () => {
      for (let n = 0; n < 6; n++) {
        await send(under, [person({ user_id: 'u' }), n % 2 === 0 ? 7 : nameless(n)], {
          receivedAt: START + n * DAY_MS,
        });
      }
      await sweepAll(under, { rejectionsMs: 3 * DAY_MS }, START + 5 * DAY_MS);
      for (const { reason, users, traceId, userIndex } of await under.store.rejectionReasons(TENANT, ALL)) {
        const { rows } = await under.store.rejections(TENANT, { reason, ...ALL, limit: 500, cursor: null });
        assert.equal(rows.length, users);
        assert.deepEqual([rows[0]?.traceId, rows[0]?.userIndex], [traceId, userIndex]);
        assert.equal(users, 2);
      }
    });

    test('at most 100 are given', async () => {
      const bad = Array.from({ length: 70 }, (_, n) => person({ user_id: 'x', [`field_${n}`]: n }));
      await send(under, [person({ user_id: 'u' }), ...bad]);
      const more = Array.from({ length: 70 }, (_, n) => person({ user_id: 'x', [`other_${n}`]: n }));
      await send(under, [person({ user_id: 'u' }), ...more]);
      const reasons = await under.store.rejectionReasons(TENANT, ALL);
      assert.equal(reasons.length, 100);
      assert.equal(new Set(reasons.map(({ reason }) => reason)).size, 100);
    });
  });
}
