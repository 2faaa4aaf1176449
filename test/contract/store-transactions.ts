/** The contract of the store: transactions of several batches, those that are rolled back, and sums of absurd amounts. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { processBatch } from '../processor/process-batch.ts';
import {
  ACT,
  eventsOf,
  HOUR_MS,
  KEEP_ALL,
  type OpenStore,
  person,
  profileOf,
  request,
  type StoreUnderTest,
  START,
  send,
  TENANT,
} from './store-feeding.ts';

export function storeTransactionsContract(open: OpenStore): void {
  suite('transactions and sums', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    test('properties that several batches of one transaction set are folded as if it had come in one', async () => {
      const says = (receivedAt: number, properties: object) =>
        request([person({ user_id: 'u' }, [{}], properties)], { receivedAt });
      const updates = [
        [says(START + 5, { a: 1, b: 1 }), says(START + 9, { a: 2 })],
        [says(START + 2, { a: 3, c: 3 })],
        [says(START + 7, { b: null, d: 4 }), request([person({ user_id: 'u' })], { receivedAt: START + 1 })],
        [says(START + 9_000, { a: 2 })],
      ];
      const transaction = await under.writer.begin();
      for (const [batch, entries] of updates.entries()) {
        const places = entries.keys().map((index) => ({ partition: 0, position: batch * 10 + index }));
        const records = [...places].map((place, index) => Object.assign(place, entries[index]));
        await processBatch(transaction, records, {
          options: { defaultCountry: null, junkValues: new Set() },
          now: () => START,
          failpoint: () => undefined,
        });
      }
      await transaction.commit(false);
      const { userProperties, eventCount, firstSeen, lastSeen } = await profileOf(under, 'user_id', 'u');
      const values = [...userProperties].map(([name, { value, receivedAt }]) => [name, value, receivedAt - START]);
      assert.deepEqual(values, [
        ['a', '2', 9_000],
        ['c', '3', 2],
        ['d', '4', 7],
      ]);
      assert.deepEqual([eventCount, firstSeen - START, lastSeen - START], [6, 1, 9_000]);
    });

    test('a property stays although thousands of others are set and deleted', async () => {
      const named = (round: number, value: unknown) =>
        Object.fromEntries(Array.from({ length: 900 }, (_, index) => [`${round}-${index}`, value]));
      const says = (receivedAt: number, properties: object) =>
        send(under, [person({ user_id: 'u' }, [{}], properties)], { receivedAt });
      await says(START, { plan: 'pro' });
      for (let round = 0; round < 3; round++) {
        await says(START + 2 * round + 1, named(round, round));
        await says(START + 2 * round + 2, named(round, null));
      }
      assert.deepEqual([...(await profileOf(under, 'user_id', 'u')).userProperties.keys()], ['plan']);
      await says(START + 1, { '0-0': 'late', late: true });
      assert.deepEqual([...(await profileOf(under, 'user_id', 'u')).userProperties.keys()], ['late', 'plan']);
    });

    test('records that were noted as lost stay in the ledger, once, and none of a transaction that was rolled back', async () => {
      const lost = { partition: 0, from: 6, to: 13, records: 7, at: START };
      const note = async (noted: typeof lost, isKept: boolean): Promise<void> => {
        const transaction = await under.writer.begin();
        await transaction.noteLost(noted);
        if (isKept) await transaction.commit(false);
        else await transaction.rollback();
      };
      assert.equal(await under.writer.lostRecords(), 0);
      await note({ ...lost, from: 1, to: 3, records: 2 }, false);
      await note(lost, true);
      await note(lost, true);
      await note({ ...lost, partition: 1, at: START + 1 }, true);
      assert.equal(await under.writer.lostRecords(), 14);
      const ledger = await under.store.ledger(TENANT, { from: null, to: null });
      assert.deepEqual(ledger.lost, [lost, { ...lost, partition: 1, at: START + 1 }]);
    });

    test('a field and a property of the same name are two, even where that name is empty', async () => {
      await send(under, [person({ user_id: 'a', '': 'field' })], { receivedAt: START });
      await send(under, [person({ user_id: 'a' }, [{}], { '': 'property' })], { receivedAt: START + 1 });
      const { profileFields, userProperties } = await profileOf(under, 'user_id', 'a');
      assert.deepEqual([profileFields.get('')?.value, userProperties.get('')?.value], ['"field"', '"property"']);
    });

    test('an event id and an Idempotency-Key of a transaction that is rolled back count as not used', async () => {
      const context = {
        options: { defaultCountry: null, junkValues: new Set<string>() },
        now: () => START,
        failpoint: () => undefined,
      };
      const users = [person({ user_id: 'u' }, [{ $event_id: 'e' }, { $event_id: 'f' }])];
      const transaction = await under.writer.begin();
      const entry = request(users, { receivedAt: START, idempotencyKey: 'once' });
      await processBatch(transaction, [{ ...entry, partition: 0, position: 9 }], context);
      await transaction.rollback();
      await send(under, users, { receivedAt: START + 1, idempotencyKey: 'once' });
      assert.equal((await profileOf(under, 'user_id', 'u')).eventCount, 2);
    });

    test('properties set in a transaction that is rolled back are not written by the next one', async () => {
      const options = { options: { defaultCountry: null, junkValues: new Set<string>() }, now: () => START };
      const context = { ...options, failpoint: () => undefined };
      await send(under, [person({ user_id: 'u' }, [{}], { a: 1 })], { receivedAt: START });
      const transaction = await under.writer.begin();
      const entry = request([person({ user_id: 'u' }, [{}, {}], { a: 2 }), person({ user_id: 'v' })]);
      await processBatch(transaction, [{ ...entry, firstUserIndex: 0, partition: 0, position: 9 }], context);
      await transaction.rollback();
      await send(under, [person({ user_id: 'w' })]);
      const { userProperties, eventCount } = await profileOf(under, 'user_id', 'u');
      assert.deepEqual([userProperties.get('a')?.value, eventCount], ['1', 1]);
      assert.equal(await under.store.findProfile(TENANT, 'user_id', 'v'), undefined);
      assert.equal((await eventsOf(under)).length, 2);
    });

    test('sums of absurd amounts over names and hours stay numbers', async () => {
      const amounts = [
        ['2026-02-01T01:00:00Z', 'more', 1e308],
        ['2026-02-01T01:00:00Z', 'most', 1e308],
        ['2026-02-01T02:00:00Z', 'more', 1e308],
        ['2026-02-02T01:00:00Z', 'less', -1e308],
        ['2026-02-02T01:00:00Z', 'least', -1e308],
      ] as const;
      const events = amounts.map(([timestamp, event_name, revenue]) => ({ timestamp, event_name, revenue }));
      await send(under, [person({ user_id: 'u' }, events)]);
      const revenues = async (interval: 'minute' | 'hour' | 'day', byEventName: boolean) => {
        const range = { from: Date.UTC(2026, 1), to: Date.UTC(2026, 1, 3) };
        const buckets = await under.store.counts(TENANT, { interval, ...range, byEventName });
        return buckets.map(({ revenue }) => revenue[0]?.revenue);
      };
      const [most, least] = [Number.MAX_VALUE, -Number.MAX_VALUE];
      assert.deepEqual(await revenues('minute', false), [most, 1e308, least]);
      assert.deepEqual(await revenues('hour', false), [most, 1e308, least]);
      assert.deepEqual(await revenues('day', false), [most, least]);
      assert.deepEqual(await revenues('day', true), [most, 1e308, -1e308, -1e308]);
    });

    test('sums of absurd amounts are after an erase as if the erased had never been', async () => {
      const events = [1e308, 1e308, -1e308, -1e308].map((revenue) => ({ timestamp: '2026-03-01T12:00:30Z', revenue }));
      const counts = () => {
        const range = { from: START - HOUR_MS, to: START + HOUR_MS };
        return under.store.counts(TENANT, { interval: 'minute', ...range, byEventName: true });
      };
      await send(under, [person({ user_id: 'rich' }, events)]);
      const before = await counts();
      await send(under, [person({ user_id: 'gone' }, [...events, ...events.toReversed()])]);
      await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'gone')).id, ACT);
      assert.deepEqual(await counts(), before);
    });

    test('an amount that its opposite had swallowed is there again once both are erased', async () => {
      const timestamp = '2026-03-01T12:00:30Z';
      await send(under, [person({ user_id: 'friend' }, [{ timestamp, revenue: 0.1 }])]);
      const events = [1e17, -1e17].map((revenue) => ({ timestamp, revenue }));
      await send(under, [person({ user_id: 'gone' }, events)]);
      await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'gone')).id, ACT);
      for (const interval of ['minute', 'hour', 'day'] as const) {
        const range = { from: START - HOUR_MS, to: START + HOUR_MS };
        const [bucket] = await under.store.counts(TENANT, { interval, ...range, byEventName: true });
        assert.deepEqual([bucket?.events, bucket?.revenue], [1, [{ currency: null, events: 1, revenue: 0.1 }]]);
      }
    });

    test('sums of many amounts are exact, in one transaction or in several, and after an erase', async () => {
      const range = { from: START - HOUR_MS, to: START + HOUR_MS };
      const sums = async () => {
        const intervals = ['minute', 'hour', 'day'] as const;
        const asked = intervals.map((interval) =>
          under.store.counts(TENANT, { interval, ...range, byEventName: false }),
        );
        const texts = (await Promise.all(asked)).map(([bucket]) => `${bucket?.events}: ${bucket?.revenue[0]?.revenue}`);
        return [...new Set(texts)];
      };
      const sales = (count: number): object[] =>
        Array.from({ length: count }, () => ({ timestamp: '2026-03-01T12:00:30Z', revenue: 0.1 }));
      await send(under, [person({ user_id: 'stays' }, sales(1_503))]);
      await send(under, [person({ user_id: 'stays' }, sales(3)), person({ user_id: 'gone' }, sales(1_500))]);
      assert.deepEqual(await sums(), ['3006: 300.6']);
      await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'gone')).id, ACT);
      assert.deepEqual(await sums(), ['1506: 150.6']);
    });

    test('a sweep works within a transaction of its own and leaves none open', async () => {
      await send(under, [person({ user_id: 'u' })]);
      await under.writer.sweep(KEEP_ALL, START);
      await send(under, [person({ user_id: 'u' })]);
      assert.equal((await eventsOf(under)).length, 2);
    });
  });
}
