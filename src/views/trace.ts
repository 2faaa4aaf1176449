/**
 * The outcome of a request, built from its records. Most of it follows from the events that are stored for it; the
 * record's notes have the rest (merges, warnings, duplicates, rejections). A request that the log split into several
 * records is reassembled. Users whose events were erased or have expired have no profile and no events in the response,
 * and a warning says so. Only merges that were not undone are listed. Also the list of requests, newest first. The same for
 * every store.
 */

import type { ForeignFormat, NodeNumber, TenantId } from '../model.ts';
import type { Page, Resubmission, StoredTrace, TracedUser, TraceQuery, TraceSummary } from '../store.ts';
import type { RecordToStore, UserNote } from '../store-writer.ts';
import { type CursorScope, scopedCursorOf, scopedNumbersOf } from './cursor.ts';

/** Of a user that waited in the log, or in a dead letter, while the person was erased. */
export const ERASED_USER = 'not stored: this person was erased after the request was received';

/** What `records.notes` holds, as JSON; absent members mean "none". */
interface RecordNotes {
  /** As `UserNote` in store-writer.ts, in order of userIndex. */
  readonly users?: readonly UserNote[];
  /** Format of the request, if not our own. */
  readonly format?: ForeignFormat;
  readonly rejected?: readonly (readonly [userIndex: number, message: string])[];
  /** Set if the record holds a resubmitted user. */
  readonly resubmitted?: Resubmission;
}

/** Null when there is nothing to note. */
export function notesOf({ header: { format, resubmitted }, notes, rejections }: RecordToStore): string | null {
  const isPlain = format === undefined && resubmitted === undefined;
  if (notes.length === 0 && rejections.length === 0 && isPlain) return null;
  const kept: RecordNotes = {
    ...(notes.length > 0 && { users: notes }),
    ...(format !== undefined && { format }),
    ...(resubmitted !== undefined && { resubmitted }),
    ...(rejections.length > 0 && { rejected: rejections.map(({ userIndex, message }) => [userIndex, message]) }),
  };
  return JSON.stringify(kept);
}

export interface TracedRecord {
  readonly no: number;
  readonly receivedAt: number;
  readonly processedAt: number;
  readonly firstUserIndex: number;
  readonly usersAccepted: number;
  readonly usersRejected: number;
  /** That were stored once. */
  readonly events: number;
  readonly duplicateOf: string | null;
  readonly keyId: string;
  /** `RecordNotes`, as JSON. */
  readonly notes: string | null;
}

/** The events of a user that are stored now, all on one node. */
export interface UserEvents {
  readonly node: NodeNumber | null;
  readonly events: number;
}

/** What the store says, at the same moment, of what the records name. */
interface TraceSources<Row extends TracedRecord> {
  /** By userIndex. */
  eventsOf(record: Row): ReadonlyMap<number, UserEvents>;
  /** The public id of a node; undefined for one that was erased. */
  publicId(node: NodeNumber): string | undefined;
  /** The public id of the profile that a node is part of now; null when it was erased. */
  profileId(node: NodeNumber): string | null;
  /** Merges by this user of the request within the profile that the node has now, in the order of the log. */
  standingMerges(node: NodeNumber, userIndex: number): readonly { from: NodeNumber; into: NodeNumber }[];
}

export function storedTrace<Row extends TracedRecord>(
  traceId: string,
  rows: readonly Row[],
  sources: TraceSources<Row>,
): StoredTrace | undefined {
  const records = rows.toSorted((a, b) => a.firstUserIndex - b.firstUserIndex);
  const first = records[0];
  if (first === undefined) return undefined;
  return {
    traceId: traceId.toLowerCase(),
    ...processedRequest(first, records),
    format: parsedNotes(first).format ?? 'sluice',
    users: allUsers(records, sources),
  };
}

function processedRequest(first: RequestRecord, records: readonly RequestRecord[]) {
  return {
    status: 'processed' as const,
    receivedAt: first.receivedAt,
    processedAt: Math.max(...records.map(({ processedAt }) => processedAt ?? 0)),
    usersAccepted: records.reduce((sum, { usersAccepted }) => sum + usersAccepted, 0),
    // The records of the request may have expired before a rejected user of it was resubmitted.
    usersRejected: Math.max(
      0,
      records.reduce((sum, { usersRejected }) => sum + usersRejected, 0),
    ),
    duplicateOf: duplicateOfAll(records),
    keyId: first.keyId,
  };
}

type RequestRecord = Omit<TraceSummary, 'traceId' | 'status' | 'events'>;

/**
 * Where each user is a record, those of a request and of its retry may be processed in any order. What was accepted
 * decides; of a request without a valid user, what was rejected.
 */
function duplicateOfAll(records: readonly RequestRecord[]): string | null {
  const accepted = records.filter(({ usersAccepted }) => usersAccepted > 0);
  const deciding = accepted.length > 0 ? accepted : records;
  return deciding.find(({ duplicateOf }) => duplicateOf !== null)?.duplicateOf ?? null;
}

/** A user that was rejected at first and resubmitted is shown as what it is now. */
function allUsers<Row extends TracedRecord>(records: readonly Row[], sources: TraceSources<Row>): TracedUser[] {
  const [resubmitted, received] = [records.filter(isResubmission), records.filter((row) => !isResubmission(row))];
  const users = new Map(
    received.flatMap((record) => usersOf(record, sources)).map((user) => [user.userIndex, user] as const),
  );
  for (const record of resubmitted) {
    const { resubmitted: how } = parsedNotes(record);
    // One user, which was accepted.
    const [user] = usersOf({ ...record, usersRejected: 0 }, sources);
    if (user !== undefined) users.set(user.userIndex, how === undefined ? user : { ...user, resubmitted: how });
  }
  return [...users.values()].sort((a, b) => a.userIndex - b.userIndex);
}

/** Its record holds one user more than the request had accepted, and takes one rejected user away. */
function isResubmission({ usersRejected }: TracedRecord): boolean {
  return usersRejected < 0;
}

export function parsedNotes({ notes }: Pick<TracedRecord, 'notes'>): RecordNotes {
  return JSON.parse(notes ?? '{}') as RecordNotes;
}

function usersOf<Row extends TracedRecord>(record: Row, sources: TraceSources<Row>): TracedUser[] {
  const notes = parsedNotes(record);
  const rejected = new Map(notes.rejected);
  const noted = new Map(notes.users?.map((note) => [note.userIndex, note]));
  const stored = sources.eventsOf(record);
  const storedEvents = stored.values().reduce((sum, { events }) => sum + events, 0);
  const hasLostEvents = storedEvents < record.events;
  // Without its notes it is unknown which users were rejected; only those with events are certain.
  const isCertain = record.usersRejected === rejected.size;
  const users: TracedUser[] = [];
  const end = record.firstUserIndex + record.usersAccepted + record.usersRejected;
  for (let userIndex = record.firstUserIndex; userIndex < end; userIndex += 1) {
    const message = rejected.get(userIndex);
    const note = noted.get(userIndex);
    if (message !== undefined) {
      users.push({ userIndex, status: 'rejected', ...NOTHING_STORED, warnings: note?.warnings ?? [], message });
    } else if (isCertain || stored.has(userIndex) || note !== undefined) {
      const user = acceptedUser(sources, userIndex, stored.get(userIndex), note);
      const isGone = hasLostEvents && user.events === 0 && !wasNeverStored(note);
      users.push(isGone ? { ...user, warnings: [...user.warnings, EVENTS_ARE_GONE] } : user);
    }
  }
  return users;
}

const EVENTS_ARE_GONE = 'its events are not stored any more: erased, or older than SLUICE_EVENT_RETENTION';
const MERGE_WAS_UNDONE = 'a merge of this request was undone';
/** How the processor's warning begins when a user was received too late to be stored (rule 17). */
const NOT_STORED = 'not stored: ';

/**
 * A user who resent some events and was erased later looks the same as one who resent all of them, so neither gets the
 * warning that events are gone.
 */
function wasNeverStored(note: UserNote | undefined): boolean {
  if ((note?.duplicateEvents ?? 0) > 0) return true;
  return note?.warnings?.some((warning) => warning.startsWith(NOT_STORED)) ?? false;
}

type Lookups = Omit<TraceSources<TracedRecord>, 'eventsOf'>;

function acceptedUser(
  lookups: Lookups,
  userIndex: number,
  stored: UserEvents | undefined,
  note: UserNote | undefined,
): TracedUser {
  const node = stored?.node ?? null;
  const { merged, isUndone } = mergedBy(lookups, userIndex, node, note?.merged ?? []);
  const warnings = note?.warnings ?? [];
  return {
    userIndex,
    status: 'accepted',
    profileId: node === null ? null : lookups.profileId(node),
    events: stored?.events ?? 0,
    duplicateEvents: note?.duplicateEvents ?? 0,
    merged,
    warnings: isUndone ? [...warnings, MERGE_WAS_UNDONE] : warnings,
    message: null,
  };
}

/**
 * Those of a user's merges that were not undone. Each joined the user's node to another one, so they are found in the
 * profile that this node belongs to now. An erased person is not named, nor are their merges shown.
 */
function mergedBy(
  { publicId, standingMerges }: Lookups,
  userIndex: number,
  node: NodeNumber | null,
  noted: NonNullable<UserNote['merged']>,
): { readonly merged: TracedUser['merged']; readonly isUndone: boolean } {
  if (noted.length === 0 || node === null) return { merged: [], isUndone: false };
  // Not as noted: an unmerge of other merges may have changed who survived.
  const merged = standingMerges(node, userIndex).flatMap((merge) => {
    const [from, into] = [publicId(merge.from), publicId(merge.into)];
    return from === undefined || into === undefined ? [] : [{ from, into }];
  });
  const living = noted.filter((nodes) => nodes.every((no) => publicId(no) !== undefined));
  return { merged, isUndone: merged.length < living.length };
}

/** For a user of which nothing is stored: it was rejected, or is not processed yet. */
export const NOTHING_STORED = { profileId: null, events: 0, duplicateEvents: 0, merged: [] } as const;

/**
 * Records of all tenants that one page of the list looks at, of a tenant that sends little next to one that sends much. They
 * are read by trace_id, a UUID version 7, which begins with the time and has an index of all tenants together. A page may
 * end early, with a cursor that continues.
 */
export const VISITED_MAX = 50_000;

export const HIGHEST_TRACE_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/** Uses the id of the tenant, since records that are still in the log have no tenant number. */
export function traceScope(tenantId: TenantId, { status }: TraceQuery): CursorScope {
  return [0, tenantId, status];
}

export function traceCursor(scope: CursorScope, traceId: string): string {
  const hex = traceId.replaceAll('-', '');
  return scopedCursorOf('traces', scope, ...[0, 8, 16, 24].map((at) => Number.parseInt(hex.slice(at, at + 8), 16)));
}

export function traceIdBefore(scope: CursorScope, cursor: string | null): string {
  if (cursor === null) return HIGHEST_TRACE_ID;
  const parts = scopedNumbersOf('traces', scope, cursor, 4);
  const hex = parts.map((part) => (Math.abs(part) % 2 ** 32).toString(16).padStart(8, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

export interface SummarisedRecord extends Omit<TraceSummary, 'status'> {
  readonly firstUserIndex: number;
}

/** Collects one page of a tenant's requests from records of all tenants, which are added newest first. */
export class TracePage {
  readonly #tenant: number;
  readonly #scope: CursorScope;
  readonly #limit: number;
  readonly #traces: SummarisedRecord[][] = [];
  #visited = 0;
  #last: string | undefined;

  constructor(tenant: number, scope: CursorScope, limit: number) {
    this.#tenant = tenant;
    this.#scope = scope;
    this.#limit = limit;
  }

  /** False when the page ends before this record. */
  add(tenant: number, record: SummarisedRecord): boolean {
    const isNext = record.traceId !== this.#last;
    const isOwn = tenant === this.#tenant;
    const isFull = this.#visited >= VISITED_MAX || (isOwn && this.#traces.length === this.#limit);
    if (isNext && isFull) return false;
    this.#visited += 1;
    this.#last = record.traceId;
    if (!isOwn) return true;
    if (isNext) this.#traces.push([]);
    this.#traces.at(-1)?.push(record);
    return true;
  }

  take(isLastPage: boolean): Page<TraceSummary> {
    const nextCursor = isLastPage || this.#last === undefined ? null : traceCursor(this.#scope, this.#last);
    return { rows: this.#traces.map(traceSummary), nextCursor };
  }
}

function traceSummary(records: readonly SummarisedRecord[]): TraceSummary {
  const inOrder = records.toSorted((a, b) => a.firstUserIndex - b.firstUserIndex);
  const first = inOrder[0] as SummarisedRecord;
  const events = inOrder.reduce((sum, record) => sum + record.events, 0);
  return { traceId: first.traceId, ...processedRequest(first, inOrder), events };
}
