/** A batch that Kafka has appended, but whose response is lost. */

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
  readonly timeouts: string[];
  readonly append: (traceId: string) => Promise<void>;
  /** Blocks responses of the leader. The returned function breaks the connection. */
  readonly blockResponses: () => Promise<() => void>;
}

async function open(context: TestContext): Promise<Open> {
  const { brokers, newTopicName } = await testKafka();
  const url = `kafka://${brokers}/${newTopicName()}?replication=1&partitions=1`;
  const reader = await readerOf(context, { url });
  const cluster = new Cluster(parseKafkaUrl(url), 'test');
  await cluster.refresh();
  const timeouts: string[] = [];
  const producer = new Producer({
    cluster,
    onTimeout: (reason) => timeouts.push(reason),
    onRejected: (reason) => assert.fail(reason),
    onProduced: () => undefined,
  });
  context.after(async () => {
    await producer.flush();
    producer.stop();
    await cluster.close();
  });
  return {
    cluster,
    reader,
    timeouts,
    append: (traceId) => producer.send(messagesOf(entry({ traceId })).map((message) => ({ partition: 0, message }))),
    blockResponses: async () => {
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

suite('A lost response of Kafka', { skip: whyNoKafka() }, () => {
  test('the batch is sent again, acknowledged, and in the log once', async (context) => {
    const { append, blockResponses, reader, timeouts } = await open(context);
    await append('first');
    const breakOff = await blockResponses();
    const second = append('second');
    await eventually('Kafka has it', async () => (await tracesIn(reader)).includes('second'));
    const third = append('third');
    breakOff();
    await Promise.all([second, third]);
    assert.deepEqual(await tracesIn(reader), ['first', 'second', 'third']);
    assert.deepEqual(timeouts, []);
  });

  test('a request past its deadline is rejected and not sent again, and later ones are appended', async (context) => {
    const { append, blockResponses, reader, timeouts } = await open(context);
    await append('first');
    const breakOff = await blockResponses();
    await assert.rejects(append('second'), {
      name: 'LogUnavailableError',
      message: 'Kafka did not append the data in time: no response',
    });
    assert.deepEqual(timeouts, ['no response']);
    breakOff();
    await append('third');
    assert.deepEqual(await tracesIn(reader), ['first', 'second', 'third']);
    await append('fourth');
    assert.equal((await tracesIn(reader)).length, 4);
  });
});
