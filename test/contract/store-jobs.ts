/** The contract of the store: rejected users that are fixed and resubmitted, and the jobs that do it. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { jsonText } from '../../src/api/responses.ts';
import { previewResubmit } from '../../src/api/routes/resubmit.ts';
import { parseJson } from '../../src/json/parse.ts';
import { CatalogueCollector } from '../../src/processor/catalogue.ts';
import { openWarningPlan } from '../../src/processor/plan-warnings.ts';
import { parsePatch } from '../../src/resubmit/patch.ts';
import { StoreConflictError } from '../../src/store-writer.ts';
import { traceIdOf } from '../processor/history.ts';
import {
  allPages,
  DAY_MS,
  eventsOf,
  feed,
  HOUR_MS,
  type OpenStore,
  OTHER_TENANT,
  person,
  profileOf,
  type Request,
  request,
  type StoreUnderTest,
  START,
  send,
  sweepAll,
  TENANT,
} from './store-feeding.ts';
import { ANY, ANY_LETTER, BY, FIXED_AT, audit, jobRunner, jobTools, runJobs, wrong } from './job-tools.ts';

const NUMBER = 'identifiers.user_id must be a string';

/** A request of which no user is valid. */
async function reject(under: StoreUnderTest, users: readonly unknown[], about: Request = {}): Promise<string> {
  const { userCount, eventCount, ...entry } = request([...users, person({ user_id: 'valid' })], about);
  const body = Buffer.from(JSON.stringify({ users }));
  await feed(under, [{ ...entry, body, userCount: userCount - 1, eventCount: eventCount - 1 }]);
  return entry.traceId;
}

const setUserId = (value: string): string => JSON.stringify([{ op: 'replace', path: '/identifiers/user_id', value }]);

export function storeJobsContract(open: OpenStore): void {
  suite('resubmit and its jobs', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    const { rejections, jobOf, totals, deadLetter } = jobTools(() => under);

    test('a rejected user has its key, the names of its events, and is found by each of them', async () => {
      const trace = await reject(under, [wrong(7, { event_name: 'or"der\n' }), wrong(8), 'x'], { keyId: 'key_a' });
      await reject(under, [wrong(9, { event_name: 'order' })], { keyId: 'key_b' });
      const all = await rejections();
      assert.deepEqual(
        all.map(({ keyId, eventNames, resubmittedAt }) => [keyId, eventNames, resubmittedAt]),
        [
          ['key_b', ['order'], null],
          ['key_a', [], null],
          ['key_a', ['tested'], null],
          ['key_a', ['or"der\n'], null],
        ],
      );
      assert.equal((await rejections({ keyId: 'key_b' })).length, 1);
      assert.equal((await rejections({ eventName: 'or"der\n' })).length, 1);
      assert.equal((await rejections({ eventName: 'order' })).length, 1);
      assert.equal((await rejections({ eventName: 'orde' })).length, 0);
      assert.deepEqual(await under.store.rejection(TENANT, trace, 1), all[2]);
      assert.equal(await under.store.rejection(OTHER_TENANT, trace, 1), undefined);
      assert.equal(await under.store.rejection(TENANT, trace, 3), undefined);
    });

    test('a user that is too large to be kept whole is found by the names of its events too', async () => {
      await reject(under, [wrong(7, { event_name: 'large', properties: { text: 'x'.repeat(20_000) } })]);
      const [large, ...others] = await rejections({ eventName: 'large' });
      assert.ok(large?.payloadIsCut === true && others.length === 0);
    });

    test('a user that is fixed by hand has the effect it would have had, under its own trace', async () => {
      const trace = await send(
        under,
        [person({ user_id: 'other' }), wrong(7, {}, { user_properties: { plan: 'free' } })],
        {
          receivedAt: START,
          keyId: 'key_a',
        },
      );
      await send(under, [person({ user_id: '7' }, [{}], { plan: 'pro' })], { receivedAt: START + 10 });
      const call = audit();
      const user = JSON.stringify(wrong('7', {}, { user_properties: { plan: 'free', digits: 1 } })).replace(
        '"digits":1',
        '"digits":12345678901234567890',
      );
      const fixed = { traceId: trace, userIndex: 1, user, steps: [{ op: 'replace', path: '/identifiers/user_id' }] };
      const job = await under.store.resubmitUser(TENANT, fixed, call);
      assert.ok(typeof job === 'object');
      assert.deepEqual([job.id, job.status, job.matched, job.kind], [call.traceId, 'running', 1, 'resubmit']);
      assert.equal(await under.store.resubmitUser(TENANT, fixed, audit()), 'already');
      assert.equal(await under.store.resubmitUser(OTHER_TENANT, fixed, audit()), 'unknown');
      await runJobs(under);
      assert.equal(await under.store.resubmitUser(TENANT, fixed, audit()), 'already');

      const profile = await profileOf(under, 'user_id', '7');
      // The later write stays, the default event time is that of the receipt.
      assert.equal(profile.userProperties.get('plan')?.value, '"pro"');
      assert.deepEqual(profile.userProperties.get('digits'), {
        value: '12345678901234567890',
        traceId: trace,
        receivedAt: START,
      });
      assert.equal(profile.firstSeen, START);
      const events = await eventsOf(under, { profileId: profile.id });
      assert.deepEqual(
        events.map(({ traceId, userIndex, timestamp, keyId }) => [traceId, userIndex, timestamp, keyId]).at(-1),
        [trace, 1, START, 'key_a'],
      );
      const stored = await under.store.trace(TENANT, trace);
      assert.deepEqual([stored?.usersAccepted, stored?.usersRejected], [2, 0]);
      assert.deepEqual(stored?.users[1], {
        userIndex: 1,
        status: 'accepted',
        profileId: profile.id,
        events: 1,
        duplicateEvents: 0,
        merged: [],
        warnings: [],
        message: null,
        resubmitted: {
          at: FIXED_AT + 5,
          by: BY,
          jobId: call.traceId,
          patch: [{ op: 'replace', path: '/identifiers/user_id' }],
        },
      });
      const { rows } = await under.store.traces(TENANT, { status: null, limit: 10, cursor: null });
      const summary = rows.find(({ traceId }) => traceId === trace);
      assert.deepEqual([summary?.usersAccepted, summary?.usersRejected, summary?.events], [2, 0, 2]);
      const done = await jobOf(call.traceId);
      assert.deepEqual([done.status, done.counts.resubmitted, done.finishedAt], ['done', 1, FIXED_AT + 5]);
      assert.equal((await rejections())[0]?.resubmittedAt, FIXED_AT);
      const [entry] = (await under.store.audit(TENANT, { limit: 5, cursor: null })).rows;
      assert.deepEqual([entry?.kind, entry?.traceId], ['resubmit', call.traceId]);
      const ledger = await totals();
      assert.deepEqual([ledger.users.received, ledger.users.stored], [3, 3]);
      assert.deepEqual([ledger.events.received, ledger.events.stored], [3, 3]);
      assert.deepEqual([ledger.usersRejected, ledger.usersResubmitted], [1, 1]);
    });

    test('a job fixes all that match, each once, and says what is left and why', async () => {
      for (let n = 0; n < 5; n++)
        await reject(
          under,
          Array.from({ length: 60 }, (_, k) => wrong(n * 60 + k)),
        );
      await reject(under, [wrong(1, { event_name: '' }), wrong(2, { pad: 'x'.repeat(20_000) }), 'no user']);
      await reject(under, [wrong(1)], { tenantId: OTHER_TENANT });
      const reason = { ...ANY, reason: NUMBER };
      assert.equal(await under.store.countRejections(TENANT, reason), 302);
      const call = audit();
      const job = await under.store.resubmitAll(TENANT, { filter: reason, patch: setUserId('ada') }, call);
      assert.equal(job?.matched, 302);
      await runJobs(under);
      const { status, counts, problems } = await jobOf(call.traceId);
      assert.deepEqual(
        [status, counts],
        ['done', { resubmitted: 300, stillRejected: 1, already: 0, cut: 1, failed: 0 }],
      );
      assert.match(problems[0]?.message ?? '', /^events\[0\]\.event_name is required/);
      assert.equal((await profileOf(under, 'user_id', 'ada')).eventCount, 300);
      assert.equal(await under.store.countRejections(TENANT, ANY), 3);
      assert.equal((await rejections({ isResubmitted: true })).length, 300);
      assert.equal((await rejections({ isResubmitted: false })).length, 3);
      const [most] = await under.store.rejectionReasons(TENANT, { from: null, to: null });
      assert.deepEqual([most?.reason, most?.users, most?.resubmitted], [NUMBER, 302, 300]);
      assert.equal(await under.store.findProfile(OTHER_TENANT, 'user_id', 'ada'), undefined);

      // Another one finds nothing but what is left, and what comes later is not its.
      const again = audit();
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: setUserId('eve') }, again);
      await runJobs(under);
      const second = await jobOf(again.traceId);
      assert.deepEqual(second.counts, { resubmitted: 0, stillRejected: 2, already: 300, cut: 1, failed: 0 });
      const ledger = await totals();
      assert.deepEqual([ledger.users.received, ledger.usersResubmitted, ledger.usersRejected], [300, 300, 303]);
      const none = { filter: { ...ANY, reason: 'no such reason' }, patch: setUserId('x') };
      assert.equal(await under.store.resubmitAll(TENANT, none, audit()), undefined);
      assert.equal(await under.store.resubmitAll('acct_unknown/production', none, audit()), undefined);
      const jobs = await allPages((page) => under.store.jobs(TENANT, { ...page, limit: 1 }));
      assert.deepEqual(
        jobs.map(({ id }) => id),
        [again.traceId, call.traceId],
      );
      assert.deepEqual(await allPages((page) => under.store.jobs(OTHER_TENANT, page)), []);
      assert.equal(await under.store.job(OTHER_TENANT, call.traceId), undefined);
    });

    test('a job that is stopped goes on where it was', async () => {
      for (let n = 0; n < 3; n++)
        await reject(
          under,
          Array.from({ length: 80 }, (_, k) => wrong(n * 80 + k)),
        );
      const { traceId: id } = audit();
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: setUserId('ada') }, { traceId: id, at: FIXED_AT });
      const runner = jobRunner(under);
      assert.equal(await runner.step(true), true);
      assert.equal((await under.store.setJobStatus(TENANT, id, 'stopped'))?.status, 'stopped');
      assert.equal(await under.store.setJobStatus(OTHER_TENANT, id, 'running'), undefined);
      assert.equal(await runner.step(true), false);
      const { counts, matched } = await jobOf(id);
      assert.ok(counts.resubmitted > 0 && counts.resubmitted <= 100, `${counts.resubmitted} users in one step`);
      assert.equal(matched, 240);
      await under.store.setJobStatus(TENANT, id, 'running');
      await runJobs(under);
      assert.equal((await jobOf(id)).counts.resubmitted, 240);
      assert.equal((await under.store.setJobStatus(TENANT, id, 'stopped'))?.status, 'done');
      assert.equal((await profileOf(under, 'user_id', 'ada')).eventCount, 240);
    });

    test('of two jobs for the same rejections, one has the effect', async () => {
      await reject(
        under,
        Array.from({ length: 50 }, (_, k) => wrong(k)),
      );
      const calls = [audit(), audit()];
      for (const call of calls) {
        await under.store.resubmitAll(TENANT, { filter: ANY, patch: setUserId('ada') }, call);
      }
      await runJobs(under);
      const counts = await Promise.all(calls.map(async ({ traceId }) => (await jobOf(traceId)).counts));
      assert.equal((counts[0]?.resubmitted ?? 0) + (counts[1]?.resubmitted ?? 0), 50);
      assert.equal((counts[0]?.already ?? 0) + (counts[1]?.already ?? 0), 50);
      assert.equal((await profileOf(under, 'user_id', 'ada')).eventCount, 50);
    });

    /** Each takes more than a millisecond to fix. */
    const heavy = (count: number): Promise<string> =>
      reject(
        under,
        Array.from({ length: count }, (_, n) => wrong(n, {}, { user_properties: { list: Array(5_000).fill(n % 10) } })),
      );
    const HEAVY_PATCH = JSON.stringify([
      { op: 'to_string', path: '/identifiers/user_id' },
      ...[1, 2, 3, 4].map((n) => ({ op: 'copy', from: '/user_properties/list', path: `/user_properties/list${n}` })),
    ]);

    test('a step that takes long takes fewer users, and the next one the others', async () => {
      await heavy(100);
      const call = audit();
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: HEAVY_PATCH }, call);
      const runner = jobRunner(under);
      assert.equal(await runner.step(true), true);
      const { status, counts } = await jobOf(call.traceId);
      assert.equal(status, 'running');
      assert.ok(counts.resubmitted > 0 && counts.resubmitted < 100, `${counts.resubmitted} users in one step`);
      while (await runner.step(true));
      assert.deepEqual((await jobOf(call.traceId)).counts, { ...counts, resubmitted: 100 });
      assert.equal((await eventsOf(under)).length, 100);
      assert.deepEqual(await under.writer.difference(), { users: 0, events: 0 });
    });

    test('a dry run of large users covers fewer of them, all with their effects, and lets others have the thread', async () => {
      await heavy(100);
      const covered = [];
      let cursor: string | null = null;
      let turns = 0;
      const others = setInterval(() => (turns += 1), 1).unref();
      const patch = parsePatch(HEAVY_PATCH);
      do {
        const request = { tenantId: TENANT, filter: ANY, patch, plan: undefined, cursor, at: FIXED_AT };
        const preview = await previewResubmit(under.store, request);
        const {
          checked,
          valid,
          effects,
          next_cursor: next,
        } = preview as {
          [name in 'checked' | 'valid']: number;
        } & { effects: { users: number }; next_cursor: string | null };
        assert.deepEqual([valid, effects.users], [checked, checked]);
        covered.push(checked);
        cursor = next;
      } while (cursor !== null);
      clearInterval(others);
      assert.ok(turns > 2, `${turns} turns`);
      assert.deepEqual([covered.length > 1, covered.reduce((sum, checked) => sum + checked, 0)], [true, 100]);
    });

    test('a step that fails anywhere leaves nothing, and is done once in the end', async () => {
      const steps = [
        'job_taken',
        'job_marked',
        'prepared',
        'looked_up',
        'decided',
        'written',
        'job_written',
        'job_saved',
      ];
      const trace = await reject(under, [...Array.from({ length: 10 }, (_, k) => wrong(k)), wrong(11)]);
      const fixed = { traceId: trace, userIndex: 10, user: JSON.stringify(wrong('one')), steps: [] };
      await under.store.resubmitUser(TENANT, fixed, audit());
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: setUserId('ada') }, audit());
      for (const step of steps) {
        let hasFailed = false;
        const runner = jobRunner(under, (name) => {
          if (name !== step || hasFailed) return;
          hasFailed = true;
          throw new StoreConflictError('another was first');
        });
        assert.equal(await runner.step(true), true);
        assert.ok(hasFailed, step);
        assert.deepEqual(await eventsOf(under), []);
        assert.equal((await rejections({ isResubmitted: true })).length, 1);
      }
      await runJobs(under);
      assert.equal((await profileOf(under, 'user_id', 'one')).eventCount, 1);
      assert.equal((await profileOf(under, 'user_id', 'ada')).eventCount, 10);
      assert.deepEqual(await under.writer.difference(), { users: 0, events: 0 });
    });

    test('one user that breaks the processor is counted as failed, and the others are stored', async () => {
      const trace = await reject(under, [wrong(0), wrong(1), wrong(2)]);
      const call = audit();
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: setUserId('ada') }, call);
      // A bug, which shows when the second of them is written.
      const begin = under.writer.begin.bind(under.writer);
      const breaking: StoreUnderTest['writer'] = Object.assign(Object.create(under.writer) as object, {
        hasJobs: () => under.writer.hasJobs(),
        begin: async () => {
          const transaction = await begin();
          return Object.assign(Object.create(transaction) as object, {
            takeJob: (itemsMax: number) => transaction.takeJob(itemsMax),
            markResubmitted: (...args: Parameters<typeof transaction.markResubmitted>) =>
              transaction.markResubmitted(...args),
            saveJob: (...args: Parameters<typeof transaction.saveJob>) => transaction.saveJob(...args),
            lookUp: (...args: Parameters<typeof transaction.lookUp>) => transaction.lookUp(...args),
            write: async (...args: Parameters<typeof transaction.write>) => {
              const isBad = args[0].some(({ records }) => records.some(({ header }) => header.firstUserIndex === 1));
              if (isBad) parseJson('ada@example.com');
              await transaction.write(...args);
            },
            commit: (durable: boolean) => transaction.commit(durable),
            rollback: () => transaction.rollback(),
          });
        },
      }) as StoreUnderTest['writer'];
      await runJobs({ writer: breaking });
      const { status, counts, problems } = await jobOf(call.traceId);
      assert.deepEqual([status, counts.resubmitted, counts.failed], ['done', 2, 1]);
      assert.equal(problems[0]?.id, `${trace}.1`);
      // Where it happened, and not what the parser quotes: it is what a client sent.
      assert.match(problems[0].message, /^SyntaxError: at parseJson \(src\/json\/parse\.ts:\d+/);
      assert.doesNotMatch(JSON.stringify(problems), /ada@/);
      assert.equal((await rejections({ isResubmitted: false }))[0]?.userIndex, 1);
      assert.equal((await profileOf(under, 'user_id', 'ada')).eventCount, 2);
      assert.deepEqual(await under.writer.difference(), { users: 0, events: 0 });
    });

    test('what is resubmitted or retried is in the catalogue and checked by a plan that warns, once it is committed', async () => {
      const schema = { type: 'object', properties: { total: { type: 'number' } } };
      const text = JSON.stringify({ events: { tested: { mode: 'warn', schema } } });
      const plan = await openWarningPlan({ id: 'tested 4', version: 4, text });
      const catalogue = new CatalogueCollector(() => FIXED_AT);
      await reject(under, [wrong(1, { total: 'five' }), wrong(2, { total: 5 })]);
      const trace = await deadLetter([person({ user_id: 'u' }, [{ total: 'six' }])], {}, 9);
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: setUserId('ada') }, audit());
      await under.store.retryDeadLetters(TENANT, ANY_LETTER, audit());
      let hasFailed = false;
      const runner = jobRunner(
        under,
        (name) => {
          if (name !== 'job_saved' || hasFailed) return;
          hasFailed = true;
          throw new StoreConflictError('another was first');
        },
        { catalogue, plans: { of: () => plan } },
      );
      while (await runner.step(true));
      const { observations, since } = catalogue.observations();
      const transaction = await under.writer.begin();
      await transaction.writeCatalogue(observations, since);
      await transaction.commit(true);
      const entry = await under.store.cataloguedEvent(TENANT, 'tested');
      assert.deepEqual([entry?.count, entry?.properties[0]?.name, entry?.properties[0]?.count], [3, 'total', 3]);
      const [violation, ...others] = await under.store.planViolations(TENANT, 4);
      assert.deepEqual([violation?.path, violation?.count, others], ['total', 2, []]);
      assert.match((await under.store.trace(TENANT, trace))?.users[0]?.warnings[0] ?? '', /tracking plan, version 4/);
    });

    test('a plan that cannot be used accepts no one, and the job goes on and says so', async () => {
      await reject(under, [wrong(1), wrong(2)]);
      const call = audit();
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: setUserId('ada') }, call);
      const stored = {
        version: 3,
        text: '{"events":7}',
        enforces: true,
        warns: false,
        createdAt: START,
        createdBy: 'test',
      };
      await runJobs(under, { planStore: { find: () => Promise.resolve(stored) } });
      const { status, counts, problems } = await jobOf(call.traceId);
      assert.deepEqual([status, counts.stillRejected], ['done', 2]);
      assert.match(problems[0]?.message ?? '', /^version 3 of the tracking plan cannot be used .*: push a plan/);
    });

    test('a dry run predicts what the job then does, in its order and with the original time of receipt', async () => {
      await send(under, [person({ user_id: 'known' }, [{ $event_id: 'e1' }], { plan: 'pro', old: 1 })], {
        receivedAt: START + 100,
      });
      await send(under, [person({ email: 'e@x.org' })], { receivedAt: START + 200 });
      const late = (id: unknown, identifiers: object, plan: string, event: object = {}) => ({
        identifiers: { user_id: id, ...identifiers },
        user_properties: { plan },
        events: [{ event_name: 'tested', ...event }],
      });
      // Before what is stored, so that its properties do not count; the same person in two requests.
      const first = await reject(under, [late(1, { email: 'e@x.org' }, 'free', { $event_id: 'e1' })], {
        receivedAt: START,
      });
      const second = await reject(under, [late(2, {}, 'max'), 'no user', late(3, { anon_id: 'a' }, 'free')], {
        receivedAt: START + 300,
      });
      const values = [{ op: 'replace', path: '/identifiers/user_id', value: 'known' }];
      const patch = JSON.stringify(values);
      const before = JSON.stringify(await totals());
      const request = {
        tenantId: TENANT,
        filter: ANY,
        patch: parsePatch(patch),
        plan: undefined,
        cursor: null,
        at: FIXED_AT,
      };
      const preview = JSON.parse(jsonText(await previewResubmit(under.store, request))) as {
        effects: object;
        users: { id: string; status: string; prediction: Record<string, unknown> | null }[];
      };
      assert.equal(JSON.stringify(await totals()), before);
      const { id } = await profileOf(under, 'user_id', 'known');
      const of = (name: string) => preview.users.find((user) => user.id === name)?.prediction;
      assert.deepEqual([preview.users[0]?.status, preview.users[0]?.prediction], ['still_rejected', null]);
      const [older, changed, last] = [of(`${first}.0`), of(`${second}.0`), of(`${second}.2`)];
      assert.deepEqual([older?.['profile_id'], older?.['events'], older?.['duplicate_events']], [null, 0, 1]);
      assert.deepEqual(changed?.['property_changes'], [
        { kind: 'user_properties', name: 'plan', before: 'pro', after: 'max' },
      ]);
      assert.deepEqual(last?.['property_changes'], [
        { kind: 'user_properties', name: 'plan', before: 'max', after: 'free' },
      ]);
      assert.deepEqual(last?.['new_identifiers'], [{ type: 'anon_id', value: 'a' }]);
      assert.deepEqual(
        [changed, last].map((user) => [user?.['userIndex'], user?.['profile_id']]),
        [
          [0, id],
          [2, id],
        ],
      );
      assert.deepEqual(preview.effects, {
        users: 3,
        new_profiles: 0,
        merges: 0,
        refusals: 0,
        property_changes: 2,
        events: 2,
        duplicate_events: 1,
        violations: 0,
      });
      await under.store.resubmitAll(TENANT, { filter: ANY, patch }, audit());
      await runJobs(under);
      const traced = (await under.store.trace(TENANT, second))?.users;
      assert.deepEqual([traced?.[0]?.profileId, traced?.[2]?.profileId], [id, id]);
      assert.equal((await under.store.trace(TENANT, first))?.users[0]?.duplicateEvents, 1);
      const profile = await profileOf(under, 'user_id', 'known');
      assert.deepEqual([profile.userProperties.get('plan')?.value, profile.eventCount], ['"free"', 3]);
    });

    test('a dry run names new profiles after the rejection that creates them, and the merges between', async () => {
      const trace = await reject(under, [
        { identifiers: { email: 'e@x.org', user_id: 1 }, events: [{ event_name: 'x' }] },
        { identifiers: { anon_id: 'a', user_id: 2 }, events: [{ event_name: 'x' }] },
        { identifiers: { anon_id: 'a', email: 'e@x.org', user_id: 3 }, events: [{ event_name: 'x' }] },
      ]);
      const patch = [{ op: 'remove', path: '/identifiers/user_id' }];
      const request = {
        tenantId: TENANT,
        filter: ANY,
        patch: parsePatch(JSON.stringify(patch)),
        plan: undefined,
        cursor: null,
        at: FIXED_AT,
      };
      const preview = JSON.parse(jsonText(await previewResubmit(under.store, request))) as {
        effects: Record<string, number>;
        users: { id: string; prediction: { merges: object[]; profile_id: string; is_new: boolean } }[];
      };
      const joining = preview.users.find(({ id }) => id === `${trace}.2`)?.prediction;
      assert.equal(joining?.merges.length, 1);
      assert.deepEqual(
        preview.users.map(({ prediction }) => [prediction.profile_id, prediction.is_new]),
        Array.from({ length: 3 }, () => [`new:${trace}.0`, true]),
      );
      const { new_profiles, merges } = preview.effects;
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: JSON.stringify(patch) }, audit());
      await runJobs(under);
      assert.deepEqual([new_profiles, merges], [await under.store.profileCount(TENANT), 1]);
    });

    test('a job that is done keeps no values of its patch, and an erase ends jobs whose patch names the person', async () => {
      await reject(under, [wrong(1)]);
      const [done, naming, other] = [audit(), audit(), audit()];
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: setUserId('ada') }, done);
      assert.equal((await jobOf(done.traceId)).patch, setUserId('ada'));
      await runJobs(under);
      assert.equal((await jobOf(done.traceId)).patch, '[{"op":"replace","path":"/identifiers/user_id"}]');

      await reject(under, [wrong(2), wrong(3)]);
      await send(under, [person({ user_id: 'gone', email: 'Gone@Example.com' })]);
      const secret = JSON.stringify([{ op: 'add', path: '/identifiers/email', value: 'gone@example.com' }]);
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: secret }, naming);
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: setUserId('bob') }, other);
      await under.store.setJobStatus(TENANT, naming.traceId, 'stopped');
      const { id } = await profileOf(under, 'user_id', 'gone');
      assert.equal(await under.store.erase(TENANT, id, { traceId: traceIdOf(FIXED_AT, 97), at: FIXED_AT + 7 }), true);
      const { status, patch, problems, finishedAt } = await jobOf(naming.traceId);
      assert.deepEqual(
        [status, patch, finishedAt],
        ['done', '[{"op":"add","path":"/identifiers/email"}]', FIXED_AT + 7],
      );
      assert.match(problems[0]?.message ?? '', /a person was erased/);
      assert.deepEqual(
        [(await jobOf(other.traceId)).status, (await jobOf(other.traceId)).patch],
        ['running', setUserId('bob')],
      );
      await runJobs(under);
      assert.equal((await profileOf(under, 'user_id', 'bob')).eventCount, 2);
    });

    test('what retention took away is not resubmitted, and a user that is fixed already is', async () => {
      const trace = await reject(under, [wrong(1), wrong(2)], { receivedAt: START });
      const fixed = { traceId: trace, userIndex: 0, user: JSON.stringify(wrong('one')), steps: [] };
      const call = audit();
      assert.equal(typeof (await under.store.resubmitUser(TENANT, fixed, call)), 'object');
      const all = audit();
      await under.store.resubmitAll(TENANT, { filter: ANY, patch: setUserId('two') }, all);
      await sweepAll(under, { rejectionsMs: HOUR_MS }, FIXED_AT);
      assert.deepEqual(await rejections(), []);
      assert.equal(await under.store.resubmitUser(TENANT, { ...fixed, userIndex: 1 }, audit()), 'unknown');
      await runJobs(under);
      assert.equal((await jobOf(call.traceId)).counts.resubmitted, 1);
      assert.deepEqual((await jobOf(all.traceId)).counts, {
        resubmitted: 0,
        stillRejected: 0,
        already: 0,
        cut: 0,
        failed: 0,
      });
      assert.equal((await profileOf(under, 'user_id', 'one')).eventCount, 1);
      assert.equal(await under.store.findProfile(TENANT, 'user_id', 'two'), undefined);
      await sweepAll(under, { tracesMs: HOUR_MS }, FIXED_AT + DAY_MS);
      assert.deepEqual(await allPages((page) => under.store.jobs(TENANT, page)), []);
    });

    test('a person who was erased meanwhile stays erased (rule 17)', async () => {
      const trace = await reject(
        under,
        [{ identifiers: { user_id: 'gone', email: 3 }, events: [{ event_name: 'x' }] }],
        {
          receivedAt: START,
        },
      );
      await send(under, [person({ user_id: 'gone' })], { receivedAt: START + 1 });
      const call = audit();
      const user = JSON.stringify(person({ user_id: 'gone' }));
      await under.store.resubmitUser(TENANT, { traceId: trace, userIndex: 0, user, steps: [] }, call);
      const { id } = await profileOf(under, 'user_id', 'gone');
      assert.equal(await under.store.erase(TENANT, id, { traceId: traceIdOf(FIXED_AT, 99), at: FIXED_AT }), true);
      await runJobs(under);
      assert.equal(await under.store.findProfile(TENANT, 'user_id', 'gone'), undefined);
      assert.deepEqual(await eventsOf(under), []);
      const ledger = await totals();
      assert.deepEqual([ledger.users.received, ledger.users.stored, ledger.users.erased], [2, 0, 2]);
      const stored = await under.store.trace(TENANT, trace);
      assert.match(stored?.users[0]?.warnings[0] ?? '', /was erased after the request was received/);
      // Nor is a rejection of the person left to be fixed.
      assert.deepEqual(await rejections(), []);
    });

    test('a publishable key may not join people by a fixed user either', async () => {
      await send(under, [person({ user_id: 'u' })], { receivedAt: START });
      await send(under, [person({ user_id: 'v' })], { receivedAt: START + 1 });
      await send(under, [person({ email: 'e@x.org' })], { receivedAt: START + 2 });
      const users = [{ identifiers: { user_id: 'u', email: 'e@x.org' }, events: [] }];
      const trace = await reject(under, users, { receivedAt: START + 3, keyKind: 'publishable' });
      const user = JSON.stringify(person({ user_id: 'u', email: 'e@x.org' }));
      await under.store.resubmitUser(TENANT, { traceId: trace, userIndex: 0, user, steps: [] }, audit());
      await runJobs(under);
      const sent = await send(under, [person({ user_id: 'u', email: 'e@x.org' })], {
        receivedAt: START + 4,
        keyKind: 'publishable',
      });
      const warnings = async (id: string) => (await under.store.trace(TENANT, id))?.users[0]?.warnings;
      assert.match((await warnings(trace))?.[0] ?? '', /was not linked/);
      assert.deepEqual(await warnings(trace), await warnings(sent));
    });

    test('an erase removes rejected users that name the person, wherever in them that is', async () => {
      await send(under, [person({ user_id: '17', email: 'Gone@Example.com' })]);
      await reject(under, [
        { user_id: '17', events: [] },
        { email: 'gone@example.com', events: [] },
        { identifiers: { user_id: ['17'] } },
        { identifiers: [{ email: 'gone@example.com' }] },
        { identifiers: { userId: 17 } },
        { identifiers: { user_id: 5 }, events: [{ event_name: 'invited', by: 'GONE@example.com' }] },
        { identifiers: { user_id: 5 }, events: [{ event_name: 'bought', quantity: 17 }] },
      ]);
      const bad = { rejections: [{ userIndex: 1, message: 'no identifier' }] };
      const users = [person({ user_id: 'u' }, [{ by: 'gone@example.com' }]), { email: 'gone@example.com' }];
      await deadLetter(users, { ...bad, userCount: 2, eventCount: 1 }, 9);
      const { id } = await profileOf(under, 'user_id', '17');
      assert.equal(await under.store.erase(TENANT, id, { traceId: traceIdOf(FIXED_AT, 99), at: FIXED_AT }), true);
      assert.deepEqual(
        (await rejections()).map(({ eventNames }) => eventNames),
        [['bought']],
      );
      await under.store.retryDeadLetters(TENANT, ANY_LETTER, audit());
      await runJobs(under);
      assert.equal((await profileOf(under, 'user_id', 'u')).eventCount, 1);
      assert.doesNotMatch(JSON.stringify(await rejections()), /gone@example/);
    });
  });
}
