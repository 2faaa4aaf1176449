/** The contract of the store: expired data is removed, a piece at a time, and every sum is reduced with it. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { entriesOf, TENANTS } from '../processor/history.ts';
import type { TenantId } from '../../src/model.ts';
import { differenceOf, dumpOf } from '../processor/store-dump.ts';
import {
  allPages,
  DAY_MS,
  eventsOf,
  feed,
  HOUR_MS,
  KEEP_ALL,
  type OpenStore,
  OTHER_TENANT,
  person,
  profileOf,
  type StoreUnderTest,
  START,
  send,
  sweepAll,
  TENANT,
} from './store-feeding.ts';

const ALL = { reason: null, from: null, to: null, limit: 500, cursor: null };

export function storeRetentionContract(open: OpenStore): void {
  suite('retention', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    test('events that were received too long ago go, whatever time they are about', async () => {
      const old = await send(
        under,
        [person({ user_id: 'u' }, [{ timestamp: '2026-06-01', revenue: 5, currency: 'USD' }, {}])],
        {
          receivedAt: START,
        },
      );
      await send(under, [person({ user_id: 'u' }, [{ timestamp: '2020-01-01', revenue: 7, currency: 'EUR' }])], {
        receivedAt: START + 10 * DAY_MS,
      });
      await sweepAll(under, { eventsMs: 5 * DAY_MS }, START + 10 * DAY_MS);
      const events = await eventsOf(under);
      assert.deepEqual(
        events.map(({ timestamp }) => timestamp),
        [Date.UTC(2020, 0)],
      );
      const profile = await profileOf(under, 'user_id', 'u');
      assert.equal(profile.eventCount, 1);
      assert.equal(profile.firstSeen, START);
      const range = { from: 0, to: START + 1_000 * DAY_MS };
      for (const interval of ['minute', 'hour', 'day'] as const) {
        const buckets = await under.store.counts(TENANT, { interval, ...range, byEventName: false });
        assert.deepEqual(
          buckets.map((bucket) => [bucket.events, bucket.revenue]),
          [[1, [{ currency: 'EUR', events: 1, revenue: 7 }]]],
        );
      }
      const { hours } = await under.store.ledger(TENANT, { from: null, to: null });
      assert.deepEqual(
        hours.map(({ users, events: ledger }) => [users.stored, users.expired, ledger.stored, ledger.expired]),
        [
          [1, 0, 1, 0],
          [0, 1, 0, 2],
        ],
      );
      assert.equal((await under.store.trace(TENANT, old))?.users[0]?.events ?? 0, 0);
    });

    test('what comes in after a sweep is stored and counted as ever', async () => {
      await send(under, [person({ user_id: 'u' })], { receivedAt: START });
      await sweepAll(under, { eventsMs: DAY_MS }, START + 9 * DAY_MS);
      assert.deepEqual(await eventsOf(under), []);
      const traceId = await send(under, [person({ user_id: 'u' })], { receivedAt: START + 9 * DAY_MS });
      assert.equal((await profileOf(under, 'user_id', 'u')).eventCount, 1);
      assert.equal((await under.store.trace(TENANT, traceId))?.users[0]?.events, 1);
    });

    test('a sweep with nothing to do says so', async () => {
      await send(under, [person({ user_id: 'u' }), 7]);
      await sweepAll(under, {}, START + DAY_MS);
      assert.equal(await under.writer.sweep(KEEP_ALL, START + DAY_MS), false);
      assert.equal((await eventsOf(under)).length, 1);
    });

    test('a trace that is too old loses what its notes said and keeps what its events say', async () => {
      const old = await send(under, [person({ user_id: 'u' }), 7], { receivedAt: START });
      const young = await send(under, [person({ user_id: 'u' }), 7], { receivedAt: START + 5 * DAY_MS });
      await sweepAll(under, { tracesMs: 2 * DAY_MS }, START + 6 * DAY_MS);
      const trace = await under.store.trace(TENANT, old);
      assert.deepEqual([trace?.usersAccepted, trace?.usersRejected], [1, 1]);
      assert.deepEqual(
        trace?.users.map(({ userIndex, events, message }) => [userIndex, events, message]),
        [[0, 1, null]],
      );
      assert.equal((await under.store.trace(TENANT, young))?.users[1]?.message, 'user must be an object');
    });

    test('rejections go by age, and beyond their bytes the oldest go first', async () => {
      for (let n = 0; n < 10; n++) {
        await send(under, [person({ user_id: 'u' }), { pad: 'x'.repeat(990) }], { receivedAt: START + n * DAY_MS });
      }
      const times = async (): Promise<number[]> =>
        (await under.store.rejections(TENANT, ALL)).rows.map(({ receivedAt }) => (receivedAt - START) / DAY_MS);
      await sweepAll(under, { rejectionsMs: 7 * DAY_MS }, START + 10 * DAY_MS);
      assert.deepEqual(await times(), [9, 8, 7, 6, 5, 4, 3]);
      await sweepAll(under, { rejectionBytesMax: 4_500 }, START + 10 * DAY_MS);
      assert.deepEqual(await times(), [9, 8, 7, 6]);
    });

    test('beyond their bytes, the tenant with the most rejections loses its oldest, the others lose none', async () => {
      const removed: number[] = [];
      for (let n = 0; n < 10; n++) {
        const tenantId = n < 2 ? OTHER_TENANT : TENANT;
        await send(under, [person({ user_id: 'u' }), { pad: 'x'.repeat(990) }], {
          receivedAt: START + n * DAY_MS,
          tenantId,
        });
      }
      const days = async (tenant: TenantId): Promise<number[]> =>
        (await under.store.rejections(tenant, ALL)).rows.map(({ receivedAt }) => (receivedAt - START) / DAY_MS);
      const limit = { rejectionBytesMax: 5_500, onRejectionsOverLimit: (count: number) => removed.push(count) };
      await sweepAll(under, limit, START + 10 * DAY_MS);
      assert.deepEqual(await days(OTHER_TENANT), [1, 0]);
      assert.deepEqual(await days(TENANT), [9, 8, 7]);
      assert.deepEqual(removed, [5]);
    });

    test('an Idempotency-Key and an event id are forgotten after their time and not before', async () => {
      const repeat = async (receivedAt: number): Promise<[number, number]> => {
        const events = [{ $event_id: 'e' }];
        const one = await send(under, [person({ user_id: 'u' })], { receivedAt, idempotencyKey: 'k' });
        const two = await send(under, [person({ user_id: 'u' }, events)], { receivedAt });
        const key = (await under.store.trace(TENANT, one))?.users[0]?.events ?? 0;
        return [key, (await under.store.trace(TENANT, two))?.users[0]?.events ?? 0];
      };
      assert.deepEqual(await repeat(START), [1, 1]);
      for (const [after, expected] of [
        [DAY_MS - HOUR_MS, [0, 0]],
        [2 * DAY_MS, [1, 0]],
        [6 * DAY_MS, [1, 0]],
        [8 * DAY_MS, [1, 1]],
      ] as const) {
        await sweepAll(under, {}, START + after);
        assert.deepEqual(await repeat(START + after), expected);
      }
    });

    test('a part that has much to remove does not keep the others waiting', async () => {
      const about = { receivedAt: START };
      for (let n = 0; n < 12; n++) {
        const events = Array.from({ length: 900 }, (_, index) => ({ $event_id: `${n} ${index}` }));
        await send(under, [person({ user_id: 'u' }, events), 7], about);
      }
      const retention = { ...KEEP_ALL, eventsMs: DAY_MS, rejectionsMs: DAY_MS };
      for (let calls = 0; calls < 5; calls++) {
        assert.equal(await under.writer.sweep(retention, START + 9 * DAY_MS), true);
      }
      assert.deepEqual((await under.store.rejections(TENANT, ALL)).rows, []);
      assert.ok((await profileOf(under, 'user_id', 'u')).eventCount < 12 * 900);
      await sweepAll(under, retention, START + 9 * DAY_MS);
      assert.equal((await profileOf(under, 'user_id', 'u')).eventCount, 0);
    });

    test('rejections beyond their bytes go although something else expires at every call', async () => {
      for (let n = 0; n < 80; n++) {
        const users = [person({ user_id: 'u' }, [{ $event_id: `${n}` }]), { pad: 'x'.repeat(990) }];
        await send(under, users, { receivedAt: START + n * 1_000 });
      }
      for (let n = 0; n < 80; n++) {
        const now = START + n * 1_000 + 7 * DAY_MS + 1;
        const retention = { ...KEEP_ALL, tracesMs: 7 * DAY_MS, rejectionBytesMax: 4_500 };
        assert.equal(await under.writer.sweep(retention, now), true);
      }
      assert.equal((await under.store.rejections(TENANT, ALL)).rows.length, 4);
    });

    test('swept in pieces between the writer’s batches, every sum stays right, whatever the history', async () => {
      const entries = entriesOf(23, 150, 10);
      for (const [n, entry] of entries.entries()) {
        await feed(under, [entry]);
        if (n % 20 !== 0) continue;
        await under.writer.sweep({ ...KEEP_ALL, eventsMs: 12 * HOUR_MS }, entry.receivedAt);
        await dumpOf(under.store, []);
      }
      await sweepAll(under, { eventsMs: 0 }, START + 1_000 * DAY_MS);
      for (const tenantId of TENANTS) {
        assert.deepEqual(await eventsOf(under, {}, tenantId), []);
        const range = { from: -1e14, to: 1e14 };
        assert.deepEqual(await under.store.counts(tenantId, { interval: 'day', ...range, byEventName: true }), []);
        const profiles = await allPages((page) => under.store.profiles(tenantId, page));
        assert.ok(profiles.length > 3);
        for (const { eventCount } of profiles) assert.equal(eventCount, 0);
      }
      const { hours } = await under.store.ledger(null, { from: null, to: null });
      for (const { users, events } of hours) {
        assert.deepEqual([users.stored, events.stored], [0, 0]);
        assert.equal(differenceOf(users) + differenceOf(events), 0);
      }
    });
  });
}
