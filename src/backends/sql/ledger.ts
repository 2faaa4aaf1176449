/**
 * Reads the ledger (by tenant and hour of receipt, what became of every received user and event), receipts (what was
 * received by minute), and how far each log was processed. Ledger and receipts are read in one snapshot with the
 * positions in the log, so that a caller who adds what is still in the log neither misses a record nor counts one twice.
 */

import { type RawBuilder, sql } from 'kysely';
import type { LostAhead } from '../../log.ts';
import { processedLogOf } from '../../log/continuity.ts';
import { HOUR_MS, MINUTE_MS, type TenantId } from '../../model.ts';
import type { LedgerHour, Receipts, StoredLedger, TimeRange } from '../../store.ts';
import type { StoreProgress } from '../../store-writer.ts';
import { LEDGER_SUMS, ledgerSumsOf } from '../../views/received-sums.ts';
import { startOf } from '../../views/sums.ts';
import { rowsOf, type Steps, type Tables } from './steps.ts';
import { LOCAL_LOG } from './store-tables.ts';

/**
 * Newest hour first. `tenantId` null is all of them. A tenant's number is looked up in the same snapshot: otherwise one
 * whose first records are stored in between would seem to have none, neither stored nor pending.
 */
export function* readLedger(
  tables: Tables,
  log: string,
  tenantId: TenantId | null,
  { from, to }: TimeRange,
): Steps<StoredLedger> {
  let hours = tables
    .selectFrom('ledger')
    .select('hour')
    .select((row) => LEDGER_SUMS.map((sum) => row.fn.sum<number>(sum).as(sum)))
    .where('hour', '>=', from === null ? Number.MIN_SAFE_INTEGER : startOf(from, HOUR_MS))
    .where('hour', '<', to ?? Number.MAX_SAFE_INTEGER)
    .groupBy('hour')
    .orderBy('hour', 'desc');
  if (tenantId !== null) hours = hours.where('tenant', '=', numberOf(tables, tenantId));
  const rows = yield* rowsOf(hours);
  const positions = yield* rowsOf(selectPositions(tables, log));
  const lost = yield* rowsOf(selectLost(tables));
  return {
    hours: rows.map((sums) => ({
      hour: sums.hour,
      users: ledgerSumsOf(sums, 'users'),
      events: ledgerSumsOf(sums, 'events'),
      usersRejected: sums.users_rejected,
      usersResubmitted: sums.users_resubmitted,
      droppedByClients: sums.dropped_by_clients,
    })),
    ...processedLogOf(positions),
    lost: [...lost, ...skippedIn(positions)],
    missingRecords: 0,
  };
}

/**
 * Received users and events by minute of receipt: users that were accepted and rejected, and events of the accepted ones,
 * as the edge counted them. Repeated requests and records that cannot be processed were received too; an erase, an
 * unmerge and retention of events change nothing here, and reading the log again gives the same numbers. The sweep removes
 * old minutes. Every minute that has a part in the range, oldest first.
 */
export function* readReceipts(
  tables: Tables,
  log: string,
  tenantId: TenantId,
  { from, to }: TimeRange,
): Steps<Receipts> {
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
  const received = yield* rowsOf(minutes);
  const { positions } = processedLogOf(yield* rowsOf(selectPositions(tables, log)));
  return { minutes: received, positions };
}

/** All that ever sent anything. */
export function* listTenants(tables: Tables): Steps<TenantId[]> {
  const rows = yield* rowsOf(tables.selectFrom('tenants').select('id').orderBy('no'));
  return rows.map(({ id }) => id);
}

/** By tenant, to compare both sides of a migration. */
export function* readAllHours(tables: Tables): Steps<Map<TenantId, readonly LedgerHour[]>> {
  const ledgers = new Map<TenantId, readonly LedgerHour[]>();
  for (const id of yield* listTenants(tables)) {
    const { hours } = yield* readLedger(tables, LOCAL_LOG, id, { from: null, to: null });
    ledgers.set(id, hours);
  }
  return ledgers;
}

function numberOf(tables: Tables, id: TenantId) {
  return tables.selectFrom('tenants').select('no').where('id', '=', id);
}

function selectPositions(tables: Tables, log: string) {
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
function selectLost(tables: Tables) {
  return tables
    .selectFrom('lost_records')
    .select(['partition', 'first_position as from', 'next_position as to', 'records', 'found_at as at'])
    .orderBy('found_at')
    .orderBy('log')
    .orderBy('partition')
    .orderBy('first_position');
}

export function* readProcessedLog(tables: Tables, log: string): Steps<StoreProgress> {
  const rows = yield* rowsOf(selectPositions(tables, log));
  return { ...processedLogOf(rows), skipped: skippedIn(rows) };
}

/** Of all logs. */
export function* countLostRecords(tables: Tables): Steps<number> {
  const sum = tables.selectFrom('lost_records').select(({ fn }) => fn.sum<number | null>('records').as('records'));
  const [row] = yield* rowsOf(sum);
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
export function* readDifference(
  tables: Tables,
  hours: { readonly since: number } | { readonly before: number } | null = null,
): Steps<Difference> {
  let sums = tables
    .selectFrom('ledger')
    .select([unaccounted('users').as('users'), unaccounted('events').as('events')])
    .groupBy(['tenant', 'hour']);
  if (hours !== null) {
    sums = 'since' in hours ? sums.where('hour', '>=', hours.since) : sums.where('hour', '<', hours.before);
  }
  const amount = (column: 'users' | 'events') => sql<number>`coalesce(sum(abs(${sql.ref(column)})), 0)`.as(column);
  const [difference] = yield* rowsOf(tables.selectFrom(sums.as('hours')).select([amount('users'), amount('events')]));
  return difference as Difference;
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
export function selectStoredEvents(tables: Tables) {
  return tables.selectFrom('ledger').select((ledger) => ledger.fn.sum<number | null>('events_stored').as('events'));
}
