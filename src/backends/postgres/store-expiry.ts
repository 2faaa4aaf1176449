/**
 * Removes the events and records of days that are too old. A day is removed record by record, a bounded number at a
 * time, with every sum updated: the event count of nodes, the counts by minute and hour, and the ledger, where the
 * events move from stored to expired. Once a day is empty its tables are dropped, which frees the space.
 *
 * Locks are taken in the usual order: nodes by number first, sums last. A day is detached without blocking readers or
 * writers; rows added until then cause it to be attached again, so nothing is dropped that was not counted.
 */

import { DAY_MS } from '../../model.ts';
import type { CountedCurrency } from '../../views/currency.ts';
import { int8s } from './binary-arrays.ts';
import type { PostgresClient, PostgresPool, Queryable, Statement } from './pool.ts';
import { dayTable, type DayTable, dayTables, isWhole, makeDays, withPartitionLock } from './store-days.ts';
import { type RemovedEvent, takeFromSums } from './store-removal.ts';

const RECORDS_PER_SWEEP = 2_000;
const EVENTS_PER_SWEEP = 5_000;
/** Includes waiting for transactions that read the day, and scanning the table, which may be large though empty. */
const DROP_TIMEOUT_MS = 600_000;
/** For each transaction that has read the day: the processor waits meanwhile. A backup may read for hours. */
const DROP_WAIT_MS = 1_000;

interface RecordRow {
  readonly no: number;
  readonly first_event: number;
  readonly events: number;
}

interface EventRow {
  readonly tenant: number;
  readonly node: number | null;
  readonly timestamp: number;
  readonly received_at: number;
  readonly trace_id: string;
  readonly user_index: number;
  readonly event_name: string;
  readonly revenue: string | null;
  readonly currency: CountedCurrency;
}

/**
 * By day: records up to this number are gone. Continuing from there skips rows whose removal other transactions do not
 * see yet.
 */
export type ExpiryProgress = Map<number, number>;

/** How many records were removed, and the days before `cutoff` that seem to be empty. */
export async function expireEvents(
  client: PostgresClient,
  cutoff: number,
  progress: ExpiryProgress,
): Promise<{ expired: number; empty: number[] }> {
  const empty: number[] = [];
  const old = (await dayTables(client)).filter(({ day }) => (day + 1) * DAY_MS <= cutoff);
  for (const [day, tables] of Map.groupBy(old, (table) => table.day)) {
    const expired = isWhole(tables, day) ? await expireSome(client, day, progress) : 0;
    if (expired > 0) return { expired, empty };
    empty.push(day);
  }
  return { expired: 0, empty };
}

/** The oldest records of a day, with their events. */
async function expireSome(client: PostgresClient, day: number, progress: ExpiryProgress): Promise<number> {
  const records = await oldestRecords(client, day, progress.get(day) ?? 0);
  const last = records.at(-1);
  if (last === undefined) return 0;
  progress.set(day, last.no);
  const ranges = [
    int8s(records.map((row) => row.first_event)),
    int8s(records.map((row) => row.first_event + row.events)),
  ];
  const within = `unnest($1::int8[], $2::int8[]) AS r (first, stop) WHERE e.no >= r.first AND e.no < r.stop`;
  const events = dayTable('events', day);
  await client.query(
    `SELECT no FROM nodes WHERE no IN (SELECT e.node FROM ${events} e, ${within})
     ORDER BY no FOR NO KEY UPDATE`,
    ranges,
  );
  const { rows } = await client.query<EventRow>(
    `DELETE FROM ${events} e USING ${within}
     RETURNING e.tenant, e.node, e.timestamp, e.received_at, e.trace_id, e.user_index, e.event_name, e.revenue,
       e.currency`,
    ranges,
  );
  await client.query(`DELETE FROM ${dayTable('records', day)} WHERE no = ANY ($1::int8[])`, [
    int8s(records.map(({ no }) => no)),
  ]);
  await takeFromNodes(client, rows);
  const byTenant = [...Map.groupBy(rows, ({ tenant }) => tenant)].sort(([a], [b]) => a - b);
  for (const [tenant, removed] of byTenant) await takeFromSums(client, tenant, removed.map(removedEvent), 'expired');
  return records.length;
}

async function oldestRecords(client: Queryable, day: number, after: number): Promise<RecordRow[]> {
  const { rows } = await client.query<RecordRow>(
    `SELECT no, first_event, events FROM ${dayTable('records', day)} WHERE no > $1 ORDER BY no LIMIT ${RECORDS_PER_SWEEP}`,
    [after],
  );
  let events = 0;
  const enough = rows.findIndex((row) => (events += row.events) >= EVENTS_PER_SWEEP);
  return enough < 0 ? rows : rows.slice(0, enough + 1);
}

async function takeFromNodes(client: Queryable, events: readonly EventRow[]): Promise<void> {
  const counts = new Map<number, number>();
  for (const { node } of events) if (node !== null) counts.set(node, (counts.get(node) ?? 0) + 1);
  if (counts.size === 0) return;
  await client.query(
    `UPDATE nodes SET events = nodes.events - q.events FROM unnest($1::int8[], $2::int8[]) AS q (no, events)
     WHERE nodes.no = q.no`,
    [int8s([...counts.keys()]), int8s([...counts.values()])],
  );
}

function removedEvent(row: EventRow): RemovedEvent {
  return {
    timestamp: row.timestamp,
    receivedAt: row.received_at,
    traceId: row.trace_id,
    userIndex: row.user_index,
    name: row.event_name,
    revenue: row.revenue,
    currency: row.currency,
  };
}

/**
 * Drops days that seemed to be empty; one that is not, stays. Records go first: a writer that finds no table for a
 * record writes nothing, while a record without its events would be left in a day that has no table for them.
 */
export async function dropDays(pool: PostgresPool, days: ReadonlySet<number>): Promise<void> {
  await withPartitionLock(pool, async (client) => {
    await client.query(`SET statement_timeout = ${DROP_TIMEOUT_MS}; SET lock_timeout = ${DROP_WAIT_MS}`);
    try {
      const old = (await dayTables(client)).filter(({ day }) => days.has(day));
      for (const [day, tables] of Map.groupBy(old, (table) => table.day)) {
        let isEmpty = true;
        for (const table of tables.toReversed()) isEmpty &&= await dropDay(client, table);
        if (!isEmpty) await makeDays(client, [day]);
      }
    } finally {
      if (client.isUsable) await client.query('RESET statement_timeout; RESET lock_timeout');
    }
  });
}

/**
 * False for a day that contains rows; it stays detached. A process may die after any step: the next sweep finds the
 * table in that state and continues.
 */
async function dropDay(client: PostgresClient, { parent, name, state }: DayTable): Promise<boolean> {
  const slow = (text: string): Statement => ({ text, timeoutMs: DROP_TIMEOUT_MS });
  if (state === 'attached') await client.query(slow(`ALTER TABLE ${parent} DETACH PARTITION ${name} CONCURRENTLY`));
  if (state === 'detaching') await client.query(slow(`ALTER TABLE ${parent} DETACH PARTITION ${name} FINALIZE`));
  // From here on nothing writes to it.
  const { rows } = await client.query<{ exists: boolean }>(slow(`SELECT EXISTS (SELECT FROM ${name}) AS exists`));
  if (rows[0]?.exists !== false) return false;
  await client.query(`DROP TABLE ${name}`);
  return true;
}
