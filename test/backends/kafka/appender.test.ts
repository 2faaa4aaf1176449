/** Appending to Kafka: requests are batched without delay, and a rejected message fails alone. */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import { Admin, ConfigResourceTypes, IncrementalAlterConfigOperationTypes } from '@platformatic/kafka';
import { partitionOfKey } from '../../../src/backends/kafka/appender.ts';
import { allocateMetrics, METRIC, readCounter, renderMetrics } from '../../../src/telemetry/metrics.ts';
import { entry, readAll, usersOf } from '../../contract/log-entries.ts';
import { eventually } from '../../server.ts';
import { testKafka, whyNoKafka } from '../../servers/kafka.ts';
import { appenderOf, readerOf } from './log-on-kafka.ts';

async function newLog(
  partitions = 1,
): Promise<{ readonly brokers: string; readonly topic: string; readonly url: string }> {
  const { brokers, newTopicName } = await testKafka();
  const topic = newTopicName();
  return { brokers, topic, url: `kafka://${brokers}/${topic}?replication=1&partitions=${partitions}` };
}

async function tracesIn(context: TestContext, url: string, partition = 0): Promise<string[]> {
  const reader = await readerOf(context, { url });
  return (await readAll(reader, partition)).map(({ traceId }) => traceId);
}

suite('Appending to Kafka', { skip: whyNoKafka() }, () => {
  test('a single request waits for no timer', async (context) => {
    const { url } = await newLog();
    const appender = await appenderOf(context, { url });
    await appender.append(entry());
    context.mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });
    // With the clock stopped, only what needs no timer completes.
    for (let n = 0; n < 3; n++) await appender.append(entry({ traceId: `alone-${n}` }));
    context.mock.timers.reset();
    assert.equal((await tracesIn(context, url)).length, 4);
  });

  test('requests that arrive while one is in flight are sent together in the next', async (context) => {
    const { url } = await newLog();
    const buffer = allocateMetrics(1);
    const appender = await appenderOf(context, { url, metrics: { buffer, slot: 0 } });
    const traces = Array.from({ length: 400 }, (_, n) => `trace-${n}`);
    const appending: Promise<void>[] = [];
    for (const traceId of traces) {
      appending.push(appender.append(entry({ traceId })));
      // Some of them in turns of their own.
      if (appending.length % 100 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(appending);
    assert.equal(readCounter(buffer, METRIC.log_entries), traces.length);
    const [, commits] = /^sluice_log_commit_duration_seconds_count (\d+)$/m.exec(renderMetrics(buffer)) ?? [];
    assert.ok(Number(commits) <= 5);
    assert.deepEqual(await tracesIn(context, url), traces);
  });

  test('each user of a request is in the partition of its key, and all are there when it is acknowledged', async (context) => {
    const { url } = await newLog(4);
    const appender = await appenderOf(context, { url });
    const users = Array.from({ length: 40 }, (_, n) => ({ identifiers: { user_id: `user-${n % 10}` }, n }));
    const sent = entry({ users });
    await appender.append(sent);
    const reader = await readerOf(context, { url });
    const seen = new Map<number, number>();
    for (const partition of await reader.partitions()) {
      for (const record of await readAll(reader, partition)) {
        const [user] = usersOf([record]).map(({ json }) => JSON.parse(json) as (typeof users)[0]);
        assert.ok(user !== undefined && user.n === record.firstUserIndex);
        const key = Buffer.from([sent.tenantId, 'user_id', user.identifiers.user_id].join('\u001f'));
        assert.equal(partition, partitionOfKey(key, 4));
        seen.set(user.n, partition);
      }
    }
    assert.equal(seen.size, users.length);
    assert.ok(new Set(seen.values()).size > 1);
  });

  test('a key is in the partition that other Kafka clients choose', () => {
    // `Utils.toPositive(Utils.murmur2(key)) % 12` of the Java client.
    const keys = ['21', 'foobar', 'a-little-bit-long-string', 'lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8'];
    assert.deepEqual(
      keys.map((key) => partitionOfKey(Buffer.from(key), 12)),
      [-973932308, -790332482, -985981536, -58897971].map((hash) => (hash & 0x7fff_ffff) % 12),
    );
  });

  test('a message that Kafka rejects fails alone, and the others of its batch are appended in order', async (context) => {
    const { url, brokers, topic } = await newLog();
    const warnings: string[] = [];
    const appender = await appenderOf(context, { url, warn: (message) => warnings.push(message) });
    await appender.append(entry({ traceId: 'before' }));
    const admin = new Admin({ clientId: 'test', bootstrapBrokers: [brokers] });
    await admin.incrementalAlterConfigs({
      resources: [
        {
          resourceType: ConfigResourceTypes.TOPIC,
          resourceName: topic,
          configs: [
            { name: 'max.message.bytes', value: '20000', configOperation: IncrementalAlterConfigOperationTypes.SET },
          ],
        },
      ],
    });
    await admin.close();
    const users = (bytes: number): unknown[] => [{ pad: 'x'.repeat(bytes) }];
    await eventually('the broker uses the new limit', () =>
      appender.append(entry({ traceId: 'probe', users: users(30_000) })).then(
        () => false,
        () => true,
      ),
    );
    warnings.length = 0;
    // Together they are larger than the new limit; each but one is smaller.
    const sizes = Array.from({ length: 12 }, (_, n) => (n === 5 ? 30_000 : 5_000));
    const appended = await Promise.allSettled(
      sizes.map((bytes, n) => appender.append(entry({ traceId: `trace-${n}`, users: users(bytes) }))),
    );
    assert.deepEqual(
      appended.map(({ status }) => status),
      sizes.map((bytes) => (bytes === 30_000 ? 'rejected' : 'fulfilled')),
    );
    const failure = appended[5];
    assert.ok(failure?.status === 'rejected' && failure.reason instanceof Error);
    assert.equal(failure.reason.name, 'LogUnavailableError');
    assert.match(failure.reason.message, /^Kafka rejected a message of 30\d{3} bytes: /);
    assert.equal(warnings.filter((message) => message.includes('rejected')).length, 1);
    assert.equal(appender.problem(), null);
    await appender.append(entry({ traceId: 'after' }));
    const expected = ['before', ...sizes.flatMap((bytes, n) => (bytes === 30_000 ? [] : [`trace-${n}`])), 'after'];
    const seen = await tracesIn(context, url);
    assert.deepEqual(
      seen.filter((traceId) => traceId !== 'probe'),
      expected,
    );
  });

  test('a request of 10 MB in one user is accepted', async (context) => {
    const { url } = await newLog();
    const appender = await appenderOf(context, { url });
    const body = Buffer.from(JSON.stringify({ users: [{ pad: 'x'.repeat(10_485_700 - 24) }] }));
    await Promise.all([
      appender.append(entry({ traceId: 'small' })),
      appender.append(entry({ traceId: 'large', body })),
      appender.append(entry({ traceId: 'last' })),
    ]);
    assert.deepEqual(await tracesIn(context, url), ['small', 'large', 'last']);
  });

  test('without a request, a topic that was deleted is noticed', { timeout: 120_000 }, async (context) => {
    const { brokers, topic, url } = await newLog();
    const appender = await appenderOf(context, { url });
    assert.equal(appender.problem(), null);
    const admin = new Admin({ clientId: 'test', bootstrapBrokers: brokers.split(',') });
    await admin.deleteTopics({ topics: [topic] });
    await admin.close();
    const problem = await eventually('it is noticed', () => appender.problem() ?? undefined, 60_000);
    assert.equal(problem, 'Kafka does not accept data: the topic does not exist');
  });
});
