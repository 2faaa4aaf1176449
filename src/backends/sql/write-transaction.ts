/**
 * What a writer's transaction does in tables of `backends/sql/` alone: positions, dead letters, jobs, the catalogue and
 * the sums. An engine adds what is hot or its own (lookups, people, records), and how statements run.
 */

import { type LogRecord, type LostRecords, NO_TENANT } from '../../log.ts';
import type { TenantId } from '../../model.ts';
import {
  type JobProgress,
  type Observation,
  type RecordHeader,
  StoreConflictError,
  type TakenJob,
} from '../../store-writer.ts';
import { addToCatalogue } from './catalogue.ts';
import { insertDeadLetter, NO_TENANT_NUMBER } from './dead-letters.ts';
import { markResubmitted, markRetried, saveJob, takeJob } from './jobs.ts';
import { changedBy, type StepsOf } from './steps.ts';
import { TransactionSums } from './sums.ts';

export abstract class SqlWriteTransaction {
  /** Written with the commit. */
  protected readonly sums = new TransactionSums();
  protected abstract readonly logName: string;

  /** Within the transaction. */
  protected abstract inSteps<T>(stepsOf: StepsOf<T>): Promise<T>;
  /** Also of new tenants. */
  protected abstract tenantNumbers(ids: readonly TenantId[]): Promise<ReadonlyMap<TenantId, number>>;
  abstract findStored(headers: readonly RecordHeader[]): Promise<ReadonlySet<RecordHeader>>;

  async advance(
    partition: number,
    from: number,
    to: number,
    lastTraceId?: string,
    expectedTraceId?: string,
  ): Promise<void> {
    const at = { log: this.logName, partition };
    const reached = { position: to, processed_to: to, last_trace_id: lastTraceId ?? null };
    const moved = await this.inSteps((tables) => {
      // Before any record is processed, the position is 0.
      if (from === 0) {
        return changedBy(
          tables
            .insertInto('positions')
            .values({ ...at, ...reached })
            .onConflict((conflict) =>
              conflict.columns(['log', 'partition']).doUpdateSet(reached).where('positions.position', '=', from),
            ),
        );
      }
      const advance = tables
        .updateTable('positions')
        .set(reached)
        .where('log', '=', at.log)
        .where('partition', '=', partition)
        .where('position', '=', from);
      return changedBy(expectedTraceId === undefined ? advance : advance.where('last_trace_id', '=', expectedTraceId));
    });
    if (moved > 0) return;
    throw new StoreConflictError(
      `partition ${partition} of the log is not at ${from} any more, or after another record`,
    );
  }

  async noteLost({ partition, from, to, records, at }: LostRecords): Promise<void> {
    const found = { next_position: to, records, found_at: at };
    await this.inSteps((tables) =>
      changedBy(
        tables
          .insertInto('lost_records')
          .values({ log: this.logName, partition, first_position: from, ...found })
          // An operator may have reset the position, so that processing passes the same gap again.
          .onConflict((conflict) => conflict.columns(['log', 'partition', 'first_position']).doUpdateSet(found)),
      ),
    );
  }

  async deadLetter(header: RecordHeader, record: LogRecord, cause: string, at: number): Promise<void> {
    // It is a copy.
    if ((await this.findStored([header])).size > 0) return;
    const { tenantId } = header;
    const isForeign = tenantId === NO_TENANT;
    const tenant = isForeign ? NO_TENANT_NUMBER : ((await this.tenantNumbers([tenantId])).get(tenantId) as number);
    if (!isForeign) this.sums.addDeadLetter(tenant, header);
    await this.inSteps((tables) => insertDeadLetter(tables, tenant, this.logName, header, record, cause, at));
  }

  takeJob(itemsMax: number): Promise<TakenJob | undefined> {
    return this.inSteps((tables, locks) => takeJob(tables, locks, itemsMax));
  }

  markResubmitted(rejections: readonly number[], at: number): Promise<ReadonlySet<number>> {
    return this.inSteps((tables) => markResubmitted(tables, rejections, at));
  }

  markRetried(deadLetters: readonly number[], at: number): Promise<ReadonlySet<number>> {
    return this.inSteps((tables) => markRetried(tables, deadLetters, at));
  }

  saveJob(job: TakenJob, progress: JobProgress): Promise<void> {
    return this.inSteps((tables) => saveJob(tables, job, progress));
  }

  async writeCatalogue(observations: readonly Observation[], since: number): Promise<void> {
    const numbers = await this.tenantNumbers([...new Set(observations.map(({ tenantId }) => tenantId))]);
    await this.inSteps((tables, locks) => addToCatalogue(tables, locks, numbers, observations, since));
  }
}
