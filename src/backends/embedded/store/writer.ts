/**
 * Writes the embedded store: `StoreWriter` on one SQLite connection, for the processor's thread alone.
 *
 * A transaction is everything between BEGIN IMMEDIATE and COMMIT, including the position in the log. Numbers of nodes,
 * records and events count up from `sequences` and are written back with the commit. Caches are cleared whenever a
 * transaction was rolled back. When another connection has written to the file, people that it erased or unmerged are
 * dropped (invalidations.ts), and so is what is cheap to read again; everything else stays cached.
 */

import { resolve } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { FileIdentity, REPLACED_STORE_ADVICE, WAS_REPLACED } from '../../../data-folder/file-identity.ts';
import { SQLITE, sqliteCodeOf } from '../../../runtime/sqlite-errors.ts';
import { newProfilesIn } from '../../../identity/graph.ts';
import type { MatchOptions } from '../../../identity/match-keys.ts';
import type { TenantId } from '../../../model.ts';
import {
  type LookupResult,
  type LookupRequest,
  type RecordHeader,
  type RecordToStore,
  type RejectionToStore,
  type Retention,
  StoreFailedError,
  type StoreProgress,
  type StoreWriter,
  StoreUnavailableError,
  StoreValueError,
  type TenantBatch,
  type WriteTransaction,
} from '../../../store-writer.ts';
import { NO_REVENUE } from '../../../views/currency.ts';
import { Decimal } from '../../../views/decimal.ts';
import type { CountedBucket } from '../../../views/event-counts.ts';
import { keptRejections } from '../../../views/kept-rejections.ts';
import { addVisit, type Visits } from '../../../views/node-properties.ts';
import { notesOf } from '../../../views/trace.ts';
import { countLostRecords, type Difference, readDifference, readProcessedLog } from '../../sql/ledger.ts';
import { hasJobs } from '../../sql/jobs.ts';
import { markAccepted, openRejectionsOf } from '../../sql/rejections.ts';
import type { StepsOf } from '../../sql/steps.ts';
import { LOCAL_LOG } from '../../sql/store-tables.ts';
import { SqlWriteTransaction } from '../../sql/write-transaction.ts';
import { isBusy, isDamage } from '../database.ts';
import { mayPassByItself } from '../disk.ts';
import { EventGroups } from './event-groups.ts';
import { FirstUses } from './first-uses.ts';
import { Invalidations, Tombstones } from './invalidations.ts';
import type { HashOfKey } from '../../../views/keyed-hash.ts';
import { StoreConnection, type Tenant } from './connection.ts';
import { StoreGraph, writeChanges } from './identity-graph.ts';
import { MATCH_KEY_SIZES, MATCH_KEYS } from './match-keys.ts';
import { continueErasures } from './profile-changes.ts';
import { StoreNodes } from './profile-runs.ts';
import { BufferedRuns, type RunsSizes } from '../sorted-runs/sorted-runs.ts';
import { openStoreFile, storeDamageText, WAL_PAGES, withDamageExplained } from './schema.ts';
import { uuidBytes } from '../uuids.ts';
import { sweep } from './retention.ts';
import { markCommit } from '../wal-chain.ts';
import { messageOf } from '../../../errors.ts';

/** Many enough that there are few groups, few enough that one group's index by person fits the cache. */
export const GROUP_EVENTS = 1_000_000;

/** 128 MB. */
const WAL_PAGES_MAX = 16_384;

export interface StoreWriterSetup {
  readonly file: string;
  /** Events of one group of their index; tests use few. */
  readonly groupEvents?: number;
  /** Sizes of the event index; tests use small ones. */
  readonly indexSizes?: RunsSizes;
  /** Sizes of the profile runs; tests use small ones. */
  readonly profileSizes?: RunsSizes;
  /** Instead of hashes by the secret in the file; tests use colliding ones. */
  readonly hashOf?: HashOfKey;
}

export function openSqliteStoreWriter(setup: StoreWriterSetup): StoreWriter {
  return withDamageExplained(setup.file, () => new SqliteStoreWriter(openStoreFile(setup.file, 'writer'), setup));
}

/** Errors that a value causes. SQLite quotes no values in their messages. */
const VALUE_ERRORS: ReadonlySet<number> = new Set([SQLITE.toobig, SQLITE.constraint, SQLITE.mismatch, SQLITE.range]);

interface KnownTenant extends Tenant {
  /** When something was last erased here; 0 for never. Records received later need not be checked. */
  readonly lastErasedAt: number;
}

interface Sequences {
  node: number;
  record: number;
  event: number;
}

class SqliteStoreWriter extends SqlWriteTransaction implements StoreWriter, WriteTransaction {
  protected readonly logName = LOCAL_LOG;
  readonly #database: DatabaseSync;
  readonly #store: StoreConnection;
  readonly #graph: StoreGraph;
  readonly #nodes: StoreNodes;
  readonly #eventGroups: EventGroups;
  readonly #tombstones: Tombstones;
  readonly #firstUses: FirstUses;
  readonly #invalidations: Invalidations;
  readonly #tenants = new Map<TenantId, KnownTenant>();
  #next: Sequences = { node: 0, record: 0, event: 0 };
  #dataVersion = -1;
  readonly #identity: FileIdentity;
  readonly #file: string;
  /** The sorted runs of match keys, all in one group. */
  readonly #keys: BufferedRuns;
  /** All sorted runs that it writes. */
  readonly #trees: readonly BufferedRuns[];
  /** Those of them whose cached runs stay valid after an erase. */
  readonly #keyTrees: readonly BufferedRuns[];

  constructor(database: DatabaseSync, setup: StoreWriterSetup) {
    super();
    const { file, groupEvents = GROUP_EVENTS, indexSizes, profileSizes } = setup;
    this.#database = database;
    this.#store = new StoreConnection(database, setup);
    this.#file = file;
    this.#identity = new FileIdentity(file);
    // SQLite's own checkpoints hide their errors: see `#checkpoint`.
    database.exec('PRAGMA wal_autocheckpoint = 0');
    this.#keys = new BufferedRuns(database, MATCH_KEYS, () => 0, MATCH_KEY_SIZES);
    this.#graph = new StoreGraph(this.#store, this.#keys);
    this.#nodes = new StoreNodes(this.#store, profileSizes);
    this.#eventGroups = new EventGroups(database, groupEvents, indexSizes);
    this.#tombstones = new Tombstones(this.#store);
    this.#firstUses = new FirstUses(database, this.#store.hashOf);
    this.#invalidations = new Invalidations(this.#store);
    const { eventIdRuns, keyRuns } = this.#firstUses;
    this.#keyTrees = [this.#keys, eventIdRuns, keyRuns];
    this.#trees = [this.#nodes.deltas, ...this.#keyTrees, ...this.#eventGroups.index];
  }

  async processed(): Promise<StoreProgress> {
    return this.#steps((tables) => readProcessedLog(tables, LOCAL_LOG));
  }

  async begin(): Promise<WriteTransaction> {
    this.#assertFileIsThere();
    this.#attempt(() => this.#database.exec('BEGIN IMMEDIATE'));
    try {
      this.#attempt(() => this.#catchUpWithOthers());
    } catch (error) {
      await this.rollback();
      throw error;
    }
    return this;
  }

  /** Drops outdated cache entries. Also called after another connection's checkpoint: then there is little to drop. */
  #catchUpWithOthers(): void {
    const version = this.#store.get<{ data_version: number }>('PRAGMA data_version')?.data_version ?? -1;
    if (version === this.#dataVersion) return;
    const next = this.#readSequences();
    const invalidated = this.#invalidations.take();
    // Erase and unmerge issue no numbers. If these differ, another writer was here, or nothing has been read yet.
    const isOnlyWriter =
      next.node === this.#next.node && next.record === this.#next.record && next.event === this.#next.event;
    if (invalidated === undefined || !isOnlyWriter) {
      this.#forget();
      this.#tombstones.startOver();
    } else {
      this.#graph.drop(invalidated.nodes);
      this.#tombstones.add(invalidated.erasedKeys);
      this.#forgetWhatIsCheap();
    }
    this.#dataVersion = version;
    this.#next = next;
  }

  #readSequences(): Sequences {
    const next: Sequences = { node: 0, record: 0, event: 0 };
    const rows = this.#store.all<{ name: keyof Sequences; next: number }>('SELECT name, next FROM sequences');
    for (const row of rows) next[row.name] = row.next;
    return next;
  }

  async lookUp(requests: readonly LookupRequest[]): Promise<LookupResult[]> {
    // Tenants share one sequence of node numbers, so each gets as many as it could use at most.
    let nextNode = this.#next.node;
    return this.#attempt(() =>
      requests.map((request) => {
        const tenant = this.#tenant(request.tenantId);
        const snapshot = this.#graph.snapshot(tenant.no, request, nextNode);
        nextNode += request.users.length;
        // Reading may also fail for lack of space: it makes room in the cache by writing dirty pages.
        return {
          snapshot: { ...snapshot, profileOf: (root) => this.#attempt(() => snapshot.profileOf(root)) },
          lastErasedAt: tenant.lastErasedAt,
          newestUseOfKey: (key) => this.#attempt(() => this.#firstUses.newestUseOfKey(tenant.no, key)),
          olderUseOfKey: (key, bodyHash) =>
            this.#attempt(() => this.#firstUses.olderUseOfKey(tenant.no, key, bodyHash)),
          openRejections: (traceId) => this.#steps((tables) => openRejectionsOf(tables, tenant.no, traceId)),
          lastUseOfEventId: (id) => this.#attempt(() => this.#firstUses.lastUseOfEventId(tenant.no, id)),
          erasedAt: (key) => this.#attempt(() => this.#tombstones.erasedAt(tenant, key, request.receivedAtMin)),
        };
      }),
    );
  }

  async write(batches: readonly TenantBatch[], processedAt: number): Promise<void> {
    this.#attempt(() => {
      for (const batch of batches) this.#writeTenant(batch, processedAt);
    });
  }

  async hasJobs(): Promise<boolean> {
    return this.#steps(hasJobs);
  }

  /** A local log never has a record twice. */
  async findStored(): Promise<ReadonlySet<RecordHeader>> {
    return new Set();
  }

  async commit(durable: boolean): Promise<void> {
    this.#attempt(() => {
      addCounts(this.#store, this.sums.takeCounts());
      this.#store.steps((tables) => this.sums.write(tables));
      this.#eventGroups.flush();
      for (const tree of this.#trees) tree.flush();
      for (const [name, next] of Object.entries(this.#next)) {
        this.#store.run('UPDATE sequences SET next = ? WHERE name = ?', next, name);
      }
      markCommit(this.#database);
      this.#database.exec('COMMIT');
      if (durable) this.#makeDurable();
      this.#checkpoint();
    });
  }

  async rollback(): Promise<void> {
    // Some errors (a full disk) make SQLite roll back by itself.
    if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
    this.#forget();
  }

  async compact(): Promise<boolean> {
    const isBehind = this.#attempt(() => this.#trees.some((tree) => tree.isCompacting));
    if (!isBehind) return false;
    await this.begin();
    try {
      this.#attempt(() => this.#trees.forEach((tree) => tree.compact()));
      await this.commit(false);
    } catch (error) {
      await this.rollback();
      throw error;
    }
    return true;
  }

  async lostRecords(): Promise<number> {
    return this.#steps(countLostRecords);
  }

  async difference(): Promise<Difference> {
    return this.#steps((tables) => readDifference(tables));
  }

  async sweep(retention: Retention, now: number): Promise<boolean> {
    try {
      return this.#attempt(() => sweep(this.#store, this.#firstUses, retention, now));
    } catch (error) {
      this.#forget();
      throw error;
    } finally {
      this.#eventGroups.forget();
      this.#nodes.deltas.forget();
    }
  }

  /** On a connection of its own, since this one may be in a transaction whenever the erasure waits. */
  async continueErasures(options: MatchOptions): Promise<number> {
    using database = openStoreFile(this.#file, 'reader');
    database.exec('PRAGMA secure_delete = ON');
    return await continueErasures(new StoreConnection(database, { hashOf: this.#store.hashOf }), options);
  }

  async close(): Promise<void> {
    if (this.#database.isOpen) this.#database.close();
  }

  /**
   * After each commit: copies the write-ahead log into the file, unless it is short. The next transaction then
   * overwrites it from its beginning, unless an old state is still being read; once it has become long, the checkpoint
   * waits for such readers.
   *
   * A checkpoint that cannot be made now is made after a later commit. Any other error ends the process: SQLite reuses a
   * write-ahead log once it is copied and synced, so a failed sync must not be followed by one that seems to work.
   */
  #checkpoint(): void {
    const sql = 'PRAGMA wal_checkpoint(NOOP)';
    const { log = 0, checkpointed = 0 } = this.#store.get<{ log: number; checkpointed: number }>(sql) ?? {};
    if (log - checkpointed < WAL_PAGES) return;
    try {
      this.#database.exec(`PRAGMA wal_checkpoint(${log < WAL_PAGES_MAX ? 'PASSIVE' : 'RESTART'})`);
    } catch (error) {
      if (!isBusy(error) && !mayPassByItself(error)) throw error;
    }
  }

  /** Data written to a file that has lost its name is lost, so nothing may leave the log for it. */
  #assertFileIsThere(): void {
    if (this.#identity.isSame()) return;
    throw new StoreUnavailableError(
      `${resolve(this.#file)} ${WAS_REPLACED} while the server is running. ${REPLACED_STORE_ADVICE}`,
    );
  }

  /** Syncing the write-ahead log for one more commit syncs all before it too. */
  #makeDurable(): void {
    this.#assertFileIsThere();
    this.#database.exec('PRAGMA synchronous = FULL; BEGIN IMMEDIATE');
    markCommit(this.#database);
    this.#database.exec('COMMIT; PRAGMA synchronous = NORMAL');
  }

  #forget(): void {
    for (const tree of this.#keyTrees) tree.forget();
    this.#graph.forget();
    this.#tombstones.forget();
    this.#forgetWhatIsCheap();
    this.#next = { node: 0, record: 0, event: 0 };
    this.#dataVersion = -1;
  }

  /**
   * Caches that take only a few rows to rebuild; an erase changes most of them (sums, the newest group, runs,
   * `lastErasedAt`).
   */
  #forgetWhatIsCheap(): void {
    this.#nodes.deltas.forget();
    this.sums.clear();
    this.#eventGroups.forget();
    this.#tenants.clear();
  }

  /**
   * Distinguishes errors that may pass from bugs. A damaged file waits for an operator: requests are safe in the log
   * meanwhile, and ending the process would only stop it from accepting them.
   */
  #attempt<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      throw this.#asStoreError(error);
    }
  }

  #asStoreError(error: unknown): unknown {
    const code = sqliteCodeOf(error);
    const reason = messageOf(error);
    if (!mayPassByItself(error) && !isBusy(error) && !isDamage(error)) {
      if (code === undefined) return error;
      return VALUE_ERRORS.has(code)
        ? new StoreValueError(reason, { cause: error })
        : new StoreFailedError(reason, { cause: error });
    }
    return new StoreUnavailableError(isDamage(error) ? storeDamageText(this.#file, reason) : reason, { cause: error });
  }

  #steps<T>(stepsOf: StepsOf<T>): T {
    return this.#attempt(() => this.#store.steps(stepsOf));
  }

  protected async inSteps<T>(stepsOf: StepsOf<T>): Promise<T> {
    return this.#steps(stepsOf);
  }

  protected async tenantNumbers(ids: readonly TenantId[]): Promise<ReadonlyMap<TenantId, number>> {
    return this.#attempt(() => new Map(ids.map((id) => [id, this.#tenant(id).no])));
  }

  #tenant(id: TenantId): KnownTenant {
    return this.#tenants.getOrInsertComputed(id, () => {
      this.#store.run('INSERT INTO tenants (id) VALUES (?) ON CONFLICT DO NOTHING', id);
      const sql = 'SELECT no, id, last_erased_at AS "lastErasedAt" FROM tenants WHERE id = ?';
      return this.#store.get<KnownTenant>(sql, id) as KnownTenant;
    });
  }

  #writeTenant(batch: TenantBatch, processedAt: number): void {
    const tenant = this.#tenant(batch.tenantId);
    const visits: Visits = new Map();
    for (const record of batch.records) this.#writeRecord(tenant, record, processedAt, visits);
    this.#steps((tables) => markAccepted(tables, tenant.no, batch.acceptedRejections, processedAt));
    this.#nodes.write(tenant, batch.changes.nodes, visits);
    for (const { node } of batch.changes.nodes) if (node >= this.#next.node) this.#next.node = node + 1;
    writeChanges(this.#store, this.#keys, tenant.no, batch.changes);
    this.sums.addProfiles(tenant.no, newProfilesIn(batch.changes));
    if (batch.violations !== undefined) this.sums.addViolations(tenant.no, batch.violations);
    this.#graph.cache(tenant.no, batch.changes, batch.resolved);
    this.#tombstones.write(tenant, batch.tombstones);
    this.#firstUses.write(tenant.no, batch, this.#next.record);
  }

  #writeRecord(tenant: Tenant, record: RecordToStore, processedAt: number, visits: Visits): void {
    const { header, users, rejections } = record;
    const { traceId, receivedAt } = header;
    const recordNo = this.#next.record++;
    const group = this.#eventGroups.forRecord(recordNo);
    const firstEvent = this.#next.event;
    for (const user of users) {
      const { origin, node, events } = user;
      for (const event of events) {
        this.#eventGroups.add(tenant.no, this.#next.event++, node, recordNo, origin.userIndex, event);
      }
      if (node !== null) addVisit(visits, node, user);
    }
    const eventCount = this.#next.event - firstEvent;
    if (receivedAt > group.receivedMax) group.receivedMax = receivedAt;
    this.#eventGroups.insertRecord.run(
      recordNo,
      tenant.no,
      uuidBytes(traceId),
      receivedAt,
      processedAt,
      header.firstUserIndex,
      header.usersAccepted,
      header.usersRejected,
      firstEvent,
      eventCount,
      record.duplicateOf === null ? null : uuidBytes(record.duplicateOf),
      header.keyId,
      notesOf(record),
    );
    // The rejections of a duplicate request were stored the first time; its trace lists them anyway.
    if (record.duplicateOf === null) insertRejections(this.#store, tenant.no, header, rejections);
    this.sums.add(tenant.no, record);
  }
}

/** Inserts those that are kept (views/kept-rejections.ts). The sweep removes the oldest. */
function insertRejections(
  store: StoreConnection,
  tenant: number,
  { receivedAt, traceId, keyId, keyKind, format }: RecordHeader,
  rejections: readonly RejectionToStore[],
): void {
  for (const rejection of keptRejections(rejections)) {
    const { userIndex, message, reason, reasonHash, payload, isCut, eventNames } = rejection;
    store.run(
      'INSERT INTO rejections VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)',
      tenant,
      receivedAt,
      traceId,
      userIndex,
      message,
      reason,
      reasonHash,
      payload,
      isCut ? 1 : 0,
      keyId,
      keyKind,
      format ?? null,
      eventNames,
    );
  }
}

const SELECT_REVENUE = `SELECT revenue FROM counts
  WHERE tenant = ? AND width = ? AND start = ? AND event_name = ? AND currency = ? AND shard = 0`;
const ADD_TO_COUNT = `INSERT INTO counts (tenant, width, start, event_name, currency, shard, events, revenue)
  VALUES (?, ?, ?, ?, ?, 0, ?, ?)
  ON CONFLICT DO UPDATE SET events = events + excluded.events, revenue = excluded.revenue`;

/** By minute and hour, row by row: an import may count thousands of minutes. */
function addCounts(store: StoreConnection, buckets: readonly CountedBucket[]): void {
  for (const { tenant, width, start, eventName, currency, events, revenue } of buckets) {
    const bucket = [tenant, width, start, eventName, currency] as const;
    const stored = currency === NO_REVENUE ? undefined : store.get<{ revenue: string }>(SELECT_REVENUE, ...bucket);
    store.run(ADD_TO_COUNT, ...bucket, events, String(revenue.plus(Decimal.of(stored?.revenue ?? 0))));
  }
}
