/**
 * What was told of nodes, packed: some dozens of them in one row of the table `told`, because a row costs more than what
 * is in it. Pure. `numbers` has all that is a number, in varints; `texts` is what they know, in UTF-8, one after the
 * other. Nodes of a chunk are in the order of their numbers; the first gives the chunk its name.
 */

import type { NodeNumber } from '../../model.ts';
import { VarintReader, VarintWriter } from './varints.ts';

/** Takes what is told of one node. There are tens of thousands of them a transaction: no object is made for each. */
export type TakeTold = (
  node: NodeNumber,
  events: number,
  /** When first and last seen. */
  first: number,
  last: number,
  /** Groups (identity/statements.ts) as JSON in UTF-8; undefined for nothing. */
  known: Uint8Array | undefined,
  /** Where that is one group: which names it has (names.ts), and when it was received. Else NO_NAMES, and `last`. */
  names: number,
  saidAt: number,
) => void;

export interface Told {
  readonly events: number;
  readonly first: number;
  readonly last: number;
  readonly known: Uint8Array | undefined;
}

export interface Chunk {
  readonly numbers: Uint8Array;
  readonly texts: Uint8Array;
}

export interface FoundTold extends Omit<Told, 'known'> {
  readonly start: number;
  /** Below 0 where nothing was said. */
  readonly length: number;
}

/** Of what a node knows: several groups, or none. */
export const NO_NAMES = 0;

/** A chunk and its row should fit a page of the store. */
const CHUNK_BYTES = 7_000;
const CHUNK_NODES_MAX = 64;
const FIRST_CAPACITY = 64 * 1024;
const NOTHING = 0;
/** The names of a node: none, those of the node before it, or others. */
const NAMES = { none: 0, same: 1, other: 2 } as const;
/** Where it does not matter which. */
const ANY_NAMES = 1;

export class ToldChunkWriter {
  readonly #writer = new VarintWriter();
  #texts = Buffer.allocUnsafeSlow(FIRST_CAPACITY);
  #textBytes = 0;
  #nodes = 0;
  #first = 0;
  #before = 0;
  #names: number = NO_NAMES;

  get isEmpty(): boolean {
    return this.#nodes === 0;
  }

  /** The first node of the chunk. */
  get first(): NodeNumber {
    return this.#first;
  }

  /** Whether a node that knows so many bytes had better go into another chunk. */
  isFullFor(knownBytes: number): boolean {
    if (this.#nodes === 0) return false;
    return this.#nodes >= CHUNK_NODES_MAX || this.#textBytes + knownBytes > CHUNK_BYTES;
  }

  readonly add: TakeTold = (node, events, first, last, known, names, saidAt) => {
    if (this.#nodes === 0) this.#first = this.#before = node;
    const writer = this.#writer;
    writer.put(node - this.#before);
    writer.put(events);
    writer.putSigned(first);
    writer.put(last - first);
    writer.put(known === undefined ? NOTHING : known.length + 1);
    this.#before = node;
    this.#nodes++;
    if (known === undefined) return;
    this.#putNames(names);
    if (names !== NO_NAMES) writer.put(last - saidAt);
    const end = this.#textBytes + known.length;
    if (end > this.#texts.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(end, 2 * this.#texts.length));
      this.#texts.copy(larger, 0, 0, this.#textBytes);
      this.#texts = larger;
    }
    this.#texts.set(known, this.#textBytes);
    this.#textBytes = end;
  };

  /** The bytes are overwritten by what is added next. */
  take(): Chunk {
    const chunk = { numbers: this.#writer.take(), texts: this.#texts.subarray(0, this.#textBytes) };
    this.#nodes = 0;
    this.#textBytes = 0;
    this.#names = NO_NAMES;
    if (this.#texts.length > FIRST_CAPACITY) this.#texts = Buffer.allocUnsafeSlow(FIRST_CAPACITY);
    return chunk;
  }

  #putNames(names: number): void {
    if (names === NO_NAMES) this.#writer.put(NAMES.none);
    else if (names === this.#names) this.#writer.put(NAMES.same);
    else {
      this.#writer.put(NAMES.other);
      this.#writer.putDouble(names);
      this.#names = names;
    }
  }
}

/** In the order of their numbers; what they know lies in the chunk's own memory. */
export function unpackTold(firstNode: NodeNumber, { numbers, texts }: Chunk, take: TakeTold): void {
  const reader = new VarintReader(numbers);
  let node = firstNode;
  let start = 0;
  let namesBefore: number = NO_NAMES;
  while (!reader.isAtEnd) {
    node += reader.get();
    const events = reader.get();
    const first = reader.getSigned();
    const last = first + reader.get();
    const length = reader.get() - 1;
    if (length < 0) {
      take(node, events, first, last, undefined, NO_NAMES, last);
      continue;
    }
    const names = readNames(reader, namesBefore);
    if (names !== NO_NAMES) namesBefore = names;
    const saidAt = names === NO_NAMES ? last : last - reader.get();
    take(node, events, first, last, texts.subarray(start, start + length), names, saidAt);
    start += length;
  }
}

function readNames(reader: VarintReader, before: number): number {
  const kind = reader.get();
  if (kind === NAMES.none) return NO_NAMES;
  return kind === NAMES.same ? before : reader.getDouble();
}

/** What a chunk has of one node, and where in `texts` that is what it knows; undefined for nothing. */
export function findTold(firstNode: NodeNumber, numbers: Uint8Array, wanted: NodeNumber): FoundTold | undefined {
  const reader = new VarintReader(numbers);
  let node = firstNode;
  let start = 0;
  while (!reader.isAtEnd) {
    node += reader.get();
    if (node > wanted) return undefined;
    if (node === wanted) {
      const events = reader.get();
      const first = reader.getSigned();
      return { events, first, last: first + reader.get(), start, length: reader.get() - 1 };
    }
    // Events and times of another one.
    reader.skip(3);
    const length = reader.get() - 1;
    if (length < 0) continue;
    if (readNames(reader, ANY_NAMES) !== NO_NAMES) reader.get();
    start += length;
  }
  return undefined;
}

export function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString();
}
