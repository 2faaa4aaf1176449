/**
 * The drills of docs/backup.md, as an operator would do them: `pg_dump` while a server runs under load, more traffic, the
 * database is lost and restored from the dump. Everything acknowledged is stored once afterwards, because the log continues
 * from the positions in the database: with logs in data folders, with Kafka, and when a data folder is lost as well.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { seededRandom } from '../faults/ledger.ts';
import { folderIn, launch, type Scope } from '../faults/scope.ts';
import { eventually, runSluice, type TestServer } from '../server.ts';
import { testKafka, whyNoKafka } from '../servers/kafka.ts';
import { dumpDatabase, restoreDatabase, testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { assertStoredOnce } from './audit.ts';
import { ClientLedger, startClients } from './clients.ts';

const REQUESTS = 40;
const DEADLINE_MS = 60_000;

interface Running {
  readonly server: TestServer;
  readonly ledger: ClientLedger;
  /** Resolves when so many more are acknowledged. */
  readonly more: () => Promise<void>;
  readonly stop: () => Promise<void>;
}

function underLoad(server: TestServer, random: () => number, signal: AbortSignal): Running {
  const ledger = new ClientLedger(random);
  const clients = startClients({ signal, ledger, key: server.key, clients: 3, ports: () => [server.port] });
  const more = async (): Promise<void> => {
    const before = ledger.acknowledged;
    await eventually('more is acknowledged', () => ledger.acknowledged >= before + REQUESTS, DEADLINE_MS);
  };
  return { server, ledger, more, stop: () => clients.stop() };
}

suite('A database that is restored from a dump', { skip: whyNoPostgres() || whyNoKafka(), timeout: 300_000 }, () => {
  const logs: [name: string, logUrl: () => Promise<Record<string, string>>][] = [
    ['the log in the data folder', async () => ({})],
    [
      'Kafka',
      async () => {
        const { brokers, newTopicName } = await testKafka();
        return { LOG_URL: `kafka://${brokers}/${newTopicName()}?replication=1&partitions=2` };
      },
    ],
  ];
  for (const [name, logUrl] of logs) {
    test(`continues from its positions in ${name}: what came after the dump is stored once, too`, async (t) => {
      const random = seededRandom((line) => t.diagnostic(line));
      await using scope = new AsyncDisposableStack();
      const dumped = join(folderIn(scope), 'sluice.dump');
      const dataFolder = join(folderIn(scope), 'data');
      const env = { STORE_URL: await (await testPostgres()).newDatabase(), ...(await logUrl()) };
      const running = underLoad(await launch(scope, { dataFolder, env }), random, t.signal);
      await running.more();
      await dumpDatabase(env.STORE_URL, dumped);
      await running.more();
      await running.stop();
      await running.server.kill('SIGKILL');

      const restored = { ...env, STORE_URL: await restoreDatabase(dumped) };
      const server = await launch(scope, { dataFolder, env: restored });
      const { events } = await assertStoredOnce(server, running.server.key, running.ledger);
      assert.ok(events > 0);
    });
  }

  test('and a log from a backup taken after the dump: everything acknowledged before that is stored once', async (t) => {
    const random = seededRandom((line) => t.diagnostic(line));
    await using scope: Scope = new AsyncDisposableStack();
    const place = folderIn(scope);
    const dataFolder = join(folderIn(scope), 'data');
    const STORE_URL = await (await testPostgres()).newDatabase();
    const running = underLoad(await launch(scope, { dataFolder, env: { STORE_URL } }), random, t.signal);
    await running.more();
    await dumpDatabase(STORE_URL, join(place, 'sluice.dump'));
    await running.more();
    await running.stop();
    const to = join(place, 'log.tar.zst');
    const made = await runSluice(['backup', '--to', to, '--verify', '--data', dataFolder], { STORE_URL });
    assert.equal(made.code, 0, made.stderr);
    assert.match(made.stdout, /PostgreSQL is not part of it/);
    await running.server.kill('SIGKILL');

    const env = { STORE_URL: await restoreDatabase(join(place, 'sluice.dump')) };
    const data = join(folderIn(scope), 'data');
    const { code, stderr } = await runSluice(['restore', '--from', to, '--data', data, '--verify'], env);
    assert.equal(code, 0, stderr);
    const server = await launch(scope, { dataFolder: data, env });
    await assertStoredOnce(server, running.server.key, running.ledger);
  });
});
