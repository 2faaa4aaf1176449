/**
 * A partition of the log that cannot be read, beside others that can: where several processors share a store the others
 * continue, an outage is reported, and the partition is taken up again once it can be read.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { openSqliteStoreWriter } from '../../src/backends/embedded/store/writer.ts';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { type LogBatch, LogCorruptError, type LogEntry, type LogReader, LogUnavailableError } from '../../src/log.ts';
import { allocateMetrics, METRIC, metricsWriter, readGauge } from '../../src/telemetry/metrics.ts';
import { Housekeeping } from '../../src/processor/housekeeping.ts';
import { Processor, type ProcessorParts } from '../../src/processor/processor.ts';
import { folderIn } from '../faults/scope.ts';
import { incompressibleText } from '../incompressible.ts';
import { eventually } from '../server.ts';
import { entryOf, traceIdOf } from './history.ts';
import { openPartitionedLog } from './partitioned-log.ts';
import { appendAll, PROCESSED_AT, rememberingLogger, withStore } from './processing.ts';

const TENANT = 'acct_t/production';
const RECEIVED_AT = Date.UTC(2026, 3, 1, 9, 30);
const PARTITIONS = [0, 1, 2];
const BAD = 1;
const ENTRIES = 60;
/** So long that the least that is read of a partition holds a few. */
const PADDING_BYTES = 20_000;
const PADDING = incompressibleText(PADDING_BYTES);

function entryFor(partition: number, n: number): LogEntry {
  return entryOf([{ identifiers: { user_id: `user-${partition}-${n}` }, events: [{ event_name: 'sent', PADDING }] }], {
    traceId: traceIdOf(RECEIVED_AT + partition, n),
    tenantId: TENANT,
    receivedAt: RECEIVED_AT + n,
    keyKind: 'secret',
    idempotencyKey: null,
  });
}

interface Trial {
  readonly log: LogReader;
  readonly processor: Processor;
  readonly lines: readonly string[];
  readonly buffer: SharedArrayBuffer;
  readonly writer: ProcessorParts['writer'];
  /** By how much its clock is ahead of what it was at the start. */
  readonly clock: { aheadMs: number };
  readonly reported: (words: string) => number;
  readonly storedEvents: () => Promise<number>;
}

type Read = LogReader['read'];

/** Three partitions with entries, read as `around` says. */
async function trialIn(
  scope: AsyncDisposableStack,
  around: (read: Read) => Read,
  spoil: (entry: LogEntry, partition: number) => LogEntry = (entry) => entry,
): Promise<Trial> {
  const folder = folderIn(scope);
  const clock = { aheadMs: 0 };
  for (const partition of PARTITIONS) {
    const entries = Array.from({ length: ENTRIES }, (_, n) => spoil(entryFor(partition, n), partition));
    await appendAll(folder, entries, partition);
  }
  const real = openPartitionedLog(folder);
  scope.defer(() => real.close());
  const read = around((...args) => real.read(...args));
  const log = new Proxy(real, {
    get: (target, name) => {
      if (name === 'read') return read;
      const found: unknown = Reflect.get(target, name, target);
      return typeof found === 'function' ? (found.bind(target) as unknown) : found;
    },
  });
  const writer = openSqliteStoreWriter({ file: storeFileOf(folder) });
  scope.defer(() => writer.close());
  const { logger, lines } = rememberingLogger();
  const buffer = allocateMetrics(1);
  const processor = new Processor({
    log,
    writer,
    options: { defaultCountry: null, junkValues: new Set() },
    metrics: metricsWriter(buffer, 0),
    logger,
    now: () => PROCESSED_AT + clock.aheadMs,
    waitForMore: () => new Promise((resolve) => void setTimeout(resolve, 20)),
    betweenTransactions: () => Promise.resolve(),
    isStoreShared: true,
  });
  return {
    log,
    processor,
    lines,
    buffer,
    writer,
    clock,
    reported: (words) => lines.filter((line) => line.includes(words)).length,
    storedEvents: () =>
      withStore(storeFileOf(folder), async (store) => {
        const { eventsInTables, eventsInLedger } = await store.recount();
        assert.equal(eventsInTables, eventsInLedger);
        return eventsInTables;
      }),
  };
}

suite('A partition of the log', () => {
  for (const [what, error] of [
    ['has no leader', new LogUnavailableError('partition 1 has no leader')],
    ['is damaged', new LogCorruptError('the record at position 1 of partition 1 is damaged')],
  ] as const) {
    test(`that ${what} keeps no other from being processed, is reported once, and is taken up again`, async () => {
      await using scope = new AsyncDisposableStack();
      let isBad = true;
      const trial = await trialIn(scope, (read) => async (partition, ...rest) => {
        if (partition === BAD && isBad) throw error;
        return read(partition, ...rest);
      });
      const { processor, reported, storedEvents, lines } = trial;
      const running = processor.run();
      try {
        await eventually('the others are processed', async () => (await storedEvents()) === 2 * ENTRIES);
        await eventually('it is reported', () => reported(error.message) === 1);
        // What is not read is late, though everything else is processed.
        const lag = (): number | null => readGauge(trial.buffer, METRIC.processor_lag);
        await eventually('nothing else lags', () => lag() === 0);
        trial.clock.aheadMs = 3_600_000;
        await eventually('it lags', () => lag() === 3_600);
        isBad = false;
        await eventually('it is processed too', async () => (await storedEvents()) === 3 * ENTRIES);
        await eventually('that is reported', () => reported('reads the partition again') === 1);
        assert.equal(reported(error.message), 1, lines.join('\n'));
      } finally {
        processor.stop();
        await running;
      }
    });
  }

  test('that is read record by record, and then not at all, keeps no other from being processed', async () => {
    await using scope = new AsyncDisposableStack();
    let isBad = false;
    const { processor, storedEvents } = await trialIn(
      scope,
      (read) => async (partition, position, bytesMax) => {
        if (partition === BAD && bytesMax === 1) isBad = true;
        if (partition === BAD && isBad) throw new LogUnavailableError('partition 1 has no leader');
        return read(partition, position, bytesMax);
      },
      (entry, partition) => (partition === BAD ? { ...entry, userCount: 5 } : entry),
    );
    const running = processor.run();
    try {
      await eventually('the others are processed', async () => (await storedEvents()) === 2 * ENTRIES);
      assert.ok(isBad);
    } finally {
      processor.stop();
      await running;
    }
  });

  test('whose response takes long is waited for once, and not at every batch', async () => {
    await using scope = new AsyncDisposableStack();
    let reads = 0;
    const { processor, storedEvents } = await trialIn(scope, (read) => async (partition, ...rest) => {
      if (partition !== BAD) return read(partition, ...rest);
      reads += 1;
      if (reads > 1) return new Promise<LogBatch>(() => undefined);
      throw new LogUnavailableError('partition 1 has no leader');
    });
    const running = processor.run();
    try {
      await eventually('the others are processed', async () => (await storedEvents()) === 2 * ENTRIES);
      await eventually('it is tried again', () => reads === 2);
    } finally {
      processor.stop();
      // Does not wait for the response that never comes.
      await running;
    }
    assert.equal(reads, 2);
  });

  test('that is damaged is reported beside others that are, so that an operator can repair all of them', async () => {
    await using scope = new AsyncDisposableStack();
    let isBad = true;
    const { processor, reported, storedEvents, lines } = await trialIn(scope, (read) => async (partition, ...rest) => {
      if (isBad) throw new LogCorruptError(`partition ${partition} has lost records`);
      return read(partition, ...rest);
    });
    const running = processor.run();
    const isReported = (partition: number): boolean => reported(`partition ${partition} has lost records`) === 1;
    try {
      await eventually('all are reported', () => PARTITIONS.every(isReported));
      isBad = false;
      await eventually('all is processed', async () => (await storedEvents()) === 3 * ENTRIES);
      assert.ok(PARTITIONS.every(isReported), lines.join('\n'));
      assert.equal(reported('continues with the others'), 0);
    } finally {
      processor.stop();
      await running;
    }
  });

  test('is not reported by itself if none can be read: the processor waits', async () => {
    await using scope = new AsyncDisposableStack();
    let isBad = true;
    const { processor, reported, storedEvents, lines } = await trialIn(scope, (read) => async (partition, ...rest) => {
      if (isBad) throw new LogUnavailableError(`partition ${partition} has no leader`);
      return read(partition, ...rest);
    });
    const running = processor.run();
    try {
      await eventually('it is reported', () => reported('the processor waits') === 1);
      isBad = false;
      await eventually('all is processed', async () => (await storedEvents()) === 3 * ENTRIES);
      assert.equal(reported('the processor waits; '), 1, lines.join('\n'));
    } finally {
      processor.stop();
      await running;
    }
  });

  test('that cannot be looked at counts for the backlog as before, and the other duties are done', async (context) => {
    await using scope = new AsyncDisposableStack();
    const { log, writer, buffer } = await trialIn(scope, (read) => read);
    let aheadMs = 0;
    const now = performance.now.bind(performance);
    context.mock.method(performance, 'now', () => now() + aheadMs);
    let isBad = false;
    let looks = 0;
    let checks = 0;
    const housekeeping = new Housekeeping({
      log: {
        ...log,
        partitions: () => log.partitions(),
        traceIdAt: (...args) => log.traceIdAt(...args),
        missing: (...args) => log.missing(...args),
        backlogBytes: async (partition: number, position: number) => {
          looks += 1;
          if (isBad && partition === BAD) throw new LogUnavailableError('partition 1 has no leader');
          return log.backlogBytes(partition, position);
        },
      },
      writer: {
        processed: () => writer.processed(),
        lostRecords: () => writer.lostRecords(),
        begin: () => writer.begin(),
        sweep: (...args) => writer.sweep(...args),
        compact: () => writer.compact(),
        continueErasures: (options) => writer.continueErasures(options),
        hasJobs: () => writer.hasJobs(),
        close: () => writer.close(),
        difference: () => {
          checks += 1;
          return writer.difference();
        },
      },
      metrics: metricsWriter(buffer, 0),
      logger: rememberingLogger().logger,
      now: () => PROCESSED_AT + aheadMs,
      retentionTime: () => PROCESSED_AT + aheadMs,
      retention: { eventsMs: 1e15, tracesMs: 1e15, rejectionsMs: 1e15, rejectionBytesMax: 1e15 },
      backlogBytesMax: 1e15,
      setBacklogFull: () => undefined,
    });
    await housekeeping.run(new Map(), PROCESSED_AT);
    const before = readGauge(buffer, METRIC.backlog_bytes);
    assert.ok((before ?? 0) > 3 * ENTRIES * PADDING_BYTES);
    isBad = true;
    aheadMs = 15_000;
    await housekeeping.run(new Map(), PROCESSED_AT);
    assert.deepEqual([readGauge(buffer, METRIC.backlog_bytes), looks, checks], [before, 6, 2]);
    // What may take seconds is not done every second.
    aheadMs = 40_000;
    await housekeeping.run(new Map(), PROCESSED_AT);
    assert.deepEqual([looks, checks], [6, 3]);
    aheadMs = 46_000;
    await housekeeping.run(new Map(), PROCESSED_AT);
    assert.equal(looks, 9);
  });
});
