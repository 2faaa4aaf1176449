/**
 * The interface of the store: everything that is made of the log, as it is read. Profiles, events, traces, rejections and
 * the ledger; the processor writes them through `StoreWriter` (`store-writer.ts`). `test/contract/store.ts` is the suite
 * that every backend passes.
 *
 * Every call of `Store` names the tenant first and sees nothing of another one. Lists are newest first; a cursor names
 * the last row returned, so rows added meanwhile neither repeat nor hide others.
 */

import type { LogHeader, LogRecord, LostAhead, LostRecords } from './log.ts';
import {
  type Format,
  IDENTIFIER_TYPES,
  type IdentifierType,
  type KeyKind,
  type NormalisedKey,
  type RefusalReason,
  type TenantId,
  type ValueType,
} from './model.ts';

/** A JSON value as text: spliced into responses as it is, so that numbers keep their digits. */
export type JsonText = string;

export interface Page<Row> {
  readonly rows: readonly Row[];
  /** Cursor of the next page; null on the last. */
  readonly nextCursor: string | null;
}

export interface PageRequest {
  readonly limit: number;
  readonly cursor: string | null;
}

/** A value, with the request that set it and when that was received. */
export interface Provenance {
  readonly value: JsonText;
  readonly traceId: string;
  readonly receivedAt: number;
}

export interface StoredProfile {
  readonly id: string;
  /** Ids of the nodes that were merged into it, oldest first. */
  readonly mergedIds: readonly string[];
  /** As the clients wrote them (the first spelling of each), oldest first. */
  readonly identifiers: Readonly<Record<IdentifierType, readonly string[]>>;
  /** In the order of their names, deleted ones left out. */
  readonly profileFields: ReadonlyMap<string, Provenance>;
  readonly userProperties: ReadonlyMap<string, Provenance>;
  readonly firstSeen: number;
  readonly lastSeen: number;
  readonly eventCount: number;
}

/** How a person was found: by the beginning of an identifier or of a name, or by profile id. */
export const MATCHED_BY = [...IDENTIFIER_TYPES, 'name', 'id'] as const;
export type MatchedBy = (typeof MATCHED_BY)[number];

export interface PeopleQuery extends PageRequest {
  /** The beginning of an identifier, or of a word of a name, in any case. Null for everyone. */
  readonly text: string | null;
  /** What `text` is as a whole identifier, normalised as by `identity/match-keys.ts`: these people come first. */
  readonly exact: readonly { readonly type: IdentifierType; readonly normalised: string }[];
  /** Only people with this property (or profile field); null for any value. */
  readonly property: { readonly name: string; readonly value: string | null } | null;
  /** How long to search for a page before it is given as it is. At least one step is made. */
  readonly budgetMs: number;
}

export interface FoundPerson {
  readonly matched: readonly MatchedBy[];
  readonly profile: StoredProfile;
}

export interface PeoplePage extends Page<FoundPerson> {
  /** The page ended before its limit and before the last person: the cursor continues the search. */
  readonly isPartial: boolean;
}

/** A person as shown next to an event or in a trace. */
export interface StoredPerson {
  /** Current id of the profile. */
  readonly id: string;
  /** First and last name, else `name` or `full_name` of the profile fields; null without any. */
  readonly name: string | null;
  /** The oldest few of each type, as the clients wrote them. */
  readonly identifiers: Readonly<Record<IdentifierType, readonly string[]>>;
}

export interface StoredEvent {
  /** `<trace_id>.<userIndex>.<index of the event>`. */
  readonly id: string;
  readonly eventName: string;
  readonly timestamp: number;
  readonly receivedAt: number;
  /** JSON numbers. */
  readonly revenue: JsonText | null;
  readonly eventValue: JsonText | null;
  /** A JSON object. */
  readonly properties: JsonText;
  /** Current id of the profile; null for events of users without a usable identifier. */
  readonly profileId: string | null;
  readonly traceId: string;
  readonly userIndex: number;
  /** The API key of its request. */
  readonly keyId: string;
}

/** An event in the order of arrival. */
export interface ArrivedEvent extends StoredEvent {
  /** Continues after this very event. */
  readonly cursor: string;
}

export interface Arrivals {
  readonly events: readonly ArrivedEvent[];
  /** The cursor at the end of this page. */
  readonly last: string;
}

/** Which arrivals a live view shows; null for any. */
export interface ArrivalFilter {
  readonly eventName: string | null;
  /** Only events of the person with this id; an unknown id has none. */
  readonly profileId: string | null;
  readonly keyId: string | null;
}

export interface NewestArrivals extends Arrivals {
  /** The matching events that came before these and are left out, and where the last of them is. */
  readonly skipped: { readonly events: number; readonly cursor: string } | null;
}

/** By the events' own timestamps: from (inclusive) to (exclusive), milliseconds. */
export interface EventQuery extends PageRequest {
  readonly profileId: string | null;
  readonly eventName: string | null;
  readonly from: number | null;
  readonly to: number | null;
}

/** The user of a request that caused something, and when. */
export interface Cause {
  readonly traceId: string;
  readonly userIndex: number;
  readonly at: number;
}

export interface IdentifierLink extends Cause {
  readonly type: IdentifierType;
  /** As the client first wrote it. */
  readonly value: string;
  /** As it is matched. */
  readonly normalised: string;
  /** Public id of the node it points to. */
  readonly nodeId: string;
}

export interface StoredMerge extends Cause {
  /** Public ids: `from` was merged into `into` then. */
  readonly from: string;
  readonly into: string;
  /** Public ids of the two nodes that the request joined: the ends of the edge. */
  readonly nodes: readonly [string, string];
  readonly via: NormalisedKey;
}

/** The cause is that of the first refusal of this kind; `count` is how many there were, `lastAt` when the last was. */
export interface StoredRefusal extends Cause {
  readonly type: IdentifierType;
  readonly value: string;
  readonly reason: RefusalReason;
  readonly lastAt: number;
  readonly count: number;
}

export interface StoredIdentity {
  readonly id: string;
  readonly identifiers: readonly IdentifierLink[];
  readonly merges: readonly StoredMerge[];
  readonly refusals: readonly StoredRefusal[];
}

export type Interval = 'minute' | 'hour' | 'day';

export interface CountQuery {
  readonly interval: Interval;
  /** From (inclusive) to (exclusive), by the events' own timestamps, in UTC. */
  readonly from: number;
  readonly to: number;
  readonly byEventName: boolean;
}

export interface CountBucket {
  readonly start: number;
  readonly eventName: string | null;
  readonly events: number;
  /** By currency, codes in their order; empty where no event has revenue. */
  readonly revenue: readonly CurrencySum[];
}

/** The revenue of events in one currency. */
export interface CurrencySum {
  /** A code of three letters, `other` for all that is not one, null for revenue without a currency. */
  readonly currency: string | null;
  /** How many events have revenue in it. */
  readonly events: number;
  /** Null for `other`: amounts of different currencies are not added. */
  readonly revenue: number | null;
}

/** The key or session of an API call. */
export type Caller = { readonly key_id: string } | { readonly member_id: string };

/** One operation of a JSON Patch (RFC 6902), without its value: that may be personal data. */
export interface PatchStep {
  readonly op: string;
  readonly path: string;
  readonly from?: string;
}

/** How a rejected user was fixed and resubmitted. */
export interface Resubmission {
  readonly at: number;
  readonly by: Caller | null;
  readonly jobId: string;
  /** What was changed. */
  readonly patch: readonly PatchStep[];
}

/** What became of one user of a request. */
export interface TracedUser {
  readonly userIndex: number;
  readonly status: 'accepted' | 'rejected';
  readonly profileId: string | null;
  /** Events that are stored (and not yet erased or expired). */
  readonly events: number;
  /** Events that were there already, by `$event_id`. */
  readonly duplicateEvents: number;
  readonly merged: readonly { readonly from: string; readonly into: string }[];
  readonly warnings: readonly string[];
  /** Why it was rejected. */
  readonly message: string | null;
  /** Set for a user that was rejected at first, and fixed later. */
  readonly resubmitted?: Resubmission;
}

export interface StoredTrace {
  readonly traceId: string;
  readonly status: 'pending' | 'processed';
  readonly receivedAt: number;
  readonly processedAt: number | null;
  readonly usersAccepted: number;
  readonly usersRejected: number;
  readonly duplicateOf: string | null;
  /** Its API key; null for a dead letter that is not in the log any more. */
  readonly keyId: string | null;
  readonly format: Format;
  /** When it, or the first of its users, became a dead letter; absent if none is one. */
  readonly failedAt?: number;
  readonly users: readonly TracedUser[];
}

/** A request in the list of requests: a trace without its users. */
export interface TraceSummary extends Omit<StoredTrace, 'users' | 'format' | 'failedAt'> {
  /** Events that were stored, or that wait to be. */
  readonly events: number;
}

export interface TraceQuery extends PageRequest {
  readonly status: StoredTrace['status'] | null;
}

/** Which rejections; null, or absent, for any. */
export interface RejectionFilter extends TimeRange {
  /** The message, with indexes left out: `events[].event_name is required …`. The range is by time of receipt. */
  readonly reason: string | null;
  /** Name of any of its events. */
  readonly eventName?: string | null;
  readonly keyId?: string | null;
}

export interface RejectionQuery extends RejectionFilter, PageRequest {
  readonly isResubmitted?: boolean | null;
}

export interface StoredRejection {
  readonly traceId: string;
  readonly userIndex: number;
  readonly receivedAt: number;
  readonly message: string;
  readonly reason: string;
  /** The user as it was sent, or its beginning when it was too large to keep (`payloadIsCut`). */
  readonly payload: string;
  readonly payloadIsCut: boolean;
  /** The API key of its request. */
  readonly keyId: string;
  readonly keyKind: KeyKind;
  /** Format of its request; in Segment's format, the payload is a message of Segment's SDKs. */
  readonly format: Format;
  /** Names of its events, each once; none where the payload is cut. */
  readonly eventNames: readonly string[];
  /** When it was fixed and resubmitted, or accepted in a retry of its request; null if it was not. */
  readonly resubmittedAt: number | null;
  /** The trace_id of that retry. */
  readonly acceptedBy: string | null;
}

/** From (inclusive) to (exclusive), milliseconds; null means unbounded. */
export interface TimeRange {
  readonly from: number | null;
  readonly to: number | null;
}

/** To read only the positions of the ledger. */
export const NO_HOURS: TimeRange = { from: Number.MAX_SAFE_INTEGER, to: Number.MAX_SAFE_INTEGER };

/** All users that were rejected for one reason, as far as they are kept, and the newest of them. */
export interface RejectionReason {
  readonly reason: string;
  readonly users: number;
  /** Those of them that were fixed and resubmitted. */
  readonly resubmitted: number;
  readonly lastAt: number;
  readonly traceId: string;
  readonly userIndex: number;
}

/** What was received within one minute, whatever became of it. */
export interface ReceiptMinute {
  readonly start: number;
  readonly usersAccepted: number;
  readonly usersRejected: number;
  /** Events of the accepted users. */
  readonly eventsAccepted: number;
}

/** A violation, by events, of a tracking plan that warns. */
export interface StoredPlanViolation {
  readonly version: number;
  /** Null for user properties and profile fields. */
  readonly eventName: string | null;
  /** Without indexes. */
  readonly path: string;
  readonly message: string;
  readonly count: number;
  readonly firstAt: number;
  readonly lastAt: number;
  /** The newest request with it. */
  readonly traceId: string;
}

export interface Receipts {
  /** Oldest first; minutes without requests are left out. */
  readonly minutes: readonly ReceiptMinute[];
  /** Up to where the log is in them. */
  readonly positions: ReadonlyMap<number, number>;
}

export interface StoredLedger {
  readonly hours: readonly LedgerHour[];
  /** Up to where the log is in them. */
  readonly positions: ReadonlyMap<number, number>;
  /** By partition, the request of the last record that was processed. */
  readonly lastTraceIds: ReadonlyMap<number, string>;
  /**
   * Oldest first. A store does not see the log: only those that the processor has passed, or an operator has moved a
   * position past, unless it is read together with a log.
   */
  readonly lost: readonly (LostRecords | LostAhead)[];
  /** Records that the log should hold and does not. A store does not see the log: 0 unless read together with it. */
  readonly missingRecords: number;
}

/** Sums of users or events of one hour of receipt. */
export interface LedgerSums {
  readonly received: number;
  readonly stored: number;
  readonly duplicates: number;
  readonly erased: number;
  /** Removed by retention. */
  readonly expired: number;
  /** In dead letters: records that the processor could not process, shown by `sluice doctor`. */
  readonly deadLetters: number;
  readonly pending: number;
}

export interface LedgerHour {
  /** Start of the hour of receipt, UTC. */
  readonly hour: number;
  readonly users: LedgerSums;
  readonly events: LedgerSums;
  /** Users that failed validation; not part of the sums, since their response said so. */
  readonly usersRejected: number;
  /** Those of them that were fixed and resubmitted: since then they are part of the sums. */
  readonly usersResubmitted: number;
  /** Events that clients reported to have dropped before sending. They were never received, and are in no sum. */
  readonly droppedByClients: number;
}

/** A record that the processor could not process. */
export interface DeadLetter {
  /** `NO_TENANT` for a message of another program. */
  readonly tenantId: TenantId;
  readonly traceId: string;
  /** Index of the first user in the record; with the trace_id it identifies the dead letter. */
  readonly firstUserIndex: number;
  readonly partition: number;
  readonly position: number;
  readonly receivedAt: number;
  readonly failedAt: number;
  readonly cause: string;
  /** Accepted users and their events in it. */
  readonly users: number;
  readonly events: number;
  readonly keyId: string;
  /** The record without its body. Users that were erased since are among its rejections, with the message `ERASED_USER`. */
  readonly header: LogHeader;
  /** Whether its body is kept: without it there is nothing to retry. */
  readonly isKept: boolean;
  /** Whether all its users were erased. It is no longer a dead letter, only the trace of its request. */
  readonly isErased: boolean;
}

/** Which dead letters; null for any. */
export interface DeadLetterFilter extends TimeRange {
  /** With what its cause begins. The range is by time of receipt. */
  readonly cause: string | null;
}

/** `resubmit` applies fixed users, `retry` processes dead letters again. */
export const JOB_KINDS = ['resubmit', 'retry'] as const;
export type JobKind = (typeof JOB_KINDS)[number];
export const JOB_STATUSES = ['running', 'stopped', 'done'] as const;
export type JobStatus = (typeof JOB_STATUSES)[number];

/** What became of the rejections or dead letters that a job has come to; added up, all of them. */
export interface JobCounts {
  /** Accepted now: stored, or a duplicate, or erased meanwhile, as any accepted user. */
  readonly resubmitted: number;
  /** Still not valid, or not to be patched so. */
  readonly stillRejected: number;
  /** Resubmitted by another call since the job was made. */
  readonly already: number;
  /** Too large to have been kept whole, so there is nothing to fix. */
  readonly cut: number;
  /** Could not be processed: a bug. */
  readonly failed: number;
}

/** Work on many rejections or dead letters, which the processor does in small steps. */
export interface StoredJob {
  /** The trace_id of the API call that made it. */
  readonly id: string;
  readonly kind: JobKind;
  readonly status: JobStatus;
  readonly createdAt: number;
  readonly finishedAt: number | null;
  readonly by: Caller | null;
  /** As the API call gave it: JSON. */
  readonly filter: JsonText;
  /** A JSON Patch, without its values once the job is done; null where one user was fixed by hand, and of dead letters. */
  readonly patch: JsonText | null;
  /** How many there were at first. */
  readonly matched: number;
  readonly counts: JobCounts;
  /** A few of those that stay rejected or failed, with the reason: `{id, message}`. */
  readonly problems: readonly JobProblem[];
}

export interface JobProblem {
  /** `<trace_id>.<userIndex>`. */
  readonly id: string;
  readonly message: string;
}

/** One rejected user, fixed. */
export interface FixedUser {
  readonly traceId: string;
  readonly userIndex: number;
  /** The whole user, valid by now: JSON. */
  readonly user: JsonText;
  /** What was changed, for the trace. */
  readonly steps: readonly PatchStep[];
}

export interface NewResubmitJob {
  readonly filter: RejectionFilter;
  /** A JSON Patch, checked. */
  readonly patch: JsonText;
}

export interface UnmergeResult {
  /** Merges that were undone; 0 when the request merged nothing here. */
  readonly undone: number;
  /** Ids of the profiles that there are now instead of one, oldest first. */
  readonly profileIds: readonly string[];
}

/** The API call of an unmerge or erase, for the audit. */
export interface AuditContext {
  readonly traceId: string;
  readonly at: number;
  /** The key or session that called; kept in the detail. */
  readonly by?: Caller;
}

export const AUDIT_KINDS = ['unmerge', 'erase', 'resubmit', 'retry'] as const;

export interface AuditRow {
  readonly kind: (typeof AUDIT_KINDS)[number];
  readonly traceId: string;
  readonly at: number;
  readonly detail: JsonText;
}

export interface AuditQuery extends PageRequest {
  /** Only the entry with this `trace_id`; an invalid `trace_id` matches none. */
  readonly traceId?: string | null;
}

/** Profiles, and how identifiers are linked to them. */
export interface ProfileReader {
  /** `normalised` as by `identity/match-keys.ts`. */
  findProfile(tenantId: TenantId, type: IdentifierType, normalised: string): Promise<StoredProfile | undefined>;
  /** By public id; that of a node which was merged away gives the surviving profile. */
  profile(tenantId: TenantId, id: string): Promise<StoredProfile | undefined>;
  /** How many profiles there are: kept as a sum, so asking is cheap however many they are. */
  profileCount(tenantId: TenantId): Promise<number>;
  /** Profiles oldest first, for exports. */
  profiles(tenantId: TenantId, page: PageRequest): Promise<Page<StoredProfile>>;
  /**
   * People whose identifiers or names begin with a text, or everyone: those that match as a whole first, then by the
   * number of the root, newest first. Complete over all pages; a page may be short (`isPartial`).
   */
  searchPeople(tenantId: TenantId, query: PeopleQuery): Promise<PeoplePage>;
  /** Names and identifiers of these profiles, by the requested id; unknown ids are left out. */
  people(tenantId: TenantId, ids: readonly string[]): Promise<Map<string, StoredPerson>>;
  identity(tenantId: TenantId, id: string): Promise<StoredIdentity | undefined>;
}

/** Events, by their own time or in the order of arrival. */
export interface EventReader {
  /** Undefined when `query.profileId` is given and unknown. */
  events(tenantId: TenantId, query: EventQuery): Promise<Page<StoredEvent> | undefined>;
  /**
   * In order of arrival, oldest first, after the cursor `after`; null starts with the next event to arrive, `OLDEST`
   * (views/cursor.ts) with the oldest event that is stored. A cursor stays valid for as long as the events after it
   * are stored; one after which events may be missing is rejected with `BadCursorError`, whose message says how to continue.
   */
  arrivals(tenantId: TenantId, after: string | null, limit: number): Promise<Arrivals>;
  /**
   * For live views, which show a few events of many: looks through what arrived after a cursor as `arrivals` does, and
   * gives the newest that match, at most `limit`, in the order of arrival. It may end before the end, too.
   */
  newestArrivals(tenantId: TenantId, after: string, filter: ArrivalFilter, limit: number): Promise<NewestArrivals>;
  counts(tenantId: TenantId, query: CountQuery): Promise<CountBucket[]>;
}

/** Requests, and the users in them that failed. */
export interface TraceReader {
  /** What became of a request; undefined until it is processed. A null tenant searches all of them. */
  trace(tenantId: TenantId | null, traceId: string): Promise<StoredTrace | undefined>;
  /** Requests by trace_id (version 7: by time), newest first. A page may be short and still have a cursor. */
  traces(tenantId: TenantId, query: TraceQuery): Promise<Page<TraceSummary>>;
  rejections(tenantId: TenantId, query: RejectionQuery): Promise<Page<StoredRejection>>;
  /** By time of receipt; the most frequent first, at most 100. */
  rejectionReasons(tenantId: TenantId, range: TimeRange): Promise<RejectionReason[]>;
  /** Undefined for one that is unknown, or not kept any more. */
  rejection(tenantId: TenantId, traceId: string, userIndex: number): Promise<StoredRejection | undefined>;
  /** How many of them are not resubmitted. */
  countRejections(tenantId: TenantId, filter: RejectionFilter): Promise<number>;
  /** Dead letters of all tenants, newest first, without those that a retry has stored. */
  deadLetters(limit: number): Promise<DeadLetter[]>;
  /** Violations of one version of the tracking plan, or of all; the most frequent first, at most 500. */
  planViolations(tenantId: TenantId, version: number | null): Promise<StoredPlanViolation[]>;
  /** Dead letters of one tenant, newest first, without those that a retry has stored. */
  listDeadLetters(tenantId: TenantId, query: DeadLetterFilter & PageRequest): Promise<Page<DeadLetter>>;
}

/** What was received, and what became of it. */
export interface LedgerReader {
  /** All tenants that ever sent anything. */
  tenants(): Promise<TenantId[]>;
  /** Every minute that has a part in the range, without what is still in the log. Kept for 7 days. */
  receipts(tenantId: TenantId, range: TimeRange): Promise<Receipts>;
  /** The ledger without what is still in the log (`pending` is 0), and the positions up to which it covers the log. */
  ledger(tenantId: TenantId | null, hours: TimeRange): Promise<StoredLedger>;
  /**
   * Waits until what was received up to then is processed, for at most `msMax`; false if that is not long enough. A store
   * does not see the log: true there.
   */
  waitUntilProcessed(receivedAt: number, msMax: number): Promise<boolean>;
  /** Counts the stored rows, to compare them with the ledger. Slow: for `sluice doctor`. */
  recount(): Promise<{ readonly eventsInLedger: number; readonly eventsInTables: number }>;
}

/** Something that was new when it was first seen: a property (`type` is null), or another type of a property's values. */
export interface CatalogueChange {
  readonly property: string;
  readonly type: ValueType | null;
  readonly at: number;
}

/** An event name in the catalogue, or what users set on people. Times are times of receipt. */
export interface CatalogueEntry {
  /** Empty for what users set. */
  readonly name: string;
  /** Stored events, or users, since it was first seen. Neither an erase nor retention changes it. */
  readonly count: number;
  /** How many of them were parsed: fewer than `count` where a sample was. */
  readonly examined: number;
  readonly firstSeen: number;
  readonly lastSeen: number;
  /** Oldest first, at most 20. */
  readonly keyIds: readonly string[];
  readonly propertyCount: number;
  /** The newest few after the entry was first seen, oldest first. */
  readonly changes: readonly CatalogueChange[];
}

export interface CatalogueProperty {
  readonly name: string;
  /** How many of the examined events, or users, have it. */
  readonly count: number;
  /** In the order of `VALUE_TYPES`. */
  readonly types: readonly { readonly type: ValueType; readonly count: number; readonly firstSeen: number }[];
  readonly firstSeen: number;
  readonly lastSeen: number;
  /** Strings, numbers and booleans as text, cut to 64 characters. */
  readonly examples: readonly string[];
}

export interface CatalogueDetails extends CatalogueEntry {
  /** The most frequent first. */
  readonly properties: readonly CatalogueProperty[];
  /** Values of further properties, beyond the bound. */
  readonly otherProperties: number;
}

export interface Catalogue {
  /** By name. */
  readonly events: readonly CatalogueEntry[];
  /** Events with further names, beyond the bound. */
  readonly otherEvents: number;
  readonly userProperties: CatalogueDetails | null;
  readonly profileFields: CatalogueDetails | null;
}

/** Which events and properties are received, and what they look like. A few seconds behind the events. */
export interface CatalogueReader {
  catalogue(tenantId: TenantId): Promise<Catalogue>;
  /** Undefined for a name that is not in it. */
  cataloguedEvent(tenantId: TenantId, eventName: string): Promise<CatalogueDetails | undefined>;
}

/** The two operations that change stored data without an event, and their audit. */
export interface ProfileChanges {
  /** Undefined for an unknown profile. */
  unmerge(tenantId: TenantId, id: string, mergedBy: string, audit: AuditContext): Promise<UnmergeResult | undefined>;
  /** False for an unknown profile. */
  erase(tenantId: TenantId, id: string, audit: AuditContext): Promise<boolean>;
  audit(tenantId: TenantId, query: AuditQuery): Promise<Page<AuditRow>>;
}

/** An identifier, as the client wrote it. */
export interface PredictedIdentifier {
  readonly type: IdentifierType;
  readonly value: string;
}

/** Public ids; `new:<userIndex>` for a profile that this user of the request would create. */
export interface PredictedMerge {
  readonly from: string;
  readonly into: string;
  readonly via: PredictedIdentifier;
}

export interface PredictedRefusal extends PredictedIdentifier {
  readonly reason: RefusalReason;
}

/** A change of the profile that the user ends up in, by this user. Null is not set. */
export interface PropertyChange {
  readonly kind: 'profile_fields' | 'user_properties';
  readonly name: string;
  readonly before: JsonText | null;
  readonly after: JsonText | null;
}

/** What would become of one user of a request: what its trace would show, and why. */
export interface PredictedUser extends Omit<TracedUser, 'merged'> {
  /** The profile does not exist yet; then `profileId` is `new:<userIndex>`. */
  readonly isNew: boolean;
  /** The trace that used the Idempotency-Key with the same body: nothing of this user would be stored. */
  readonly duplicateOf: string | null;
  /** That would be linked to the profile. */
  readonly newIdentifiers: readonly PredictedIdentifier[];
  readonly merges: readonly PredictedMerge[];
  readonly refusals: readonly PredictedRefusal[];
  readonly propertyChanges: readonly PropertyChange[];
  /** How many more there are that are too large to list. */
  readonly propertyChangesOmitted: number;
}

export interface Prediction {
  readonly users: readonly PredictedUser[];
  /** Requests of this tenant that wait in the log and are not considered. A store does not see the log: 0 there. */
  readonly pendingRequests: number;
}

/** What would become of a request, without storing it. */
export interface Predictions {
  /**
   * What the processor would make of one request, given as its log would return it, if it came next. Runs the
   * processor's own code on what is stored now, and changes nothing. `appliedAt` is when a job would apply the records.
   */
  predict(tenantId: TenantId, records: readonly LogRecord[], appliedAt?: number): Promise<Prediction>;
}

/**
 * Fixing and resubmitting what was rejected, and retrying dead letters. Each call writes a job, durably, and the processor
 * applies it in its own transactions: so each rejection and each dead letter has its effect once.
 */
export interface JobChanges {
  /** Marks the rejection and makes its job: both or neither. `already`: it was resubmitted before. */
  resubmitUser(tenantId: TenantId, fixed: FixedUser, audit: AuditContext): Promise<StoredJob | 'unknown' | 'already'>;
  /** Undefined, and no job, where no rejection matches. */
  resubmitAll(tenantId: TenantId, job: NewResubmitJob, audit: AuditContext): Promise<StoredJob | undefined>;
  /** Undefined for a dead letter that is unknown, or that was retried before. */
  retryDeadLetter(
    tenantId: TenantId,
    traceId: string,
    firstUserIndex: number,
    audit: AuditContext,
  ): Promise<StoredJob | undefined>;
  /** Undefined, and no job, where no dead letter matches. */
  retryDeadLetters(tenantId: TenantId, filter: DeadLetterFilter, audit: AuditContext): Promise<StoredJob | undefined>;
  job(tenantId: TenantId, id: string): Promise<StoredJob | undefined>;
  /** Newest first. */
  jobs(tenantId: TenantId, page: PageRequest): Promise<Page<StoredJob>>;
  /** Changes a job that is not done; one that is done stays as it is. Undefined for an unknown one. */
  setJobStatus(tenantId: TenantId, id: string, status: 'running' | 'stopped'): Promise<StoredJob | undefined>;
}

/** Everything, for composition. Callers take the parts that they use. */
export interface Store
  extends ProfileReader,
    EventReader,
    TraceReader,
    LedgerReader,
    CatalogueReader,
    ProfileChanges,
    JobChanges,
    Predictions {
  close(): Promise<void>;
}

/** A cursor that this server did not make. The API responds with 400. */
export class BadCursorError extends Error {
  override readonly name = 'BadCursorError';
}
