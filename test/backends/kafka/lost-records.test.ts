/** What Kafka, or somebody in it, takes away under the readers: records that wait, the topic, the right to remove. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Admin, ConfigResourceTypes, IncrementalAlterConfigOperationTypes } from '@platformatic/kafka';
import type { KafkaGroupReader } from '../../../src/backends/kafka/log.ts';
import type { LogAppender } from '../../../src/log.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { eventually } from '../../server.ts';
import { testKafka, whyNoKafka } from '../../servers/kafka.ts';
import { appenderOf, groupReaderOf, makeTopic, readerOf } from './log-on-kafka.ts';

interface Place {
  readonly brokers: string;
  readonly topic: string;
  readonly url: string;
}

async function newPlace(partitions = 1): Promise<Place> {
  const { brokers, newTopicName } = await testKafka();
  const topic = newTopicName();
  return { brokers, topic, url: `kafka://${brokers}/${topic}?partitions=${partitions}` };
}

async function asAdmin<Result>(
  { brokers }: Pick<Place, 'brokers'>,
  work: (admin: Admin) => Promise<Result>,
): Promise<Result> {
  const admin = new Admin({ clientId: 'test', bootstrapBrokers: brokers.split(',') });
  try {
    return await work(admin);
  } finally {
    await admin.close();
  }
}

/** As Kafka's own retention does it, which asks nobody. */
async function removeBelow(place: Place, offset: number): Promise<void> {
  const topics = [{ name: place.topic, partitions: [{ partition: 0, offset: BigInt(offset) }] }];
  await asAdmin(place, (admin) => admin.deleteRecords({ topics }));
}

async function setPolicy({ topic, ...place }: Place, value: string): Promise<void> {
  const configs = [{ name: 'cleanup.policy', configOperation: IncrementalAlterConfigOperationTypes.SET, value }];
  const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs }];
  await asAdmin(place, (admin) => admin.incrementalAlterConfigs({ resources, validateOnly: false }));
}

async function appendMany(appender: LogAppender, count: number, receivedAt = Date.now()): Promise<void> {
  for (let n = 0; n < count; n++) await appender.append(entry({ traceId: `trace-${n}`, receivedAt: receivedAt + n }));
}

async function hasPartitions(reader: KafkaGroupReader): Promise<void> {
  await eventually('it has partitions', async () => (await reader.partitions()).length > 0);
}

suite('What is taken away in Kafka', { skip: whyNoKafka() }, () => {
  test('records that were removed before they were processed are told, with what to do', async (context) => {
    const place = await newPlace();
    const appender = await appenderOf(context, place);
    await appendMany(appender, 10);
    const reader = await groupReaderOf(context, place);
    await hasPartitions(reader);
    const isTold = (error: Error): boolean => {
      assert.equal(error.name, 'LogCorruptError');
      const words = `partition 0 of topic ${place.topic} begins at position 6, but is processed only up to 3`;
      assert.ok(error.message.startsWith(words), error.message);
      assert.match(error.message, /Set retention\.ms and retention\.bytes of the topic to -1/);
      const statement = `UPDATE sluice.positions SET position = 6 WHERE log = '${reader.name}' AND partition = 0`;
      assert.ok(error.message.endsWith(statement), error.message);
      return true;
    };
    await removeBelow(place, 6);
    await assert.rejects(reader.read(0, 3, 1_000), isTold);
    assert.equal((await reader.read(0, 6, 1)).records[0]?.position, 6);
    assert.equal((await reader.read(0, 0, 1)).records[0]?.position, 6, 'a database that is new begins at the first');
    const plain = await readerOf(context, place);
    assert.equal((await readAll(plain, 0)).length, 4);
    assert.equal((await plain.read(0, 3, 1)).records[0]?.position, 6, 'who only looks goes on');
  });

  // Its partition may have been taken away a moment ago: it reads on, and may even write if nobody else has.
  test('of a partition that is not its own nothing is passed over either', async (context) => {
    const place = await newPlace(2);
    const appender = await appenderOf(context, { ...place, partitionOf: () => 0 });
    await appendMany(appender, 5);
    const [first, second] = [await groupReaderOf(context, place), await groupReaderOf(context, place)];
    const other = await eventually('both have one', async () => {
      const owned = await Promise.all([first.partitions(), second.partitions()]);
      if (owned.some(({ length }) => length !== 1)) return undefined;
      return owned[0].includes(0) ? second : first;
    });
    await removeBelow(place, 4);
    await assert.rejects(other.read(0, 2, 1), { name: 'LogCorruptError', message: /begins at position 4/ });
  });

  test('a topic that is deleted and made again ends the reader, with words', async (context) => {
    const place = await newPlace();
    const appender = await appenderOf(context, place);
    await appendMany(appender, 1);
    const reader = await groupReaderOf(context, place);
    await hasPartitions(reader);
    await reader.read(0, 0, 1_000);
    const plain = await readerOf(context, place);
    await appender.close();
    await asAdmin(place, (admin) => admin.deleteTopics({ topics: [place.topic] }));
    await eventually('the topic is made again', () =>
      makeTopic(place.brokers, place.topic).then(
        () => true,
        () => false,
      ),
    );
    // As a processor does that has nothing to read.
    const problem = await eventually('it ends', () =>
      reader.partitions().then(
        () => undefined,
        (error: unknown) => error,
      ),
    );
    assert.ok(problem instanceof Error);
    const words = `the topic ${place.topic} was deleted and made again: start again to work on the new one`;
    assert.deepEqual([problem.name, problem.message], ['TopicReplacedError', words]);
    await assert.rejects(plain.read(0, 0, 1), { name: 'LogCorruptError', message: words });
    await reader.close();
    const again = await groupReaderOf(context, place);
    await hasPartitions(again);
    assert.notEqual(again.name, reader.name);
    assert.deepEqual(await again.read(0, 0, 1), { records: [], next: 0 });
  });

  test('where old records may not be removed that is told once, and nothing waits for it', async (context) => {
    const place = await newPlace(2);
    for (const partition of [0, 1]) {
      await appendMany(await appenderOf(context, { ...place, partitionOf: () => partition }), 3, 1_000);
    }
    // Kafka refuses it there whoever asks, as it does for a user without the right.
    await setPolicy(place, 'compact');
    const warnings: string[] = [];
    const warn = (message: string): void => void warnings.push(message);
    const reader = await readerOf(context, { ...place, retentionMs: 2_000, now: () => 10_000, warn });
    warnings.length = 0;
    await reader.commit(0, 2);
    await reader.commit(1, 1);
    assert.equal(await reader.committed(0), 2);
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] ?? '', /old records are not removed.*\(POLICY_VIOLATION\)\. Allow this user Delete/);
  });
});
