/**
 * Jobs: resubmitting rejections and retrying dead letters. The API creates a job in its own durable transaction. The
 * processor applies a few items at a time, rejections by time of receipt and number, dead letters by number, and saves the
 * job's progress in the same transaction. So an item takes effect exactly once, even if a process crashes. Where several
 * processors share a store, only one of them runs a job at a time. A user that was fixed by hand is marked when its job
 * is made and is in the job itself: retention may then remove the rejection, and nothing is lost. The values of a patch
 * may be personal data: they are removed once the job is done, and an erase ends jobs whose patch names the person.
 */

import { type Compilable, type InferResult, sql } from 'kysely';
import { parseJson } from '../../json/parse.ts';
import type { TenantId } from '../../model.ts';
import type {
  AuditContext,
  Caller,
  DeadLetterFilter,
  FixedUser,
  JobProblem,
  NewResubmitJob,
  Page,
  PageRequest,
  PatchStep,
  RejectionFilter,
  StoredJob,
} from '../../store.ts';
import type { JobItem, JobProgress, RejectedItem, TakenJob } from '../../store-writer.ts';
import { scopedCursorOf, scopedNumbersOf, pageOf } from '../../views/cursor.ts';
import { rejectionId } from '../../views/kept-rejections.ts';
import { uuidOf } from '../../views/uuid.ts';
import { insertAudit } from './audit.ts';
import { countDeadLetters, deadLetterItem, selectDeadLetter, selectNextDeadLetters } from './dead-letters.ts';
import { matching, selectRejections, unresubmitted } from './rejections.ts';
import { changedBy, type RowLocks, rowsOf, type Steps, type Tables } from './steps.ts';
import type { StoreTables } from './store-tables.ts';

/** How many problems a job lists. */
const PROBLEMS_MAX = 50;

/** What `jobs.fixed` holds, as JSON: all that is needed to apply it. */
interface FixedRejection extends Omit<RejectedItem, 'kind' | 'payload' | 'payloadIsCut' | 'isResubmitted'> {
  readonly user: string;
}

const SHOWN = [
  'no',
  'id',
  'kind',
  'status',
  'created_at as createdAt',
  'finished_at as finishedAt',
  'called_by as by',
  'filter',
  'patch',
  'matched',
  'resubmitted',
  'still_rejected as stillRejected',
  'already',
  'cut',
  'failed',
  'problems',
] as const;

function jobOf(row: InferResult<ReturnType<typeof selectJobs>>[number]): StoredJob {
  const { no: _no, by, resubmitted, stillRejected, already, cut, failed, problems, ...job } = row;
  return {
    ...job,
    by: parseJson(by) as Caller | null,
    counts: { resubmitted, stillRejected, already, cut, failed },
    problems: parseJson(problems) as JobProblem[],
  };
}

/** What the makers of jobs have in common. */
interface NewJob {
  readonly kind: StoredJob['kind'];
  readonly filter: object;
  readonly matched: number;
  readonly patch?: string;
  readonly fixed?: FixedRejection;
  readonly deadLetter?: number;
}

function* insertJob(tables: Tables, tenant: number, job: NewJob, audit: AuditContext): Steps<StoredJob> {
  const { kind, filter, matched, patch = null, fixed, deadLetter = null } = job;
  const values = {
    id: audit.traceId,
    tenant,
    kind,
    status: 'running' as const,
    created_at: audit.at,
    stepped_at: audit.at,
    finished_at: null,
    called_by: JSON.stringify(audit.by ?? null),
    filter: JSON.stringify(filter),
    patch,
    fixed: fixed === undefined ? null : JSON.stringify(fixed),
    dead_letter: deadLetter,
    after_time: Number.MIN_SAFE_INTEGER,
    after_no: 0,
    matched,
  };
  const [row] = yield* rowsOf(tables.insertInto('jobs').values(values).returning(SHOWN));
  yield* insertAudit(tables, tenant, kind, audit, { job_id: audit.traceId, matched });
  return jobOf(row as NonNullable<typeof row>);
}

/** Marks the rejection and makes its job. */
export function* resubmitUser(
  tables: Tables,
  tenant: number,
  { traceId, userIndex, user, steps }: FixedUser,
  audit: AuditContext,
): Steps<StoredJob | 'unknown' | 'already'> {
  const uuid = uuidOf(traceId);
  if (uuid === undefined) return 'unknown';
  // The update locks the row, so that of two calls one finds it marked.
  const marked = yield* rowsOf(
    tables
      .updateTable('rejections')
      .set({ resubmitted_at: audit.at })
      .where('trace_id', '=', uuid)
      .where('user_index', '=', userIndex)
      .where('tenant', '=', tenant)
      .where('resubmitted_at', 'is', null)
      .returning(['no', 'received_at as receivedAt', 'key_id as keyId', 'key_kind as keyKind', 'format']),
  );
  const [row] = marked;
  if (row === undefined) {
    const known = yield* rowsOf(
      tables
        .selectFrom('rejections')
        .select('no')
        .where('trace_id', '=', uuid)
        .where('user_index', '=', userIndex)
        .where('tenant', '=', tenant),
    );
    return known.length > 0 ? 'already' : 'unknown';
  }
  const fixed = { ...row, traceId: uuid, userIndex, user, steps };
  const filter = { id: rejectionId(uuid, userIndex) };
  return yield* insertJob(tables, tenant, { kind: 'resubmit', filter, matched: 1, fixed }, audit);
}

export function* resubmitAll(
  tables: Tables,
  tenant: number,
  { filter, patch }: NewResubmitJob,
  audit: AuditContext,
): Steps<StoredJob | undefined> {
  // What is received from now on is not what the caller has seen.
  const bounded = { ...filter, to: Math.min(filter.to ?? audit.at, audit.at) };
  const [row] = yield* rowsOf(unresubmitted(tables, tenant, bounded));
  const matched = row?.rejections ?? 0;
  if (matched === 0) return undefined;
  return yield* insertJob(tables, tenant, { kind: 'resubmit', filter: bounded, matched, patch }, audit);
}

export function* retryDeadLetter(
  tables: Tables,
  tenant: number,
  traceId: string,
  firstUserIndex: number,
  audit: AuditContext,
): Steps<StoredJob | undefined> {
  const uuid = uuidOf(traceId);
  if (uuid === undefined) return undefined;
  const [row] = yield* rowsOf(selectDeadLetter(tables, tenant, uuid, firstUserIndex));
  if (row === undefined) return undefined;
  const filter = { id: rejectionId(uuid, firstUserIndex) };
  return yield* insertJob(tables, tenant, { kind: 'retry', filter, matched: 1, deadLetter: row.no }, audit);
}

export function* retryDeadLetters(
  tables: Tables,
  tenant: number,
  filter: DeadLetterFilter,
  audit: AuditContext,
): Steps<StoredJob | undefined> {
  const [row] = yield* rowsOf(countDeadLetters(tables, tenant, filter));
  const matched = row?.letters ?? 0;
  if (matched === 0) return undefined;
  return yield* insertJob(tables, tenant, { kind: 'retry', filter, matched }, audit);
}

export function* readJob(tables: Tables, tenant: number, id: string): Steps<StoredJob | undefined> {
  const uuid = uuidOf(id);
  if (uuid === undefined) return undefined;
  const [row] = yield* rowsOf(selectJobs(tables, tenant).where('id', '=', uuid));
  return row && jobOf(row);
}

function selectJobs(tables: Tables, tenant: number) {
  return tables.selectFrom('jobs').select(SHOWN).where('tenant', '=', tenant);
}

/** Newest first. */
export function* listJobs(tables: Tables, tenant: number, { limit, cursor }: PageRequest): Steps<Page<StoredJob>> {
  const [before = Number.MAX_SAFE_INTEGER] = cursor === null ? [] : scopedNumbersOf('jobs', [tenant], cursor, 1);
  const jobs = selectJobs(tables, tenant)
    .where('no', '<', before)
    .orderBy('no', 'desc')
    .limit(limit + 1);
  const rows = yield* rowsOf(jobs);
  return pageOf(rows, limit, jobOf, ({ no }) => scopedCursorOf('jobs', [tenant], no));
}

export function* setJobStatus(
  tables: Tables,
  tenant: number,
  id: string,
  status: 'running' | 'stopped',
): Steps<StoredJob | undefined> {
  const uuid = uuidOf(id);
  if (uuid === undefined) return undefined;
  yield* changedBy(
    tables
      .updateTable('jobs')
      .set({ status })
      .where('id', '=', uuid)
      .where('tenant', '=', tenant)
      // A user that was fixed by hand is marked already, so its job is not stopped.
      .where('fixed', 'is', null)
      .where('status', '<>', 'done'),
  );
  const [row] = yield* rowsOf(selectJobs(tables, tenant).where('id', '=', uuid));
  return row && jobOf(row);
}

export function* hasJobs(tables: Tables): Steps<boolean> {
  return (yield* rowsOf(tables.selectFrom('jobs').select('no').where(RUNNING).limit(1))).length > 0;
}

/** Written out, so that the index of running jobs is used. */
const RUNNING = sql<boolean>`status = 'running'`;

/** Called by the processor. */
export function* takeJob(tables: Tables, locks: RowLocks, itemsMax: number): Steps<TakenJob | undefined> {
  const running = tables
    .selectFrom('jobs')
    .select([
      'no',
      'id',
      'tenant',
      'kind',
      'called_by',
      'filter',
      'patch',
      'fixed',
      'dead_letter',
      'created_at',
      'after_time',
      'after_no',
    ])
    .where(RUNNING)
    .orderBy('stepped_at')
    .orderBy('no')
    .limit(1);
  const [job] = yield* rowsOf(locks.skipLocked(running));
  if (job === undefined) return undefined;
  const [tenant] = yield* rowsOf(tables.selectFrom('tenants').select('id').where('no', '=', job.tenant));
  // A dead letter may be a whole request.
  const most = job.kind === 'retry' ? 1 : itemsMax;
  const items = yield* nextItems(tables, locks, job, most + 1);
  return {
    no: job.no,
    id: job.id,
    kind: job.kind,
    tenantId: (tenant as { id: TenantId }).id,
    by: parseJson(job.called_by) as Caller | null,
    patch: job.patch,
    items: items.slice(0, most),
    isLast: items.length <= most,
  };
}

type JobPosition = Pick<
  StoreTables['jobs'],
  'tenant' | 'kind' | 'filter' | 'fixed' | 'dead_letter' | 'created_at' | 'after_time' | 'after_no'
>;

function* nextItems(tables: Tables, locks: RowLocks, job: JobPosition, limit: number): Steps<JobItem[]> {
  if (job.fixed !== null) return [fixedItem(parseJson(job.fixed) as FixedRejection)];
  if (job.kind === 'retry') {
    const behind = { no: job.after_no, only: job.dead_letter, createdAt: job.created_at };
    const filter = job.dead_letter === null ? (parseJson(job.filter) as DeadLetterFilter) : ANY_DEAD_LETTER;
    // With its tenant, which an erase locks first: of the two, the later one sees what the other has left.
    const rows = yield* rowsOf(locks.lock(selectNextDeadLetters(tables, job.tenant, filter, behind, limit)));
    return rows.map(deadLetterItem);
  }
  const rejections = matching(
    selectRejections(tables, job.tenant)
      // Those that were resubmitted before the job was made did not match.
      .where((where) => where.or([where('resubmitted_at', 'is', null), where('resubmitted_at', '>', job.created_at)]))
      .where((where) => where(where.refTuple('received_at', 'no'), '>', where.tuple(job.after_time, job.after_no)))
      .orderBy('received_at')
      .orderBy('no')
      .limit(limit),
    parseJson(job.filter) as RejectionFilter,
  );
  return (yield* rowsOf(rejections)).map(rejectedItem);
}

function rejectedItem(row: InferResult<ReturnType<typeof selectRejections>>[number]): RejectedItem {
  const { no, traceId, userIndex, receivedAt, keyId, keyKind, format, payload } = row;
  const marks = { payloadIsCut: row.payloadIsCut === 1, isResubmitted: row.resubmittedAt !== null };
  return { kind: 'rejection', no, traceId, userIndex, receivedAt, keyId, keyKind, format, payload, ...marks };
}

const ANY_DEAD_LETTER: DeadLetterFilter = { cause: null, from: null, to: null };

function fixedItem({ user, ...rest }: FixedRejection): RejectedItem {
  return { kind: 'rejection', ...rest, payload: user, payloadIsCut: false, isResubmitted: false };
}

/** In the order of their numbers, as all transactions lock them. */
function* mark(numbers: readonly number[], update: (no: number) => Compilable): Steps<Set<number>> {
  const marked = new Set<number>();
  for (const no of numbers.toSorted((a, b) => a - b)) {
    if ((yield* changedBy(update(no))) > 0) marked.add(no);
  }
  return marked;
}

export function markResubmitted(tables: Tables, numbers: readonly number[], at: number): Steps<Set<number>> {
  const update = tables.updateTable('rejections').set({ resubmitted_at: at }).where('resubmitted_at', 'is', null);
  return mark(numbers, (no) => update.where('no', '=', no));
}

export function markRetried(tables: Tables, numbers: readonly number[], at: number): Steps<Set<number>> {
  const update = tables.updateTable('dead_letters').set({ retried_at: at, body: null }).where('retried_at', 'is', null);
  return mark(numbers, (no) => update.where('no', '=', no));
}

/** A job that is done. */
function endOf({ patch }: { readonly patch: string | null }, at: number) {
  return { status: 'done' as const, finished_at: at, fixed: null, patch: patch && withoutValues(patch) };
}

function withoutValues(patch: string): string {
  return JSON.stringify((parseJson(patch) as PatchStep[]).map(({ op, path, from }) => ({ op, path, from })));
}

const PATCH_ERASED =
  'the job was ended, because a person was erased whose identifiers are in its patch: create another for the rest';

/** In the transaction of an erase. `names` says whether a text names the person. */
export function* endJobsThatName(
  tables: Tables,
  tenant: number,
  names: (text: string) => boolean,
  at: number,
): Steps<void> {
  const jobs = yield* rowsOf(
    tables
      .selectFrom('jobs')
      .select(['no', 'id', 'patch'])
      .where('tenant', '=', tenant)
      .where('status', '<>', 'done')
      .where('patch', 'is not', null)
      .orderBy('no'),
  );
  for (const { no, id, patch } of jobs) {
    if (patch === null || !names(patch)) continue;
    // This waits for a step that is under way, which adds its own problems first.
    const [ended] = yield* rowsOf(
      tables
        .updateTable('jobs')
        .set(endOf({ patch }, at))
        .where('no', '=', no)
        .where('status', '<>', 'done')
        .returning('problems'),
    );
    if (ended === undefined) continue;
    const problems = [{ id, message: PATCH_ERASED }, ...(parseJson(ended.problems) as JobProblem[])];
    yield* changedBy(
      tables
        .updateTable('jobs')
        .set({ problems: JSON.stringify(problems.slice(0, PROBLEMS_MAX)) })
        .where('no', '=', no),
    );
  }
}

/** In the transaction that applies the items. A job whose last items these are is done. */
export function* saveJob(tables: Tables, job: TakenJob, progress: JobProgress): Steps<void> {
  const { counts, problems, at, isGivenBack } = progress;
  const last = job.items.at(-1);
  const [known] = yield* rowsOf(tables.selectFrom('jobs').select('problems').where('no', '=', job.no));
  const shown = [...(parseJson(known?.problems ?? '[]') as JobProblem[]), ...problems].slice(0, PROBLEMS_MAX);
  yield* changedBy(
    tables
      .updateTable('jobs')
      .set(({ eb }) => ({
        stepped_at: at,
        resubmitted: eb('resubmitted', '+', counts.resubmitted),
        still_rejected: eb('still_rejected', '+', counts.stillRejected),
        already: eb('already', '+', counts.already),
        cut: eb('cut', '+', counts.cut),
        failed: eb('failed', '+', counts.failed),
        problems: JSON.stringify(shown),
        ...(last !== undefined && { after_no: last.no }),
        ...(last?.kind === 'rejection' && { after_time: last.receivedAt }),
        ...(job.isLast && endOf(job, at)),
      }))
      .where('no', '=', job.no),
  );
  if (isGivenBack && last !== undefined) {
    yield* changedBy(tables.updateTable('rejections').set({ resubmitted_at: null }).where('no', '=', last.no));
  }
}
