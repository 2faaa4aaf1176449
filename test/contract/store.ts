/**
 * What every backend of the store must do: data that the processor wrote through `StoreWriter` is read back through
 * `Store`. A backend's test calls `storeContract` with a way to open it. This file covers reading; unmerge and erase,
 * retention and the separation of tenants are in files beside it.
 */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { BadCursorError } from '../../src/store.ts';
import { differenceOf, dumpOf } from '../processor/store-dump.ts';
import { entriesOf, traceIdOf } from '../processor/history.ts';
import { storeUnmergeAndEraseContract } from './store-unmerge-erase.ts';
import { storeArrivalsContract } from './store-arrivals.ts';
import {
  ALL_EVENTS,
  allPages,
  DAY_MS,
  eventsOf,
  feed,
  type OpenStore,
  OTHER_TENANT,
  PROCESSED_AT,
  person,
  profileOf,
  request,
  type StoreUnderTest,
  START,
  send,
  TENANT,
} from './store-feeding.ts';
import { storeCatalogueContract } from './store-catalogue.ts';
import { storeDeadLettersContract } from './store-dead-letters.ts';
import { storeJobsContract } from './store-jobs.ts';
import { storeRetriesContract } from './store-retries.ts';
import { storePeopleContract } from './store-people.ts';
import { storePlanViolationsContract } from './store-plan-violations.ts';
import { storePredictionsContract } from './store-predictions.ts';
import { storeReceiptsContract } from './store-receipts.ts';
import { storeRetentionContract } from './store-retention.ts';
import { storeTenantsContract } from './store-tenants.ts';
import { storeTimelineContract } from './store-timeline.ts';
import { storeTracesContract } from './store-traces.ts';
import { storeTransactionsContract } from './store-transactions.ts';

export function storeContract(name: string, open: OpenStore): void {
  suite(`The store on ${name}`, () => {
    storePeopleAndEventsContract(open);
    storeReceiptsContract(open);
    storeCatalogueContract(open);
    storePlanViolationsContract(open);
    storeTenantsContract(open);
    storeJobsContract(open);
    storeDeadLettersContract(open);
    storeRetriesContract(open);
  });
}

/** What depends on how a backend lays out people and events, for a backend that has several ways. */
export function storeLayoutContract(name: string, open: OpenStore): void {
  suite(`People and events on ${name}`, () => storePeopleAndEventsContract(open));
}

function storePeopleAndEventsContract(open: OpenStore): void {
  storeProfilesContract(open);
  storePeopleContract(open);
  storeTimelineContract(open);
  storeArrivalsContract(open);
  storeTracesContract(open);
  storePredictionsContract(open);
  storeUnmergeAndEraseContract(open);
  storeRetentionContract(open);
  storeTransactionsContract(open);
}

function storeProfilesContract(open: OpenStore): void {
  suite('profiles', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    test('a profile is found by each of its identifiers and by its id', async () => {
      const identifiers = { user_id: 'u1', email: 'Ada@Example.com', phone_number: '+49 30 901820', anon_id: 'a1' };
      await send(under, [person(identifiers)]);
      const profile = await profileOf(under, 'user_id', 'u1');
      assert.deepEqual(await profileOf(under, 'email', 'ada@example.com'), profile);
      assert.deepEqual(await profileOf(under, 'phone_number', '+4930901820'), profile);
      assert.deepEqual(await profileOf(under, 'anon_id', 'a1'), profile);
      assert.deepEqual(await under.store.profile(TENANT, profile.id), profile);
      assert.deepEqual(await under.store.profile(TENANT, profile.id.toUpperCase()), profile);
      assert.deepEqual(profile.identifiers, {
        user_id: ['u1'],
        email: ['Ada@Example.com'],
        phone_number: ['+49 30 901820'],
        anon_id: ['a1'],
      });
      assert.equal(await under.store.findProfile(TENANT, 'user_id', 'U1'), undefined);
      assert.equal(await under.store.findProfile(TENANT, 'email', 'u1'), undefined);
    });

    test('first_seen, last_seen and event_count are those of all its nodes', async () => {
      await send(under, [person({ anon_id: 'a' }, [{}, {}])], { receivedAt: START });
      await send(under, [person({ user_id: 'u' }, [{}])], { receivedAt: START + 5_000 });
      await send(under, [person({ user_id: 'u', anon_id: 'a' }, [{}, {}, {}])], { receivedAt: START + 2_000 });
      const profile = await profileOf(under, 'user_id', 'u');
      assert.equal(profile.firstSeen, START);
      assert.equal(profile.lastSeen, START + 5_000);
      assert.equal(profile.eventCount, 6);
      assert.equal((await eventsOf(under, { profileId: profile.id })).length, 6);
    });

    test('the id of a node that was merged away finds the surviving profile', async () => {
      await send(under, [person({ anon_id: 'a' })], { receivedAt: START });
      await send(under, [person({ user_id: 'u' })], { receivedAt: START + 1 });
      const merged = await profileOf(under, 'user_id', 'u');
      const survivor = await profileOf(under, 'anon_id', 'a');
      await send(under, [person({ user_id: 'u', anon_id: 'a' })], { receivedAt: START + 2 });
      const profile = await under.store.profile(TENANT, merged.id);
      assert.equal(profile?.id, survivor.id);
      assert.deepEqual(profile.mergedIds, [merged.id]);
      assert.deepEqual(await under.store.profile(TENANT, survivor.id), profile);
      const timeline = await eventsOf(under, { profileId: merged.id });
      assert.deepEqual(
        timeline.map(({ profileId }) => profileId),
        [survivor.id, survivor.id, survivor.id],
      );
    });

    test('properties and fields are the newest of all nodes, with the request that set them (rules 11 to 13)', async () => {
      const first = await send(
        under,
        [person({ anon_id: 'a', first_name: 'Ada' }, [{}], { plan: 'free', left: 1, gone: 'x' })],
        { receivedAt: START },
      );
      await send(under, [person({ user_id: 'u' }, [{}], { plan: 'pro', gone: 'y' })], { receivedAt: START + 10 });
      const last = await send(under, [person({ user_id: 'u', anon_id: 'a' }, [{}], { gone: null, plan: 'max' })], {
        receivedAt: START + 20,
      });
      const { userProperties, profileFields } = await profileOf(under, 'user_id', 'u');
      assert.deepEqual(
        [...userProperties],
        [
          ['left', { value: '1', traceId: first, receivedAt: START }],
          ['plan', { value: '"max"', traceId: last, receivedAt: START + 20 }],
        ],
      );
      assert.deepEqual([...profileFields], [['first_name', { value: '"Ada"', traceId: first, receivedAt: START }]]);
    });

    test('numbers keep their digits and __proto__ is a name like any other', async () => {
      const digits = '12345678901234567890';
      const json = `{"identifiers":{"user_id":"u"},"user_properties":{"__proto__":{"deep":${digits}},"constructor":0.10000000000000000001},
        "events":[{"event_name":"tested","revenue":${digits},"event_value":-1.5,"__proto__":${digits}}]}`;
      const entry = request([person({ user_id: 'u' })]);
      await feed(under, [{ ...entry, body: Buffer.from(`{"users":[${json}]}`) }]);
      const { userProperties } = await profileOf(under, 'user_id', 'u');
      assert.deepEqual(
        [...userProperties].map(([name, { value }]) => [name, value]),
        [
          ['__proto__', `{"deep":${digits}}`],
          ['constructor', '0.10000000000000000001'],
        ],
      );
      const [event] = await eventsOf(under);
      assert.equal(event?.revenue, digits);
      assert.equal(event.eventValue, '-1.5');
      assert.equal(event.properties, `{"__proto__":${digits}}`);
    });

    test('a property name that JSON writes with an escape is not taken for another', async () => {
      // The name of the second begins, as it is written, with that of the first.
      for (const [user_id, name] of [
        ['first', '\\n'],
        ['second', '\nb'],
      ] as const) {
        const values = { a: 1, [name]: { a: 1, [name]: 2 } };
        // Twice, so that what is known is read back to be folded.
        for (const plan of ['free', 'pro']) {
          const rejected = { identifiers: { user_id }, ...values };
          await send(under, [person({ user_id }, [values], { ...values, plan }), rejected]);
        }
        const { userProperties, id } = await profileOf(under, 'user_id', user_id);
        const text = JSON.stringify(values[name]);
        assert.deepEqual(
          new Map([...userProperties].map(([key, { value }]) => [key, value])),
          new Map([
            ['a', '1'],
            [name, text],
            ['plan', '"pro"'],
          ]),
        );
        const events = await eventsOf(under, { profileId: id });
        assert.deepEqual(
          events.map(({ properties }) => properties),
          [JSON.stringify(values), JSON.stringify(values)],
        );
        const { rows } = await under.store.rejections(TENANT, {
          reason: null,
          from: null,
          to: null,
          limit: 1,
          cursor: null,
        });
        assert.equal(rows[0]?.payload, JSON.stringify({ identifiers: { user_id }, ...values }));
      }
    });

    test('why it is one person: links, merges and counted refusals with their requests, oldest first (rule 15)', async () => {
      const [one, two] = [START, START + 10];
      const first = await send(under, [person({ anon_id: 'a' })], { receivedAt: one });
      const second = await send(under, [person({ email: 'Ada@x.org' })], { receivedAt: two });
      const third = await send(under, [person({ user_id: 'u', email: 'ada@x.org', anon_id: 'a' })], {
        receivedAt: START + 20,
      });
      await send(under, [person({ user_id: 'v' })], { receivedAt: START + 30 });
      const refused = await send(under, [person({ user_id: 'v', anon_id: 'a' })], { receivedAt: START + 40 });
      await send(under, [person({ user_id: 'v', anon_id: 'a' })], { receivedAt: START + 50 });

      const profile = await profileOf(under, 'user_id', 'u');
      const identity = await under.store.identity(TENANT, profile.id);
      assert.ok(identity);
      assert.deepEqual(
        identity.identifiers.map(({ type, value, normalised, traceId, at }) => [type, value, normalised, traceId, at]),
        [
          ['anon_id', 'a', 'a', first, one],
          ['email', 'Ada@x.org', 'ada@x.org', second, two],
          ['user_id', 'u', 'u', third, START + 20],
        ],
      );
      assert.equal(identity.merges.length, 1);
      const [merge] = identity.merges;
      assert.equal(merge?.into, profile.id);
      assert.equal(merge.from, profile.mergedIds[0]);
      assert.deepEqual([merge.traceId, merge.userIndex, merge.at], [third, 0, START + 20]);
      assert.deepEqual(merge.nodes.toSorted(), [profile.id, ...profile.mergedIds].toSorted());
      assert.deepEqual(identity.refusals, []);

      const other = await profileOf(under, 'user_id', 'v');
      const refusals = (await under.store.identity(TENANT, other.id))?.refusals;
      assert.deepEqual(refusals, [
        {
          type: 'anon_id',
          value: 'a',
          reason: 'other_user_id',
          traceId: refused,
          userIndex: 0,
          at: START + 40,
          lastAt: START + 50,
          count: 2,
        },
      ]);
    });

    test('profiles are listed oldest first, each once, page by page', async () => {
      for (let n = 0; n < 7; n++) await send(under, [person({ user_id: `u${n}` }), person({ anon_id: `a${n}` })]);
      await send(under, [person({ user_id: 'u3', anon_id: 'a1' })]);
      const ids = await allPages((page) => under.store.profiles(TENANT, { ...page, limit: 4 }));
      assert.equal(ids.length, 13);
      assert.equal(new Set(ids.map(({ id }) => id)).size, 13);
      const seen = ids.map(({ firstSeen }) => firstSeen);
      assert.deepEqual(
        seen,
        seen.toSorted((a, b) => a - b),
      );
    });

    test('profiles are counted: those who are merged as one, those of other tenants not at all', async () => {
      assert.equal(await under.store.profileCount(TENANT), 0);
      await send(under, [person({ user_id: 'u' }), person({ anon_id: 'a' }), person({ email: 'x@y.z' }), 17]);
      assert.equal(await under.store.profileCount(TENANT), 3);
      await send(under, [person({ user_id: 'u', anon_id: 'a' }), person({ user_id: 'u' })]);
      assert.equal(await under.store.profileCount(TENANT), 2);
      await send(under, [person({ user_id: 'u', email: 'x@y.z' })]);
      await send(under, [person({ user_id: 'v' })], { tenantId: OTHER_TENANT });
      assert.equal(await under.store.profileCount(TENANT), 1);
      assert.equal(await under.store.profileCount(OTHER_TENANT), 1);
    });

    test('ids that are none are unknown, and never an error', async () => {
      const trace = await send(under, [person({ user_id: 'u' })]);
      const act = { traceId: trace, at: PROCESSED_AT };
      for (const id of ['', 'x', "' OR 1=1 --", '%00', 'ü'.repeat(10_000), trace, `${trace}0`, '0'.repeat(32)]) {
        assert.equal(await under.store.profile(TENANT, id), undefined);
        assert.equal(await under.store.identity(TENANT, id), undefined);
        assert.equal(await under.store.events(TENANT, { ...ALL_EVENTS, profileId: id }), undefined);
        assert.equal(await under.store.unmerge(TENANT, id, id, act), undefined);
        assert.equal(await under.store.erase(TENANT, id, act), false);
        if (id !== trace) assert.equal(await under.store.trace(TENANT, id), undefined);
      }
      assert.deepEqual(await under.store.tenants(), [TENANT]);
      assert.equal((await eventsOf(under)).length, 1);
    });

    test('a cursor of another list, or none of ours, is refused by name', async () => {
      for (let n = 0; n < 3; n++) await send(under, [person({ user_id: `u${n}` }, [{}, {}]), 7]);
      const page = { limit: 1, cursor: null };
      const events = await under.store.events(TENANT, { ...ALL_EVENTS, limit: 1 });
      const profiles = await under.store.profiles(TENANT, page);
      const all = { reason: null, from: null, to: null };
      const rejections = await under.store.rejections(TENANT, { ...all, ...page });
      const arrivals = await under.store.arrivals(TENANT, null, 1);
      const good = [events?.nextCursor, profiles.nextCursor, rejections.nextCursor, arrivals.last];
      assert.equal(new Set(good).size, 4);
      for (const cursor of ['', 'x', '!!', 'e30', `${events?.nextCursor}=`, `${events?.nextCursor}-`, ...good]) {
        assert.ok(typeof cursor === 'string');
        const refusals = [
          [good[0], () => under.store.events(TENANT, { ...ALL_EVENTS, cursor })],
          [good[1], () => under.store.profiles(TENANT, { limit: 1, cursor })],
          [good[2], () => under.store.rejections(TENANT, { ...all, limit: 1, cursor })],
          [good[3], () => under.store.arrivals(TENANT, cursor, 1)],
          ['none', () => under.store.audit(TENANT, { limit: 1, cursor })],
        ] as const;
        for (const [own, ask] of refusals) {
          if (cursor === own) await ask();
          else await assert.rejects(ask, BadCursorError);
        }
      }
    });

    test('a cursor of another tenant, or of a list with other filters, is refused', async () => {
      const { store } = under;
      for (let n = 0; n < 3; n++) {
        for (const tenantId of [TENANT, OTHER_TENANT]) {
          await send(under, [person({ user_id: `u${n}` }, [{}, {}]), 7], { tenantId });
        }
      }
      const { id: profileId } = await profileOf(under, 'user_id', 'u1');
      const traceId = traceIdOf(START, 1);
      for (const user of ['u0', 'u2']) {
        const { id } = await profileOf(under, 'user_id', user);
        assert.ok(await store.erase(TENANT, id, { traceId, at: START }));
      }
      const page = { limit: 1, cursor: null };
      const all = { reason: null, from: null, to: null };
      const events = (await store.events(TENANT, { ...ALL_EVENTS, limit: 1 }))?.nextCursor ?? '';
      const timeline = (await store.events(TENANT, { ...ALL_EVENTS, limit: 1, profileId }))?.nextCursor ?? '';
      const profiles = (await store.profiles(OTHER_TENANT, page)).nextCursor ?? '';
      const rejections = (await store.rejections(TENANT, { ...all, ...page })).nextCursor ?? '';
      const audit = (await store.audit(TENANT, page)).nextCursor ?? '';
      for (const cursor of [events, timeline, profiles, rejections, audit]) assert.notEqual(cursor, '');
      for (const ask of [
        () => store.events(OTHER_TENANT, { ...ALL_EVENTS, cursor: events }),
        () => store.events(TENANT, { ...ALL_EVENTS, cursor: timeline }),
        () => store.events(TENANT, { ...ALL_EVENTS, profileId, cursor: events }),
        () => store.events(TENANT, { ...ALL_EVENTS, eventName: 'tested', cursor: events }),
        () => store.profiles(TENANT, { limit: 1, cursor: profiles }),
        () => store.rejections(OTHER_TENANT, { ...all, limit: 1, cursor: rejections }),
        () => store.rejections(TENANT, { ...all, reason: 'user must be an object', limit: 1, cursor: rejections }),
        () => store.audit(TENANT, { limit: 1, cursor: audit, traceId }),
      ]) {
        await assert.rejects(ask, BadCursorError);
      }
      // A narrower time is another page of the same list.
      assert.ok(await store.events(TENANT, { ...ALL_EVENTS, from: START - DAY_MS, to: null, cursor: events }));
    });

    test('whatever the history: each event once, sums agree, every event is accounted for', async () => {
      const entries = entriesOf(7, 200);
      for (let start = 0; start < entries.length; start += 25) await feed(under, entries.slice(start, start + 25));
      const lines = await dumpOf(
        under.store,
        entries.map(({ traceId }) => traceId),
      );
      assert.ok(lines.length > 500);
      for (const tenantId of await under.store.tenants()) {
        const events = await eventsOf(under, {}, tenantId);
        const profiles = await allPages((page) => under.store.profiles(tenantId, page));
        assert.equal(await under.store.profileCount(tenantId), profiles.length);
        for (const { id, eventCount } of profiles) {
          assert.equal(events.filter(({ profileId }) => profileId === id).length, eventCount);
          assert.equal((await eventsOf(under, { profileId: id }, tenantId)).length, eventCount);
        }
      }
    });

    test('the ledger has what was received and what became of it, and up to where it covers the log', async () => {
      const users = [person({ user_id: 'u' }, [{ $event_id: 'e1' }, {}]), 17, person({ user_id: 'v' })];
      await send(under, users, { receivedAt: START });
      await send(under, [person({ user_id: 'u' }, [{ $event_id: 'e1' }])], { receivedAt: START + 1 });
      await send(under, [person({ user_id: 'w' })], { receivedAt: START + 2 * DAY_MS, idempotencyKey: 'k' });
      await send(under, [person({ user_id: 'w' })], { receivedAt: START + 2 * DAY_MS, idempotencyKey: 'k' });
      const { hours, positions } = await under.store.ledger(TENANT, { from: null, to: null });
      assert.deepEqual([...positions], [[0, 4]]);
      assert.deepEqual(
        hours.map(({ hour, users: { received, stored, duplicates }, events, usersRejected }) => [
          [hour, usersRejected],
          [received, stored, duplicates],
          [events.received, events.stored, events.duplicates],
        ]),
        [
          [
            [START + 2 * DAY_MS, 0],
            [2, 1, 1],
            [2, 1, 1],
          ],
          [
            [START, 1],
            [3, 2, 1],
            [4, 3, 1],
          ],
        ],
      );
      for (const hour of hours) assert.equal(differenceOf(hour.users) + differenceOf(hour.events), 0);
      const some = await under.store.ledger(TENANT, { from: START + DAY_MS, to: null });
      assert.equal(some.hours.length, 1);
      assert.equal((await under.store.ledger(TENANT, { from: null, to: START + DAY_MS })).hours.length, 1);
      assert.deepEqual((await under.store.ledger(null, { from: null, to: null })).hours, hours);
      assert.deepEqual(await under.store.recount(), { eventsInLedger: 4, eventsInTables: 4 });
    });

    test('what clients dropped is counted once per request, by tenant and hour, and is in no other sum', async () => {
      const users = [person({ user_id: 'u' })];
      await send(under, users, { receivedAt: START, idempotencyKey: 'k', droppedByClient: 3 });
      await send(under, users, { receivedAt: START + 1, idempotencyKey: 'k', droppedByClient: 3 });
      await send(under, users, { receivedAt: START + 2, droppedByClient: 4 });
      await send(under, users, { receivedAt: START + DAY_MS, droppedByClient: 1_000_000_000 });
      await send(under, users, { receivedAt: START, tenantId: OTHER_TENANT, droppedByClient: 5 });
      await send(under, users, { receivedAt: START, tenantId: OTHER_TENANT });
      const droppedBy = async (tenantId: string | null) => {
        const { hours } = await under.store.ledger(tenantId, { from: null, to: null });
        for (const hour of hours) assert.equal(differenceOf(hour.users) + differenceOf(hour.events), 0);
        return hours.map(({ hour, events, droppedByClients }) => [hour, events.received, droppedByClients]);
      };
      assert.deepEqual(await droppedBy(TENANT), [
        [START + DAY_MS, 1, 1_000_000_000],
        [START, 3, 7],
      ]);
      assert.deepEqual(await droppedBy(OTHER_TENANT), [[START, 2, 5]]);
      assert.deepEqual(await under.writer.difference(), { users: 0, events: 0 });
    });
  });
}
