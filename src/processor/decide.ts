/**
 * What becomes of the users of a batch, for one tenant: which are duplicates, which belong to a person who was erased,
 * which profile the others get, and what their trace shows. No I/O of its own: it reads lazily through the lookup
 * result, and the same results and records give the same decision. Every user and every event that the edge accepted
 * ends up in exactly one of stored, duplicates and erased.
 *
 * The edge validates a retry by its current rules and tracking plan, which may not be those of the first request.
 * So a user of a retry is stored if the first request rejected it and nothing has stored it since; and a user that a
 * retry rejects is not kept as a rejection, because the first request has stored or kept it.
 */

import type { Outcome } from '../identity/graph.ts';
import { resolve } from '../identity/resolve.ts';
import {
  DAY_MS,
  EVENT_ID_WINDOW_MS,
  IDEMPOTENCY_WINDOW_MS,
  type IdentifierType,
  LIMITS,
  type MatchKey,
  type Origin,
  REFUSAL_REASONS,
} from '../model.ts';
import {
  type AcceptedRejection,
  type EventIdUse,
  type LookupResult,
  type KeyUse,
  type LookupRequest,
  type PlanViolation,
  type RecordHeader,
  type RecordToStore,
  type RejectionToStore,
  type ResolvedPerson,
  type TenantBatch,
  type Tombstone,
  type UserNote,
  type UserToStore,
} from '../store-writer.ts';
import {
  hasSeveralUsers,
  isAnythingAccepted,
  isOfBody,
  keyOfRequest,
  olderUseName,
  rememberedBody,
} from '../views/key-use.ts';
import { rejectionId } from '../views/kept-rejections.ts';
import { ERASED_USER } from '../views/trace.ts';
import type { WarningPlan } from './plan-warnings.ts';
import type { PreparedEvent, PreparedRecord, PreparedUser } from './prepare.ts';

/** Beyond these a timestamp is flagged: its clock is wrong rather than late. */
const FUTURE_MS_MAX = DAY_MS;
const PAST_MS_MAX = 5 * 365 * DAY_MS;

export function lookupRequestOf(tenantId: string, records: readonly PreparedRecord[]): LookupRequest {
  const users = records.flatMap((record) => record.users);
  const idempotencyKeys: { key: string; bodyHash: string }[] = [];
  const eventIds: string[] = [];
  let receivedAtMin = Number.POSITIVE_INFINITY;
  for (const { header, users: prepared } of records) {
    if (header.receivedAt < receivedAtMin) receivedAtMin = header.receivedAt;
    const { idempotencyKey: key, bodyHash } = header;
    if (key !== null && bodyHash !== null) {
      idempotencyKeys.push({ key, bodyHash });
      const requestKey = keyOfRequest(key);
      if (requestKey !== key) idempotencyKeys.push({ key: requestKey, bodyHash });
    }
    for (const { events } of prepared) for (const { eventId } of events) if (eventId !== null) eventIds.push(eventId);
  }
  return { tenantId, users, idempotencyKeys, eventIds, receivedAtMin };
}

/** A user that is neither a duplicate nor erased, on its way to a node. */
interface KeptUser {
  readonly user: PreparedUser;
  readonly events: readonly PreparedEvent[];
  /** Types of the identifiers that were left out, because they are of an erased person. */
  readonly erasedTypes: readonly IdentifierType[];
}

/** One record before its users are resolved to profiles. */
interface TriagedRecord {
  readonly record: PreparedRecord;
  readonly rejections: readonly RejectionToStore[];
  readonly duplicateOf: string | null;
  /** The trace that used the same Idempotency-Key with another body. */
  readonly keyUsedBy: string | null;
  readonly kept: readonly KeptUser[];
  /** Users of a duplicate that the first request rejected, by index: they are not duplicates. */
  readonly acceptedNow: ReadonlySet<number>;
  readonly duplicateEvents: ReadonlyMap<number, number>;
  readonly erased: ReadonlySet<number>;
}

/** `plan`: the tracking plan of the tenant, if it warns. */
export function decide(
  tenantId: string,
  result: LookupResult,
  records: readonly PreparedRecord[],
  plan?: WarningPlan,
): TenantBatch {
  const uses = new EarlierUses(result);
  const erasures = new Erasures(result);
  const triaged = records.map((record) => triage(record, uses, erasures));
  const keptUsers = triaged.flatMap(({ kept }) => kept.map(({ user }) => user));
  const changes = resolve(result.snapshot, keptUsers);
  const resolved = newlyResolved(result, keptUsers, changes.outcomes);
  const violations: PlanViolation[] = [];
  let next = 0;
  const decided = triaged.map((one) => {
    const outcomes = changes.outcomes.slice(next, next + one.kept.length);
    next += one.kept.length;
    return toStore(one, outcomes, plan, violations);
  });
  return {
    tenantId,
    changes,
    resolved,
    records: decided,
    newestKeyUses: uses.newestKeyUses,
    olderKeyUses: uses.olderKeyUses,
    eventIds: uses.eventIds,
    acceptedRejections: uses.acceptedRejections,
    tombstones: erasures.tombstones,
    ...(plan !== undefined && { violations }),
  };
}

/** With no refusal, all keys of a user are in one profile, and stay there until an unmerge or an erase. */
function newlyResolved(
  result: LookupResult,
  users: readonly PreparedUser[],
  outcomes: readonly Outcome[],
): ResolvedPerson[] {
  const resolved: ResolvedPerson[] = [];
  for (const [index, { node, refusals }] of outcomes.entries()) {
    const user = users[index] as PreparedUser;
    if (node === null || refusals.length > 0 || result.snapshot.resolvedNodeOf?.(user) !== undefined) continue;
    resolved.push({ user, node });
  }
  return resolved;
}

/** What a request's Idempotency-Key says of it; at least one of the two is null. */
interface EarlierUse {
  /** The trace that used the key with the same body. */
  readonly duplicateOf: string | null;
  /** The trace that used the key with another body. */
  readonly keyUsedBy: string | null;
}

const NOT_USED: EarlierUse = { duplicateOf: null, keyUsedBy: null };

/** First uses and open rejections: those of the store, and those of earlier records of this batch. */
class EarlierUses {
  readonly #result: LookupResult;
  readonly #newest = new Map<string, KeyUse>();
  readonly #older = new Map<string, KeyUse>();
  readonly newestKeyUses: (KeyUse & { readonly key: string })[] = [];
  readonly olderKeyUses: (KeyUse & { readonly key: string })[] = [];
  readonly eventIds: EventIdUse[] = [];
  /** When each event id was last used in this batch. */
  readonly #eventIdsHere = new Map<string, number>();
  /** Users that were rejected in this batch, by the trace of a request that may be retried. */
  readonly #rejectedHere = new Map<string, number[]>();
  /** Ids of rejections that are accepted in this batch. */
  readonly #acceptedHere = new Set<string>();
  readonly acceptedRejections: AcceptedRejection[] = [];

  constructor(result: LookupResult) {
    this.#result = result;
  }

  /** What the key was used for within the window; unless the request is a duplicate, its own use is remembered. */
  earlierUse(header: RecordHeader): EarlierUse {
    const { idempotencyKey: key, bodyHash, traceId, receivedAt, usersAccepted, usersRejected } = header;
    if (key === null || bodyHash === null) return NOT_USED;
    const isRecent = (use: KeyUse | undefined): use is KeyUse =>
      use !== undefined && Math.abs(receivedAt - use.receivedAt) < IDEMPOTENCY_WINDOW_MS;
    const newest = this.#newestUse(key);
    const sameBody = this.#useOfBody(key, bodyHash, newest);
    if (isRecent(sameBody)) {
      // A request that was cut into several records is not its own duplicate.
      return sameBody.traceId === traceId ? NOT_USED : { duplicateOf: sameBody.traceId, keyUsedBy: null };
    }
    const requestKey = keyOfRequest(key);
    const whole = requestKey === key ? undefined : this.#useOfBody(requestKey, bodyHash);
    if (isRecent(whole) && hasSeveralUsers(whole)) return { duplicateOf: whole.traceId, keyUsedBy: null };
    // Where no user was valid, nothing was stored, and the client sends the fixed request with the same key.
    const isUsedUp = isRecent(newest) && isAnythingAccepted(newest);
    const remembered = rememberedBody(bodyHash, usersAccepted > 0 || isUsedUp, usersAccepted + usersRejected > 1);
    const use = { key, traceId, receivedAt, bodyHash: remembered };
    this.#newest.set(key, use);
    this.newestKeyUses.push(use);
    if (newest !== undefined && newest !== sameBody) this.#rememberOlder({ ...newest, key });
    return { duplicateOf: null, keyUsedBy: isUsedUp ? newest.traceId : null };
  }

  rememberRejections({ header: { idempotencyKey, traceId }, rejections }: PreparedRecord): void {
    if (idempotencyKey === null || rejections.length === 0) return;
    const earlier = this.#rejectedHere.get(traceId) ?? [];
    this.#rejectedHere.set(traceId, [...earlier, ...rejections.map(({ userIndex }) => userIndex)]);
  }

  /** Marks the rejection of this user of a retry as accepted; false if it has none, or is accepted already. */
  acceptNow(duplicateOf: string, { traceId: acceptedBy, userIndex }: Origin): boolean {
    const id = rejectionId(duplicateOf, userIndex);
    if (this.#acceptedHere.has(id)) return false;
    const isRejectedHere = this.#rejectedHere.get(duplicateOf)?.includes(userIndex) ?? false;
    if (!isRejectedHere && !this.#result.openRejections(duplicateOf).has(userIndex)) return false;
    this.#acceptedHere.add(id);
    this.acceptedRejections.push({ traceId: duplicateOf, userIndex, acceptedBy });
    return true;
  }

  #newestUse(key: string): KeyUse | undefined {
    return this.#newest.get(key) ?? this.#result.newestUseOfKey(key);
  }

  #useOfBody(key: string, bodyHash: string, newest = this.#newestUse(key)): KeyUse | undefined {
    if (newest === undefined || isOfBody(newest, bodyHash)) return newest;
    return this.#older.get(olderUseName(key, bodyHash)) ?? this.#result.olderUseOfKey(key, bodyHash);
  }

  #rememberOlder(use: KeyUse & { readonly key: string }): void {
    this.#older.set(olderUseName(use.key, use.bodyHash), use);
    this.olderKeyUses.push(use);
  }

  /** Claims the event id; false if it was used before. */
  claimEventId(id: string, { receivedAt, appliedAt = receivedAt }: RecordHeader): boolean {
    const used = this.#eventIdsHere.get(id) ?? this.#result.lastUseOfEventId(id) ?? Number.NEGATIVE_INFINITY;
    if (Math.abs(receivedAt - used) < EVENT_ID_WINDOW_MS || Math.abs(appliedAt - used) < EVENT_ID_WINDOW_MS) {
      return false;
    }
    this.#eventIdsHere.set(id, appliedAt);
    this.eventIds.push({ id, receivedAt: appliedAt });
    return true;
  }
}

/**
 * Rule 17 on the way into the store: data received before its person was erased does not come back. A user with a
 * user_id of its own that was not erased is another person who shared an identifier (a device, a mailbox): it is stored,
 * without the erased identifiers. Any other user with an erased identifier is dropped, and its other identifiers are
 * taken to be of the erased person too, as far as data from before the erase is concerned.
 */
class Erasures {
  readonly #result: LookupResult;
  /** By type and value: found in this batch. */
  readonly #found = new Map<string, number>();
  readonly tombstones: Tombstone[] = [];

  constructor(result: LookupResult) {
    this.#result = result;
  }

  /** Whether anything was erased after this was received, so that its identifiers have to be checked. */
  mayConcern(receivedAt: number): boolean {
    return receivedAt <= this.#result.lastErasedAt;
  }

  /** The user, without erased identifiers if need be; null if it is the erased person. */
  remainderOf(user: PreparedUser): PreparedUser | null {
    const { receivedAt } = user.origin;
    const erased = user.keys.filter((key) => this.#erasedAt(key) >= receivedAt);
    if (erased.length === 0) return user;
    const keys = user.keys.filter((key) => !erased.includes(key));
    if (keys[0]?.type === 'user_id') return { ...user, keys };
    const erasedAt = Math.max(...erased.map((key) => this.#erasedAt(key)));
    for (const key of keys) {
      this.#found.set(`${key.type}:${key.value}`, erasedAt);
      this.tombstones.push({ key, erasedAt });
    }
    return null;
  }

  #erasedAt(key: MatchKey): number {
    const stored = this.#result.erasedAt(key) ?? Number.NEGATIVE_INFINITY;
    if (this.#found.size === 0) return stored;
    return Math.max(stored, this.#found.get(`${key.type}:${key.value}`) ?? Number.NEGATIVE_INFINITY);
  }
}

function triage(record: PreparedRecord, uses: EarlierUses, erasures: Erasures): TriagedRecord {
  const { header } = record;
  const { duplicateOf, keyUsedBy } = uses.earlierUse(header);
  if (duplicateOf === null) uses.rememberRejections(record);
  const mayBeErased = erasures.mayConcern(header.receivedAt);
  const rejections = mayBeErased ? record.rejections.map(withoutPayload) : record.rejections;
  const kept: KeptUser[] = [];
  // Most records have none of these; a request of one user would pay for all three.
  let duplicateEvents: Map<number, number> | undefined;
  let erased: Set<number> | undefined;
  let acceptedNow: Set<number> | undefined;
  for (const user of record.users) {
    if (duplicateOf !== null) {
      if (!uses.acceptNow(duplicateOf, user.origin)) continue;
      acceptedNow ??= new Set();
      acceptedNow.add(user.origin.userIndex);
    }
    const rest = mayBeErased ? erasures.remainderOf(user) : user;
    if (rest === null) {
      erased ??= new Set();
      erased.add(user.origin.userIndex);
      continue;
    }
    const events = user.events.filter(({ eventId }) => eventId === null || uses.claimEventId(eventId, header));
    const duplicates = user.events.length - events.length;
    if (duplicates > 0) {
      duplicateEvents ??= new Map();
      duplicateEvents.set(user.origin.userIndex, duplicates);
    }
    // All of its events are stored already: a retry, which must not set old properties again.
    if (events.length > 0)
      kept.push({ user: rest, events, erasedTypes: rest === user ? NO_TYPES : erasedTypesOf(user, rest) });
  }
  return {
    record,
    rejections,
    duplicateOf,
    keyUsedBy,
    kept,
    acceptedNow: acceptedNow ?? NONE_ACCEPTED_NOW,
    duplicateEvents: duplicateEvents ?? NO_DUPLICATES,
    erased: erased ?? NONE_ERASED,
  };
}

const NO_TYPES: readonly IdentifierType[] = [];
const NO_DUPLICATES: ReadonlyMap<number, number> = new Map();
const NONE_ERASED: ReadonlySet<number> = new Set();
const NONE_ACCEPTED_NOW: ReadonlySet<number> = new Set();

/** What was sent may be about the person who was erased while it waited. */
function withoutPayload({ userIndex, message }: RejectionToStore): RejectionToStore {
  return { userIndex, message, payload: null };
}

function erasedTypesOf(user: PreparedUser, rest: PreparedUser): IdentifierType[] {
  return user.keys.filter((key) => !rest.keys.includes(key)).map(({ type }) => type);
}

/** What the trace shows of violations of the plan, by a user as it is stored; adds them to `violations`. */
function warningsOf(
  plan: WarningPlan,
  violations: PlanViolation[],
  user: PreparedUser,
  events: readonly PreparedEvent[],
): string[] {
  const { version } = plan;
  const { receivedAt: at, traceId } = user.origin;
  return plan.violationsOf(user, events).map(({ text, countedAs }) => {
    violations.push({ ...countedAs, version, count: 1, at, traceId });
    return text;
  });
}

const NO_WARNINGS: readonly string[] = [];

function toStore(
  triaged: TriagedRecord,
  outcomes: readonly Outcome[],
  plan: WarningPlan | undefined,
  violations: PlanViolation[],
): RecordToStore {
  const { record, rejections, duplicateOf, keyUsedBy, kept, duplicateEvents, erased } = triaged;
  const users: UserToStore[] = [];
  let notes: UserNote[] = [];
  let storedEvents = 0;
  for (let index = 0; index < kept.length; index++) {
    const { user, events, erasedTypes } = kept[index] as KeptUser;
    const outcome = outcomes[index] as Outcome;
    const { origin, propertyUpdate } = user;
    users.push({ origin, node: outcome.node, events, propertyUpdate });
    storedEvents += events.length;
    const warnings = plan === undefined ? NO_WARNINGS : warningsOf(plan, violations, user, events);
    const note = noteOf(user, outcome, duplicateEvents.get(origin.userIndex) ?? 0, erasedTypes, warnings);
    if (note !== null) notes.push(note);
  }
  if (duplicateEvents.size > 0) {
    const keptIndexes = new Set(kept.map(({ user }) => user.origin.userIndex));
    for (const [userIndex, duplicates] of duplicateEvents) {
      if (keptIndexes.has(userIndex)) continue;
      notes.push({ userIndex, duplicateEvents: duplicates, warnings: [ALL_THERE_ALREADY] });
    }
  }
  for (const userIndex of erased) notes.push({ userIndex, warnings: [ERASED_USER] });
  if (duplicateOf !== null) notes = withDuplicates(notes, triaged, duplicateOf);
  if (notes.length > 1) notes.sort((a, b) => a.userIndex - b.userIndex);
  if (keyUsedBy !== null) notes = withKeyReused(notes, record, keyUsedBy);

  let allEvents = 0;
  let erasedEvents = 0;
  for (const { origin, events } of record.users) {
    allEvents += events.length;
    if (erased.has(origin.userIndex)) erasedEvents += events.length;
  }
  return {
    header: record.header,
    duplicateOf,
    users,
    rejections,
    notes,
    userTally: {
      stored: users.length,
      duplicates: record.users.length - users.length - erased.size,
      erased: erased.size,
    },
    eventTally: { stored: storedEvents, duplicates: allEvents - storedEvents - erasedEvents, erased: erasedEvents },
  };
}

const TOO_MANY_NAMES = `only the first ${LIMITS.namesPerNodeMax} names of user_properties or profile fields were kept`;
const ALL_THERE_ALREADY = 'nothing of this user was applied: all of its events were there already';
const NO_IDENTIFIER_LEFT = 'stored without a profile: no identifier is left that could be matched';

/** Adds warnings where the outcome differs from the response to the retry. */
function withDuplicates(
  notes: readonly UserNote[],
  { record: { users }, rejections, acceptedNow }: TriagedRecord,
  duplicateOf: string,
): UserNote[] {
  const noted = new Map(notes.map((note) => [note.userIndex, note]));
  const warn = (userIndex: number, warning: string): void => {
    const note = noted.get(userIndex);
    noted.set(userIndex, { ...note, userIndex, warnings: [warning, ...(note?.warnings ?? [])] });
  };
  // If all are duplicates, the trace says so itself.
  for (const { origin } of acceptedNow.size > 0 ? users : []) {
    const isAccepted = acceptedNow.has(origin.userIndex);
    warn(origin.userIndex, isAccepted ? `accepted now: trace ${duplicateOf} rejected it` : duplicateText(duplicateOf));
  }
  for (const { userIndex } of rejections) {
    warn(userIndex, `not kept as a rejection: this is a retry, and trace ${duplicateOf} has what became of this user`);
  }
  return [...noted.values()];
}

/** Begins as views/trace.ts expects for users without events. */
function duplicateText(duplicateOf: string): string {
  return `not stored: a duplicate of this user in trace ${duplicateOf}`;
}

/** On the first user only: the warning is about the request, and a client that reuses one key would get many. */
function withKeyReused(notes: readonly UserNote[], { users }: PreparedRecord, keyUsedBy: string): UserNote[] {
  const [first] = users;
  if (first === undefined) return [...notes];
  const { userIndex } = first.origin;
  const warning = `stored, although its Idempotency-Key was used with another body by trace ${keyUsedBy}: give each request a key of its own`;
  const note = notes.find((one) => one.userIndex === userIndex);
  const noted = { ...note, userIndex, warnings: [warning, ...(note?.warnings ?? [])] };
  return [noted, ...notes.filter((one) => one !== note)];
}

function noteOf(
  user: PreparedUser,
  outcome: Outcome,
  duplicates: number,
  erasedTypes: readonly IdentifierType[],
  planWarnings: readonly string[],
): UserNote | null {
  const { receivedAt, userIndex } = user.origin;
  const warnings: string[] = [];
  for (const type of user.junk)
    warnings.push(`identifiers.${type} is a placeholder value: it was not used for matching`);
  for (const type of erasedTypes)
    warnings.push(`identifiers.${type} was left out: the person it belonged to was erased`);
  if (outcome.node === null) warnings.push(NO_IDENTIFIER_LEFT);
  if (user.propertyUpdate?.isCut === true) warnings.push(TOO_MANY_NAMES);
  for (const { key, reason } of outcome.refusals) {
    warnings.push(`identifiers.${key.type} was not linked: ${REFUSAL_REASONS[reason]}`);
  }
  for (const { eventIndex, timestamp } of user.events) {
    if (timestamp > receivedAt + FUTURE_MS_MAX) warnings.push(`events[${eventIndex}].timestamp is in the future`);
    else if (timestamp < receivedAt - PAST_MS_MAX) {
      warnings.push(`events[${eventIndex}].timestamp is more than 5 years ago`);
    }
  }
  warnings.push(...planWarnings);
  if (warnings.length === 0 && outcome.merges.length === 0 && duplicates === 0) return null;
  return {
    userIndex,
    ...(outcome.merges.length > 0 && { merged: outcome.merges.map(({ from, into }) => [from, into] as const) }),
    ...(warnings.length > 0 && { warnings: warnings.slice(0, WARNINGS_MAX) }),
    ...(duplicates > 0 && { duplicateEvents: duplicates }),
  };
}

/** The first few odd timestamps of a user are enough. */
const WARNINGS_MAX = 20;
