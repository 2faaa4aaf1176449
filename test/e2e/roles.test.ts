/**
 * An edge, a processor and an API server, three processes that share nothing but Kafka and PostgreSQL: what the one takes
 * in the other one responds. Each serves its own, and says who serves the rest. A restart of PostgreSQL costs no event.
 */

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, suite, test } from 'node:test';
import { folderIn, launch, type Scope } from '../faults/scope.ts';
import {
  eventually,
  get,
  type HttpResponse,
  post,
  processed,
  readResponse,
  runSluice,
  type TestServer,
  user,
} from '../server.ts';
import { testKafka, whyNoKafka } from '../servers/kafka.ts';
import { type OwnPostgres, ownPostgres, whyNoPostgres } from '../servers/postgres.ts';

function traceIdOf({ status, body, text }: HttpResponse): string {
  assert.equal(status, 202, text);
  return (body as { trace_id: string }).trace_id;
}

function messageOf({ body }: HttpResponse): string {
  return (body as { message?: string }).message ?? '';
}

suite('Servers of different roles', { skip: whyNoPostgres('own') || whyNoKafka(), timeout: 240_000 }, () => {
  const scope: Scope = new AsyncDisposableStack();
  let postgres: OwnPostgres;
  let env: Record<string, string>;
  let edge: TestServer;
  let processor: TestServer;
  let api: TestServer;
  let key: string;

  before(async () => {
    postgres = await ownPostgres();
    scope.defer(() => postgres.close());
    const { brokers, newTopicName } = await testKafka();
    env = { STORE_URL: postgres.url, LOG_URL: `kafka://${brokers}/${newTopicName()}?replication=1&partitions=4` };
    // None of them has a folder: nothing of theirs is on this disk.
    const start = (role: string, more: Record<string, string> = {}): Promise<TestServer> =>
      launch(scope, { dataFolder: `${folderIn(scope)}/none`, env: { ...env, ...more }, args: ['--role', role] });
    // All are waited for: one that fails must leave none behind.
    await Promise.allSettled([
      start('edge').then((server) => (edge = server)),
      // It has no traffic that could move away: it stops without a drain.
      start('processor', { SLUICE_DRAIN: '10m' }).then((server) => (processor = server)),
      start('api').then((server) => (api = server)),
    ]).then((starts) => starts.forEach((one) => one.status === 'rejected' && assert.fail(String(one.reason))));
    key = api.key;
  });
  after(() => scope.disposeAsync());

  test('the API server alone prints a link and a key, and none creates a folder', () => {
    assert.match(key, /^sk_dev_/);
    assert.match(api.stdout(), /\/dashboard\/welcome#/);
    assert.equal(edge.key + processor.key, '');
    for (const server of [edge, processor, api]) assert.ok(!existsSync(server.dataFolder));
  });

  test('what the edge takes in, the processor processes and the API server returns', async () => {
    const users = Array.from({ length: 20 }, (_, n) => user(`u${n}`));
    const traceId = traceIdOf(await post(edge, key, { users: [...users, { identifiers: {} }] }));
    const trace = await eventually('all users are processed', async () => {
      const { status, body } = await get(api, key, `/traces/${traceId}`);
      const { users: reported = [] } = body as { users?: { status: string; profile_id: string | null }[] };
      const isDone = status === 200 && reported.filter(({ profile_id }) => profile_id !== null).length === 20;
      return isDone ? reported : undefined;
    });
    assert.equal(trace.filter(({ status }) => status === 'rejected').length, 1);
    for (const n of [0, 7, 19]) assert.equal((await get(api, key, `/profiles?user_id=u${n}`)).status, 200);
    const { body } = await get(api, key, '/ledger');
    const { hours } = body as { hours: { events: Record<string, number> }[] };
    assert.equal(
      hours.reduce((sum, { events }) => sum + (events['stored'] ?? 0), 0),
      20,
    );
  });

  test('the edge predicts what a request would do, each user as a record of its own, as the log would cut it', async () => {
    const check = (body: object, headers: Record<string, string> = {}): Promise<HttpResponse> =>
      fetch(`${edge.baseUrl}/ingest/events/check`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      }).then(readResponse);
    const users = [user('checked'), user('u0'), user('u7')];
    const headers = { 'idempotency-key': 'checked once' };
    const { status, body, text } = await check({ users }, headers);
    assert.equal(status, 200, text);
    const { users: predicted } = body as { users: { profile_id: string; is_new: boolean }[] };
    assert.deepEqual(
      predicted.map(({ is_new }) => is_new),
      [true, false, false],
    );
    const { body: profile } = await get(api, key, '/profiles?user_id=u7');
    assert.equal(predicted[2]?.profile_id, (profile as { id: string }).id);
    const traceId = traceIdOf(await post(edge, key, { users }, headers));
    const repeated = await eventually('the retry is recognised for every user', async () => {
      const { body: later } = await check({ users }, headers);
      const { users: again } = later as { users: { duplicate_of: string | null }[] };
      return again.every(({ duplicate_of }) => duplicate_of !== null) ? again : undefined;
    });
    assert.deepEqual(
      repeated.map(({ duplicate_of }) => duplicate_of),
      [traceId, traceId, traceId],
    );
    const elsewhere = await fetch(`${api.baseUrl}/ingest/events/check`, { method: 'POST' }).then(readResponse);
    assert.equal(elsewhere.status, 404);
    assert.match(messageOf(elsewhere), /role edge/);
  });

  const wrongOrder = (id: string): object => user(id, [{ event_name: 'order_enforced', total: 'x' }]);

  test('a tracking plan is pushed to the API server, enforced by the edge, and the processor warns by it', async () => {
    const schema = { properties: { total: { type: 'number' } } };
    const events = { order_enforced: { mode: 'enforce', schema }, order_warned: { mode: 'warn', schema } };
    const pushed = await fetch(`${api.baseUrl}/plan`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ events }),
    }).then(readResponse);
    assert.equal(pushed.status, 200, pushed.text);
    const message = 'events[0].total: must be a number (tracking plan, version 1)';
    const users = [
      ...Array.from({ length: 500 }, (_, n) =>
        user(`p${n}`, [{ event_name: 'order_warned', total: n, note: 'x'.repeat(50) }]),
      ),
      user('p500', [{ event_name: 'order_warned', total: 'x' }]),
      wrongOrder('p501'),
    ];
    await eventually(
      'the edge enforces it',
      async () => (await post(edge, key, { users: [wrongOrder('p')] })).status === 400,
    );
    const sent = await post(edge, key, { users });
    assert.deepEqual((sent.body as { errors: unknown }).errors, [{ userIndex: 501, message }], sent.text);
    await eventually('the processor warns', async () => {
      const traceId = traceIdOf(await post(edge, key, { users: users.slice(500, 501) }));
      const trace = await processed<{ users: { warnings: string[] }[] }>(api, key, traceId);
      return trace.users[0]?.warnings[0] === message;
    });
    const { body } = await get(api, key, '/plan/violations');
    const [violation] = (body as { violations: { event_name: string; path: string }[] }).violations;
    assert.deepEqual([violation?.event_name, violation?.path], ['order_warned', 'total']);
  });

  test('messages of Segment’s SDKs pass through Kafka like users, and their trace names the format', async () => {
    const track = { type: 'track', event: 'Ordered', properties: { revenue: 3 } };
    const batch = [
      { ...track, userId: 's1', messageId: 'm1' },
      { ...track, userId: 's2', messageId: 'm2' },
      { type: 'track', userId: 's3' },
      { ...track, userId: 's1', messageId: 'm1' },
    ];
    const headers = { 'content-type': 'application/json' };
    const init = { method: 'POST', headers, body: JSON.stringify({ batch, writeKey: key }) };
    const response = await fetch(`${edge.baseUrl}/ingest/v1/batch`, init).then(readResponse);
    assert.equal(response.status, 200, response.text);
    const { trace_id: traceId, accepted, rejected } = response.body as Record<string, unknown>;
    assert.deepEqual([accepted, rejected], [3, 1]);
    interface Trace {
      readonly format: string;
      readonly users: readonly { readonly status: string; readonly events: number }[];
    }
    const { format, users } = await processed<Trace>(api, key, traceId as string);
    assert.equal(format, 'segment');
    assert.deepEqual(
      users.map(({ status, events }) => [status, events]),
      [
        ['accepted', 1],
        ['accepted', 1],
        ['rejected', 0],
      ],
    );
  });

  test('a request is compared with the first use of its Idempotency-Key as a whole, although Kafka has it in pieces', async () => {
    const [first, second] = ['other', 'new'].map((name) => ({ users: [user('same'), user(name)] }));
    const sent: string[] = [];
    const traces: { duplicate_of: string | null; users: { events: number; warnings: string[] }[] }[] = [];
    for (const batch of [first, second, first, second]) {
      const traceId = traceIdOf(await post(edge, key, batch, { 'Idempotency-Key': 'reused' }));
      sent.push(traceId);
      traces.push(await processed(api, key, traceId));
    }
    assert.deepEqual(
      traces.map(({ duplicate_of }) => duplicate_of),
      [null, null, sent[0], sent[1]],
    );
    assert.deepEqual(
      traces.map(({ users }) => users.map(({ events, warnings }) => [events, warnings.length])),
      [
        [
          [1, 0],
          [1, 0],
        ],
        [
          [1, 1],
          [1, 1],
        ],
        [
          [0, 0],
          [0, 0],
        ],
        [
          [0, 0],
          [0, 0],
        ],
      ],
    );
    assert.match(traces[1]?.users[1]?.warnings[0] ?? '', new RegExp(`with another body by trace ${sent[0]}`));
  });

  test('each serves its own, and a path of another role is a 404 that names it', async () => {
    for (const server of [edge, processor, api]) {
      for (const path of ['/livez', '/readyz', '/metrics', '/version']) {
        assert.equal((await fetch(`${server.baseUrl}${path}`)).status, 200, path);
      }
    }
    const roles = await Promise.all(
      [edge, processor, api].map(async (server) => (await get(server, key, '/version')).body as { role: string }),
    );
    assert.deepEqual(
      roles.map(({ role }) => role),
      ['edge', 'processor', 'api'],
    );
    for (const server of [edge, processor]) {
      for (const path of ['/profiles?user_id=u0', '/health', '/docs', '/dashboard', '/keys']) {
        const response = await get(server, key, path);
        assert.equal(response.status, 404, path);
        assert.match(messageOf(response), /servers with the role api serve/);
        assert.equal((response.body as { error: string }).error, 'not found');
        assert.ok(response.headers.get('x-trace-id'));
      }
    }
    for (const server of [processor, api]) {
      const response = await post(server, key, { users: [user('lost')] });
      assert.equal(response.status, 404);
      assert.match(messageOf(response), /servers with the role edge receive events/);
    }
    assert.equal(messageOf(await get(api, key, '/nothing')), '');
  });

  test('the commands find everything with the two addresses', async () => {
    const traceId = traceIdOf(await post(edge, key, { users: [user('by-command')] }));
    const trace = await eventually('the command finds it', async () => {
      const { code, stdout } = await runSluice(['trace', traceId], env);
      return code === 0 && stdout.includes('processed') ? stdout : undefined;
    });
    assert.match(trace, /1 accepted/);
    const doctor = await runSluice(['doctor', '--json'], env);
    const { findings } = JSON.parse(doctor.stdout) as { findings: { check: string; state: string; message: string }[] };
    const messages = findings.map(({ check, state, message }) => `${state} ${check}: ${message}`).join('\n');
    assert.match(messages, /^ok Kafka: kafka:\/\/.* responds: 4 partitions$/m);
    assert.match(messages, /^warning Kafka: .*it has one replica/m);
    assert.match(messages, /^ok ledger: /m);
    assert.doesNotMatch(messages, /^broken|^\w+ (data folder|disk):/m);
    const made = await runSluice(
      ['keys', 'create', '--name', 'x', '--kind', 'secret', '--env', 'development', '--json'],
      env,
    );
    const { id, key: other } = JSON.parse(made.stdout) as { id: string; key: string };
    traceIdOf(await post(edge, other, { users: [user('by-other-key')] }));
    await runSluice(['keys', 'revoke', id], env);
    await eventually(
      'the edge refuses it',
      async () => (await post(edge, other, { users: [user('x')] })).status === 401,
    );
  });

  test('while PostgreSQL restarts, events continue and reads get 503; then everything recovers', async () => {
    traceIdOf(await post(edge, key, { users: [user('before-restart')] }));
    await postgres.stop('immediate');
    const traceIds: string[] = [];
    for (let n = 0; n < 10; n++) traceIds.push(traceIdOf(await post(edge, key, { users: [user(`away-${n}`)] })));
    assert.equal((await post(edge, key, { users: [wrongOrder('away')] })).status, 400, 'the plan is still enforced');
    const read = await get(api, key, '/profiles?user_id=before-restart');
    assert.deepEqual([read.status, read.headers.get('retry-after')], [503, '1']);
    const ready = async (server: TestServer): Promise<number> => (await fetch(`${server.baseUrl}/readyz`)).status;
    await eventually(
      'the others are not ready',
      async () => (await ready(api)) === 503 && (await ready(processor)) === 503,
    );
    assert.equal(await ready(edge), 200);
    assert.equal((await get(api, key, '/health')).status, 200);
    await postgres.start();
    for (const traceId of traceIds) {
      await eventually(
        'it is processed',
        async () => {
          const { status, body } = await get(api, key, `/traces/${traceId}`);
          assert.ok([200, 404, 503].includes(status), String(status));
          return (body as { status?: string }).status === 'processed';
        },
        30_000,
      );
    }
    await eventually('all are ready', async () => (await ready(api)) === 200 && (await ready(processor)) === 200);
    const { body } = await get(api, key, '/profiles?user_id=away-3');
    assert.equal((body as { event_count: number }).event_count, 1);
    for (const words of ['the store cannot be reached', 'the store can be reached again']) {
      for (const server of [api, processor]) assert.equal(server.stderr().split(words).length - 1, 1, server.stderr());
    }
  });

  test('a server with all roles joins in, and ends in order although PostgreSQL is away', async () => {
    const all = await launch(scope, { dataFolder: `${folderIn(scope)}/none`, env });
    assert.equal(all.key, '');
    assert.ok(!existsSync(all.dataFolder));
    const traceId = traceIdOf(await post(all, key, { users: [user('at-all')] }));
    await processed(all, key, traceId);
    await postgres.stop('fast');
    traceIdOf(await post(all, key, { users: [user('at-all-away')] }));
    const startedAt = performance.now();
    assert.equal(await all.stop(), 0, all.stderr());
    assert.ok(performance.now() - startedAt < 15_000);
    await postgres.start();
  });

  test('a command leaves no topic behind where there was none', async () => {
    const { brokers, newTopicName } = await testKafka();
    const elsewhere = { ...env, LOG_URL: `kafka://${brokers}/${newTopicName()}?replication=1` };
    for (let n = 0; n < 2; n++) {
      const { code, stderr } = await runSluice(['profile', 'user_id=u0'], elsewhere);
      assert.equal(code, 1);
      assert.match(stderr, /There is no topic .*\. Before the first start of a server that is right/);
    }
  });

  test('each ends in order at SIGTERM', async () => {
    for (const server of [edge, processor, api]) {
      assert.equal(await server.stop(), 0, server.stderr());
      assert.doesNotMatch(server.stderr(), /failed unexpectedly|crashed|ending: start again/);
      assert.ok(!server.stderr().includes(new URL(postgres.url).password));
    }
  });
});
