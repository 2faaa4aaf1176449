/**
 * The first use of every event id and Idempotency-Key, as long as it is valid: by the keyed hash of the text, in sorted
 * runs (sorted-runs/), one group per day of receipt, so that expiry drops whole runs.
 *
 * For an event id only the time of receipt is stored: 18 bytes per id. The newest use of an Idempotency-Key is stored
 * under the key itself, older ones with other bodies under key and body hash (views/key-use.ts). Of two entries with
 * one hash the one written later wins, which is not always the one received later: clocks may be set back.
 */

import type { DatabaseSync } from 'node:sqlite';
import type { Rows } from '../../../columnar/column-block.ts';
import { DAY_MS, EVENT_ID_WINDOW_MS, IDEMPOTENCY_WINDOW_MS } from '../../../model.ts';
import type { KeyUse, TenantBatch } from '../../../store-writer.ts';
import { HASHED, type HashOfKey, type KeyHash } from '../../../views/keyed-hash.ts';
import { olderUseName } from '../../../views/key-use.ts';
import { BufferedRuns, type SortedRuns } from '../sorted-runs/sorted-runs.ts';
import type { Entry, Key, RowsToWrite, RunsShape } from '../sorted-runs/entries.ts';
import type { StoredRuns } from '../sorted-runs/stored-runs.ts';
import type { StoreConnection } from './connection.ts';
import { uuidBytes, uuidText } from '../uuids.ts';

const TRACE_BYTES = 16;
const KEY_COLUMNS = 2;
/** About four megabytes. */
const BLOCKS_PER_DROP = 2_000;

export const EVENT_IDS: RunsShape = {
  name: 'event_ids',
  keyColumns: KEY_COLUMNS,
  /**
   * received_at, and how many uses before it are stored: a column of zeros, which takes no space, except for reused
   * ids.
   */
  valueColumns: 2,
  hasBytes: false,
  hasFilters: true,
  combine: keepNewest,
};

export const IDEMPOTENCY_KEYS: RunsShape = {
  name: 'idempotency_keys',
  keyColumns: KEY_COLUMNS,
  /** received_at, and an increasing number. */
  valueColumns: 2,
  /** The trace_id, and the hash of the body. */
  hasBytes: true,
  hasFilters: true,
  combine: keepNewest,
};

function keepNewest(rows: RowsToWrite, into: number, other: number): void {
  const numbers = rows.columns[KEY_COLUMNS + 1] as Float64Array;
  if ((numbers[other] as number) >= (numbers[into] as number)) rows.replace(into, other);
}

/** Looks first uses up, in runs of `EVENT_IDS` and `IDEMPOTENCY_KEYS`. */
export class FirstUseLookup<Runs extends StoredRuns = StoredRuns> {
  readonly eventIdRuns: Runs;
  readonly keyRuns: Runs;
  protected readonly hashOf: HashOfKey;

  constructor(hashOf: HashOfKey, eventIdRuns: Runs, keyRuns: Runs) {
    this.hashOf = hashOf;
    this.eventIdRuns = eventIdRuns;
    this.keyRuns = keyRuns;
  }

  lastUseOfEventId(tenant: number, id: string): number | undefined {
    return this.findEventId(tenant, id)?.values[0];
  }

  protected findEventId(tenant: number, id: string): Entry | undefined {
    return this.eventIdRuns.get(runKeyOf(this.hashOf(tenant, HASHED.eventId, id)));
  }

  newestUseOfKey(tenant: number, idempotencyKey: string): KeyUse | undefined {
    const entry = this.keyRuns.get(runKeyOf(this.hashOf(tenant, HASHED.idempotencyKey, idempotencyKey)));
    return entry === undefined ? undefined : keyUseOf(entry);
  }

  olderUseOfKey(tenant: number, idempotencyKey: string, bodyHash: string): KeyUse | undefined {
    return this.newestUseOfKey(tenant, olderUseName(idempotencyKey, bodyHash));
  }
}

/** For the writer: among its own buffered ones too. */
export class FirstUses extends FirstUseLookup<BufferedRuns> {
  /** By tenant: how many uses are stored of the ids looked up since its last write; only of those that have any. */
  readonly #usesBefore = new Map<number, Map<string, number>>();

  constructor(database: DatabaseSync, hashOf: HashOfKey) {
    const eventIds: BufferedRuns = new BufferedRuns(database, EVENT_IDS, (rows) => groupFor(eventIds, rows));
    const keys: BufferedRuns = new BufferedRuns(database, IDEMPOTENCY_KEYS, (rows) => groupFor(keys, rows));
    super(hashOf, eventIds, keys);
  }

  override lastUseOfEventId(tenant: number, id: string): number | undefined {
    const entry = this.findEventId(tenant, id);
    if (entry === undefined) return undefined;
    const [receivedAt, usesBefore] = entry.values as [number, number];
    this.#usesBefore.getOrInsertComputed(tenant, () => new Map<string, number>()).set(id, usesBefore + 1);
    return receivedAt;
  }

  /** `order` increases from transaction to transaction. */
  write(tenant: number, { newestKeyUses, olderKeyUses, eventIds }: TenantBatch, order: number): void {
    const usesBefore = this.#usesBefore.get(tenant);
    for (const { id, receivedAt } of eventIds) {
      const key = runKeyOf(this.hashOf(tenant, HASHED.eventId, id));
      this.eventIdRuns.put(key, [receivedAt, usesBefore?.get(id) ?? 0]);
    }
    usesBefore?.clear();
    for (const use of newestKeyUses) this.#writeKeyUse(tenant, use.key, use, order);
    for (const use of olderKeyUses) this.#writeKeyUse(tenant, olderUseName(use.key, use.bodyHash), use, order);
  }

  #writeKeyUse(tenant: number, name: string, { receivedAt, traceId, bodyHash }: KeyUse, order: number): void {
    const bytes = Buffer.concat([uuidBytes(traceId), Buffer.from(bodyHash)]);
    this.keyRuns.put(runKeyOf(this.hashOf(tenant, HASHED.idempotencyKey, name)), [receivedAt, order], bytes);
  }

  /** Within a transaction. Removes some expired uses; true if there were any. */
  sweep(now: number): boolean {
    const ids = dropOldest(this.eventIdRuns, now - EVENT_ID_WINDOW_MS);
    const keys = dropOldest(this.keyRuns, now - IDEMPOTENCY_WINDOW_MS);
    return ids || keys;
  }
}

export function keyUseOf({ values, bytes }: Entry): KeyUse {
  const bodyHash = Buffer.from(bytes.subarray(TRACE_BYTES)).toString();
  return { receivedAt: values[0] as number, traceId: uuidText(bytes.subarray(0, TRACE_BYTES)), bodyHash };
}

export interface UsedEventId {
  readonly id: string;
  readonly usedAt: readonly number[];
}

/**
 * Removes uses of event ids at these times (rule 17: data after an erase starts from scratch, so it is not a duplicate of
 * removed events). Uses by other requests stay, but those before the last one count no more: runs forget them when they
 * are merged. So with the last use all are removed.
 */
export function forgetEventIds(store: StoreConnection, tenant: number, eventIds: readonly UsedEventId[]): void {
  const runs = store.runs(EVENT_IDS);
  const timesOf = new Map<string, number[]>();
  const keys = eventIds.map(({ id, usedAt }) => {
    const key = runKeyOf(store.hashOf(tenant, HASHED.eventId, id));
    timesOf.getOrInsertComputed(key.join(), () => []).push(...usedAt);
    return key;
  });
  const removed: Entry[] = [];
  runs.remove(keys, null, (entry) => {
    const isRemoved = timesOf.get(entry.key.join())?.includes(entry.values[0] as number) ?? false;
    if (isRemoved && usesBefore(entry) > 0) removed.push(entry);
    return isRemoved;
  });
  const isLastUse = (entry: Entry): boolean => {
    const left = runs.get(entry.key);
    return left !== undefined && usesBefore(left) < usesBefore(entry);
  };
  runs.remove(removed.filter(isLastUse).map(({ key }) => key));
}

function usesBefore({ values }: Entry): number {
  return values[1] as number;
}

function runKeyOf({ hash, rest }: KeyHash): Key {
  return [hash, rest];
}

/** True if there was something to drop. */
function dropOldest(runs: SortedRuns, cutoff: number): boolean {
  const [oldest] = runs.groups();
  if (oldest === undefined || (oldest + 1) * DAY_MS > cutoff) return false;
  runs.drop(oldest, BLOCKS_PER_DROP);
  return true;
}

/** The day of the newest use written so far, including these: a later use is never in an older group, so it is found first. */
function groupFor(runs: SortedRuns, { columns, count }: Rows): number {
  const receivedAt = columns[KEY_COLUMNS] as Float64Array;
  let newest = Number.NEGATIVE_INFINITY;
  for (let row = 0; row < count; row++) newest = Math.max(newest, receivedAt[row] as number);
  return Math.max(Math.floor(newest / DAY_MS), runs.groups().at(-1) ?? Number.NEGATIVE_INFINITY);
}
