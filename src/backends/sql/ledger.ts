/**
 * Reads the ledger (by tenant and hour of receipt, what became of every received user and event), receipts (what was
 * received by minute), and how far each log was processed. Ledger and receipts are read in one statement with the
 * positions in the log, so that a caller who adds what is still in the log neither misses a record nor counts one twice.
 */

import { type Kysely, type RawBuilder, sql } from 'kysely';
import type { LostAhead } from '../../log.ts';
import { processedLogOf } from '../../log/continuity.ts';
import { HOUR_MS, MINUTE_MS, type TenantId } from '../../model.ts';
import type { LedgerHour, Receipts, StoredLedger, TimeRange } from '../../store.ts';
import type { StoreProgress } from '../../store-writer.ts';
import { LEDGER_SUMS, ledgerSumsOf } from '../../views/received-sums.ts';
import { startOf } from '../../views/sums.ts';
import { rowsOf } from './database.ts';
import { LOCAL_LOG, type StoreQueries, type StoreTables } from './store-tables.ts';

/**
 * Newest hour first. `tenantId` null is all of them. A tenant's number is looked up in the statement that reads the
 * positions: otherwise one whose first records are stored in between would seem to have none, neither stored nor pending.
 */
export async function readLedger(
  { tables, jsonArrayFrom }: StoreQueries,
  log: string,
  tenantId: TenantId | null,
  { from, to }: TimeRange,
): Promise<StoredLedger> {
  let hours = tables
    .selectFrom('ledger')
    .select('hour')
    .select((row) => LEDGER_SUMS.map((sum) => row.fn.sum<number>(sum).as(sum)))
    .where('hour', '>=', from === null ? Number.MIN_SAFE_INTEGER : startOf(from, HOUR_MS))
    .where('hour', '<', to ?? Number.MAX_SAFE_INTEGER)
    .groupBy('hour')
    .orderBy('hour', 'desc');
  if (tenantId !== null) hours = hours.where('tenant', '=', numberOf(tables, tenantId));
  const row = await tables
    .selectNoFrom([
      jsonArrayFrom(hours).as('hours'),
      jsonArrayFrom(selectPositions(tables, log)).as('positions'),
      jsonArrayFrom(selectLost(tables)).as('lost'),
    ])
    .executeTakeFirstOrThrow();
  const positions = rowsOf(row.positions);
  return {
    hours: rowsOf(row.hours).map((sums) => ({
      hour: sums.hour,
      users: ledgerSumsOf(sums, 'users'),
      events: ledgerSumsOf(sums, 'events'),
      usersRejected: sums.users_rejected,
      usersResubmitted: sums.users_resubmitted,
      droppedByClients: sums.dropped_by_clients,
    })),
    ...processedLogOf(positions),
    lost: [...rowsOf(row.lost), ...skippedIn(positions)],
    missingRecords: 0,
  };
}

/**
 * Received users and events by minute of receipt: users that were accepted and rejected, and events of the accepted ones,
 * as the edge counted them. Repeated requests and records that cannot be processed were received too; an erase, an
 * unmerge and retention of events change nothing here, and reading the log again gives the same numbers. The sweep removes
 * old minutes. Every minute that has a part in the range, oldest first.
 */
export async function readReceipts(
  { tables, jsonArrayFrom }: StoreQueries,
  log: string,
  tenantId: TenantId,
  { from, to }: TimeRange,
): Promise<Receipts> {
  const minutes = tables
    .selectFrom('receipts')
    .select((row) => [
      'minute as start',
      row.fn.sum<number>('users_accepted').as('usersAccepted'),
      row.fn.sum<number>('users_rejected').as('usersRejected'),
      row.fn.sum<number>('events_accepted').as('eventsAccepted'),
    ])
    .where('tenant', '=', numberOf(tables, tenantId))
    .where('minute', '>=', from === null ? Number.MIN_SAFE_INTEGER : startOf(from, MINUTE_MS))
    .where('minute', '<', to ?? Number.MAX_SAFE_INTEGER)
    .groupBy('minute')
    .orderBy('minute');
  const row = await tables
    .selectNoFrom([jsonArrayFrom(minutes).as('minutes'), jsonArrayFrom(selectPositions(tables, log)).as('positions')])
    .executeTakeFirstOrThrow();
  return {
    minutes: rowsOf(row.minutes),
    positions: processedLogOf(rowsOf(row.positions)).positions,
  };
}

/** All that ever sent anything. */
export async function listTenants({ tables }: StoreQueries): Promise<TenantId[]> {
  const rows = await tables.selectFrom('tenants').select('id').orderBy('no').execute();
  return rows.map(({ id }) => id);
}

/** By tenant, to compare both sides of a migration. */
export async function readAllHours(queries: StoreQueries): Promise<Map<TenantId, readonly LedgerHour[]>> {
  const ledgers = new Map<TenantId, readonly LedgerHour[]>();
  for (const id of await listTenants(queries)) {
    ledgers.set(id, (await readLedger(queries, LOCAL_LOG, id, { from: null, to: null })).hours);
  }
  return ledgers;
}

function numberOf(tables: Kysely<StoreTables>, id: TenantId) {
  return tables.selectFrom('tenants').select('no').where('id', '=', id);
}

function selectPositions(tables: Kysely<StoreTables>, log: string) {
  return tables
    .selectFrom('positions')
    .select(['partition', 'position', 'processed_to as processedTo', 'last_trace_id as lastTraceId'])
    .where('log', '=', log)
    .orderBy('partition');
}

/** Records between where the processor left a partition and where an operator moved it, while it has not continued. */
function skippedIn(
  rows: readonly { readonly partition: number; readonly position: number; readonly processedTo: number }[],
): LostAhead[] {
  return rows.flatMap(({ partition, position: to, processedTo: from }) =>
    to > from ? [{ partition, from, to, records: to - from, at: null }] : [],
  );
}

/** Lost records of all logs. */
function selectLost(tables: Kysely<StoreTables>) {
  return tables
    .selectFrom('lost_records')
    .select(['partition', 'first_position as from', 'next_position as to', 'records', 'found_at as at'])
    .orderBy('found_at')
    .orderBy('log')
    .orderBy('partition')
    .orderBy('first_position');
}

export async function readProcessedLog({ tables }: StoreQueries, log: string): Promise<StoreProgress> {
  const rows = await selectPositions(tables, log).execute();
  return { ...processedLogOf(rows), skipped: skippedIn(rows) };
}

/** Of all logs. */
export async function countLostRecords({ tables }: StoreQueries): Promise<number> {
  const row = await tables
    .selectFrom('lost_records')
    .select((lost) => lost.fn.sum<number | null>('records').as('records'))
    .executeTakeFirst();
  return row?.records ?? 0;
}

/** How many users and events are not accounted for. */
export interface Difference {
  readonly users: number;
  readonly events: number;
}

/**
 * The difference of all hours, or of those before or since an hour. Amounts are added up, so that a surplus does not
 * hide a loss.
 */
export async function readDifference(
  { tables }: StoreQueries,
  hours: { readonly since: number } | { readonly before: number } | null = null,
): Promise<Difference> {
  let sums = tables
    .selectFrom('ledger')
    .select([unaccounted('users').as('users'), unaccounted('events').as('events')])
    .groupBy(['tenant', 'hour']);
  if (hours !== null) {
    sums = 'since' in hours ? sums.where('hour', '>=', hours.since) : sums.where('hour', '<', hours.before);
  }
  const amount = (column: 'users' | 'events') => sql<number>`coalesce(sum(abs(${sql.ref(column)})), 0)`.as(column);
  return tables
    .selectFrom(sums.as('hours'))
    .select([amount('users'), amount('events')])
    .executeTakeFirstOrThrow();
}

/** Rejected users were never received; when one is resubmitted, it is received and stored. */
const BESIDE_THE_SUMS: ReadonlySet<string> = new Set(['users_rejected', 'users_resubmitted']);

function unaccounted(noun: 'users' | 'events'): RawBuilder<number> {
  // The first is what was received.
  const sums = LEDGER_SUMS.filter((sum) => sum.startsWith(`${noun}_`) && !BESIDE_THE_SUMS.has(sum));
  return sql<number>`sum(${sql.join(
    sums.map((sum) => sql.ref(sum)),
    sql` - `,
  )})`;
}

/** How many events should be there, as `sluice doctor` compares it with how many are. */
export function selectStoredEvents(tables: Kysely<StoreTables>) {
  return tables.selectFrom('ledger').select((ledger) => ledger.fn.sum<number | null>('events_stored').as('events'));
}
