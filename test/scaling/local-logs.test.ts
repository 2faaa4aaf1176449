/**
 * The ledger test with PostgreSQL alone: two servers that do everything, each with a log in its own data folder, and a
 * store that they share. One is killed under load and started again on its folder, time and again. Some responses are lost:
 * then the same request is in both logs, and both servers come to it at about the same time.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { seededRandom } from '../faults/ledger.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { eventually, sleep, type TestServer } from '../server.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { assertStoredOnce, settled } from './audit.ts';
import { ClientLedger, startClients } from './clients.ts';
import { assertUnharmed } from './installation.ts';
import { openWire } from './wire.ts';

const CLIENTS = 4;
const KILLS = 2;
const LOST_SHARE = 0.1;
const ANSWERS_PER_ROUND = 40;
const DEADLINE_MS = 150_000;

suite('Two servers with a log each and one PostgreSQL', { skip: whyNoPostgres(), timeout: 600_000 }, () => {
  test(`${KILLS} times kill -9 of one of them: what was acknowledged is stored once`, async (t) => {
    const random = seededRandom((line) => t.diagnostic(line));
    await using scope = new AsyncDisposableStack();
    const env = { STORE_URL: await (await testPostgres()).newDatabase(), SLUICE_STORE_CONNECTIONS: '4' };
    const folders = [folderIn(scope), folderIn(scope)];
    const start = (index: number): Promise<TestServer> =>
      launch(scope, { dataFolder: folders[index] as string, env, args: ['--log-segment', '1MB'] });
    const servers = [await start(0), await start(1)];
    const key = servers[0]?.key ?? '';
    const wires = await Promise.all(
      [0, 1].map((index) =>
        openWire({
          port: () => servers[index]?.port ?? 0,
          fateOf: () => (random() < LOST_SHARE ? 'unanswered' : 'passes'),
        }),
      ),
    );
    for (const wire of wires) scope.defer(() => wire.close());
    const ledger = new ClientLedger(random);
    const clients = startClients({
      signal: t.signal,
      ledger,
      key,
      clients: CLIENTS,
      ports: () => wires.map(({ port }) => port),
    });
    for (let kill = 0; kill < KILLS; kill++) {
      const before = ledger.acknowledged;
      await eventually('more answers', () => ledger.acknowledged >= before + ANSWERS_PER_ROUND, DEADLINE_MS);
      await sleep(random() * 30);
      const index = kill % 2;
      assert.equal(await servers[index]?.kill('SIGKILL'), 'SIGKILL');
      // The other one serves all clients meanwhile.
      await eventually(
        'answers of the other',
        () => ledger.acknowledged >= before + 1.5 * ANSWERS_PER_ROUND,
        DEADLINE_MS,
      );
      servers[index] = await start(index);
    }
    await clients.stop();
    // Each knows what waits in its own log.
    for (const server of servers) await settled(server, key);
    const audits = [];
    for (const server of servers) audits.push(await assertStoredOnce(server, key, ledger));
    const [{ events, duplicates } = { events: 0, duplicates: 0 }] = audits;
    t.diagnostic(`${ledger.summary()}; ${events} events, ${duplicates} users came again`);
    assert.ok(duplicates > 0, 'no request came again after it was stored');
    assert.ok(ledger.count('lost') > 0, 'no client noticed');
    assertUnharmed(servers);
    for (const server of servers) assert.equal(await server.stop(), 0, server.stderr());
  });
});
