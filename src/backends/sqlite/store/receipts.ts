/**
 * What came in, by minute of receipt: users that were accepted and rejected, and events of the accepted ones, as the edge
 * counted them. Gathered in memory and written once per transaction, with the books.
 *
 * Invariant: a record counts once, when it is processed, whatever becomes of it. Repeated requests and records that are
 * set aside came in too; an erase, an unmerge and retention of events change nothing here, and reading the log anew
 * gives the same numbers. The sweep removes old minutes.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { ReceiptMinute, Receipts, TimeRange } from '../../../store.ts';
import type { RecordHeader } from '../../../store-writer.ts';
import { MINUTE_MS } from '../../../stored/sums.ts';
import type { StoreConnection } from './connection.ts';

interface Minute {
  usersAccepted: number;
  usersRejected: number;
  eventsAccepted: number;
}

export class StoreReceipts {
  readonly #add: StatementSync;
  /** By tenant, then start of the minute. */
  readonly #tenants = new Map<number, Map<number, Minute>>();

  constructor(database: DatabaseSync) {
    this.#add = database.prepare(
      `INSERT INTO receipts VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
         users_accepted = users_accepted + excluded.users_accepted,
         users_rejected = users_rejected + excluded.users_rejected,
         events_accepted = events_accepted + excluded.events_accepted`,
    );
  }

  count(tenant: number, { receivedAt, usersAccepted, usersRejected, eventsAccepted }: RecordHeader): void {
    const start = startOf(receivedAt);
    let minutes = this.#tenants.get(tenant);
    if (minutes === undefined) this.#tenants.set(tenant, (minutes = new Map()));
    let minute = minutes.get(start);
    if (minute === undefined) minutes.set(start, (minute = { usersAccepted: 0, usersRejected: 0, eventsAccepted: 0 }));
    minute.usersAccepted += usersAccepted;
    minute.usersRejected += usersRejected;
    minute.eventsAccepted += eventsAccepted;
  }

  /** To be called before the transaction is committed. */
  flush(): void {
    for (const [tenant, minutes] of this.#tenants) {
      for (const [start, { usersAccepted, usersRejected, eventsAccepted }] of minutes) {
        this.#add.run(tenant, start, usersAccepted, usersRejected, eventsAccepted);
      }
    }
    this.forget();
  }

  forget(): void {
    this.#tenants.clear();
  }
}

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
          from === null ? Number.MIN_SAFE_INTEGER : startOf(from),
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

function startOf(time: number): number {
  return Math.floor(time / MINUTE_MS) * MINUTE_MS;
}
