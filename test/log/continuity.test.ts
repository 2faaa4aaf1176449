/** A log that was cut and written on under a store that had processed more of it: it is recognised, and not read on. */

import assert from 'node:assert/strict';
import { cpSync, renameSync, rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { assertOwnSegments } from '../../src/backends/embedded/log/name.ts';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import { openSqliteStore } from '../../src/backends/embedded/store/store.ts';
import { openSqliteStoreWriter } from '../../src/backends/embedded/store/writer.ts';
import { logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import { ForeignSegmentError, LogCorruptError, type LogEntry, type LogReader } from '../../src/log.ts';
import { assertContinues } from '../../src/log/continuity.ts';
import { withPendingRecords } from '../../src/views/reading.ts';
import { folderIn } from '../faults/scope.ts';
import { entryOf, traceIdOf } from '../processor/history.ts';
import { appendAll, PROCESSED_AT, processAll, rememberingLogger } from '../processor/processing.ts';

const RECEIVED_AT = Date.UTC(2026, 3, 1, 9, 30);

function requests(from: number, count: number): LogEntry[] {
  return Array.from({ length: count }, (_, index) => {
    const n = from + index;
    return entryOf([{ identifiers: { user_id: `user-${n}` }, events: [{ event_name: 'tested', n }] }], {
      traceId: traceIdOf(RECEIVED_AT, n),
      tenantId: 'acct_p/production',
      receivedAt: RECEIVED_AT + n,
      keyKind: 'secret',
      idempotencyKey: null,
    });
  });
}

function readerOf(folder: string): LogReader {
  return openEmbeddedLogReader({ folder: logFolderOf(folder) });
}

/** As a broker does that lost its end: positions are given out again, which the embedded log itself never does. */
async function overwrite(folder: string, entries: readonly LogEntry[]): Promise<void> {
  rmSync(logFolderOf(folder), { recursive: true });
  rmSync(`${logFolderOf(folder)}-ends`);
  await appendAll(folder, entries);
}

suite('A newest segment that was given up', () => {
  test('counts as lost what was acknowledged in it and not processed, before the next start and after it', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    await appendAll(folder, requests(1, 10));
    await processAll(folder);
    await appendAll(folder, requests(11, 5));
    const newest = listSegments(logFolderOf(folder)).at(-1)?.file ?? '';
    renameSync(newest, `${newest}.lost`);
    const reading = withPendingRecords(openSqliteStore(storeFileOf(folder)), readerOf(folder));
    scope.defer(() => reading.close());
    const lost = async (): Promise<unknown> => {
      const ledger = await reading.ledger(null, { from: null, to: null });
      return [ledger.missingRecords, ledger.lost.map(({ from, to, records, at }) => [from, to, records, at])];
    };
    assert.deepEqual(await lost(), [0, [[11, 16, 5, null]]]);
    await appendAll(folder, requests(16, 4));
    assert.deepEqual(await lost(), [0, [[11, 16, 5, null]]]);
    await processAll(folder);
    assert.deepEqual(await lost(), [0, [[11, 16, 5, PROCESSED_AT]]]);
    await appendAll(folder, requests(20, 4));
    await processAll(folder);
    assert.deepEqual(await lost(), [0, [[11, 16, 5, PROCESSED_AT]]]);
  });
});

suite('A segment of another copy of the installation', () => {
  test('is noticed in place of an older one, and those of one copy are not', async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, twin] = [folderIn(scope), folderIn(scope)];
    await appendAll(folder, requests(1, 3));
    cpSync(folder, twin, { recursive: true });
    // Nothing comes in the second time: the segment is made again by the next start.
    for (const count of [2, 0, 2]) await appendAll(folder, requests(4, count));
    await appendAll(twin, requests(101, 2));
    assertOwnSegments(logFolderOf(folder));
    assertOwnSegments(logFolderOf(twin));
    const [, replaced] = listSegments(logFolderOf(folder));
    assert.ok(replaced);
    cpSync(replaced.file.replace(folder, twin), replaced.file);
    assert.throws(
      () => assertOwnSegments(logFolderOf(folder)),
      (error: Error) => {
        assert.ok(error instanceof ForeignSegmentError && error.message.includes(replaced.file), error.message);
        return true;
      },
    );
  });
});

test('A store at the same position that takes the place of its own under a running processor makes it wait', async () => {
  await using scope = new AsyncDisposableStack();
  const folder = folderIn(scope);
  await appendAll(folder, requests(1, 10));
  const log = readerOf(folder);
  scope.defer(() => log.close());
  const store = new DatabaseSync(storeFileOf(folder));
  scope.defer(() => store.close());
  let reads = 0;
  const read = log.read.bind(log);
  log.read = async (...args) => {
    reads += 1;
    // As of a copy that took as many other requests.
    if (reads === 3) store.exec(`UPDATE positions SET last_trace_id = 'of the copy'`);
    return read(...args);
  };
  const { logger, lines } = rememberingLogger();
  await processAll(folder, { logger, log, batchBytesMax: 1, transactionUsersMax: 1 });
  assert.match(lines.join('\n'), /do not belong together: at position 2 .*has processed of the copy/);
  const positions = (): unknown => store.prepare('SELECT position FROM positions').all();
  assert.deepEqual(positions(), [{ __proto__: null, position: 3 }]);
  store.exec(`UPDATE positions SET last_trace_id = '${traceIdOf(RECEIVED_AT, 2)}'`);
  await processAll(folder);
  assert.deepEqual(positions(), [{ __proto__: null, position: 11 }]);
});

suite('A log that was overwritten under its store', () => {
  test('is not read on, and the ledger does not balance', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    await appendAll(folder, requests(1, 10));
    await processAll(folder);
    await overwrite(folder, requests(101, 15));
    const log = readerOf(folder);
    const writer = openSqliteStoreWriter({ file: storeFileOf(folder) });
    scope.defer(() => writer.close());
    const { positions, lastTraceIds } = await writer.processed();
    const [position, lastTraceId] = [positions.get(0) ?? 0, lastTraceIds.get(0)];
    assert.deepEqual([position, lastTraceId], [11, traceIdOf(RECEIVED_AT, 10)]);
    await assert.rejects(assertContinues(log, 0, position, lastTraceId), (error: Error) => {
      assert.ok(error instanceof LogCorruptError);
      assert.match(error.message, /do not belong together: at position 10 of partition 0/);
      return true;
    });
    const reading = withPendingRecords(openSqliteStore(storeFileOf(folder)), log);
    scope.defer(() => reading.close());
    assert.equal((await reading.ledger(null, { from: null, to: null })).missingRecords, 1);
  });

  test('makes the processor wait, in words, until an operator decides', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    await appendAll(folder, requests(1, 10));
    await processAll(folder);
    await overwrite(folder, requests(101, 15));
    const { logger, lines } = rememberingLogger();
    await processAll(folder, { logger });
    assert.ok(
      lines.some((line) => /do not belong together/.test(line)),
      lines.join('\n'),
    );
    const store = new DatabaseSync(storeFileOf(folder));
    scope.defer(() => store.close());
    const position = (): unknown => store.prepare('SELECT position FROM positions').get()?.['position'];
    assert.equal(position(), 11);
    store.exec('UPDATE positions SET last_trace_id = NULL');
    await processAll(folder);
    assert.equal(position(), 16);
  });

  test('continues where it is the same log', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    await appendAll(folder, requests(1, 10));
    await processAll(folder);
    await appendAll(folder, requests(11, 5));
    await processAll(folder);
    const reading = withPendingRecords(openSqliteStore(storeFileOf(folder)), readerOf(folder));
    scope.defer(() => reading.close());
    const { positions, missingRecords } = await reading.ledger(null, { from: null, to: null });
    assert.deepEqual([positions.get(0), missingRecords], [16, 0]);
  });
});
