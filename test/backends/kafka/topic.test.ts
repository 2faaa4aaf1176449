/** The topic of the log: how it is created, and why one is refused. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Admin, ConfigResourceTypes } from '@platformatic/kafka';
import { openKafkaLogAppender, openKafkaLogReader } from '../../../src/backends/kafka/log.ts';
import { validateTopic } from '../../../src/backends/kafka/topic.ts';
import { LogUnreachableError } from '../../../src/log.ts';
import { openWireTo } from '../../scaling/wire.ts';
import { testKafka, whyNoKafka } from '../../servers/kafka.ts';
import { appenderOf, KEPT_MS, createTopic, readerOf, SAFE_SETTINGS } from './log-on-kafka.ts';

async function topicSettings(brokers: string, topic: string): Promise<Map<string, string>> {
  const admin = new Admin({ clientId: 'test', bootstrapBrokers: brokers.split(',') });
  const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }];
  const [found] = await admin.describeConfigs({ resources });
  await admin.close();
  return new Map(found?.configs.map(({ name, value }) => [name, value ?? '']));
}

suite('The topic of the log', { skip: whyNoKafka() }, () => {
  test('it is created if it is missing, with settings that lose nothing', async (context) => {
    const { brokers, newTopicName } = await testKafka();
    const topic = newTopicName();
    const warnings: string[] = [];
    const reader = await readerOf(context, {
      url: `kafka://${brokers}/${topic}?replication=1`,
      warn: (message) => warnings.push(message),
    });
    assert.deepEqual(
      await reader.partitions(),
      Array.from({ length: 12 }, (_, partition) => partition),
    );
    assert.match(reader.name, /^kafka:[0-9a-f]{8}-[0-9a-f-]{27}$/);
    const settings = await topicSettings(brokers, topic);
    for (const [name, value] of [
      ['min.insync.replicas', '1'],
      ['cleanup.policy', 'delete'],
      ['retention.ms', '-1'],
      ['retention.bytes', '-1'],
      ['unclean.leader.election.enable', 'false'],
      ['flush.messages', '1'],
    ] as const) {
      assert.equal(settings.get(name), value);
    }
    assert.deepEqual(warnings, [
      `topic ${topic}: it has one replica: a broker that loses its disk loses events that were acknowledged; to have three, use kafka-reassign-partitions.sh, then set min.insync.replicas to 2`,
    ]);
  });

  test('a command finds it while the first broker of LOG_URL hangs, which is named', async (context) => {
    const { brokers, newTopicName } = await testKafka();
    const topic = newTopicName();
    await readerOf(context, { url: `kafka://${brokers}/${topic}?replication=1` });
    const wire = await openWireTo(`http://${brokers.split(',')[0]}`);
    context.after(() => wire.close());
    wire.cut();
    const warnings: string[] = [];
    const startedAt = performance.now();
    const reader = await openKafkaLogReader({
      url: `kafka://127.0.0.1:${wire.port},${brokers}/${topic}`,
      retentionMs: KEPT_MS,
      warn: (message) => warnings.push(message),
      createsTopic: false,
      openMsMax: 5_000,
    });
    assert.equal((await reader.partitions()).length, 12);
    await reader.close();
    assert.ok(performance.now() - startedAt < 8_000);
    assert.equal(warnings[0], `the broker 127.0.0.1:${wire.port} does not respond`);
  });

  test('readers that start at the same time share one topic', async () => {
    const { brokers, newTopicName } = await testKafka();
    const url = `kafka://${brokers}/${newTopicName()}?replication=1&partitions=5`;
    const readers = await Promise.all(Array.from({ length: 6 }, () => openKafkaLogReader({ url, retentionMs: 1 })));
    assert.equal(new Set(readers.map(({ name }) => name)).size, 1);
    for (const reader of readers) {
      assert.equal((await reader.partitions()).length, 5);
      await reader.close();
    }
  });

  test('an existing topic is used as it is, with a warning if LOG_URL has more partitions', async (context) => {
    const { brokers, newTopicName } = await testKafka();
    const topic = newTopicName();
    await createTopic(brokers, topic, { partitions: 2, settings: { 'flush.messages': '1' } });
    const warningsWith = async (partitions: number): Promise<string> => {
      const warnings: string[] = [];
      const url = `kafka://${brokers}/${topic}?replication=1&partitions=${partitions}`;
      await appenderOf(context, { url, warn: (message) => warnings.push(message) });
      return warnings.join('\n');
    };
    assert.match(await warningsWith(7), /it has 2 partitions; LOG_URL's 7 applies only to a new topic/);
    assert.doesNotMatch(await warningsWith(1), /has 2 partitions/, 'partitions were added later, as documented');
  });

  const unsafe: readonly (readonly [what: string, settings: Record<string, string>, message: RegExp])[] = [
    [
      'elections of brokers without the events',
      { 'unclean.leader.election.enable': 'true' },
      /unclean\.leader\.election\.enable is true.*set it to false/,
    ],
    ['compaction', { 'cleanup.policy': 'compact' }, /cleanup\.policy is compact.*set it to delete/],
    ['compaction and deletion', { 'cleanup.policy': 'compact,delete' }, /cleanup\.policy is compact.*set it to delete/],
    [
      'a message limit that is too small for a user',
      { 'max.message.bytes': '1048588' },
      /max\.message\.bytes is 1048588, too little for a user of 10 MB; set it to 33554432/,
    ],
    [
      'retention by time that is shorter than that of the log',
      { 'retention.ms': String(KEPT_MS - 1) },
      /retention\.ms is 3599999, less than the retention of the log \(3600000\); set it to -1/,
    ],
    ['retention by size', { 'retention.bytes': '1000000' }, /retention\.bytes is set.*set it to -1/],
    [
      'more in-sync replicas than there are replicas',
      { 'min.insync.replicas': '2' },
      /min\.insync\.replicas is 2 with 1 replicas, so nothing can be written/,
    ],
  ];
  for (const [what, settings, message] of unsafe) {
    test(`${what}: refused, with what to do`, async () => {
      const { brokers, newTopicName } = await testKafka();
      const topic = newTopicName();
      await createTopic(brokers, topic, { settings });
      const opening = openKafkaLogAppender({ url: `kafka://${brokers}/${topic}`, retentionMs: KEPT_MS });
      await assert.rejects(opening, (error: Error) => {
        assert.equal(error.name, 'OperatorError');
        assert.match(error.message, message);
        assert.ok(error.message.startsWith(`The topic ${topic} is not safe for events: `));
        return true;
      });
    });
  }

  test('an unsafe topic is a warning for readers', async (context) => {
    const { brokers, newTopicName } = await testKafka();
    const topic = newTopicName();
    await createTopic(brokers, topic, { settings: { 'cleanup.policy': 'compact' } });
    const warnings: string[] = [];
    await readerOf(context, { url: `kafka://${brokers}/${topic}`, warn: (message) => warnings.push(message) });
    assert.match(warnings[0] ?? '', /cleanup\.policy is compact.*Edges and processors refuse to start on it/);
  });

  test('three replicas by default: not created before there are as many brokers', async () => {
    const { brokers, newTopicName } = await testKafka();
    const url = `kafka://${brokers}/${newTopicName()}`;
    const opening = openKafkaLogReader({ url, retentionMs: 1, openMsMax: 1_000 });
    await assert.rejects(opening, (error: Error) => {
      assert.ok(error instanceof LogUnreachableError, 'a server waits');
      assert.match(error.message, /is created with 3 replicas once Kafka has that many brokers; with replication=1/);
      return true;
    });
    const looking = openKafkaLogReader({ url, retentionMs: 1, createsTopic: false });
    await assert.rejects(looking, { name: 'OperatorError', message: /^There is no topic/ });
  });
});

suite('The settings of a topic', () => {
  const settings = new Map(Object.entries({ ...SAFE_SETTINGS, 'min.insync.replicas': '2' }));

  test('three replicas, two in sync: no error or warning', () => {
    assert.deepEqual(validateTopic(settings, { replication: 3, retentionMs: 1 }), { errors: [], warnings: [] });
  });

  test('several replicas of which one is enough: an error', () => {
    for (const replication of [2, 3]) {
      const one = new Map(settings).set('min.insync.replicas', '1');
      const { errors } = validateTopic(one, { replication, retentionMs: 1 });
      assert.equal(errors.length, 1);
      assert.match(errors[0] ?? '', /min\.insync\.replicas is 1 with \d replicas.*only one broker has; set it to 2/);
    }
  });

  test('all replicas required, or only one replica: a warning', () => {
    assert.match(validateTopic(settings, { replication: 2, retentionMs: 1 }).warnings[0] ?? '', /if one broker fails/);
    const one = new Map(settings).set('min.insync.replicas', '1');
    const { errors, warnings } = validateTopic(one, { replication: 1, retentionMs: 1 });
    assert.deepEqual(errors, []);
    assert.equal(warnings.length, 2);
    assert.match(warnings[1] ?? '', /flush\.messages is not 1/);
  });

  test('retention by time, however long: a warning', () => {
    for (const kept of [KEPT_MS, 604_800_000]) {
      const aged = new Map(settings).set('retention.ms', String(kept));
      const { errors, warnings } = validateTopic(aged, { replication: 3, retentionMs: KEPT_MS });
      assert.deepEqual(errors, []);
      assert.equal(warnings.length, 1);
      assert.match(
        warnings[0] ?? '',
        new RegExp(`^retention.ms is ${kept}: records that wait longer.* are lost; set it to -1`),
      );
    }
  });

  test('all errors are reported together', () => {
    const bad = new Map([
      ...settings,
      ['unclean.leader.election.enable', 'true'],
      ['cleanup.policy', 'compact'],
      ['min.insync.replicas', '1'],
    ]);
    assert.equal(validateTopic(bad, { replication: 3, retentionMs: 1 }).errors.length, 3);
  });
});

test('an unreachable Kafka is an error that names it and LOG_URL', async () => {
  const url = 'kafka://ada:secret@127.0.0.1:1,127.0.0.1:2/topic?sasl=plain';
  await assert.rejects(openKafkaLogReader({ url, retentionMs: 1, openMsMax: 300 }), (error: Error) => {
    assert.equal(error.name, 'OperatorError');
    assert.match(error.message, /^Kafka at 127\.0\.0\.1:1, 127\.0\.0\.1:2 cannot be used: .*ECONNREFUSED.*LOG_URL/);
    assert.doesNotMatch(error.message, /secret/);
    return true;
  });
});
