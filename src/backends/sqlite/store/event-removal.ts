/**
 * Takes events out of the store, for an erase and for retention, and keeps every sum in step with what can be read
 * afterwards: the event count of nodes and tables, the counts by minute and hour with their revenue by currency, and the books, where the events move
 * from stored to erased or expired. Works within the caller's write transaction, on a bounded number of events.
 *
 * Numbers of events are exact. Sums of revenue are made anew from the remaining events, because taking a sum apart
 * leaves rounding behind; where a minute holds very many events that would take too long, the revenue is subtracted.
 * They are kept finite at every step, as the writer does.
 */

import type { NodeNumber } from '../../../model.ts';
import type { BlockEvent } from './event-blocks.ts';
import { entriesOf, EVENTS_BY_NODE, EVENTS_BY_TENANT, removeEntries } from './event-index.ts';
import { amountToSum, type CountedCurrency, currencyOfStored } from '../../../views/currency.ts';
import { finite, HOUR_MS, MINUTE_MS, startOf } from '../../../views/sums.ts';
import type { EventTable, StoreConnection } from './connection.ts';
import { putRemovedEvents, type RemovedEvents, subtractRemovedEvents } from './profile-runs.ts';
import { EventReader, removeStored } from './stored-events.ts';

/** Events that are read to sum revenue anew, for all minutes of one call together. */
const RESUMMED_EVENTS_MAX = 20_000;

export interface RemovableEvent {
  readonly no: number;
  readonly tenant: number;
  readonly node: NodeNumber | null;
  readonly timestamp: number;
  readonly record: number;
  readonly userIndex: number;
  readonly name: string;
  readonly revenue: number | string | null;
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
 * All events of a user in a record have to go together, or the users in the books are wrong. Of erased events the index
 * keeps nothing; the entries of expired ones are left to the table's end.
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
  if (becoming === 'expired') putRemovedEvents(store, removedByNode(events));
  else subtractRemovedEvents(store, removedByNode(events));
  moveInBooks(store, events, becoming);
  for (const [tenant, removed] of Map.groupBy(events, ({ tenant }) => tenant)) uncount(store, tenant, removed);
}

function removedByNode(events: readonly RemovableEvent[]): RemovedEvents[] {
  return [...Map.groupBy(events, ({ node }) => node)].flatMap(([node, removed]) => {
    if (node === null) return [];
    const times = removed.map(({ receivedAt }) => receivedAt);
    const [first, last] = times.reduce(
      ([least, most], at) => [Math.min(least, at), Math.max(most, at)],
      [times[0] ?? 0, times[0] ?? 0],
    );
    return [{ node, events: removed.length, first, last }];
  });
}

function unindex(store: StoreConnection, table: EventTable, events: readonly RemovableEvent[]): void {
  const byNode = events.flatMap(({ node, timestamp, no }) => (node === null ? [] : [{ owner: node, timestamp, no }]));
  removeEntries(store, table, EVENTS_BY_NODE, byNode);
  const byTenant = events.map(({ tenant, timestamp, no }) => ({ owner: tenant, timestamp, no }));
  removeEntries(store, table, EVENTS_BY_TENANT, byTenant);
}

function moveInBooks(store: StoreConnection, events: readonly RemovableEvent[], becoming: 'erased' | 'expired'): void {
  const byHour = Map.groupBy(events, (event) => `${event.tenant} ${startOf(event.receivedAt, HOUR_MS)}`);
  for (const removed of byHour.values()) {
    const [{ tenant, receivedAt }] = removed as [RemovableEvent];
    const users = new Set(removed.map(({ record, userIndex }) => `${record} ${userIndex}`)).size;
    store.run(
      `UPDATE ledger SET users_stored = users_stored - ?1, users_${becoming} = users_${becoming} + ?1,
         events_stored = events_stored - ?2, events_${becoming} = events_${becoming} + ?2
       WHERE tenant = ?3 AND hour = ?4`,
      users,
      removed.length,
      tenant,
      startOf(receivedAt, HOUR_MS),
    );
  }
}

/** A bucket of counts, with what is taken out of it. */
interface Loss {
  readonly start: number;
  readonly eventName: string;
  readonly currency: CountedCurrency;
  events: number;
  /** May be 0 for amounts that outweigh each other, and still leave another sum. */
  revenue: number;
  hasRevenue: boolean;
}

function uncount(store: StoreConnection, tenant: number, events: readonly RemovableEvent[]): void {
  const minutes = lossesOf(events, MINUTE_MS);
  const tables = store.tables();
  let budget = RESUMMED_EVENTS_MAX;
  for (const [start, losses] of Map.groupBy(minutes, ({ start }) => start)) {
    let revenues: ReadonlyMap<string, number> | undefined;
    if (losses.some(({ hasRevenue }) => hasRevenue)) {
      const size = eventsInMinute(store, tenant, start);
      if (size <= budget) revenues = revenuesOf(store, tables, tenant, start);
      budget -= Math.min(size, budget);
    }
    for (const loss of losses) takeFromMinute(store, tenant, loss, revenues);
  }
  for (const loss of lossesOf(events, HOUR_MS)) takeFromHour(store, tenant, loss);
}

function lossesOf(events: readonly RemovableEvent[], width: number): Loss[] {
  const losses = new Map<string, Loss>();
  for (const { timestamp, name: eventName, revenue, currency } of events) {
    const start = startOf(timestamp, width);
    const bucket = `${start} ${sumName(eventName, currency)}`;
    const loss = losses.get(bucket) ?? { start, eventName, currency, events: 0, revenue: 0, hasRevenue: false };
    losses.set(bucket, loss);
    loss.events += 1;
    const amount = amountToSum(revenue, currency);
    loss.revenue = finite(loss.revenue + amount);
    loss.hasRevenue ||= amount !== 0;
  }
  return [...losses.values()];
}

/** Names and currencies as one text: a currency has no space in it, so where it ends is certain. */
function sumName(eventName: string, currency: CountedCurrency): string {
  return `${currency} ${eventName}`;
}

function eventsInMinute(store: StoreConnection, tenant: number, start: number): number {
  const sql = 'SELECT sum(events) AS events FROM counts WHERE tenant = ? AND width = ? AND start = ?';
  return store.get<{ events: number | null }>(sql, tenant, MINUTE_MS, start)?.events ?? 0;
}

/** By `sumName`, from the events that are left. */
function revenuesOf(
  store: StoreConnection,
  tables: readonly EventTable[],
  tenant: number,
  start: number,
): Map<string, number> {
  const sums = new Map<string, number>();
  const reader = new EventReader(store);
  const minute = {
    index: EVENTS_BY_TENANT,
    owner: tenant,
    from: start,
    before: { timestamp: start + MINUTE_MS, no: 0 },
  };
  for (const table of tables) {
    if ((table.timestamp_min ?? Number.POSITIVE_INFINITY) >= start + MINUTE_MS) continue;
    if ((table.timestamp_max ?? Number.NEGATIVE_INFINITY) < start) continue;
    // In the order of the log, as the writer adds them.
    const keys = entriesOf(store, table, minute, Number.MAX_SAFE_INTEGER).sort((a, b) => a.no - b.no);
    for (const { no } of keys) {
      const event = reader.get(table.no, no);
      if (event === undefined || event.revenue === null) continue;
      const currency = currencyOfStored(event.revenue, event.properties);
      const name = sumName(event.name, currency);
      sums.set(name, finite((sums.get(name) ?? 0) + amountToSum(event.revenue, currency)));
    }
  }
  return sums;
}

const BUCKET = 'tenant = ? AND width = ? AND start = ? AND event_name = ? AND currency = ?';

function takeFromMinute(
  store: StoreConnection,
  tenant: number,
  { start, eventName, currency, events, revenue }: Loss,
  revenues: ReadonlyMap<string, number> | undefined,
): void {
  const bucket = [tenant, MINUTE_MS, start, eventName, currency] as const;
  if (store.run(`DELETE FROM counts WHERE ${BUCKET} AND events <= ?`, ...bucket, events) > 0) return;
  store.run(`UPDATE counts SET events = events - ? WHERE ${BUCKET}`, events, ...bucket);
  if (revenues !== undefined) {
    store.run(
      `UPDATE counts SET revenue = ? WHERE ${BUCKET}`,
      revenues.get(sumName(eventName, currency)) ?? 0,
      ...bucket,
    );
  } else if (revenue !== 0) {
    const limit = Number.MAX_VALUE;
    const sql = `UPDATE counts SET revenue = max(?, min(?, revenue - ?)) WHERE ${BUCKET}`;
    store.run(sql, -limit, limit, revenue, ...bucket);
  }
}

/** An hour's revenue is that of its minutes, which are right by now. */
function takeFromHour(store: StoreConnection, tenant: number, loss: Loss): void {
  const { start, eventName, currency, events, hasRevenue } = loss;
  const bucket = [tenant, HOUR_MS, start, eventName, currency] as const;
  if (store.run(`DELETE FROM counts WHERE ${BUCKET} AND events <= ?`, ...bucket, events) > 0) return;
  store.run(`UPDATE counts SET events = events - ? WHERE ${BUCKET}`, events, ...bucket);
  if (!hasRevenue) return;
  let sum = 0;
  for (let minute = start; minute < start + HOUR_MS; minute += MINUTE_MS) {
    const sql = `SELECT revenue FROM counts WHERE ${BUCKET}`;
    const row = store.get<{ revenue: number }>(sql, tenant, MINUTE_MS, minute, eventName, currency);
    sum = finite(sum + (row?.revenue ?? 0));
  }
  store.run(`UPDATE counts SET revenue = ? WHERE ${BUCKET}`, sum, ...bucket);
}
