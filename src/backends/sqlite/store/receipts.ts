/**
 * What came in, by minute of receipt: users that were accepted and rejected, and events of the accepted ones, as the edge
 * counted them (written by store/counts.ts). Repeated requests and records that cannot be processed came in too; an
 * erase, an unmerge and retention of events change nothing here, and reading the log anew gives the same numbers. The
 * sweep removes old minutes.
 */

import type { ReceiptMinute, Receipts, TimeRange } from '../../../store.ts';
import { MINUTE_MS, startOf } from '../../../views/sums.ts';
import type { StoreConnection } from './connection.ts';

interface ReceiptRow {
  readonly minute: number;
  readonly users_accepted: number;
  readonly users_rejected: number;
  readonly events_accepted: number;
}

/** Every minute that has a part in the range, oldest first; undefined is a tenant that never sent anything. */
export function readReceipts(store: StoreConnection, tenant: number | undefined, { from, to }: TimeRange): Receipts {
  const minutes =
    tenant === undefined
      ? []
      : store.all<ReceiptRow>(
          'SELECT * FROM receipts WHERE tenant = ? AND minute >= ? AND minute < ? ORDER BY minute',
          tenant,
          from === null ? Number.MIN_SAFE_INTEGER : startOf(from, MINUTE_MS),
          to ?? Number.MAX_SAFE_INTEGER,
        );
  const positions = store.all<{ partition: number; position: number }>('SELECT partition, position FROM positions');
  return {
    minutes: minutes.map(receiptMinute),
    positions: new Map(positions.map(({ partition, position }) => [partition, position])),
  };
}

function receiptMinute(row: ReceiptRow): ReceiptMinute {
  return {
    start: row.minute,
    usersAccepted: row.users_accepted,
    usersRejected: row.users_rejected,
    eventsAccepted: row.events_accepted,
  };
}
