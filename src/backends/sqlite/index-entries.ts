/**
 * Entries of the index of events, (owner, timestamp, number of the event), as columns: sorting them, and packing them
 * into the chunks of a run. Pure. The owner is a node or a tenant.
 *
 * A chunk is named by its first entry; its bytes are the others, each as what it differs by from the one before, in
 * varints, about 7 bytes an entry. Numbers of owners and events are safe integers and not negative; timestamps are safe
 * integers.
 */

import type { EventKey } from './store-event-keys.ts';
import { VarintReader, VarintWriter } from './varints.ts';

/** So many that a chunk costs next to nothing an entry, so few that reading one entry does not unpack a lot. */
export const CHUNK_ENTRIES_MAX = 256;
const SMALL_GROUP = 16;
/** Of the differences that are sorted by their digits, and of a digit. */
const DIGIT_BITS_MAX = 32;
const DIGIT_BITS = 11;
const DIGITS = 2 ** DIGIT_BITS;

export interface Entries {
  readonly owners: Float64Array;
  readonly timestamps: Float64Array;
  readonly numbers: Float64Array;
  count: number;
}

export interface Entry extends EventKey {
  readonly owner: number;
}

export function newEntries(capacity: number): Entries {
  return {
    owners: new Float64Array(capacity),
    timestamps: new Float64Array(capacity),
    numbers: new Float64Array(capacity),
    count: 0,
  };
}

export function addEntry(entries: Entries, owner: number, timestamp: number, no: number): void {
  const at = entries.count++;
  entries.owners[at] = owner;
  entries.timestamps[at] = timestamp;
  entries.numbers[at] = no;
}

/**
 * The places of the entries, ordered by owner, timestamp and number. Entries of the same owner and timestamp must come
 * in the order of their numbers, as they do when events are written one after the other.
 */
export function orderOf({ owners, timestamps, count }: Entries): Uint32Array {
  const order = orderBy(owners, count);
  for (let start = 0; start < count; ) {
    const owner = valueAt(owners, order, start);
    let end = start + 1;
    while (end < count && valueAt(owners, order, end) === owner) end++;
    if (end - start > 1) sortBy(timestamps, order, start, end);
    start = end;
  }
  return order;
}

/** The places of the first `count` values, ordered by value; what is equal stays in its order. */
export function orderBy(values: Float64Array, count: number): Uint32Array {
  const order = new Uint32Array(count);
  for (let at = 0; at < count; at++) order[at] = at;
  sortBy(values, order, 0, count);
  return order;
}

/** Sorts a stretch of the order by one column; what is equal stays in its order. */
function sortBy(values: Float64Array, order: Uint32Array, start: number, end: number): void {
  let least = Number.POSITIVE_INFINITY;
  let greatest = Number.NEGATIVE_INFINITY;
  let isSorted = true;
  for (let at = start; at < end; at++) {
    const value = valueAt(values, order, at);
    if (value < greatest) isSorted = false;
    if (value > greatest) greatest = value;
    if (value < least) least = value;
  }
  if (isSorted) return;
  const count = end - start;
  if (count <= SMALL_GROUP) insertionSort(values, order, start, end);
  else if (greatest - least < 2 ** DIGIT_BITS_MAX) sortByDigits(values, order.subarray(start, end), least, greatest);
  else {
    const sorted = Array.from(order.subarray(start, end));
    order.set(
      sorted.sort((a, b) => (values[a] as number) - (values[b] as number)),
      start,
    );
  }
}

/** Digit by digit, the lowest first: three passes or fewer for most, where comparing would take one for every doubling. */
function sortByDigits(values: Float64Array, order: Uint32Array, least: number, greatest: number): void {
  const count = order.length;
  const bits = Math.ceil(Math.log2(greatest - least + 1));
  let [keys, otherKeys] = [new Uint32Array(count), new Uint32Array(count)];
  let places: Uint32Array = order;
  let otherPlaces: Uint32Array = new Uint32Array(count);
  for (let at = 0; at < count; at++) keys[at] = valueAt(values, order, at) - least;
  const starts = new Uint32Array(DIGITS);
  for (let shift = 0; shift < bits; shift += DIGIT_BITS) {
    starts.fill(0);
    for (let at = 0; at < count; at++) {
      const digit = digitOf(keys, at, shift);
      starts[digit] = (starts[digit] as number) + 1;
    }
    let sum = 0;
    for (let digit = 0; digit < DIGITS; digit++) {
      const those = starts[digit] as number;
      starts[digit] = sum;
      sum += those;
    }
    for (let at = 0; at < count; at++) {
      const digit = digitOf(keys, at, shift);
      const to = starts[digit] as number;
      starts[digit] = to + 1;
      otherKeys[to] = keys[at] as number;
      otherPlaces[to] = places[at] as number;
    }
    [keys, otherKeys] = [otherKeys, keys];
    [places, otherPlaces] = [otherPlaces, places];
  }
  if (places !== order) order.set(places);
}

function digitOf(keys: Uint32Array, at: number, shift: number): number {
  return ((keys[at] as number) >>> shift) & (DIGITS - 1);
}

function insertionSort(values: Float64Array, order: Uint32Array, start: number, end: number): void {
  for (let at = start + 1; at < end; at++) {
    const place = order[at] as number;
    const value = values[place] as number;
    let to = at;
    for (; to > start && valueAt(values, order, to - 1) > value; to--) order[to] = order[to - 1] as number;
    order[to] = place;
  }
}

function valueAt(values: Float64Array, order: Uint32Array, at: number): number {
  return values[order[at] as number] as number;
}

const writer = new VarintWriter();

/** All entries but the first of a stretch of the order. The bytes are overwritten by the next call. */
export function packChunk(entries: Entries, order: Uint32Array, start: number, end: number): Uint8Array {
  const { owners, timestamps, numbers } = entries;
  let before = order[start] as number;
  for (let at = start + 1; at < end; at++) {
    const place = order[at] as number;
    writer.put((owners[place] as number) - (owners[before] as number));
    writer.putSigned((timestamps[place] as number) - (timestamps[before] as number));
    writer.putSigned((numbers[place] as number) - (numbers[before] as number));
    before = place;
  }
  return writer.take();
}

/** Adds the entries of a chunk to others; there must be room for as many as a chunk may have. */
export function unpackChunk(first: Entry, bytes: Uint8Array, into: Entries): void {
  const reader = new VarintReader(bytes);
  let { owner, timestamp, no } = first;
  addEntry(into, owner, timestamp, no);
  while (!reader.isAtEnd) {
    owner += reader.get();
    timestamp += reader.getSigned();
    no += reader.getSigned();
    addEntry(into, owner, timestamp, no);
  }
}
