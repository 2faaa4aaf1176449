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
import { countProfiles, listCounts } from './sums.ts';

interface StoreEngine {
  /** The log whose positions come with the ledger. Throws while it is not known. */
  readonly logName: () => string;
  /** In one snapshot. */
  readonly read: <T>(stepsOf: (tables: Tables) => Steps<T>) => Promise<T>;
  readonly ofTenant: OfTenant;
  /** The same, in one durable transaction. */
  readonly change: OfTenant;
}

/** `nothing` for a tenant that never sent anything. */
type OfTenant = <T>(id: TenantId, nothing: T, stepsOf: (tables: Tables, tenant: number) => Steps<T>) => Promise<T>;

export type SharedStore = CatalogueReader &
  JobChanges &
  Omit<LedgerReader, 'recount'> &
  Omit<TraceReader, 'trace' | 'traces'> &
  Pick<EventReader, 'counts'> &
  Pick<ProfileReader, 'profileCount'> &
  Pick<ProfileChanges, 'audit'>;

export const NO_ROWS = { rows: [], nextCursor: null };
export const NO_PEOPLE = { ...NO_ROWS, isPartial: false };

export function sharedStore({ logName, read, ofTenant, change }: StoreEngine): SharedStore {
  return {
    profileCount: (id) => ofTenant(id, 0, countProfiles),
    counts: (id, query) => ofTenant(id, [], (tables, tenant) => listCounts(tables, tenant, query)),
    audit: (id, query) => ofTenant(id, NO_ROWS, (tables, tenant) => listAudit(tables, tenant, query)),

    rejections: (id, query) => ofTenant(id, NO_ROWS, (tables, tenant) => listRejections(tables, tenant, query)),
    rejectionReasons: (id, range) => ofTenant(id, [], (tables, tenant) => listRejectionReasons(tables, tenant, range)),
    rejection: (id, traceId, userIndex) =>
      ofTenant(id, undefined, (tables, tenant) => readRejection(tables, tenant, traceId, userIndex)),
    countRejections: (id, filter) => ofTenant(id, 0, (tables, tenant) => countRejections(tables, tenant, filter)),
    deadLetters: (limit) => read((tables) => listAllDeadLetters(tables, limit)),
    listDeadLetters: (id, query) => ofTenant(id, NO_ROWS, (tables, tenant) => listDeadLetters(tables, tenant, query)),
    planViolations: (id, version) => ofTenant(id, [], (tables, tenant) => listPlanViolations(tables, tenant, version)),

    tenants: () => read(listTenants),
    receipts: (id, range) => read((tables) => readReceipts(tables, logName(), id, range)),
    ledger: (id, hours) => read((tables) => readLedger(tables, logName(), id, hours)),
    waitUntilProcessed: async () => true,

    catalogue: (id) => ofTenant(id, NO_CATALOGUE, readCatalogue),
    cataloguedEvent: (id, name) =>
      ofTenant(id, undefined, (tables, tenant) => readCataloguedEvent(tables, tenant, name)),

    resubmitUser: (id, fixed, audit) =>
      change(id, 'unknown' as const, (tables, tenant) => resubmitUser(tables, tenant, fixed, audit)),
    resubmitAll: (id, job, audit) => change(id, undefined, (tables, tenant) => resubmitAll(tables, tenant, job, audit)),
    retryDeadLetter: (id, traceId, firstUserIndex, audit) =>
      change(id, undefined, (tables, tenant) => retryDeadLetter(tables, tenant, traceId, firstUserIndex, audit)),
    retryDeadLetters: (id, filter, audit) =>
      change(id, undefined, (tables, tenant) => retryDeadLetters(tables, tenant, filter, audit)),
    job: (id, jobId) => ofTenant(id, undefined, (tables, tenant) => readJob(tables, tenant, jobId)),
    jobs: (id, page) => ofTenant(id, NO_ROWS, (tables, tenant) => listJobs(tables, tenant, page)),
    setJobStatus: (id, jobId, status) =>
      change(id, undefined, (tables, tenant) => setJobStatus(tables, tenant, jobId, status)),
  };
}
