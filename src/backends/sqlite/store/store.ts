/**
 * Reads the embedded store: `Store` on one SQLite connection, beside the processor that writes the file. Every query is
 * one short read transaction and sees one snapshot; unmerge and erase write.
 *
 * Calls block their thread for the time of the query. A server uses `store/client.ts`, which has a thread of its own
 * for that; commands use it directly.
 */

import type { MatchOptions } from '../../../identity/match-keys.ts';
import type { IdentifierType, TenantId } from '../../../model.ts';
import type {
  AuditContext,
  ArrivalFilter,
  Arrivals,
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
} from '../../../store.ts';
import { StoreUnavailableError } from '../../../store-writer.ts';
import { roughFilter, searchPeople } from '../../../views/people-search.ts';
import { listAudit } from '../../sql/audit.ts';
import { listCounts } from '../../sql/counts.ts';
import { readLedger } from '../../sql/ledger.ts';
import { readReceipts } from '../../sql/receipts.ts';
import { listDeadLetters, listRejectionReasons, listRejections } from '../../sql/rejections.ts';
import { LOCAL_LOG } from '../../sql/store-tables.ts';
import { countProfiles, listTenants } from '../../sql/tenants.ts';
import { isBusy, isDamage } from '../database.ts';
import { isOutOfFiles } from '../disk.ts';
import type { WriteTurn } from '../../../runtime/write-turn.ts';
import { inWriteTransaction, unmerge } from './unmerge.ts';
import type { HashOfKey } from '../../../views/keyed-hash.ts';
import { StoreConnection } from './connection.ts';
import { erase } from './erase.ts';
import { listArrivals, listEvents, listNewestArrivals } from './events.ts';
import { readPeople, searchBlock } from './people.ts';
import { listProfiles, nodesById, nodesByKey, readIdentity, readProfile } from './profiles.ts';
import { openStoreFile, openStoreFileForCommand, storeDamageText } from './schema.ts';
import { recount } from './stored-events.ts';
import { listTraces, readTrace } from './traces.ts';

export interface StoreOptions {
  /** How the processor normalises: an erase searches rejected users for the person too. */
  readonly matchOptions?: MatchOptions;
  /** Must equal that of the writer. */
  readonly hashOf?: HashOfKey;
  readonly writeTurn?: WriteTurn | undefined;
  /** For commands: unmerge and erase are not possible, and what a crash left stays as it is. */
  readonly isForCommand?: boolean;
}

const DEFAULT_MATCH_OPTIONS: MatchOptions = { defaultCountry: null, junkValues: new Set() };
const NO_ROWS = { rows: [], nextCursor: null };

const SQLITE_IOERR = 10;

export function openSqliteStore(file: string, options: StoreOptions = {}): Store {
  const { matchOptions = DEFAULT_MATCH_OPTIONS, isForCommand = false } = options;
  const database = isForCommand ? openStoreFileForCommand(file) : openStoreFile(file, 'reader');
  // Overwrites erased bytes, also in freed pages.
  database.exec('PRAGMA secure_delete = ON');
  return new SqliteStore(new StoreConnection(database, options), matchOptions, file);
}

class SqliteStore implements Store {
  readonly #store: StoreConnection;
  readonly #matchOptions: MatchOptions;
  readonly #file: string;

  constructor(store: StoreConnection, matchOptions: MatchOptions, file: string) {
    this.#store = store;
    this.#matchOptions = matchOptions;
    this.#file = file;
  }

  async tenants(): Promise<TenantId[]> {
    return this.#translated(() => listTenants(this.#store.queries));
  }

  async findProfile(id: TenantId, type: IdentifierType, normalised: string): Promise<StoredProfile | undefined> {
    return this.#ofTenant(id, undefined, (tenant) => {
      const nodes = nodesByKey(this.#store, tenant, type, normalised);
      return nodes && readProfile(this.#store, nodes);
    });
  }

  async profile(tenantId: TenantId, id: string): Promise<StoredProfile | undefined> {
    return this.#ofTenant(tenantId, undefined, (tenant) => {
      const nodes = nodesById(this.#store, tenant, id);
      return nodes && readProfile(this.#store, nodes);
    });
  }

  async profileCount(id: TenantId): Promise<number> {
    return this.#query(id, 0, (tenant) => countProfiles(this.#store.queries, tenant));
  }

  async profiles(id: TenantId, page: PageRequest): Promise<Page<StoredProfile>> {
    return this.#ofTenant(id, NO_ROWS, (tenant) => listProfiles(this.#store, tenant, page));
  }

  async searchPeople(id: TenantId, query: PeopleQuery): Promise<PeoplePage> {
    const tenant = await this.#ofTenant(id, undefined, (no) => no);
    const filter = roughFilter(query);
    return searchPeople(
      {
        tenant: tenant ?? 0,
        findProfile: (type, normalised) => this.findProfile(id, type, normalised),
        profile: (profileId) => this.profile(id, profileId),
        step: async (before, room, until) => {
          if (tenant === undefined) return { found: [], end: null };
          return this.#read(() => searchBlock(this.#store, tenant, query, filter, { before, room, until }));
        },
      },
      query,
    );
  }

  async people(tenantId: TenantId, ids: readonly string[]): Promise<Map<string, StoredPerson>> {
    return this.#ofTenant(tenantId, new Map(), (tenant) => readPeople(this.#store, tenant, ids));
  }

  async events(id: TenantId, query: EventQuery): Promise<Page<StoredEvent> | undefined> {
    const nothing = query.profileId === null ? NO_ROWS : undefined;
    return this.#ofTenant(id, nothing, (tenant) => listEvents(this.#store, tenant, query));
  }

  async arrivals(id: TenantId, after: string | null, limit: number): Promise<Arrivals> {
    return this.#read(() => listArrivals(this.#store, this.#store.tenant(id), after, limit));
  }

  async newestArrivals(id: TenantId, after: string, filter: ArrivalFilter, limit: number): Promise<NewestArrivals> {
    return this.#read(() => listNewestArrivals(this.#store, this.#store.tenant(id), after, filter, limit));
  }

  async counts(id: TenantId, query: CountQuery): Promise<CountBucket[]> {
    return this.#query(id, [], (tenant) => listCounts(this.#store.queries, tenant, query));
  }

  async identity(tenantId: TenantId, id: string): Promise<StoredIdentity | undefined> {
    return this.#ofTenant(tenantId, undefined, (tenant) => {
      const nodes = nodesById(this.#store, tenant, id);
      return nodes && readIdentity(this.#store, nodes);
    });
  }

  async unmerge(
    tenantId: TenantId,
    id: string,
    mergedBy: string,
    audit: AuditContext,
  ): Promise<UnmergeResult | undefined> {
    const tenant = await this.#ofTenant(tenantId, undefined, (no) => no);
    if (tenant === undefined) return undefined;
    return this.#translated(() =>
      inWriteTransaction(this.#store, () => unmerge(this.#store, tenant, id, mergedBy, audit)),
    );
  }

  async erase(tenantId: TenantId, id: string, audit: AuditContext): Promise<boolean> {
    const tenant = await this.#ofTenant(tenantId, undefined, (no) => no);
    if (tenant === undefined) return false;
    return this.#translated(() =>
      erase(this.#store, { tenant, tenantId, id, audit, matchOptions: this.#matchOptions }),
    );
  }

  async audit(id: TenantId, page: PageRequest): Promise<Page<AuditRow>> {
    return this.#query(id, NO_ROWS, (tenant) => listAudit(this.#store.queries, tenant, page));
  }

  async trace(id: TenantId | null, traceId: string): Promise<StoredTrace | undefined> {
    return this.#read(() => readTrace(this.#store, id === null ? null : this.#store.tenant(id), traceId));
  }

  async traces(id: TenantId, query: TraceQuery): Promise<Page<TraceSummary>> {
    return this.#ofTenant(id, NO_ROWS, (tenant) => listTraces(this.#store, tenant, id, query));
  }

  async rejections(id: TenantId, query: RejectionQuery): Promise<Page<StoredRejection>> {
    return this.#query(id, NO_ROWS, (tenant) => listRejections(this.#store.queries, tenant, query));
  }

  async rejectionReasons(id: TenantId, range: TimeRange): Promise<RejectionReason[]> {
    return this.#query(id, [], (tenant) => listRejectionReasons(this.#store.queries, tenant, range));
  }

  async receipts(id: TenantId, range: TimeRange): Promise<Receipts> {
    return this.#translated(() => readReceipts(this.#store.queries, LOCAL_LOG, id, range));
  }

  async ledger(id: TenantId | null, hours: Parameters<Store['ledger']>[1]): ReturnType<Store['ledger']> {
    return this.#translated(() => readLedger(this.#store.queries, LOCAL_LOG, id, hours));
  }

  async deadLetters(limit: number): Promise<DeadLetter[]> {
    return this.#translated(() => listDeadLetters(this.#store.queries, limit));
  }

  async recount(): Promise<{ eventsInLedger: number; eventsInTables: number }> {
    return this.#read(() => recount(this.#store));
  }

  async close(): Promise<void> {
    if (this.#store.database.isOpen) this.#store.database.close();
  }

  /** `nothing` for a tenant that never sent anything. */
  async #ofTenant<T>(id: TenantId, nothing: T, query: (tenant: number) => T): Promise<T> {
    return this.#read(() => {
      const tenant = this.#store.tenant(id);
      return tenant === undefined ? nothing : query(tenant);
    });
  }

  /** As `#ofTenant`, for a query of `backends/sql/`. */
  async #query<T>(id: TenantId, nothing: T, query: (tenant: number) => Promise<T>): Promise<T> {
    const tenant = await this.#ofTenant(id, undefined, (no) => no);
    return tenant === undefined ? nothing : this.#translated(() => query(tenant));
  }

  async #read<T>(query: () => T): Promise<T> {
    return this.#translated(() => this.#store.read(query));
  }

  /** Translates a file that cannot be read or written now into a `StoreUnavailableError`; other errors are bugs. */
  async #translated<T>(work: () => T | Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!isBusy(error) && !isDamage(error) && !isOutOfFiles(error) && !isIoError(error)) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new StoreUnavailableError(isDamage(error) ? storeDamageText(this.#file, reason) : reason, { cause: error });
    }
  }
}

function isIoError(error: unknown): boolean {
  return (
    error instanceof Error &&
    'errcode' in error &&
    typeof error.errcode === 'number' &&
    (error.errcode & 0xff) === SQLITE_IOERR
  );
}
