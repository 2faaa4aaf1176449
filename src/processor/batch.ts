/**
 * One batch of prepared records through the store's transaction: look up, decide, write. Tenants of a batch are
 * decided independently, each in the order of the log.
 */

import type { LookupResult, WriteTransaction } from '../store-writer.ts';
import { METRIC, type MetricsWriter } from '../telemetry/metrics.ts';
import type { CatalogueCollector } from './catalogue.ts';
import { decide, lookupRequestOf } from './decide.ts';
import type { WarningPlans } from './plan-warnings.ts';
import type { PreparedRecord } from './prepare.ts';

/** Where a test may stop the process: between any two steps. */
export type Failpoint = (name: FailpointName) => void;
export const FAILPOINTS = [
  'read',
  'begun',
  'advanced',
  'prepared',
  'looked_up',
  'decided',
  'written',
  'committed',
  'log_committed',
] as const;
/** Failpoints in a step of a job (jobs.ts). */
export const JOB_FAILPOINTS = ['job_taken', 'job_marked', 'job_written', 'job_saved', 'job_committed'] as const;
export type FailpointName = (typeof FAILPOINTS)[number] | (typeof JOB_FAILPOINTS)[number];

export interface BatchCounts {
  readonly records: number;
  readonly users: number;
  readonly events: number;
  /** Events that clients reported to have dropped. */
  readonly droppedByClients: number;
  readonly merges: number;
  readonly refusals: number;
}

export interface BatchContext {
  readonly now: () => number;
  readonly failpoint: Failpoint;
  /** Collects what the catalogue shows; without it the batch is not in the catalogue. */
  readonly catalogue?: CatalogueCollector | undefined;
  readonly plans?: WarningPlans | undefined;
}

export async function processPrepared(
  transaction: WriteTransaction,
  records: readonly PreparedRecord[],
  { now, failpoint, plans, catalogue }: BatchContext,
): Promise<BatchCounts> {
  const tenants = [...Map.groupBy(records, ({ header }) => header.tenantId)];
  failpoint('prepared');
  const results = await transaction.lookUp(tenants.map(([tenantId, prepared]) => lookupRequestOf(tenantId, prepared)));
  failpoint('looked_up');
  const batches = tenants.map(([tenantId, prepared], index) =>
    decide(tenantId, results[index] as LookupResult, prepared, plans?.of(tenantId)),
  );
  failpoint('decided');
  await transaction.write(batches, now());
  failpoint('written');

  const counts = { records: records.length, users: 0, events: 0, droppedByClients: 0, merges: 0, refusals: 0 };
  for (const batch of batches) {
    const { changes, records: written } = batch;
    catalogue?.add(batch);
    counts.merges += changes.merges.length;
    counts.refusals += changes.refusals.length;
    for (const { header, duplicateOf, userTally, eventTally } of written) {
      counts.users += userTally.stored;
      counts.events += eventTally.stored;
      // Those of a dead letter were reported before.
      if (duplicateOf === null && !header.isRetried) counts.droppedByClients += header.droppedByClient ?? 0;
    }
  }
  return counts;
}

/** After the commit. */
export function addToMetrics(metrics: MetricsWriter, counts: BatchCounts): void {
  metrics.inc(METRIC.processed_records, counts.records);
  metrics.inc(METRIC.processed_users, counts.users);
  metrics.inc(METRIC.processed_events, counts.events);
  metrics.inc(METRIC.dropped_by_clients, counts.droppedByClients);
  metrics.inc(METRIC.merges, counts.merges);
  metrics.inc(METRIC.refusals, counts.refusals);
}
