/**
 * Why Sluice has its own producer and its own group membership: what the client's do instead. A test that fails after an
 * update of the client is good news: read docs/decisions/038-kafka-client.md again. Leaders that move need several
 * brokers: test/scaling/brokers.test.ts.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { suite, test, type TestContext } from 'node:test';
import {
  Connection,
  Consumer,
  consumerGroupHeartbeatV1,
  ListOffsetTimestamps,
  MessagesStreamModes,
  Producer,
} from '@platformatic/kafka';
import { eventually } from '../../server.ts';
import { testKafka, whyNoKafka } from '../../servers/kafka.ts';
import { createTopic } from './log-on-kafka.ts';

const LEAVING = -1;

async function newTopic(): Promise<{ readonly topic: string; readonly brokers: string; readonly options: Options }> {
  const { brokers, newTopicName } = await testKafka();
  const topic = newTopicName();
  await createTopic(brokers, topic);
  return { topic, brokers, options: { clientId: 'test', bootstrapBrokers: brokers.split(',') } };
}

interface Options {
  readonly clientId: string;
  readonly bootstrapBrokers: string[];
}

function groupConsumer(context: TestContext, options: Options, groupId: string): Consumer {
  const consumer = new Consumer({
    ...options,
    groupId,
    groupProtocol: 'consumer',
    autocommit: false,
    maxWaitTime: 100,
  });
  context.after(() => consumer.close(true));
  return consumer;
}

suite('The Kafka client', { skip: whyNoKafka() }, () => {
  test('its idempotent producer appends a batch twice if its response was lost and others overtook it', async (context) => {
    const { topic, options } = await newTopic();
    const producer = new Producer({ ...options, idempotent: true, retryDelay: 2_000 });
    context.after(() => producer.close());
    let socket: Socket | undefined;
    producer.on('client:broker:connect', ({ connection }) => {
      ({ socket } = connection);
    });
    const send = (): Promise<unknown> =>
      producer.send({ messages: [{ topic, partition: 0, key: Buffer.from('key'), value: Buffer.from('value') }] });
    const consumer = groupConsumer(context, options, `${topic}.ends`);
    const end = async (): Promise<bigint | undefined> =>
      (await consumer.listOffsets({ topics: [topic], timestamp: ListOffsetTimestamps.LATEST })).get(topic)?.[0];
    await send();
    socket?.pause();
    const second = send();
    await eventually('Kafka has appended it', async () => (await end()) === 2n);
    const disconnected = once(producer, 'client:broker:disconnect');
    socket?.destroy();
    await disconnected;
    // Before the retry. Kafka recognises a batch only among the last five of a producer.
    for (let n = 0; n < 6; n++) await send();
    await second;
    assert.equal(await end(), 9n, 'eight messages were sent');
  });

  test('its consumer reads on forever after the coordinator has removed it, beside the new owner', async (context) => {
    const { topic, brokers, options } = await newTopic();
    const removed = groupConsumer(context, options, topic);
    let failures = 0;
    removed.on('consumer:heartbeat:error', () => failures++);
    await removed.consume({ topics: [topic], mode: MessagesStreamModes.EARLIEST });
    const assigned = [{ topic, partitions: [0] }];
    await eventually('it has the partition', () => removed.assignments?.length === 1);
    const connection = new Connection('test');
    context.after(() => connection.close());
    const [host = '', port = ''] = brokers.split(':');
    await connection.connect(host, Number(port));
    const { memberId } = removed;
    assert.ok(memberId !== null);
    await consumerGroupHeartbeatV1.api.async(
      connection,
      topic,
      memberId,
      LEAVING,
      null,
      null,
      -1,
      null,
      null,
      null,
      null,
    );
    const owner = groupConsumer(context, options, topic);
    await owner.consume({ topics: [topic], mode: MessagesStreamModes.EARLIEST });
    await eventually('the new member has the partition', () => owner.assignments?.length === 1);
    await eventually('heartbeats are rejected', () => failures >= 2);
    assert.deepEqual([removed.assignments, owner.assignments], [assigned, assigned]);
  });
});
