/**
 * Reads the embedded store: `Store` on one SQLite connection, while the processor writes the file. Every query is one
 * short read transaction and sees one snapshot; unmerge, erase and changes of jobs write.
 *
 * Calls block their thread for the time of the query. A server uses `client.ts`, which has a thread of its own
 * for that; commands use it directly.
 */

import { DEFAULT_MATCH_OPTIONS, type MatchOptions } from '../../../identity/match-keys.ts';
import type { IdentifierType, NodeNumber, TenantId } from '../../../model.ts';
import type { Store } from '../../../store.ts';
import { StoreUnavailableError } from '../../../store-writer.ts';
import { roughFilter, searchPeople } from '../../../views/people-search.ts';
import { NO_PEOPLE, NO_ROWS, sharedStore, type SharedStore } from '../../sql/store.ts';
import { LOCAL_LOG } from '../../sql/store-tables.ts';
import { isBusy, isDamage } from '../database.ts';
import { isDiskError, mayPassByItself } from '../disk.ts';
import type { WriteLockRequest } from '../../../runtime/write-lock-request.ts';
import type { HashOfKey } from '../../../views/keyed-hash.ts';
import { inWriteTransaction, StoreConnection } from './connection.ts';
import { erase, unmerge } from './profile-changes.ts';
import { listArrivals, listEvents, listNewestArrivals } from './events.ts';
import { listProfiles, nodesById, nodesByKey, readIdentity, readPeople, readProfile, searchBlock } from './profiles.ts';
import { predict } from './predictions.ts';
import { openStoreFile, openStoreFileForCommand, storeDamageText } from './schema.ts';
import { recount } from './stored-events.ts';
import { listTraces, readTrace } from './traces.ts';
import { messageOf } from '../../../errors.ts';

interface StoreOptions {
  /** How the processor normalises: an erase searches rejected users for the person too. */
  readonly matchOptions?: MatchOptions;
  /** Must equal that of the writer. */
  readonly hashOf?: HashOfKey;
  readonly writeLockRequest?: WriteLockRequest | undefined;
  /** For commands: unmerge and erase are not possible, and what a crash left stays as it is. */
  readonly isForCommand?: boolean;
}

export function openSqliteStore(file: string, options: StoreOptions = {}): Store {
  const { matchOptions = DEFAULT_MATCH_OPTIONS, isForCommand = false } = options;
  const database = isForCommand ? openStoreFileForCommand(file) : openStoreFile(file, 'reader');
  // Overwrites erased bytes, also in freed pages.
  database.exec('PRAGMA secure_delete = ON');
  const store = new StoreConnection(database, options);

  /** Translates a file that cannot be read or written now into a `StoreUnavailableError`; other errors are bugs. */
  async function translated<T>(work: () => T | Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!isBusy(error) && !isDamage(error) && !mayPassByItself(error) && !isDiskError(error)) throw error;
      const reason = messageOf(error);
      throw new StoreUnavailableError(isDamage(error) ? storeDamageText(file, reason) : reason, { cause: error });
    }
  }

  const read = <T>(query: () => T): Promise<T> => translated(() => store.read(query));

  /** `nothing` for a tenant that never sent anything. */
  function ofTenant<T>(id: TenantId, nothing: T, query: (tenant: number) => T): Promise<T> {
    return read(() => {
      const tenant = store.tenant(id);
      return tenant === undefined ? nothing : query(tenant);
    });
  }

  /** As `ofTenant`, for what is not a single read transaction. */
  async function withTenant<T>(id: TenantId, nothing: T, work: (tenant: number) => T | Promise<T>): Promise<T> {
    const tenant = await read(() => store.tenant(id));
    return tenant === undefined ? nothing : translated(() => work(tenant));
  }

  const shared = sharedStore({
    logName: () => LOCAL_LOG,
    read: (stepsOf) => read(() => store.steps(stepsOf)),
    ofTenant: (id, nothing, stepsOf) =>
      ofTenant(id, nothing, (tenant) => store.steps((tables) => stepsOf(tables, tenant))),
    change: (id, nothing, stepsOf) =>
      withTenant(id, nothing, (tenant) =>
        inWriteTransaction(store, () => store.steps((tables) => stepsOf(tables, tenant))),
      ),
  });

  const own: Omit<Store, keyof SharedStore> = {
    findProfile: (tenantId, type, normalised) =>
      ofTenant(tenantId, undefined, (tenant) => {
        const nodes = nodesByKey(store, tenant, type, normalised);
        return nodes && readProfile(store, nodes);
      }),
    profile: (tenantId, id) =>
      ofTenant(tenantId, undefined, (tenant) => {
        const nodes = nodesById(store, tenant, id);
        return nodes && readProfile(store, nodes);
      }),
    profiles: (tenantId, page) => ofTenant(tenantId, NO_ROWS, (tenant) => listProfiles(store, tenant, page)),
    searchPeople: (tenantId, query) =>
      withTenant(tenantId, NO_PEOPLE, (tenant) => {
        const filter = roughFilter(query);
        const source = {
          tenant,
          findProfile: (type: IdentifierType, normalised: string) => own.findProfile(tenantId, type, normalised),
          profile: (id: string) => own.profile(tenantId, id),
          step: (before: NodeNumber, room: number, until: number) =>
            read(() => searchBlock(store, tenant, query, filter, { before, room, until })),
        };
        return searchPeople(source, query);
      }),
    people: (tenantId, ids) => ofTenant(tenantId, new Map(), (tenant) => readPeople(store, tenant, ids)),
    identity: (tenantId, id) =>
      ofTenant(tenantId, undefined, (tenant) => {
        const nodes = nodesById(store, tenant, id);
        return nodes && readIdentity(store, nodes);
      }),
    events: (tenantId, query) => {
      const nothing = query.profileId === null ? NO_ROWS : undefined;
      return ofTenant(tenantId, nothing, (tenant) => listEvents(store, tenant, query));
    },
    arrivals: (tenantId, after, limit) => read(() => listArrivals(store, store.tenant(tenantId), after, limit)),
    newestArrivals: (tenantId, after, filter, limit) =>
      read(() => listNewestArrivals(store, store.tenant(tenantId), after, filter, limit)),
    trace: (tenantId, traceId) =>
      read(() => readTrace(store, tenantId === null ? null : store.tenant(tenantId), traceId)),
    traces: (tenantId, query) => ofTenant(tenantId, NO_ROWS, (tenant) => listTraces(store, tenant, tenantId, query)),
    unmerge: (tenantId, id, mergedBy, audit) =>
      withTenant(tenantId, undefined, (tenant) =>
        inWriteTransaction(store, () => unmerge(store, tenant, id, mergedBy, audit)),
      ),
    erase: (tenantId, id, audit) =>
      withTenant(tenantId, false, (tenant) => erase(store, { tenant, tenantId, id, audit, matchOptions, entry: null })),
    predict: (tenantId, records, appliedAt) => read(() => predict(store, tenantId, records, matchOptions, appliedAt)),
    recount: () => read(() => recount(store)),
    close: async () => {
      if (database.isOpen) database.close();
    },
  };
  return { ...shared, ...own };
}
