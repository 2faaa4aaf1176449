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
import { OUTCOMES } from '../views/counts.ts';

/** `uuid` is a text, `integer` a whole number below 2^53, `number` any double. Every column but keys may be null. */
export type ColumnKind = 'integer' | 'number' | 'text' | 'uuid' | 'bytes';
export type MigratedValue = number | string | Uint8Array | null;

type Columns = Readonly<Record<string, ColumnKind>>;

const FIRST_USE = { received_at: 'integer', trace_id: 'uuid' } as const;
const ORIGIN = { ...FIRST_USE, user_index: 'integer' } as const;

/** `names` are separated by blanks. */
function integers(names: string): Columns {
  return Object.fromEntries(names.split(' ').map((name) => [name, 'integer']));
}

function texts(names: string): Columns {
  return Object.fromEntries(names.split(' ').map((name) => [name, 'text']));
}

function ledgerSums(of: 'users' | 'events'): Columns {
  return integers(OUTCOMES.map((outcome) => `${of}_${outcome}`).join(' '));
}

/** In the order in which they are migrated: what others refer to comes first. Columns in the order of a chunk. */
const MIGRATED_PARTS = {
  tenants: { no: 'integer', id: 'text', last_erased_at: 'integer' },
  nodes: {
    // `root` is the surviving node of one that was merged away; null for a survivor.
    ...integers('no tenant root events first_seen last_seen'),
    properties: 'text',
    id: 'uuid',
    ...ORIGIN,
  },
  identifiers: { tenant: 'integer', type: 'integer', value: 'text', node: 'integer', raw: 'text', ...ORIGIN },
  merges: {
    ...integers('no tenant node_a node_b from_node into_node via_type'),
    via_value: 'text',
    ...ORIGIN,
  },
  cannot_link: { node_a: 'integer', node_b: 'integer', trace_id: 'uuid', at: 'integer' },
  refusals: {
    ...integers('node type last_at count'),
    ...texts('value reason raw'),
    ...ORIGIN,
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
    ...integers('tenant width start events'),
    ...texts('event_name currency'),
    revenue: 'number',
  },
  ledger: {
    ...integers('tenant hour users_rejected users_resubmitted dropped_by_clients'),
    ...ledgerSums('users'),
    ...ledgerSums('events'),
  },
  receipts: integers('tenant minute users_accepted users_rejected events_accepted'),
  profile_counts: { tenant: 'integer', profiles: 'integer' },
  catalogue_entries: {
    ...integers('tenant count examined first_seen last_seen property_count'),
    ...texts('kind name key_ids changes'),
  },
  catalogue_properties: {
    ...integers('tenant examples_at other_properties'),
    ...texts('kind name properties examples'),
  },
  plan_violations: {
    ...integers('tenant version count first_at last_at'),
    ...texts('event_name path message last_trace_id'),
  },
  rejections: {
    ...integers('no tenant payload_is_cut resubmitted_at'),
    ...texts('message reason payload key_id key_kind format event_names'),
    ...ORIGIN,
    reason_hash: 'bytes',
    accepted_by: 'uuid',
  },
  dead_letters: {
    ...integers('no tenant partition position failed_at first_user_index users events retried_at'),
    ...texts('cause key_id header'),
    ...FIRST_USE,
    body: 'bytes',
  },
  jobs: {
    ...integers('no tenant created_at stepped_at finished_at dead_letter after_time after_no'),
    ...integers('matched resubmitted still_rejected already cut failed'),
    ...texts('kind status called_by filter patch fixed problems'),
    id: 'uuid',
  },
  audit: { no: 'integer', tenant: 'integer', kind: 'text', trace_id: 'uuid', at: 'integer', detail: 'text' },
  records: {
    ...integers('no tenant processed_at first_user_index users_accepted users_rejected first_event events'),
    ...texts('key_id notes'),
    ...FIRST_USE,
    duplicate_of: 'uuid',
  },
  events: {
    ...integers('no tenant node'),
    ...ORIGIN,
    timestamp: 'integer',
    key_id: 'text',
    event_index: 'integer',
    ...texts('event_name revenue currency value properties'),
  },
  accounts: { no: 'integer', id: 'text', name: 'text', created_at: 'integer' },
  keys: {
    ...integers('no users_per_second burst_users created_at expires_at revoked_at last_used_at leak_suspected_at'),
    ...texts('id account_id name kind environment scopes origins prefix last_four last_origin leak_origin'),
    hash: 'bytes',
  },
  key_volumes: {
    ...integers('day users events users_rejected requests_limited'),
    key_id: 'text',
  },
  plans: {
    ...integers('no version created_at enforces warns'),
    ...texts('account_id environment created_by plan'),
  },
  members: {
    ...integers('no created_at last_signed_in_at'),
    ...texts('id account_id email email_lower password_hash'),
  },
  sessions: {
    ...integers('created_at renewed_at expires_at'),
    member_id: 'text',
    token_hash: 'bytes',
  },
  invitations: {
    ...integers('no created_at expires_at'),
    ...texts('id account_id kind email member_id'),
    token_hash: 'bytes',
  },
  sign_in_attempts: { subject: 'bytes', failures: 'integer', last_at: 'integer' },
  lost_records: integers('partition first_position next_position records found_at'),
  // Last, so that what is there of an unfinished migration is never taken for a store that can go on.
  positions: integers('partition position processed_to'),
} satisfies Readonly<Record<string, Columns>>;

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
  /** Progress of a started migration, without parts that are not started. */
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
