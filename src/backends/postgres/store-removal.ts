/**
 * What an erase and retention do with events that they have removed from the tables: the nodes count fewer, and the sums
 * are updated (`../sql/removed-sums.ts`).
 */

import type { NodeNumber } from '../../model.ts';
import { type RemovedEvent as RemovedFromSums, takeFromSums } from '../sql/removed-sums.ts';
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
  return runSteps(client, (tables) => takeFromSums(tables, ROW_LOCKS, events, becoming));
}
