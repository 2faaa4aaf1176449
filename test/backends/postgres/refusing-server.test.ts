/** A database that refuses to work is waited for: no record in the log is to blame, and none becomes a dead letter. */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import { openEmbeddedLogReader } from '../../../src/backends/embedded/log/reader.ts';
import type { DoctorParts } from '../../../src/cli/doctor-checks.ts';
import { checkLedger } from '../../../src/cli/doctor-data.ts';
import { logFolderOf } from '../../../src/data-folder/files.ts';
import { allocateMetrics, metricsWriter } from '../../../src/telemetry/metrics.ts';
import { Processor } from '../../../src/processor/processor.ts';
import { folderIn } from '../../faults/scope.ts';
import { entryOf, traceIdOf } from '../../processor/history.ts';
import { appendAll, PROCESSED_AT, rememberingLogger } from '../../processor/processing.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor } from './database.ts';
import { openOn } from './store-under-test.ts';

const ABOUT = { tenantId: 'acct_p/production', keyKind: 'secret', idempotencyKey: null } as const;

suite('A PostgreSQL that refuses to work', { skip: whyNoPostgres() }, () => {
  test('is logged and waited for, and no record becomes a dead letter', async (context) => {
    await using scope = new AsyncDisposableStack();
    const { pool, writer, store, processor, lines } = await processorIn(scope, context, ['e', 'e', 'e']);
    // As where a table was not restored, or a right was taken away.
    await pool.query('ALTER TABLE arrivals RENAME TO elsewhere');
    await processor.processAll();
    assert.deepEqual([...(await writer.processed()).positions], []);
    assert.equal(lines.filter((line) => /waits.*arrivals/.test(line) || /arrivals.*waits/.test(line)).length, 1);
    await pool.query('ALTER TABLE elsewhere RENAME TO arrivals');
    await processor.processAll();
    assert.deepEqual(await store.deadLetters(10), []);
    const { hours } = await store.ledger(ABOUT.tenantId, { from: null, to: null });
    assert.equal(hours[0]?.events.stored, 3);
  });

  test('because of a column that someone added, which no record has, is waited for too', async (context) => {
    await using scope = new AsyncDisposableStack();
    const { pool, writer, store, processor, lines } = await processorIn(scope, context, ['e', 'e']);
    await pool.query('ALTER TABLE records ADD COLUMN added int NOT NULL');
    await processor.processAll();
    assert.deepEqual([...(await writer.processed()).positions], []);
    assert.equal(lines.filter((line) => /column .*added.* of relation/.test(line)).length, 1);
    await pool.query('ALTER TABLE records DROP COLUMN added');
    await processor.processAll();
    assert.deepEqual(await store.deadLetters(10), []);
    const { hours } = await store.ledger(ABOUT.tenantId, { from: null, to: null });
    assert.equal(hours[0]?.events.stored, 2);
  });

  test('because of a constraint that someone added makes a dead letter of the record that breaks it', async (context) => {
    await using scope = new AsyncDisposableStack();
    const { pool, store, processor } = await processorIn(scope, context, ['e', 'bad', 'e']);
    await pool.query("ALTER TABLE events ADD CONSTRAINT added CHECK (event_name <> 'bad')");
    await processor.processAll();
    const [letter, ...others] = await store.deadLetters(10);
    assert.match(
      letter?.cause ?? '',
      /: the tables in the database were changed: .* rejects a row \(.*added\): 23514$/,
    );
    assert.deepEqual([letter?.position, others], [2, []]);
    const { hours } = await store.ledger(ABOUT.tenantId, { from: null, to: null });
    assert.equal(hours[0]?.events.stored, 2);
    const config = { storeUrl: 'postgres://db.example/events', logUrl: 'kafka://b.example/t' };
    const findings = await checkLedger({ config, isDeep: false, store: async () => store } as unknown as DoctorParts);
    const advice = findings.find(({ state }) => state === 'error')?.advice ?? '';
    assert.match(advice, /Remove that constraint, then: sluice dead-letters --retry all/);
    assert.doesNotMatch(advice, /bug/);
  });
});

/** A processor on a new database, and a log with an event of each name, in requests of their own. */
async function processorIn(scope: AsyncDisposableStack, context: TestContext, names: readonly string[]) {
  const dataFolder = folderIn(scope);
  const { pool } = await databaseFor(context);
  const under = openOn(pool);
  const { writer, store } = under;
  scope.defer(() => under.close());
  const entries = names.map((event_name, n) =>
    entryOf([{ identifiers: { user_id: `u${n}` }, events: [{ event_name }] }], {
      ...ABOUT,
      traceId: traceIdOf(PROCESSED_AT, n),
      receivedAt: PROCESSED_AT,
    }),
  );
  await appendAll(dataFolder, entries);
  const log = openEmbeddedLogReader({ folder: logFolderOf(dataFolder) });
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
  return { pool, writer, store, processor, lines };
}
