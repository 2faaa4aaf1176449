/**
 * Servers are restarted one after the other under load. Behind a load balancer that asks `/readyz`, clients notice
 * nothing: no connection is refused or lost, and every response is a 202. Without one, clients that try again get all
 * of their requests acknowledged, and each is stored once.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { seededRandom } from '../faults/ledger.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { eventually, type TestServer } from '../server.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { assertStoredOnce, settled } from './audit.ts';
import { openBalancer } from './balancer.ts';
import { ClientLedger, startClients } from './clients.ts';
import { assertUnharmed } from './installation.ts';

const CLIENTS = 8;
const ANSWERS_PER_ROUND = 40;
const DEADLINE_MS = 150_000;

suite('A rolling restart under load', { timeout: 240_000 }, () => {
  test('behind a load balancer: only 202s, nothing refused', { skip: whyNoPostgres() }, async (t) => {
    await using scope = new AsyncDisposableStack();
    const env = {
      STORE_URL: await (await testPostgres()).newDatabase(),
      SLUICE_STORE_CONNECTIONS: '4',
      // The balancer asks every 200 ms; a machine that is busy with other tests may stop for longer.
      SLUICE_DRAIN: '5s',
    };
    const folders = [folderIn(scope), folderIn(scope)];
    const start = (index: number): Promise<TestServer> => launch(scope, { dataFolder: folders[index] as string, env });
    const first = await start(0);
    const servers = [first, await start(1)];
    const { key } = first;
    const balancer = await openBalancer(() => servers.map(({ port }) => port));
    scope.defer(() => balancer.close());
    await eventually('both are ready', () => balancer.ready().length === 2, DEADLINE_MS);
    const ledger = new ClientLedger(seededRandom((line) => t.diagnostic(line)));
    const clients = startClients({ signal: t.signal, ledger, key, clients: CLIENTS, ports: () => [balancer.port] });
    const more = async (): Promise<void> => {
      const enough = ledger.acknowledged + ANSWERS_PER_ROUND;
      await eventually('more responses', () => ledger.acknowledged >= enough, DEADLINE_MS);
    };
    for (const [index, server] of [...servers].entries()) {
      await more();
      assert.equal(await server.stop(), 0, server.stderr());
      await more();
      servers[index] = await start(index);
      await eventually('it is ready again', () => balancer.ready().length === 2, DEADLINE_MS);
    }
    await more();
    await clients.stop();
    t.diagnostic(ledger.summary());
    assert.equal(balancer.refused, 0);
    assert.deepEqual([...new Set(ledger.tries.map(({ end }) => end))], [202]);
    for (const server of servers) await settled(server, key);
    for (const server of servers) await assertStoredOnce(server, key, ledger);
    assertUnharmed(servers);
  });

  test('without a load balancer, clients that try again get everything acknowledged and stored once', async (t) => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    let server = await launch(scope, { dataFolder, env: { SLUICE_DRAIN: '200ms' } });
    const { key, port } = server;
    const ledger = new ClientLedger(seededRandom((line) => t.diagnostic(line)));
    const clients = startClients({ signal: t.signal, ledger, key, clients: CLIENTS, ports: () => [port] });
    for (let round = 0; round < 2; round++) {
      const enough = ledger.acknowledged + ANSWERS_PER_ROUND;
      await eventually('more responses', () => ledger.acknowledged >= enough, DEADLINE_MS);
      assert.equal(await server.stop(), 0, server.stderr());
      server = await launch(scope, { dataFolder, env: { PORT: String(port) } });
    }
    await clients.stop();
    t.diagnostic(ledger.summary());
    assert.ok(ledger.count('refused') > 0, 'no client noticed');
    await assertStoredOnce(server, key, ledger);
  });
});
