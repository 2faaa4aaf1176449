/** `POST /ingest/events/check`: it says what would happen, to those who may know, and changes nothing. */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Check } from 'typebox/value';
import { CheckResponse } from '../../src/api/ingest-operation.ts';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { LIMITS } from '../../src/model.ts';
import { eventually, type HttpResponse, post, processed, sleep, type TestServer, user } from '../server.ts';
import { ask, logOf, makeKey, metric, useServer, UUID_V7 } from './fixture.ts';

interface Checked {
  readonly would_respond: { readonly status: number; readonly body: Readonly<Record<string, unknown>> };
  readonly pending_requests?: number;
  readonly plan_version?: number | null;
  readonly users?: readonly Readonly<Record<string, unknown>>[];
}

suite('POST /ingest/events/check', () => {
  const server = useServer();

  const check = (key: string, body: unknown, headers: Record<string, string> = {}): Promise<HttpResponse> =>
    ask(server(), '/ingest/events/check', {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });

  async function checked(key: string, body: unknown, headers?: Record<string, string>): Promise<Checked> {
    const response = await check(key, body, headers);
    assert.equal(response.status, 200, response.text);
    assert.match(response.headers.get('x-trace-id') ?? '', UUID_V7);
    assert.ok(Check(CheckResponse, response.body), response.text);
    return response.body as Checked;
  }

  async function sendAndProcess(key: string, users: readonly object[], headers?: Record<string, string>) {
    const sent = await post(server(), key, { users }, headers);
    assert.equal(sent.status, 202);
    return processed<ProcessedTrace>(server(), key, sent.headers.get('x-trace-id') ?? '');
  }

  test('a secret key learns what would happen, and then it happens', async () => {
    const { key } = await makeKey(server().dataFolder, { account: 'predicting' });
    await sendAndProcess(key, [{ ...user('ada'), user_properties: { plan: 'free' } }]);
    await sendAndProcess(key, [{ identifiers: { anon_id: 'phone' }, events: [{ event_name: 'seen' }] }]);
    const users = [
      {
        identifiers: { user_id: 'ada', anon_id: 'phone' },
        user_properties: { plan: 'pro' },
        events: [{ event_name: 'a' }],
      },
      user('grace'),
      { identifiers: {}, events: [] },
    ];
    const { would_respond, pending_requests, users: predicted } = await checked(key, { users });
    assert.equal(pending_requests, 0);
    assert.equal(would_respond.status, 202);
    const [ada, grace, bad] = predicted ?? [];
    assert.deepEqual(ada?.['property_changes'], [
      { kind: 'user_properties', name: 'plan', before: 'free', after: 'pro' },
    ]);
    assert.deepEqual([grace?.['profile_id'], grace?.['is_new']], ['new:1', true]);
    const [merge] = ada['merges'] as { from: string; into: string; via: object }[];
    assert.deepEqual(merge?.via, { type: 'anon_id', value: 'phone' });

    const sent = await post(server(), key, { users });
    assert.deepEqual(
      { ...would_respond.body, trace_id: '' },
      { ...(sent.body as object), trace_id: '' },
      'the response is the same but for the trace_id',
    );
    const trace = await processed<ProcessedTrace>(server(), key, sent.headers.get('x-trace-id') ?? '');
    const [realAda, realGrace, realBad] = trace.users;
    assert.equal(realAda?.['profile_id'], ada['profile_id']);
    assert.deepEqual(realAda?.['merged'], [{ from: merge.from, into: merge.into }]);
    assert.ok(realGrace?.['profile_id']);
    assert.deepEqual([realBad?.['status'], realBad?.['message']], [bad?.['status'], bad?.['message']]);
  });

  test('a publishable key learns nothing about people, known or not', async () => {
    const account = 'public';
    const secret = await makeKey(server().dataFolder, { account });
    const { key } = await makeKey(server().dataFolder, { account, kind: 'publishable' });
    const headers = { 'idempotency-key': 'once' };
    const known = [{ ...user('ada', [{ event_name: 'a', $event_id: 'e-1' }]), user_properties: { secret: 'word' } }];
    await sendAndProcess(secret.key, known, headers);
    const unknown = [{ ...user('eve', [{ event_name: 'a', $event_id: 'e-2' }]), user_properties: { secret: 'word' } }];
    const texts = [];
    for (const [users, more] of [
      [known, headers],
      [unknown, { 'idempotency-key': 'other' }],
    ] as const) {
      const response = await checked(key, { users }, more);
      assert.deepEqual(Object.keys(response), ['would_respond']);
      texts.push(JSON.stringify({ ...response.would_respond.body, trace_id: '' }));
    }
    assert.equal(texts[0], texts[1]);
  });

  test('a body that is no request is described as the real call would, with 200', async () => {
    const { key } = await makeKey(server().dataFolder);
    for (const body of ['{"users":', '[]', '{}', '{"users":[]}', '{"users":[{"identifiers":{},"events":[]}]}']) {
      const { would_respond, users } = await checked(key, body);
      const real = await post(server(), key, body);
      assert.equal(would_respond.status, real.status, body);
      assert.deepEqual({ ...would_respond.body, trace_id: '' }, { ...(real.body as object), trace_id: '' });
      assert.equal(users?.length, body.includes('identifiers') ? 1 : undefined, body);
    }
  });

  test('what is wrong with the call itself gets what the real call gets', async () => {
    const { key } = await makeKey(server().dataFolder);
    const body = { users: [user('ada')] };
    assert.equal((await check('sk_dev_nonsense', body)).status, 401);
    assert.equal((await check(key, body, { 'content-type': 'text/html' })).status, 400);
    assert.equal((await check(key, 'x'.repeat(LIMITS.bodyBytesMax + 1))).status, 413);
    const compressed = await ask(server(), '/ingest/events/check', {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'content-encoding': 'gzip' },
      body: gzipSync(JSON.stringify(body)),
    });
    assert.equal(compressed.status, 200);
    const read = await ask(server(), '/ingest/events/check');
    assert.deepEqual([read.status, read.headers.get('allow')], [405, 'POST, OPTIONS']);
    const origin = 'https://shop.example';
    const preflight = await ask(server(), '/ingest/events/check', { method: 'OPTIONS', headers: { origin } });
    assert.deepEqual([preflight.status, preflight.headers.get('access-control-allow-origin')], [204, '*']);
  });

  test('violations of the tracking plan are listed in every mode, and enforced ones reject', async () => {
    const account = 'planned';
    const { key } = await makeKey(server().dataFolder, { account });
    const publishable = await makeKey(server().dataFolder, { account, kind: 'publishable' });
    const schema = { type: 'object', properties: { total: { type: 'number' } }, required: ['total'] };
    const plan = {
      unplanned_events: 'warn',
      events: { order_placed: { mode: 'enforce', schema }, cart_seen: { mode: 'warn', schema } },
    };
    const { status, text } = await ask(server(), '/plan', {
      method: 'PUT',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(plan),
    });
    assert.equal(status, 200, text);
    const users = [
      user('a', [{ event_name: 'order_placed', total: 1 }]),
      user('b', [{ event_name: 'cart_seen' }, { event_name: 'unheard_of' }]),
      user('c', [{ event_name: 'order_placed', total: 'much' }]),
    ];
    const response = await eventually('the edge uses the plan', async () => {
      const found = await checked(key, { users });
      return found.users?.[2]?.['status'] === 'rejected' ? found : undefined;
    });
    const message = 'events[0].total: must be a number (tracking plan, version 1)';
    assert.deepEqual(response.would_respond.body['errors'], [{ userIndex: 2, message }]);
    assert.equal(response.plan_version, 1);
    // As in a body that another thread checks.
    const large = users.map((one) => ({ ...one, user_properties: { long: 'x'.repeat(20_000) } }));
    for (const { users: predicted } of [response, await checked(key, { users: large })]) {
      assert.deepEqual(
        predicted?.map(({ violations }) => (violations as object[]).map((one) => Object.values(one))),
        [
          [],
          [
            ['events[0].total', 'is required', 'cart_seen', 'warn'],
            ['events[1].event_name', 'is not in the tracking plan', 'unheard_of', 'warn'],
          ],
          [['events[0].total', 'must be a number', 'order_placed', 'enforce']],
        ],
      );
    }
    // What is enforced is part of the response that a page would get.
    const open = await checked(publishable.key, { users });
    assert.deepEqual(open.would_respond.body['errors'], [{ userIndex: 2, message }]);
    assert.deepEqual(Object.keys(open), ['would_respond']);
  });

  test('a large request is checked too', async () => {
    const { key } = await makeKey(server().dataFolder, { account: 'large' });
    const users = Array.from({ length: 1_000 }, (_, index) => user(`u-${index}`));
    const { users: predicted } = await checked(key, { users });
    assert.equal(predicted?.length, 1_000);
    assert.equal(predicted.at(-1)?.['profile_id'], 'new:999');
  });

  test('it changes no byte of log and store, and no count', async () => {
    const account = 'unchanged';
    const { key, id, accountId } = await makeKey(server().dataFolder, { account });
    const publishable = await makeKey(server().dataFolder, { account, kind: 'publishable' });
    await sendAndProcess(key, [user('ada')]);
    const counts = async () => ({
      ledger: (await ask(server(), '/ledger', { headers: { authorization: `Bearer ${key}` } })).body,
      traces: (await ask(server(), '/traces', { headers: { authorization: `Bearer ${key}` } })).body,
      metrics: await Promise.all(COUNTED.map((name) => metric(server(), name))),
      records: (await logOf(server())).length,
    });
    // It is the last that is written, seconds after the rest.
    await eventually('the catalogue is written', async () => {
      const { status } = await ask(server(), '/catalogue/tested', { headers: { authorization: `Bearer ${key}` } });
      return status === 200;
    });
    const [counted, files] = [await counts(), await filesAtRest(server())];
    for (const one of [key, publishable.key]) {
      await checked(one, { users: [user('ada'), user('new'), 7] }, { 'idempotency-key': 'k' });
      await checked(one, '{"users":');
    }
    assert.deepEqual(await filesAtRest(server()), files);
    assert.deepEqual(await counts(), counted);
    // Usage of keys is written from time to time: with the next request it would be there.
    await sendAndProcess(key, [user('grace')]);
    const volumes = await eventually('the usage is written', async () => {
      const written = await volumesOf(server(), accountId);
      return (written[0]?.users ?? 0) >= 2 ? written : undefined;
    });
    assert.deepEqual(volumes, [{ keyId: id, users: 2, events: 2, usersRejected: 0, requestsLimited: 0 }]);
  });

  test('its users count towards the rate limit of the key, whether it is public or not', async () => {
    const keys = openSqliteKeyStore(join(server().dataFolder, 'keys.db'));
    const users = Array.from({ length: 100 }, (_, index) => user(`limited-${index}`));
    for (const kind of ['publishable', 'secret'] as const) {
      const { key, id } = await makeKey(server().dataFolder, { account: 'limited', kind });
      await keys.edit(id, { rateLimit: { usersPerSecond: 1, burstUsers: 1 } });
      await checked(key, { users });
      const over = await metric(server(), 'sluice_unavailable_total{reason="rate_limit"}');
      const response = await check(key, { users: [user('a')] });
      assert.deepEqual([response.status, Number(response.headers.get('retry-after')) > 1], [503, true]);
      assert.equal(await metric(server(), 'sluice_unavailable_total{reason="rate_limit"}'), over, 'it is not counted');
      assert.equal((await post(server(), key, { users: [user('a')] })).status, 503);
    }
    await keys.close();
  });
});

const COUNTED = [
  'sluice_users_accepted_total',
  'sluice_users_rejected_total',
  'sluice_events_accepted_total',
  'sluice_body_bytes_total',
  'sluice_log_entries_total',
];

interface ProcessedTrace {
  readonly status: string;
  readonly users: readonly Readonly<Record<string, unknown>>[];
}

async function volumesOf({ dataFolder }: TestServer, accountId: string) {
  const keys = openSqliteKeyStore(join(dataFolder, 'keys.db'));
  try {
    return Array.from(await keys.volumes(accountId, 0), ([keyId, volume]) => ({ keyId, ...volume }));
  } finally {
    await keys.close();
  }
}

/** The bytes of log and store, once nothing writes to them any more. */
function filesAtRest({ dataFolder }: TestServer): Promise<Record<string, string>> {
  const look = (): Record<string, string> =>
    Object.fromEntries(
      globSync(['store.db', 'store.db-wal', 'log/**/*.db', 'log/**/*.db-wal'], { cwd: dataFolder })
        .sort()
        .map((file) => [
          file,
          createHash('sha256')
            .update(readFileSync(join(dataFolder, file)))
            .digest('hex'),
        ]),
    );
  return eventually('nothing is written', async () => {
    const before = look();
    await sleep(300);
    return JSON.stringify(look()) === JSON.stringify(before) ? before : undefined;
  });
}
