/**
 * Writes the events of a transaction by minute and hour, row by row: an import may count thousands of minutes.
 */

import { NO_REVENUE } from '../../../views/currency.ts';
import { addAmounts, type CountedBucket } from '../../../views/event-counts.ts';
import type { StoreConnection } from './connection.ts';

export function addCounts(store: StoreConnection, buckets: readonly CountedBucket[]): void {
  for (const { tenant, width, start, eventName, currency, events, amounts } of buckets) {
    const bucket = [tenant, width, start, eventName, currency] as const;
    const stored = currency === NO_REVENUE ? undefined : store.get<{ revenue: number }>(REVENUE, ...bucket);
    store.run(ADD, ...bucket, events, addAmounts(stored?.revenue ?? 0, amounts));
  }
}

const REVENUE = `SELECT revenue FROM counts
  WHERE tenant = ? AND width = ? AND start = ? AND event_name = ? AND currency = ? AND shard = 0`;
const ADD = `INSERT INTO counts (tenant, width, start, event_name, currency, shard, events, revenue)
  VALUES (?, ?, ?, ?, ?, 0, ?, ?)
  ON CONFLICT DO UPDATE SET events = events + excluded.events, revenue = excluded.revenue`;
