/** What Kafka or its operators can take from the readers: unprocessed records, the topic, the permission to delete. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Admin, ConfigResourceTypes, IncrementalAlterConfigOperationTypes } from '@platformatic/kafka';
import type { KafkaGroupReader } from '../../../src/backends/kafka/log.ts';
import type { LogAppender } from '../../../src/log.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { eventually } from '../../server.ts';
import { testKafka, whyNoKafka } from '../../servers/kafka.ts';
import { appenderOf, groupReaderOf, createTopic, readerOf } from './log-on-kafka.ts';

interface TestLog {
  readonly brokers: string;
  readonly topic: string;
  readonly url: string;
}

async function newLog(partitions = 1): Promise<TestLog> {
  const { brokers, newTopicName } = await testKafka();
  const topic = newTopicName();
  return { brokers, topic, url: `kafka://${brokers}/${topic}?partitions=${partitions}` };
}

async function asAdmin<Result>(
  { brokers }: Pick<TestLog, 'brokers'>,
  work: (admin: Admin) => Promise<Result>,
): Promise<Result> {
  const admin = new Admin({ clientId: 'test', bootstrapBrokers: brokers.split(',') });
  try {
    return await work(admin);
  } finally {
    await admin.close();
  }
}

/** As Kafka's retention does. */
async function deleteRecordsBefore(log: TestLog, offset: number): Promise<void> {
  const topics = [{ name: log.topic, partitions: [{ partition: 0, offset: BigInt(offset) }] }];
  await asAdmin(log, (admin) => admin.deleteRecords({ topics }));
}

async function setPolicy({ topic, ...log }: TestLog, value: string): Promise<void> {
  const configs = [{ name: 'cleanup.policy', configOperation: IncrementalAlterConfigOperationTypes.SET, value }];
  const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs }];
  await asAdmin(log, (admin) => admin.incrementalAlterConfigs({ resources, validateOnly: false }));
}

async function appendMany(appender: LogAppender, count: number, receivedAt = Date.now()): Promise<void> {
  for (let n = 0; n < count; n++) await appender.append(entry({ traceId: `trace-${n}`, receivedAt: receivedAt + n }));
}

async function hasPartitions(reader: KafkaGroupReader): Promise<void> {
  await eventually('it has partitions', async () => (await reader.partitions()).length > 0);
}

suite('Data that disappears from Kafka', { skip: whyNoKafka() }, () => {
  test('records that were deleted before they were processed are an error that says what to do', async (context) => {
    const log = await newLog();
    const appender = await appenderOf(context, log);
    await appendMany(appender, 10);
    const reader = await groupReaderOf(context, log);
    await hasPartitions(reader);
    const saysWhatToDo = (error: Error): boolean => {
      assert.equal(error.name, 'LogCorruptError');
      const words = `partition 0 of topic ${log.topic} begins at position 6, but is processed only up to 3`;
      assert.ok(error.message.startsWith(words), error.message);
      assert.match(error.message, /Set retention\.ms and retention\.bytes of the topic to -1/);
      const statement = `UPDATE sluice.positions SET position = 6 WHERE log = '${reader.name}' AND partition = 0`;
      assert.ok(error.message.endsWith(statement), error.message);
      return true;
    };
    await deleteRecordsBefore(log, 6);
    await assert.rejects(reader.read(0, 3, 1_000), saysWhatToDo);
    assert.equal((await reader.read(0, 6, 1)).records[0]?.position, 6);
    assert.equal((await reader.read(0, 0, 1)).records[0]?.position, 6, 'a new database begins at the first');
    const plain = await readerOf(context, log);
    assert.equal((await readAll(plain, 0)).length, 4);
    assert.equal((await plain.read(0, 3, 1)).records[0]?.position, 6, 'a reader that is no processor continues');
  });

  // Its partition may just have been revoked: it reads on, and may even write if no other member has.
  test('records of a partition that is assigned to another member are not skipped either', async (context) => {
    const log = await newLog(2);
    const appender = await appenderOf(context, { ...log, partitionOf: () => 0 });
    await appendMany(appender, 5);
    const [first, second] = [await groupReaderOf(context, log), await groupReaderOf(context, log)];
    const other = await eventually('both have one', async () => {
      const owned = await Promise.all([first.partitions(), second.partitions()]);
      if (owned.some(({ length }) => length !== 1)) return undefined;
      return owned[0].includes(0) ? second : first;
    });
    await deleteRecordsBefore(log, 4);
    await assert.rejects(other.read(0, 2, 1), { name: 'LogCorruptError', message: /begins at position 4/ });
  });

  test('a topic that is deleted and created again ends the reader with an error', async (context) => {
    const log = await newLog();
    const appender = await appenderOf(context, log);
    await appendMany(appender, 1);
    const reader = await groupReaderOf(context, log);
    await hasPartitions(reader);
    await reader.read(0, 0, 1_000);
    const plain = await readerOf(context, log);
    await appender.close();
    await asAdmin(log, (admin) => admin.deleteTopics({ topics: [log.topic] }));
    await eventually('the topic is created again', () =>
      createTopic(log.brokers, log.topic).then(
        () => true,
        () => false,
      ),
    );
    // As a processor that has nothing to read.
    const problem = await eventually('it ends', () =>
      reader.partitions().then(
        () => undefined,
        (error: unknown) => error,
      ),
    );
    assert.ok(problem instanceof Error);
    const words = `the topic ${log.topic} was deleted and created again: restart to use the new topic`;
    assert.deepEqual([problem.name, problem.message], ['TopicReplacedError', words]);
    await assert.rejects(plain.read(0, 0, 1), { name: 'LogCorruptError', message: words });
    await reader.close();
    const again = await groupReaderOf(context, log);
    await hasPartitions(again);
    assert.notEqual(again.name, reader.name);
    assert.deepEqual(await again.read(0, 0, 1), { records: [], next: 0 });
  });

  test('if old records may not be deleted there is one warning, and nothing waits', async (context) => {
    const log = await newLog(2);
    for (const partition of [0, 1]) {
      await appendMany(await appenderOf(context, { ...log, partitionOf: () => partition }), 3, 1_000);
    }
    // Kafka then rejects it for all users, as it does for a user without the permission.
    await setPolicy(log, 'compact');
    const warnings: string[] = [];
    const warn = (message: string): void => void warnings.push(message);
    const reader = await readerOf(context, { ...log, retentionMs: 2_000, now: () => 10_000, warn });
    warnings.length = 0;
    await reader.commit(0, 2);
    await reader.commit(1, 1);
    assert.equal(await reader.committed(0), 2);
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] ?? '', /old records cannot be deleted.*\(POLICY_VIOLATION\)\. Allow this user Delete/);
  });
});
