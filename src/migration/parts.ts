/**
 * Migrates an installation from one kind of store to another: the source and the target. Everything that a store and a
 * key store keep is in one of the parts (`backends/sql/migrated-parts.ts`), each a list of rows with named columns; caches,
 * indexes and layouts are not, since each store makes its own. `cli/migrate.ts` runs it.
 *
 * A part is read in a stable order, in chunks, each with the position behind it, and a chunk is written together with
 * that position or not at all: so an interrupted migration continues where it stopped. Numbers of nodes,
 * records and events stay what they are, because notes and cursors name them.
 */

import type { TenantId } from '../model.ts';
import type { LedgerHour } from '../store.ts';

/** `uuid` is a text, `integer` a whole number below 2^53. Every column but keys may be null. */
export type ColumnKind = 'integer' | 'decimal' | 'text' | 'uuid' | 'bytes';
export type MigratedValue = number | string | Uint8Array | null;

/** Rows of one part that follow one another, column by column. */
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
  /** In the order in which they are migrated. */
  readonly parts: readonly string[];
  /** What follows a position, or all of the part. */
  chunks(part: string, after: string | null): AsyncIterable<Chunk>;
  count(part: string): Promise<number>;
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
  | { readonly kind: 'foreign'; readonly part: string }
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
  progress(): Promise<ReadonlyMap<string, PartProgress>>;
  /**
   * Writes a chunk and advances to its position, both or neither; null: the part is complete. Rejects with
   * `StoreConflictError` when the part is not at `from`: another process advanced it.
   */
  take(part: string, from: string | null, chunk: Chunk | null): Promise<void>;
  /** After all parts: what is derived from them is computed, and new numbers begin at `nextNumber` or later. Idempotent. */
  prepareForWrites(nextNumber: number): Promise<void>;
  count(part: string): Promise<number>;
  ledger(): Promise<TenantLedger>;
  /** From now on it is a store like any other. */
  finish(at: number): Promise<void>;
  close(): Promise<void>;
}
