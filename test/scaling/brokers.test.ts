/**
 * The ledger test while brokers of Kafka are killed. One of three: the others continue. Two of three: nothing is
 * acknowledged, since there is but one copy, until they are back. What was acknowledged before has its effect once.
 */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { Admin, alterPartitionReassignmentsV0, Connection, Producer } from '@platformatic/kafka';
import { Cluster } from '../../src/backends/kafka/cluster.ts';
import { openKafkaLogAppender } from '../../src/backends/kafka/log.ts';
import { openTopic } from '../../src/backends/kafka/topic.ts';
import { parseKafkaUrl } from '../../src/backends/kafka/url.ts';
import { KEPT_MS, createTopic } from '../backends/kafka/log-on-kafka.ts';
import { seededRandom } from '../faults/ledger.ts';
import type { Scope } from '../faults/scope.ts';
import { eventually, runSluice, type TestServer } from '../server.ts';
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
    await createTopic(kafka.brokers, topic, { replicas: 3, settings: { 'min.insync.replicas': '1' } });
    await assert.rejects(openKafkaLogAppender({ url: `kafka://${kafka.brokers}/${topic}`, retentionMs: KEPT_MS }), {
      name: 'OperatorError',
      message: /min\.insync\.replicas is 1 with 3 replicas.*only one broker has; set it to 2/,
    });
  });

  // Why Sluice has its own: docs/decisions/038-kafka-client.md.
  test('the producer of the Kafka client retries forever when two partitions no longer have the same leader', async (context) => {
    const topic = kafka.newTopicName();
    const options = { clientId: 'test', bootstrapBrokers: kafka.brokers.split(',') };
    const admin = new Admin(options);
    context.after(() => admin.close());
    const assignments = [0, 1].map((partition) => ({ partition, brokers: [1] }));
    await admin.createTopics({ topics: [topic], partitions: -1, replicas: -1, assignments });
    const isLed = async (leaders: readonly number[]): Promise<boolean> => {
      const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
      return leaders.every((leader, partition) => topics.get(topic)?.partitions[partition]?.leader === leader);
    };
    await eventually('the topic is there', () => isLed([1, 1]));
    const producer = new Producer({ ...options, idempotent: true, retryDelay: 20 });
    let retries = 0;
    producer.on('client:performWithRetry:retry', (operation) => {
      if (operation === 'produce') retries++;
    });
    const send = (): Promise<unknown> =>
      producer.send({
        messages: [0, 1].map((partition) => ({
          topic,
          partition,
          key: Buffer.from('key'),
          value: Buffer.from('value'),
        })),
      });
    await send();
    const [host = '', port = ''] = (options.bootstrapBrokers[0] ?? '').split(':');
    const connection = new Connection('test');
    context.after(() => connection.close());
    await connection.connect(host, Number(port));
    const moved = [{ name: topic, partitions: [{ partitionIndex: 1, replicas: [2] }] }];
    await alterPartitionReassignmentsV0.api.async(connection, 5_000, false, moved);
    await eventually('partition 1 has another leader', () => isLed([1, 2]));
    let state = 'pending';
    const sending = send().then(
      () => (state = 'acknowledged'),
      () => (state = 'failed'),
    );
    await eventually('it has retried', () => retries >= 20);
    assert.equal(state, 'pending');
    await producer.close(true);
    await sending;
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
    const doctor = await runSluice(['doctor'], installation.env);
    assert.match(
      doctor.stdout.replaceAll(/\s+/g, ' '),
      /partitions have replicas that are not in sync: a broker is down/,
    );
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
    const created = new Cluster(parseKafkaUrl(`kafka://${kafka.brokers}/${kafka.newTopicName()}`), 'test');
    await openTopic(created, { retentionMs: KEPT_MS, openMsMax: DEADLINE_MS });
    for (const { replicas } of (await created.refresh()).partitions) assert.equal(replicas.length, 3);
    await created.close();
    const late = await installation.start('edge');
    await eventually(
      'an edge that starts now says so before it gets a request',
      async () => {
        const response = await fetch(`${late.baseUrl}/readyz`);
        return response.status === 503 && (await response.text()).includes('required in-sync replicas');
      },
      DEADLINE_MS,
    );
    assert.equal(await late.stop(), 0, late.stderr());
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
