/**
 * An erase on a server that is busy: SQLite has one writer, and the processor has work without end.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { openSqliteStore } from '../../src/backends/embedded/store/store.ts';
import { storeFileOf } from '../../src/data-folder/files.ts';
import type { LogEntry } from '../../src/log.ts';
import { WriteLockRequest } from '../../src/runtime/write-lock-request.ts';
import { folderIn } from '../faults/scope.ts';
import { entryOf, traceIdOf } from './history.ts';
import { openPartitionedLog } from './partitioned-log.ts';
import { appendAll, processAll } from './processing.ts';

const TENANT = 'acct_t/production';
const START = Date.UTC(2026, 0, 15, 10);
const BACKLOG = 3_000;
/** Of a few requests: the backlog makes hundreds of them. */
const BATCH_BYTES = 500;

function entriesOf(from: number, count: number, name: string): LogEntry[] {
  return Array.from({ length: count }, (_, n) =>
    entryOf([{ identifiers: { user_id: `${name}-${n}` }, events: [{ event_name: 'tested' }] }], {
      traceId: traceIdOf(START, from + n),
      tenantId: TENANT,
      receivedAt: START + from + n,
      keyKind: 'secret',
      idempotencyKey: null,
    }),
  );
}

suite('A request for the write lock', () => {
  test('lets an erase write after the batch at hand, not after the backlog', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    await appendAll(dataFolder, entriesOf(0, 1, 'ada'));
    await processAll(dataFolder);
    await appendAll(dataFolder, entriesOf(1, BACKLOG, 'other'));
    const writeLockRequest = new WriteLockRequest(WriteLockRequest.allocate());
    const store = openSqliteStore(storeFileOf(dataFolder), { writeLockRequest });
    scope.defer(() => store.close());
    const profile = await store.findProfile(TENANT, 'user_id', 'ada-0');
    assert.ok(profile);
    const act = { traceId: traceIdOf(START, BACKLOG + 1), at: START + BACKLOG + 1, by: { key_id: 'key_test' } };
    const started = Promise.withResolvers<void>();
    let batches = 0;
    const log = openPartitionedLog(dataFolder);
    scope.defer(() => log.close());
    const read = log.read.bind(log);
    // The erase, which has a thread of its own in a server, runs meanwhile.
    log.read = async (...args) => {
      await setImmediate();
      return read(...args);
    };
    const processing = processAll(dataFolder, {
      log,
      batchBytesMax: BATCH_BYTES,
      writeLockRequest,
      failpoint: (name) => {
        if (name !== 'read') return;
        batches += 1;
        if (batches === 2) started.resolve();
      },
    });
    await started.promise;
    assert.equal(await store.erase(TENANT, profile.id, act), true);
    const batchesBefore = batches;
    await processing;
    assert.ok(batchesBefore < batches / 2, `the erase waited for ${batchesBefore} of ${batches} batches`);
    assert.equal(await store.profileCount(TENANT), BACKLOG);
  });

  test('expires if its thread dies', async () => {
    const buffer = WriteLockRequest.allocate();
    const [asking, processor] = [new WriteLockRequest(buffer), new WriteLockRequest(buffer)];
    assert.equal(processor.isPending(), false);
    asking.renew();
    assert.equal(processor.isPending(), true);
    while (processor.isPending()) await sleep(10);
    asking.renew();
    asking.withdraw();
    assert.equal(processor.isPending(), false);
  });
});
