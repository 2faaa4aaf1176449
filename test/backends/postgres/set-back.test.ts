/**
 * A database that is set back while processors and API servers run, as by a failover that lost transactions: what they
 * remember of tenants, people and days may not be there any more, and its numbers may be given to others.
 */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import type { TenantId } from '../../../src/model.ts';
import { processBatch } from '../../../src/processor/batch.ts';
import { type StoreWriter, StoreConflictError } from '../../../src/store-writer.ts';
import { DAY_MS, OTHER_TENANT, person, request, START, TENANT } from '../../contract/store-feeding.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { eventually } from '../../server.ts';
import { databaseFor } from './database.ts';

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
    await eventually('its connection is gone', () => readers.closedConnections > 0);
  };
  const namesOf = async (tenantId: TenantId): Promise<string[]> =>
    (await reader.profiles(tenantId, { limit: 10, cursor: null })).rows
      .flatMap((row) => row.identifiers.user_id)
      .sort();
  return { writer, other, reader, setBack, namesOf };
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
});
