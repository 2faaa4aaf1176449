/** Several databases on one topic: each gets all records, and no record is deleted that one still needs. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { suite, test } from 'node:test';
import type { KafkaGroupReader } from '../../../src/backends/kafka/log.ts';
import { databaseIdOf } from '../../../src/backends/postgres/identity.ts';
import { entry } from '../../contract/log-entries.ts';
import { eventually } from '../../server.ts';
import { testKafka, whyNoKafka } from '../../servers/kafka.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor } from '../postgres/database.ts';
import { appenderOf, groupReaderOf } from './log-on-kafka.ts';

/** All records are old by then. */
const OLD = { retentionMs: 2_000, now: () => 10_000 };

async function newUrl(partitions: number): Promise<string> {
  const { brokers, newTopicName } = await testKafka();
  return `kafka://${brokers}/${newTopicName()}?replication=1&partitions=${partitions}`;
}

async function has(reader: KafkaGroupReader, count: number): Promise<void> {
  await eventually('it has its partitions', async () => (await reader.partitions()).length === count);
}

async function firstAvailable(reader: KafkaGroupReader): Promise<number> {
  return (await reader.beginnings()).get(0) ?? 0;
}

suite('Databases that share a topic', { skip: whyNoKafka() }, () => {
  test('processors of one database share the partitions, those of another have all of them', async (context) => {
    const url = await newUrl(4);
    const [one, other] = [randomUUID(), randomUUID()];
    const first = await groupReaderOf(context, { url, databaseId: one });
    await has(first, 4);
    const stranger = await groupReaderOf(context, { url, databaseId: other });
    await has(stranger, 4);
    const second = await groupReaderOf(context, { url, databaseId: one });
    await has(second, 2);
    await has(first, 2);
    await has(stranger, 4);
  });

  test('old records are deleted when all databases have processed them', async (context) => {
    const url = await newUrl(1);
    const appender = await appenderOf(context, { url });
    for (let n = 0; n < 8; n++) await appender.append(entry({ traceId: `trace-${n}`, receivedAt: 1_000 + n }));
    const [one, other] = [randomUUID(), randomUUID()];
    const opened = async (databaseId: string): Promise<KafkaGroupReader> => {
      const reader = await groupReaderOf(context, { url, databaseId, ...OLD });
      await has(reader, 1);
      return reader;
    };
    const first = await opened(one);
    const stranger = await opened(other);
    await first.commit(0, 6);
    assert.equal(await firstAvailable(stranger), 0, 'the other has not begun');
    await stranger.commit(0, 4);
    assert.equal(await firstAvailable(stranger), 4);
    await stranger.close();
    await first.close();
    const again = await opened(one);
    await again.commit(0, 7);
    assert.equal(await firstAvailable(again), 4, 'also while the other has no members');
  });
});

suite('The id of a database', { skip: whyNoPostgres() }, () => {
  test('it stays, and a copy has another', async (context) => {
    // Both are copies of one.
    const { pool, connect } = await databaseFor(context);
    const { pool: copy } = await databaseFor(context);
    const id = await databaseIdOf(pool);
    assert.match(id, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    assert.notEqual(await databaseIdOf(copy), id);
    const later = await connect({ max: 1 });
    context.after(() => later.close());
    assert.equal(await databaseIdOf(later), id);
  });
});
