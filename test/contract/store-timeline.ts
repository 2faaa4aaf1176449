/** The contract of the store: events by time, by arrival and in numbers. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { array, assert as assertProperty, asyncProperty, boolean, constantFrom, integer, record } from 'fast-check';
import type { TenantId } from '../../src/model.ts';
import type { CountBucket, CurrencySum, Interval, StoredEvent } from '../../src/store.ts';
import {
  ALL_EVENTS,
  DAY_MS,
  eventsOf,
  feed,
  HOUR_MS,
  MINUTE_MS,
  type OpenStore,
  person,
  profileOf,
  request,
  type StoreUnderTest,
  START,
  send,
  TENANT,
} from './store-feeding.ts';

const at = (time: number): string => new Date(time).toISOString();

export function storeTimelineContract(open: OpenStore): void {
  suite('events', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    test('an event comes back as it was sent, with its request and its person', async () => {
      const trace = await send(
        under,
        [person({ user_id: 'u' }, [{}, { event_name: 'bought', timestamp: at(START - 5), revenue: 9.5, size: [1] }])],
        { receivedAt: START, keyId: 'key_of_shop' },
      );
      const { id: profileId } = await profileOf(under, 'user_id', 'u');
      const common = {
        receivedAt: START,
        profileId,
        traceId: trace,
        userIndex: 0,
        keyId: 'key_of_shop',
        eventValue: null,
      };
      assert.deepEqual(await eventsOf(under), [
        { ...common, id: `${trace}.0.0`, eventName: 'tested', timestamp: START, revenue: null, properties: '{}' },
        {
          ...common,
          id: `${trace}.0.1`,
          eventName: 'bought',
          timestamp: START - 5,
          revenue: '9.5',
          properties: '{"size":[1]}',
        },
      ]);
    });

    test('events of a user that nothing could be matched by have no profile', async () => {
      await send(under, [person({ user_id: 'null' })]);
      assert.deepEqual(
        (await eventsOf(under)).map(({ profileId }) => profileId),
        [null],
      );
    });

    test('the timeline is newest first by the events own time, however they came in', async () => {
      const times = [5, -3, 12, 0, 7, 12, -3, 1].map((days) => START + days * DAY_MS);
      for (const [n, time] of times.entries()) {
        const identifiers = n % 2 === 0 ? { user_id: 'u' } : { anon_id: 'a' };
        await send(under, [person(identifiers, [{ timestamp: at(time) }])]);
      }
      const sorted = times.toSorted((a, b) => b - a);
      assert.deepEqual(
        (await eventsOf(under, { limit: 3 })).map(({ timestamp }) => timestamp),
        sorted,
      );
      await send(under, [person({ user_id: 'u', anon_id: 'a' }, [{ timestamp: at(START) }])]);
      const { id } = await profileOf(under, 'anon_id', 'a');
      const timeline = await eventsOf(under, { profileId: id, limit: 2 });
      assert.deepEqual(
        timeline.map(({ timestamp }) => timestamp),
        [...sorted, START].toSorted((a, b) => b - a),
      );
    });

    test('a range takes its beginning in and leaves its end out', async () => {
      for (let n = 0; n < 10; n++) await send(under, [person({ user_id: 'u' }, [{ timestamp: at(START + n) }])]);
      const { id } = await profileOf(under, 'user_id', 'u');
      for (const profileId of [null, id]) {
        for (const eventName of [null, 'tested']) {
          const query = { profileId, eventName, from: START + 3, to: START + 7, limit: 3 };
          assert.deepEqual(
            (await eventsOf(under, query)).map(({ timestamp }) => timestamp - START),
            [6, 5, 4, 3],
          );
        }
      }
      assert.deepEqual(await eventsOf(under, { from: START + 7, to: START + 7 }), []);
    });

    test('a rare name is found among many others, over years', async () => {
      const rare = [START, START + 1, START - 400 * DAY_MS, START + 90 * DAY_MS, Date.UTC(1969, 6, 20, 20, 17, 40, 5)];
      for (const time of rare) {
        const common = Array.from({ length: 30 }, (_, n) => ({ timestamp: at(time + n * 1_000) }));
        await send(under, [person({ user_id: 'u' }, [...common, { event_name: 'rare', timestamp: at(time) }])]);
      }
      const found = await eventsOf(under, { eventName: 'rare', limit: 2 });
      assert.deepEqual(
        found.map(({ timestamp }) => timestamp),
        rare.toSorted((a, b) => b - a),
      );
      assert.deepEqual(await eventsOf(under, { eventName: 'never' }), []);
      const { id } = await profileOf(under, 'user_id', 'u');
      assert.deepEqual(await eventsOf(under, { eventName: 'rare', profileId: id }), found);
    });

    test('thousands of events of one moment are paged like any others', async () => {
      const events = Array.from({ length: 700 }, () => ({ timestamp: '2026-01-01' }));
      for (let n = 0; n < 3; n++) await send(under, [person({ user_id: `u${n}` }, events)]);
      const ids = (await eventsOf(under, { limit: 190 })).map(({ id }) => id);
      assert.equal(ids.length, 2_100);
      assert.equal(new Set(ids).size, 2_100);
    });

    test('a cursor stays right while data comes in: nothing twice, nothing that was there is missed', async () => {
      const step = record({
        days: array(integer({ min: -3, max: 3 }), { minLength: 1, maxLength: 6 }),
        who: constantFrom({ user_id: 'u' }, { anon_id: 'a' }, { user_id: 'u', anon_id: 'a' }),
      });
      let runs = 0;
      await assertProperty(
        asyncProperty(
          array(step, { minLength: 1, maxLength: 6 }),
          array(step, { maxLength: 6 }),
          integer({ min: 1, max: 4 }),
          boolean(),
          constantFrom(null, 'tested'),
          async (before, during, limit, byProfile, eventName) => {
            // A tenant of its own instead of a store: it sees nothing of the others either, and is there at once.
            runs += 1;
            const tenantId: TenantId = `acct_${runs}/development`;
            const write = ({ days, who }: (typeof before)[number]): Promise<string> =>
              send(
                under,
                [
                  person(
                    who,
                    days.map((day) => ({ timestamp: at(START + day * DAY_MS) })),
                  ),
                ],
                { tenantId },
              );
            for (const one of before) await write(one);
            const [first] = await eventsOf(under, {}, tenantId);
            const query = { eventName, profileId: byProfile ? (first?.profileId ?? null) : null };
            const there = (await eventsOf(under, query, tenantId)).map(({ id }) => id);
            const seen: StoredEvent[] = [];
            const rest = [...during];
            for (let cursor: string | null = null; ; ) {
              const page = await under.store.events(tenantId, { ...ALL_EVENTS, ...query, limit, cursor });
              assert.ok(page && page.rows.length <= limit);
              seen.push(...page.rows);
              if (page.nextCursor === null) break;
              cursor = page.nextCursor;
              const next = rest.shift();
              if (next !== undefined) await write(next);
            }
            const ids = seen.map(({ id }) => id);
            assert.equal(new Set(ids).size, ids.length);
            assert.deepEqual(
              there.filter((id) => !ids.includes(id)),
              [],
            );
            const times = seen.map(({ timestamp }) => timestamp);
            assert.deepEqual(
              times,
              times.toSorted((a, b) => b - a),
            );
          },
        ),
        { numRuns: 15 },
      );
    });

    test('arrivals come in the order of the log, from the end on, each once', async () => {
      await send(under, [person({ user_id: 'before' })]);
      const { events: none, last: start } = await under.store.arrivals(TENANT, null, 10);
      assert.deepEqual(none, []);
      const traces: string[] = [];
      for (let n = 0; n < 9; n++) {
        await send(under, [person({ user_id: 'x' })], { tenantId: 'acct_noise/development' });
        traces.push(await send(under, [person({ user_id: 'u' }, [{ timestamp: at(START - n * DAY_MS) }])]));
      }
      const seen: string[] = [];
      for (let last = start; ; ) {
        const response = await under.store.arrivals(TENANT, last, 4);
        if (response.events.length === 0) break;
        seen.push(...response.events.map(({ traceId }) => traceId));
        last = response.last;
      }
      assert.deepEqual(seen, traces);
      const all = await under.store.arrivals(TENANT, start, 100);
      for (const [index, { cursor }] of all.events.entries()) {
        const rest = await under.store.arrivals(TENANT, cursor, 100);
        assert.deepEqual(rest.events, all.events.slice(index + 1));
      }
    });

    test('counts agree with the events, by every interval, with and without names', async () => {
      const entries = Array.from({ length: 40 }, (_, n) =>
        request([
          person({ user_id: `u${n % 5}` }, [
            { timestamp: at(START + n * 17 * MINUTE_MS), revenue: n / 4, currency: CURRENCIES[n % CURRENCIES.length] },
            { timestamp: at(START + n * 17 * MINUTE_MS), currency: 'EUR' },
            { event_name: `name ${n % 3}`, timestamp: at(START - n * 9 * HOUR_MS) },
            { event_name: 'ancient', timestamp: '1969-12-31T23:59:59.500Z', revenue: -1 },
          ]),
        ]),
      );
      await feed(under, entries);
      const events = await eventsOf(under);
      for (const interval of ['minute', 'hour', 'day'] as const) {
        for (const byEventName of [true, false]) {
          const range = { from: -DAY_MS, to: START + 100 * DAY_MS };
          assert.deepEqual(
            await under.store.counts(TENANT, { interval, byEventName, ...range }),
            countedByHand(events, interval, byEventName),
          );
        }
      }
    });

    test('a range of counts that ends within a bucket takes the bucket in whole', async () => {
      for (const minutes of [0, 30, 59, 60, 119, 120]) {
        await send(under, [person({ user_id: 'u' }, [{ timestamp: at(START + minutes * MINUTE_MS) }])]);
      }
      const range = { from: START + 45 * MINUTE_MS, to: START + 61 * MINUTE_MS };
      const starts = async (interval: Interval, more: object = {}): Promise<number[][]> =>
        (await under.store.counts(TENANT, { interval, ...range, ...more, byEventName: false })).map((bucket) => [
          (bucket.start - START) / MINUTE_MS,
          bucket.events,
        ]);
      assert.deepEqual(await starts('hour'), [
        [0, 3],
        [60, 2],
      ]);
      assert.deepEqual(await starts('hour', { to: START + HOUR_MS }), [[0, 3]]);
      assert.deepEqual(await starts('minute'), [
        [59, 1],
        [60, 1],
      ]);
    });
  });
}

/** What clients may send as `currency`; undefined is left out. */
const CURRENCIES = ['EUR', 'usd', ' Eur ', undefined, null, '', 'Euro', 17, '€', 'eu', 'straße'] as const;
const EXPECTED = ['EUR', 'USD', 'EUR', null, null, null, 'other', 'other', 'other', 'other', 'other'];

function countedByHand(events: readonly StoredEvent[], interval: Interval, byEventName: boolean): CountBucket[] {
  const width = { minute: MINUTE_MS, hour: HOUR_MS, day: DAY_MS }[interval];
  const buckets = new Map<string, CountBucket>();
  for (const { timestamp, eventName, revenue, properties } of events) {
    const start = Math.floor(timestamp / width) * width;
    const name = byEventName ? eventName : null;
    const before = buckets.get(`${start} ${name}`) ?? { start, eventName: name, events: 0, revenue: [] };
    const { currency: given } = JSON.parse(properties) as { currency?: (typeof CURRENCIES)[number] };
    const currency = EXPECTED[CURRENCIES.indexOf(given)] as string | null;
    buckets.set(`${start} ${name}`, {
      ...before,
      events: before.events + 1,
      revenue: revenue === null ? before.revenue : withAmount(before.revenue, currency, Number(revenue)),
    });
  }
  return [...buckets.values()].sort(
    (a, b) => a.start - b.start || ((a.eventName ?? '') < (b.eventName ?? '') ? -1 : 1),
  );
}

function withAmount(sums: readonly CurrencySum[], currency: string | null, amount: number): CurrencySum[] {
  const before = sums.find((sum) => sum.currency === currency) ?? { currency, events: 0, revenue: 0 };
  const revenue = currency === 'other' ? null : (before.revenue ?? 0) + amount;
  const changed = { currency, events: before.events + 1, revenue };
  const place = (sum: CurrencySum): string => sum.currency ?? 'none';
  return [...sums.filter((sum) => sum.currency !== currency), changed].sort((a, b) => (place(a) < place(b) ? -1 : 1));
}
