/** The contract of the store: what became of a request, and the users that were rejected. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { LIMITS } from '../../src/model.ts';
import { BadCursorError, type TracedUser, type TraceSummary } from '../../src/store.ts';
import { StoreConflictError } from '../../src/store-writer.ts';
import { keyOfUser } from '../../src/views/key-use.ts';
import {
  allPages,
  DAY_MS,
  eventsOf,
  feed,
  HOUR_MS,
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

const ACT = { traceId: '01957000-0000-7000-8000-00000000ac71', at: START + HOUR_MS };
const ALL = { reason: null, from: null, to: null, limit: 50, cursor: null };

export function storeTracesContract(open: OpenStore): void {
  suite('traces and rejections', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    function accepted(userIndex: number, changes: Partial<TracedUser> = {}): TracedUser {
      const common = { duplicateEvents: 0, merged: [], warnings: [], message: null, profileId: null, events: 0 };
      return { userIndex, status: 'accepted', ...common, ...changes };
    }

    test('a trace tells per user the profile, the events and why it was rejected', async () => {
      const users = [person({ user_id: 'u' }, [{}, {}]), { identifiers: { user_id: 'x' } }, person({ anon_id: 'a' })];
      const traceId = await send(under, users, { receivedAt: START, keyId: 'key_of_app' });
      const trace = await under.store.trace(TENANT, traceId);
      assert.deepEqual(trace, {
        traceId,
        status: 'processed',
        receivedAt: START,
        processedAt: PROCESSED_AT,
        usersAccepted: 2,
        usersRejected: 1,
        duplicateOf: null,
        keyId: 'key_of_app',
        format: 'sluice',
        users: [
          accepted(0, { profileId: (await profileOf(under, 'user_id', 'u')).id, events: 2 }),
          {
            ...accepted(1),
            status: 'rejected',
            message: 'events array is required and must not be empty',
          },
          accepted(2, { profileId: (await profileOf(under, 'anon_id', 'a')).id, events: 1 }),
        ],
      });
      assert.deepEqual(await under.store.trace(null, traceId), trace);
      assert.deepEqual(await under.store.trace(TENANT, traceId.toUpperCase()), trace);
    });

    test('a trace says in which format the request was sent', async () => {
      const traceId = await send(under, [person({ user_id: 'u' })], { receivedAt: START, format: 'segment' });
      assert.equal((await under.store.trace(TENANT, traceId))?.format, 'segment');
    });

    test('a trace tells which profiles a user merged, and names the profile as it is now', async () => {
      const first = await send(under, [person({ anon_id: 'a' })], { receivedAt: START });
      await send(under, [person({ user_id: 'u' })], { receivedAt: START + 1 });
      const merged = await profileOf(under, 'user_id', 'u');
      const third = await send(under, [person({ email: 'x@y.z' }), person({ user_id: 'u', anon_id: 'a' })], {
        receivedAt: START + 2,
      });
      const survivor = await profileOf(under, 'user_id', 'u');
      const trace = await under.store.trace(TENANT, third);
      assert.deepEqual(trace?.users[1]?.merged, [{ from: merged.id, into: survivor.id }]);
      assert.deepEqual(trace.users[0]?.merged, []);
      const older = await under.store.trace(TENANT, first);
      assert.equal(older?.users[0]?.profileId, survivor.id);
    });

    test('a merge that was undone is not shown any more, and a warning says so', async () => {
      for (const [n, identifiers] of [{ anon_id: 'a' }, { email: 'x@y.z' }, { user_id: 'u' }].entries()) {
        await send(under, [person(identifiers)], { receivedAt: START + n });
      }
      const emailId = (await profileOf(under, 'email', 'x@y.z')).id;
      const userId = (await profileOf(under, 'user_id', 'u')).id;
      const first = await send(under, [person({ user_id: 'u', email: 'x@y.z' })], { receivedAt: START + 3 });
      const second = await send(under, [person({ anon_id: 'b' }), person({ user_id: 'u', anon_id: 'a' })], {
        receivedAt: START + 4,
      });
      const { id: survivor } = await profileOf(under, 'user_id', 'u');
      const reported = async (traceId: string, index: number) => {
        const user = (await under.store.trace(TENANT, traceId))?.users[index];
        return [user?.merged, user?.warnings];
      };
      await under.store.unmerge(TENANT, survivor, first, ACT);
      assert.deepEqual(await reported(first, 0), [[], ['a merge of this request was undone']]);
      // The second merge stands, and says who was merged had the first one never been.
      assert.deepEqual(await reported(second, 1), [[{ from: userId, into: survivor }], []]);
      assert.equal((await profileOf(under, 'user_id', 'u')).mergedIds[0], userId);
      await under.store.unmerge(TENANT, survivor, second, ACT);
      assert.deepEqual(await reported(second, 1), [[], ['a merge of this request was undone']]);
      assert.deepEqual(await reported(second, 0), [[], []]);
      await under.store.erase(TENANT, emailId, ACT);
      assert.deepEqual(await reported(first, 0), [[], []]);
    });

    test('a user whose events were erased carries a warning, and no one else does', async () => {
      await send(under, [person({ user_id: 'u' }, [{ $event_id: 'e' }])], { receivedAt: START });
      const late = (await profileOf(under, 'user_id', 'u')).id;
      await under.store.erase(TENANT, late, ACT);
      const traceId = await send(
        under,
        [
          person({ user_id: 'gone' }),
          person({ user_id: 'stays' }),
          person({ user_id: 'u' }),
          person({ user_id: 'again' }, [{ $event_id: 'e' }]),
          7,
        ],
        { receivedAt: ACT.at },
      );
      const gone = 'its events are not stored any more: erased, or older than SLUICE_EVENT_RETENTION';
      const goneUsers = async (): Promise<number[] | undefined> => {
        const users = (await under.store.trace(TENANT, traceId))?.users;
        assert.match(users?.[2]?.warnings.join() ?? '', /^not stored: /);
        return users?.filter(({ warnings }) => warnings.includes(gone)).map(({ userIndex }) => userIndex);
      };
      assert.deepEqual(await goneUsers(), []);
      await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'gone')).id, { ...ACT, at: ACT.at + 1 });
      assert.deepEqual(await goneUsers(), [0]);
    });

    test('what was never stored does not count as gone, also when the notes are', async () => {
      await send(under, [person({ user_id: 'u' }, [{ $event_id: 'e' }])], { receivedAt: START });
      const traceId = await send(under, [person({ user_id: 'u' }, [{ $event_id: 'e' }])], { receivedAt: START + 1 });
      await sweepAll(under, { tracesMs: DAY_MS }, START + 2 * DAY_MS);
      assert.deepEqual((await under.store.trace(TENANT, traceId))?.users[0]?.warnings, []);
    });

    test('junk, refused links and odd times are warnings', async () => {
      await send(under, [person({ user_id: 'u', anon_id: 'a' })]);
      const traceId = await send(under, [
        person({ user_id: 'null' }),
        person({ user_id: 'v', anon_id: 'a' }, [{ timestamp: '2099-01-01' }]),
      ]);
      const trace = await under.store.trace(TENANT, traceId);
      const [junk, refused] = trace?.users ?? [];
      assert.equal(junk?.profileId, null);
      assert.equal(junk.events, 1);
      assert.match(
        junk.warnings.join('\n'),
        /^identifiers\.user_id is a placeholder value: it was not used for matching$/m,
      );
      assert.equal(refused?.warnings.length, 2);
      assert.match(refused.warnings.join('\n'), /anon_id was not linked.*\n.*in the future/);
    });

    test('a request that repeats an Idempotency-Key and its body names the first one, and nothing is stored', async () => {
      const users = [person({ user_id: 'u' }), person({ user_id: 'v' })];
      const first = await send(under, users, { idempotencyKey: 'once' });
      const second = await send(under, users, { idempotencyKey: 'once' });
      const trace = await under.store.trace(TENANT, second);
      assert.equal(trace?.duplicateOf, first);
      assert.equal(trace.usersAccepted, 2);
      assert.deepEqual(trace.users, [accepted(0), accepted(1)]);
      assert.equal((await eventsOf(under)).length, 2);
      assert.equal((await under.store.trace(TENANT, first))?.duplicateOf, null);
    });

    for (const isOneBatch of [false, true]) {
      test(`an Idempotency-Key with another body is stored with a warning, and a retry of either body is a duplicate, ${isOneBatch ? 'in one batch' : 'in batches of their own'}`, async () => {
        const [a, b, c] = ['a', 'b', 'c'].map((userId) => [
          person({ user_id: userId }),
          person({ user_id: `${userId}2` }),
        ]) as [object[], object[], object[]];
        const entries = [a, b, a, b, c, b, a, c].map((users) => request(users, { idempotencyKey: 'once' }));
        if (isOneBatch) await feed(under, entries);
        else for (const entry of entries) await feed(under, [entry]);
        const traces = await Promise.all(entries.map(({ traceId }) => under.store.trace(TENANT, traceId)));
        const indexOf = (traceId: string | null): number => entries.findIndex((entry) => entry.traceId === traceId);
        assert.deepEqual(
          traces.map((trace) => indexOf(trace?.duplicateOf ?? null)),
          [-1, -1, 0, 1, -1, 1, 0, 4],
        );
        // On the first user of the request: it is about all of them.
        const warnings = traces.map((trace) => trace?.users.map((user) => user.warnings));
        assert.deepEqual(
          [0, 2, 3, 5, 6, 7].flatMap((n) => warnings[n]?.flat() ?? ['there is no trace']),
          [],
        );
        for (const [n, before] of [
          [1, 0],
          [4, 1],
        ] as const) {
          assert.equal(warnings[n]?.[0]?.length, 1);
          assert.match(warnings[n][0][0] ?? '', new RegExp(`another body by trace ${entries[before]?.traceId}`));
          assert.deepEqual(warnings[n][1], []);
        }
        assert.equal((await eventsOf(under)).length, 6);
        const { hours } = await under.store.ledger(TENANT, { from: null, to: null });
        const { received, stored, duplicates } = hours[0]?.events ?? assert.fail('there are no sums');
        assert.deepEqual([received, stored, duplicates], [16, 6, 10]);
      });
    }

    test('a key that was used with another body a day ago is as good as new', async () => {
      const sent = async (userId: string, hours: number): Promise<readonly [string | null, number]> => {
        const about = { idempotencyKey: 'daily', receivedAt: START + hours * HOUR_MS };
        const trace = await under.store.trace(TENANT, await send(under, [person({ user_id: userId })], about));
        return [trace?.duplicateOf ?? null, trace?.users[0]?.warnings.length ?? -1];
      };
      assert.deepEqual(await sent('a', 0), [null, 0]);
      assert.deepEqual(await sent('b', 23), [null, 1]);
      // Known by its own first use, which was 23 hours before, although the first of the key is a day old.
      assert.equal((await sent('b', 46))[1], 0);
      assert.notEqual((await sent('b', 46))[0], null);
      // Of the first body nothing is known any more; the second one is in the way.
      assert.deepEqual(await sent('a', 25), [null, 1]);
      assert.deepEqual(await sent('c', 72), [null, 0]);
    });

    test('an event id counts from the use that was processed last, also where the clock was ahead before', async () => {
      const sent = async (eventId: string, days: number): Promise<number> => {
        const about = { receivedAt: START + days * DAY_MS };
        const traceId = await send(under, [person({ user_id: 'u' }, [{ $event_id: eventId }])], about);
        return (await under.store.trace(TENANT, traceId))?.users[0]?.events ?? assert.fail('there is no trace');
      };
      assert.equal(await sent('e', 8), 1);
      assert.equal(await sent('e', 0), 1);
      // After every transaction, since each may move the uses that are stored.
      for (let n = 0; n < 6; n++) {
        assert.equal(await sent(`other ${n}`, 0), 1);
        assert.equal(await sent('e', 1), 0);
      }
      assert.equal(await sent('e', 8), 1);
      for (let n = 0; n < 6; n++) {
        assert.equal(await sent(`another ${n}`, 8), 1);
        assert.equal(await sent('e', 9), 0);
      }
    });

    test('a request that the log cut is compared as a whole, and a retry brings what was missing', async () => {
      const cut = (users: readonly object[], bodyHash: string): ReturnType<typeof request>[] => {
        const { traceId } = request(users);
        return users.map((user, index) => ({
          ...request([user], { traceId, firstUserIndex: index, idempotencyKey: keyOfUser('once', index) }),
          bodyHash,
        }));
      };
      const [u, v, w] = ['u', 'v', 'w'].map((userId) => person({ user_id: userId })) as [object, object, object];
      const traceOf = async (records: readonly { readonly traceId: string }[]) =>
        (await under.store.trace(TENANT, records[0]?.traceId ?? '')) ?? assert.fail('there is no trace');
      const partly = cut([u, v], 'first body');
      await feed(under, partly.slice(0, 1));
      const retry = cut([u, v], 'first body');
      await feed(under, retry);
      assert.equal((await traceOf(retry)).duplicateOf, partly[0]?.traceId);
      assert.deepEqual(
        (await traceOf(retry)).users.map(({ events }) => events),
        [0, 1],
      );
      // One of its users is the same, to the byte: it is another request all the same.
      const other = cut([u, w], 'second body');
      await feed(under, other);
      const trace = await traceOf(other);
      assert.deepEqual(
        trace.users.map(({ events, warnings }) => [events, warnings.length]),
        [
          [1, 1],
          [1, 1],
        ],
      );
      assert.equal(trace.duplicateOf, null);
    });

    test('events that were there already by $event_id are counted as such', async () => {
      await send(under, [person({ user_id: 'u' }, [{ $event_id: 'e' }])]);
      const traceId = await send(under, [
        person({ user_id: 'u' }, [{ $event_id: 'e' }, { $event_id: 'f' }]),
        person({ user_id: 'v' }, [{ $event_id: 'e' }]),
      ]);
      const trace = await under.store.trace(TENANT, traceId);
      const { id: profileId } = await profileOf(under, 'user_id', 'u');
      assert.deepEqual(trace?.users, [
        accepted(0, { profileId, events: 1, duplicateEvents: 1 }),
        accepted(1, {
          duplicateEvents: 1,
          warnings: ['nothing of this user was applied: all of its events were there already'],
        }),
      ]);
    });

    test('a request that the log cut into records is one trace', async () => {
      const whole = request([person({ user_id: 'u0' })]);
      const about = { traceId: whole.traceId, receivedAt: whole.receivedAt };
      const others = [1, 3].map((firstUserIndex) =>
        request([person({ user_id: `u${firstUserIndex}` }), 7], { ...about, firstUserIndex }),
      );
      await feed(under, [whole]);
      await feed(under, others.toReversed());
      const trace = await under.store.trace(TENANT, whole.traceId);
      assert.equal(trace?.usersAccepted, 3);
      assert.equal(trace.usersRejected, 2);
      assert.deepEqual(
        trace.users.map(({ userIndex, status, events }) => [userIndex, status, events]),
        [
          [0, 'accepted', 1],
          [1, 'accepted', 1],
          [2, 'rejected', 0],
          [3, 'accepted', 1],
          [4, 'rejected', 0],
        ],
      );
    });

    test('a dead letter is listed with its cause and counted in the ledger', async () => {
      const entry = request([person({ user_id: 'u' }, [{}, {}])], { droppedByClient: 3 });
      const { body, userCount, eventCount, rejections, ...header } = entry;
      assert.ok(body.byteLength > 0 && userCount === 1 && rejections.length === 0);
      const transaction = await under.writer.begin();
      const counts = { usersAccepted: userCount, usersRejected: 0, eventsAccepted: eventCount };
      await transaction.deadLetter(
        { ...header, ...counts, bodyHash: null, partition: 3, position: 9 },
        { ...entry, partition: 3, position: 9 },
        'Error: it is broken',
        77,
      );
      await transaction.advance(3, 0, 10);
      await transaction.commit(true);
      const { tenantId, traceId, receivedAt } = header;
      assert.deepEqual(await under.store.deadLetters(10), [
        {
          tenantId,
          traceId,
          firstUserIndex: 0,
          receivedAt,
          partition: 3,
          position: 9,
          failedAt: 77,
          cause: 'Error: it is broken',
          users: 1,
          events: 2,
          keyId: 'key_test',
          header: JSON.parse(
            JSON.stringify({ ...header, userCount, eventCount, rejections, partition: 3, position: 9 }),
          ) as unknown,
          isKept: true,
          isErased: false,
        },
      ]);
      const { hours } = await under.store.ledger(TENANT, { from: null, to: null });
      assert.deepEqual(
        [hours[0]?.users.deadLetters, hours[0]?.events.deadLetters, hours[0]?.droppedByClients],
        [1, 2, 3],
      );
      assert.equal(await under.store.trace(TENANT, traceId), undefined);
    });

    test('a partition is taken on after the expected record only: a copy at the same position has another', async () => {
      const advance = async (from: number, to: number, last: string, expected?: string): Promise<void> => {
        const transaction = await under.writer.begin();
        try {
          await transaction.advance(4, from, to, last, expected);
          await transaction.commit(false);
        } finally {
          await transaction.rollback();
        }
      };
      await advance(0, 6, 'of the clone');
      await assert.rejects(advance(6, 7, 'next', 'ours'), StoreConflictError);
      assert.equal((await under.writer.processed()).positions.get(4), 6);
      await advance(6, 7, 'next', 'of the clone');
      assert.equal((await under.writer.processed()).lastTraceIds.get(4), 'next');
    });

    test('requests are listed newest first, page by page, with what became of them in numbers', async () => {
      const sent: string[] = [];
      for (let n = 0; n < 5; n += 1) {
        const users = [person({ user_id: `u${n}` }, [{}, {}]), 7];
        const receivedAt = START + n * 5 * DAY_MS;
        sent.unshift(
          await send(under, users, { receivedAt, idempotencyKey: n === 3 ? 'once' : null, keyId: `key_${n}` }),
        );
        await send(under, users, { receivedAt, tenantId: OTHER_TENANT });
      }
      const receivedAt = START + 15 * DAY_MS + HOUR_MS;
      const again = [person({ user_id: 'u3' }, [{}, {}]), 7];
      const repeated = await send(under, again, { receivedAt, idempotencyKey: 'once' });
      sent.splice(1, 0, repeated);
      const list = (limit: number): Promise<TraceSummary[]> =>
        allPages((page) => under.store.traces(TENANT, { ...page, limit, status: null }));
      const traces = await list(50);
      assert.deepEqual(
        traces.map(({ traceId }) => traceId),
        sent,
      );
      for (const limit of [1, 2, 6]) assert.deepEqual(await list(limit), traces);
      assert.deepEqual(traces[0], {
        traceId: sent[0],
        status: 'processed',
        receivedAt: START + 20 * DAY_MS,
        processedAt: PROCESSED_AT,
        usersAccepted: 1,
        usersRejected: 1,
        duplicateOf: null,
        keyId: 'key_4',
        events: 2,
      });
      assert.deepEqual([traces[1]?.duplicateOf, traces[1]?.events], [sent[2], 0]);
      for (const status of ['pending', 'processed'] as const) {
        const { rows } = await under.store.traces(TENANT, { limit: 50, cursor: null, status });
        assert.deepEqual(rows, status === 'processed' ? traces : []);
      }
      await assert.rejects(under.store.traces(TENANT, { limit: 1, cursor: 'x', status: null }), BadCursorError);
    });

    test('a request that its log cut into many records is one row of the list', async () => {
      const about = { receivedAt: START, traceId: request([person({ user_id: 'w' })], { receivedAt: START }).traceId };
      const cut = Array.from({ length: 150 }, (_, n) =>
        request([person({ user_id: `u${n}` }), 7], { ...about, firstUserIndex: 2 * n }),
      );
      const before = request([person({ user_id: 'v' })], { receivedAt: START - 1 });
      const after = request([person({ user_id: 'v' }), 7]);
      await feed(under, [before, ...cut, after]);
      for (const limit of [1, 50]) {
        const rows = await allPages((page) => under.store.traces(TENANT, { ...page, limit, status: null }));
        assert.deepEqual(
          rows.map(({ traceId, usersAccepted, usersRejected, events }) => [
            traceId,
            usersAccepted,
            usersRejected,
            events,
          ]),
          [
            [after.traceId, 1, 1, 1],
            [about.traceId, 150, 150, 150],
            [before.traceId, 1, 0, 1],
          ],
        );
      }
    });

    test('rejected users are kept as they were sent, newest first, by reason and time', async () => {
      const sent: string[] = [];
      for (let n = 0; n < 5; n++) {
        const bad = n % 2 === 0 ? { n } : { identifiers: { user_id: 'x' }, events: [{ a: 1 }, { event_name: 'e' }], n };
        sent.push(await send(under, [person({ user_id: 'u' }), bad], { receivedAt: START + n }));
      }
      const rows = await allPages((page) => under.store.rejections(TENANT, { ...ALL, ...page, limit: 2 }));
      assert.deepEqual(
        rows.map(({ traceId }) => traceId),
        sent.toReversed(),
      );
      assert.deepEqual(rows[0], {
        traceId: sent[4],
        userIndex: 1,
        receivedAt: START + 4,
        message: 'at least one identifier is required (user_id, email, phone_number, or anon_id)',
        reason: 'at least one identifier is required (user_id, email, phone_number, or anon_id)',
        payload: '{"n":4}',
        payloadIsCut: false,
        keyId: 'key_test',
        keyKind: 'secret',
        format: 'sluice',
        eventNames: [],
        resubmittedAt: null,
        acceptedBy: null,
      });
      const reason = 'events[].event_name is required and must be a non-empty string';
      const named = await under.store.rejections(TENANT, { ...ALL, reason });
      assert.deepEqual(
        named.rows.map(({ traceId }) => traceId),
        [sent[3], sent[1]],
      );
      assert.equal(named.rows[0]?.message, 'events[0].event_name is required and must be a non-empty string');
      const range = await under.store.rejections(TENANT, { ...ALL, from: START + 1, to: START + 3 });
      assert.deepEqual(
        range.rows.map(({ traceId }) => traceId),
        [sent[2], sent[1]],
      );
    });

    test('a reason that is too long for an index is found as it is listed', async () => {
      const name = '名'.repeat(LIMITS.propertyKeyCharactersMax);
      const bad = { ...person({ user_id: 'u' }), user_properties: { [name]: { [name]: '\0' } } };
      const traceId = await send(under, [bad, person({ user_id: 'u' })], { receivedAt: START });
      const [listed] = await under.store.rejectionReasons(TENANT, { from: null, to: null });
      const reason = listed?.reason ?? '';
      assert.ok(Buffer.byteLength(reason) > 2_704, reason);
      const { rows } = await under.store.rejections(TENANT, { ...ALL, reason });
      assert.deepEqual(
        rows.map((row) => [row.traceId, row.userIndex, row.reason]),
        [[traceId, 0, reason]],
      );
    });
  });
}
