/**
 * `sluice serve` with STORE_URL on a real PostgreSQL, and the commands beside it: what is sent is read back, keys made
 * and revoked elsewhere hold here, the folder holds the log alone, and servers that start at once make one account.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { suite, test } from 'node:test';
import { keyFileOf, storeFileOf } from '../../src/data-folder/files.ts';
import { folderIn, launch, refusedStart } from '../faults/scope.ts';
import {
  eventually,
  get,
  type HttpResponse,
  MAIN,
  post,
  processed,
  PROGRAM_ENV,
  runSluice,
  sleep,
  startServer,
  user,
} from '../server.ts';
import { ownPostgres, testPostgres, whyNoPostgres } from '../servers/postgres.ts';

interface Profile {
  readonly id: string;
  readonly event_count: number;
}

function traceIdOf({ body }: { readonly body: unknown }): string {
  return (body as { trace_id: string }).trace_id;
}

/** The first line of `sluice tail` for an event that is sent while it runs. */
async function tailed(env: Readonly<Record<string, string>>, send: () => Promise<HttpResponse>): Promise<string> {
  const tail = spawn(process.execPath, [MAIN, 'tail', '--json'], { env: { ...PROGRAM_ENV, ...env } });
  const ended = once(tail, 'close');
  let out = '';
  tail.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  try {
    // It shows what comes after it has started to look, which it does not say.
    await eventually('the event is shown', async () => {
      assert.equal((await send()).status, 202);
      await sleep(300);
      return out.includes('\n');
    });
  } finally {
    tail.kill('SIGINT');
  }
  assert.deepEqual(await ended, [0, null]);
  return out;
}

suite('A server with STORE_URL', { skip: whyNoPostgres(), timeout: 120_000 }, () => {
  test('stores what is sent in PostgreSQL, and nothing but the log in its folder', async () => {
    await using scope = new AsyncDisposableStack();
    const STORE_URL = await (await testPostgres()).newDatabase();
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL } });
    assert.match(server.key, /^sk_dev_/);
    const sent = await post(server, server.key, { users: [user('ada'), user('bob')] });
    assert.equal(sent.status, 202);
    await processed(server, server.key, traceIdOf(sent));
    const { status, body } = await get(server, server.key, '/profiles?user_id=ada');
    assert.equal(status, 200);
    assert.equal((body as Profile).event_count, 1);
    assert.ok(!existsSync(storeFileOf(server.dataFolder)));
    assert.ok(!existsSync(keyFileOf(server.dataFolder)));
    assert.ok(readdirSync(server.dataFolder).includes('log'));

    const health = await get(server, server.key, '/health');
    const password = new URL(STORE_URL).password;
    assert.equal(health.status, 200);
    assert.ok(password.length > 0 && !health.text.includes(password));
    assert.match(health.text, /postgres:\/\/sluice:…@/);
    assert.equal(await server.stop(), 0);
    assert.ok(!server.stderr().includes(password) && !server.stdout().includes(password));
  });

  test('continues after a restart where it was, and prints no second key', async () => {
    await using scope = new AsyncDisposableStack();
    const STORE_URL = await (await testPostgres()).newDatabase();
    const dataFolder = folderIn(scope);
    const first = await launch(scope, { dataFolder, env: { STORE_URL } });
    const traceIds: string[] = [];
    for (let n = 0; n < 20; n++) traceIds.push(traceIdOf(await post(first, first.key, { users: [user(`u${n}`)] })));
    await first.kill('SIGKILL');
    const second = await launch(scope, { dataFolder, env: { STORE_URL } });
    assert.equal(second.key, '');
    for (const traceId of traceIds) await processed(second, first.key, traceId);
    const { body } = await get(second, first.key, '/ledger');
    const sums = (body as { hours: { events: { received: number; stored: number } }[] }).hours;
    assert.deepEqual(
      [
        sums.reduce((sum, { events }) => sum + events.received, 0),
        sums.reduce((sum, { events }) => sum + events.stored, 0),
      ],
      [20, 20],
    );
    assert.equal(await second.stop(), 0);
  });

  test('the commands work on the database, from any folder', async () => {
    await using scope = new AsyncDisposableStack();
    const STORE_URL = await (await testPostgres()).newDatabase();
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL } });
    const elsewhere = { STORE_URL, SLUICE_DATA: `${folderIn(scope)}/none`, SLUICE_DISK_FREE_MIN: '0' };
    const sluice = async (...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await runSluice(args, elsewhere);
      assert.equal(code, 0, `${args.join(' ')}: ${stderr}${stdout}`);
      return stdout;
    };
    const made = await sluice('keys', 'create', '--name', 'x', '--kind', 'secret', '--env', 'development', '--json');
    const { key, id } = JSON.parse(made) as { key: string; id: string };
    const sent = await post(server, key, { users: [user('ada', [{ event_name: 'seen', revenue: 2.5 }])] });
    assert.equal(sent.status, 202);
    await processed(server, key, traceIdOf(sent));

    assert.match(await sluice('trace', traceIdOf(sent)), /processed/);
    assert.match(await sluice('profile', 'user_id=ada'), /user_id +ada/);
    assert.match(await sluice('export', '--format', 'ndjson'), /"event_name":"seen"/);
    assert.match(await sluice('keys', 'list'), /first development key/);
    assert.match(await sluice('invite', '--email', 'ada@example.com'), /postgres:\/\/sluice:…@/);
    assert.match(
      await tailed(elsewhere, () => post(server, key, { users: [user('eve', [{ event_name: 'live' }])] })),
      /live/,
    );
    await sluice('keys', 'revoke', id);
    await eventually(
      'the key is refused',
      async () => (await post(server, key, { users: [user('x')] })).status === 401,
    );

    const doctor = await runSluice(['doctor'], { ...elsewhere, SLUICE_DATA: server.dataFolder });
    assert.equal(doctor.code, 0, doctor.stdout);
    assert.match(doctor.stdout, /✓ database +postgres:\/\/sluice:…@.* responds:\s+PostgreSQL \d+/);
    assert.match(doctor.stdout, /✓ ledger +\d+ events received/);
    assert.ok(!doctor.stdout.includes(new URL(STORE_URL).password));
    assert.match((await runSluice(['config'], elsewhere)).stdout, /STORE_URL +postgres:\/\/sluice:…@/);
  });

  test('the commands that read make nothing in a database that no server has used', async () => {
    const STORE_URL = await (await testPostgres()).newDatabase();
    const env = { STORE_URL, SLUICE_DATA: '/nowhere' };
    const profile = await runSluice(['profile', 'user_id=x'], env);
    assert.equal(profile.code, 1);
    assert.match(profile.stderr, /There is no data in postgres:\/\/sluice:…@.*no server has run there yet/);
    assert.match((await runSluice(['keys', 'list'], env)).stdout, /There are no keys in postgres:/);
    const doctor = await runSluice(['doctor'], env);
    assert.match(doctor.stdout, /! database +it has no Sluice tables yet/);
  });

  test('of several servers that start at once on an empty database, one prints a link and a key', async () => {
    await using scope = new AsyncDisposableStack();
    const STORE_URL = await (await testPostgres()).newDatabase();
    // All are waited for: one that fails must leave none behind.
    const starts = await Promise.allSettled(
      [1, 2, 3].map(() => launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL } })),
    );
    const servers = starts.map((start) =>
      start.status === 'fulfilled' ? start.value : assert.fail(String(start.reason)),
    );
    assert.equal(servers.filter(({ key }) => key !== '').length, 1);
    const links = servers.filter((server) => server.stdout().includes('/dashboard/welcome#'));
    assert.equal(links.length, 1);
    const { stdout } = await runSluice(['keys', 'list', '--json'], { STORE_URL });
    assert.equal((JSON.parse(stdout) as unknown[]).length, 1);
    for (const server of servers) assert.equal(await server.stop(), 0);
  });

  test('refuses a password that is wrong, and a folder whose data was not carried over, in words', async () => {
    await using scope = new AsyncDisposableStack();
    const STORE_URL = await (await testPostgres()).newDatabase();
    const wrong = new URL(STORE_URL);
    wrong.password = 'not-the-password';
    const words = await refusedStart({ dataFolder: folderIn(scope), env: { STORE_URL: wrong.href } });
    assert.match(words, /refuses the user or password in STORE_URL/);
    assert.doesNotMatch(words, /not-the-password/);

    const dataFolder = folderIn(scope);
    const embedded = await startServer({ dataFolder });
    assert.equal((await post(embedded, embedded.key, { users: [user('ada')] })).status, 202);
    await embedded.stop();
    assert.match(await refusedStart({ dataFolder, env: { STORE_URL } }), /sluice migrate/);
  });
});

suite('A server whose PostgreSQL restarts', { skip: whyNoPostgres('own'), timeout: 120_000 }, () => {
  test('responds with 202 all the time, and with 503 to reads until it is back', async () => {
    await using scope = new AsyncDisposableStack();
    const postgres = await ownPostgres();
    scope.defer(() => postgres.close());
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL: postgres.url } });
    const send = async (id: string): Promise<string> => {
      const sent = await post(server, server.key, { users: [user(id)] });
      assert.equal(sent.status, 202, sent.text);
      return traceIdOf(sent);
    };
    await processed(server, server.key, await send('before'));
    await postgres.stop('immediate');
    const traceIds = [await send('away-1'), await send('away-2')];
    const read = await get(server, server.key, '/profiles?user_id=before');
    assert.deepEqual([read.status, read.headers.get('retry-after')], [503, '1']);
    assert.equal((await fetch(`${server.baseUrl}/readyz`)).status, 200);
    await postgres.start();
    for (const traceId of traceIds)
      await eventually(
        'it is processed',
        async () => {
          const { status, body } = await get(server, server.key, `/traces/${traceId}`);
          assert.ok(status === 200 || status === 503 || status === 404, String(status));
          return (body as { status?: string }).status === 'processed';
        },
        30_000,
      );
    assert.equal(await server.stop(), 0);
    assert.doesNotMatch(server.stderr(), /failed unexpectedly|crashed/);
  });
});
