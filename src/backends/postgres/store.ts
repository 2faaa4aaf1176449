/**
 * Reads the store on PostgreSQL: `Store` for any number of nodes, beside any number of processors. Nearly every query
 * is one statement and sees one snapshot; unmerge and erase write. Results equal those of the embedded store, to the
 * byte.
 *
 * The store owns the pool that it is given. Rejects with `StoreUnavailableError` when the server cannot be reached, or
 * when other transactions kept changing the same person during an unmerge or erase.
 */

import type { MatchOptions } from '../../identity/match-keys.ts';
import type { IdentifierType, TenantId } from '../../model.ts';
import type {
  AuditContext,
  ArrivalFilter,
  Arrivals,
  AuditQuery,
  AuditRow,
  CountBucket,
  CountQuery,
  EventQuery,
  NewestArrivals,
  Page,
  PageRequest,
  PeoplePage,
  PeopleQuery,
  Receipts,
  RejectionQuery,
  RejectionReason,
  DeadLetter,
  Store,
  StoredEvent,
  StoredIdentity,
  StoredPerson,
  StoredProfile,
  StoredRejection,
  StoredTrace,
  TimeRange,
  TraceQuery,
  TraceSummary,
  UnmergeResult,
} from '../../store.ts';
import { StoreConflictError, StoreUnavailableError } from '../../store-writer.ts';
import { roughFilter, searchPeople } from '../../views/people-search.ts';
import { listAudit } from '../sql/audit.ts';
import { listCounts } from '../sql/counts.ts';
import { readLedger, selectStoredEvents } from '../sql/ledger.ts';
import { readReceipts } from '../sql/receipts.ts';
import { listDeadLetters, listRejectionReasons, listRejections } from '../sql/rejections.ts';
import type { StoreQueries } from '../sql/store-tables.ts';
import { countProfiles, listTenants } from '../sql/tenants.ts';
import type { PostgresPool } from './pool.ts';
import { storeQueriesOn } from './sql-database.ts';
import { unmerge } from './store-unmerge.ts';
import { StoreArrivals } from './store-arrivals.ts';
import { erase } from './store-erase.ts';
import { PeopleSteps, readPeople } from './store-people.ts';
import { findProfile, listProfiles, readIdentity, readProfile } from './store-profiles.ts';
import { inSnapshot, TenantNumbers } from './store-reads.ts';
import { listEvents } from './store-timeline.ts';
import { listTraces, readTrace } from './store-traces.ts';

export interface PostgresStoreOptions {
  /** Of a migrated database (`migrate`). */
  readonly pool: PostgresPool;
  /**
   * `LogReader.name`: the log whose positions come with the ledger. A function if it is not available yet; it may
   * throw.
   */
  readonly logName: string | (() => string);
  /** How processors normalise: an erase searches rejected users for the person too. */
  readonly matchOptions?: MatchOptions;
}

const DEFAULT_MATCH_OPTIONS: MatchOptions = { defaultCountry: null, junkValues: new Set() };
/** Looks at every event. */
const RECOUNT_MS_MAX = 3_600_000;
const NO_ROWS = { rows: [], nextCursor: null };

export function openPostgresStore(options: PostgresStoreOptions): Store {
  return new PostgresStore(options);
}

class PostgresStore implements Store {
  readonly #pool: PostgresPool;
  readonly #queries: StoreQueries;
  readonly #logName: () => string;
  readonly #matchOptions: MatchOptions;
  readonly #tenants: TenantNumbers;
  readonly #arrivals: StoreArrivals;

  constructor({ pool, logName, matchOptions = DEFAULT_MATCH_OPTIONS }: PostgresStoreOptions) {
    this.#pool = pool;
    this.#queries = storeQueriesOn(pool);
    this.#logName = typeof logName === 'string' ? () => logName : logName;
    this.#matchOptions = matchOptions;
    this.#tenants = new TenantNumbers(pool);
    this.#arrivals = new StoreArrivals(pool);
  }

  tenants(): Promise<TenantId[]> {
    return listTenants(this.#queries);
  }

  findProfile(id: TenantId, type: IdentifierType, normalised: string): Promise<StoredProfile | undefined> {
    return this.#ofTenant(id, undefined, (tenant) => findProfile(this.#pool, tenant, type, normalised));
  }

  profile(tenantId: TenantId, id: string): Promise<StoredProfile | undefined> {
    return this.#ofTenant(tenantId, undefined, (tenant) => readProfile(this.#pool, tenant, id));
  }

  profileCount(id: TenantId): Promise<number> {
    return this.#ofTenant(id, 0, (tenant) => countProfiles(this.#queries, tenant));
  }

  profiles(id: TenantId, page: PageRequest): Promise<Page<StoredProfile>> {
    return this.#ofTenant(id, NO_ROWS, (tenant) => listProfiles(this.#pool, tenant, page));
  }

  async searchPeople(id: TenantId, query: PeopleQuery): Promise<PeoplePage> {
    const tenant = await this.#tenants.of(id);
    const steps = tenant === undefined ? null : new PeopleSteps(this.#pool, tenant, query, roughFilter(query));
    return searchPeople(
      {
        tenant: tenant ?? 0,
        findProfile: (type, normalised) => this.findProfile(id, type, normalised),
        profile: (profileId) => this.profile(id, profileId),
        step: async (...args) => (steps === null ? { found: [], end: null } : steps.step(...args)),
      },
      query,
    );
  }

  people(tenantId: TenantId, ids: readonly string[]): Promise<Map<string, StoredPerson>> {
    return this.#ofTenant(tenantId, new Map(), (tenant) => readPeople(this.#pool, tenant, ids));
  }

  events(id: TenantId, query: EventQuery): Promise<Page<StoredEvent> | undefined> {
    const nothing = query.profileId === null ? NO_ROWS : undefined;
    return this.#ofTenant(id, nothing, (tenant) => listEvents(this.#pool, tenant, query));
  }

  async arrivals(id: TenantId, after: string | null, limit: number): Promise<Arrivals> {
    return this.#arrivals.list(await this.#tenants.of(id), after, limit);
  }

  async newestArrivals(id: TenantId, after: string, filter: ArrivalFilter, limit: number): Promise<NewestArrivals> {
    const tenant = await this.#tenants.of(id);
    const { profileId } = filter;
    const person = async (): Promise<ReadonlySet<string>> => {
      const profile = profileId === null ? undefined : await this.profile(id, profileId);
      return new Set(profile === undefined ? [] : [profile.id, ...profile.mergedIds]);
    };
    return this.#arrivals.listNewest(tenant, after, { ...filter, person }, limit);
  }

  counts(id: TenantId, query: CountQuery): Promise<CountBucket[]> {
    return this.#ofTenant(id, [], (tenant) => listCounts(this.#queries, tenant, query));
  }

  identity(tenantId: TenantId, id: string): Promise<StoredIdentity | undefined> {
    return this.#ofTenant(tenantId, undefined, (tenant) => readIdentity(this.#pool, tenant, id));
  }

  unmerge(tenantId: TenantId, id: string, mergedBy: string, audit: AuditContext): Promise<UnmergeResult | undefined> {
    return this.#ofTenant(tenantId, undefined, (tenant) =>
      withoutConflicts(unmerge(this.#pool, tenant, id, mergedBy, audit)),
    );
  }

  erase(tenantId: TenantId, id: string, audit: AuditContext): Promise<boolean> {
    return this.#ofTenant(tenantId, false, (tenant) =>
      withoutConflicts(erase(this.#pool, { tenant, tenantId, id, audit, matchOptions: this.#matchOptions })),
    );
  }

  audit(id: TenantId, query: AuditQuery): Promise<Page<AuditRow>> {
    return this.#ofTenant(id, NO_ROWS, (tenant) => listAudit(this.#queries, tenant, query));
  }

  async trace(id: TenantId | null, traceId: string): Promise<StoredTrace | undefined> {
    return readTrace(this.#pool, id === null ? null : await this.#tenants.of(id), traceId);
  }

  traces(id: TenantId, query: TraceQuery): Promise<Page<TraceSummary>> {
    return this.#ofTenant(id, NO_ROWS, (tenant) => listTraces(this.#pool, tenant, id, query));
  }

  rejections(id: TenantId, query: RejectionQuery): Promise<Page<StoredRejection>> {
    return this.#ofTenant(id, NO_ROWS, (tenant) => listRejections(this.#queries, tenant, query));
  }

  rejectionReasons(id: TenantId, range: TimeRange): Promise<RejectionReason[]> {
    return this.#ofTenant(id, [], (tenant) => listRejectionReasons(this.#queries, tenant, range));
  }

  async receipts(id: TenantId, range: TimeRange): Promise<Receipts> {
    return readReceipts(this.#queries, this.#logName(), id, range);
  }

  async ledger(id: TenantId | null, hours: TimeRange): ReturnType<Store['ledger']> {
    return readLedger(this.#queries, this.#logName(), id, hours);
  }

  deadLetters(limit: number): Promise<DeadLetter[]> {
    return listDeadLetters(this.#queries, limit);
  }

  recount(): Promise<{ eventsInLedger: number; eventsInTables: number }> {
    return inSnapshot(this.#pool, async (client) => {
      await client.query(`SET LOCAL statement_timeout = ${RECOUNT_MS_MAX}`);
      const ledger = await selectStoredEvents(storeQueriesOn(client).tables).executeTakeFirst();
      const { rows } = await client.query<{ events: number }>({
        text: 'SELECT count(*) AS events FROM events',
        timeoutMs: RECOUNT_MS_MAX,
      });
      return { eventsInLedger: ledger?.events ?? 0, eventsInTables: rows[0]?.events ?? 0 };
    });
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  /** `nothing` for a tenant that never sent anything. */
  async #ofTenant<T>(id: TenantId, nothing: T, query: (tenant: number) => Promise<T>): Promise<T> {
    const tenant = await this.#tenants.of(id);
    return tenant === undefined ? nothing : query(tenant);
  }
}

/** Callers handle unavailable stores, but not conflicts. */
async function withoutConflicts<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof StoreConflictError)) throw error;
    throw new StoreUnavailableError('others were at work on the same person all the time', { cause: error });
  }
}
