/**
 * Two processors on one log and one store: for a moment both may believe that a partition is theirs. The store lets only
 * one of them take it on; the other reads where it stands and continues from there, whatever it had read before.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { openSqliteStoreWriter } from '../../src/backends/embedded/store/writer.ts';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { allocateMetrics, METRIC, metricsWriter, readCounter } from '../../src/telemetry/metrics.ts';
import { StoreConflictError, StoreUnavailableError, type StoreWriter } from '../../src/store-writer.ts';
import { override } from '../override.ts';
import { folderIn } from '../faults/scope.ts';
import { entryOf, traceIdOf } from './history.ts';
import { openPartitionedLog } from './partitioned-log.ts';
import { appendAll, type Processing, processAll, withStore } from './processing.ts';

const TENANT = 'acct_f/production';
const RECEIVED_AT = Date.UTC(2026, 3, 1, 9, 30);
const ENTRIES = 40;

function entries(partition: number) {
  return Array.from({ length: ENTRIES }, (_, n) =>
    entryOf([{ identifiers: { user_id: `user-${n % 7}` }, events: [{ event_name: 'sent', n }] }], {
      traceId: traceIdOf(RECEIVED_AT + partition, n),
      tenantId: TENANT,
      receivedAt: RECEIVED_AT + n,
      keyKind: 'secret',
      idempotencyKey: null,
    }),
  );
}

const ONE_BATCH: Processing = { isStoreShared: true, batchBytesMax: 1_500 };

async function storedEvents(dataFolder: string): Promise<number> {
  return withStore(storeFileOf(dataFolder), async (store) => {
    const { eventsInTables, eventsInLedger } = await store.recount();
    assert.equal(eventsInTables, eventsInLedger);
    return eventsInTables;
  });
}

suite('of two processors on one partition', () => {
  for (const [how, processing] of [
    ['many batches a transaction', {}],
    ['one batch a transaction', ONE_BATCH],
  ] as const) {
    test(`the one that comes second stores nothing twice and continues, with ${how}`, async () => {
      await using scope = new AsyncDisposableStack();
      const folder = folderIn(scope);
      await appendAll(folder, entries(0));
      await appendAll(folder, entries(1), 1);
      const buffer = allocateMetrics(1);
      const log = openPartitionedLog(folder);
      scope.defer(() => log.close());
      let isFirst = true;
      // The other one takes all of it in after this one has read its first batch and before it writes it.
      const read = log.read.bind(log);
      log.read = async (...args) => {
        const batch = await read(...args);
        if (isFirst) {
          isFirst = false;
          await processAll(folder);
        }
        return batch;
      };
      await processAll(folder, { ...processing, log, metrics: metricsWriter(buffer, 0) });
      assert.equal(await storedEvents(folder), 2 * ENTRIES);
      assert.equal(readCounter(buffer, METRIC.store_conflicts), 1);
    });
  }

  test('the store refuses to take a partition on from where it is not', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const writer = openSqliteStoreWriter({ file: storeFileOf(folder) });
    scope.defer(() => writer.close());
    const transaction = await writer.begin();
    await transaction.advance(3, 0, 10);
    await assert.rejects(transaction.advance(3, 9, 12), StoreConflictError);
    await transaction.advance(3, 10, 12);
    await transaction.commit(false);
    assert.deepEqual((await writer.processed()).positions, new Map([[3, 12]]));
  });
});

test('a commit whose response is lost is not done twice', async () => {
  await using scope = new AsyncDisposableStack();
  const folder = folderIn(scope);
  await appendAll(folder, entries(0));
  const real = openSqliteStoreWriter({ file: storeFileOf(folder) });
  let lost = 0;
  const forgetful = override<StoreWriter>(real, {
    begin: async () => {
      const transaction = await real.begin();
      return override(transaction, {
        commit: async (durable) => {
          await transaction.commit(durable);
          lost += 1;
          if (lost === 2) throw new StoreUnavailableError('the connection was lost');
        },
        rollback: async () => undefined,
      });
    },
  });
  await processAll(folder, { ...ONE_BATCH, writer: forgetful });
  // Where the store could not be used the processor stops draining; what is left is taken up by the next.
  await processAll(folder, ONE_BATCH);
  assert.ok(lost >= 2);
  assert.equal(await storedEvents(folder), ENTRIES);
});

test('a conflict while the positions are read is waited out, and does not end the processor', async () => {
  await using scope = new AsyncDisposableStack();
  const folder = folderIn(scope);
  await appendAll(folder, entries(0));
  const writer = openSqliteStoreWriter({ file: storeFileOf(folder) });
  const processed = writer.processed.bind(writer);
  writer.processed = async () => {
    writer.processed = processed;
    throw new StoreConflictError('others hold a lock');
  };
  await processAll(folder, { writer });
  await processAll(folder);
  assert.equal(await storedEvents(folder), ENTRIES);
});
