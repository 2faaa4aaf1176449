/**
 * Servers that start while PostgreSQL is away: they run, say why they are not ready, refuse events with 503 and never
 * with 401, and heal by themselves when the database comes. A database that responds and refuses ends them with words.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, afterEach, before, suite, test } from 'node:test';
import { makeKey } from '../../src/keys/format.ts';
import { type Fate, openWire, openWireTo } from '../scaling/wire.ts';
import { Connection } from '../faults/connection.ts';
import { folderIn, launch, type Scope } from '../faults/scope.ts';
import {
  eventually,
  type HttpResponse,
  MAIN,
  post,
  PROGRAM_ENV,
  readResponse,
  runSluice,
  TEST_SETTINGS,
  type TestServer,
  user,
} from '../server.ts';
import { testKafka, whyNoKafka } from '../servers/kafka.ts';
import { type OwnPostgres, ownPostgres, testPostgres, whyNoPostgres, withClient } from '../servers/postgres.ts';

const DEADLINE_MS = 60_000;
const SOME_KEY = makeKey('secret', 'development');

function get(server: TestServer, path: string, key = ''): Promise<HttpResponse> {
  return fetch(`${server.baseUrl}${path}`, { headers: { authorization: `Bearer ${key}` } }).then(readResponse);
}

async function assertWaiting(server: TestServer, why: RegExp): Promise<void> {
  assert.equal((await get(server, '/livez')).status, 200);
  const ready = await get(server, '/readyz');
  assert.equal(ready.status, 503);
  assert.match(ready.text, why);
  assert.match((await get(server, '/metrics')).text, /^sluice_users_accepted_total 0$/m);
}

/** When it is announced again: before, the port is closed for a moment. */
async function hasStarted(server: TestServer): Promise<void> {
  await eventually('it has started', () => server.stdout().split('is listening on').length > 2, DEADLINE_MS);
}

async function becomesReady(server: TestServer): Promise<void> {
  await eventually('it is ready', async () => (await get(server, '/readyz')).status === 200, DEADLINE_MS);
}

/** New connections are spread over the edges. */
async function everyEdgeIsReady({ port }: TestServer): Promise<void> {
  const statusOfOne = async (): Promise<number> => {
    const connection = await Connection.open(port);
    const { status } = await connection.request('GET', '/readyz');
    connection.close();
    return status;
  };
  const areAllReady = async (): Promise<boolean> =>
    (await Promise.all(Array.from({ length: 12 }, statusOfOne))).every((status) => status === 200);
  await eventually('all edges are ready', areAllReady, DEADLINE_MS);
}

async function keyOf(server: TestServer): Promise<string> {
  return eventually('it prints a key', () => /sk_dev_[0-9A-Za-z]{38}/.exec(server.stdout())?.[0], DEADLINE_MS);
}

/** Made with the command: the server that starts first creates the first account. */
async function madeKey(env: Record<string, string>): Promise<string> {
  const words = ['keys', 'create', '--name', 'x', '--kind', 'secret', '--env', 'development', '--json'];
  return (JSON.parse((await runSluice(words, env)).stdout) as { key: string }).key;
}

async function assertProcessed(edge: TestServer, api: TestServer, key: string): Promise<void> {
  const accepted = await post(edge, key, { users: [user('late')] });
  assert.equal(accepted.status, 202, accepted.text);
  const { trace_id } = accepted.body as { trace_id: string };
  await eventually(
    'it is processed',
    async () => (await get(api, `/traces/${trace_id}`, key)).text.includes('"processed"'),
    DEADLINE_MS,
  );
}

suite('A server that starts before its database', { skip: whyNoPostgres('own'), timeout: 240_000 }, () => {
  const scope: Scope = new AsyncDisposableStack();
  let postgres: OwnPostgres;

  before(async () => {
    postgres = await ownPostgres();
    scope.defer(() => postgres.close());
    await postgres.stop('fast');
  });
  afterEach(() => postgres.stop('fast'));
  after(() => scope.disposeAsync());

  test('with a log of its own: 503 until the keys can be read, then everything', async () => {
    const env = { STORE_URL: postgres.url };
    const server = await launch(scope, { dataFolder: folderIn(scope), env, args: ['--edges', '2'] });
    await assertWaiting(server, /the database cannot be used yet: PostgreSQL cannot be reached: connect ECONNREFUSED/);
    const refused = await post(server, SOME_KEY, { users: [user('early')] });
    assert.deepEqual([refused.status, refused.headers.get('retry-after')], [503, '1']);
    assert.equal((await get(server, '/profiles?user_id=early', SOME_KEY)).status, 503);
    assert.match(server.stdout(), /and waits; GET/);
    for (const path of ['/', '/dashboard', '/docs', '/health', '/nothing']) {
      const response = await get(server, path);
      assert.deepEqual([path, response.status, response.headers.get('retry-after')], [path, 503, '1']);
      const { trace_id } = response.body as { trace_id: string };
      assert.equal(response.headers.get('x-trace-id'), trace_id);
    }
    const script = (await get(server, '/ingest/sluice.js')).status;

    await postgres.start();
    await hasStarted(server);
    assert.equal((await get(server, '/ingest/sluice.js')).status, script);
    await everyEdgeIsReady(server);
    await assertProcessed(server, server, await keyOf(server));
    // Now that the keys can be read, one that does not exist is known not to.
    assert.equal((await post(server, SOME_KEY, { users: [user('x')] })).status, 401);
    assert.equal(await server.stop(), 0, server.stderr());
    assert.doesNotMatch(server.stderr(), /"stack"|failed unexpectedly|crashed/);
    assert.equal(server.stderr().split('"msg":"the database cannot be used yet').length - 1, 1, server.stderr());
    assert.equal(server.stderr().split('the database has been reached').length - 1, 1, server.stderr());
  });

  test('refuses no key until it can look one up, and web pages can read that', async () => {
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL: postgres.url } });
    const requestFrom = (path: string, method: string, headers: Record<string, string> = {}): Promise<HttpResponse> =>
      fetch(`${server.baseUrl}${path}`, { method, headers: { origin: 'https://shop.example', ...headers } }).then(
        readResponse,
      );
    for (const path of ['/ingest/events', '/ingest/events/check', '/ingest/v1/track']) {
      const preflight = await requestFrom(path, 'OPTIONS', { 'access-control-request-method': 'POST' });
      assert.equal(preflight.status, 204, path);
      assert.equal(preflight.headers.get('access-control-allow-origin'), '*');
      assert.match(preflight.headers.get('access-control-allow-headers') ?? '', /Authorization/);
      for (const authorization of ['Bearer x', `Bearer ${SOME_KEY}`, '']) {
        const refused = await requestFrom(path, 'POST', { authorization });
        assert.equal(refused.status, path.includes('/v1/') ? 429 : 503, path);
        assert.equal(refused.headers.get('retry-after'), '1');
        assert.equal(refused.headers.get('access-control-allow-origin'), '*');
        assert.match(refused.headers.get('access-control-expose-headers') ?? '', /Retry-After/);
        const { error, trace_id } = refused.body as { error: string; trace_id: string };
        assert.deepEqual([error, trace_id], ['service temporarily unavailable', refused.headers.get('x-trace-id')]);
      }
    }
    const metrics = (await get(server, '/metrics')).text;
    for (const line of [
      'sluice_ready 0',
      'sluice_requests_total{status="503"} 6',
      'sluice_requests_total{status="429"} 3',
      'sluice_unavailable_total{reason="keys"} 9',
    ]) {
      assert.ok(metrics.includes(`\n${line}\n`), line);
    }
    assert.equal(await server.stop(), 0, server.stderr());
  });

  test('loses it again, with no key in use: not ready until the database is back', async () => {
    await postgres.start();
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL: postgres.url } });
    await becomesReady(server);
    await postgres.stop('fast');
    const reason = /keys cannot be read, and none was confirmed within the last ten minutes: .*PostgreSQL/;
    await eventually('it is not ready', async () => reason.test((await get(server, '/readyz')).text), DEADLINE_MS);
    assert.equal((await post(server, SOME_KEY, { users: [user('early')] })).status, 503);
    const isReady = async (value: number): Promise<boolean> =>
      (await get(server, '/metrics')).text.includes(`\nsluice_ready ${value}\n`);
    await eventually('the metric says so', () => isReady(0), DEADLINE_MS);
    await postgres.start();
    await becomesReady(server);
    await eventually('the metric says so', () => isReady(1), DEADLINE_MS);
    assert.equal(await server.stop(), 0, server.stderr());
  });

  test('with Kafka: the edge, the processor and the API server', { skip: whyNoKafka() }, async () => {
    const { brokers, newTopicName } = await testKafka();
    const env = { STORE_URL: postgres.url, LOG_URL: `kafka://${brokers}/${newTopicName()}?replication=1&partitions=4` };
    const start = (role: string): Promise<TestServer> =>
      launch(scope, { dataFolder: `${folderIn(scope)}/none`, env, args: ['--role', role] });
    const edge = await start('edge');
    const [processor, api] = await Promise.all([start('processor'), start('api')]);
    for (const server of [edge, processor, api]) await assertWaiting(server, /cannot be reached: connect ECONNREFUSED/);
    assert.equal((await post(edge, SOME_KEY, { users: [user('early')] })).status, 503);
    // One that is stopped while it waits has nothing to wait for.
    const other = await start('processor');
    assert.equal(await other.stop(), 0, other.stderr());

    await postgres.start();
    for (const server of [edge, processor, api]) {
      await hasStarted(server);
      await becomesReady(server);
    }
    const key = await madeKey(env);
    await assertProcessed(edge, api, key);
    for (const server of [edge, processor, api]) {
      assert.equal(await server.stop(), 0, server.stderr());
      assert.doesNotMatch(server.stderr(), /"stack"|failed unexpectedly|crashed/);
    }
  });

  test('says why it waits for connections, and stops when it is asked to', async () => {
    await postgres.start();
    const url = new URL(await postgres.newDatabase());
    await withClient(url.href, async (client) => {
      await client.query(`CREATE ROLE few LOGIN PASSWORD 'few' CONNECTION LIMIT 1`);
      await client.query(`ALTER DATABASE ${url.pathname.slice(1)} OWNER TO few`);
    });
    [url.username, url.password] = ['few', 'few'];
    const env = { ...PROGRAM_ENV, ...TEST_SETTINGS, PORT: '0', SLUICE_DATA: folderIn(scope), STORE_URL: url.href };
    const child = spawn(process.execPath, [MAIN, 'serve'], { env, stdio: ['ignore', 'ignore', 'pipe'] });
    scope.defer(() => void child.kill('SIGKILL'));
    const ended = once(child, 'close');
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    const words =
      /too many connections for role .*"the processor cannot use the database: the server has not started yet/;
    await eventually('it says why', () => words.test(stderr), DEADLINE_MS);
    child.kill('SIGINT');
    assert.deepEqual(await ended, [1, null], stderr);
    assert.match(stderr, /"stopped before the start was complete"/);
  });

  test('ends with words when the database comes and there is none of that name', async () => {
    const url = new URL(postgres.url);
    url.pathname = '/no_such_database';
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL: url.href } });
    await assertWaiting(server, /cannot be reached/);
    await postgres.start();
    assert.equal(await server.ended, 1, server.stderr());
    assert.match(server.stderr(), /^sluice: There is no such database at /m);
    assert.ok(!server.stderr().includes(url.password));
  });
});

suite('A server that starts on a bad connection to its database', { skip: whyNoPostgres(), timeout: 240_000 }, () => {
  test('that hangs: starts after a moment, and stops when it is asked to', async () => {
    await using scope = new AsyncDisposableStack();
    const wire = await openWireTo(await (await testPostgres()).newDatabase());
    scope.defer(() => wire.close());
    wire.cut();
    const env = { STORE_URL: wire.url };
    const server = await launch(scope, { dataFolder: folderIn(scope), env, args: ['--edges', '2'] });
    await assertWaiting(server, /the database cannot be used yet/);
    assert.equal((await post(server, SOME_KEY, { users: [user('early')] })).status, 503);
    assert.equal(await server.stop(), 0, server.stderr());
  });

  test('that is lost again: responds until the first edge can open its log', async () => {
    await using scope = new AsyncDisposableStack();
    const url = new URL(await (await testPostgres()).newDatabase());
    const { port, hostname: host } = url;
    let lost = 'application_name';
    const fateOf = (piece: Buffer): Fate => (lost !== '' && piece.includes(lost) ? 'lost' : 'passes');
    const wire = await openWire({ port: () => Number(port), host, fateOf });
    scope.defer(() => wire.close());
    url.host = `127.0.0.1:${wire.port}`;
    const env = { STORE_URL: url.href };
    const server = await launch(scope, { dataFolder: folderIn(scope), env, args: ['--edges', '2'] });
    await assertWaiting(server, /the database cannot be used yet/);
    lost = 'sluice edge';
    const words = '"the edge cannot open the log: the server has not started yet, and keeps retrying"';
    await eventually('the edge retries', () => server.stderr().includes(words), DEADLINE_MS);
    await assertWaiting(server, /the server is starting/);
    assert.equal((await post(server, SOME_KEY, { users: [user('early')] })).status, 503);
    lost = '';
    await hasStarted(server);
    await everyEdgeIsReady(server);
    await assertProcessed(server, server, await keyOf(server));
    assert.match((await get(server, '/metrics')).text, /^sluice_ready 1$/m);
    assert.equal(await server.stop(), 0, server.stderr());
    assert.equal(server.stderr().split('"the edge can open the log"').length - 1, 1, server.stderr());
  });
});
