/**
 * The ledger test while brokers of Kafka are killed. One of three: the others continue. Two of three: nothing is
 * acknowledged, since there is but one copy, until they are back. What was acknowledged before has its effect once.
 */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { openKafkaLogAppender } from '../../src/backends/kafka/log.ts';
import { KEPT_MS, makeTopic } from '../backends/kafka/log-on-kafka.ts';
import { seededRandom } from '../faults/ledger.ts';
import type { Scope } from '../faults/scope.ts';
import { eventually, type TestServer } from '../server.ts';
import { type OwnKafka, ownKafka, whyNoKafka } from '../servers/kafka.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { assertStoredOnce, lookOn } from './audit.ts';
import { ClientLedger, startClients } from './clients.ts';
import { assertUnharmed, becomesReady, install, type Installation } from './installation.ts';

const CLIENTS = 6;
const PARTITIONS = 6;
const WARM_UP = 30;
const ANSWERS_WITHOUT_ONE = 60;
/** That many refusals of requests that were sent after the brokers were gone. */
const REFUSALS_WITHOUT_TWO = 150;
/** Brokers take seconds to notice, and more on a busy machine. */
const DEADLINE_MS = 60_000;

suite('While brokers of Kafka are gone', { skip: whyNoKafka('own') || whyNoPostgres(), timeout: 600_000 }, () => {
  const scope: Scope = new AsyncDisposableStack();
  let kafka: OwnKafka;
  let installation: Installation;
  let edges: TestServer[];
  let processor: TestServer;
  const ports = (): number[] => edges.map(({ port }) => port);

  before(async () => {
    kafka = await ownKafka(3);
    scope.defer(() => kafka.close());
    const storeUrl = await (await testPostgres()).newDatabase();
    const { brokers, newTopicName } = kafka;
    installation = await install(scope, { brokers, topic: newTopicName(), partitions: PARTITIONS, storeUrl });
    const { start } = installation;
    [processor, ...edges] = await Promise.all([start('processor'), start('edge'), start('edge')]);
  });
  after(() => scope.disposeAsync());

  test('a topic of which one replica is enough is refused, in words', async () => {
    const topic = kafka.newTopicName();
    await makeTopic(kafka.brokers, topic, { replicas: 3, settings: { 'min.insync.replicas': '1' } });
    await assert.rejects(openKafkaLogAppender({ url: `kafka://${kafka.brokers}/${topic}`, retentionMs: KEPT_MS }), {
      name: 'OperatorError',
      message: /min\.insync\.replicas is 1 with 3 replicas.*only one broker has; set it to 2/,
    });
  });

  test('one of three: acknowledgements continue after a moment', async (t) => {
    const { api, newTenant } = installation;
    const key = await newTenant();
    const ledger = new ClientLedger(seededRandom((line) => t.diagnostic(line)));
    const clients = startClients({ signal: t.signal, ledger, key, clients: CLIENTS, ports });
    const onlooker = lookOn(api, key, ledger, t.signal);
    await eventually('some answers', () => ledger.acknowledged >= WARM_UP, DEADLINE_MS);
    await kafka.killBroker(2);
    const killedAt = performance.now();
    const sentSince = (): typeof ledger.tries =>
      ledger.tries.filter(({ sentAt, end }) => sentAt > killedAt && end === 202);
    await eventually(
      'requests that are sent now are acknowledged',
      () => sentSince().length >= ANSWERS_WITHOUT_ONE,
      DEADLINE_MS,
    );
    const [took] = sentSince().map(({ respondedAt }) => respondedAt - killedAt);
    await kafka.startBroker(2);
    await Promise.all(edges.map(becomesReady));
    await clients.stop();
    const looks = await onlooker.stop();
    const { events, duplicates } = await assertStoredOnce(api, key, ledger);
    t.diagnostic(
      `${ledger.summary()}; ${looks} looks; first answer after ${took?.toFixed()} ms; ${events} events, ${duplicates} again`,
    );
    assert.ok(ledger.slowestMs > 500, 'no request noticed that a broker was gone');
    assertUnharmed([api, processor, ...edges]);
  });

  test('two of three: 503 and not one 202 for as long as they are gone', async (t) => {
    const { api, newTenant } = installation;
    const key = await newTenant();
    const ledger = new ClientLedger(seededRandom((line) => t.diagnostic(line)));
    const clients = startClients({ signal: t.signal, ledger, key, clients: CLIENTS, ports });
    const onlooker = lookOn(api, key, ledger, t.signal);
    await eventually('some answers', () => ledger.acknowledged >= WARM_UP, DEADLINE_MS);
    // The one that is left leads partitions: it writes a part of what comes, which gets no 202.
    await Promise.all([kafka.killBroker(0), kafka.killBroker(2)]);
    const goneAt = performance.now();
    const responsesSince = (): typeof ledger.tries => ledger.tries.filter(({ sentAt }) => sentAt > goneAt);
    await eventually(
      'requests that are sent now are refused',
      () => responsesSince().filter(({ end }) => end === 503).length >= REFUSALS_WITHOUT_TWO,
      DEADLINE_MS,
    );
    for (const { baseUrl } of edges) assert.equal((await fetch(`${baseUrl}/readyz`)).status, 503);
    const ends = new Set(responsesSince().map(({ end }) => end));
    const backAt = performance.now();
    assert.deepEqual([...ends], [503], 'what was answered while two of three brokers were gone');
    await Promise.all([kafka.startBroker(0), kafka.startBroker(2)]);
    await Promise.all(edges.map(becomesReady));
    await clients.stop(DEADLINE_MS);
    const looks = await onlooker.stop();
    const { events, duplicates } = await assertStoredOnce(api, key, ledger);
    t.diagnostic(
      `${ledger.summary()}; ${looks} looks; gone for ${(backAt - goneAt).toFixed()} ms; ${events} events, ${duplicates} again`,
    );
    assertUnharmed([api, processor, ...edges]);
    for (const server of [processor, api, ...edges]) assert.equal(await server.stop(), 0, server.stderr());
  });
});
