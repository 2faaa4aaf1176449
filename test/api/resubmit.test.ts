/** Fixing rejected users over HTTP, on a real server: by hand, by patch with a dry run first, and what is refused. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { jobJson } from '../../src/api/routes/jobs.ts';
import { ask, makeKey, useServer } from '../edge/fixture.ts';
import { eventually, post } from '../server.ts';

interface Job {
  readonly id: string;
  readonly status: string;
  readonly left: number;
  readonly [count: string]: unknown;
}

const wrong = (id: unknown, more: object = {}) => ({
  identifiers: { user_id: id },
  events: [{ event_name: 'order', ...more }],
});
const NUMBER = 'identifiers.user_id must be a string';

suite('Resubmitting rejected users', () => {
  const server = useServer();

  const call = async (method: 'GET' | 'POST' | 'PUT', path: string, body?: unknown, key = server().key) => {
    const response = await ask(server(), path, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    return { status: response.status, body: response.body as Record<string, unknown>, text: response.text };
  };
  const send = async (users: readonly unknown[]): Promise<string> => {
    const { headers } = await post(server(), server().key, { users });
    const trace = headers.get('x-trace-id') ?? '';
    await eventually('the request is processed', async () => {
      const { body } = await call('GET', `/traces/${trace}`);
      return body['status'] === 'processed' || undefined;
    });
    return trace;
  };
  const done = (id: unknown): Promise<Job> =>
    eventually('the job is done', async () => {
      const { body } = await call('GET', `/jobs/${String(id)}`);
      return body['status'] === 'done' ? (body as Job) : undefined;
    });

  test('one by hand: refused while it is wrong, stored once, then refused as a conflict', async () => {
    const trace = await send([wrong('fine'), wrong(41)]);
    const path = `/rejections/${trace}.1/resubmit`;
    const still = await call('POST', path, { user: wrong(41) });
    assert.deepEqual([still.status, still.body['message']], [400, `the user is still not valid: ${NUMBER}`]);
    const digits = `{"user":{"identifiers":{"user_id":"41"},"user_properties":{"n":12345678901234567890},"events":[{"event_name":"order"}]}}`;
    const both = await Promise.all([call('POST', path, digits), call('POST', path, digits)]);
    assert.deepEqual(
      both.map(({ status }) => status).sort((a, b) => a - b),
      [202, 409],
    );
    const id = both.find(({ status }) => status === 202)?.body['id'];
    assert.equal((await done(id))['resubmitted'], 1);
    assert.equal((await call('POST', path, digits)).status, 409);
    assert.match((await call('GET', '/profiles?user_id=41')).text, /"n":12345678901234567890/);
    const { body } = await call('GET', `/traces/${trace}`);
    const [, user] = body['users'] as { status: string; resubmitted: { job_id: string; patch: unknown } }[];
    assert.equal(user?.status, 'accepted');
    assert.equal(user.resubmitted.job_id, id);
    assert.deepEqual(user.resubmitted.patch, [
      { op: 'add', path: '/user_properties' },
      { op: 'replace', path: '/identifiers/user_id' },
    ]);
    const [rejection] = (await call('GET', `/rejections?limit=1`)).body['rejections'] as Record<string, unknown>[];
    assert.equal(rejection?.['id'], `${trace}.1`);
    assert.notEqual(rejection['resubmitted_at'], null);
  });

  test('all by a patch: the dry run changes nothing and says what the job then does', async () => {
    const trace = await send([
      wrong('fine'),
      ...Array.from({ length: 6 }, (_, n) => wrong(100 + n, { n })),
      wrong(7, { event_name: '' }),
      wrong(8, { event_name: 'big', pad: 'x'.repeat(20_000) }),
    ]);
    const filter = { reason: NUMBER };
    const patch = [{ op: 'replace', path: '/identifiers/user_id', value: 'patched' }];
    const { status, body } = await call('POST', '/rejections/resubmit', { filter, patch, dry_run: true });
    assert.equal(status, 200);
    const preview = body['preview'] as Record<string, unknown>;
    const { matched, checked, valid, still_rejected, cut, reasons, warnings } = preview;
    assert.match(String(warnings), /every user the same \/identifiers\/user_id/);
    assert.deepEqual([body['job'], matched, checked, valid, still_rejected, cut], [null, 8, 8, 6, 1, 1]);
    assert.deepEqual(reasons, [
      { message: 'events[].event_name is required and must be a non-empty string', users: 1 },
    ]);
    const [first] = preview['users'] as { id: string; status: string }[];
    assert.deepEqual([first?.id, first?.status], [`${trace}.7`, 'still_rejected']);
    assert.deepEqual(preview['effects'], {
      ...{ users: 6, new_profiles: 1, merges: 0, refusals: 0, property_changes: 0, events: 6, duplicate_events: 0 },
      violations: 0,
    });
    const [, , newest] = preview['users'] as { id: string; prediction: Record<string, unknown> }[];
    const { profile_id, is_new, events, new_identifiers, userIndex } = newest?.prediction ?? {};
    // The first of them creates the person, and so the id is that of its rejection.
    assert.deepEqual(
      [newest?.id, userIndex, profile_id, is_new, events, new_identifiers],
      [`${trace}.6`, 6, `new:${trace}.1`, true, 1, []],
    );
    assert.equal((await call('GET', '/profiles?user_id=patched')).status, 404);
    assert.equal(((await call('GET', '/jobs')).body['jobs'] as unknown[]).length, 1);

    const made = await call('POST', '/rejections/resubmit', { filter, patch });
    const job = await done((made.body['job'] as Job).id);
    assert.deepEqual(
      [job['matched'], job['resubmitted'], job['still_rejected'], job['cut'], job['left']],
      [8, 6, 1, 1, 0],
    );
    assert.deepEqual((job['filter'] as Record<string, unknown>)['reason'], NUMBER);
    assert.equal((await call('GET', '/profiles?user_id=patched')).body['event_count'], 6);
    const left = await call('GET', `/rejections?resubmitted=false&reason=${encodeURIComponent(NUMBER)}`);
    assert.equal((left.body['rejections'] as unknown[]).length, 2);
    const ledger = (await call('GET', '/ledger')).body;
    const [hour] = ledger['hours'] as Record<string, unknown>[];
    assert.deepEqual([ledger['balanced'], hour?.['users_rejected'], hour?.['users_resubmitted']], [true, 9, 7]);
    assert.match((await call('GET', '/audit')).text, /"kind":"resubmit".*"matched":8/);
    for (const act of ['stop', 'resume']) {
      assert.equal((await call('POST', `/jobs/${job.id}/${act}`)).body['status'], 'done');
    }
  });

  test('an invalid call is reported, and no data of another tenant is returned', async () => {
    const trace = await send([wrong('fine'), wrong(1)]);
    const resubmit = '/rejections/resubmit';
    const patch = [{ op: 'remove', path: '/x' }];
    for (const [path, body, status, expected] of [
      [resubmit, '{', 400, /not valid JSON/],
      [resubmit, '[]', 400, /must be a JSON object/],
      [resubmit, { patch }, 400, /filter is required/],
      [resubmit, { filter: {}, patch, x: 1 }, 400, /the body has an unknown field; known are filter, patch/],
      [resubmit, { filter: { x: 1 }, patch }, 400, /filter has an unknown field; known are reason/],
      [resubmit, { filter: { reason: 7 }, patch }, 400, /filter\.reason must be a string/],
      [resubmit, { filter: { from: 'yesterday' }, patch }, 400, /filter\.from must be an ISO 8601 time/],
      [resubmit, { filter: {} }, 400, /patch must be an array/],
      [resubmit, { filter: {}, patch: [{ op: 'x', path: '/a' }] }, 400, /patch\[0\]\.op/],
      [resubmit, { filter: {}, patch, dry_run: 'yes' }, 400, /dry_run must be/],
      [resubmit, { filter: {}, patch, cursor: 'x' }, 400, /for dry runs alone/],
      [resubmit, { filter: {}, patch, dry_run: true, cursor: 'x' }, 400, /cursor/],
      [resubmit, { filter: { event_name: 'never' }, patch }, 404, /no rejected user matches/],
      [`/rejections/${trace}.1/resubmit`, {}, 400, /user is required/],
      [`/rejections/${trace}.0/resubmit`, { user: wrong('x') }, 404, /not found/],
      [`/rejections/${trace}/resubmit`, { user: wrong('x') }, 404, /not found/],
      ['/dead-letters/retry', { filter: {} }, 404, /no dead letter matches/],
      ['/dead-letters/retry', {}, 400, /filter is required/],
      [`/dead-letters/${trace}.0/retry`, undefined, 404, /not found/],
      [`/jobs/${trace}/stop`, undefined, 404, /not found/],
    ] as const) {
      const response = await call('POST', path, body);
      assert.deepEqual([path, response.status], [path, status], response.text);
      assert.match(response.text, expected);
    }
    const { key } = await makeKey(server().dataFolder, { account: 'other' });
    const [job] = (await call('GET', '/jobs')).body['jobs'] as Job[];
    assert.equal((await call('POST', `/rejections/${trace}.1/resubmit`, { user: wrong('x') }, key)).status, 404);
    assert.equal((await call('POST', resubmit, { filter: {}, patch }, key)).status, 404);
    for (const act of ['stop', 'resume']) {
      assert.equal((await call('POST', `/jobs/${job?.id}/${act}`, undefined, key)).status, 404);
    }
    assert.equal((await call('GET', `/jobs/${job?.id}`, undefined, key)).status, 404);
    assert.deepEqual((await call('GET', '/jobs', undefined, key)).body['jobs'], []);
    assert.deepEqual((await call('GET', '/dead-letters', undefined, key)).body['dead_letters'], []);
  });

  test('what the tracking plan rejects stays rejected until it fits the plan', async () => {
    const push = async (mode: string): Promise<void> => {
      const schema = { type: 'object', properties: { total: { type: 'number' } }, required: ['total'] };
      const { status } = await call('PUT', '/plan', { events: { paid: { mode, schema } } });
      assert.equal(status, 200);
    };
    const paid = (id: string, total: unknown) => ({
      identifiers: { user_id: id },
      events: [{ event_name: 'paid', total }],
    });
    await push('enforce');
    const trace = await eventually('the plan is enforced', async () => {
      const sent = await send([paid('p1', '5'), paid('p2', '6'), paid('p3', 7)]);
      const { body } = await call('GET', `/traces/${sent}`);
      return body['users_rejected'] === 2 ? sent : undefined;
    });
    const path = `/rejections/${trace}.0/resubmit`;
    const still = await call('POST', path, { user: paid('p1', 'five') });
    assert.equal(still.status, 400);
    assert.match(String(still.body['message']), /still not valid: events\[0\]\.total: must be a number/);

    const filter = { event_name: 'paid' };
    const useless = [{ op: 'add', path: '/user_properties', value: { seen: true } }];
    const preview = await call('POST', '/rejections/resubmit', { filter, patch: useless, dry_run: true });
    assert.equal((preview.body['preview'] as Record<string, unknown>)['still_rejected'], 2);
    const unchanged = await call('POST', '/rejections/resubmit', { filter, patch: useless });
    const { still_rejected, resubmitted } = await done((unchanged.body['job'] as Job).id);
    assert.deepEqual([still_rejected, resubmitted], [2, 0]);

    await push('warn');
    const warned = await call('POST', '/rejections/resubmit', { filter, patch: useless, dry_run: true });
    const { valid, effects } = warned.body['preview'] as { valid: number; effects: Record<string, unknown> };
    assert.deepEqual([valid, effects['violations']], [2, 2]);
    await push('enforce');

    const patch = [{ op: 'replace', path: '/events/0/total', value: 5 }];
    const fixed = await call('POST', '/rejections/resubmit', { filter, patch });
    assert.equal((await done((fixed.body['job'] as Job).id))['resubmitted'], 2);
    await push('off');
  });
});

test('a job that is done says how many were gone before it reached them', () => {
  const counts = { resubmitted: 1, stillRejected: 1, already: 0, cut: 0, failed: 0 };
  const stored = { id: 'job', kind: 'resubmit', createdAt: 0, finishedAt: 0, by: null, filter: '{}' } as const;
  const job = { ...stored, patch: null, matched: 5, counts, problems: [] };
  const { left, gone } = jobJson({ ...job, status: 'stopped' });
  assert.deepEqual([left, gone], [3, 0]);
  const done = jobJson({ ...job, status: 'done' });
  assert.deepEqual([done.left, done.gone], [0, 3]);
});
