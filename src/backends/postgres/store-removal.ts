/**
 * Updates the sums when events of a tenant are erased or expire: the counts by minute and hour with their revenue by
 * currency (`views/removed-counts.ts`), and the ledger, where the events move from stored to erased or expired. Runs as
 * the last step of the caller's transaction, on a bounded number of events already removed from the tables: every
 * transaction locks rows of sums last, in one order.
 */

import { HOUR_MS, MINUTE_MS } from '../../model.ts';
import {
  lossesOf,
  minutesToResum,
  minutesWithRevenue,
  type RemovedEventCount,
  rowsWithout,
} from '../../views/removed-counts.ts';
import { moveInLedger } from '../sql/sums.ts';
import type { PostgresClient } from './pool.ts';
import { runSteps } from './sql-database.ts';
import { MAINTENANCE_SHARD } from './store-schema.ts';
import { eventsByMinute, lockAndRead, writeShards } from './store-shards.ts';

export interface RemovedEvent extends RemovedEventCount {
  readonly receivedAt: number;
  readonly traceId: string;
  readonly userIndex: number;
}

/** All events of a user of a request have to be removed together, or the users in the ledger are wrong. */
export async function takeFromSums(
  client: PostgresClient,
  tenant: number,
  events: readonly RemovedEvent[],
  becoming: 'erased' | 'expired' = 'erased',
): Promise<void> {
  if (events.length === 0) return;
  const [minutes, hours] = [lossesOf(events, MINUTE_MS), lossesOf(events, HOUR_MS)];
  const starts = minutesWithRevenue(minutes);
  const resummed = minutesToResum(starts, await eventsByMinute(client, tenant, [...starts]));
  const counted = await lockAndRead(client, tenant, {
    buckets: [...minutes, ...hours],
    resummed: [...resummed],
    hours: hours.filter(({ hasRevenue }) => hasRevenue),
  });
  await writeShards(client, tenant, rowsWithout({ minutes, hours, resummed }, counted));
  await takeFromLedger(client, tenant, events, becoming);
}

async function takeFromLedger(
  client: PostgresClient,
  tenant: number,
  events: readonly RemovedEvent[],
  becoming: 'erased' | 'expired',
): Promise<void> {
  const removed = events.map(({ receivedAt, traceId, userIndex }) => {
    return { tenant, receivedAt, user: `${traceId} ${userIndex}` };
  });
  await runSteps(client, (tables) => moveInLedger(tables, MAINTENANCE_SHARD, removed, becoming));
}
