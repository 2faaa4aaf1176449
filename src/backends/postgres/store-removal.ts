/**
 * What an erase and retention do with events that they have removed from the tables: the nodes count fewer, and the sums
 * are updated (`../sql/removed-sums.ts`).
 */

import { MINUTE_MS, type NodeNumber } from '../../model.ts';
import type { MinuteRevenue } from '../../views/removed-counts.ts';
import { type RemovedEvent as RemovedFromSums, takeFromSums } from '../sql/removed-sums.ts';
import { receivedFor } from './store-days.ts';
import type { PostgresClient } from './pool.ts';
import { ROW_LOCKS, runSteps } from './sql-database.ts';

export interface RemovedEvent extends RemovedFromSums {
  /** Null for an event of no person. */
  readonly node: NodeNumber | null;
}

/** Columns of a removed event `e`, as a `RemovedEvent`. */
export const REMOVED_COLUMNS = `
  e.tenant, e.node, e.timestamp, e.received_at AS "receivedAt", e.trace_id || ' ' || e.user_index AS "user",
  e.event_name AS name, e.revenue, e.currency`;

/** Lowers the number of events of nodes, which are locked. */
export async function takeFromNodes(client: PostgresClient, events: readonly RemovedEvent[]): Promise<void> {
  const byNode = [...Map.groupBy(events, ({ node }) => node)].filter(([node]) => node !== null);
  await client.query(
    `UPDATE nodes SET events = nodes.events - q.events FROM unnest($1::bigint[], $2::bigint[]) AS q (no, events)
     WHERE nodes.no = q.no`,
    [byNode.map(([node]) => node), byNode.map(([, some]) => some.length)],
  );
}

export function takeFromAllSums(
  client: PostgresClient,
  events: readonly RemovedEvent[],
  becoming: 'erased' | 'expired',
): Promise<void> {
  const revenuesIn = (tenant: number, starts: ReadonlySet<number>) => readRevenues(client, tenant, [...starts]);
  return runSteps(client, (tables) => takeFromSums(tables, { locks: ROW_LOCKS, revenuesIn }, events, becoming));
}

async function readRevenues(
  client: PostgresClient,
  tenant: number,
  starts: readonly number[],
): Promise<MinuteRevenue<string>[]> {
  if (starts.length === 0) return [];
  const { rows } = await client.query<MinuteRevenue<string>>(
    `SELECT m.start, e.event_name AS "eventName", e.currency, e.revenue
     FROM unnest($2::bigint[]) AS m (start) CROSS JOIN LATERAL (
       SELECT no, event_name, currency, revenue FROM events
       WHERE tenant = $1 AND ${await receivedFor(client, starts)} AND revenue IS NOT NULL
         AND timestamp >= m.start AND timestamp < m.start + ${MINUTE_MS}
       OFFSET 0
     ) AS e ORDER BY e.no`,
    [tenant, starts],
  );
  return rows;
}
