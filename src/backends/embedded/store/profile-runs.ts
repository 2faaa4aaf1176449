/**
 * Nodes: their rows, which are written once and never changed, and their mutable state, in sorted runs (sorted-runs/): the
 * number of events, first and last seen, and properties. Each transaction writes what it adds (a delta), and merging runs
 * combines deltas. Reading a node combines its deltas in all runs.
 *
 *   key     node
 *   values  events, first seen, last seen, written at, shape hash
 *   bytes   properties (identity/property-updates.ts) as JSON in UTF-8; empty for none
 *
 * If all properties come from one update, the shape hash identifies the names that it set (`#shapeOf`), and
 * `written at` is when it was received; otherwise the shape hash is NO_SHAPE, and `written at` is last seen. Events may
 * be below 0 in a delta: those of another delta have expired. Deltas can be combined in any order, except for people with
 * so many properties that some are cut off (views/node-properties.ts).
 */

import type { DatabaseSync } from 'node:sqlite';
import type { ByteColumn } from '../../../columnar/byte-column.ts';
import { NO_BYTES } from '../../../columnar/column-block.ts';
import type { NewNode } from '../../../identity/graph.ts';
import { nodeIdOf } from '../../../identity/node-id.ts';
import { compareOrigins } from '../../../identity/origin.ts';
import { decodeUtf8 } from '../../../json/utf8.ts';
import type { NodeNumber, Origin } from '../../../model.ts';
import type { UserToStore } from '../../../store-writer.ts';
import { HASHED } from '../../../views/keyed-hash.ts';
import {
  boundedText,
  foldedGroups,
  groupsText,
  mergedGroups,
  NO_GROUPS,
  type Sum,
  sumOf,
  type Visits,
} from '../../../views/node-properties.ts';
import { combineEntries, type Entry, type RowsToWrite, type RunsShape } from '../sorted-runs/entries.ts';
import type { StoredRuns } from '../sorted-runs/stored-runs.ts';
import { BufferedRuns, type RunsSizes } from '../sorted-runs/sorted-runs.ts';
import type { StoreConnection, Tenant } from './connection.ts';
import { NODES_PER_BLOCK } from './schema.ts';
import { uuidBytes } from '../uuids.ts';

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
  const parts = runs.entriesByRun([node]);
  const isLong = parts.some(({ bytes }) => bytes.length > bytesMax);
  const short = ({ key, values }: Entry): Entry => ({ key, values, bytes: NO_BYTES });
  const found = combineEntries(PROFILE_RUNS, isLong ? parts.map(short) : parts);
  return found && stateOf(found.bytes.length > bytesMax ? short(found) : found);
}

function profileDeltas(database: DatabaseSync, sizes: RunsSizes = {}): BufferedRuns {
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

/** Writes what a transaction adds to nodes: the row of a new node at once, the state with the commit. */
export class StoreNodes {
  readonly deltas: BufferedRuns;
  readonly #store: StoreConnection;
  readonly #shapes = new Map<string, number>();

  constructor(store: StoreConnection, sizes?: RunsSizes) {
    this.#store = store;
    this.deltas = profileDeltas(store.database, sizes);
  }

  write(tenant: Tenant, created: readonly NewNode[], visits: Visits): void {
    for (const block of new Set(created.map(({ node }) => Math.floor(node / NODES_PER_BLOCK)))) {
      this.#store.run('INSERT INTO node_blocks VALUES (?, ?) ON CONFLICT DO NOTHING', tenant.no, block);
    }
    for (const { node, origin } of created) {
      this.#create(tenant, node, origin, visits.get(node) ?? []);
      visits.delete(node);
    }
    for (const [node, ofNode] of visits) this.#add(node, sumOf(ofNode), ofNode);
  }

  #create(tenant: Tenant, node: NodeNumber, origin: Origin, visits: readonly UserToStore[]): void {
    const { receivedAt, traceId, userIndex } = origin;
    const id = uuidBytes(nodeIdOf(tenant.id, origin));
    const values = [node, tenant.no, id, receivedAt, uuidBytes(traceId), userIndex];
    this.#store.run('INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)', ...values);
    const { events, first, last } = sumOf(visits);
    const seen = { events, first: Math.min(receivedAt, first), last: Math.max(receivedAt, last) };
    this.#add(node, seen, visits);
  }

  #add(node: NodeNumber, { events, first, last }: Sum, visits: readonly UserToStore[]): void {
    const newest = newestOfSameNames(visits);
    if (!newest?.propertyUpdate) {
      const text = boundedText(foldedGroups(NO_GROUPS, visits)) ?? '';
      this.deltas.put([node], [events, first, last, last, NO_SHAPE], text);
      return;
    }
    const { origin, propertyUpdate } = newest;
    const shape = this.#shapeOf(propertyUpdate.shape);
    const writtenAt = shape === NO_SHAPE ? last : origin.receivedAt;
    this.deltas.put([node], [events, first, last, writtenAt, shape], groupsText(origin, propertyUpdate));
  }

  /**
   * The set of names that a property update sets (identity/property-updates.ts), as a number: 53 bits of their hash under
   * the store's secret (views/keyed-hash.ts). It is stored with the properties of a node, so that a newer update of the
   * same names replaces an older one without either being parsed. The same names in another order have another number,
   * and are then compared as text. Relies on what the edge rejects: unpaired surrogates, which would hash alike, and NUL,
   * which separates names.
   */
  #shapeOf(names: string): number {
    const known = this.#shapes.get(names);
    if (known !== undefined) return known;
    if (names.length > LENGTH_MAX) return NO_SHAPE;
    if (this.#shapes.size >= REMEMBERED_MAX) this.#shapes.clear();
    const { hash, rest } = this.#store.hashOf(NO_TENANT, HASHED.names, names);
    const shape = rest * HASH_PART + (Math.abs(hash) % HASH_PART);
    this.#shapes.set(names, shape);
    return shape;
  }
}

/** Null if they set nothing, or different names. */
function newestOfSameNames(visits: readonly UserToStore[]): UserToStore | null {
  let newest: UserToStore | null = null;
  for (const visit of visits) {
    if (visit.propertyUpdate === null) continue;
    if (newest !== null && visit.propertyUpdate.shape !== newest.propertyUpdate?.shape) return null;
    if (newest === null || compareOrigins(newest.origin, visit.origin) < 0) newest = visit;
  }
  return newest;
}
