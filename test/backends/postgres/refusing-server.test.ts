/** A database that refuses to work is waited for: no record in the log is to blame, and none becomes a dead letter. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { openEmbeddedLogReader } from '../../../src/backends/embedded/log/reader.ts';
import { logFolderOf } from '../../../src/data-folder/files.ts';
import { allocateMetrics, metricsWriter } from '../../../src/telemetry/metrics.ts';
import { Processor } from '../../../src/processor/processor.ts';
import { folderIn } from '../../faults/scope.ts';
import { entryOf, traceIdOf } from '../../processor/history.ts';
import { appendAll, PROCESSED_AT, rememberingLogger } from '../../processor/processing.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor } from './database.ts';
import { openOn } from './store-under-test.ts';

suite('A PostgreSQL that refuses to work', { skip: whyNoPostgres() }, () => {
  test('is logged and waited for, and no record becomes a dead letter', async (context) => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const { pool } = await databaseFor(context);
    const under = openOn(pool);
    const { writer, store } = under;
    scope.defer(() => under.close());
    const about = { tenantId: 'acct_p/production', keyKind: 'secret', idempotencyKey: null } as const;
    const users = [{ identifiers: { user_id: 'u' }, events: [{ event_name: 'e' }] }];
    await appendAll(
      dataFolder,
      [1, 2, 3].map((n) => entryOf(users, { ...about, traceId: traceIdOf(PROCESSED_AT, n), receivedAt: PROCESSED_AT })),
    );
    const log = openEmbeddedLogReader({ folder: logFolderOf(dataFolder), retentionMs: 1e15, now: Date.now });
    scope.defer(() => log.close());
    const { logger, lines } = rememberingLogger();
    const processor = new Processor({
      log,
      writer,
      options: { defaultCountry: null, junkValues: new Set() },
      metrics: metricsWriter(allocateMetrics(1), 0),
      logger,
      now: () => PROCESSED_AT,
      waitForMore: () => Promise.resolve(),
      betweenTransactions: () => Promise.resolve(),
      isStoreShared: true,
    });
    // As where a table was not restored, or a right was taken away.
    await pool.query('ALTER TABLE arrivals RENAME TO elsewhere');
    await processor.processAll();
    assert.deepEqual([...(await writer.positions())], []);
    assert.equal(lines.filter((line) => /waits.*arrivals/.test(line) || /arrivals.*waits/.test(line)).length, 1);
    await pool.query('ALTER TABLE elsewhere RENAME TO arrivals');
    await processor.processAll();
    assert.deepEqual(await store.deadLetters(10), []);
    const { hours } = await store.ledger(about.tenantId, { from: null, to: null });
    assert.equal(hours[0]?.events.stored, 3);
  });
});
