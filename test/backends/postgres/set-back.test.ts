/**
 * A database that is set back while processors and API servers run, as by a failover that lost transactions: what they
 * remember of tenants, people and days may not be there any more, and its numbers may be given to others.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import type { TenantId } from '../../../src/model.ts';
import { processBatch } from '../../../src/processor/batch.ts';
import { type StoreWriter, StoreConflictError } from '../../../src/store-writer.ts';
import { OTHER_TENANT, person, request, START, TENANT } from '../../contract/store-feeding.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { eventually } from '../../server.ts';
import { databaseFor } from './database.ts';

const LOG = 'test:log';
const CONTEXT = {
  options: { defaultCountry: null, junkValues: new Set<string>() },
  now: () => START,
  failpoint: () => undefined,
};
const ALL = { profileId: null, eventName: null, from: START - 1_000, to: START + 1_000, limit: 10, cursor: null };
/** All that the requests below fill. */
const TABLES =
  'tenants, positions, nodes, identifiers, counts, ledger, receipts, profile_counts, records, events, event_days, arrivals';

async function store(writer: StoreWriter, partition: number, from: number, tenantId: TenantId): Promise<void> {
  const entry = { ...request([person({ user_id: `of ${tenantId}` }, [{}])], { tenantId }), partition, position: from };
  const transaction = await writer.begin();
  try {
    await transaction.advance(partition, from, from + 1);
    await processBatch(transaction, [entry], CONTEXT);
    await transaction.commit(false);
  } catch (error) {
    await transaction.rollback();
    throw error;
  }
}

suite('A database that was set back under running servers', { skip: whyNoPostgres() }, () => {
  test('is written and read by what is in it, not by what was', async (context) => {
    const { pool, connect } = await databaseFor(context);
    const pools = await Promise.all([1, 2].map(() => connect({ max: 2 })));
    const [writer, other] = pools.map((own) => openPostgresStoreWriter({ pool: own, logName: LOG })) as [
      StoreWriter,
      StoreWriter,
    ];
    const readers = await connect({ max: 1, applicationName: 'reader' });
    const reader = openPostgresStore({ pool: readers, logName: LOG });
    context.after(() => Promise.all([writer.close(), other.close(), reader.close()]));
    const namesOf = async (tenantId: TenantId): Promise<unknown> =>
      (await reader.profiles(tenantId, { limit: 10, cursor: null })).rows.map(({ identifiers }) => identifiers.user_id);
    for (let position = 0; position < 2; position++) await store(writer, 0, position, TENANT);
    assert.deepEqual(await namesOf(TENANT), [[`of ${TENANT}`]]);

    await pool.query(`TRUNCATE ${TABLES} RESTART IDENTITY`);
    // As a failover does. Of the writers, one that is left its connections has to find out by the positions.
    await pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE application_name = 'reader' AND datname = current_database()`,
    );
    await eventually('its connection is gone', () => readers.closedConnections > 0);
    // Another tenant gets the number that the first one had.
    await store(other, 1, 0, OTHER_TENANT);
    await assert.rejects(store(writer, 0, 2, TENANT), StoreConflictError);
    await store(writer, 0, 0, TENANT);
    assert.deepEqual(await namesOf(TENANT), [[`of ${TENANT}`]]);
    assert.deepEqual(await namesOf(OTHER_TENANT), [[`of ${OTHER_TENANT}`]]);
    for (const tenantId of [TENANT, OTHER_TENANT]) {
      assert.equal((await reader.events(tenantId, ALL))?.rows.length, 1);
    }
  });
});
