/**
 * The ledger test while processors come and go: killed in the middle of a batch, joined by others, stopped in order. The
 * edges do not notice, and whatever was acknowledged has its effect exactly once.
 */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { Client } from 'pg';
import { seededRandom } from '../faults/ledger.ts';
import type { Scope } from '../faults/scope.ts';
import { eventually, sleep, type TestServer } from '../server.ts';
import { testKafka, whyNoKafka } from '../servers/kafka.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { assertStoredOnce, lookOn } from './audit.ts';
import { ClientLedger, startClients } from './clients.ts';
import { assertUnharmed, install, type Installation, metricOf, works } from './installation.ts';
import { openWire } from './wire.ts';

const CLIENTS = 4;
const PARTITIONS = 6;
const KILLS = 2;
const BATCHES_BEFORE_KILL = 3;
/** More than Kafka waits for a member. */
const STALL_MS = 3_500;
const LOST_ANSWERS_MIN = 8;
/** Kafka misses a member that was killed after seconds only; until then its partitions rest. */
const DEADLINE_MS = 150_000;

/** Resolves so long after a processor began a transaction that is still open. */
async function inTransaction(storeUrl: string, ms: number): Promise<void> {
  const client = new Client({ connectionString: storeUrl });
  await client.connect();
  const isOpen = async (): Promise<boolean> => {
    const { rowCount } = await client.query(
      `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'sluice processor'
         AND xact_start IS NOT NULL AND state <> 'idle' AND clock_timestamp() - xact_start > $1 * interval '1 ms'`,
      [ms],
    );
    return (rowCount ?? 0) > 0;
  };
  try {
    const until = performance.now() + DEADLINE_MS;
    while (!(await isOpen())) assert.ok(performance.now() < until, 'no processor has a transaction');
  } finally {
    await client.end();
  }
}

suite('While processors come and go', { skip: whyNoKafka() || whyNoPostgres(), timeout: 600_000 }, () => {
  const scope: Scope = new AsyncDisposableStack();
  let storeUrl: string;
  let installation: Installation;
  let edges: TestServer[];
  const ports = (): number[] => edges.map(({ port }) => port);

  before(async () => {
    const { brokers, newTopicName } = await testKafka();
    storeUrl = await (await testPostgres()).newDatabase();
    installation = await install(scope, { brokers, topic: newTopicName(), partitions: PARTITIONS, storeUrl });
    edges = await Promise.all([installation.start('edge'), installation.start('edge')]);
  });
  after(() => scope.disposeAsync());

  const conflictsOf = (processor: TestServer): Promise<number> => metricOf(processor, 'sluice_store_conflicts_total');

  test(`${KILLS} times kill -9 of the only processor: what was acknowledged is stored once`, async (t) => {
    const random = seededRandom((line) => t.diagnostic(line));
    const { api, start, newTenant } = installation;
    const [key, first] = await Promise.all([newTenant(), start('processor')]);
    const ledger = new ClientLedger(random);
    const clients = startClients({ signal: t.signal, ledger, key, clients: CLIENTS, ports });
    const onlooker = lookOn(api, key, ledger, t.signal);
    let processor = first;
    for (let kill = 0; kill < KILLS; kill++) {
      await works(processor);
      await inTransaction(storeUrl, random() * 30);
      assert.equal(await processor.kill('SIGKILL'), 'SIGKILL');
      processor = await start('processor');
    }
    await works(processor);
    await clients.stop();
    const looks = await onlooker.stop();
    const { events } = await assertStoredOnce(api, key, ledger);
    t.diagnostic(`${ledger.summary()}; ${looks} looks; ${events} events`);
    assert.equal(ledger.count(202), ledger.tries.length, 'the edges noticed');
    assertUnharmed([api, processor, ...edges]);
    assert.equal(await processor.stop(), 0, processor.stderr());
  });

  test('one stalls, a second joins, the first is back and stopped, a third joins, the second is killed', async (t) => {
    const random = seededRandom((line) => t.diagnostic(line));
    const { api, start, newTenant } = installation;
    const [key, first] = await Promise.all([newTenant(), start('processor')]);
    const ledger = new ClientLedger(random);
    const clients = startClients({ signal: t.signal, ledger, key, clients: CLIENTS, ports });
    const onlooker = lookOn(api, key, ledger, t.signal);
    await works(first);
    await inTransaction(storeUrl, 0);
    // Taken for dead in the middle of a batch, and back when its partitions are another's.
    process.kill(first.pid, 'SIGSTOP');
    const second = await start('processor');
    await sleep(STALL_MS);
    process.kill(first.pid, 'SIGCONT');
    await works(second, BATCHES_BEFORE_KILL);
    await works(first);
    const conflicts = [await conflictsOf(first)];
    assert.equal(await first.stop(), 0, first.stderr());
    await works(second);
    const third = await start('processor');
    await works(third, BATCHES_BEFORE_KILL);
    await works(second);
    conflicts.push(await conflictsOf(second));
    assert.equal(await second.kill('SIGKILL'), 'SIGKILL');
    await works(third, BATCHES_BEFORE_KILL);
    await clients.stop();
    const looks = await onlooker.stop();
    const { events } = await assertStoredOnce(api, key, ledger);
    conflicts.push(await conflictsOf(third));
    t.diagnostic(`${ledger.summary()}; ${looks} looks; ${events} events; conflicts of each: ${conflicts.join(', ')}`);
    assert.equal(ledger.count(202), ledger.tries.length, 'the edges noticed');
    assertUnharmed([api, first, second, third, ...edges]);
    assert.equal(await third.stop(), 0, third.stderr());
  });

  test('a response that is lost on its way to the client: the request comes again and is stored once', async (t) => {
    const random = seededRandom((line) => t.diagnostic(line));
    const { api, start, newTenant } = installation;
    const [key, processor] = await Promise.all([newTenant(), start('processor')]);
    const ledger = new ClientLedger(random);
    const wires = await Promise.all(
      edges.map(({ port }) =>
        openWire({
          port: () => port,
          fateOf: () => (random() < 0.15 ? 'unanswered' : 'passes'),
          isClientInformed: () => random() < 0.7,
        }),
      ),
    );
    for (const wire of wires) scope.defer(() => wire.close());
    const wirePorts = (): number[] => wires.map(({ port }) => port);
    const clients = startClients({
      signal: t.signal,
      ledger,
      key,
      clients: CLIENTS,
      ports: wirePorts,
      responseMsMax: 1_000,
    });
    const onlooker = lookOn(api, key, ledger, t.signal);
    const lost = (): number => wires.reduce((sum, wire) => sum + wire.lost, 0);
    await eventually('enough answers were lost', () => lost() >= LOST_ANSWERS_MIN, DEADLINE_MS);
    await clients.stop();
    const looks = await onlooker.stop();
    const { events, duplicates } = await assertStoredOnce(api, key, ledger);
    t.diagnostic(
      `${ledger.summary()}; ${looks} looks; ${lost()} answers lost; ${events} events, ${duplicates} users came again`,
    );
    assert.ok(duplicates > 0, 'no request came again after it was stored');
    assertUnharmed([api, processor, ...edges]);
    assert.equal(await processor.stop(), 0, processor.stderr());
  });
});
