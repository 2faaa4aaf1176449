/** Readers that share the partitions of the topic: assignment, and that each record is read in order across rebalances. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { suite, test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Producer } from '@platformatic/kafka';
import type { KafkaGroupReader } from '../../../src/backends/kafka/log.ts';
import type { LogAppender } from '../../../src/log.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { eventually } from '../../server.ts';
import { testKafka, whyNoKafka } from '../../servers/kafka.ts';
import { appenderOf, groupReaderOf, readerOf } from './log-on-kafka.ts';

const MEMBER = fileURLToPath(new URL('./group-member.ts', import.meta.url));
/** The coordinator removes a member after the session timeout: 45 s by default. */
const DEAD_MS_MAX = 70_000;

async function newUrl(partitions: number): Promise<string> {
  const { brokers, newTopicName } = await testKafka();
  return `kafka://${brokers}/${newTopicName()}?replication=1&partitions=${partitions}`;
}

async function haveAll(readers: readonly KafkaGroupReader[], partitions: number): Promise<number[][]> {
  return eventually('every reader has partitions, and every partition one reader', async () => {
    const owned = await Promise.all(readers.map((reader) => reader.partitions()));
    const isShared = owned.every((own) => own.length > 0) && owned.flat().length === partitions;
    return isShared && new Set(owned.flat()).size === partitions ? owned : undefined;
  });
}

async function appendUsers(appender: LogAppender, from: number, to: number): Promise<void> {
  const numbers = Array.from({ length: to - from }, (_, n) => from + n);
  await Promise.all(
    numbers.map((n) =>
      appender.append(entry({ traceId: `trace-${n}`, users: [{ identifiers: { user_id: `user-${n}` } }] })),
    ),
  );
}

/** As a processor: reads its partitions from the store's positions, and advances them. */
async function takeAll(reader: KafkaGroupReader, positions: Map<number, number>, seen: string[]): Promise<void> {
  for (const partition of await reader.partitions()) {
    for (;;) {
      const from = positions.get(partition) ?? 0;
      const { records, next } = await reader.read(partition, from, 700);
      // The store accepts each position once.
      if (records.length === 0 || (positions.get(partition) ?? 0) !== from) break;
      for (const { position } of records) assert.ok(position >= from && position < next);
      positions.set(partition, next);
      seen.push(...records.map(({ traceId }) => traceId));
    }
  }
}

suite('A group of readers on Kafka', { skip: whyNoKafka() }, () => {
  test('the first has all partitions, the second gets its share, and gets the rest when the first closes', async (context) => {
    const url = await newUrl(6);
    const first = await groupReaderOf(context, { url });
    await haveAll([first], 6);
    const second = await groupReaderOf(context, { url });
    const owned = await haveAll([first, second], 6);
    assert.deepEqual(
      owned.map(({ length }) => length),
      [3, 3],
    );
    await first.close();
    assert.deepEqual(await first.partitions(), []);
    assert.deepEqual((await haveAll([second], 6))[0], [0, 1, 2, 3, 4, 5]);
  });

  test('the partitions of a killed member are assigned to the other', { timeout: 120_000 }, async (context) => {
    const url = await newUrl(4);
    const survivor = await groupReaderOf(context, { url });
    await haveAll([survivor], 4);
    const child = spawn(process.execPath, [MEMBER, url], { stdio: ['ignore', 'pipe', 'inherit'] });
    context.after(() => child.kill('SIGKILL'));
    for await (const line of createInterface({ input: child.stdout })) {
      if ((JSON.parse(line) as number[]).length === 2) break;
    }
    assert.equal((await survivor.partitions()).length, 2);
    child.kill('SIGKILL');
    await once(child, 'exit');
    await eventually('the survivor has all', async () => (await survivor.partitions()).length === 4, DEAD_MS_MAX);
  });

  test('each record is read once and in order while readers come and go', async (context) => {
    const url = await newUrl(4);
    const appender = await appenderOf(context, { url });
    const positions = new Map<number, number>();
    const seen: string[] = [];
    const first = await groupReaderOf(context, { url });
    await haveAll([first], 4);
    await appendUsers(appender, 0, 200);
    await takeAll(first, positions, seen);
    await appendUsers(appender, 200, 400);
    const second = await groupReaderOf(context, { url });
    const readers = [first, second];
    const isDone = async (count: number): Promise<boolean> => {
      for (const reader of readers) await takeAll(reader, positions, seen);
      return seen.length >= count;
    };
    await eventually('both have read', async () => (await isDone(400)) && (await haveAll(readers, 4)));
    await appendUsers(appender, 400, 600);
    await first.close();
    readers.shift();
    await eventually('the second has read the rest', () => isDone(600));
    assert.equal(new Set(seen).size, 600);
    assert.equal(seen.length, 600);
    const reader = await readerOf(context, { url });
    for (const partition of await reader.partitions()) {
      const traces = new Set((await readAll(reader, partition)).map(({ traceId }) => traceId));
      const order = seen.filter((traceId) => traces.has(traceId));
      assert.deepEqual(order, [...traces]);
    }
  });

  test('at the end of a partition it is notified of new messages, without polling', async (context) => {
    const url = await newUrl(1);
    const appender = await appenderOf(context, { url });
    const reader = await groupReaderOf(context, { url });
    await haveAll([reader], 1);
    assert.deepEqual(await reader.read(0, 0, 1_000), { records: [], next: 0 });
    await appender.append(entry({ traceId: 'first' }));
    const { records, next } = await eventually('it is read', async () => {
      await reader.waitForMore();
      const batch = await reader.read(0, 0, 1_000);
      return batch.records.length > 0 ? batch : undefined;
    });
    assert.equal(records[0]?.traceId, 'first');
    assert.deepEqual(await reader.read(0, next, 1_000), { records: [], next });
  });

  test('reading back and forth is right, whatever was fetched before', async (context) => {
    const url = await newUrl(1);
    const appender = await appenderOf(context, { url });
    await appendUsers(appender, 0, 50);
    const reader = await groupReaderOf(context, { url });
    await haveAll([reader], 1);
    for (const position of [0, 10, 9, 49, 0, 25, 26, 27]) {
      const { records } = await reader.read(0, position, 1);
      assert.deepEqual(
        records.map((record) => record.position),
        [position],
      );
    }
  });

  test('a partition that cannot be read does not keep it from waiting for the others', async (context) => {
    const { brokers, newTopicName } = await testKafka();
    const topic = newTopicName();
    const url = `kafka://${brokers}/${topic}?replication=1&partitions=2`;
    const reader = await groupReaderOf(context, { url });
    await haveAll([reader], 2);
    const producer = new Producer({ clientId: 'test', bootstrapBrokers: brokers.split(',') });
    context.after(() => producer.close());
    const value = Buffer.from(
      `${JSON.stringify({ version: 2, trace_id: 'trace-1', tenant: 'acct_test/development' })}\n{}`,
    );
    await producer.send({ messages: [{ topic, partition: 0, value }], acks: -1 });
    for (let turn = 0; turn < 3; turn++) {
      await assert.rejects(reader.read(0, 0, 1_000), { name: 'LogCorruptError' });
      assert.deepEqual(await reader.read(1, 0, 1_000), { records: [], next: 0 });
      const startedAt = performance.now();
      await reader.waitForMore();
      assert.ok(performance.now() - startedAt > 300, 'it resolved immediately');
    }
    const appender = await appenderOf(context, { url, partitionOf: () => 1 });
    await appender.append(entry({ traceId: 'first' }));
    assert.equal((await reader.read(1, 0, 1_000)).records[0]?.traceId, 'first');
  });

  test('a member commits offsets to Kafka, and they outlive it', async (context) => {
    const url = await newUrl(1);
    const appender = await appenderOf(context, { url });
    await appendUsers(appender, 0, 7);
    const reader = await groupReaderOf(context, { url });
    await haveAll([reader], 1);
    assert.equal(await reader.committed(0), 0);
    await reader.commit(0, 5);
    assert.equal(await reader.committed(0), 5);
    await reader.close();
    assert.equal(await (await readerOf(context, { url })).committed(0), 5);
  });

  test('an offset that was moved ahead by hand is put back, so that no other database deletes what is not processed', async (context) => {
    const url = await newUrl(1);
    const appender = await appenderOf(context, { url });
    await appendUsers(appender, 0, 7);
    // Not a member.
    await (await readerOf(context, { url })).commit(0, 7);
    const reader = await groupReaderOf(context, { url });
    await haveAll([reader], 1);
    await reader.commit(0, 3);
    assert.equal(await reader.committed(0), 3);
  });

  test('records that are processed and old enough are deleted, and reading starts after them', async (context) => {
    const url = await newUrl(1);
    const appender = await appenderOf(context, { url });
    const append = (traceId: string, receivedAt: number): Promise<void> =>
      appender.append(entry({ traceId, receivedAt }));
    for (const n of [0, 1, 2, 3, 4]) await append(`old-${n}`, 1_000 + n);
    for (const n of [0, 1, 2]) await append(`young-${n}`, 9_000 + n);
    const plain = await readerOf(context, { url });
    const kept = async (): Promise<string[]> => (await readAll(plain, 0)).map(({ traceId }) => traceId);
    const opened = async (context_: TestContext): Promise<KafkaGroupReader> => {
      const reader = await groupReaderOf(context_, { url, retentionMs: 2_000, now: () => 10_000 });
      await haveAll([reader], 1);
      return reader;
    };
    const first = await opened(context);
    await first.commit(0, 3);
    assert.deepEqual(await kept(), ['old-3', 'old-4', 'young-0', 'young-1', 'young-2']);
    await first.close();
    const second = await opened(context);
    await second.commit(0, 8);
    assert.deepEqual(await kept(), ['young-0', 'young-1', 'young-2']);
    assert.equal((await plain.read(0, 0, 1)).records[0]?.position, 5);
    assert.equal((await second.read(0, 5, 1)).records[0]?.position, 5);
    assert.ok((await second.backlogBytes(0, 0)) > 0);
  });

  test('a position after the end of a partition is an error immediately', async (context) => {
    const url = await newUrl(1);
    const reader = await groupReaderOf(context, { url });
    await haveAll([reader], 1);
    await assert.rejects(reader.read(0, 5, 1), {
      name: 'LogCorruptError',
      message:
        /partition 0 of topic \S+ ends at position 0, but was already read up to 5: Kafka lost its newest records/,
    });
  });
});
