/**
 * The ledger test while PostgreSQL is away: stopped as by a crash, or behind a network that swallows packets, at any
 * moment and in the moment of a COMMIT. The edges take in events all the time, and all of them have their effect once.
 */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { seededRandom } from '../faults/ledger.ts';
import type { Scope } from '../faults/scope.ts';
import { eventually, sleep, type TestServer } from '../server.ts';
import { testKafka, whyNoKafka } from '../servers/kafka.ts';
import { type OwnPostgres, ownPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { assertStoredOnce, lookOn } from './audit.ts';
import { ClientLedger, startClients } from './clients.ts';
import { assertUnharmed, becomesReady, install, type Installation, metricOf, works } from './installation.ts';
import { type Fate, openWire, type Wire, type WireOptions } from './wire.ts';

const CLIENTS = 4;
const PARTITIONS = 6;
const STOPS = 2;
const ANSWERS_WHILE_AWAY = 40;
/** Messages to or from the database that short cuts have to catch. */
const DELAYED_MIN = 8;
/** Twice each way in which a COMMIT is lost. */
const COMMITS_LOST = 6;
const FATES: readonly Fate[] = ['passes', 'lost', 'unanswered', 'late'];
/** As PostgreSQL's clients send it: a simple query. */
const COMMIT = Buffer.from('Q\0\0\0\x0bCOMMIT\0');
/** So that silence is noticed within seconds. */
const IMPATIENT = { SLUICE_STORE_TIMEOUT: '2s' };
const DEADLINE_MS = 150_000;

suite('While PostgreSQL is away', { skip: whyNoPostgres('own') || whyNoKafka(), timeout: 600_000 }, () => {
  const scope: Scope = new AsyncDisposableStack();
  let postgres: OwnPostgres;
  let installation: Installation;
  let edges: TestServer[];
  const ports = (): number[] => edges.map(({ port }) => port);

  before(async () => {
    postgres = await ownPostgres();
    scope.defer(() => postgres.close());
    const { brokers, newTopicName } = await testKafka();
    const topic = newTopicName();
    installation = await install(scope, { brokers, topic, partitions: PARTITIONS, storeUrl: postgres.url });
    edges = await Promise.all([installation.start('edge'), installation.start('edge')]);
  });
  after(() => scope.disposeAsync());

  /** A wire to the database, and the settings to use it. */
  const openDatabaseWire = async (options: Omit<WireOptions, 'port'> = {}): Promise<[Wire, Record<string, string>]> => {
    const url = new URL(postgres.url);
    const port = Number(url.port);
    const wire = await openWire({ ...options, port: () => port });
    scope.defer(() => wire.close());
    url.port = String(wire.port);
    url.searchParams.set('connect_timeout', '2');
    return [wire, { ...IMPATIENT, STORE_URL: url.href }];
  };

  test(`stopped ${STOPS} times as by a crash: 202 all the time, 503 to who reads, one effect`, async (t) => {
    const { api, start, newTenant } = installation;
    const [key, ...processors] = await Promise.all([newTenant(), start('processor'), start('processor')]);
    const ledger = new ClientLedger(seededRandom((line) => t.diagnostic(line)));
    const clients = startClients({ signal: t.signal, ledger, key, clients: CLIENTS, ports });
    const onlooker = lookOn(api, key, ledger, t.signal);
    const read = async (): Promise<number> =>
      (await fetch(`${api.baseUrl}/ledger`, { headers: { authorization: `Bearer ${key}` } })).status;
    for (let stop = 0; stop < STOPS; stop++) {
      await Promise.all(processors.map((processor) => works(processor)));
      await postgres.stop('immediate');
      const before = ledger.acknowledged;
      assert.equal(await read(), 503);
      const isEnough = (): boolean => ledger.acknowledged >= before + ANSWERS_WHILE_AWAY;
      await eventually('answers without the database', isEnough, DEADLINE_MS);
      assert.equal(await read(), 503);
      await postgres.start();
      await Promise.all([api, ...processors].map(becomesReady));
      assert.equal(await read(), 200);
    }
    await clients.stop();
    const looks = await onlooker.stop();
    const { events } = await assertStoredOnce(api, key, ledger);
    t.diagnostic(`${ledger.summary()}; ${looks} looks; ${events} events`);
    assert.equal(ledger.count(202), ledger.tries.length, 'the edges noticed');
    assertUnharmed([api, ...processors, ...edges]);
    for (const processor of processors) {
      assert.match(processor.stderr(), /the processor waits/);
      assert.equal(await processor.stop(), 0, processor.stderr());
    }
  });

  test('behind a network that is cut for long, and many times for a moment: one effect', async (t) => {
    const random = seededRandom((line) => t.diagnostic(line));
    const { api, start, newTenant } = installation;
    const [wire, env] = await openDatabaseWire();
    const [key, processor, edge] = await Promise.all([newTenant(), start('processor', env), start('edge', env)]);
    const ledger = new ClientLedger(random);
    const clients = startClients({ signal: t.signal, ledger, key, clients: CLIENTS, ports: () => [edge.port] });
    const onlooker = lookOn(api, key, ledger, t.signal);
    await works(processor);
    let cuts = 0;
    for (const until = performance.now() + DEADLINE_MS; wire.delayed < DELAYED_MIN; cuts++) {
      assert.ok(performance.now() < until, 'the cuts are not noticed');
      await sleep(random() * 150);
      wire.cut();
      await sleep(random() * 150);
      wire.repair();
    }
    await works(processor);
    wire.cut();
    await eventually('the processor gives up', () => /the processor waits/.test(processor.stderr()), DEADLINE_MS);
    wire.repair();
    await works(processor);
    await clients.stop();
    const looks = await onlooker.stop();
    const { events } = await assertStoredOnce(api, key, ledger);
    t.diagnostic(
      `${ledger.summary()}; ${looks} looks; ${events} events; ${cuts} short cuts, ${wire.delayed} messages of the database came late`,
    );
    assert.equal(ledger.count(202), ledger.tries.length, 'the edge refused something');
    assertUnharmed([api, processor, edge]);
    for (const server of [edge, processor]) assert.equal(await server.stop(), 0, server.stderr());
  });

  test('with the connection lost at COMMIT, before it was done, after it or meanwhile: one effect', async (t) => {
    const random = seededRandom((line) => t.diagnostic(line));
    const { api, start, newTenant } = installation;
    const rest: Fate[] = [];
    const fates = { passes: 0, lost: 0, unanswered: 0, late: 0 };
    const fatal = (): number => fates.lost + fates.unanswered + fates.late;
    const fateOf = (piece: Buffer): Fate => {
      if (fatal() >= COMMITS_LOST || !piece.includes(COMMIT)) return 'passes';
      // As many of each, in random order.
      if (rest.length === 0) rest.push(...FATES);
      const [fate = 'passes'] = rest.splice(Math.floor(random() * rest.length), 1);
      fates[fate] += 1;
      return fate;
    };
    // For all but the last the connection ends at once.
    const isClientInformed = (): boolean => fatal() < COMMITS_LOST;
    const [wire, env] = await openDatabaseWire({ fateOf, isClientInformed });
    const [key, processor] = await Promise.all([newTenant(), start('processor', env)]);
    const ledger = new ClientLedger(random);
    const clients = startClients({ signal: t.signal, ledger, key, clients: CLIENTS, ports });
    const onlooker = lookOn(api, key, ledger, t.signal);
    await eventually('enough of them are lost', () => wire.lost >= COMMITS_LOST, DEADLINE_MS);
    await works(processor);
    await clients.stop();
    const looks = await onlooker.stop();
    const { events } = await assertStoredOnce(api, key, ledger);
    const conflicts = await metricOf(processor, 'sluice_store_conflicts_total');
    t.diagnostic(
      `${ledger.summary()}; ${looks} looks; ${events} events; ${JSON.stringify(fates)}, ${conflicts} conflicts`,
    );
    assert.deepEqual([fates.lost, fates.unanswered, fates.late], [2, 2, 2]);
    assertUnharmed([api, processor, ...edges]);
    assert.equal(await processor.stop(), 0, processor.stderr());
  });
});
