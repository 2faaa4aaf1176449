/**
 * Received users and events by minute of receipt: users that were accepted and rejected, and events of the accepted ones,
 * as the edge counted them. Repeated requests and records that cannot be processed were received too; an erase, an
 * unmerge and retention of events change nothing here, and reading the log again gives the same numbers. The sweep removes
 * old minutes.
 */

import { MINUTE_MS, type TenantId } from '../../model.ts';
import type { Receipts, TimeRange } from '../../store.ts';
import { startOf } from '../../views/sums.ts';
import { rowsOf } from './database.ts';
import { numberOf, selectPositions } from './ledger.ts';
import type { StoreQueries } from './store-tables.ts';

/** Every minute that has a part in the range, oldest first, and the positions of the same moment, as `readLedger`. */
export async function readReceipts(
  { tables, jsonArrayFrom }: StoreQueries,
  log: string,
  tenantId: TenantId,
  { from, to }: TimeRange,
): Promise<Receipts> {
  const minutes = tables
    .selectFrom('receipts')
    .select((row) => [
      'minute as start',
      row.fn.sum<number>('users_accepted').as('usersAccepted'),
      row.fn.sum<number>('users_rejected').as('usersRejected'),
      row.fn.sum<number>('events_accepted').as('eventsAccepted'),
    ])
    .where('tenant', '=', numberOf(tables, tenantId))
    .where('minute', '>=', from === null ? Number.MIN_SAFE_INTEGER : startOf(from, MINUTE_MS))
    .where('minute', '<', to ?? Number.MAX_SAFE_INTEGER)
    .groupBy('minute')
    .orderBy('minute');
  const row = await tables
    .selectNoFrom([jsonArrayFrom(minutes).as('minutes'), jsonArrayFrom(selectPositions(tables, log)).as('positions')])
    .executeTakeFirstOrThrow();
  return {
    minutes: rowsOf(row.minutes),
    positions: new Map(rowsOf(row.positions).map(({ partition, position }) => [partition, position])),
  };
}
