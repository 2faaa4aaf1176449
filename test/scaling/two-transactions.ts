/** Transactions of processors that a test takes step by step: one is begun while another is open, and waits for it. */

import { makeTables } from '../../src/backends/postgres/make-tables.ts';
import { openPool } from '../../src/backends/postgres/pool.ts';
import { openPostgresStore } from '../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../src/backends/postgres/store-writer.ts';
import type { WriteTransaction } from '../../src/store-writer.ts';
import { processBatch } from '../processor/process-batch.ts';
import { override } from '../override.ts';
import { entryOf, traceIdOf } from '../processor/history.ts';
import { PROCESSED_AT } from '../processor/processing.ts';
import { testPostgres } from '../servers/postgres.ts';
import { RACING_TENANTS } from './racing-traffic.ts';
import { OPTIONS } from './two-stores.ts';

let requests = 0;

/** Two partitions whose transactions a test takes step by step. */
export async function openForTwo(scope: AsyncDisposableStack) {
  const url = await (await testPostgres()).newDatabase();
  const pool = await openPool({ url, max: 6, applicationName: 'sluice test' });
  await makeTables(pool);
  const writer = openPostgresStoreWriter({ pool: pool.share(), logName: 'test:two' });
  const store = openPostgresStore({ pool: pool.share(), logName: 'test:two' });
  const open = new Set<WriteTransaction>();
  scope.defer(async () => {
    for (const transaction of open) await transaction.rollback();
    await store.close();
    await writer.close();
    await pool.close();
  });
  /** A request of these people, up to its commit; `meanwhile` comes between looking up and writing. */
  const take = async (
    partition: number,
    people: readonly object[],
    meanwhile: () => Promise<void> = async () => undefined,
  ): Promise<{ commit: () => Promise<void> }> => {
    const position = (await writer.processed()).positions.get(partition) ?? 0;
    requests += 1;
    const receivedAt = PROCESSED_AT + requests;
    const entry = entryOf(
      people.map((identifiers) => ({ identifiers, events: [{ event_name: 'met' }] })),
      {
        traceId: traceIdOf(receivedAt, requests),
        tenantId: RACING_TENANTS[0],
        receivedAt,
        keyKind: 'secret',
        idempotencyKey: null,
      },
    );
    const transaction = await writer.begin();
    open.add(transaction);
    try {
      await transaction.advance(partition, position, position + 1);
      const records = [{ ...entry, partition, position, firstUserIndex: 0 }];
      const slowed = override(transaction, {
        write: async (...values) => {
          await meanwhile();
          await transaction.write(...values);
        },
      });
      await processBatch(slowed, records, {
        options: OPTIONS,
        now: () => PROCESSED_AT,
        failpoint: () => undefined,
      });
    } catch (error) {
      await transaction.rollback();
      throw error;
    }
    return { commit: () => transaction.commit(false) };
  };
  /** Whether a transaction waits for another's lock. */
  const waiting = async (): Promise<boolean> => {
    const { rows } = await pool.query(
      `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    return rows.length > 0;
  };
  return { take, waiting, store, writer, pool };
}
