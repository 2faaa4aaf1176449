/** The contract of the store: unmerge and erase. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import type { LogEntry } from '../../src/log.ts';
import type { CountBucket } from '../../src/store.ts';
import { entriesOf, TENANTS } from '../processor/history.ts';
import { dumpOf } from '../processor/store-dump.ts';
import { eventually } from '../server.ts';
import {
  ACT,
  allPages,
  eventsOf,
  feed,
  HOUR_MS,
  type OpenStore,
  person,
  profileOf,
  request,
  type StoreOfContract,
  type StoreUnderTest,
  START,
  send,
  TENANT,
} from './store-feeding.ts';

const PAGE = { limit: 50, cursor: null };

export function storeUnmergeAndEraseContract(open: OpenStore): void {
  suite('unmerge and erase', () => {
    let under: StoreOfContract;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    /** Two people, and the request that joined them. */
    async function joined(): Promise<string> {
      await send(under, [person({ anon_id: 'a' }, [{}, {}], { plan: 'free' })], { receivedAt: START });
      await send(under, [person({ user_id: 'u' }, [{}], { plan: 'pro' })], { receivedAt: START + 1 });
      return send(under, [person({ user_id: 'u', anon_id: 'a' }, [{}])], { receivedAt: START + 2 });
    }

    test('an unmerge gives back both profiles as they were, with their events and properties (rule 16)', async () => {
      const mergedBy = await joined();
      const both = await profileOf(under, 'user_id', 'u');
      const result = await under.store.unmerge(TENANT, both.id, mergedBy, ACT);
      assert.deepEqual(result, { undone: 1, profileIds: [both.id, ...both.mergedIds] });
      const anonymous = await profileOf(under, 'anon_id', 'a');
      const known = await profileOf(under, 'user_id', 'u');
      assert.deepEqual([anonymous.id, known.id], result.profileIds);
      assert.deepEqual([anonymous.mergedIds, known.mergedIds], [[], []]);
      assert.deepEqual([anonymous.eventCount, known.eventCount], [2, 2]);
      assert.equal(anonymous.userProperties.get('plan')?.value, '"free"');
      assert.equal(known.userProperties.get('plan')?.value, '"pro"');
      assert.equal((await eventsOf(under, { profileId: anonymous.id })).length, 2);
      assert.deepEqual((await under.store.identity(TENANT, known.id))?.merges, []);
    });

    test('an unmerge adds the profiles it gives back to their number, and an erase takes one away', async () => {
      const mergedBy = await joined();
      await send(under, [person({ email: 'x@y.z' })]);
      const { id } = await profileOf(under, 'user_id', 'u');
      assert.equal(await under.store.profileCount(TENANT), 2);
      await under.store.unmerge(TENANT, id, mergedBy, ACT);
      await under.store.unmerge(TENANT, id, mergedBy, ACT);
      assert.equal(await under.store.profileCount(TENANT), 3);
      await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'u')).id, ACT);
      assert.equal(await under.store.profileCount(TENANT), 2);
      await under.store.erase(TENANT, (await profileOf(under, 'anon_id', 'a')).id, ACT);
      await under.store.erase(TENANT, (await profileOf(under, 'email', 'x@y.z')).id, ACT);
      assert.equal(await under.store.profileCount(TENANT), 0);
    });

    test('what was unmerged is not merged again by traffic, and the refusal says why (rule 16)', async () => {
      const mergedBy = await joined();
      const { id } = await profileOf(under, 'user_id', 'u');
      await under.store.unmerge(TENANT, id, mergedBy, ACT);
      await send(under, [person({ user_id: 'u', anon_id: 'a' })], { receivedAt: START + 9 });
      const known = await profileOf(under, 'user_id', 'u');
      assert.notEqual(known.id, (await profileOf(under, 'anon_id', 'a')).id);
      const refusals = (await under.store.identity(TENANT, known.id))?.refusals;
      assert.deepEqual(
        refusals?.map(({ type, reason }) => [type, reason]),
        [['anon_id', 'cannot_link']],
      );
    });

    test('an unmerge takes back the merges of one request and leaves the others', async () => {
      await joined();
      await send(under, [person({ email: 'x@y.z' })], { receivedAt: START + 3 });
      const second = await send(under, [person({ user_id: 'u', email: 'x@y.z' })], { receivedAt: START + 4 });
      const { id } = await profileOf(under, 'user_id', 'u');
      const result = await under.store.unmerge(TENANT, id, second.toUpperCase(), ACT);
      assert.equal(result?.undone, 1);
      assert.deepEqual((await profileOf(under, 'email', 'x@y.z')).mergedIds, []);
      const rest = await profileOf(under, 'user_id', 'u');
      assert.equal(rest.id, (await profileOf(under, 'anon_id', 'a')).id);
      assert.equal(rest.mergedIds.length, 1);
    });

    test('merges that remain after an unmerge read as if the others had never been (rules 9 and 16)', async () => {
      const people = [{ anon_id: 'a' }, { anon_id: 'b' }, { email: 'c@x.org' }, { user_id: 'd' }];
      for (const [n, identifiers] of people.entries()) {
        await send(under, [person(identifiers)], { receivedAt: START + n });
      }
      const ids = new Map<string, string>();
      for (const [type, value] of [
        ['anon_id', 'a'],
        ['anon_id', 'b'],
        ['email', 'c@x.org'],
        ['user_id', 'd'],
      ] as const) {
        ids.set((await profileOf(under, type, value)).id, value.slice(0, 1));
      }
      const first = await send(under, [person({ email: 'c@x.org', anon_id: 'a' })], { receivedAt: START + 10 });
      // In the log before the next one, though received after it: who survived is decided in the order of the log.
      await send(under, [person({ user_id: 'd', email: 'c@x.org' })], { receivedAt: START + 12 });
      await send(under, [person({ user_id: 'd', anon_id: 'b' })], { receivedAt: START + 11 });
      const { id } = await profileOf(under, 'user_id', 'd');
      await under.store.unmerge(TENANT, id, first, ACT);
      const left = await under.store.identity(TENANT, (await profileOf(under, 'user_id', 'd')).id);
      assert.deepEqual(
        left?.merges.map(({ from, into }) => `${ids.get(from)} into ${ids.get(into)}`),
        ['c into b', 'd into c'],
      );
    });

    test('a request that merged nothing here changes nothing, and leaves no audit entry', async () => {
      const mergedBy = await joined();
      const stranger = await send(under, [person({ user_id: 'v' })]);
      const { id } = await profileOf(under, 'user_id', 'u');
      const other = await profileOf(under, 'user_id', 'v');
      for (const cause of [stranger, 'nonsense', ACT.traceId]) {
        const result = await under.store.unmerge(TENANT, id, cause, ACT);
        assert.deepEqual(result, { undone: 0, profileIds: [id] });
      }
      assert.equal((await under.store.unmerge(TENANT, other.id, mergedBy, ACT))?.undone, 0);
      assert.deepEqual((await under.store.audit(TENANT, PAGE)).rows, []);
    });

    test('unmerges and erases are in the audit, newest first, without personal data (rule 15)', async () => {
      const mergedBy = await joined();
      const { id } = await profileOf(under, 'user_id', 'u');
      const result = await under.store.unmerge(TENANT, id, mergedBy, ACT);
      await under.store.erase(TENANT, id, { ...ACT, at: ACT.at + 1 });
      const acts = await allPages((page) => under.store.audit(TENANT, { ...page, limit: 1 }));
      assert.deepEqual(
        acts.map(({ kind, traceId, at, detail }) => [kind, traceId, at, JSON.parse(detail) as unknown]),
        [
          ['erase', ACT.traceId, ACT.at + 1, { profile_id: id, nodes: 1, events: 2 }],
          [
            'unmerge',
            ACT.traceId,
            ACT.at,
            { profile_id: id, merged_by: mergedBy, undone: 1, profile_ids: result?.profileIds },
          ],
        ],
      );
    });

    test('of two erases of a person at the same time, each is in the audit with what it removed, or finds nothing', async () => {
      // More events than one transaction removes.
      const users = Array.from({ length: 100 }, () =>
        person(
          { user_id: 'u' },
          Array.from({ length: 70 }, () => ({})),
        ),
      );
      for (let n = 0; n < 3; n++) await send(under, users, { receivedAt: START + n });
      const { id, eventCount } = await profileOf(under, 'user_id', 'u');
      const acts = [ACT, { ...ACT, traceId: '01957000-0000-7000-8000-00000000ac71' }];
      const found = await Promise.all(acts.map(async (act) => under.store.erase(TENANT, id, act)));
      const { rows } = await under.store.audit(TENANT, PAGE);
      const audited = rows.map(({ traceId }) => traceId).sort();
      assert.deepEqual(
        audited,
        acts.filter((_, index) => found[index]).map(({ traceId }) => traceId),
      );
      const removed = rows.reduce((sum, { detail }) => sum + (JSON.parse(detail) as { events: number }).events, 0);
      assert.equal(removed, eventCount);
      assert.equal(await under.store.erase(TENANT, id, ACT), false);
    });

    /** By the trace_id of the call, newest first. */
    async function audited(): Promise<[string, unknown][]> {
      const { rows } = await under.store.audit(TENANT, PAGE);
      return rows.map(({ traceId, detail }) => [traceId, JSON.parse(detail) as unknown]);
    }

    /** Erases a person with more events than one transaction removes, and fails after the first transactions. */
    async function interruptedErasure(): Promise<{ readonly id: string; readonly events: number }> {
      const events = Array.from({ length: 40 }, () => ({}));
      const users = [
        ...Array.from({ length: 5 }, () => person({ user_id: 'gone' }, events)),
        person({ user_id: 'friend' }),
        { identifiers: { user_id: 'gone' }, events: [] },
      ];
      // Apart, for the engine that removes the events of a few months at once.
      for (let n = 0; n < 30; n++) await send(under, users, { receivedAt: START - n * 70 * 24 * HOUR_MS });
      const { id, eventCount } = await profileOf(under, 'user_id', 'gone');
      const failing = under.another();
      const erasing = assert.rejects(failing.erase(TENANT, id, ACT));
      await eventually('some are removed', async () => (await audited()).length > 0);
      await failing.close();
      await erasing;
      return { id, events: eventCount };
    }

    test('an erase that is interrupted is in the audit with what it has removed, as not finished (rule 15)', async () => {
      const { id, events } = await interruptedErasure();
      const left = (await profileOf(under, 'user_id', 'gone')).eventCount;
      assert.ok(left > 0 && left < events);
      const detail = { profile_id: id, nodes: 0, events: events - left, is_finished: false };
      assert.deepEqual(await audited(), [[ACT.traceId, detail]]);
    });

    test('an interrupted erase is repeated: the rest is removed, and both audit entries together have all of it', async () => {
      const { id, events } = await interruptedErasure();
      const left = (await profileOf(under, 'user_id', 'gone')).eventCount;
      const again = { ...ACT, traceId: '01957000-0000-7000-8000-00000000ac71' };
      assert.equal(await under.store.erase(TENANT, id, again), true);
      assert.equal(await under.store.profile(TENANT, id), undefined);
      const first = { profile_id: id, nodes: 0, events: events - left, is_finished: false };
      const second = { profile_id: id, nodes: 1, events: left };
      assert.deepEqual(await audited(), [
        [again.traceId, second],
        [ACT.traceId, first],
      ]);
      const { hours } = await under.store.ledger(TENANT, { from: null, to: null });
      assert.equal(
        hours.reduce((sum, hour) => sum + hour.events.erased, 0),
        events,
      );
      assert.ok(!(await everything(under, [])).includes('gone'));
    });

    test('an audit entry is found by its trace_id, in any case, and nothing by another', async () => {
      const mergedBy = await joined();
      const { id } = await profileOf(under, 'user_id', 'u');
      const erasure = { traceId: '0199f0f0-0000-7000-8000-00000000e4a5', at: ACT.at + 1 };
      await under.store.unmerge(TENANT, id, mergedBy, ACT);
      await under.store.erase(TENANT, id, erasure);
      const kindsOf = async (traceId: string | null): Promise<string[]> =>
        (await under.store.audit(TENANT, { ...PAGE, traceId })).rows.map(({ kind }) => kind);
      assert.deepEqual(await kindsOf(null), ['erase', 'unmerge']);
      assert.deepEqual(await kindsOf(erasure.traceId), ['erase']);
      assert.deepEqual(await kindsOf(erasure.traceId.toUpperCase()), ['erase']);
      assert.deepEqual(await kindsOf(ACT.traceId), ['unmerge']);
      for (const unknown of [mergedBy, '', 'nonsense']) assert.deepEqual(await kindsOf(unknown), []);
    });

    test('an erase takes revenue out of the currency that it was in, and of no other', async () => {
      const sale = (revenue: number, currency?: unknown): object => ({
        timestamp: '2026-03-01T12:00:00Z',
        revenue,
        currency,
      });
      await send(under, [person({ user_id: 'friend' }, [sale(0.3, 'EUR'), sale(1, 'USD'), sale(7), sale(9, '$')])]);
      const before = await everySum();
      await send(under, [
        person({ user_id: 'gone' }, [sale(0.1, 'eur'), sale(-0.2, 'EUR'), sale(5, 'GBP'), sale(2), sale(3, '€')]),
      ]);
      assert.notDeepEqual(await everySum(), before);
      await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'gone')).id, ACT);
      assert.deepEqual(await everySum(), before);
      assert.deepEqual(before[0]?.revenue, [
        { currency: 'EUR', events: 1, revenue: 0.3 },
        { currency: 'USD', events: 1, revenue: 1 },
        { currency: null, events: 1, revenue: 7 },
        { currency: 'other', events: 1, revenue: null },
      ]);
    });

    async function everySum(): Promise<CountBucket[]> {
      const range = { from: START - HOUR_MS, to: START + HOUR_MS };
      const intervals = ['minute', 'hour', 'day'] as const;
      const sums = intervals.map((interval) => under.store.counts(TENANT, { interval, ...range, byEventName: true }));
      return (await Promise.all(sums)).flat();
    }

    test('a thousand invented currencies are one', async () => {
      const events = Array.from({ length: 1_000 }, (_, n) => ({ revenue: 1, currency: `invented ${n}` }));
      await send(under, [person({ user_id: 'u' }, events)], { receivedAt: START });
      const [bucket] = await everySum();
      assert.deepEqual(bucket?.revenue, [{ currency: 'other', events: 1_000, revenue: null }]);
    });

    test('nothing that can be read tells of an erased person any more (rule 17)', async () => {
      const value = 'sesame';
      const before = [
        person({ user_id: 'friend', anon_id: 'shared' }, [{ timestamp: '2026-03-01T12:00:00Z', revenue: 0.3 }]),
        person({ user_id: 'sibling' }),
      ];
      const entries: LogEntry[] = [request(before)];
      await feed(under, entries);
      const without = await dumpOf(
        under.store,
        entries.map(({ traceId }) => traceId),
      );
      const about = [
        person({ user_id: `${value}-1`, email: `${value}@Example.com` }, [
          { timestamp: '2026-03-01T12:00:00Z', revenue: 0.1, note: value },
          { event_name: value, revenue: 0.2 },
        ]),
        person({ anon_id: `${value}-2`, first_name: value }, [{}], { [value]: value }),
        person({ user_id: `${value}-1`, anon_id: `${value}-2` }),
        // Refused (rule 6), so it stands among the refusals of another person.
        person({ user_id: 'sibling', email: `${value}@example.com` }),
        { identifiers: { email: `${value.toUpperCase()}@example.com` }, events: [], hint: value },
      ];
      const traceId = await send(under, about);
      const profile = await profileOf(under, 'email', `${value}@example.com`);
      assert.ok((await everything(under, [traceId])).includes(value));

      assert.equal(await under.store.erase(TENANT, profile.id, ACT), true);
      const left = await everything(under, [traceId]);
      assert.ok(!left.toLowerCase().includes(value), left.slice(0, 3_000));
      for (const id of [profile.id, ...profile.mergedIds]) {
        assert.equal(await under.store.profile(TENANT, id), undefined);
        assert.equal(
          await under.store.events(TENANT, { ...{ eventName: null, from: null, to: null }, ...PAGE, profileId: id }),
          undefined,
        );
      }
      const trace = await under.store.trace(TENANT, traceId);
      assert.deepEqual(
        trace?.users.map(({ events, merged }) => [events, merged.length]),
        [
          [0, 0],
          [0, 0],
          [0, 0],
          [1, 0],
          [0, 0],
        ],
      );
      const friends = without.filter((line) => /^event .*"tested"/.test(line));
      for (const line of friends) assert.ok(left.includes(line.slice(0, 200)));
    });

    test('sums are as if the erased events had never been, and the ledger counts them as erased', async () => {
      const time = '2026-03-01T12:00:30Z';
      const friend = request([person({ user_id: 'friend' }, [{ timestamp: time, revenue: 0.1 }])]);
      const person2 = request([
        person({ user_id: 'gone' }, [{ timestamp: time, revenue: 0.2 }, { timestamp: time }]),
        person({ user_id: 'gone' }, [{ timestamp: time, revenue: 1e17 }]),
        person({ user_id: 'gone' }, [{ event_name: 'only', timestamp: '2026-02-01' }]),
      ]);
      await feed(under, [person2, friend]);
      const { id } = await profileOf(under, 'user_id', 'gone');
      await under.store.erase(TENANT, id, ACT);
      for (const interval of ['minute', 'hour', 'day'] as const) {
        const range = { from: START - 100 * HOUR_MS * 24, to: START + HOUR_MS * 24 };
        const buckets = await under.store.counts(TENANT, { interval, ...range, byEventName: true });
        assert.deepEqual(
          buckets.map(({ eventName, events, revenue }) => [eventName, events, revenue]),
          [['tested', 1, [{ currency: null, events: 1, revenue: 0.1 }]]],
        );
      }
      const { hours } = await under.store.ledger(TENANT, { from: null, to: null });
      const [hour] = hours;
      assert.deepEqual([hour?.users.received, hour?.users.stored, hour?.users.erased], [4, 1, 3]);
      assert.deepEqual([hour?.events.received, hour?.events.stored, hour?.events.erased], [5, 1, 4]);
      assert.deepEqual(await under.store.recount(), { eventsInLedger: 1, eventsInTables: 1 });
    });

    test('an event sent again after an erase is no duplicate of the erased one (rule 17)', async () => {
      const events = [{ $event_id: 'é "1"', nested: { $event_id: 'kept' } }, { $event_id: '2' }];
      const friend = person({ user_id: 'friend' }, [{ $event_id: 'kept' }]);
      await send(under, [person({ user_id: 'u' }, events), friend], { receivedAt: START });
      await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'u')).id, ACT);
      await send(under, [person({ user_id: 'u' }, events), friend], { receivedAt: ACT.at + 1 });
      assert.equal((await profileOf(under, 'user_id', 'u')).eventCount, 2);
      assert.equal((await profileOf(under, 'user_id', 'friend')).eventCount, 1);
    });

    test('an event id that another person has used since stays in use after an erase', async () => {
      const events = [{ $event_id: 'e' }];
      const later = START + 8 * 24 * HOUR_MS;
      await send(under, [person({ user_id: 'gone' }, events)], { receivedAt: START });
      await send(under, [person({ user_id: 'friend' }, events)], { receivedAt: later });
      await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'gone')).id, { ...ACT, at: later });
      await send(under, [person({ user_id: 'friend' }, events)], { receivedAt: later + 1 });
      assert.equal((await profileOf(under, 'user_id', 'friend')).eventCount, 1);
    });

    for (const requestsBetween of [0, 6]) {
      test(`an erase frees an event id whose use was processed last, also where the clock was ahead before, ${requestsBetween} requests later`, async () => {
        const events = [{ $event_id: 'e' }];
        await send(under, [person({ user_id: 'ahead' }, events)], { receivedAt: START + 8 * 24 * HOUR_MS });
        await send(under, [person({ user_id: 'right' }, events)], { receivedAt: START });
        for (let n = 0; n < requestsBetween; n++) {
          await send(under, [person({ user_id: 'other' }, [{ $event_id: `${n}` }])]);
        }
        await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'right')).id, ACT);
        await send(under, [person({ user_id: 'friend' }, events)], { receivedAt: START + 2 * 24 * HOUR_MS });
        assert.equal((await profileOf(under, 'user_id', 'friend')).eventCount, 1);
      });
    }

    test('late data from before an erase is dropped, data from after it starts afresh (rule 17)', async () => {
      await send(under, [person({ user_id: 'u', anon_id: 'a' }, [{}], { plan: 'old' })], { receivedAt: START });
      const erased = await profileOf(under, 'user_id', 'u');
      await under.store.erase(TENANT, erased.id, ACT);
      const late = await send(under, [person({ anon_id: 'a' }), person({ user_id: 'v' })], { receivedAt: ACT.at });
      assert.equal(await under.store.findProfile(TENANT, 'anon_id', 'a'), undefined);
      assert.equal((await eventsOf(under)).length, 1);
      assert.match((await under.store.trace(TENANT, late))?.users[0]?.warnings.join() ?? '', /erased/);
      await send(under, [person({ user_id: 'u', anon_id: 'a' })], { receivedAt: ACT.at + 1 });
      const fresh = await profileOf(under, 'user_id', 'u');
      assert.notEqual(fresh.id, erased.id);
      assert.equal(fresh.eventCount, 1);
      assert.equal(fresh.userProperties.size, 0);
      const { hours } = await under.store.ledger(TENANT, { from: null, to: null });
      assert.equal(
        hours.reduce((sum, { users }) => sum + users.erased, 0),
        2,
      );
    });

    test('late data of an erased person is dropped, too, if the default country has changed since', async () => {
      const national = person({ phone_number: '030 123456' });
      const countries = [null, 'DE', 'AT'] as const;
      const found = async (): Promise<string[]> => {
        const spellings = ['digits:030123456', '+4930123456', '+4330123456'];
        const profiles = spellings.map(async (one) => under.store.findProfile(TENANT, 'phone_number', one));
        return (await Promise.all(profiles)).flatMap((profile) => profile?.id ?? []);
      };
      let at = START;
      for (const then of countries) {
        for (const now of countries) {
          await feed(under, [request([national], { receivedAt: (at += 1_000) })], { defaultCountry: then });
          const ids = await found();
          assert.equal(ids.length, 1);
          await under.store.erase(TENANT, ids[0] as string, { ...ACT, at: (at += 1_000) });
          await feed(under, [request([national], { receivedAt: at - 500 })], { defaultCountry: now });
          assert.deepEqual(await found(), [], `${then} → ${now}`);
        }
      }
    });

    test('erases and unmerges between the writer’s batches leave every sum right, whatever the history', async () => {
      const entries = entriesOf(11, 150, 12);
      for (let start = 0; start < entries.length; start += 30) {
        await feed(under, entries.slice(start, start + 30));
        for (const tenantId of TENANTS) {
          const profiles = await allPages((page) => under.store.profiles(tenantId, page));
          const [first, second] = profiles.toSorted((a, b) => b.mergedIds.length - a.mergedIds.length);
          const merges = first && (await under.store.identity(tenantId, first.id))?.merges;
          const cause = merges?.at(-1)?.traceId;
          if (first && cause) assert.ok(((await under.store.unmerge(tenantId, first.id, cause, ACT))?.undone ?? 0) > 0);
          if (second) assert.ok(await under.store.erase(tenantId, second.id, { ...ACT, at: START }));
        }
        const lines = await dumpOf(under.store, []);
        assert.ok(lines.length > 10);
        await assertEventCounts(under);
      }
    });
  });
}

async function assertEventCounts(under: StoreUnderTest): Promise<void> {
  for (const tenantId of TENANTS) {
    const events = await eventsOf(under, {}, tenantId);
    for (const { id, eventCount } of await allPages((page) => under.store.profiles(tenantId, page))) {
      assert.equal(events.filter(({ profileId }) => profileId === id).length, eventCount);
    }
  }
}

async function everything(under: StoreUnderTest, traceIds: readonly string[]): Promise<string> {
  return (await dumpOf(under.store, traceIds)).join('\n');
}
