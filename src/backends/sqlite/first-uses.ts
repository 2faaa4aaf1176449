/**
 * The first use of every event id and Idempotency-Key, as long as it counts: by the keyed hash of the text, in sorted runs
 * (sorted-runs.ts), a group for each day of receipt, so that expiry drops whole runs. What a transaction adds waits in
 * memory until its commit.
 *
 * Of an event id only the time of receipt is kept: 18 bytes an id. An Idempotency-Key has its newest use under the
 * key itself and older ones with other bodies under names of their own (older-use.ts); of two entries of one name that
 * were put by different transactions, the later one counts.
 */

import type { DatabaseSync } from 'node:sqlite';
import { EVENT_ID_WINDOW_MS, IDEMPOTENCY_WINDOW_MS } from '../../model.ts';
import type { KeyUse, TenantBatch } from '../../store-writer.ts';
import { HASHED, type HashOfKey, type KeyHash } from '../../stored/keyed-hash.ts';
import { olderUseName } from '../../stored/older-use.ts';
import { type Entry, type Key, RowsToWrite, type RunReader, type RunsShape, SortedRuns } from './sorted-runs.ts';
import { uuidBytes, uuidText } from './uuids.ts';

const DAY_MS = 86_400_000;
const TRACE_BYTES = 16;
/** Blocks that are dropped at a time: about four megabytes. */
const BLOCKS_PER_DROP = 2_000;
/** Uses that wait in memory; with more, a run is written before the commit. */
const WAITING_MAX = 131_072;

export const EVENT_IDS: RunsShape = {
  name: 'event_ids',
  keyColumns: 2,
  /** received_at */
  valueColumns: 1,
  hasBytes: false,
  hasFilters: true,
};

export const IDEMPOTENCY_KEYS: RunsShape = {
  name: 'idempotency_keys',
  keyColumns: 2,
  /** received_at, and a number that only grows */
  valueColumns: 2,
  /** The trace_id, and the hash of the body. */
  hasBytes: true,
  hasFilters: true,
  combine: (one, other) => ((one.values[1] as number) > (other.values[1] as number) ? one : other),
};

export class FirstUses {
  readonly #hashOf: HashOfKey;
  readonly #eventIds: UsesOfOneKind;
  readonly #keys: UsesOfOneKind;

  constructor(database: DatabaseSync, hashOf: HashOfKey) {
    this.#hashOf = hashOf;
    this.#eventIds = new UsesOfOneKind(database, EVENT_IDS);
    this.#keys = new UsesOfOneKind(database, IDEMPOTENCY_KEYS);
  }

  /** When it was received. */
  firstUseOfEventId(tenant: number, id: string): number | undefined {
    return this.#eventIds.get(this.#hashOf(tenant, HASHED.eventId, id))?.values[0];
  }

  newestUseOfKey(tenant: number, idempotencyKey: string): KeyUse | undefined {
    const entry = this.#keys.get(this.#hashOf(tenant, HASHED.idempotencyKey, idempotencyKey));
    return entry === undefined ? undefined : keyUseOf(entry);
  }

  olderUseOfKey(tenant: number, idempotencyKey: string, bodyHash: string): KeyUse | undefined {
    return this.newestUseOfKey(tenant, olderUseName(idempotencyKey, bodyHash));
  }

  /** `order` grows from transaction to transaction. */
  write(tenant: number, { newestKeyUses, olderKeyUses, eventIds }: TenantBatch, order: number): void {
    for (const { id, receivedAt } of eventIds) {
      this.#eventIds.set(this.#hashOf(tenant, HASHED.eventId, id), [receivedAt], NO_BYTES);
    }
    for (const use of newestKeyUses) this.#writeKeyUse(tenant, use.key, use, order);
    for (const use of olderKeyUses) this.#writeKeyUse(tenant, olderUseName(use.key, use.bodyHash), use, order);
  }

  #writeKeyUse(tenant: number, name: string, { receivedAt, traceId, bodyHash }: KeyUse, order: number): void {
    const bytes = Buffer.concat([uuidBytes(traceId), Buffer.from(bodyHash)]);
    this.#keys.set(this.#hashOf(tenant, HASHED.idempotencyKey, name), [receivedAt, order], bytes);
  }

  /** To be called before the transaction is committed. */
  flush(): void {
    this.#eventIds.flush();
    this.#keys.flush();
  }

  forget(): void {
    this.#eventIds.forget();
    this.#keys.forget();
  }

  /** Whether runs are being merged. */
  get isMerging(): boolean {
    return this.#eventIds.isMerging || this.#keys.isMerging;
  }

  /** Within a transaction. Goes on with merging runs. */
  merge(): void {
    this.#eventIds.merge();
    this.#keys.merge();
  }

  /** Within a transaction. Removes a piece of what does not count any more; true if there was any. */
  sweep(now: number): boolean {
    const ids = this.#eventIds.sweep(now - EVENT_ID_WINDOW_MS);
    const keys = this.#keys.sweep(now - IDEMPOTENCY_WINDOW_MS);
    return ids || keys;
  }
}

const NO_BYTES = new Uint8Array();

export function keyUseOf({ values, bytes }: Entry): KeyUse {
  const bodyHash = Buffer.from(bytes.subarray(TRACE_BYTES)).toString();
  return { receivedAt: values[0] as number, traceId: uuidText(bytes.subarray(0, TRACE_BYTES)), bodyHash };
}

/**
 * Forgets the use of an event id, if it is the one that was received then: one that another request has made since is left
 * alone. In runs of `EVENT_IDS`.
 */
export function forgetEventId(reader: RunReader, hash: KeyHash, receivedAt: number): void {
  const key = [hash.hash, hash.rest];
  const group = dayOf(receivedAt);
  if (reader.find(key, group)?.values[0] === receivedAt) reader.remove([key], group);
}

function dayOf(receivedAt: number): number {
  return Math.floor(receivedAt / DAY_MS);
}

/** Those that are stored, and those of the transaction that is under way. */
class UsesOfOneKind {
  readonly #runs: SortedRuns;
  readonly #shape: RunsShape;
  readonly #waiting: WaitingUses;

  constructor(database: DatabaseSync, shape: RunsShape) {
    this.#runs = new SortedRuns(database, shape);
    this.#shape = shape;
    this.#waiting = new WaitingUses(shape);
  }

  get({ hash, rest }: KeyHash): Entry | undefined {
    return this.#waiting.get(hash, rest) ?? this.#runs.get([hash, rest]);
  }

  set({ hash, rest }: KeyHash, values: readonly number[], bytes: Uint8Array): void {
    if (this.#waiting.isFull) this.flush();
    this.#waiting.set(hash, rest, values, bytes);
  }

  flush(): void {
    const { rows } = this.#waiting;
    if (rows.count === 0) return;
    const receivedAt = rows.columns[this.#shape.keyColumns] as Float64Array;
    let first = Number.POSITIVE_INFINITY;
    let last = Number.NEGATIVE_INFINITY;
    for (let row = 0; row < rows.count; row++) {
      const day = dayOf(receivedAt[row] as number);
      if (day < first) first = day;
      if (day > last) last = day;
    }
    if (first === last) this.#runs.put(first, rows);
    else for (const [day, ofDay] of byDay(rows, this.#shape)) this.#runs.put(day, ofDay);
    this.#waiting.clear();
  }

  forget(): void {
    this.#waiting.clear();
    this.#runs.forget();
  }

  get isMerging(): boolean {
    return this.#runs.isMerging;
  }

  merge(): void {
    this.#runs.merge(0);
  }

  sweep(cutoff: number): boolean {
    const [oldest] = this.#runs.groups();
    if (oldest === undefined || (oldest + 1) * DAY_MS > cutoff) return false;
    this.#runs.drop(oldest, BLOCKS_PER_DROP);
    return true;
  }
}

/** Around midnight, and where several edges wrote the log. */
function byDay(rows: RowsToWrite, shape: RunsShape): Map<number, RowsToWrite> {
  const receivedAt = rows.columns[shape.keyColumns] as Float64Array;
  const days = new Map<number, RowsToWrite>();
  for (let row = 0; row < rows.count; row++) {
    const day = dayOf(receivedAt[row] as number);
    const ofDay = days.get(day) ?? new RowsToWrite(rows.columns.length, shape.hasBytes, rows.count);
    days.set(day, ofDay);
    for (const [column, values] of rows.columns.entries()) {
      (ofDay.columns[column] as Float64Array)[ofDay.count] = values[row] as number;
    }
    ofDay.bytes?.push(rows.bytes?.[row] as Uint8Array);
    ofDay.count++;
  }
  return days;
}

/** So few that they are taken out of the table one by one. */
const FEW = 4_096;

/** A hash table over the rows that will be a run: open addressing, half full at most. */
class WaitingUses {
  readonly rows: RowsToWrite;
  readonly #shape: RunsShape;
  /** The row of each slot, and one; 0 where it is free. */
  readonly #slots = new Int32Array(2 * WAITING_MAX);

  constructor(shape: RunsShape) {
    this.#shape = shape;
    this.rows = new RowsToWrite(shape.keyColumns + shape.valueColumns, shape.hasBytes, WAITING_MAX);
  }

  get isFull(): boolean {
    return this.rows.count >= WAITING_MAX;
  }

  get(hash: number, rest: number): Entry | undefined {
    if (this.rows.count === 0) return undefined;
    const row = (this.#slots[this.#slotOf(hash, rest)] as number) - 1;
    if (row < 0) return undefined;
    const { keyColumns } = this.#shape;
    const key: Key = [hash, rest];
    const values = this.rows.columns.slice(keyColumns).map((column) => column[row] as number);
    return { key, values, bytes: this.rows.bytes?.[row] ?? NO_BYTES };
  }

  set(hash: number, rest: number, values: readonly number[], bytes: Uint8Array): void {
    const { rows } = this;
    const slot = this.#slotOf(hash, rest);
    let row = (this.#slots[slot] as number) - 1;
    if (row < 0) {
      row = rows.count++;
      this.#slots[slot] = row + 1;
      (rows.columns[0] as Float64Array)[row] = hash;
      (rows.columns[1] as Float64Array)[row] = rest;
    }
    for (let column = 0; column < values.length; column++) {
      (rows.columns[2 + column] as Float64Array)[row] = values[column] as number;
    }
    if (rows.bytes !== null) rows.bytes[row] = bytes;
  }

  clear(): void {
    const { rows } = this;
    const mask = this.#slots.length - 1;
    // A few are taken out one by one: a transaction may be small.
    if (rows.count > FEW) this.#slots.fill(0);
    else {
      for (let row = 0; row < rows.count; row++) {
        let slot = (rows.columns[1]?.[row] as number) & mask;
        while (this.#slots[slot] !== row + 1) slot = (slot + 1) & mask;
        this.#slots[slot] = 0;
      }
    }
    rows.count = 0;
    if (rows.bytes !== null) rows.bytes.length = 0;
  }

  /** The slot that has the key, or the one where it belongs. */
  #slotOf(hash: number, rest: number): number {
    const [hashes, rests] = this.rows.columns as [Float64Array, Float64Array];
    const mask = this.#slots.length - 1;
    for (let slot = rest & mask; ; slot = (slot + 1) & mask) {
      const row = (this.#slots[slot] as number) - 1;
      if (row < 0 || (hashes[row] === hash && rests[row] === rest)) return slot;
    }
  }
}
