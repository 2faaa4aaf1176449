/**
 * What changes of a node, in sorted runs (sorted-runs/): how many events it has, when it was first and last seen, and
 * what is known of it. Each transaction puts what it adds (a delta), and merging runs adds deltas up; the row of the node
 * in `nodes` is written once and never changed. Whoever reads a node combines what the runs have of it.
 *
 *   key     node
 *   values  events, first seen, last seen, written at, shape hash
 *   bytes   what is known (identity/statements.ts) as JSON in UTF-8; none for nothing
 *
 * Where what is known comes from one update, the shape hash says which names that set (store/shape-hash.ts), and `written at`
 * when it was received; else they are NO_SHAPE and last seen. Events may be below 0 in a part: those expired that another part has.
 * In which order parts are combined does not matter, but for people of whom so much is known that some of it is cut off (stored/known.ts).
 */

import type { NodeNumber } from '../../../model.ts';
import { mergedKnown } from '../../../stored/merged-known.ts';
import { NO_SHAPE } from './shape-hash.ts';
import { type Entry, type RunReader, type RunsShape, type RunsSizes, SortedRuns } from '../sorted-runs/sorted-runs.ts';
import type { StoreConnection } from './connection.ts';

export const PROFILE_RUNS: RunsShape = {
  name: 'profiles',
  keyColumns: 1,
  valueColumns: 5,
  hasBytes: true,
  hasFilters: false,
  combine: combined,
};

/** Entries are large to merge, and a look into a run costs little beside the rest of a profile. */
export const PROFILE_SIZES: RunsSizes = { fanOut: 8 };

/** All nodes are in one group: they have no age by which they could be dropped. */
export const PROFILE_GROUP = 0;

export function combined(one: Entry, other: Entry): Entry {
  const [events = 0, first = 0, last = 0] = one.values;
  const [moreEvents = 0, otherFirst = 0, otherLast = 0] = other.values;
  const lastSeen = Math.max(last, otherLast);
  const { bytes, writtenAt, shape } = combinedKnown(knownIn(one), knownIn(other));
  return {
    key: one.key,
    values: [
      events + moreEvents,
      Math.min(first, otherFirst),
      lastSeen,
      shape === NO_SHAPE ? lastSeen : writtenAt,
      shape,
    ],
    bytes,
  };
}

interface Known {
  readonly bytes: Uint8Array;
  readonly writtenAt: number;
  readonly shape: number;
}

function knownIn({ values, bytes }: Entry): Known {
  return { bytes, writtenAt: values[3] as number, shape: values[4] as number };
}

/** Nearly always both are one update of the same names: then the newer one is all there is to know. */
function combinedKnown(one: Known, other: Known): Known {
  if (one.bytes.length === 0) return other;
  if (other.bytes.length === 0) return one;
  const isOneShape = one.shape === other.shape && one.shape !== NO_SHAPE;
  if (isOneShape && one.writtenAt !== other.writtenAt) return one.writtenAt > other.writtenAt ? one : other;
  const [text, otherText] = [textOf(one.bytes), textOf(other.bytes)];
  const merged = mergedKnown(text, otherText);
  if (merged === text) return one;
  if (merged === otherText) return other;
  return { bytes: Buffer.from(merged), writtenAt: 0, shape: NO_SHAPE };
}

export function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString();
}

/** The columns of PostgreSQL's `nodes` that are not in the row here. */
export interface NodeState {
  readonly events: number;
  readonly first_seen: number;
  readonly last_seen: number;
  readonly known: string | null;
}

export function stateOf({ values, bytes }: Entry): NodeState {
  const [events = 0, first_seen = 0, last_seen = 0] = values;
  return { events, first_seen, last_seen, known: bytes.length === 0 ? null : textOf(bytes) };
}

/** Without what is known of a node where that is longer than `bytesMax`, in one part or in all together. */
export function findShortState(runs: RunReader, node: NodeNumber, bytesMax: number): NodeState | undefined {
  let found: Entry | undefined;
  let isLong = false;
  for (const part of runs.parts([node])) {
    isLong ||= part.bytes.length > bytesMax;
    const entry = isLong ? { ...part, bytes: NO_BYTES } : part;
    found = found === undefined ? entry : combined(found, entry);
  }
  if (found === undefined) return undefined;
  return stateOf(isLong || found.bytes.length > bytesMax ? { ...found, bytes: NO_BYTES } : found);
}

const NO_BYTES = new Uint8Array();

/** Events of a node that are stored no more, and when they were received. */
export interface RemovedEvents {
  readonly node: NodeNumber;
  readonly events: number;
  readonly first: number;
  readonly last: number;
}

/** For many nodes, on the writer's connection, which has to forget its runs then. */
export function putRemovedEvents({ database }: StoreConnection, removed: readonly RemovedEvents[]): void {
  const runs = new SortedRuns(database, PROFILE_RUNS, PROFILE_SIZES);
  const rows = runs.rowsFor(removed.length);
  // The node was seen at those times anyway.
  for (const { node, events, first, last } of removed) {
    rows.add([node, -events, first, last, last, NO_SHAPE], NO_BYTES);
  }
  runs.put(PROFILE_GROUP, rows);
}

/** For a few nodes, on any connection. */
export function subtractRemovedEvents(store: StoreConnection, removed: readonly RemovedEvents[]): void {
  for (const { node, events } of removed) {
    store.runs(PROFILE_RUNS).change([node], ({ values: [before = 0, ...others], bytes }) => ({
      values: [before - events, ...others],
      bytes,
    }));
  }
}
