/**
 * A record that makes the processor throw. It is retried, becomes a dead letter with its cause, is shown and counted in
 * the ledger and not tried again; everything before and after it, in its partition and in others, is stored.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { storeFileOf } from '../../src/data-folder/files.ts';
import type { LogEntry } from '../../src/log.ts';
import { allocateMetrics, METRIC, metricsWriter, readCounter } from '../../src/telemetry/metrics.ts';
import type { Store } from '../../src/store.ts';
import { folderIn } from '../faults/scope.ts';
import { entryOf, traceIdOf } from './history.ts';
import { appendAll, PROCESSED_AT, type Processing, processAll, rememberingLogger, withStore } from './processing.ts';
import { dumpOf } from './store-dump.ts';

const TENANT = 'acct_p/production';
const RECEIVED_AT = Date.UTC(2026, 3, 1, 9, 30);
/** Stands for what a client sent: it must not turn up in logs or causes. */
const CANARY = 'canary-4711';

function good(n: number): LogEntry {
  return entryOf([{ identifiers: { user_id: `user-${n}` }, events: [{ event_name: 'good', n }] }], {
    traceId: traceIdOf(RECEIVED_AT, n),
    tenantId: TENANT,
    receivedAt: RECEIVED_AT + n,
    keyKind: 'secret',
    idempotencyKey: null,
  });
}

/** Each is wrong in its own way; what the header says of users and events is what the ledger will say. */
const POISONS: readonly (readonly [what: string, spoil: (entry: LogEntry) => LogEntry, cause: RegExp])[] = [
  ['body is not JSON', (entry) => ({ ...entry, body: Buffer.from(`{"users":[${CANARY}`) }), /not JSON/],
  ['body has no users', (entry) => ({ ...entry, body: Buffer.from(`{"${CANARY}":1}`) }), /TypeError/],
  ['body holds fewer users than its header says', (entry) => ({ ...entry, userCount: 5 }), /1 users .* counted 5/],
  ['body holds fewer events than its header says', (entry) => ({ ...entry, eventCount: 7 }), /1 events .* counted 7/],
  [
    'user cannot be read',
    (entry) => ({ ...entry, body: Buffer.from(`{"users":[{"identifiers":7,"events":"${CANARY}"}]}`) }),
    /Error/,
  ],
  [
    'timestamp cannot be read',
    (entry) => ({
      ...entry,
      body: Buffer.from(`{"users":[{"identifiers":{"user_id":"x"},"events":[{"timestamp":"${CANARY}"}]}]}`),
    }),
    /timestamp/,
  ],
];

interface Processed {
  readonly lines: string[];
  readonly deadLetterCount: number;
  readonly prepared: number;
}

async function processWatched(dataFolder: string, processing: Processing = {}): Promise<Processed> {
  const { logger, lines } = rememberingLogger();
  const buffer = allocateMetrics(1);
  let prepared = 0;
  await processAll(dataFolder, {
    ...processing,
    logger,
    metrics: metricsWriter(buffer, 0),
    failpoint: (name) => {
      if (name === 'begun') prepared += 1;
    },
  });
  return { lines, deadLetterCount: readCounter(buffer, METRIC.dead_letters), prepared };
}

async function assertStored(store: Store, entries: readonly LogEntry[]): Promise<void> {
  for (const { traceId } of entries) {
    const trace = await store.trace(TENANT, traceId);
    assert.equal(trace?.status, 'processed');
    assert.equal(trace?.users[0]?.events, 1);
  }
  const events = await store.events(TENANT, {
    profileId: null,
    eventName: null,
    from: null,
    to: null,
    limit: 500,
    cursor: null,
  });
  assert.equal(events?.rows.length, entries.length);
}

suite('A record that cannot be processed', () => {
  for (const [what, spoil, cause] of POISONS) {
    test(`because its ${what} becomes a dead letter with its cause, and the others are stored`, async () => {
      await using scope = new AsyncDisposableStack();
      const dataFolder = folderIn(scope);
      const before = [1, 2, 3].map(good);
      const poison = spoil(good(4));
      const after = [5, 6, 7].map(good);
      await appendAll(dataFolder, [...before, poison, ...after]);
      const { lines, deadLetterCount } = await processWatched(dataFolder);
      assert.equal(deadLetterCount, 1);
      await withStore(storeFileOf(dataFolder), async (store) => {
        await assertStored(store, [...before, ...after]);
        const [letter, ...more] = await store.deadLetters(10);
        assert.deepEqual(more, []);
        assert.ok(letter !== undefined);
        const { header, ...record } = letter;
        assert.match(record.cause, cause);
        assert.deepEqual([header.traceId, header.userCount], [poison.traceId, poison.userCount]);
        assert.deepEqual(
          { ...record, cause: '' },
          {
            tenantId: TENANT,
            traceId: poison.traceId,
            firstUserIndex: 0,
            users: poison.userCount,
            events: poison.eventCount,
            keyId: poison.keyId,
            isKept: true,
            isErased: false,
            partition: 0,
            position: 4,
            receivedAt: poison.receivedAt,
            failedAt: PROCESSED_AT,
            cause: '',
          },
        );
        const { hours } = await store.ledger(TENANT, { from: null, to: null });
        assert.equal(hours.length, 1);
        assert.deepEqual(
          [hours[0]?.users.received, hours[0]?.users.stored, hours[0]?.users.deadLetters],
          [6 + poison.userCount, 6, poison.userCount],
        );
        assert.deepEqual(
          [hours[0]?.events.received, hours[0]?.events.stored, hours[0]?.events.deadLetters],
          [6 + poison.eventCount, 6, poison.eventCount],
        );
        // Balances, or this throws.
        const dump = await dumpOf(store, [poison.traceId]);
        assert.ok(!dump.join('\n').includes(CANARY));
      });
      assert.equal(lines.filter((line) => line.includes('dead letter')).length, 1);
      assert.ok(!lines.join('\n').includes(CANARY), 'what a client sent is in the log');
    });
  }

  test('is not tried again after a restart', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const poison: LogEntry = { ...good(2), userCount: 2 };
    await appendAll(dataFolder, [good(1), poison]);
    assert.equal((await processWatched(dataFolder)).deadLetterCount, 1);
    const again = await processWatched(dataFolder);
    assert.deepEqual([again.deadLetterCount, again.prepared, again.lines], [0, 0, []]);

    await appendAll(dataFolder, [good(3)]);
    assert.equal((await processWatched(dataFolder)).deadLetterCount, 0);
    await withStore(storeFileOf(dataFolder), async (store) => {
      assert.equal((await store.deadLetters(10)).length, 1);
      await assertStored(store, [good(1), good(3)]);
    });
  });

  test('is retried on its own before it becomes a dead letter', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    await appendAll(dataFolder, [good(1), { ...good(2), userCount: 2 }, good(3)]);
    let begun = 0;
    await processAll(dataFolder, {
      failpoint: (name) => {
        if (name === 'begun') begun += 1;
      },
    });
    // The batch, the first record, the second three times, the third.
    assert.equal(begun, 6);
  });

  test('makes nothing count twice in the metrics, though what came before it is rolled back and done again', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    await appendAll(dataFolder, [good(1), good(2), { ...good(3), userCount: 2 }, good(4)]);
    const buffer = allocateMetrics(1);
    // A batch each, all in one transaction.
    await processAll(dataFolder, { batchBytesMax: 1, metrics: metricsWriter(buffer, 0) });
    assert.equal(readCounter(buffer, METRIC.processed_records), 3);
    assert.equal(readCounter(buffer, METRIC.processed_events), 3);
  });

  test('that throws only once is stored after all', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const entries = [1, 2, 3, 4, 5].map(good);
    await appendAll(dataFolder, entries);
    let failures = 0;
    await processAll(dataFolder, {
      failpoint: (name) => {
        if (name !== 'written' || failures === 2) return;
        failures += 1;
        throw new Error('a moment of weakness');
      },
    });
    assert.equal(failures, 2);
    await withStore(storeFileOf(dataFolder), async (store) => {
      await assertStored(store, entries);
      assert.deepEqual(await store.deadLetters(10), []);
      await dumpOf(store, []);
    });
  });

  test('in one partition holds up neither its own nor another one', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const spoil = (entry: LogEntry): LogEntry => ({ ...entry, eventCount: 9 });
    const first = Array.from({ length: 40 }, (_, n) => good(100 + n));
    const second = Array.from({ length: 40 }, (_, n) => good(200 + n));
    await appendAll(dataFolder, first.with(0, spoil(good(100))).with(17, spoil(good(117))), 0);
    await appendAll(dataFolder, second.with(39, spoil(good(239))), 1);
    const { deadLetterCount } = await processWatched(dataFolder, {
      batchBytesMax: 600,
      transactionUsersMax: 12,
    });
    assert.equal(deadLetterCount, 3);
    await withStore(storeFileOf(dataFolder), async (store) => {
      const deadLetters = await store.deadLetters(10);
      assert.deepEqual(
        deadLetters.map(({ traceId }) => traceId).toSorted(),
        [good(100), good(117), good(239)].map(({ traceId }) => traceId),
      );
      await assertStored(store, [...first.filter((_, n) => n !== 0 && n !== 17), ...second.filter((_, n) => n !== 39)]);
      await dumpOf(store, []);
    });
  });
});
