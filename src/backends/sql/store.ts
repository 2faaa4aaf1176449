/**
 * The part of `Store` that both engines share: each reads and writes tables of `backends/sql/` alone. An engine adds
 * what is hot or its own (profiles, timelines, traces, unmerge, erase), and how statements and transactions run.
 */

import type { TenantId } from '../../model.ts';
import type {
  CatalogueReader,
  EventReader,
  JobChanges,
  LedgerReader,
  ProfileChanges,
  ProfileReader,
  TraceReader,
} from '../../store.ts';
import { listAudit } from './audit.ts';
import { NO_CATALOGUE, readCatalogue, readCataloguedEvent } from './catalogue.ts';
import { listAllDeadLetters, listDeadLetters } from './dead-letters.ts';
import {
  listJobs,
  readJob,
  resubmitAll,
  resubmitUser,
  retryDeadLetter,
  retryDeadLetters,
  setJobStatus,
} from './jobs.ts';
import { listTenants, readLedger, readReceipts } from './ledger.ts';
import { listPlanViolations } from './plan-violations.ts';
import { countRejections, listRejectionReasons, listRejections, readRejection } from './rejections.ts';
import type { Steps, Tables } from './steps.ts';
import type { StoreQueries } from './store-tables.ts';
import { countProfiles, listCounts } from './sums.ts';

interface StoreEngine {
  readonly queries: StoreQueries;
  /** The log whose positions come with the ledger. Throws while it is not known. */
  logName(): string;
  /** Translates the errors of the engine. */
  run<T>(work: () => Promise<T>): Promise<T>;
  /** `nothing` for a tenant that never sent anything. */
  ofTenant<T>(id: TenantId, nothing: T, work: (tenant: number) => Promise<T>): Promise<T>;
  /** The same, in one durable transaction. */
  inSteps<T>(id: TenantId, nothing: T, stepsOf: (tables: Tables, tenant: number) => Steps<T>): Promise<T>;
}

export type SharedStore = CatalogueReader &
  JobChanges &
  Omit<LedgerReader, 'recount'> &
  Omit<TraceReader, 'trace' | 'traces'> &
  Pick<EventReader, 'counts'> &
  Pick<ProfileReader, 'profileCount'> &
  Pick<ProfileChanges, 'audit'>;

export const NO_ROWS = { rows: [], nextCursor: null };
export const NO_PEOPLE = { ...NO_ROWS, isPartial: false };

export function sharedStore(engine: StoreEngine): SharedStore {
  const { queries } = engine;
  return {
    profileCount: (id) => engine.ofTenant(id, 0, (tenant) => countProfiles(queries, tenant)),
    counts: (id, query) => engine.ofTenant(id, [], (tenant) => listCounts(queries, tenant, query)),
    audit: (id, query) => engine.ofTenant(id, NO_ROWS, (tenant) => listAudit(queries, tenant, query)),

    rejections: (id, query) => engine.ofTenant(id, NO_ROWS, (tenant) => listRejections(queries, tenant, query)),
    rejectionReasons: (id, range) => engine.ofTenant(id, [], (tenant) => listRejectionReasons(queries, tenant, range)),
    rejection: (id, traceId, userIndex) =>
      engine.ofTenant(id, undefined, (tenant) => readRejection(queries, tenant, traceId, userIndex)),
    countRejections: (id, filter) => engine.ofTenant(id, 0, (tenant) => countRejections(queries, tenant, filter)),
    deadLetters: (limit) => engine.run(() => listAllDeadLetters(queries, limit)),
    listDeadLetters: (id, query) => engine.ofTenant(id, NO_ROWS, (tenant) => listDeadLetters(queries, tenant, query)),
    planViolations: (id, version) => engine.ofTenant(id, [], (tenant) => listPlanViolations(queries, tenant, version)),

    tenants: () => engine.run(() => listTenants(queries)),
    receipts: (id, range) => engine.run(async () => readReceipts(queries, engine.logName(), id, range)),
    ledger: (id, hours) => engine.run(async () => readLedger(queries, engine.logName(), id, hours)),

    catalogue: (id) => engine.ofTenant(id, NO_CATALOGUE, (tenant) => readCatalogue(queries, tenant)),
    cataloguedEvent: (id, name) =>
      engine.ofTenant(id, undefined, (tenant) => readCataloguedEvent(queries, tenant, name)),

    resubmitUser: (id, fixed, audit) =>
      engine.inSteps(id, 'unknown' as const, (tables, tenant) => resubmitUser(tables, tenant, fixed, audit)),
    resubmitAll: (id, job, audit) =>
      engine.inSteps(id, undefined, (tables, tenant) => resubmitAll(tables, tenant, job, audit)),
    retryDeadLetter: (id, traceId, firstUserIndex, audit) =>
      engine.inSteps(id, undefined, (tables, tenant) =>
        retryDeadLetter(tables, tenant, traceId, firstUserIndex, audit),
      ),
    retryDeadLetters: (id, filter, audit) =>
      engine.inSteps(id, undefined, (tables, tenant) => retryDeadLetters(tables, tenant, filter, audit)),
    job: (id, jobId) => engine.ofTenant(id, undefined, (tenant) => readJob(queries, tenant, jobId)),
    jobs: (id, page) => engine.ofTenant(id, NO_ROWS, (tenant) => listJobs(queries, tenant, page)),
    setJobStatus: (id, jobId, status) =>
      engine.inSteps(id, undefined, (tables, tenant) => setJobStatus(tables, tenant, jobId, status)),
  };
}
