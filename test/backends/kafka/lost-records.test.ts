/**
 * What Kafka or its operators can take from the readers: unprocessed records, the topic, the permission to delete. And what
 * a processor makes of records that are gone, and of messages that another program wrote.
 */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import { Admin, ConfigResourceTypes, IncrementalAlterConfigOperationTypes, Producer } from '@platformatic/kafka';
import type { KafkaGroupReader } from '../../../src/backends/kafka/log.ts';
import type { LogAppender } from '../../../src/log.ts';
import { tieToTopic } from '../../../src/backends/postgres/identity.ts';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import { Processor } from '../../../src/processor/processor.ts';
import { allocateMetrics, METRIC, metricsWriter, readGauge } from '../../../src/telemetry/metrics.ts';
import { Housekeeping } from '../../../src/processor/housekeeping.ts';
import { withPendingRecords } from '../../../src/views/reading.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { person, request, TENANT } from '../../contract/store-feeding.ts';
import { rememberingLogger } from '../../processor/processing.ts';
import { eventually, runSluice } from '../../server.ts';
import { testKafka, whyNoKafka } from '../../servers/kafka.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor } from '../postgres/database.ts';
import { appenderOf, groupReaderOf, createTopic, readerOf } from './log-on-kafka.ts';

interface TestLog {
  readonly brokers: string;
  readonly topic: string;
  readonly url: string;
}

async function newLog(partitions = 1): Promise<TestLog> {
  const { brokers, newTopicName } = await testKafka();
  const topic = newTopicName();
  return { brokers, topic, url: `kafka://${brokers}/${topic}?replication=1&partitions=${partitions}` };
}

async function asAdmin<Result>(
  { brokers }: Pick<TestLog, 'brokers'>,
  work: (admin: Admin) => Promise<Result>,
): Promise<Result> {
  const admin = new Admin({ clientId: 'test', bootstrapBrokers: brokers.split(',') });
  try {
    return await work(admin);
  } finally {
    await admin.close();
  }
}

/** As Kafka's retention does. */
async function deleteRecordsBefore(log: TestLog, offset: number, partition = 0): Promise<void> {
  const topics = [{ name: log.topic, partitions: [{ partition, offset: BigInt(offset) }] }];
  await asAdmin(log, (admin) => admin.deleteRecords({ topics }));
}

function setPolicy(log: TestLog, value: string): Promise<void> {
  return setTopic(log, { 'cleanup.policy': value });
}

/** Resolves once the broker shows them. */
async function setTopic({ topic, ...log }: TestLog, settings: Readonly<Record<string, string>>): Promise<void> {
  const configs = Object.entries(settings).map(([name, value]) => {
    return { name, configOperation: IncrementalAlterConfigOperationTypes.SET, value };
  });
  const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic };
  await asAdmin(log, async (admin) => {
    await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs }], validateOnly: false });
    const configurationKeys = Object.keys(settings);
    await eventually('the topic has its new settings', async () => {
      const [found] = await admin.describeConfigs({ resources: [{ ...resource, configurationKeys }] });
      return found?.configs.every(({ name, value }) => settings[name] === value) === true;
    });
  });
}

async function appendMany(appender: LogAppender, count: number, receivedAt = Date.now()): Promise<void> {
  for (let n = 0; n < count; n++) await appender.append(entry({ traceId: `trace-${n}`, receivedAt: receivedAt + n }));
}

async function hasPartitions(reader: KafkaGroupReader): Promise<void> {
  await eventually('it has partitions', async () => (await reader.partitions()).length > 0);
}

suite('Data that disappears from Kafka', { skip: whyNoKafka() }, () => {
  test('records that were deleted before they were processed are an error that says what to do', async (context) => {
    const log = await newLog();
    const appender = await appenderOf(context, log);
    await appendMany(appender, 10);
    const reader = await groupReaderOf(context, log);
    await hasPartitions(reader);
    const saysWhatToDo = (error: Error): boolean => {
      assert.equal(error.name, 'LogCorruptError');
      const words = `partition 0 of topic ${log.topic} begins at position 6, but is processed only up to 3`;
      assert.ok(error.message.startsWith(words), error.message);
      assert.match(error.message, /Set retention\.ms and retention\.bytes of the topic to -1/);
      const statement = `UPDATE sluice.positions SET position = 6 WHERE log = '${reader.name}' AND partition = 0`;
      assert.ok(error.message.endsWith(statement), error.message);
      return true;
    };
    await deleteRecordsBefore(log, 6);
    await assert.rejects(reader.read(0, 3, 1_000), saysWhatToDo);
    assert.equal((await reader.read(0, 6, 1)).records[0]?.position, 6);
    await assert.rejects(reader.read(0, 0, 1), (error: Error) => {
      assert.match(error.message, /begins at position 6, but nothing of it is processed: /);
      const values = `INSERT INTO sluice.positions (log, partition, position) VALUES ('${reader.name}', 0, 6)`;
      assert.ok(error.message.endsWith(`${values} ON CONFLICT (log, partition) DO UPDATE SET position = 6`));
      return true;
    });
    assert.deepEqual([await reader.missing(0, 0), await reader.lost()], [6, []]);
    assert.deepEqual([...(await reader.beginnings())], [[0, 6]]);
    const plain = await readerOf(context, log);
    assert.equal((await readAll(plain, 0)).length, 4);
    assert.equal((await plain.read(0, 3, 1)).records[0]?.position, 6, 'a reader that is no processor continues');
  });

  // Its partition may just have been revoked: it reads on, and may even write if no other member has.
  test('records of a partition that is assigned to another member are not skipped either', async (context) => {
    const log = await newLog(2);
    const appender = await appenderOf(context, { ...log, partitionOf: () => 0 });
    await appendMany(appender, 5);
    const [first, second] = [await groupReaderOf(context, log), await groupReaderOf(context, log)];
    const other = await eventually('both have one', async () => {
      const owned = await Promise.all([first.partitions(), second.partitions()]);
      if (owned.some(({ length }) => length !== 1)) return undefined;
      return owned[0].includes(0) ? second : first;
    });
    await deleteRecordsBefore(log, 4);
    await assert.rejects(other.read(0, 2, 1), { name: 'LogCorruptError', message: /begins at position 4/ });
  });

  test('a topic that is deleted and created again ends the reader with an error', async (context) => {
    const log = await newLog();
    const appender = await appenderOf(context, log);
    await appendMany(appender, 1);
    const reader = await groupReaderOf(context, log);
    await hasPartitions(reader);
    await reader.read(0, 0, 1_000);
    const plain = await readerOf(context, log);
    await appender.close();
    await asAdmin(log, (admin) => admin.deleteTopics({ topics: [log.topic] }));
    await eventually('the topic is created again', () =>
      createTopic(log.brokers, log.topic).then(
        () => true,
        () => false,
      ),
    );
    // As a processor that has nothing to read.
    const problem = await eventually('it ends', () =>
      reader.partitions().then(
        () => undefined,
        (error: unknown) => error,
      ),
    );
    assert.ok(problem instanceof Error);
    const words = `the topic ${log.topic} was deleted and created again: restart to use the new topic`;
    assert.deepEqual([problem.name, problem.message], ['TopicReplacedError', words]);
    await assert.rejects(plain.read(0, 0, 1), { name: 'LogCorruptError', message: words });
    await reader.close();
    const again = await groupReaderOf(context, log);
    await hasPartitions(again);
    assert.notEqual(again.name, reader.name);
    assert.deepEqual(await again.read(0, 0, 1), { records: [], next: 0 });
  });

  test('if old records may not be deleted there is one warning, and nothing waits', async (context) => {
    const log = await newLog(2);
    for (const partition of [0, 1]) {
      await appendMany(await appenderOf(context, { ...log, partitionOf: () => partition }), 3, 1_000);
    }
    // Kafka then rejects it for all users, as it does for a user without the permission.
    await setPolicy(log, 'compact');
    const warnings: string[] = [];
    const warn = (message: string): void => void warnings.push(message);
    const reader = await readerOf(context, { ...log, retentionMs: 2_000, now: () => 10_000, warn });
    warnings.length = 0;
    await reader.commit(0, 2);
    await reader.commit(1, 1);
    assert.equal(await reader.committed(0), 2);
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] ?? '', /old records cannot be deleted.*\(POLICY_VIOLATION\)\. Allow this user Delete/);
  });
});

const TICK_MS = 100;
const ALL_HOURS = { from: null, to: null };
const OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };

/** A topic of one partition, a database, and a processor that is made again for each `process`, as after a restart. */
async function processing(context: TestContext) {
  const log = await newLog();
  const { pool, connect, url: storeUrl } = await databaseFor(context);
  const appender = await appenderOf(context, log);
  const plain = await readerOf(context, log);
  const setup = { logName: plain.name };
  const writer = openPostgresStoreWriter({ pool: await connect({ max: 2 }), ...setup });
  const store = openPostgresStore({ pool: await connect({ max: 1 }), ...setup });
  const reading = withPendingRecords(store, plain);
  context.after(() => Promise.all([writer.close(), store.close()]));
  const metrics = allocateMetrics(1);
  // All in one hour of the ledger, and a tick apart: a segment of Kafka ends by the times of its messages.
  let receivedAt = Date.now();
  const { logger, lines } = rememberingLogger();
  const parts = { writer, logger, metrics: metricsWriter(metrics, 0), now: Date.now };
  return {
    log,
    pool,
    reading,
    lines,
    /** As every server does when it starts. */
    tie: () => tieToTopic(pool, plain),
    appender,
    send: async (...users: string[]): Promise<void> => {
      for (const user of users) {
        receivedAt += TICK_MS;
        await appender.append(request([person({ user_id: user })], { receivedAt }));
      }
    },
    process: async (): Promise<void> => {
      const waits = { waitForMore: async () => undefined, betweenTransactions: async () => undefined };
      const reader = await groupReaderOf(context, log);
      await hasPartitions(reader);
      await new Processor({ ...parts, ...waits, log: reader, options: OPTIONS, isStoreShared: true }).processAll();
      await reader.close();
    },
    lostMetric: async (): Promise<number | null> => {
      const retention = { eventsMs: 1e12, tracesMs: 1e12, rejectionsMs: 1e12, rejectionBytesMax: 1e9 };
      const bounds = { retention, retentionTime: Date.now, backlogBytesMax: 1e9, setBacklogFull: () => undefined };
      await new Housekeeping({ ...parts, ...bounds, log: plain }).run((await writer.processed()).positions, Date.now());
      return readGauge(metrics, METRIC.log_lost_records);
    },
    doctor: async (): Promise<string[]> => {
      const { stdout } = await runSluice(['doctor', '--json'], { STORE_URL: storeUrl, LOG_URL: log.url });
      const { findings } = JSON.parse(stdout) as {
        findings: Record<'check' | 'state' | 'message' | 'advice', string>[];
      };
      const about = findings.filter(({ check }) => check === 'ledger' || check === 'backlog');
      return about.map(({ check, state, message, advice }) => `${state} ${check}: ${message} → ${advice}`);
    },
  };
}

suite('Processing a topic', { skip: whyNoKafka() || whyNoPostgres() }, () => {
  test('records that an operator gives up stay counted', async (context) => {
    const { log, pool, reading, lines, send, process, lostMetric, doctor } = await processing(context);
    await send('ada', 'bob');
    await process();
    await send('carl', 'dora', 'eve', 'fred');
    await deleteRecordsBefore(log, 5);
    await process();
    const waiting = await reading.ledger(null, ALL_HOURS);
    assert.deepEqual([waiting.positions.get(0), waiting.missingRecords, waiting.lost], [2, 3, []]);
    assert.match(
      (await doctor()).join('\n'),
      /3 records that the log should have are missing.*→ Records that were not processed were deleted/,
    );
    const [statement] =
      /UPDATE sluice\.positions SET position = 5 WHERE log = '[^']+' AND partition = 0/.exec(lines.join()) ?? [];
    assert.ok(statement !== undefined, lines.join('\n'));
    await pool.query(statement);
    const given = { partition: 0, from: 2, to: 5, records: 3 };
    const moved = await reading.ledger(null, ALL_HOURS);
    assert.deepEqual([moved.missingRecords, moved.lost], [0, [{ ...given, at: null }]]);
    assert.equal(await lostMetric(), 3);
    await process();
    await send('gina');
    await process();
    const after = await reading.ledger(null, ALL_HOURS);
    assert.equal(after.positions.get(0), 7);
    assert.equal(after.missingRecords, 0);
    assert.deepEqual(
      after.lost.map(({ at, ...range }) => [range, typeof at]),
      [[given, 'number']],
    );
    assert.equal(await lostMetric(), 3);
    assert.match(
      (await doctor()).join('\n'),
      /warning ledger: 3 records \(positions 2 to 4 of partition 0\) were given up/,
    );
  });

  test('records that compaction removes before they are processed are missing, and not skipped', async (context) => {
    const { log, pool, reading, lines, send, process, doctor } = await processing(context);
    await send('ada', 'bob');
    await process();
    await send('ada', 'ada', 'ada', 'carl');
    // Of each person Kafka now keeps the last message, once the segment has ended.
    const endsAfter = String(TICK_MS / 2);
    await setTopic(log, { 'cleanup.policy': 'compact', 'segment.ms': endsAfter, 'min.cleanable.dirty.ratio': '0.01' });
    await send('ada', 'bob');
    await eventually('the topic is compacted', async () => {
      const { missingRecords } = await reading.ledger(null, ALL_HOURS);
      return missingRecords === 3;
    });
    await setPolicy(log, 'delete');
    await process();
    assert.equal((await reading.ledger(null, ALL_HOURS)).positions.get(0), 2);
    assert.match((await doctor()).join('\n'), /3 records that the log should have are missing/);
    assert.match(lines.join(), /lacks positions 2 to 4, not processed yet: .* as compaction does/);
    const [statement] =
      /UPDATE sluice\.positions SET position = 5 WHERE log = '[^']+' AND partition = 0/.exec(lines.join()) ?? [];
    assert.ok(statement !== undefined, lines.join('\n'));
    await pool.query(statement);
    await process();
    const after = await reading.ledger(null, ALL_HOURS);
    assert.deepEqual([after.positions.get(0), after.missingRecords], [8, 0]);
    assert.deepEqual(
      after.lost.map(({ from, to, records }) => [from, to, records]),
      [[2, 5, 3]],
    );
  });

  test('records that were removed before a database began are counted, too', async (context) => {
    const { log, reading, send, process, tie, doctor } = await processing(context);
    await send('ada', 'bob', 'carl');
    await deleteRecordsBefore(log, 2);
    await tie();
    const range = { partition: 0, from: 0, to: 2, records: 2 };
    assert.deepEqual((await reading.ledger(null, ALL_HOURS)).lost, [{ ...range, at: null }]);
    await process();
    const { lost, positions } = await reading.ledger(null, ALL_HOURS);
    assert.deepEqual([lost.map(({ at, ...rest }) => [rest, typeof at]), positions.get(0)], [[[range, 'number']], 3]);
    assert.match(
      (await doctor()).join('\n'),
      /2 records .* were no longer in the log when processing of that partition/,
    );
  });

  test('records that were removed before any of their partition was processed are missing, not skipped', async (context) => {
    const { log, pool, reading, lines, send, process, tie, doctor } = await processing(context);
    await tie();
    await send('ada', 'bob', 'carl');
    await asAdmin(log, (admin) => admin.createPartitions({ topics: [{ name: log.topic, count: 2 }] }));
    const added = await appenderOf(context, { ...log, partitionOf: () => 1 });
    for (const user of ['dora', 'eve', 'fred']) await added.append(request([person({ user_id: user })]));
    await deleteRecordsBefore(log, 2);
    await deleteRecordsBefore(log, 1, 1);
    await tie();
    await process();
    const waiting = await reading.ledger(null, ALL_HOURS);
    assert.deepEqual([[...waiting.positions], waiting.missingRecords, waiting.lost], [[], 3, []], lines.join('\n'));
    assert.match(
      (await doctor()).join('\n'),
      /3 records that the log .* processed nothing of partition 0, nothing of partition 1\).*→ Records that were not processed were deleted/,
    );
    const statements = new Set(lines.join('\n').match(/INSERT INTO sluice\.positions .*? SET position = \d/g));
    assert.equal(statements.size, 2, lines.join('\n'));
    for (const statement of statements) await pool.query(statement);
    await process();
    const after = await reading.ledger(null, ALL_HOURS);
    assert.deepEqual(
      [[...after.positions], after.missingRecords],
      [
        [
          [0, 3],
          [1, 3],
        ],
        0,
      ],
    );
    assert.deepEqual(
      after.lost
        .toSorted((a, b) => a.partition - b.partition)
        .map(({ partition, from, to, records }) => [partition, from, to, records]),
      [
        [0, 0, 2, 2],
        [1, 0, 1, 1],
      ],
    );
  });

  test('a copy of a record that is stored already has no effect but that the position passes it', async (context) => {
    const { log, pool, appender, reading, lines, send, process } = await processing(context);
    const receivedAt = Date.now();
    const [ada, bob] = ['ada', 'bob'].map((user) => request([person({ user_id: user }), 7], { receivedAt }));
    assert.ok(ada !== undefined && bob !== undefined);
    await appender.append(ada);
    await process();
    const outcome = async () => {
      const { hours, positions, missingRecords, lost } = await reading.ledger(TENANT, ALL_HOURS);
      const users = hours.map(({ users: { received, stored, duplicates } }) => [received, stored, duplicates]);
      const { rows } = await pool.query<{ events: number; rejections: number }>(
        'SELECT (SELECT count(*) FROM events)::integer AS events, (SELECT count(*) FROM rejections)::integer AS rejections',
      );
      assert.deepEqual([missingRecords, lost], [0, []]);
      return { users, position: positions.get(0), ...rows[0] };
    };
    assert.deepEqual(await outcome(), { users: [[1, 1, 0]], position: 2, events: 1, rejections: 1 });
    // One that is stored, and two of one that is not.
    for (const entry of [ada, bob, bob]) await appender.append(entry);
    await process();
    assert.deepEqual(await outcome(), { users: [[2, 2, 0]], position: 8, events: 2, rejections: 2 });
    assert.match(lines.join(), /the log has records that are stored already: they are left out/);
    await send('carl');
    await pool.query('UPDATE positions SET position = 0, last_trace_id = NULL');
    await process();
    assert.deepEqual(await outcome(), { users: [[3, 3, 0]], position: 9, events: 3, rejections: 2 });
    await deleteRecordsBefore(log, 4);
    const plain = await readerOf(context, log);
    const statement = await plain.readAgainStatement(0);
    assert.equal(
      statement,
      `UPDATE sluice.positions SET position = 4, last_trace_id = NULL WHERE log = '${plain.name}' AND partition = 0`,
    );
    await pool.query(statement);
    await process();
    assert.deepEqual(await outcome(), { users: [[3, 3, 0]], position: 9, events: 3, rejections: 2 });
  });

  test('messages of another program become dead letters of no tenant, and the others are processed', async (context) => {
    const { log, pool, reading, lines, send, process, doctor } = await processing(context);
    await send('ada');
    const producer = new Producer({ clientId: 'test', bootstrapBrokers: log.brokers.split(',') });
    const values = [Buffer.from('hello'), Buffer.from('{"users":[]}'), Buffer.from('{"users":[]}\n{}')];
    const foreign = values.map((value) => ({ topic: log.topic, value }));
    await producer.send({ messages: foreign, acks: -1 });
    await send('bob');
    await producer.send({ messages: foreign.slice(0, 1), acks: -1 });
    const pending = await reading.ledger(TENANT, ALL_HOURS);
    assert.deepEqual([pending.hours.map(({ users }) => users.pending), pending.missingRecords], [[2], 0]);
    await process();
    // The last record that the store has processed is such a message.
    await send('carl');
    await process();
    const { hours, positions, missingRecords } = await reading.ledger(null, ALL_HOURS);
    assert.deepEqual([positions.get(0), missingRecords], [7, 0], lines.join('\n'));
    assert.deepEqual(
      hours.map(({ users }) => [users.received, users.stored, users.deadLetters, users.pending]),
      [[3, 3, 0, 0]],
    );
    assert.deepEqual(await reading.tenants(), [TENANT]);
    const letters = await reading.deadLetters(10);
    assert.deepEqual(
      letters.map(({ tenantId, position, cause, isKept }) => [tenantId, position, cause, isKept]),
      [5, 3, 2, 1].map((at) => ['', at, 'Error: another program wrote this message into the topic', false]),
    );
    const { rows } = await reading.listDeadLetters(TENANT, {
      limit: 10,
      cursor: null,
      cause: null,
      from: null,
      to: null,
    });
    assert.deepEqual(rows, []);
    await pool.query('UPDATE positions SET position = 0, last_trace_id = NULL');
    await process();
    assert.equal((await reading.deadLetters(10)).length, 4, 'they are no other ones when they are read again');
    const findings = (await doctor()).join('\n');
    assert.match(
      findings,
      /warning ledger: position 5 of partition 0 has a message that Sluice cannot read; .*let only/,
    );
    assert.match(findings, /ok ledger: 3 events received, and all accounted for/);
    await producer.close();
  });
});
