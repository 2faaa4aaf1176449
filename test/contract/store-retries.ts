/**
 * The contract of the store: a retry that the edge judges differently from the first request, because rules or the
 * tracking plan have changed. Whatever the log makes records of, a user is stored once and rejected once.
 */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { recordsOf } from '../../src/backends/kafka/message.ts';
import type { LogEntry, LogRecord } from '../../src/log.ts';
import type { StoredRejection, TracedUser } from '../../src/store.ts';
import { traceIdOf } from '../processor/history.ts';
import {
  allPages,
  DAY_MS,
  feed,
  HOUR_MS,
  type OpenStore,
  person,
  profileOf,
  PROCESSED_AT,
  request,
  type StoreUnderTest,
  START,
  send,
  TENANT,
} from './store-feeding.ts';
import { runJobs } from './job-tools.ts';

const ANY = { reason: null, from: null, to: null };
const NOT_KEPT = /^not kept as a rejection: this is a retry, and trace /;
const LARGE_USERS = 110;
const LARGE = 'x'.repeat(16_000);

type RecordsIn = (entry: LogEntry) => LogRecord[];
const whole: RecordsIn = (entry) => [{ ...entry, partition: 0, position: 0, firstUserIndex: 0 }];

/** The log keeps requests whole, or, like Kafka's, has a record of each user. A retry may be in another log. */
const LOGS: readonly [name: string, first: RecordsIn, later: RecordsIn][] = [
  ['whole requests', whole, whole],
  ['a record per user', recordsOf, recordsOf],
  ['whole requests, then a record per user', whole, recordsOf],
  ['a record per user, then whole requests', recordsOf, whole],
];

/** A request as the edge judged it: these users are rejected, and the others have one event each. */
function judged(users: readonly unknown[], rejected: readonly number[], idempotencyKey: string): LogEntry {
  const rejections = rejected.map((userIndex) => ({ userIndex, message: 'not in the plan' }));
  return { ...request(users, { idempotencyKey }), eventCount: users.length - rejected.length, rejections };
}

let calls = 0;
/** Other people and keys for each test: they share a store. */
const someone = (events?: readonly object[]): { readonly id: string; readonly user: object } => {
  const id = `retried-${++calls}`;
  return { id, user: person({ user_id: id }, events) };
};
const audit = (at: number) => ({ traceId: traceIdOf(at, ++calls), at });

export function storeRetriesContract(open: OpenStore): void {
  suite('retries that are judged differently', () => {
    let under: StoreUnderTest;
    before(async () => {
      under = await open();
    });
    after(() => under.close());

    /** Of these requests. */
    const rejectionsOf = async (...entries: readonly LogEntry[]): Promise<StoredRejection[]> => {
      const rows = await allPages((page) => under.store.rejections(TENANT, { ...ANY, ...page }));
      return rows.filter(({ traceId }) => entries.some((entry) => entry.traceId === traceId));
    };
    const usersOf = async ({ traceId }: Pick<LogEntry, 'traceId'>): Promise<readonly TracedUser[]> => {
      const trace = await under.store.trace(TENANT, traceId);
      assert.ok(trace);
      return trace.users;
    };
    const countsOf = (...people: { readonly id: string }[]): Promise<number[]> =>
      Promise.all(people.map(async ({ id }) => (await profileOf(under, 'user_id', id)).eventCount));
    const resubmit = ({ traceId }: LogEntry, userIndex: number, user: object, at = START + HOUR_MS) =>
      under.store.resubmitUser(TENANT, { traceId, userIndex, user: JSON.stringify(user), steps: [] }, audit(at));

    for (const [name, recordsOfFirst, recordsOfRetry] of LOGS) {
      const recordsIn = (entry: LogEntry, index: number): LogRecord[] =>
        (index === 0 ? recordsOfFirst : recordsOfRetry)(entry);
      const inOneBatch = (...entries: LogEntry[]) => feed(under, entries.flatMap(recordsIn));
      const oneByOne = async (...entries: LogEntry[]): Promise<void> => {
        for (const [index, entry] of entries.entries()) await feed(under, recordsIn(entry, index));
      };

      for (const [batches, process] of [
        ['one batch', inOneBatch],
        ['batches of their own', oneByOne],
      ] as const) {
        test(`a user that is accepted now is stored once, and its rejection is marked: ${name}, in ${batches}`, async () => {
          const [ada, ben] = [someone(), someone()];
          const judge = (rejected: number[]) => judged([ada.user, ben.user], rejected, ada.id);
          const [first, second, third] = [judge([1]), judge([]), judge([])];
          await process(first, second, third);
          assert.deepEqual(await countsOf(ada, ben), [1, 1]);
          assert.deepEqual(
            (await rejectionsOf(first, second, third)).map((row) => [
              row.traceId,
              row.userIndex,
              row.resubmittedAt,
              row.acceptedBy,
            ]),
            [[first.traceId, 1, PROCESSED_AT, second.traceId]],
          );
          const [repeated, accepted] = await usersOf(second);
          assert.deepEqual([repeated?.status, repeated?.events, repeated?.profileId], ['accepted', 0, null]);
          assert.deepEqual([accepted?.status, accepted?.events], ['accepted', 1]);
          assert.deepEqual(accepted?.warnings, [`accepted now: trace ${first.traceId} rejected it`]);
          assert.deepEqual(
            (await usersOf(third)).map(({ events }) => events),
            [0, 0],
          );
          assert.equal((await under.store.trace(TENANT, second.traceId))?.duplicateOf, first.traceId);
          assert.equal(await resubmit(first, 1, ben.user), 'already');
          assert.deepEqual(await under.writer.difference(), { users: 0, events: 0 });
        });

        test(`a user that is rejected again, or now, is not kept as a rejection again: ${name}, in ${batches}`, async () => {
          const [ada, ben] = [someone(), someone()];
          const judge = (rejected: number[]) => judged([ada.user, ben.user], rejected, ada.id);
          const [first, second, third] = [judge([1]), judge([0, 1]), judge([0])];
          await process(first, second, third);
          assert.deepEqual(
            (await rejectionsOf(first, second, third)).map(({ traceId, userIndex }) => [traceId, userIndex]),
            [[first.traceId, 1]],
          );
          assert.deepEqual(await countsOf(ada, ben), [1, 1]);
          for (const user of await usersOf(second)) {
            assert.equal(user.status, 'rejected');
            assert.match(user.warnings.join(), NOT_KEPT);
          }
          assert.deepEqual(await under.writer.difference(), { users: 0, events: 0 });
        });

        test(`a request without a valid user is rejected once, and does not use up its key: ${name}, in ${batches}`, async () => {
          const [ada, ben, cy] = [someone(), someone(), someone()];
          const judge = () => judged([ada.user, ben.user], [0, 1], ada.id);
          const [first, second, third] = [judge(), judge(), judge()];
          const fixed = judged([ada.user, cy.user], [], ada.id);
          await process(first, second, fixed, third);
          assert.deepEqual(
            (await rejectionsOf(first, second, third))
              .map(({ traceId, userIndex }) => `${traceId}.${userIndex}`)
              .sort(),
            [`${first.traceId}.0`, `${first.traceId}.1`],
          );
          assert.deepEqual(await countsOf(ada, cy), [1, 1]);
          assert.deepEqual(
            (await usersOf(fixed)).flatMap(({ warnings }) => warnings),
            [],
          );
        });
      }

      test(`a user that was resubmitted is a duplicate: ${name}`, async () => {
        const [ada, ben] = [someone(), someone()];
        const judge = (rejected: number[]) => judged([ada.user, ben.user], rejected, ada.id);
        const first = judge([1]);
        await feed(under, recordsOfFirst(first));
        await resubmit(first, 1, ben.user);
        await feed(under, recordsOfRetry(judge([])));
        await runJobs(under);
        await feed(under, recordsOfRetry(judge([])));
        assert.deepEqual(await countsOf(ada, ben), [1, 1]);
        assert.equal((await rejectionsOf(first))[0]?.acceptedBy, null);
      });

      test(`a prediction says which users of a retry would be stored: ${name}`, async () => {
        const [ada, ben] = [someone(), someone()];
        const judge = (rejected: number[]) => judged([ada.user, ben.user], rejected, ada.id);
        const [first, retry] = [judge([1]), judge([])];
        await feed(under, recordsOfFirst(first));
        const { users } = await under.store.predict(TENANT, recordsOfRetry(retry));
        assert.deepEqual(
          users.map(({ events, isNew, duplicateOf }) => [events, isNew, duplicateOf]),
          [
            [0, false, first.traceId],
            [1, true, null],
          ],
        );
        await feed(under, recordsOfRetry(retry));
        assert.deepEqual(
          users.map(({ warnings }) => warnings),
          (await usersOf(retry)).map(({ warnings }) => warnings),
        );
        const again = await under.store.predict(TENANT, recordsOfRetry(judge([])));
        assert.deepEqual(
          again.users.map(({ events, duplicateOf }) => [events, duplicateOf]),
          [
            [0, first.traceId],
            [0, first.traceId],
          ],
        );
      });
    }

    test('of records that are processed out of order, those of accepted users say what is a duplicate', async () => {
      const [ada, ben] = [someone(), someone()];
      const [first, retry] = [1, 2].map(() => judged([ada.user, ben.user], [1], ada.id)) as [LogEntry, LogEntry];
      const [retriedAda, retriedBen] = recordsOf(retry) as [LogRecord, LogRecord];
      await feed(under, [retriedBen]);
      await feed(under, recordsOf(first));
      await feed(under, [retriedAda]);
      assert.equal((await under.store.trace(TENANT, first.traceId))?.duplicateOf, null);
      assert.equal((await under.store.trace(TENANT, retry.traceId))?.duplicateOf, first.traceId);
      assert.deepEqual(
        (await rejectionsOf(first, retry)).map(({ traceId }) => traceId),
        [retry.traceId],
      );
      const traces = await allPages((page) => under.store.traces(TENANT, { status: null, ...page }));
      const found = traces.filter(({ traceId }) => [first.traceId, retry.traceId].includes(traceId));
      assert.deepEqual(new Set(found.map(({ duplicateOf }) => duplicateOf)), new Set([first.traceId, null]));
      assert.equal(found.length, 2);
    });

    test('users whose payload is not kept are stored by a retry, too', async () => {
      const people = Array.from({ length: LARGE_USERS }, () => someone([{ text: LARGE }]));
      const users = people.map(({ user }) => user);
      const first = judged(users, [...users.keys()], 'large');
      await feed(under, [first]);
      const kept = await rejectionsOf(first);
      assert.equal(kept.length, LARGE_USERS);
      assert.ok(kept.some(({ payload, payloadIsCut }) => payload === '' && payloadIsCut));
      const retry = judged(users, [], 'large');
      await feed(under, [retry]);
      assert.ok((await usersOf(retry)).every(({ events }) => events === 1));
    });

    test('an $event_id of a resubmitted user counts from when it was stored, until its person is erased', async () => {
      const ada = someone([{ $event_id: 'x1' }]);
      const sendOn = (day: number) => send(under, [ada.user], { receivedAt: START + day * DAY_MS });
      const rejected = judged([ada.user], [0], ada.id);
      await feed(under, [rejected]);
      await resubmit(rejected, 0, ada.user, START + 6 * DAY_MS);
      await runJobs(under, { now: () => START + 6 * DAY_MS });
      await sendOn(8);
      assert.deepEqual(await countsOf(ada), [1]);
      const { id } = await profileOf(under, 'user_id', ada.id);
      await under.store.erase(TENANT, id, audit(START + 9 * DAY_MS));
      assert.deepEqual((await usersOf(rejected))[0]?.events, 0, 'the events of a resubmitted user are erased, too');
      await sendOn(10);
      assert.deepEqual(await countsOf(ada), [1]);
    });

    test('an $event_id that was stored days after a rejection is not stored again by resubmitting that', async () => {
      const ada = someone([{ $event_id: 'x2' }]);
      const rejected = judged([ada.user], [0], ada.id);
      await feed(under, [rejected]);
      await send(under, [ada.user], { receivedAt: START + 8 * DAY_MS });
      await resubmit(rejected, 0, ada.user, START + 9 * DAY_MS);
      await runJobs(under, { now: () => START + 9 * DAY_MS });
      assert.deepEqual(await countsOf(ada), [1]);
    });
  });
}
