/** Lookups in Kafka: a request by its time, pages across fetches, and messages of other programs. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Admin, Producer } from '@platformatic/kafka';
import { NO_TENANT } from '../../../src/log.ts';
import { HOUR_MS } from '../../../src/model.ts';
import { entry, headersAll, readAll } from '../../contract/log-entries.ts';
import { eventually } from '../../server.ts';
import { testKafka, whyNoKafka } from '../../servers/kafka.ts';
import { appenderOf, readerOf } from './log-on-kafka.ts';

const START_MS = 1_760_000_000_000;

/** A trace id with that time. */
function traceAt(time: number, n: number): string {
  const hex = time.toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-${String(n).padStart(12, '0')}`;
}

suite('Looking up requests in Kafka', { skip: whyNoKafka() }, () => {
  test('a request is found by the time in its trace id, whatever its time of receipt', async (context) => {
    const { brokers, newTopicName } = await testKafka();
    const url = `kafka://${brokers}/${newTopicName()}?replication=1&partitions=1`;
    const appender = await appenderOf(context, { url });
    const traces = Array.from({ length: 20 }, (_, n) => traceAt(START_MS + n * HOUR_MS, n));
    for (const [n, traceId] of traces.entries()) {
      await appender.append(entry({ traceId, receivedAt: 5_000, users: n % 2 === 0 ? [{ n }] : [{ n }, { n }] }));
    }
    const reader = await readerOf(context, { url });
    for (const [n, traceId] of traces.entries()) {
      const found = await reader.find(0, 0, traceId);
      assert.deepEqual(
        found.map((header) => header.traceId),
        n % 2 === 0 ? [traceId] : [traceId, traceId],
      );
      assert.deepEqual(await reader.find(0, (found.at(-1)?.position ?? 0) + 1, traceId), []);
    }
    for (const time of [START_MS - HOUR_MS, START_MS + HOUR_MS / 2, START_MS + 1_000 * HOUR_MS]) {
      assert.deepEqual(await reader.find(0, 0, traceAt(time, 1)), []);
    }
  });

  test('partitions that are added while a reader is open are read within moments', async (context) => {
    const { brokers, newTopicName } = await testKafka();
    const topic = newTopicName();
    const url = `kafka://${brokers}/${topic}?replication=1&partitions=1`;
    const reader = await readerOf(context, { url });
    assert.deepEqual(await reader.partitions(), [0]);
    const admin = new Admin({ clientId: 'test', bootstrapBrokers: brokers.split(',') });
    context.after(() => admin.close());
    await admin.createPartitions({ topics: [{ name: topic, count: 3 }] });
    await eventually('all are known', async () => (await reader.partitions()).length === 3);
    const appender = await appenderOf(context, { url, partitionOf: () => 2 });
    await appender.append(entry({ traceId: 'trace-1' }));
    const { headers } = await reader.headers(2, 0, 10);
    assert.deepEqual(
      headers.map(({ traceId }) => traceId),
      ['trace-1'],
    );
  });

  test('headers and records are read across several fetches', async (context) => {
    const { brokers, newTopicName } = await testKafka();
    const url = `kafka://${brokers}/${newTopicName()}?replication=1&partitions=1`;
    const appender = await appenderOf(context, { url });
    const traces = Array.from({ length: 60 }, (_, n) => `trace-${n}`);
    const pad = 'x'.repeat(100_000);
    await Promise.all(traces.map((traceId) => appender.append(entry({ traceId, users: [{ pad }] }))));
    const reader = await readerOf(context, { url });
    const headers = await headersAll(reader, 0, 7);
    assert.deepEqual(
      headers.map(({ traceId }) => traceId),
      traces,
    );
    assert.equal((await readAll(reader, 0)).length, traces.length);
    const bytes = await reader.backlogBytes(0, 0);
    assert.ok(bytes > 60 * 100_000 && bytes < 60 * 101_000);
  });

  test('a message of another program is a record of no tenant; one of another version is not skipped', async (context) => {
    const { brokers, newTopicName } = await testKafka();
    const topic = newTopicName();
    const url = `kafka://${brokers}/${topic}?replication=1&partitions=1`;
    const appender = await appenderOf(context, { url });
    await appender.append(entry());
    const producer = new Producer({ clientId: 'test', bootstrapBrokers: brokers.split(',') });
    const later = `${JSON.stringify({ version: 2, trace_id: 'trace-1', tenant: 'acct_test/development' })}\n{}`;
    for (const value of ['hello', later]) {
      await producer.send({ messages: [{ topic, key: Buffer.from('key'), value: Buffer.from(value) }], acks: -1 });
    }
    await producer.close();
    const reader = await readerOf(context, { url });
    const { headers } = await reader.headers(0, 0, 2);
    assert.deepEqual(
      headers.map(({ tenantId, userCount }) => [tenantId, userCount]),
      [
        [entry().tenantId, 1],
        [NO_TENANT, 0],
      ],
    );
    assert.equal(await reader.traceIdAt(0, 1), headers[1]?.traceId);
    await assert.rejects(readAll(reader, 0), {
      name: 'LogCorruptError',
      message: /^position 2 of partition 0 has a message that another version of Sluice wrote: run the newest version/,
    });
    await assert.rejects(reader.headers(0, 0, 10), { name: 'LogCorruptError' });
  });
});
