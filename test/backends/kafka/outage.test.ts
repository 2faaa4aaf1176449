/** A broker that is killed and restarted: how soon appends are rejected, and recovery. Three brokers: test/scaling/brokers.test.ts. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type LogReader, LogUnavailableError } from '../../../src/log.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { eventually } from '../../server.ts';
import { type OwnKafka, ownKafka, whyNoKafka } from '../../servers/kafka.ts';
import { appenderOf, groupReaderOf, readerOf } from './log-on-kafka.ts';

/** The deadline is 5 s; a busy machine gets more. */
const REFUSED_MS_MAX = 15_000;
const HEALED_MS_MAX = 60_000;

async function tracesIn(reader: LogReader): Promise<string[]> {
  const all: string[] = [];
  for (const partition of await reader.partitions()) {
    all.push(...(await readAll(reader, partition)).map(({ traceId }) => traceId));
  }
  return all;
}

async function refusedInTime(appending: Promise<void>): Promise<Error> {
  const late = new AbortController();
  const timer = sleep(REFUSED_MS_MAX, 'late', { signal: late.signal }).catch(() => 'late');
  const result = await Promise.race([
    appending.then(
      () => 'acknowledged',
      (error: Error) => error,
    ),
    timer,
  ]);
  late.abort();
  assert.ok(result instanceof LogUnavailableError, String(result));
  return result;
}

suite('A killed broker', { skip: whyNoKafka('own') }, () => {
  let kafka: OwnKafka;
  before(async () => {
    kafka = await ownKafka(1);
  });
  after(() => kafka.close());

  test('an append is rejected within the deadline while it is down, and everything recovers when it is back', {
    timeout: 240_000,
  }, async (context) => {
    const url = `kafka://${kafka.brokers}/${kafka.newTopicName()}?replication=1&partitions=3`;
    const appender = await appenderOf(context, { url });
    const reader = await readerOf(context, { url });
    const member = await groupReaderOf(context, { url });
    await appender.append(entry({ traceId: 'before' }));
    assert.deepEqual(await tracesIn(reader), ['before']);
    await eventually('it has its partitions', async () => (await member.partitions()).length === 3);

    await kafka.killBroker(0);
    const refusal = await refusedInTime(appender.append(entry({ traceId: 'while it is gone' })));
    assert.match(refusal.message, /^Kafka d(id|oes) not (append|accept) /);
    assert.match(appender.problem() ?? '', /^Kafka does not accept data: .*(cannot be reached|ECONNREFUSED)/);
    // From here on appends are rejected immediately.
    await assert.rejects(appender.append(entry()), { name: 'LogUnavailableError', fatal: false });
    await assert.rejects(reader.read(0, 0, 1), { name: 'LogUnavailableError' });

    await kafka.startBroker(0);
    await eventually('it accepts data again', () => appender.problem() === null, HEALED_MS_MAX);
    await appender.append(entry({ traceId: 'after' }));
    const seen = await tracesIn(reader);
    assert.deepEqual(
      seen.filter((traceId) => traceId !== 'while it is gone'),
      ['before', 'after'],
    );
    await eventually(
      'the member has its partitions again and reads on',
      async () => {
        // An error while there is no coordinator.
        const owned = await member.partitions().catch(() => []);
        return owned.length === 3 && (await tracesIn(member)).includes('after');
      },
      HEALED_MS_MAX,
    );
  });

  test('the problem is known before the next append, and closing does not wait for the broker', {
    timeout: 240_000,
  }, async (context) => {
    const url = `kafka://${kafka.brokers}/${kafka.newTopicName()}?replication=1&partitions=1`;
    const appender = await appenderOf(context, { url });
    await appender.append(entry());
    await kafka.killBroker(0);
    await eventually('the problem is known', () => appender.problem() !== null, HEALED_MS_MAX);
    await appender.close();
  });
});
