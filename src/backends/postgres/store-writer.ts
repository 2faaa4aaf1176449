/**
 * Writes the store on PostgreSQL, for a processor; any number of processors may write at once, each for its own
 * partitions of the log. All transactions take locks in the same order: the position (`advance`), node rows by number
 * (write-graph.ts), new match keys, event ids and Idempotency-Keys through their unique indexes, and finally the sums. One
 * that loses a race gets a `StoreConflictError` and is retried. A batch takes a fixed number of round trips, however many
 * users it has. Caches that outlive a transaction hold only what stays valid whatever others write, or what fails visibly
 * when it is stale (store-days.ts). All are dropped when the database may have been restored to an earlier state (a
 * failover that lost transactions, a dump restored in place): after a lost connection, and when a partition is not at the
 * position where the last transaction left it.
 */

import { randomInt } from 'node:crypto';
import { newProfilesIn, type Snapshot } from '../../identity/graph.ts';
import type { MatchOptions } from '../../identity/match-keys.ts';
import { DAY_MS, HOUR_MS, type MatchKey, type NodeNumber, type TenantId } from '../../model.ts';
import {
  type LookupResult,
  type PersonKeys,
  type LookupRequest,
  type RecordHeader,
  type Retention,
  StoreConflictError,
  type StoreProgress,
  type StoreWriter,
  type TenantBatch,
  type WriteTransaction,
} from '../../store-writer.ts';
import { addVisit, type Visits } from '../../views/node-properties.ts';
import type { HashOfKey } from '../../views/keyed-hash.ts';
import { countLostRecords, type Difference, readDifference, readProcessedLog } from '../sql/ledger.ts';
import { hasJobs } from '../sql/jobs.ts';
import { markAccepted } from '../sql/rejections.ts';
import type { StepsOf } from '../sql/steps.ts';
import { SqlWriteTransaction } from '../sql/write-transaction.ts';
import { assertInstallation, type PostgresClient, type PostgresPool } from './pool.ts';
import { texts } from './binary-arrays.ts';
import { isMissingPartition } from './pool-errors.ts';
import { continueErasures } from './profile-changes.ts';
import { runSteps } from './sql-database.ts';
import { ANNOUNCE_WRITER } from './store-arrivals.ts';
import { dayOf, pairOf, StoreDays } from './store-days.ts';
import { SHARDS } from './store-schema.ts';
import { StoreSweep } from './store-sweep.ts';
import { writeChanges, writeNodes } from './write-changes.ts';
import { FirstUses, hashesOf } from './write-first-uses.ts';
import { type LockedNodes, lookUpGraph } from './write-graph.ts';
import { type InvalidationState, blockErases, PersonCache, readInvalidationStates } from './person-cache.ts';
import { findStored, StoreNumbers, writeCounts, writeRecords } from './write-records.ts';

interface PostgresWriterSetup {
  /** At least two connections; the writer closes it. */
  readonly pool: PostgresPool;
  /** The log that the positions belong to (`LogReader.name`). */
  readonly logName: string;
}

export function openPostgresStoreWriter(setup: PostgresWriterSetup): StoreWriter {
  return new PostgresStoreWriter(setup);
}

/** Between two statements of a batch; a processor that hangs for longer holds up all the others. */
const IDLE_SECONDS_MAX = 15;

/**
 * Statements here look up few rows by index, in tables of any size. Index scans are forced, because the statistics of a
 * fast-growing table are often stale. `synchronous_commit = off` is overridden, so that commits are durable.
 */
const TRANSACTION_SETTINGS = `
  SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off;
  SET LOCAL enable_mergejoin = off; SET LOCAL idle_in_transaction_session_timeout = '${IDLE_SECONDS_MAX}s';
  SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
  ${ANNOUNCE_WRITER}`;

const FIND_TENANTS = { name: 'store_find_tenants', text: 'SELECT id, no FROM tenants WHERE id = ANY ($1::text[])' };

/** In one order, so that two writers with the same new tenants never deadlock. */
const INSERT_TENANTS = {
  name: 'store_insert_tenants',
  text: `
    INSERT INTO tenants (id) SELECT id FROM unnest($1::text[]) AS q (id) ORDER BY id COLLATE "C"
    ON CONFLICT (id) DO NOTHING`,
};

/** Nearly everything happens in the last days of the ledger. They are added up each time, and older hours once an hour. */
const RECENT_MS = 3 * DAY_MS;

interface OldHours {
  readonly until: number;
  readonly readAt: number;
  readonly difference: Difference;
}

/** Shared by the transactions of one writer. */
interface Shared {
  readonly logName: string;
  /** Numbers of tenants. They never change, except in a database that is restored to an earlier state. */
  readonly tenants: Map<TenantId, number>;
  readonly numbers: StoreNumbers;
  readonly days: StoreDays;
  readonly shard: number;
}

class PostgresStoreWriter implements StoreWriter {
  readonly #pool: PostgresPool;
  readonly #shared: Shared;
  readonly #sweep: StoreSweep;
  #oldHours: OldHours | undefined;
  #hashOf: HashOfKey | undefined;
  #people: PersonCache | undefined;
  #interruptions = 0;

  constructor({ pool, logName }: PostgresWriterSetup) {
    this.#pool = pool;
    this.#shared = {
      logName,
      tenants: new Map(),
      numbers: new StoreNumbers(),
      days: new StoreDays(pool),
      shard: randomInt(SHARDS),
    };
    this.#sweep = new StoreSweep(pool, this.#shared.days);
  }

  /** Checked again here: a dump of another installation may have been restored over the tables meanwhile. */
  async processed(): Promise<StoreProgress> {
    const { installation } = this.#pool.options;
    if (installation !== undefined) await assertInstallation(this.#pool, installation);
    return runSteps(this.#pool, (tables) => readProcessedLog(tables, this.#shared.logName));
  }

  async begin(): Promise<WriteTransaction> {
    const client = await this.#pool.begin(TRANSACTION_SETTINGS);
    try {
      // Checked once there is a connection: if that breaks, the transaction fails.
      this.#forgetIfInterrupted();
      this.#hashOf ??= await hashesOf(this.#pool);
      this.#people ??= new PersonCache(this.#hashOf);
    } catch (error) {
      await client.rollback();
      throw error;
    }
    return new PostgresWriteTransaction(client, this.#shared, this.#hashOf, this.#people);
  }

  /** Positions cannot reveal a replaced database if the processor has re-read them since; broken connections do. */
  #forgetIfInterrupted(): void {
    const { interruptions } = this.#pool;
    if (interruptions === this.#interruptions) return;
    this.#interruptions = interruptions;
    const { tenants, numbers, days } = this.#shared;
    tenants.clear();
    numbers.forget();
    days.forget();
    this.#people = undefined;
    this.#hashOf = undefined;
  }

  hasJobs(): Promise<boolean> {
    return runSteps(this.#pool, hasJobs);
  }

  lostRecords(): Promise<number> {
    return runSteps(this.#pool, countLostRecords);
  }

  async difference(): Promise<Difference> {
    if (this.#oldHours === undefined || performance.now() - this.#oldHours.readAt >= HOUR_MS) {
      const until = Date.now() - RECENT_MS;
      const difference = await runSteps(this.#pool, (tables) => readDifference(tables, { before: until }));
      this.#oldHours = { until, readAt: performance.now(), difference };
    }
    const { until, difference } = this.#oldHours;
    const recent = await runSteps(this.#pool, (tables) => readDifference(tables, { since: until }));
    return { users: difference.users + recent.users, events: difference.events + recent.events };
  }

  /** Nothing is deferred here. */
  async compact(): Promise<boolean> {
    return false;
  }

  async sweep(retention: Retention, now: number): Promise<boolean> {
    return this.#sweep.sweep(retention, now);
  }

  continueErasures(options: MatchOptions): Promise<number> {
    return continueErasures(this.#pool, options);
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }
}

const NO_INVALIDATIONS: InvalidationState = { count: 0, lastErasedAt: 0 };

function peopleIn({ resolved }: TenantBatch): Map<PersonKeys, NodeNumber> {
  return new Map(resolved.map(({ user, node }) => [user, node]));
}

class PostgresWriteTransaction extends SqlWriteTransaction implements WriteTransaction {
  protected readonly logName: string;
  readonly #client: PostgresClient;
  readonly #shared: Shared;
  /** Numbers of tenants that are visible to this transaction alone until it commits. */
  readonly #newTenants = new Map<TenantId, number>();
  readonly #people: PersonCache;
  readonly #firstUses: FirstUses;
  readonly #locked: LockedNodes = new Map();
  /** By tenant, of the batch that was looked up last. */
  readonly #snapshots = new Map<number, Snapshot>();
  /** By tenant: its invalidation count at the lookup. */
  readonly #invalidationCounts = new Map<number, number>();
  /** Set if the database is not in the state this writer left it in. */
  #isOutdated = false;
  /** By tenant: people to cache after the commit. */
  readonly #met: (readonly [tenant: number, people: ReadonlyMap<PersonKeys, NodeNumber>])[] = [];

  constructor(client: PostgresClient, shared: Shared, hashOf: HashOfKey, people: PersonCache) {
    super();
    this.logName = shared.logName;
    this.#people = people;
    this.#firstUses = new FirstUses(hashOf);
    this.#client = client;
    this.#shared = shared;
  }

  override async advance(...position: Parameters<WriteTransaction['advance']>): Promise<void> {
    try {
      await super.advance(...position);
    } catch (error) {
      if (error instanceof StoreConflictError) this.#isOutdated = true;
      throw error;
    }
  }

  findStored(headers: readonly RecordHeader[]): Promise<ReadonlySet<RecordHeader>> {
    return findStored(this.#client, headers);
  }

  async lookUp(requests: readonly LookupRequest[]): Promise<LookupResult[]> {
    const tenants = await this.tenantNumbers(requests.map(({ tenantId }) => tenantId));
    const firsts = await this.#shared.numbers.take(
      this.#client,
      requests.map(({ users }) => users.length),
    );
    const lookups = requests.map((request, index) => ({
      request,
      tenant: tenants.get(request.tenantId) as number,
      nextNode: firsts[index] as number,
    }));
    const people = this.#people;
    const graph = await lookUpGraph(this.#client, lookups, people);
    for (const [node, properties] of graph.locked) this.#locked.set(node, properties);
    // From here on all statements see what the erases and unmerges that we waited for changed.
    const invalidations = await readInvalidationStates(
      this.#client,
      lookups.map(({ tenant }) => tenant),
    );
    for (const { tenant, snapshot, resolved, hasCached } of graph.found) {
      const state = invalidations.get(tenant) ?? NO_INVALIDATIONS;
      const isCurrent = await people.isCurrent(this.#client, tenant, state);
      // A cached person may have been erased or unmerged. That is rare: locks are then taken out of order.
      if (hasCached && !isCurrent) return this.lookUp(requests);
      if (isCurrent) this.#met.push([tenant, resolved]);
      this.#snapshots.set(tenant, snapshot);
      this.#invalidationCounts.set(tenant, state.count);
    }
    return this.#firstUses.lookUp(this.#client, graph.found, invalidations);
  }

  async write(batches: readonly TenantBatch[], processedAt: number): Promise<void> {
    const numbers = await this.tenantNumbers(batches.map(({ tenantId }) => tenantId));
    const tenants = batches.map((batch) => {
      const visits: Visits = new Map();
      for (const { users } of batch.records) {
        for (const user of users) if (user.node !== null) addVisit(visits, user.node, user);
      }
      const tenant = numbers.get(batch.tenantId) as number;
      const wasKnown = (key: MatchKey): boolean => this.#snapshots.get(tenant)?.nodeOf(key) !== undefined;
      return { tenant, batch, visits, wasKnown };
    });
    const days = batches.flatMap(({ records }) => records.map(({ header }) => dayOf(header.receivedAt)));
    await this.#shared.days.ensure([...days, dayOf(processedAt) + 1], pairsOf(batches));
    await writeNodes(this.#client, tenants, this.#locked);
    await writeChanges(this.#client, tenants);
    await this.#firstUses.write(this.#client, tenants);
    // A key without a node may have got one since, of a person who was erased at once: then the key is free again.
    const unlocked = tenants.filter(
      ({ batch }) =>
        batch.changes.identifiers.length > 0 || batch.records.some(({ rejections }) => rejections.length > 0),
    );
    const numbersUnlocked = unlocked.map(({ tenant }) => tenant);
    await blockErases(this.#client, numbersUnlocked, this.#invalidationCounts);
    try {
      await writeRecords(this.#client, tenants, this.#shared.numbers, processedAt);
    } catch (error) {
      if (!isMissingPartition(error)) throw error;
      this.#shared.days.forget();
      throw new StoreConflictError('a day was removed meanwhile', { cause: error });
    }
    for (const { tenant, batch } of tenants) {
      await this.inSteps((tables) => markAccepted(tables, tenant, batch.acceptedRejections, processedAt));
    }
    for (const { tenant, batch } of tenants) {
      for (const record of batch.records) this.sums.add(tenant, record);
      this.sums.addProfiles(tenant, newProfilesIn(batch.changes));
      if (batch.violations !== undefined) this.sums.addViolations(tenant, batch.violations);
      if (this.#met.some(([met]) => met === tenant)) this.#met.push([tenant, peopleIn(batch)]);
    }
  }

  async commit(_durable: boolean): Promise<void> {
    const { shard, tenants } = this.#shared;
    await writeCounts(this.#client, shard, this.sums.takeCounts());
    await this.inSteps((tables) => this.sums.write(tables, shard));
    await this.#client.commit();
    for (const [id, no] of this.#newTenants) tenants.set(id, no);
    for (const [tenant, people] of this.#met) {
      this.#people.add(tenant, this.#invalidationCounts.get(tenant) ?? 0, people);
    }
  }

  async rollback(): Promise<void> {
    const { tenants, numbers, days } = this.#shared;
    numbers.forget();
    if (this.#isOutdated || !this.#client.isUsable) {
      tenants.clear();
      this.#people.clear();
      days.forget();
    }
    await this.#client.rollback();
  }

  protected inSteps<T>(stepsOf: StepsOf<T>): Promise<T> {
    return runSteps(this.#client, stepsOf);
  }

  protected async tenantNumbers(ids: readonly TenantId[]): Promise<ReadonlyMap<TenantId, number>> {
    const numberOf = (id: TenantId): number | undefined => this.#newTenants.get(id) ?? this.#shared.tenants.get(id);
    for (const statement of [FIND_TENANTS, INSERT_TENANTS, FIND_TENANTS]) {
      const missing = ids.filter((id) => numberOf(id) === undefined);
      if (missing.length === 0) break;
      const { rows } = await this.#client.query<{ id: TenantId; no: number }>(statement, [texts(missing)]);
      for (const { id, no } of rows) this.#newTenants.set(id, no);
    }
    return new Map(ids.map((id) => [id, numberOf(id) as number]));
  }
}

/** Days of timestamps, by day of receipt. */
function pairsOf(batches: readonly TenantBatch[]): Set<string> {
  const pairs = new Set<string>();
  for (const { header, users } of batches.flatMap(({ records }) => records)) {
    let lastDay = Number.NaN;
    for (const { events } of users) {
      for (const { timestamp } of events) {
        if (dayOf(timestamp) === lastDay) continue;
        lastDay = dayOf(timestamp);
        pairs.add(pairOf(header.receivedAt, timestamp));
      }
    }
  }
  return pairs;
}
