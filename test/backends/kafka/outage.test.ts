/** Brokers that die and come back: nothing is acknowledged that is not kept, nothing is there twice, and all heals. */

import assert from 'node:assert/strict';
import { after, before, suite, test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openKafkaLogAppender } from '../../../src/backends/kafka/log.ts';
import { type LogAppender, type LogReader, LogUnavailableError } from '../../../src/log.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { eventually } from '../../server.ts';
import { type OwnKafka, ownKafka, whyNoKafka } from '../../servers/kafka.ts';
import { appenderOf, groupReaderOf, KEPT_MS, makeTopic, readerOf } from './log-on-kafka.ts';

/** The bound is 5 s; a machine that is busy gets more before it is called a failure. */
const REFUSED_MS_MAX = 15_000;
const HEALED_MS_MAX = 60_000;

/** Appends one after the other, each request anew, until it is told to stop. */
class Traffic {
  readonly acknowledged = new Set<string>();
  refused = 0;
  #isStopping = false;
  readonly #streams: Promise<void>[];

  constructor(context: TestContext, appender: LogAppender, name: string) {
    context.after(() => this.stop());
    this.#streams = Array.from({ length: 8 }, (_, stream) => this.#run(appender, `${name}-${stream}`));
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#streams);
  }

  async #run(appender: LogAppender, name: string): Promise<void> {
    for (let n = 0; !this.#isStopping; n++) {
      const traceId = `${name}-${n}`;
      try {
        await appender.append(entry({ traceId, users: [{ identifiers: { user_id: traceId } }] }));
        this.acknowledged.add(traceId);
      } catch (error) {
        assert.ok(error instanceof LogUnavailableError && !error.fatal);
        this.refused++;
        await sleep(50);
      }
    }
  }
}

async function tracesIn(reader: LogReader): Promise<string[]> {
  const all: string[] = [];
  for (const partition of await reader.partitions()) {
    all.push(...(await readAll(reader, partition)).map(({ traceId }) => traceId));
  }
  return all;
}

/** All that was acknowledged is there, and nothing twice. A new leader may show the last of it a moment later. */
async function assertKept(reader: LogReader, traffic: Traffic): Promise<void> {
  let seen: string[] = [];
  await eventually('all that was acknowledged is there', async () => {
    seen = await tracesIn(reader);
    return traffic.acknowledged.isSubsetOf(new Set(seen));
  });
  assert.equal(new Set(seen).size, seen.length);
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

suite('A broker that dies', { skip: whyNoKafka('own') }, () => {
  test('an append while it is gone is refused within the bound, and all heals when it is back', {
    timeout: 240_000,
  }, async (context) => {
    const kafka = await ownKafka(1);
    context.after(() => kafka.close());
    const url = `kafka://${kafka.brokers}/${kafka.newTopicName()}?partitions=3`;
    const appender = await appenderOf(context, { url });
    const reader = await readerOf(context, { url });
    const member = await groupReaderOf(context, { url });
    await appender.append(entry({ traceId: 'before' }));
    assert.deepEqual(await tracesIn(reader), ['before']);
    await eventually('it has its partitions', async () => (await member.partitions()).length === 3);

    await kafka.killBroker(0);
    const refusal = await refusedInTime(appender.append(entry({ traceId: 'while it is gone' })));
    assert.match(refusal.message, /^Kafka d(id|oes) not take /);
    assert.match(appender.trouble() ?? '', /^Kafka does not take data: .*(cannot be reached|ECONNREFUSED)/);
    // From here on nobody waits.
    await assert.rejects(appender.append(entry()), { name: 'LogUnavailableError', fatal: false });
    await assert.rejects(reader.read(0, 0, 1), { name: 'LogUnavailableError' });

    await kafka.startBroker(0);
    await eventually('it takes data again', () => appender.trouble() === null, HEALED_MS_MAX);
    await appender.append(entry({ traceId: 'after' }));
    const seen = await tracesIn(reader);
    assert.deepEqual(
      seen.filter((traceId) => traceId !== 'while it is gone'),
      ['before', 'after'],
    );
    await eventually(
      'the member has its partitions again and reads on',
      async () => {
        // While there is no coordinator, that is what is said.
        const owned = await member.partitions().catch(() => []);
        return owned.length === 3 && (await tracesIn(member)).includes('after');
      },
      HEALED_MS_MAX,
    );
  });

  test('trouble is known before anybody appends, and closing does not wait for the broker', {
    timeout: 240_000,
  }, async (context) => {
    const kafka = await ownKafka(1);
    context.after(() => kafka.close());
    const url = `kafka://${kafka.brokers}/${kafka.newTopicName()}?partitions=1`;
    const appender = await appenderOf(context, { url });
    await appender.append(entry());
    await kafka.killBroker(0);
    await eventually('trouble is known', () => appender.trouble() !== null, HEALED_MS_MAX);
    await appender.close();
  });
});

suite('Three brokers', { skip: whyNoKafka('own'), timeout: 400_000 }, () => {
  let kafka: OwnKafka;
  before(async () => {
    kafka = await ownKafka(3);
  });
  after(() => kafka.close());

  async function log(context: TestContext): Promise<{ readonly appender: LogAppender; readonly reader: LogReader }> {
    const url = `kafka://${kafka.brokers}/${kafka.newTopicName()}?partitions=6`;
    const warnings: string[] = [];
    const appender = await appenderOf(context, { url, warn: (message) => warnings.push(message) });
    assert.deepEqual(warnings, []);
    return { appender, reader: await readerOf(context, { url }) };
  }

  test('one that dies under load loses nothing that was acknowledged', async (context) => {
    const { appender, reader } = await log(context);
    const traffic = new Traffic(context, appender, 'one');
    await eventually('some is written', () => traffic.acknowledged.size > 50);
    await kafka.killBroker(0);
    const before = traffic.acknowledged.size;
    await eventually('the others go on', () => traffic.acknowledged.size > before + 100, HEALED_MS_MAX);
    await eventually('all is well', () => appender.trouble() === null, HEALED_MS_MAX);
    await kafka.startBroker(0);
    await traffic.stop();
    await assertKept(reader, traffic);
  });

  test('while two are gone nothing is acknowledged, and it goes on when they are back', async (context) => {
    const { appender, reader } = await log(context);
    const traffic = new Traffic(context, appender, 'two');
    await eventually('some is written', () => traffic.acknowledged.size > 50, HEALED_MS_MAX);
    await Promise.all([kafka.killBroker(1), kafka.killBroker(2)]);
    await eventually('it is refused', () => appender.trouble() !== null, HEALED_MS_MAX);
    await traffic.stop();
    const count = traffic.acknowledged.size;
    const refused = await refusedInTime(appender.append(entry({ traceId: 'none' })));
    assert.match(refused.message, /Kafka d(id|oes) not take /);
    await Promise.all([kafka.startBroker(1), kafka.startBroker(2)]);
    await eventually('it takes data again', () => appender.trouble() === null, HEALED_MS_MAX);
    const later = new Traffic(context, appender, 'later');
    await eventually('some is written again', () => later.acknowledged.size > 50, HEALED_MS_MAX);
    await later.stop();
    assert.equal(traffic.acknowledged.size, count);
    await assertKept(reader, traffic);
    await assertKept(reader, later);
  });

  test('a topic of which one replica is enough is refused', async () => {
    const topic = kafka.newTopicName();
    await makeTopic(kafka.brokers, topic, { replicas: 3, settings: { 'min.insync.replicas': '1' } });
    await assert.rejects(openKafkaLogAppender({ url: `kafka://${kafka.brokers}/${topic}`, retentionMs: KEPT_MS }), {
      name: 'OperatorError',
      message: /min\.insync\.replicas is 1 with 3 replicas.*only one broker has; set it to 2/,
    });
  });
});
