/**
 * A database that is set back while processors and API servers run, as by a failover that lost transactions: what they
 * remember of tenants, people and days may not be there any more, and its numbers may be given to others. What was lost is
 * stored again from the log, also while nothing is sent.
 */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openPool } from '../../../src/backends/postgres/pool.ts';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import { openEmbeddedLogReader } from '../../../src/backends/embedded/log/reader.ts';
import { logFolderOf } from '../../../src/data-folder/files.ts';
import type { TenantId } from '../../../src/model.ts';
import { allocateMetrics, metricsWriter } from '../../../src/telemetry/metrics.ts';
import { Processor } from '../../../src/processor/processor.ts';
import { type StoreWriter, StoreConflictError } from '../../../src/store-writer.ts';
import { processBatch } from '../../processor/process-batch.ts';
import { DAY_MS, OTHER_TENANT, person, request, START, TENANT } from '../../contract/store-feeding.ts';
import { appendAll, rememberingLogger } from '../../processor/processing.ts';
import { testPostgres, whyNoPostgres } from '../../servers/postgres.ts';
import { eventually, removeFolder, temporaryFolder } from '../../server.ts';
import { databaseFor, migratedDatabase, type TestDatabase, testPoolOptions } from './database.ts';

const LOG = 'test:log';
const CONTEXT = {
  options: { defaultCountry: null, junkValues: new Set<string>() },
  now: () => START,
  failpoint: () => undefined,
};
const DAYS_AGO = START - 3 * DAY_MS;
const LATELY = {
  profileId: null,
  eventName: null,
  from: DAYS_AGO - DAY_MS,
  to: START + DAY_MS,
  limit: 10,
  cursor: null,
};
/** All that the requests below fill, but for tenants. */
const TABLES =
  'positions, nodes, identifiers, counts, ledger, receipts, profile_counts, records, events, event_days, arrivals';

interface Sent {
  readonly tenantId?: TenantId;
  readonly userId?: string;
  readonly timestamp?: number;
}

async function store(
  writer: StoreWriter,
  [partition, position]: readonly [number, number],
  { tenantId = TENANT, userId = 'ada', timestamp = START }: Sent,
): Promise<void> {
  const users = [person({ user_id: userId }, [{ timestamp: new Date(timestamp).toISOString() }])];
  const transaction = await writer.begin();
  try {
    await transaction.advance(partition, position, position + 1);
    await processBatch(transaction, [{ ...request(users, { tenantId }), partition, position }], CONTEXT);
    await transaction.commit(false);
  } catch (error) {
    await transaction.rollback();
    throw error;
  }
}

async function setUp(context: TestContext) {
  const { pool, connect } = await databaseFor(context);
  const open = async (): Promise<StoreWriter> =>
    openPostgresStoreWriter({ pool: await connect({ max: 2 }), logName: LOG });
  const [writer, other] = [await open(), await open()];
  const readers = await connect({ max: 1, applicationName: 'reader' });
  const reader = openPostgresStore({ pool: readers, logName: LOG });
  context.after(() => Promise.all([writer.close(), other.close(), reader.close()]));
  const setBack = async (tables: string): Promise<void> => {
    await pool.query(`TRUNCATE ${tables} RESTART IDENTITY`);
    await pool.query('ALTER SEQUENCE numbers RESTART');
    // As a failover does. The writers are left their connections: they have to find out by the positions.
    await pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE application_name = 'reader' AND datname = current_database()`,
    );
    await eventually('its connection is gone', () => readers.interruptions > 0);
  };
  const namesOf = async (tenantId: TenantId): Promise<string[]> =>
    (await reader.profiles(tenantId, { limit: 10, cursor: null })).rows
      .flatMap((row) => row.identifiers.user_id)
      .sort();
  return { writer, other, reader, setBack, namesOf };
}

/** As an operator restores a dump in place: for a moment there is no database of this name. */
async function putInPlaceOf(url: string, restored: string, waitUntilNoticed: () => Promise<unknown>): Promise<void> {
  const [name, restoredName] = [url, restored].map((each) => new URL(each).pathname.slice(1));
  const server = await openPool(testPoolOptions(new URL('/postgres', url).href, { max: 1 }));
  try {
    await server.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
    await server.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1', [name]);
    await waitUntilNoticed();
    await server.query(`ALTER DATABASE ${name} RENAME TO ${name}_old`);
    await server.query(`ALTER DATABASE ${restoredName} RENAME TO ${name}`);
  } finally {
    await server.close();
  }
}

/** A processor of a local log, and a store to read what it wrote. */
async function setUpProcessor(context: TestContext, folder: string, { connect }: TestDatabase) {
  const log = openEmbeddedLogReader({ folder: logFolderOf(folder), retentionMs: 1e15, now: () => START });
  const writer = openPostgresStoreWriter({ pool: await connect(), logName: log.name });
  const reader = openPostgresStore({ pool: await connect({ max: 1 }), logName: log.name });
  const { logger, lines } = rememberingLogger();
  const processor = new Processor({
    ...CONTEXT,
    log,
    writer,
    logger,
    metrics: metricsWriter(allocateMetrics(1), 0),
    waitForMore: () => sleep(10),
    betweenTransactions: () => Promise.resolve(),
    isStoreShared: true,
    positionsIntervalMs: 50,
  });
  const running = processor.run();
  let isOpen = true;
  const close = async (): Promise<void> => {
    if (!isOpen) return;
    isOpen = false;
    processor.stop();
    await running;
    await Promise.all([writer.close(), reader.close(), log.close()]);
  };
  const namesOf = async (tenantId: TenantId): Promise<string[]> => {
    const { rows } = await reader.profiles(tenantId, { limit: 10, cursor: null });
    return rows.flatMap((row) => row.identifiers.user_id).sort();
  };
  context.after(close);
  return { namesOf, lines, close };
}

suite('A database that was set back under running servers', { skip: whyNoPostgres() }, () => {
  test('has tenants and days as it says itself, not as they were', async (context) => {
    const { writer, other, reader, setBack, namesOf } = await setUp(context);
    const sent = { timestamp: DAYS_AGO };
    for (let position = 0; position < 2; position++) await store(writer, [0, position], sent);
    assert.deepEqual(await namesOf(TENANT), ['ada']);
    await setBack(`tenants, ${TABLES}`);
    // Another tenant gets the number that the first one had.
    await store(other, [1, 0], { tenantId: OTHER_TENANT, userId: 'bob' });
    await assert.rejects(store(writer, [0, 2], sent), StoreConflictError);
    await store(writer, [0, 0], sent);
    assert.deepEqual(await namesOf(TENANT), ['ada']);
    assert.deepEqual(await namesOf(OTHER_TENANT), ['bob']);
    for (const tenantId of [TENANT, OTHER_TENANT]) {
      assert.equal((await reader.events(tenantId, LATELY))?.rows.length, 1);
    }
  });

  test('has people as it says itself', async (context) => {
    const { writer, other, reader, setBack, namesOf } = await setUp(context);
    for (let position = 0; position < 3; position++) await store(writer, [0, position], {});
    await setBack(TABLES);
    await store(other, [1, 0], { userId: 'bob' });
    await assert.rejects(store(writer, [0, 3], {}), StoreConflictError);
    await store(writer, [0, 0], {});
    assert.deepEqual(await namesOf(TENANT), ['ada', 'bob']);
    for (const name of ['ada', 'bob']) {
      assert.equal((await reader.findProfile(TENANT, 'user_id', name))?.eventCount, 1);
    }
  });

  test('is brought up to date from the log while nothing is sent', async (context) => {
    const folder = temporaryFolder();
    context.after(() => removeFolder(folder));
    const database = await migratedDatabase();
    const append = (tenantId: TenantId, names: readonly string[]): Promise<void> =>
      appendAll(
        folder,
        names.map((name) => request([person({ user_id: name })], { tenantId })),
      );
    await append(TENANT, ['ada']);
    const before = await setUpProcessor(context, folder, database);
    await eventually('the first is stored', async () => (await before.namesOf(TENANT)).length === 1);
    await before.close();
    const restored = await (await testPostgres()).newDatabase(database.url);
    const other = await openPool(testPoolOptions(restored, { max: 1 }));
    // It has the number that a tenant got in the database which is replaced.
    await other.query(`INSERT INTO tenants (id) VALUES ('acct_third/production')`);
    await other.close();
    await append(OTHER_TENANT, ['bob', 'cleo']);
    await append(TENANT, ['dora']);
    const { namesOf, lines } = await setUpProcessor(context, folder, database);
    await eventually('all are stored', async () => (await namesOf(TENANT)).length === 2);

    await putInPlaceOf(database.url, restored, () =>
      eventually('the processor waits', () => lines.some((line) => line.includes('not currently accepting'))),
    );
    const names = async (tenantId: TenantId): Promise<string[]> => namesOf(tenantId).catch(() => []);
    await eventually('it is logged', () => lines.some((line) => line.includes('the store is at an earlier state')));
    await eventually('all are stored again', async () => (await names(TENANT)).includes('dora'));
    assert.deepEqual(await namesOf(TENANT), ['ada', 'dora']);
    assert.deepEqual(await namesOf(OTHER_TENANT), ['bob', 'cleo']);
    assert.deepEqual(await namesOf('acct_third/production'), []);
  });
});
