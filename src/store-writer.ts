/**
 * The write interface of the store, for the processor alone. A transaction covers one or more batches of records: look
 * up what is stored, decide (purely), write, advance the position in the log. It is committed as a whole or not at all,
 * position included: that is what makes every record count exactly once.
 *
 * The order of calls in a transaction: `advance`, `lookUp` for a batch, then `write` for the same batch; any number of
 * batches; then `commit` or `rollback`. Where several processors write one store, a transaction covers one batch: then
 * all of them take locks in the same order.
 */

import type { Changes, Snapshot } from './identity/graph.ts';
import type { LogRecord, LostAhead, LostRecords } from './log.ts';
import type { ProcessedLog } from './log/continuity.ts';
import type { ForeignFormat, KeyKind, MatchKey, NodeNumber, Origin, TenantId, ValueType } from './model.ts';
import type { Caller, JobCounts, JobKind, JobProblem, JsonText, PatchStep, Resubmission } from './store.ts';
import type { CountedCurrency } from './views/currency.ts';

/** A log record without its body. */
export interface RecordHeader {
  readonly partition: number;
  readonly position: number;
  readonly tenantId: TenantId;
  readonly traceId: string;
  readonly receivedAt: number;
  readonly keyId: string;
  readonly keyKind: KeyKind;
  readonly idempotencyKey: string | null;
  /** Hash of the body of the whole request, by which a retry is recognised; null without an Idempotency-Key. */
  readonly bodyHash: string | null;
  /** Absent for our own. */
  readonly format?: ForeignFormat;
  readonly firstUserIndex: number;
  /** Set for a rejected user that was fixed: the record holds this user alone, and `usersRejected` is -1. */
  readonly resubmitted?: Resubmission;
  /** Set for a dead letter that is processed again: it is in the ledger already. */
  readonly isRetried?: true;
  /** When a job applied it. It may be days after the receipt, and the window of its event ids begins then. */
  readonly appliedAt?: number;
  /** As the edge counted them. */
  readonly usersAccepted: number;
  readonly usersRejected: number;
  readonly eventsAccepted: number;
  /** Events that the client reported to have dropped; absent for none. */
  readonly droppedByClient?: number;
}

/** The match keys of a person. */
export interface PersonKeys {
  readonly keys: readonly MatchKey[];
}

/** What has to be looked up for one tenant of a batch. */
export interface LookupRequest {
  readonly tenantId: TenantId;
  /** In order. */
  readonly users: readonly PersonKeys[];
  readonly idempotencyKeys: readonly { readonly key: string; readonly bodyHash: string }[];
  /** Of all users and events. */
  readonly eventIds: readonly string[];
  /** The oldest time of receipt: `erasedAt` is looked up only if something was erased then or later. */
  readonly receivedAtMin: number;
}

/** The first request that used an Idempotency-Key with this body. */
export interface KeyUse {
  readonly traceId: string;
  readonly receivedAt: number;
  /** As it is remembered (views/key-use.ts). */
  readonly bodyHash: string;
}

export interface EventIdUse {
  readonly id: string;
  readonly receivedAt: number;
}

export interface LookupResult {
  readonly snapshot: Snapshot;
  /** The newest, whatever its body. */
  newestUseOfKey(idempotencyKey: string): KeyUse | undefined;
  /** An earlier use of the key, with this body. Only for pairs in the lookup request. */
  olderUseOfKey(idempotencyKey: string, bodyHash: string): KeyUse | undefined;
  /**
   * Users of a request that were rejected, and neither resubmitted nor accepted in a retry. Only for requests that used
   * an Idempotency-Key and body of the lookup request.
   */
  openRejections(traceId: string): ReadonlySet<number>;
  /** When the id was last used before this batch. Only for ids in the lookup request. */
  lastUseOfEventId(id: string): number | undefined;
  /** When anything was last erased; 0 for never. Records received later need no check. */
  readonly lastErasedAt: number;
  /** When a match key was erased (rule 17); undefined for one that was not, or only before `receivedAtMin`. */
  erasedAt(key: MatchKey): number | undefined;
}

export interface EventToStore {
  readonly eventIndex: number;
  readonly name: string;
  readonly timestamp: number;
  /** A text where a double would lose digits. */
  readonly revenue: number | string | null;
  /** Currency of the revenue (views/currency.ts). */
  readonly currency: CountedCurrency;
  readonly value: number | string | null;
  /** A JSON object. */
  readonly properties: string;
}

export interface UserToStore {
  readonly origin: Origin;
  readonly node: NodeNumber | null;
  readonly events: readonly EventToStore[];
  /** Null when the user sets no property. */
  readonly propertyUpdate: PropertyUpdateToStore | null;
}

/** What a user sets on a person, as JSON objects: parsed only where the person has other properties already. */
export interface PropertyUpdateToStore {
  /** Identifies the names that are set, fields first: the same text for the same names in the same order, and only for them. */
  readonly shape: string;
  readonly fields: string;
  readonly properties: string;
  /** The user set more names than a person keeps. */
  readonly isCut: boolean;
}

export interface RejectionToStore {
  readonly userIndex: number;
  readonly message: string;
  /** Null if it is not kept: a person was erased while the record waited, and it may be about them. */
  readonly payload: string | null;
}

/** What a trace shows of a user beyond its node and events, which follow from the stored events. */
export interface UserNote {
  readonly userIndex: number;
  readonly merged?: readonly (readonly [from: NodeNumber, into: NodeNumber])[];
  readonly warnings?: readonly string[];
  readonly duplicateEvents?: number;
}

export interface Tally {
  readonly stored: number;
  readonly duplicates: number;
  readonly erased: number;
}

/** A rejected user that was accepted in a retry of its request. */
export interface AcceptedRejection {
  readonly traceId: string;
  readonly userIndex: number;
  /** The retry. */
  readonly acceptedBy: string;
}

export interface RecordToStore {
  readonly header: RecordHeader;
  readonly duplicateOf: string | null;
  readonly users: readonly UserToStore[];
  /** For the trace; those of a duplicate are not stored as rejections. */
  readonly rejections: readonly RejectionToStore[];
  readonly notes: readonly UserNote[];
  /** What became of the users and events that the edge accepted; they add up to what the header says, or it is a bug. */
  readonly userTally: Tally;
  readonly eventTally: Tally;
}

/** A person whose match keys are all in one profile, and the node of the strongest key. */
export interface ResolvedPerson {
  readonly user: PersonKeys;
  readonly node: NodeNumber;
}

/** A violation, by stored events, of a tracking plan that warns. */
export interface PlanViolation {
  readonly version: number;
  /** Null for user properties and profile fields. */
  readonly eventName: string | null;
  /** Without indexes. */
  readonly path: string;
  readonly message: string;
  readonly count: number;
  /** When the newest of these requests was received. */
  readonly at: number;
  readonly traceId: string;
}

export interface TenantBatch {
  readonly tenantId: TenantId;
  readonly changes: Changes;
  /** Those that were not resolved before; a store may cache them. */
  readonly resolved: readonly ResolvedPerson[];
  readonly records: readonly RecordToStore[];
  /** Newest uses to remember, in order; a later one of the same key replaces the one before. */
  readonly newestKeyUses: readonly (KeyUse & { readonly key: string })[];
  /** Older uses to remember, in order; a later one of the same key and body replaces the one before. */
  readonly olderKeyUses: readonly (KeyUse & { readonly key: string })[];
  /** Uses to remember, in order; a later one of the same id replaces an expired one. */
  readonly eventIds: readonly EventIdUse[];
  /** To be marked, after the rejections of these records are stored; one that is marked already is a conflict. */
  readonly acceptedRejections: readonly AcceptedRejection[];
  /** Match keys found to belong to an erased person. */
  readonly tombstones: readonly Tombstone[];
  /** Absent where the tenant has no plan that warns. */
  readonly violations?: readonly PlanViolation[];
}

export interface Tombstone {
  readonly key: MatchKey;
  readonly erasedAt: number;
}

/** What the catalogue describes: the events of one name, or what users set on people. */
export type CatalogueKind = 'event' | 'user_properties' | 'profile_fields';

/** What was observed of one property since the last flush. Times are times of receipt. */
export interface ObservedProperty {
  readonly name: string;
  /** How many of the examined events, or users, have it. */
  readonly count: number;
  readonly types: readonly { readonly type: ValueType; readonly count: number }[];
  readonly firstSeen: number;
  readonly lastSeen: number;
  readonly examples: readonly string[];
}

/** What was observed of one entry of the catalogue since the last flush. */
export interface Observation {
  readonly tenantId: TenantId;
  readonly kind: CatalogueKind;
  /** Event name; empty for the other kinds, and for all events whose names were too many to collect. */
  readonly name: string;
  /** Events, or users that set anything. */
  readonly count: number;
  /** How many of them were parsed: all of them, or a sample. */
  readonly examined: number;
  readonly firstSeen: number;
  readonly lastSeen: number;
  readonly keyIds: readonly string[];
  readonly properties: readonly ObservedProperty[];
  /** Values of further properties, which were too many to collect. */
  readonly otherProperties: number;
}

export interface WriteTransaction {
  /** Results in the order of the requests; at most one request per tenant. */
  lookUp(requests: readonly LookupRequest[]): Promise<LookupResult[]>;
  write(batches: readonly TenantBatch[], processedAt: number): Promise<void>;
  /**
   * Those of these records that the store has already: the log has copies of them, because an operator set a position back
   * or their messages were written again. Asked only after a `AlreadyStoredError`.
   */
  findStored(headers: readonly RecordHeader[]): Promise<ReadonlySet<RecordHeader>>;
  /** Stores a record that cannot be processed as a dead letter with its cause, and counts it in the ledger. */
  deadLetter(header: RecordHeader, record: LogRecord, cause: string, at: number): Promise<void>;
  /**
   * The running job that has waited longest, with what comes next in it, at most `itemsMax`. No other transaction takes it
   * before this one ends. Undefined if there is none, or if others have them all.
   */
  takeJob(itemsMax: number): Promise<TakenJob | undefined>;
  /** Marks rejections of a taken job, by number; gives those that were not marked before, which are now to be applied. */
  markResubmitted(rejections: readonly number[], at: number): Promise<ReadonlySet<number>>;
  /** Marks dead letters as processed: their bodies are removed. */
  markRetried(deadLetters: readonly number[], at: number): Promise<ReadonlySet<number>>;
  /** Saves how far a taken job is: all of its items. */
  saveJob(job: TakenJob, progress: JobProgress): Promise<void>;
  /**
   * Takes the partition on from one position to a later one. Called before `lookUp` for the records in between, so that
   * of two processors that believe a partition to be theirs only one continues: rejects with `StoreConflictError` when
   * the store is not at `from`. A partition that was never read is at 0. `lastTraceId` is of the record before `to`: by it
   * a later start knows the log again. `expectedTraceId` is of the record before `from`: a store that has another there is
   * a copy with a history of its own, which is a conflict, too.
   */
  advance(partition: number, from: number, to: number, lastTraceId?: string, expectedTraceId?: string): Promise<void>;
  /** Records that these will never arrive. The same range again replaces the note. */
  noteLost(lost: LostRecords): Promise<void>;
  /**
   * Adds to the catalogue what was observed from `since` on. Examples are left out where a person was erased since then:
   * one may be theirs. The last call of its transaction.
   */
  writeCatalogue(observations: readonly Observation[], since: number): Promise<void>;
  /** With `durable` what was committed so far survives a power loss; without it only a crash of the process. */
  commit(durable: boolean): Promise<void>;
  rollback(): Promise<void>;
}

/** A rejected user of a job, in the order in which they were received. */
export interface RejectedItem {
  readonly kind: 'rejection';
  readonly no: number;
  readonly traceId: string;
  readonly userIndex: number;
  readonly receivedAt: number;
  readonly keyId: string;
  readonly keyKind: KeyKind;
  readonly format: ForeignFormat | null;
  readonly payload: JsonText;
  readonly payloadIsCut: boolean;
  readonly isResubmitted: boolean;
  /** Already fixed by hand, valid and marked: its payload is the fixed user, and this was changed. */
  readonly steps?: readonly PatchStep[];
}

/** A dead letter of a job. */
export interface DeadLetterItem {
  readonly kind: 'dead_letter';
  readonly no: number;
  readonly traceId: string;
  readonly userIndex: number;
  /** Null if its body is not kept. */
  readonly record: LogRecord | null;
  /** By another job, after this one was made. */
  readonly isRetried: boolean;
}

export type JobItem = RejectedItem | DeadLetterItem;

export interface TakenJob {
  readonly no: number;
  readonly id: string;
  readonly kind: JobKind;
  readonly tenantId: TenantId;
  readonly by: Caller | null;
  readonly patch: JsonText | null;
  readonly items: readonly JobItem[];
  /** Nothing comes after these. */
  readonly isLast: boolean;
}

/** What a step adds to a job. */
export interface JobProgress {
  readonly counts: JobCounts;
  readonly problems: readonly JobProblem[];
  readonly at: number;
  /** Set for a user that was fixed by hand and could not be processed: its rejection is no longer marked. */
  readonly isGivenBack: boolean;
}

export interface Retention {
  readonly eventsMs: number;
  readonly tracesMs: number;
  readonly rejectionsMs: number;
  /** Limit for all tenants together. Beyond it, the oldest of the tenant that has the most go first. */
  readonly rejectionBytesMax: number;
  /** Called with the number of rejections that were removed because of that limit. */
  readonly onRejectionsOverLimit?: (removed: number) => void;
}

export interface StoreProgress extends ProcessedLog {
  /** Records that an operator skipped: the position was moved past them, and processing has not continued yet. */
  readonly skipped: readonly LostAhead[];
}

export interface StoreWriter {
  /**
   * Where each partition of the log continues, and the request of the last record before that: both of one moment.
   * Partitions that were never read are not in it.
   */
  processed(): Promise<StoreProgress>;
  begin(): Promise<WriteTransaction>;
  /** Whether any job is running; cheap, and asked several times a second. */
  hasJobs(): Promise<boolean>;
  /**
   * How many users and events are not accounted for, over all tenants and hours; anything but 0 is a bug. A store may
   * check old hours less often than this is called.
   */
  difference(): Promise<{ readonly users: number; readonly events: number }>;
  /** How many records were noted as lost, ever. */
  lostRecords(): Promise<number>;
  /**
   * One step of the compaction that was postponed under load, in its own transaction; true if there was any. Called while
   * idle. Reads return the same before and after.
   */
  compact(): Promise<boolean>;
  /**
   * Removes what is too old, a bounded piece at a time; true when there is more to remove. Nothing that was received before
   * `now` waits where the caller reads; a store that others write too allows for their being late.
   */
  sweep(retention: Retention, now: number): Promise<boolean>;
  close(): Promise<void>;
}

/**
 * Another writer changed what this transaction was about to write. Nothing is lost: roll back, read the positions
 * again, and retry, which then sees the other change.
 */
export class StoreConflictError extends Error {
  override readonly name = 'StoreConflictError';
}

/** A record of the batch is stored already. Retried without it (`findStored`). */
export class AlreadyStoredError extends StoreConflictError {}

/** The store does not accept a value: a record is the cause, and a retry does not help. The message quotes nothing. */
export class StoreValueError extends Error {
  override readonly name = 'StoreValueError';
}

/** In the cause of a dead letter that breaks a constraint that someone has added; the name of the constraint follows. */
export const TABLES_CHANGED =
  'the tables in the database were changed: a constraint that Sluice did not make rejects a row';

/** The store failed in a way that is neither a record's fault nor known to pass: processing ends. */
export class StoreFailedError extends Error {
  override readonly name = 'StoreFailedError';
}

/** The store cannot be used now (full disk, lost connection, missing table): the batch is tried again later. */
export class StoreUnavailableError extends Error {
  override readonly name = 'StoreUnavailableError';
}
