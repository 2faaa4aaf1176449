/**
 * A broker whose files are put back from an older copy while a processor runs: the topic has lost its newest records, and
 * edges write on into the positions that were already processed. What is written there must not be taken for what was.
 */

import assert from 'node:assert/strict';
import { cpSync, rmSync } from 'node:fs';
import { after, before, suite, test, type TestContext } from 'node:test';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import { Processor } from '../../../src/processor/processor.ts';
import { allocateMetrics, metricsWriter } from '../../../src/telemetry/metrics.ts';
import { person, request } from '../../contract/store-feeding.ts';
import { rememberingLogger } from '../../processor/processing.ts';
import { eventually } from '../../server.ts';
import { type OwnKafka, ownKafka, whyNoKafka } from '../../servers/kafka.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor } from '../postgres/database.ts';
import { appenderOf, groupReaderOf } from './log-on-kafka.ts';

const OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };
const READ_BYTES = 1_000_000;
/** A broker takes seconds to start, and more on a busy machine. */
const DEADLINE_MS = 60_000;
const IN_COPY = 4;
const PROCESSED = 10;
const DO_NOT_BELONG = /The log and the store do not belong together: at position 9 of partition 0/;

suite('A broker that is put back to an older state', {
  skip: whyNoKafka('own') || whyNoPostgres(),
  timeout: 300_000,
}, () => {
  let kafka: OwnKafka;
  before(async () => {
    kafka = await ownKafka(1);
  });
  after(() => kafka.close());

  /** A topic of one partition, which can be set back to where it has `IN_COPY` records. */
  async function topicOf(context: TestContext) {
    const url = `kafka://${kafka.brokers}/${kafka.newTopicName()}?replication=1&partitions=1`;
    const copy = `${kafka.dataFolder(0)}-copy`;
    context.after(() => rmSync(copy, { recursive: true, force: true }));
    const send = async (users: number): Promise<string[]> => {
      const appender = await appenderOf(context, { url });
      const traceIds: string[] = [];
      for (let n = 0; n < users; n++) {
        const entry = request([person({ user_id: `user-${n}` })]);
        await appender.append(entry);
        traceIds.push(entry.traceId);
      }
      await appender.close();
      return traceIds;
    };
    const whileDown = async (work: () => void): Promise<void> => {
      await kafka.killBroker(0);
      work();
      await kafka.startBroker(0);
    };
    await send(IN_COPY);
    await whileDown(() => cpSync(kafka.dataFolder(0), copy, { recursive: true }));
    return {
      url,
      send,
      putBack: () =>
        whileDown(() => {
          rmSync(kafka.dataFolder(0), { recursive: true });
          cpSync(copy, kafka.dataFolder(0), { recursive: true });
        }),
    };
  }

  async function writerFor(context: TestContext, logName: string) {
    const { pool, connect } = await databaseFor(context);
    const writer = openPostgresStoreWriter({ pool: await connect({ max: 2 }), logName });
    context.after(() => writer.close());
    return { writer, pool };
  }

  test('and has reached the same position again before the next read: the reader notices the other record', async (context) => {
    const { url, send, putBack } = await topicOf(context);
    const traceIds = await send(PROCESSED - IN_COPY);
    const reader = await groupReaderOf(context, { url });
    await eventually('it has the partition', async () => (await reader.partitions()).length > 0, DEADLINE_MS);
    let next = 0;
    await eventually('all is read', async () => {
      ({ next } = await reader.read(0, next, READ_BYTES));
      return next === PROCESSED;
    });
    await putBack();
    await send(PROCESSED);
    // Read ahead of the processor, which is busy.
    await reader.waitForMore();
    await assert.rejects(reader.read(0, PROCESSED, READ_BYTES, traceIds.at(-1)), {
      name: 'LogCorruptError',
      message: DO_NOT_BELONG,
    });
  });

  test('while a processor runs: it waits until an operator has it read the partition again, and stores all of it once', async (context) => {
    const { url, send, putBack } = await topicOf(context);
    const reader = await groupReaderOf(context, { url });
    const { writer, pool } = await writerFor(context, reader.name);
    const { logger, lines } = rememberingLogger();
    let problem: string | null = null;
    const processor = new Processor({
      log: reader,
      writer,
      logger,
      options: OPTIONS,
      metrics: metricsWriter(allocateMetrics(1), 0),
      now: Date.now,
      waitForMore: () => reader.waitForMore(),
      betweenTransactions: async () => undefined,
      onProblem: (text) => {
        problem = text;
      },
      isStoreShared: true,
    });
    const running = processor.run();
    const events = async (): Promise<number | undefined> =>
      (await pool.query<{ events: number }>('SELECT count(*)::integer AS events FROM events')).rows[0]?.events;
    const position = async (): Promise<number | undefined> => (await writer.processed()).positions.get(0);
    try {
      await send(PROCESSED - IN_COPY);
      await eventually('all is processed', async () => (await position()) === PROCESSED, DEADLINE_MS);
      await putBack();
      await eventually('it waits for the lost records', () => /ends at position 4/.test(problem ?? ''), DEADLINE_MS);
      await send(PROCESSED);
      await eventually('it notices the other record', () => DO_NOT_BELONG.test(problem ?? ''), DEADLINE_MS);
      assert.equal(await position(), PROCESSED);
      const [statement] = /UPDATE sluice\.positions .* AND partition = 0/.exec(problem ?? '') ?? [];
      assert.ok(statement !== undefined, problem ?? '');
      await pool.query(statement);
      // Processed before and lost, in the copy, and written into the positions of the lost ones.
      const all = PROCESSED + PROCESSED;
      await eventually('all that was acknowledged is stored', async () => (await events()) === all, DEADLINE_MS);
      await eventually('all is processed', async () => (await position()) === IN_COPY + PROCESSED, DEADLINE_MS);
      assert.equal(await events(), all, 'none is stored twice');
      assert.deepEqual(await writer.difference(), { users: 0, events: 0 });
      assert.equal(await writer.lostRecords(), 0);
      assert.match(
        lines.join(),
        /the position was reset to an earlier one: reading again from there what is not stored/,
      );
      assert.doesNotMatch(lines.join(), /the store is at an earlier state/);
    } finally {
      processor.stop();
      // The retry loop ends with it.
      await Promise.race([running, reader.close()]);
    }
  });
});
