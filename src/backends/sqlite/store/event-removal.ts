/**
 * Removes events from the store, for an erase and for retention, and updates every sum: the event count of tables, the
 * counts by minute and hour (`views/removed-counts.ts`), and the ledger, where the events move from stored
 * to erased or expired. Works within the caller's write transaction, on a bounded number of events.
 */

import { HOUR_MS, MINUTE_MS } from '../../../model.ts';
import type { BlockEvent } from './event-blocks.ts';
import { entriesOf, EVENTS_BY_NODE, EVENTS_BY_TENANT } from './event-index.ts';
import { type CountedCurrency, currencyOfStored } from '../../../views/currency.ts';
import {
  type Bucket,
  type CountedRow,
  lossesOf,
  minutesToResum,
  minutesWithRevenue,
  type MinuteRevenue,
  rowsWithout,
} from '../../../views/removed-counts.ts';
import { LOCAL_SHARD } from '../../sql/store-tables.ts';
import { moveInLedger } from '../../sql/sums.ts';
import type { EventTable, StoreConnection } from './connection.ts';
import { EventReader, removeStored } from './stored-events.ts';

export interface RemovableEvent extends Omit<BlockEvent, 'eventIndex' | 'value' | 'properties'> {
  readonly currency: CountedCurrency;
  readonly receivedAt: number;
}

/** Without its properties, which may be large. */
export function removable(event: BlockEvent, receivedAt: number): RemovableEvent {
  const { no, tenant, node, timestamp, record, userIndex, name, revenue } = event;
  const currency = currencyOfStored(revenue, event.properties);
  return { no, tenant, node, timestamp, record, userIndex, name, revenue, currency, receivedAt };
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
  takeFromLedger(store, events, becoming);
  for (const [tenant, removed] of Map.groupBy(events, ({ tenant }) => tenant)) uncount(store, tenant, removed);
}

function unindex(store: StoreConnection, { no: table }: EventTable, events: readonly RemovableEvent[]): void {
  const byNode = events.flatMap(({ node, timestamp, no }) => (node === null ? [] : [[node, timestamp, no]]));
  store.runs(EVENTS_BY_NODE).remove(byNode, table);
  const byTenant = events.map(({ tenant, timestamp, no }) => [tenant, timestamp, no]);
  store.runs(EVENTS_BY_TENANT).remove(byTenant, table);
}

function takeFromLedger(
  store: StoreConnection,
  events: readonly RemovableEvent[],
  becoming: 'erased' | 'expired',
): void {
  const removed = events.map(({ tenant, receivedAt, record, userIndex }) => {
    return { tenant, receivedAt, user: `${record} ${userIndex}` };
  });
  store.steps((tables) => moveInLedger(tables, LOCAL_SHARD, removed, becoming));
}

function uncount(store: StoreConnection, tenant: number, events: readonly RemovableEvent[]): void {
  const [minutes, hours] = [lossesOf(events, MINUTE_MS), lossesOf(events, HOUR_MS)];
  const starts = minutesWithRevenue(minutes);
  const resummed = minutesToResum(
    starts,
    new Map([...starts].map((start) => [start, eventsInMinute(store, tenant, start)])),
  );
  const rows = rowsWithout(
    { minutes, hours, resummed },
    {
      rows: [...minutes, ...hours].flatMap((bucket) => rowOf(store, tenant, bucket) ?? []),
      minutes: hours.filter(({ hasRevenue }) => hasRevenue).flatMap((hour) => minutesOf(store, tenant, hour)),
      revenues: revenuesIn(store, tenant, resummed),
    },
  );
  for (const { width, start, eventName, currency, events: left, revenue } of rows) {
    const bucket = [tenant, width, start, eventName, currency] as const;
    if (left === 0) store.run(`DELETE FROM counts WHERE ${BUCKET}`, ...bucket);
    else store.run(`UPDATE counts SET events = ?, revenue = ? WHERE ${BUCKET}`, left, revenue, ...bucket);
  }
}

const BUCKET = 'tenant = ? AND width = ? AND start = ? AND event_name = ? AND currency = ?';

function rowOf(store: StoreConnection, tenant: number, bucket: Bucket): CountedRow | undefined {
  const { width, start, eventName, currency } = bucket;
  const sql = `SELECT shard, events, revenue FROM counts WHERE ${BUCKET}`;
  const row = store.get<Omit<CountedRow, keyof Bucket>>(sql, tenant, width, start, eventName, currency);
  return row && { width, start, eventName, currency, ...row };
}

function minutesOf(store: StoreConnection, tenant: number, { start: hour, eventName, currency }: Bucket): CountedRow[] {
  return Array.from({ length: HOUR_MS / MINUTE_MS }, (_, n) => hour + n * MINUTE_MS).flatMap(
    (start) => rowOf(store, tenant, { width: MINUTE_MS, start, eventName, currency }) ?? [],
  );
}

function eventsInMinute(store: StoreConnection, tenant: number, start: number): number {
  const sql = 'SELECT sum(events) AS events FROM counts WHERE tenant = ? AND width = ? AND start = ?';
  return store.get<{ events: number | null }>(sql, tenant, MINUTE_MS, start)?.events ?? 0;
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
