/**
 * Reads the store on PostgreSQL: `Store` for any number of nodes, while any number of processors write. Nearly every
 * query is one statement and sees one snapshot; unmerge and erase write. Results equal those of the embedded store, to
 * the byte.
 *
 * The store owns the pool that it is given. Rejects with `StoreUnavailableError` when the server cannot be reached, or
 * when other transactions kept changing the same person during an unmerge or erase.
 */

import { DEFAULT_MATCH_OPTIONS, type MatchOptions } from '../../identity/match-keys.ts';
import { HOUR_MS, type IdentifierType, type TenantId } from '../../model.ts';
import type { LedgerReader, Store } from '../../store.ts';
import { roughFilter, searchPeople } from '../../views/people-search.ts';
import { selectStoredEvents } from '../sql/ledger.ts';
import { rowsOf } from '../sql/steps.ts';
import { NO_PEOPLE, NO_ROWS, sharedStore, type SharedStore } from '../sql/store.ts';
import type { PostgresPool } from './pool.ts';
import { erase, inDurableTransaction, unmerge } from './profile-changes.ts';
import { runSteps } from './sql-database.ts';
import { StoreArrivals } from './store-arrivals.ts';
import { predict } from './store-predictions.ts';
import {
  findProfile,
  isPostgresText,
  listProfiles,
  peopleSteps,
  readIdentity,
  readPeople,
  readProfile,
} from './store-profiles.ts';
import { listEvents } from './store-timeline.ts';
import { listTraces, readTrace } from './store-traces.ts';

interface PostgresStoreOptions {
  /** The pool of a migrated database (`migrate`). */
  readonly pool: PostgresPool;
  /**
   * `LogReader.name`: the log whose positions come with the ledger. A function if it is not available yet; it may
   * throw.
   */
  readonly logName: string | (() => string);
  /** How processors normalise: an erase searches rejected users for the person too. */
  readonly matchOptions?: MatchOptions;
}

/** Looks at every event. */
const RECOUNT_MS_MAX = HOUR_MS;

export function openPostgresStore(options: PostgresStoreOptions): Store {
  const { pool, matchOptions = DEFAULT_MATCH_OPTIONS } = options;
  const arrivals = new StoreArrivals(pool);
  const tenants = new Map<TenantId, number>();
  let interruptions = 0;

  /**
   * Undefined for a tenant that never sent anything. The numbers of others never change, except in a database that is
   * restored to an earlier state, which breaks all connections.
   */
  async function tenantOf(id: TenantId): Promise<number | undefined> {
    if (interruptions !== pool.interruptions) {
      interruptions = pool.interruptions;
      tenants.clear();
    }
    const known = tenants.get(id);
    if (known !== undefined || !isPostgresText(id)) return known;
    const { rows } = await pool.query<{ no: number }>('SELECT no FROM tenants WHERE id = $1', [id]);
    const no = rows[0]?.no;
    if (no !== undefined) tenants.set(id, no);
    return no;
  }

  /** `nothing` for a tenant that never sent anything. */
  async function ofTenant<T>(id: TenantId, nothing: T, query: (tenant: number) => Promise<T>): Promise<T> {
    const tenant = await tenantOf(id);
    return tenant === undefined ? nothing : query(tenant);
  }

  const shared = sharedStore({
    logName: () => (typeof options.logName === 'string' ? options.logName : options.logName()),
    read: (stepsOf) => pool.inSnapshot((client) => runSteps(client, stepsOf)),
    ofTenant: (id, nothing, stepsOf) =>
      ofTenant(id, nothing, (tenant) => runSteps(pool, (tables) => stepsOf(tables, tenant))),
    change: (id, nothing, stepsOf) =>
      ofTenant(id, nothing, (tenant) =>
        inDurableTransaction(pool, (client) => runSteps(client, (tables) => stepsOf(tables, tenant))),
      ),
  });

  const own: Omit<Store, keyof SharedStore> = {
    findProfile: (tenantId, type, normalised) =>
      ofTenant(tenantId, undefined, (tenant) => findProfile(pool, tenant, type, normalised)),
    profile: (tenantId, id) => ofTenant(tenantId, undefined, (tenant) => readProfile(pool, tenant, id)),
    profiles: (tenantId, page) => ofTenant(tenantId, NO_ROWS, (tenant) => listProfiles(pool, tenant, page)),
    searchPeople: (tenantId, query) =>
      ofTenant(tenantId, NO_PEOPLE, (tenant) => {
        const source = {
          tenant,
          findProfile: (type: IdentifierType, normalised: string) => findProfile(pool, tenant, type, normalised),
          profile: (id: string) => readProfile(pool, tenant, id),
          step: peopleSteps(pool, tenant, query, roughFilter(query)),
        };
        return searchPeople(source, query);
      }),
    people: (tenantId, ids) => ofTenant(tenantId, new Map(), (tenant) => readPeople(pool, tenant, ids)),
    identity: (tenantId, id) => ofTenant(tenantId, undefined, (tenant) => readIdentity(pool, tenant, id)),

    events: (tenantId, query) => {
      const nothing = query.profileId === null ? NO_ROWS : undefined;
      return ofTenant(tenantId, nothing, (tenant) => listEvents(pool, tenant, query));
    },
    arrivals: async (tenantId, after, limit) => arrivals.list(await tenantOf(tenantId), after, limit),
    newestArrivals: async (tenantId, after, filter, limit) => {
      const { profileId } = filter;
      const person = async (): Promise<ReadonlySet<string>> => {
        const profile = profileId === null ? undefined : await own.profile(tenantId, profileId);
        return new Set(profile === undefined ? [] : [profile.id, ...profile.mergedIds]);
      };
      return arrivals.listNewest(await tenantOf(tenantId), after, { ...filter, person }, limit);
    },

    trace: async (tenantId, traceId) => readTrace(pool, tenantId === null ? null : await tenantOf(tenantId), traceId),
    traces: (tenantId, query) => ofTenant(tenantId, NO_ROWS, (tenant) => listTraces(pool, tenant, tenantId, query)),

    unmerge: (tenantId, id, mergedBy, audit) =>
      ofTenant(tenantId, undefined, (tenant) => unmerge(pool, tenant, id, mergedBy, audit)),
    erase: (tenantId, id, audit) =>
      ofTenant(tenantId, false, (tenant) => erase(pool, { tenant, tenantId, id, audit, matchOptions, entry: null })),

    predict: async (tenantId, records, appliedAt) => {
      const tenant = await tenantOf(tenantId);
      return pool.inSnapshot((client) => predict(client, tenant, tenantId, records, matchOptions, appliedAt));
    },

    recount: () => recount(pool),
    close: () => pool.close(),
  };

  return { ...shared, ...own };
}

function recount(pool: PostgresPool): ReturnType<LedgerReader['recount']> {
  return pool.inSnapshot(async (client) => {
    await client.query(`SET LOCAL statement_timeout = ${RECOUNT_MS_MAX}`);
    const [ledger] = await runSteps(client, (tables) => rowsOf(selectStoredEvents(tables)));
    const { rows } = await client.query<{ events: number }>({
      text: 'SELECT count(*) AS events FROM events',
      timeoutMs: RECOUNT_MS_MAX,
    });
    return { eventsInLedger: ledger?.events ?? 0, eventsInTables: rows[0]?.events ?? 0 };
  });
}
