/**
 * Removes events from the store, for an erase and for retention, and updates every sum: the event count of tables, and
 * the sums of `backends/sql/removed-sums.ts`. Works within the caller's write transaction, on a bounded number of events.
 */

import { MINUTE_MS } from '../../../model.ts';
import type { BlockEvent } from './event-blocks.ts';
import { entriesOf, EVENTS_BY_NODE, EVENTS_BY_TENANT } from './event-index.ts';
import { currencyOfStored } from '../../../views/currency.ts';
import type { MinuteRevenue } from '../../../views/removed-counts.ts';
import { type RemovedEvent, takeFromSums } from '../../sql/removed-sums.ts';
import { NO_LOCKS } from '../sql-database.ts';
import type { EventTable, StoreConnection } from './connection.ts';
import { EventReader, removeStored } from './stored-events.ts';

export type RemovableEvent = RemovedEvent & Pick<BlockEvent, 'no' | 'node'>;

/** Without its properties, which may be large. */
export function removable(event: BlockEvent, receivedAt: number): RemovableEvent {
  const { no, tenant, node, timestamp, record, userIndex, name, revenue } = event;
  const currency = currencyOfStored(revenue, event.properties);
  return { no, tenant, node, timestamp, name, revenue, currency, receivedAt, user: `${record} ${userIndex}` };
}

/**
 * All events of a user in a record have to be removed together, or the users in the ledger are wrong. Index entries of
 * erased events are removed; those of expired ones stay until the table is dropped.
 */
export function removeEvents(
  store: StoreConnection,
  table: EventTable,
  events: readonly RemovableEvent[],
  becoming: 'erased' | 'expired',
): void {
  if (events.length === 0) return;
  const numbers = events.map(({ no }) => no);
  removeStored(store, table.no, numbers);
  if (becoming === 'erased') unindex(store, table, events);
  const expired = becoming === 'expired' ? 1 : table.expired;
  store.run('UPDATE event_tables SET events = events - ?, expired = ? WHERE no = ?', events.length, expired, table.no);
  const engine = { locks: NO_LOCKS, revenuesIn: revenuesIn.bind(null, store) };
  store.steps((tables) => takeFromSums(tables, engine, events, becoming));
}

function unindex(store: StoreConnection, { no: table }: EventTable, events: readonly RemovableEvent[]): void {
  const byNode = events.flatMap(({ node, timestamp, no }) => (node === null ? [] : [[node, timestamp, no]]));
  store.runs(EVENTS_BY_NODE).remove(byNode, table);
  const byTenant = events.map(({ tenant, timestamp, no }) => [tenant, timestamp, no]);
  store.runs(EVENTS_BY_TENANT).remove(byTenant, table);
}

/** Revenues of the remaining events, in the order of the log. */
function* revenuesIn(
  store: StoreConnection,
  tenant: number,
  starts: ReadonlySet<number>,
): Generator<MinuteRevenue<number | string>> {
  const reader = new EventReader(store);
  const tables = starts.size === 0 ? [] : store.tables();
  for (const start of starts) {
    const minute = {
      index: EVENTS_BY_TENANT,
      owner: tenant,
      from: start,
      before: { timestamp: start + MINUTE_MS, no: 0 },
    };
    for (const table of tables) {
      if ((table.timestamp_min ?? Number.POSITIVE_INFINITY) >= start + MINUTE_MS) continue;
      if ((table.timestamp_max ?? Number.NEGATIVE_INFINITY) < start) continue;
      const keys = entriesOf(store, table, minute, Number.MAX_SAFE_INTEGER).sort((a, b) => a.no - b.no);
      for (const { no } of keys) {
        const event = reader.get(table.no, no);
        if (event === undefined || event.revenue === null) continue;
        const { name: eventName, revenue, properties } = event;
        yield { start, eventName, currency: currencyOfStored(revenue, properties), revenue };
      }
    }
  }
}
