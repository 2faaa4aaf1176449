/** The moment in which Kafka has taken a batch and its answer is lost. */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import { Cluster } from '../../../src/backends/kafka/cluster.ts';
import { messagesOf } from '../../../src/backends/kafka/message.ts';
import { Producer } from '../../../src/backends/kafka/producer.ts';
import { parseKafkaUrl } from '../../../src/backends/kafka/url.ts';
import type { LogReader } from '../../../src/log.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { eventually } from '../../server.ts';
import { testKafka, whyNoKafka } from '../../servers/kafka.ts';
import { readerOf } from './log-on-kafka.ts';

interface Open {
  readonly cluster: Cluster;
  readonly reader: LogReader;
  readonly late: string[];
  readonly append: (traceId: string) => Promise<void>;
  /** From here on nothing is heard from the leader, until the connection breaks. */
  readonly deafen: () => Promise<() => void>;
}

async function open(context: TestContext): Promise<Open> {
  const { brokers, newTopicName } = await testKafka();
  const url = `kafka://${brokers}/${newTopicName()}?partitions=1`;
  const reader = await readerOf(context, { url });
  const cluster = new Cluster(parseKafkaUrl(url), 'test');
  await cluster.refresh();
  const late: string[] = [];
  const producer = new Producer({
    cluster,
    onLate: (reason) => late.push(reason),
    onRefused: (reason) => assert.fail(reason),
    onBatches: () => undefined,
  });
  context.after(async () => {
    await producer.settled();
    producer.stop();
    await cluster.close();
  });
  return {
    cluster,
    reader,
    late,
    append: (traceId) => producer.send(messagesOf(entry({ traceId })).map((message) => ({ partition: 0, message }))),
    deafen: async () => {
      const { connection } = await cluster.leader(0);
      const { socket } = connection;
      socket.pause();
      return () => socket.destroy();
    },
  };
}

async function tracesIn(reader: LogReader): Promise<string[]> {
  return (await readAll(reader, 0)).map(({ traceId }) => traceId);
}

suite('An answer of Kafka that is lost', { skip: whyNoKafka() }, () => {
  test('a batch whose answer is lost is sent again, acknowledged, and in the log once', async (context) => {
    const { append, deafen, reader, late } = await open(context);
    await append('first');
    const breakOff = await deafen();
    const second = append('second');
    await eventually('Kafka has it', async () => (await tracesIn(reader)).includes('second'));
    const third = append('third');
    breakOff();
    await Promise.all([second, third]);
    assert.deepEqual(await tracesIn(reader), ['first', 'second', 'third']);
    assert.deepEqual(late, []);
  });

  test('who waited too long for an answer is refused, is not sent again, and those after him are taken', async (context) => {
    const { append, deafen, reader, late } = await open(context);
    await append('first');
    const breakOff = await deafen();
    await assert.rejects(append('second'), {
      name: 'LogUnavailableError',
      message: 'Kafka did not take the data in time: it did not answer',
    });
    assert.deepEqual(late, ['it did not answer']);
    breakOff();
    await append('third');
    assert.deepEqual(await tracesIn(reader), ['first', 'second', 'third']);
    await append('fourth');
    assert.equal((await tracesIn(reader)).length, 4);
  });
});
