/**
 * Runs jobs, which resubmit fixed users and retry dead letters. A step is one transaction: it takes a few items of one
 * job, marks them, writes them like any record, and saves the job's progress. So each item takes effect exactly once,
 * whenever the process crashes, and an item that another job has applied already is skipped.
 *
 * A fixed user keeps the trace_id, userIndex, key and time of receipt of its request: order, the last write and the
 * default event time are those of the original, and what was erased since stays erased. The windows of its event ids
 * begin when it is applied. An item that makes this code throw is isolated, tried `TRIES_MAX` times and then counted as
 * failed.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../errors.ts';
import type { MatchOptions } from '../identity/match-keys.ts';
import { OpenPlans } from '../keys/open-plans.ts';
import type { LogRecord } from '../log.ts';
import type { TenantId } from '../model.ts';
import type { PlanStore } from '../plans.ts';
import { enforcedBy, fixUser, resubmittedRecord, validateUser } from '../resubmit/fixed-user.ts';
import { type Patch, parsePatch, stepsOf } from '../resubmit/patch.ts';
import type { JobCounts, JobProblem } from '../store.ts';
import {
  type JobItem,
  type RejectedItem,
  StoreConflictError,
  AlreadyStoredError,
  StoreUnavailableError,
  type StoreWriter,
  type TakenJob,
  type WriteTransaction,
} from '../store-writer.ts';
import type { Logger } from '../telemetry/logger.ts';
import { METRIC, type MetricsWriter } from '../telemetry/metrics.ts';
import type { UserCheck } from '../validation/validate-request.ts';
import { addToMetrics, type Failpoint, processPrepared } from './batch.ts';
import type { CatalogueCollector } from './catalogue.ts';
import { FailedTries, failureOf, isPoison } from './failures.ts';
import type { WarningPlans } from './plan-warnings.ts';
import { type PreparedRecord, prepareRecord } from './prepare.ts';

/** These two keep a step short compared with a transaction of the log. */
const ITEMS_PER_STEP = 100;
/** Limit for fixing and validating users; items that are left then wait for the next step. */
const FIXING_MS_PER_STEP = 50;
/** While there is no job. */
const CHECK_INTERVAL_MS = 500;
const CONFLICT_WAIT_MS = 50;

const NOT_KEPT = 'its body is not kept, so there is nothing to retry';
const NOTHING: JobCounts = { resubmitted: 0, stillRejected: 0, already: 0, cut: 0, failed: 0 };

export interface JobRunnerParts {
  readonly writer: StoreWriter;
  readonly options: MatchOptions;
  readonly metrics: MetricsWriter;
  readonly logger: Logger;
  readonly now: () => number;
  readonly failpoint: Failpoint;
  readonly assertLockHeld?: (() => void) | undefined;
  /** As for records of the log: what the catalogue shows, and the tracking plans that warn. */
  readonly catalogue?: CatalogueCollector | undefined;
  readonly plans?: WarningPlans | undefined;
  /** The tracking plans that resubmitted users are held to; none unless given. */
  readonly planStore?: Pick<PlanStore, 'find'> | undefined;
}

/** What is to be written of one item. */
interface Applied {
  readonly item: JobItem;
  readonly record: PreparedRecord;
}

export class JobRunner {
  readonly #parts: JobRunnerParts;
  readonly #plans: OpenPlans | undefined;
  #nextCheckAt = 0;
  /** How many items are taken one by one, because a step with several failed. */
  #oneByOne = 0;
  readonly #tries = new FailedTries();
  /** Why an item cannot be processed. */
  readonly #failed = new Map<string, string>();

  constructor(parts: JobRunnerParts) {
    this.#parts = parts;
    this.#plans = parts.planStore && new OpenPlans(parts.planStore);
  }

  /** One step of one job; false if there is none now. `isUrgent` looks at once, not at intervals. */
  async step(isUrgent = false): Promise<boolean> {
    const { writer } = this.#parts;
    if (!isUrgent && performance.now() < this.#nextCheckAt) return false;
    if (!(await writer.hasJobs())) {
      this.#nextCheckAt = performance.now() + CHECK_INTERVAL_MS;
      return false;
    }
    const transaction = await writer.begin();
    let job: TakenJob | undefined;
    try {
      job = await transaction.takeJob(this.#oneByOne > 0 ? 1 : ITEMS_PER_STEP);
      if (job !== undefined) await this.#apply(transaction, job);
      // Another processor has them.
      else await transaction.commit(false);
    } catch (error) {
      await transaction.rollback();
      this.#parts.catalogue?.discard();
      await this.#recover(job, error);
      return true;
    }
    if (job === undefined) this.#nextCheckAt = performance.now() + CHECK_INTERVAL_MS;
    else if (this.#oneByOne > 0) this.#oneByOne -= 1;
    return job !== undefined;
  }

  async #apply(transaction: WriteTransaction, job: TakenJob): Promise<void> {
    const { now, failpoint } = this.#parts;
    failpoint('job_taken');
    const at = now();
    const counts = { ...NOTHING };
    const problems: JobProblem[] = [];
    const check = await this.#enforced(job.tenantId);
    const { applied, left } = this.#decide(job, at, check, counts, problems);
    const marked = await this.#mark(transaction, applied, at);
    failpoint('job_marked');
    const records = applied.filter(({ item }) => marked.has(item)).map(({ record }) => record);
    // One time for all: an erase finds the uses of event ids by when their record was processed.
    const context = { ...this.#parts, now: () => at };
    const written = records.length > 0 ? await processPrepared(transaction, records, context) : undefined;
    failpoint('job_written');
    const isGivenBack = counts.stillRejected + counts.failed > 0 && job.items.some(isFixedByHand);
    counts.resubmitted += records.length;
    counts.already += applied.length - records.length;
    const done = left === 0 ? job : { ...job, items: job.items.slice(0, -left), isLast: false };
    await transaction.saveJob(done, { counts, problems, at, isGivenBack });
    failpoint('job_saved');
    this.#parts.assertLockHeld?.();
    await transaction.commit(false);
    this.#parts.catalogue?.commit();
    failpoint('job_committed');
    if (written !== undefined) addToMetrics(this.#parts.metrics, written);
  }

  /** What the tenant's plan enforces now. */
  async #enforced(tenantId: TenantId): Promise<UserCheck | undefined> {
    try {
      return enforcedBy(await this.#plans?.newest(tenantId));
    } catch (error) {
      throw new StoreUnavailableError(`the tracking plan cannot be read: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Counts items that have no effect and returns the others, and how many are left for the next step. */
  #decide(
    job: TakenJob,
    at: number,
    check: UserCheck | undefined,
    counts: { -readonly [Name in keyof JobCounts]: number },
    problems: JobProblem[],
  ): { readonly applied: readonly Applied[]; readonly left: number } {
    const patch = job.patch === null ? null : parsePatch(job.patch);
    const applied: Applied[] = [];
    const end = performance.now() + FIXING_MS_PER_STEP;
    for (const [index, item] of job.items.entries()) {
      if (index > 0 && performance.now() > end) return { applied, left: job.items.length - index };
      const note = (outcome: 'stillRejected' | 'failed', message: string): void => {
        counts[outcome] += 1;
        problems.push({ id: `${item.traceId}.${item.userIndex}`, message });
      };
      const cause = this.#failed.get(nameOf(job.id, item));
      if (cause !== undefined) {
        note('failed', cause);
      } else if (item.kind === 'dead_letter') {
        if (item.isRetried) counts.already += 1;
        else if (item.record === null) note('failed', NOT_KEPT);
        else applied.push({ item, record: this.#retried(item.record, at) });
      } else if (item.isResubmitted) {
        counts.already += 1;
      } else if (item.payloadIsCut) {
        counts.cut += 1;
      } else {
        const { format, receivedAt } = item;
        const sentAs = { format: format ?? 'sluice', receivedAt } as const;
        const fixed = patch === null ? validateUser(item.payload, check) : fixUser(item.payload, patch, sentAs, check);
        if (fixed.status === 'still_rejected') note('stillRejected', fixed.message);
        else applied.push({ item, record: this.#resubmitted(job, item, patch, fixed, at) });
      }
    }
    return { applied, left: 0 };
  }

  async #mark(transaction: WriteTransaction, applied: readonly Applied[], at: number): Promise<ReadonlySet<JobItem>> {
    const items = applied.map(({ item }) => item);
    const rejections = items.filter((item) => item.kind === 'rejection' && !isFixedByHand(item)).map(({ no }) => no);
    const letters = items.filter(({ kind }) => kind === 'dead_letter').map(({ no }) => no);
    const resubmitted = rejections.length > 0 ? await transaction.markResubmitted(rejections, at) : new Set();
    const retried = letters.length > 0 ? await transaction.markRetried(letters, at) : new Set();
    const isMarked = (item: JobItem): boolean =>
      isFixedByHand(item) || (item.kind === 'rejection' ? resubmitted : retried).has(item.no);
    return new Set(items.filter(isMarked));
  }

  #resubmitted(
    job: TakenJob,
    item: RejectedItem,
    patch: Patch | null,
    fixed: { readonly user: string; readonly events: number },
    at: number,
  ): PreparedRecord {
    const record = resubmittedRecord(job.tenantId, item, item.userIndex, fixed);
    const prepared = prepareRecord(record, this.#parts.options);
    const steps = item.steps ?? (patch === null ? [] : stepsOf(patch));
    const resubmitted = { at, by: job.by, jobId: job.id, patch: steps };
    return { ...prepared, header: { ...prepared.header, usersRejected: -1, resubmitted, appliedAt: at } };
  }

  #retried(record: LogRecord, at: number): PreparedRecord {
    const prepared = prepareRecord(record, this.#parts.options);
    return { ...prepared, header: { ...prepared.header, isRetried: true, appliedAt: at } };
  }

  /** After an error in a step. Throws it on unless it is a conflict, or may be the fault of an item. */
  async #recover(job: TakenJob | undefined, error: unknown): Promise<void> {
    const isStored = error instanceof AlreadyStoredError;
    if (error instanceof StoreConflictError && !isStored) {
      this.#parts.metrics.inc(METRIC.store_conflicts);
      await sleep(Math.random() * CONFLICT_WAIT_MS);
      return;
    }
    const [first] = job?.items ?? [];
    if ((!isPoison(error) && !isStored) || job === undefined || first === undefined) throw error;
    if (job.items.length > 1) {
      this.#oneByOne = job.items.length;
      return;
    }
    const name = nameOf(job.id, first);
    if (!this.#tries.isLast(name)) return;
    const { cause, stack } = failureOf(error);
    this.#failed.set(name, cause);
    this.#parts.logger.error({ trace_id: first.traceId, cause, stack }, 'an item of a job cannot be processed');
  }
}

/** Marked when its job was made. */
function isFixedByHand(item: JobItem): boolean {
  return item.kind === 'rejection' && item.steps !== undefined;
}

/** Within its job: another patch may work. */
function nameOf(jobId: string, { kind, no }: JobItem): string {
  return `${jobId} ${kind} ${no}`;
}
