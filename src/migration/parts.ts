/**
 * Migrates an installation from one kind of store to another: the parts, the source and the target. Everything that a
 * store and a key store keep is here as parts, each a list of rows with named columns; caches, indexes and layouts are
 * not, since each store makes its own. `cli/migrate.ts` runs it.
 *
 * A part is read in a stable order, in chunks, each with the position behind it, and a chunk is written together with
 * that position or not at all: so an interrupted migration continues where it stopped. Numbers of nodes,
 * records and events stay what they are, because notes and cursors name them.
 */

import type { TenantId } from '../model.ts';
import type { LedgerHour } from '../store.ts';

/** `uuid` is a text, `integer` a whole number below 2^53, `number` any double. Every column but keys may be null. */
export type ColumnKind = 'integer' | 'number' | 'text' | 'uuid' | 'bytes';
export type MigratedValue = number | string | Uint8Array | null;

const ORIGIN = { received_at: 'integer', trace_id: 'uuid', user_index: 'integer' } as const;
const FIRST_USE = { received_at: 'integer', trace_id: 'uuid' } as const;
const ledgerSums = (of: 'users' | 'events') =>
  ({
    [`${of}_received`]: 'integer',
    [`${of}_stored`]: 'integer',
    [`${of}_duplicates`]: 'integer',
    [`${of}_erased`]: 'integer',
    [`${of}_expired`]: 'integer',
    [`${of}_dead_letters`]: 'integer',
  }) satisfies Record<string, ColumnKind>;

/** In the order in which they are migrated: what others refer to comes first. Columns in the order of a chunk. */
const MIGRATED_PARTS = {
  tenants: { no: 'integer', id: 'text', last_erased_at: 'integer' },
  nodes: {
    no: 'integer',
    tenant: 'integer',
    id: 'uuid',
    ...ORIGIN,
    // The surviving node of one that was merged away; null for a survivor.
    root: 'integer',
    events: 'integer',
    first_seen: 'integer',
    last_seen: 'integer',
    properties: 'text',
  },
  identifiers: { tenant: 'integer', type: 'integer', value: 'text', node: 'integer', raw: 'text', ...ORIGIN },
  merges: {
    no: 'integer',
    tenant: 'integer',
    node_a: 'integer',
    node_b: 'integer',
    from_node: 'integer',
    into_node: 'integer',
    via_type: 'integer',
    via_value: 'text',
    ...ORIGIN,
  },
  cannot_link: { node_a: 'integer', node_b: 'integer', trace_id: 'uuid', at: 'integer' },
  refusals: {
    node: 'integer',
    type: 'integer',
    value: 'text',
    reason: 'text',
    raw: 'text',
    ...ORIGIN,
    last_at: 'integer',
    count: 'integer',
  },
  // Starts of the server: cursors of arrivals name them, and stay good.
  starts: { no: 'integer', id: 'text', first_event: 'integer' },
  // The last event of each tenant, in the order of arrival, that has expired.
  expired_arrivals: { tenant: 'integer', event: 'integer' },
  tombstones: { tenant: 'integer', hash: 'bytes', erased_at: 'integer' },
  // What first uses are hashed with (views/keyed-hash.ts): one row, or none where nothing was ever stored.
  key_secret: { secret: 'bytes' },
  idempotency_keys: { hash: 'integer', rest: 'integer', ...FIRST_USE, body_hash: 'text' },
  event_ids: { hash: 'integer', rest: 'integer', received_at: 'integer' },
  counts: {
    tenant: 'integer',
    width: 'integer',
    start: 'integer',
    event_name: 'text',
    currency: 'text',
    events: 'integer',
    revenue: 'number',
  },
  ledger: {
    tenant: 'integer',
    hour: 'integer',
    users_rejected: 'integer',
    users_resubmitted: 'integer',
    ...ledgerSums('users'),
    ...ledgerSums('events'),
    dropped_by_clients: 'integer',
  },
  receipts: {
    tenant: 'integer',
    minute: 'integer',
    users_accepted: 'integer',
    users_rejected: 'integer',
    events_accepted: 'integer',
  },
  profile_counts: { tenant: 'integer', profiles: 'integer' },
  catalogue_entries: {
    ...{ tenant: 'integer', kind: 'text', name: 'text', count: 'integer', examined: 'integer' },
    ...{ first_seen: 'integer', last_seen: 'integer', property_count: 'integer', key_ids: 'text', changes: 'text' },
  },
  catalogue_properties: {
    ...{ tenant: 'integer', kind: 'text', name: 'text', examples_at: 'integer' },
    ...{ other_properties: 'integer', properties: 'text', examples: 'text' },
  },
  plan_violations: {
    tenant: 'integer',
    version: 'integer',
    event_name: 'text',
    path: 'text',
    message: 'text',
    count: 'integer',
    first_at: 'integer',
    last_at: 'integer',
    last_trace_id: 'text',
  },
  rejections: {
    no: 'integer',
    tenant: 'integer',
    ...ORIGIN,
    message: 'text',
    reason: 'text',
    reason_hash: 'bytes',
    payload: 'text',
    payload_is_cut: 'integer',
    key_id: 'text',
    key_kind: 'text',
    format: 'text',
    event_names: 'text',
    resubmitted_at: 'integer',
    accepted_by: 'uuid',
  },
  dead_letters: {
    no: 'integer',
    tenant: 'integer',
    partition: 'integer',
    position: 'integer',
    ...FIRST_USE,
    failed_at: 'integer',
    cause: 'text',
    first_user_index: 'integer',
    users: 'integer',
    events: 'integer',
    key_id: 'text',
    header: 'text',
    body: 'bytes',
    retried_at: 'integer',
  },
  jobs: {
    no: 'integer',
    id: 'uuid',
    tenant: 'integer',
    kind: 'text',
    status: 'text',
    created_at: 'integer',
    stepped_at: 'integer',
    finished_at: 'integer',
    called_by: 'text',
    filter: 'text',
    patch: 'text',
    fixed: 'text',
    dead_letter: 'integer',
    after_time: 'integer',
    after_no: 'integer',
    matched: 'integer',
    resubmitted: 'integer',
    still_rejected: 'integer',
    already: 'integer',
    cut: 'integer',
    failed: 'integer',
    problems: 'text',
  },
  audit: { no: 'integer', tenant: 'integer', kind: 'text', trace_id: 'uuid', at: 'integer', detail: 'text' },
  records: {
    no: 'integer',
    tenant: 'integer',
    ...FIRST_USE,
    processed_at: 'integer',
    first_user_index: 'integer',
    users_accepted: 'integer',
    users_rejected: 'integer',
    first_event: 'integer',
    events: 'integer',
    duplicate_of: 'uuid',
    key_id: 'text',
    notes: 'text',
  },
  events: {
    no: 'integer',
    tenant: 'integer',
    node: 'integer',
    ...ORIGIN,
    timestamp: 'integer',
    key_id: 'text',
    event_index: 'integer',
    event_name: 'text',
    revenue: 'text',
    currency: 'text',
    value: 'text',
    properties: 'text',
  },
  accounts: { no: 'integer', id: 'text', name: 'text', created_at: 'integer' },
  keys: {
    no: 'integer',
    id: 'text',
    hash: 'bytes',
    account_id: 'text',
    name: 'text',
    kind: 'text',
    environment: 'text',
    scopes: 'text',
    origins: 'text',
    users_per_second: 'integer',
    burst_users: 'integer',
    prefix: 'text',
    last_four: 'text',
    created_at: 'integer',
    expires_at: 'integer',
    revoked_at: 'integer',
    last_used_at: 'integer',
    last_origin: 'text',
    leak_suspected_at: 'integer',
    leak_origin: 'text',
  },
  key_volumes: {
    day: 'integer',
    key_id: 'text',
    users: 'integer',
    events: 'integer',
    users_rejected: 'integer',
    requests_limited: 'integer',
  },
  plans: {
    no: 'integer',
    account_id: 'text',
    environment: 'text',
    version: 'integer',
    created_at: 'integer',
    created_by: 'text',
    enforces: 'integer',
    warns: 'integer',
    plan: 'text',
  },
  members: {
    no: 'integer',
    id: 'text',
    account_id: 'text',
    email: 'text',
    email_lower: 'text',
    password_hash: 'text',
    created_at: 'integer',
    last_signed_in_at: 'integer',
  },
  sessions: {
    token_hash: 'bytes',
    member_id: 'text',
    created_at: 'integer',
    renewed_at: 'integer',
    expires_at: 'integer',
  },
  invitations: {
    no: 'integer',
    id: 'text',
    token_hash: 'bytes',
    account_id: 'text',
    kind: 'text',
    email: 'text',
    member_id: 'text',
    created_at: 'integer',
    expires_at: 'integer',
  },
  sign_in_attempts: { subject: 'bytes', failures: 'integer', last_at: 'integer' },
  lost_records: {
    partition: 'integer',
    first_position: 'integer',
    next_position: 'integer',
    records: 'integer',
    found_at: 'integer',
  },
  // Last, so that what is there of an unfinished migration is never taken for a store that can go on.
  positions: { partition: 'integer', position: 'integer', processed_to: 'integer' },
} as const satisfies Readonly<Record<string, Readonly<Record<string, ColumnKind>>>>;

export type PartName = keyof typeof MIGRATED_PARTS;
export const PART_NAMES = Object.keys(MIGRATED_PARTS) as readonly PartName[];

export function columnsOf(part: PartName): readonly (readonly [name: string, kind: ColumnKind])[] {
  return Object.entries(MIGRATED_PARTS[part]);
}

/** Rows of one part that follow one another, column by column in the order of MIGRATED_PARTS. */
export interface Chunk {
  readonly rows: number;
  readonly columns: readonly (readonly MigratedValue[])[];
  /** About how much it holds, for progress. */
  readonly bytes: number;
  /** Behind its last row; means something to the source alone. */
  readonly position: string;
}

/** An installation that no other process writes to, and that is left as it is. */
export interface MigrationSource {
  /** The name of its log: positions are kept under it from now on. */
  readonly logName: string;
  /** The id of the store, which cursors of arrivals name: they stay good. */
  readonly storeId: string;
  /** Below it are all numbers that were ever given to nodes, records and events. */
  readonly nextNumber: number;
  /** What follows a position, or all of the part. */
  chunks(part: PartName, after: string | null): AsyncIterable<Chunk>;
  count(part: PartName): Promise<number>;
  ledger(): Promise<TenantLedger>;
  close(): Promise<void>;
}

/** The hours of the ledger of each tenant, newest first. */
export type TenantLedger = ReadonlyMap<TenantId, readonly LedgerHour[]>;

export interface Migration {
  readonly id: string;
  readonly logName: string;
  readonly storeId: string;
  readonly at: number;
}

/** What a target holds before anything is migrated into it now. */
export type TargetState =
  | { readonly kind: 'empty' }
  /** Data that no migration brought. */
  | { readonly kind: 'foreign'; readonly part: PartName }
  | { readonly kind: 'migrated'; readonly id: string; readonly startedAt: number; readonly finishedAt: number | null };

export interface PartProgress {
  readonly position: string | null;
  readonly rows: number;
  readonly isDone: boolean;
}

/** What is filled. No server works on it before `finish`. */
export interface MigrationTarget {
  /** Host and database, for people: no password. */
  readonly location: string;
  state(): Promise<TargetState>;
  /** Only where the state is `empty`: rejects with an `OperatorError` if it is not any more. */
  begin(migration: Migration): Promise<void>;
  /** Of the migration that was begun; parts that nothing was taken of are not in it. */
  progress(): Promise<ReadonlyMap<PartName, PartProgress>>;
  /**
   * Writes a chunk and advances to its position, both or neither; null: the part is complete. Rejects with
   * `StoreConflictError` when the part is not at `from`: another process advanced it.
   */
  take(part: PartName, from: string | null, chunk: Chunk | null): Promise<void>;
  /** After all parts: new numbers begin at `nextNumber` or later. May be done again. */
  settle(nextNumber: number): Promise<void>;
  count(part: PartName): Promise<number>;
  ledger(): Promise<TenantLedger>;
  /** From now on it is a store like any other. */
  finish(at: number): Promise<void>;
  close(): Promise<void>;
}
