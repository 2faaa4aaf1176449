/**
 * Clocks, behind the edge: a clock that jumps a day back and ten years ahead between records, and under the processor
 * itself. The windows of Idempotency-Key and `$event_id` hold by times of receipt, ids and roots follow their rules,
 * and everything is stored.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import { openSqliteStoreWriter } from '../../src/backends/embedded/store/writer.ts';
import { logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import type { LogEntry, LogReader } from '../../src/log.ts';
import { createLogger, type Logger } from '../../src/telemetry/logger.ts';
import { allocateMetrics, metricsWriter } from '../../src/telemetry/metrics.ts';
import { DAY_MS, EVENT_ID_WINDOW_MS, IDEMPOTENCY_WINDOW_MS } from '../../src/model.ts';
import { Housekeeping } from '../../src/processor/housekeeping.ts';
import { Processor } from '../../src/processor/processor.ts';
import type { Store } from '../../src/store.ts';
import type { StoreWriter } from '../../src/store-writer.ts';
import { folderIn } from '../faults/scope.ts';
import { entriesOf, entryOf, traceIdOf } from './history.ts';
import { appendAll, processAll, withStore } from './processing.ts';
import { dumpOf } from './store-dump.ts';

const TENANT = 'acct_t/production';
const START = Date.UTC(2026, 0, 15, 10);
const TEN_YEARS_MS = 3_652 * DAY_MS;

function at(n: number, receivedAt: number, about: { key?: string; user?: object; event?: object } = {}): LogEntry {
  const user = { identifiers: { user_id: 'ada' }, events: [{ event_name: 'tested', ...about.event }], ...about.user };
  return entryOf([user], {
    traceId: traceIdOf(receivedAt, n),
    tenantId: TENANT,
    receivedAt,
    keyKind: 'secret',
    idempotencyKey: about.key ?? null,
  });
}

async function processed<T>(entries: readonly LogEntry[], use: (store: Store) => Promise<T>): Promise<T> {
  await using scope = new AsyncDisposableStack();
  const dataFolder = folderIn(scope);
  await appendAll(dataFolder, entries);
  await processAll(dataFolder, { batchBytesMax: 200, transactionUsersMax: 2 });
  return await withStore(storeFileOf(dataFolder), async (store) => {
    await dumpOf(store, []);
    return use(store);
  });
}

/** For each entry: undefined when it was stored, or the index of the entry that it repeats. */
async function duplicatesOf(entries: readonly LogEntry[]): Promise<(number | undefined)[]> {
  return processed(entries, (store) =>
    Promise.all(
      entries.map(async ({ traceId }) => {
        const duplicateOf = (await store.trace(TENANT, traceId))?.duplicateOf ?? null;
        const index = entries.findIndex((entry) => entry.traceId === duplicateOf);
        return index === -1 ? undefined : index;
      }),
    ),
  );
}

const KEY = { key: 'once' };

suite('With times of receipt that jump', () => {
  test('an Idempotency-Key holds for 24 hours, to the millisecond, and then starts over', async () => {
    const window = IDEMPOTENCY_WINDOW_MS;
    const times = [0, 1, window - 1, window, window + 1, 2 * window - 1, 2 * window];
    const entries = times.map((time, n) => at(n, START + time, KEY));
    assert.deepEqual(await duplicatesOf(entries), [undefined, 0, 0, undefined, 3, 3, undefined]);
  });

  test('an Idempotency-Key holds for a request that seems to come a while before the first', async () => {
    const entries = [0, -3_600_000, 1 - DAY_MS, -DAY_MS, -DAY_MS + 5].map((time, n) => at(n, START + time, KEY));
    assert.deepEqual(await duplicatesOf(entries), [undefined, 0, 0, undefined, 3]);
  });

  test('ten years ahead and home again, a key is new at each place and holds there', async () => {
    const times = [0, TEN_YEARS_MS, TEN_YEARS_MS + 5, 10, 20];
    const entries = times.map((time, n) => at(n, START + time, KEY));
    assert.deepEqual(await duplicatesOf(entries), [undefined, undefined, 1, undefined, 3]);
  });

  test('an $event_id holds for 7 days, to the millisecond, and then starts over', async () => {
    const window = EVENT_ID_WINDOW_MS;
    const times = [0, 5, -DAY_MS, window - 1, window, window + 1, TEN_YEARS_MS, TEN_YEARS_MS + 1];
    const entries = times.map((time, n) => at(n, START + time, { event: { $event_id: 'e1' } }));
    const stored = await processed(entries, (store) =>
      Promise.all(
        entries.map(async ({ traceId }) => {
          const user = (await store.trace(TENANT, traceId))?.users[0];
          assert.equal((user?.events ?? 0) + (user?.duplicateEvents ?? 0), 1);
          return user?.events;
        }),
      ),
    );
    assert.deepEqual(stored, [1, 0, 0, 0, 1, 0, 1, 0]);
  });

  test('the newest time of receipt wins (rule 11), and first and last seen are the ends', async () => {
    const plan = (value: string): { user: object } => ({ user: { user_properties: { plan: value } } });
    const entries = [
      at(1, START, plan('today')),
      at(2, START + TEN_YEARS_MS, plan('in ten years')),
      at(3, START - DAY_MS, plan('yesterday')),
      at(4, START + 1, plan('a moment later')),
    ];
    await processed(entries, async (store) => {
      const profile = await store.findProfile(TENANT, 'user_id', 'ada');
      assert.equal(profile?.userProperties.get('plan')?.value, '"in ten years"');
      assert.equal(profile?.firstSeen, START - DAY_MS);
      assert.equal(profile?.lastSeen, START + TEN_YEARS_MS);
      assert.equal(profile?.eventCount, 4);
    });
  });

  test('of two nodes the one with the smaller time of receipt survives (rule 9), whichever came first', async () => {
    const entries = [
      at(1, START + TEN_YEARS_MS, { user: { identifiers: { anon_id: 'phone' } } }),
      at(2, START - DAY_MS, { user: { identifiers: { user_id: 'ada' } } }),
      at(3, START, { user: { identifiers: { user_id: 'ada', anon_id: 'phone' } } }),
    ];
    await processed(entries, async (store) => {
      const profile = await store.findProfile(TENANT, 'anon_id', 'phone');
      const trace = await store.trace(TENANT, entries[1]?.traceId ?? '');
      assert.equal(profile?.id, trace?.users[0]?.profileId);
      assert.equal(profile?.mergedIds.length, 1);
      assert.equal(profile?.eventCount, 3);
    });
  });
});

test("a processor whose own clock jumps stores everything once, and says when by that clock's word", async () => {
  await using scope = new AsyncDisposableStack();
  const dataFolder = folderIn(scope);
  const entries = entriesOf(3, 300, 30);
  await appendAll(dataFolder, entries);
  const clock = [START, START - DAY_MS, START + TEN_YEARS_MS, START + 1];
  let reading = 0;
  await processAll(dataFolder, {
    batchBytesMax: 4_000,
    transactionUsersMax: 40,
    now: () => clock[reading++ % clock.length] as number,
  });
  await processAll(dataFolder, { storeFile: `${storeFileOf(dataFolder)}.steady` });
  const traceIds = entries.map(({ traceId }) => traceId);
  const [jumping, steady] = await Promise.all(
    [storeFileOf(dataFolder), `${storeFileOf(dataFolder)}.steady`].map((file) =>
      withStore(file, (store) => dumpOf(store, traceIds)),
    ),
  );
  const withoutClock = (lines: readonly string[] = []): string[] =>
    lines.map((line) => line.replace(/"processedAt":\d+/, ''));
  assert.deepEqual(withoutClock(jumping), withoutClock(steady));
  const times = new Set(jumping?.flatMap((line) => /"processedAt":(\d+)/.exec(line)?.[1] ?? []).map(Number));
  assert.ok(times.size > 1);
  for (const time of times) assert.ok(clock.includes(time));
});

test('an Idempotency-Key is remembered for what still waits in the log, however late that is processed', async () => {
  await using scope = new AsyncDisposableStack();
  const dataFolder = folderIn(scope);
  const entries = [0, 1, 2, 3].map((n) => at(n, START + n * 3_600_000, KEY));
  await appendAll(dataFolder, entries);
  // Days later a processor comes to it, and tidies up after every record.
  const late = START + 5 * DAY_MS;
  const writer = openSqliteStoreWriter({ file: storeFileOf(dataFolder) });
  const log = openEmbeddedLogReader({ folder: logFolderOf(dataFolder), retentionMs: 1e15, now: () => late });
  const parts = {
    log,
    writer,
    metrics: metricsWriter(allocateMetrics(1), 0),
    logger: createLogger('silent', 'test'),
    now: () => late,
  };
  let sweeps = 0;
  const housekeepingAt = (caughtUpTo: number): Promise<void> => {
    sweeps += 1;
    // A new one each time, so that everything is due.
    return new Housekeeping({
      ...parts,
      retentionTime: parts.now,
      retention: { eventsMs: 1e15, tracesMs: 1e15, rejectionsMs: 1e15, rejectionBytesMax: 1e9 },
      backlogBytesMax: 1e9,
      setBacklogFull: () => undefined,
    }).run(new Map(), caughtUpTo);
  };
  const processor = new Processor({
    ...parts,
    options: { defaultCountry: null, junkValues: new Set() },
    batchBytesMax: 1,
    transactionUsersMax: 0,
    waitForMore: async () => processor.stop(),
    betweenTransactions: (_positions, caughtUpTo) => housekeepingAt(caughtUpTo),
  });
  await processor.run();
  await writer.close();
  await log.close();
  assert.ok(sweeps > entries.length);
  await withStore(storeFileOf(dataFolder), async (store) => {
    const stored = await Promise.all(
      entries.map(async ({ traceId }) => (await store.trace(TENANT, traceId))?.duplicateOf),
    );
    assert.deepEqual(stored, [null, ...Array.from({ length: 3 }, () => entries[0]?.traceId)]);
  });
});

test('the log lets go of what is old enough without a new request', async () => {
  await using scope = new AsyncDisposableStack();
  const dataFolder = folderIn(scope);
  const folder = logFolderOf(dataFolder);
  await appendAll(dataFolder, [at(0, START)]);
  await processAll(dataFolder);
  // A later start leaves a segment, which is the newest and stays.
  await appendAll(dataFolder, []);
  let now = START + DAY_MS;
  const log = openEmbeddedLogReader({ folder, retentionMs: 7 * DAY_MS, now: () => now });
  const writer = openSqliteStoreWriter({ file: storeFileOf(dataFolder) });
  let idle = 0;
  const segments: number[] = [];
  const processor = new Processor({
    log,
    writer,
    options: { defaultCountry: null, junkValues: new Set() },
    metrics: metricsWriter(allocateMetrics(1), 0),
    logger: createLogger('silent', 'test'),
    now: () => now,
    waitForMore: async () => {
      segments.push(listSegments(folder).length);
      now += DAY_MS;
      if (++idle === 10) processor.stop();
    },
    betweenTransactions: () => Promise.resolve(),
  });
  await processor.run();
  await writer.close();
  await log.close();
  assert.deepEqual(segments, [2, 2, 2, 2, 2, 2, 1, 1, 1, 1]);
});

test('what is too old goes by the time of retention, which may stand while the clock continues', async () => {
  const swept: number[] = [];
  const lines: string[] = [];
  // Half an hour behind, as after a restart: nothing to warn of.
  let retentionTime = START + DAY_MS - 1_800_000;
  const writer = {
    difference: async () => ({ users: 0, events: 0 }),
    lostRecords: async () => 0,
    processed: async () => ({ positions: new Map(), lastTraceIds: new Map(), skipped: [] }),
    // More to remove, so that the next call is due at once.
    sweep: async (_: unknown, now: number) => swept.push(now) > 0,
  } as Partial<StoreWriter> as StoreWriter;
  const housekeeping = new Housekeeping({
    log: { partitions: async () => [] as number[] } as Partial<LogReader> as LogReader,
    writer,
    metrics: metricsWriter(allocateMetrics(1), 0),
    logger: { warn: (_: object, message: string) => lines.push(message) } as unknown as Logger,
    now: () => START + DAY_MS,
    retentionTime: () => retentionTime,
    retention: { eventsMs: 1, tracesMs: 1, rejectionsMs: 1, rejectionBytesMax: 1 },
    backlogBytesMax: 1,
    setBacklogFull: () => undefined,
  });
  await housekeeping.run(new Map(), START + DAY_MS);
  assert.deepEqual(lines, []);
  retentionTime = START;
  await housekeeping.run(new Map(), START + DAY_MS);
  await housekeeping.run(new Map(), START + DAY_MS);
  retentionTime = START + DAY_MS;
  await housekeeping.run(new Map(), START + DAY_MS);
  assert.deepEqual(swept, [START + DAY_MS - 1_800_000, START, START, START + DAY_MS]);
  assert.deepEqual(lines, [
    'retention goes by an earlier time for now: the clock jumped, or the server was stopped for more than an hour',
  ]);
});
