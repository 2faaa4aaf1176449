/** The contract of the store: dead letters that are listed, erased, retried by jobs, and expire. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { traceIdOf } from '../processor/history.ts';
import {
  allPages,
  DAY_MS,
  feed,
  HOUR_MS,
  type OpenStore,
  OTHER_TENANT,
  person,
  profileOf,
  request,
  type StoreUnderTest,
  START,
  send,
  sweepAll,
  TENANT,
} from './store-feeding.ts';
import { ANY_LETTER, FIXED_AT, audit, jobTools, runJobs, wrong } from './job-tools.ts';

export function storeDeadLettersContract(open: OpenStore): void {
  suite('dead letters', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    const { rejections, jobOf, totals, deadLetter } = jobTools(() => under);

    test('an erase takes the person out of dead letters, and the others are stored by a retry', async () => {
      await send(under, [person({ user_id: 'gone' })], { receivedAt: START });
      const both = [person({ user_id: 'stays' }), person({ user_id: 'gone' }, [{ secret: 'sesame' }, {}])];
      const partly = await deadLetter(both, {}, 9);
      const body = Buffer.from('{"users":[{"identifiers":{"user_id":"gone"},"secret":"sesame"');
      const broken = await deadLetter([person({ user_id: 'gone' })], { body }, 10);
      const alone = await deadLetter([person({ user_id: 'gone' })], {}, 11);
      const { id } = await profileOf(under, 'user_id', 'gone');
      assert.equal(await under.store.erase(TENANT, id, { traceId: traceIdOf(FIXED_AT, 98), at: FIXED_AT }), true);
      const erased = await totals();
      assert.deepEqual([erased.users.deadLetters, erased.users.erased], [1, 4]);
      assert.deepEqual([erased.events.deadLetters, erased.events.erased], [1, 5]);
      const letters = await under.store.deadLetters(5);
      assert.deepEqual(
        letters.map(({ users, events, isKept, isErased }) => [users, events, isKept, isErased]),
        [
          [0, 0, false, true],
          [0, 0, false, true],
          [1, 1, true, false],
        ],
      );
      const listed = await under.store.listDeadLetters(TENANT, { ...ANY_LETTER, limit: 5, cursor: null });
      assert.deepEqual(
        listed.rows.map(({ traceId, users }) => [traceId, users]),
        [[partly, 1]],
      );
      for (const traceId of [broken, alone]) {
        assert.equal(await under.store.retryDeadLetter(TENANT, traceId, 0, audit()), undefined);
      }
      const retry = audit();
      await under.store.retryDeadLetters(TENANT, ANY_LETTER, retry);
      await runJobs(under);
      const { matched, counts } = await jobOf(retry.traceId);
      assert.deepEqual([matched, counts.resubmitted], [1, 1]);
      assert.equal((await profileOf(under, 'user_id', 'stays')).eventCount, 1);
      assert.equal(await under.store.findProfile(TENANT, 'user_id', 'gone'), undefined);
      const retried = await totals();
      assert.deepEqual([retried.users.deadLetters, retried.users.erased, retried.users.stored], [0, 4, 1]);
    });

    test('of two retries of the same dead letter, one stores it and the other finds it stored already', async () => {
      const trace = await deadLetter([person({ user_id: 'u' })], {}, 9);
      await deadLetter([person({ user_id: 'v' })], {}, 10);
      const calls = [audit(), audit(), audit()] as const;
      await under.store.retryDeadLetter(TENANT, trace, 0, calls[0]);
      await under.store.retryDeadLetter(TENANT, trace, 0, calls[1]);
      await under.store.retryDeadLetters(TENANT, ANY_LETTER, calls[2]);
      await runJobs(under);
      const jobs = await Promise.all(calls.map(({ traceId }) => jobOf(traceId)));
      assert.deepEqual(
        jobs.map(({ status, counts: { resubmitted, already } }) => [status, resubmitted, already]),
        [
          ['done', 1, 0],
          ['done', 0, 1],
          ['done', 1, 1],
        ],
      );
      assert.equal((await profileOf(under, 'user_id', 'u')).eventCount, 1);
      assert.deepEqual(await under.writer.difference(), { users: 0, events: 0 });
    });

    test('dead letters are kept as long as events, and move to expired in the ledger', async () => {
      await deadLetter([person({ user_id: 'u' }, [{}, {}])], {}, 9);
      const retried = await deadLetter([person({ user_id: 'v' })], {}, 10);
      await feed(under, [request([person({ user_id: 'w' })], { receivedAt: START })]);
      await under.store.retryDeadLetter(TENANT, retried, 0, audit());
      await runJobs(under);
      await sweepAll(under, { tracesMs: 1, rejectionsMs: 1 }, FIXED_AT + DAY_MS);
      assert.equal((await under.store.deadLetters(5)).length, 1);
      assert.deepEqual((await totals()).users.deadLetters, 1);
      await sweepAll(under, { eventsMs: HOUR_MS }, FIXED_AT + DAY_MS);
      assert.deepEqual(await under.store.deadLetters(5), []);
      const { users, events } = await totals();
      assert.deepEqual([users.received, users.deadLetters, users.expired, users.stored], [3, 0, 3, 0]);
      assert.deepEqual([events.received, events.deadLetters, events.expired, events.stored], [4, 0, 4, 0]);
    });

    test('a dead letter that can be processed by now is stored, and moves in the ledger', async () => {
      const trace = await deadLetter([person({ user_id: 'u' }, [{}, {}]), wrong(7)], {}, 9);
      await deadLetter([person({ user_id: 'v' })], { userCount: 5 }, 10);
      await feed(under, [request([person({ user_id: 'w' })], { receivedAt: START })]);
      const before = await totals();
      assert.deepEqual([before.users.received, before.users.deadLetters, before.users.stored], [7, 6, 1]);
      const letters = await allPages((page) =>
        under.store.listDeadLetters(TENANT, { cause: null, from: null, to: null, ...page, limit: 1 }),
      );
      assert.deepEqual(
        letters.map(({ cause, isKept }) => [cause, isKept]),
        [
          ['Error: broken 10', true],
          ['Error: broken 9', true],
        ],
      );
      const filter = { cause: 'Error: broken 9', from: null, to: null };
      assert.equal((await under.store.listDeadLetters(TENANT, { ...filter, limit: 5, cursor: null })).rows.length, 1);
      assert.equal(await under.store.retryDeadLetters(TENANT, { ...filter, cause: '\0' }, audit()), undefined);
      assert.equal(await under.store.retryDeadLetter(OTHER_TENANT, trace, 0, audit()), undefined);
      const call = audit();
      const job = await under.store.retryDeadLetter(TENANT, trace, 0, call);
      assert.deepEqual([job?.kind, job?.matched], ['retry', 1]);
      await runJobs(under);
      assert.equal((await jobOf(call.traceId)).counts.resubmitted, 1);
      assert.equal((await profileOf(under, 'user_id', 'u')).eventCount, 2);
      assert.equal((await rejections()).length, 1);
      assert.equal(await under.store.retryDeadLetter(TENANT, trace, 0, audit()), undefined);
      const after = await totals();
      assert.deepEqual([after.users.received, after.users.deadLetters, after.users.stored], [7, 5, 2]);
      assert.deepEqual([after.events.deadLetters, after.events.stored], [1, 3]);
      assert.equal((await under.store.trace(TENANT, trace))?.users[0]?.events, 2);

      const all = audit();
      const rest = await under.store.retryDeadLetters(TENANT, { cause: null, from: null, to: null }, all);
      assert.equal(rest?.matched, 1);
      await runJobs(under);
      const failed = await jobOf(all.traceId);
      assert.deepEqual([failed.status, failed.counts.failed], ['done', 1]);
      assert.match(failed.problems[0]?.message ?? '', /1 users .* counted 5/);
      assert.equal((await under.store.deadLetters(10)).length, 1);
      assert.equal((await totals()).users.deadLetters, 5);
      assert.equal(await under.store.retryDeadLetters(OTHER_TENANT, filter, audit()), undefined);
    });
  });
}
