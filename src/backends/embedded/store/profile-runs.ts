/**
 * The mutable state of nodes, in sorted runs (sorted-runs/): the number of events, first and last seen, and properties.
 * Each transaction writes what it adds (a delta), and merging runs combines deltas; the row of the node in `nodes` is
 * written once and never changed. Reading a node combines its deltas in all runs.
 *
 *   key     node
 *   values  events, first seen, last seen, written at, shape hash
 *   bytes   properties (identity/property-updates.ts) as JSON in UTF-8; empty for none
 *
 * If all properties come from one update, the shape hash identifies the names that it set (`ShapeHashes`), and
 * `written at` is when it was received; otherwise the shape hash is NO_SHAPE, and `written at` is last seen. Events may
 * be below 0 in a delta: those of another delta have expired. Deltas can be combined in any order, except for people with
 * so many properties that some are cut off (views/node-properties.ts).
 */

import type { DatabaseSync } from 'node:sqlite';
import type { ByteColumn } from '../../../columnar/byte-column.ts';
import { decodeUtf8 } from '../../../json/utf8.ts';
import type { NodeNumber } from '../../../model.ts';
import { HASHED, type HashOfKey } from '../../../views/keyed-hash.ts';
import { mergedGroups } from '../../../views/node-properties.ts';
import { combineEntries, type Entry, NO_BYTES, type RowsToWrite, type RunsShape } from '../sorted-runs/entries.ts';
import type { StoredRuns } from '../sorted-runs/stored-runs.ts';
import { BufferedRuns } from '../sorted-runs/buffered-runs.ts';
import type { RunsSizes } from '../sorted-runs/sorted-runs.ts';
import type { StoreConnection } from './connection.ts';

export const PROFILE_RUNS: RunsShape = {
  name: 'profiles',
  keyColumns: 1,
  valueColumns: 5,
  hasBytes: true,
  hasFilters: false,
  combine: combineProfiles,
};

/** Entries are large to merge, and searching another run costs little compared to the rest of a profile. */
const PROFILE_SIZES: RunsSizes = { fanOut: 8 };

/** All nodes are in one group: they have no age by which they could be dropped. */
const PROFILE_GROUP = 0;

/** For properties that several updates have set, and for none. */
export const NO_SHAPE = 0;

/** The columns of a row. */
const EVENTS = 1;
const FIRST_SEEN = 2;
const LAST_SEEN = 3;
const WRITTEN_AT = 4;
const SHAPE = 5;

/** One rule for merging runs, for the memtable, and for reading: see above. */
function combineProfiles(rows: RowsToWrite, into: number, other: number): void {
  const { columns } = rows;
  const [events, first, last] = [columns[EVENTS], columns[FIRST_SEEN], columns[LAST_SEEN]] as [
    Float64Array,
    Float64Array,
    Float64Array,
  ];
  events[into] = (events[into] as number) + (events[other] as number);
  first[into] = Math.min(first[into] as number, first[other] as number);
  last[into] = Math.max(last[into] as number, last[other] as number);
  combineProperties(rows, rows.bytes as ByteColumn, into, other);
  if (columns[SHAPE]?.[into] === NO_SHAPE) (columns[WRITTEN_AT] as Float64Array)[into] = last[into];
}

/** Nearly always both are single updates of the same names: then the newer one replaces the older. */
function combineProperties({ columns }: RowsToWrite, bytes: ByteColumn, into: number, other: number): void {
  if (bytes.length(other) === 0) return;
  const [writtenAt, shape] = [columns[WRITTEN_AT], columns[SHAPE]] as [Float64Array, Float64Array];
  const takeOther = (): void => {
    bytes.replace(into, other);
    writtenAt[into] = writtenAt[other] as number;
    shape[into] = shape[other] as number;
  };
  if (bytes.length(into) === 0) {
    takeOther();
    return;
  }
  const isOneShape = shape[into] === shape[other] && shape[into] !== NO_SHAPE;
  if (isOneShape && writtenAt[into] !== writtenAt[other]) {
    if ((writtenAt[other] as number) > (writtenAt[into] as number)) takeOther();
    return;
  }
  const [text, otherText] = [decodeUtf8(bytes.get(into)), decodeUtf8(bytes.get(other))];
  const merged = mergedGroups(text, otherText);
  if (merged === text) return;
  if (merged === otherText) {
    takeOther();
    return;
  }
  bytes.set(into, Buffer.from(merged));
  shape[into] = NO_SHAPE;
}

/** The columns of PostgreSQL's `nodes` that are not in the row here. */
export interface NodeState {
  readonly events: number;
  readonly first_seen: number;
  readonly last_seen: number;
  readonly properties: string | null;
}

export function stateOf({ values, bytes }: Entry): NodeState {
  const [events = 0, first_seen = 0, last_seen = 0] = values;
  return { events, first_seen, last_seen, properties: bytes.length === 0 ? null : decodeUtf8(bytes) };
}

/** Without properties longer than `bytesMax`, in one delta or in all together. */
export function findState(
  runs: StoredRuns,
  node: NodeNumber,
  bytesMax = Number.POSITIVE_INFINITY,
): NodeState | undefined {
  const [first, ...others] = runs.parts([node]);
  if (first === undefined) return undefined;
  const parts = [first, ...others] as const;
  const isLong = parts.some(({ bytes }) => bytes.length > bytesMax);
  const short = ({ key, values }: Entry): Entry => ({ key, values, bytes: NO_BYTES });
  const found = combineEntries(PROFILE_RUNS, isLong ? [short(first), ...others.map(short)] : parts);
  return stateOf(found.bytes.length > bytesMax ? short(found) : found);
}

export function profileDeltas(database: DatabaseSync, sizes: RunsSizes = {}): BufferedRuns {
  return new BufferedRuns(database, PROFILE_RUNS, () => PROFILE_GROUP, { ...PROFILE_SIZES, ...sizes });
}

/** Subtracts removed events from those of their nodes. The writer has to reload its runs then. */
export function subtractEvents(
  { database }: StoreConnection,
  removed: readonly { readonly node: NodeNumber | null; readonly receivedAt: number }[],
): void {
  const deltas = profileDeltas(database);
  for (const { node, receivedAt } of removed) {
    // The node was seen at that time anyway.
    if (node !== null) deltas.put([node], [-1, receivedAt, receivedAt, receivedAt, NO_SHAPE]);
  }
  deltas.flush();
}

const NO_TENANT = 0;
/** Two bits of the hash with the rest of it make 53. */
const HASH_PART = 2 ** 2;
/** Longer ones are rare. */
const LENGTH_MAX = 2_000;
/** Clients send the same few sets of names again and again; beyond this, the cache is cleared. */
const REMEMBERED_MAX = 10_000;

/**
 * The set of names that a property update sets (identity/property-updates.ts), as a number: 53 bits of their hash under
 * the store's secret (views/keyed-hash.ts). It is stored with the properties of a node, so that a newer update of the
 * same names replaces an older one without either being parsed. The same names in another order have another number,
 * and are then compared as text. Relies on what the edge rejects: unpaired surrogates, which would hash alike, and NUL,
 * which separates names.
 */
export class ShapeHashes {
  readonly #hashOf: HashOfKey;
  readonly #hashes = new Map<string, number>();

  constructor(hashOf: HashOfKey) {
    this.#hashOf = hashOf;
  }

  of(names: string): number {
    const known = this.#hashes.get(names);
    if (known !== undefined) return known;
    if (names.length > LENGTH_MAX) return NO_SHAPE;
    if (this.#hashes.size >= REMEMBERED_MAX) this.#hashes.clear();
    const { hash, rest } = this.#hashOf(NO_TENANT, HASHED.names, names);
    const shape = rest * HASH_PART + (Math.abs(hash) % HASH_PART);
    this.#hashes.set(names, shape);
    return shape;
  }
}
