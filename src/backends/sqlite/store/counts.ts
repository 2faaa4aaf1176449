/**
 * Writes the events of a transaction by minute and hour, row by row: prepared statements, since an import may count
 * thousands of minutes in one transaction.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { NO_REVENUE } from '../../../views/currency.ts';
import { addAmounts, type CountedBucket } from '../../../views/event-counts.ts';

export class StoreCounts {
  readonly #find: StatementSync;
  readonly #write: StatementSync;

  constructor(database: DatabaseSync) {
    this.#find = database.prepare(
      `SELECT revenue FROM counts
       WHERE tenant = ? AND width = ? AND start = ? AND event_name = ? AND currency = ? AND shard = 0`,
    );
    this.#write = database.prepare(
      `INSERT INTO counts (tenant, width, start, event_name, currency, shard, events, revenue)
       VALUES (?, ?, ?, ?, ?, 0, ?, ?)
       ON CONFLICT DO UPDATE SET events = events + excluded.events, revenue = excluded.revenue`,
    );
  }

  write(buckets: readonly CountedBucket[]): void {
    for (const { tenant, width, start, eventName, currency, events, amounts } of buckets) {
      const stored = currency === NO_REVENUE ? undefined : this.#find.get(tenant, width, start, eventName, currency);
      const revenue = addAmounts((stored?.['revenue'] as number | undefined) ?? 0, amounts);
      this.#write.run(tenant, width, start, eventName, currency, events, revenue);
    }
  }
}
