/** The contract of the store: no tenant sees, finds or changes anything of another one. */

import assert from 'node:assert/strict';
import { OLDEST } from '../../src/views/cursor.ts';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { dumpOf } from '../processor/store-dump.ts';
import {
  ACT,
  ALL_EVENTS,
  eventsOf,
  HOUR_MS,
  type OpenStore,
  OTHER_TENANT,
  person,
  profileOf,
  type StoreUnderTest,
  START,
  send,
  TENANT,
} from './store-feeding.ts';

const PAGE = { limit: 50, cursor: null };
const STRANGERS = [OTHER_TENANT, 'acct_unknown/production', ''];

export function storeTenantsContract(open: OpenStore): void {
  suite('tenants', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    test('every method with another tenant’s ids gives nothing and changes nothing', async () => {
      await send(under, [person({ anon_id: 'a' })]);
      await send(under, [person({ user_id: 'u' })]);
      const traceId = await send(under, [person({ user_id: 'u', anon_id: 'a' }), 7]);
      await send(under, [person({ user_id: 'stranger' })], { tenantId: OTHER_TENANT });
      const { id, mergedIds } = await profileOf(under, 'user_id', 'u');
      const { store } = under;
      await send(under, [person({ user_id: 'u' })]);
      const before = await dumpOf(store, [traceId]);

      for (const stranger of STRANGERS) {
        const isOther = stranger === OTHER_TENANT;
        assert.equal(await store.findProfile(stranger, 'user_id', 'u'), undefined);
        for (const own of [id, ...mergedIds]) {
          assert.equal(await store.profile(stranger, own), undefined);
          assert.equal(await store.identity(stranger, own), undefined);
          assert.equal(await store.events(stranger, { ...ALL_EVENTS, profileId: own }), undefined);
          assert.equal(await store.unmerge(stranger, own, traceId, ACT), undefined);
          assert.equal(await store.erase(stranger, own, ACT), false);
        }
        assert.equal((await store.profiles(stranger, PAGE)).rows.length, isOther ? 1 : 0);
        const everyone = { ...PAGE, text: null, exact: [], property: null, budgetMs: 1_000 };
        assert.equal((await store.searchPeople(stranger, everyone)).rows.length, isOther ? 1 : 0);
        const exact = [{ type: 'user_id' as const, normalised: 'u' }];
        assert.deepEqual((await store.searchPeople(stranger, { ...everyone, text: 'u', exact })).rows, []);
        assert.deepEqual((await store.searchPeople(stranger, { ...everyone, text: id })).rows, []);
        assert.equal((await store.people(stranger, [id, ...mergedIds])).size, 0);
        assert.equal((await store.traces(stranger, { ...PAGE, status: null })).rows.length, isOther ? 1 : 0);
        for (const eventName of [null, 'tested']) {
          assert.equal((await eventsOf(under, { eventName }, stranger)).length, isOther ? 1 : 0);
        }
        assert.equal((await store.arrivals(stranger, OLDEST, 10)).events.length, isOther ? 1 : 0);
        const range = { from: START - HOUR_MS, to: START + HOUR_MS, byEventName: false };
        const buckets = await store.counts(stranger, { interval: 'hour', ...range });
        assert.deepEqual(
          buckets.map(({ events }) => events),
          isOther ? [1] : [],
        );
        assert.equal(await store.trace(stranger, traceId), undefined);
        const all = { reason: null, from: null, to: null, ...PAGE };
        assert.deepEqual((await store.rejections(stranger, all)).rows, []);
        assert.deepEqual(await store.rejectionReasons(stranger, { from: null, to: null }), []);
        const { minutes } = await store.receipts(stranger, { from: null, to: null });
        assert.equal(
          minutes.reduce((sum, { usersAccepted }) => sum + usersAccepted, 0),
          isOther ? 1 : 0,
        );
        assert.deepEqual((await store.audit(stranger, PAGE)).rows, []);
        const { hours } = await store.ledger(stranger, { from: null, to: null });
        assert.deepEqual(
          hours.map(({ users }) => users.received),
          isOther ? [1] : [],
        );
      }
      assert.deepEqual(await dumpOf(store, [traceId]), before);
    });

    test('the same identifiers are other people in another tenant, and erasing one leaves the other', async () => {
      const identifiers = { user_id: 'u', email: 'x@y.z' };
      for (const tenantId of [TENANT, OTHER_TENANT]) await send(under, [person(identifiers), 7], { tenantId });
      const one = await profileOf(under, 'user_id', 'u');
      const other = await under.store.findProfile(OTHER_TENANT, 'user_id', 'u');
      assert.ok(other);
      assert.notEqual(one.id, other.id);
      await under.store.erase(TENANT, one.id, ACT);
      assert.deepEqual(await under.store.findProfile(OTHER_TENANT, 'email', 'x@y.z'), other);
      // Its tombstones are not those of the other tenant either.
      await send(under, [person(identifiers)], { tenantId: OTHER_TENANT, receivedAt: START });
      assert.equal((await under.store.profile(OTHER_TENANT, other.id))?.eventCount, 2);
      for (const query of [PAGE, { ...PAGE, traceId: ACT.traceId }]) {
        assert.deepEqual((await under.store.audit(OTHER_TENANT, query)).rows, []);
        assert.equal((await under.store.audit(TENANT, query)).rows.length, 1);
      }
    });
  });
}
