/**
 * Retention: removes expired data in bounded batches. Each batch is a transaction, after which every sum agrees with
 * the stored rows. The parts take turns, so that one that always has work does not starve the others. First uses, notes
 * and events live in engine-specific tables, so each engine removes those itself.
 */

import { type Compilable, sql } from 'kysely';
import { DAY_MS } from '../../model.ts';
import type { Retention } from '../../store-writer.ts';
import { ENTRY_KEPT_MS, EXAMPLE_KEPT_MS } from '../../views/catalogue.ts';
import { sweepEntries, sweepExamples } from './catalogue.ts';
import { removeDeadLetters } from './dead-letters.ts';
import { changedBy, engineStep, rowsOf, type Steps, type Tables } from './steps.ts';

export const ROWS_PER_SWEEP = 2_000;
/** Receipts show the last few days. */
const RECEIPTS_KEPT_MS = 7 * DAY_MS;
/** Violations that have not occurred for this long are removed. */
const VIOLATIONS_KEPT_MS = 30 * DAY_MS;
/** How often, in calls, the rejections are added up while other parts have work. */
const EXCESS_CHECK_CALLS = 64;

/** In memory: a new process starts over. */
export interface SweepProgress {
  calls: number;
  /** The part that is next. */
  turn: number;
  /** The call that added up the rejections last, and whether it found too many. */
  excessCheckedAt: number;
  hasExcess: boolean;
  /** Rejections that were removed because of their size, and not reported yet. */
  overLimit: number;
}

export const NO_PROGRESS: SweepProgress = { calls: 0, turn: 0, excessCheckedAt: 0, hasExcess: false, overLimit: 0 };

/** Call it after the commit. */
export function reportOverLimit(progress: SweepProgress, retention: Retention): void {
  if (progress.overLimit > 0) retention.onRejectionsOverLimit?.(progress.overLimit);
  progress.overLimit = 0;
}

interface Sweep {
  readonly tables: Tables;
  readonly retention: Retention;
  readonly now: number;
  /** Changed by the sweep; keep it only once the transaction is committed. */
  readonly progress: SweepProgress;
  /** Steps of the engine, for tables that only it has. */
  readonly engineParts: readonly (() => boolean | Promise<boolean>)[];
}

/** Removes a bounded piece; true when there may be more. */
type SweepPart = (sweep: Sweep) => Steps<boolean>;

const SHARED_PARTS: readonly SweepPart[] = [
  sweepReceipts,
  sweepPlanViolations,
  sweepRejections,
  sweepDeadLetters,
  function* ({ tables, retention, now }) {
    yield* sweepExamples(tables, Math.trunc(now - Math.min(EXAMPLE_KEPT_MS, retention.eventsMs)));
    return yield* sweepEntries(tables, Math.trunc(now - Math.min(ENTRY_KEPT_MS, retention.eventsMs)));
  },
  sweepJobs,
  function* (sweep) {
    return isExcessDue(sweep.progress) && (yield* sweepExcessRejections(sweep));
  },
];

/** One piece; true when there is more to remove. */
export function* sweepPiece(sweep: Sweep): Steps<boolean> {
  const { progress } = sweep;
  const engineParts = sweep.engineParts.map((work) => () => engineStep(work));
  const parts: readonly SweepPart[] = [...engineParts, ...SHARED_PARTS];
  progress.calls += 1;
  for (const _ of parts) {
    const part = parts[progress.turn];
    progress.turn = (progress.turn + 1) % parts.length;
    if (part !== undefined && (yield* part(sweep))) return true;
  }
  return progress.excessCheckedAt < progress.calls && (yield* sweepExcessRejections(sweep));
}

/** Goes by tenant, since the minutes of each are in order and those of all are not. */
function* sweepReceipts({ tables, now }: Sweep): Steps<boolean> {
  const removed = yield* changedBy(
    tables.deleteFrom('receipts').where((where) =>
      where(
        where.refTuple('tenant', 'minute'),
        'in',
        where
          .selectFrom('tenants')
          // A cross join is done in this order by SQLite.
          .crossJoin('receipts as old')
          .select(['old.tenant', 'old.minute'])
          .whereRef('old.tenant', '=', 'tenants.no')
          .where('old.minute', '<', now - RECEIPTS_KEPT_MS)
          .limit(ROWS_PER_SWEEP)
          .$asTuple('tenant', 'minute'),
      ),
    ),
  );
  return removed > 0;
}

function* sweepPlanViolations({ tables, now }: Sweep): Steps<boolean> {
  const before = Math.trunc(now - VIOLATIONS_KEPT_MS);
  const removed = yield* changedBy(
    tables
      .deleteFrom('plan_violations')
      // Another shard of the same violation may be newer.
      .where('last_at', '<', before)
      .where((where) =>
        where(
          where.refTuple('tenant', 'version', 'event_name', 'path', 'message'),
          'in',
          where
            .selectFrom('plan_violations as old')
            .select(['old.tenant', 'old.version', 'old.event_name', 'old.path', 'old.message'])
            .where('old.last_at', '<', before)
            .limit(ROWS_PER_SWEEP)
            .$asTuple('tenant', 'version', 'event_name', 'path', 'message'),
        ),
      ),
  );
  return removed > 0;
}

/** Goes by tenant and time, like the index: what was processed first need not have been received first. */
function* sweepRejections({ tables, retention, now }: Sweep): Steps<boolean> {
  return yield* removeRows(
    tables,
    'rejections',
    tables
      .selectFrom('tenants')
      .crossJoin('rejections')
      .select('rejections.no')
      .whereRef('rejections.tenant', '=', 'tenants.no')
      .where('rejections.received_at', '<', Math.trunc(now - retention.rejectionsMs))
      .limit(ROWS_PER_SWEEP),
  );
}

/** By their numbers: PostgreSQL might read all rows to compare them with a subquery. */
function* removeRows(tables: Tables, table: 'rejections' | 'jobs', old: Compilable<{ no: number }>): Steps<boolean> {
  const numbers = (yield* rowsOf(old)).map(({ no }) => no);
  if (numbers.length > 0) yield* changedBy(tables.deleteFrom(table).where('no', 'in', numbers));
  return numbers.length > 0;
}

/** What was accepted is kept as long as events are; of one that a retry has stored, the note goes with its trace's details. */
function* sweepDeadLetters({ tables, retention, now }: Sweep): Steps<boolean> {
  const [accepted, retried] = [now - retention.eventsMs, now - retention.tracesMs].map(Math.trunc) as [number, number];
  const old = yield* rowsOf(
    tables
      .selectFrom('dead_letters')
      .select('no')
      .where((where) => where.or([where('received_at', '<', accepted), where('retried_at', '<', retried)]))
      .limit(ROWS_PER_SWEEP),
  );
  if (old.length === 0) return false;
  yield* removeDeadLetters(
    tables,
    old.map(({ no }) => no),
  );
  return true;
}

/** With the traces of what they resubmitted. One that is stopped for so long is given up. */
function* sweepJobs({ tables, retention, now }: Sweep): Steps<boolean> {
  const before = Math.trunc(now - retention.tracesMs);
  return yield* removeRows(
    tables,
    'jobs',
    tables
      .selectFrom('tenants')
      .crossJoin('jobs')
      .select('jobs.no')
      .whereRef('jobs.tenant', '=', 'tenants.no')
      .where('jobs.status', '<>', 'running')
      .where('jobs.stepped_at', '<', before)
      .limit(ROWS_PER_SWEEP),
  );
}

function isExcessDue({ calls, excessCheckedAt, hasExcess }: SweepProgress): boolean {
  return hasExcess || calls - excessCheckedAt >= EXCESS_CHECK_CALLS;
}

/**
 * Adds up the sizes of all of them, so it runs occasionally, and when there is nothing else to do. Takes from the tenant
 * that has the most, so that one tenant's rejections do not displace those of the others.
 */
function* sweepExcessRejections({ tables, retention, progress }: Sweep): Steps<boolean> {
  progress.excessCheckedAt = progress.calls;
  const byTenant = yield* rowsOf(
    tables
      .selectFrom('rejections')
      .select(['tenant', sql<number>`sum(octet_length(payload))`.as('bytes')])
      .groupBy('tenant')
      .orderBy('bytes', 'desc'),
  );
  let excess = byTenant.reduce((sum, { bytes }) => sum + bytes, 0) - retention.rejectionBytesMax;
  progress.hasExcess = excess > 0;
  const [largest] = byTenant;
  if (!progress.hasExcess || largest === undefined) return false;
  const oldest = yield* rowsOf(
    tables
      .selectFrom('rejections')
      .select(['no', sql<number>`octet_length(payload)`.as('bytes')])
      .where('tenant', '=', largest.tenant)
      .orderBy('received_at')
      .orderBy('no')
      .limit(ROWS_PER_SWEEP),
  );
  const removed: number[] = [];
  for (const { no, bytes } of oldest) {
    if (excess <= 0) break;
    removed.push(no);
    excess -= bytes;
  }
  progress.overLimit += yield* changedBy(tables.deleteFrom('rejections').where('no', 'in', removed));
  return true;
}
