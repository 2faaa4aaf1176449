/**
 * What was told of nodes, packed: some dozens of them in one row of the table `told`, because a row costs more than what
 * is in it. Pure. `numbers` has all that is a number, in varints; `texts` is what they know, in UTF-8, one after the
 * other. Nodes of a chunk are in the order of their numbers; the first gives the chunk its name.
 */

import type { NodeNumber } from '../../model.ts';
import { VarintReader, VarintWriter } from './varints.ts';

export interface Told {
  readonly node: NodeNumber;
  readonly events: number;
  readonly first: number;
  readonly last: number;
  /** Groups (identity/statements.ts) as JSON in UTF-8; undefined for nothing. */
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

/** A chunk and its row should fit a page of the store. */
const CHUNK_BYTES = 7_000;
const CHUNK_NODES_MAX = 64;
const FIRST_CAPACITY = 64 * 1024;
const NOTHING = 0;

export class ToldChunkWriter {
  readonly #writer = new VarintWriter();
  #texts = Buffer.allocUnsafeSlow(FIRST_CAPACITY);
  #textBytes = 0;
  #nodes = 0;
  #first = 0;
  #before = 0;

  get isEmpty(): boolean {
    return this.#nodes === 0;
  }

  /** The first node of the chunk. */
  get first(): NodeNumber {
    return this.#first;
  }

  /** Whether what comes next had better go into another chunk. */
  isFullFor(told: Told): boolean {
    if (this.#nodes === 0) return false;
    return this.#nodes >= CHUNK_NODES_MAX || this.#textBytes + (told.known?.length ?? 0) > CHUNK_BYTES;
  }

  add({ node, events, first, last, known }: Told): void {
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
    const end = this.#textBytes + known.length;
    if (end > this.#texts.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(end, 2 * this.#texts.length));
      this.#texts.copy(larger, 0, 0, this.#textBytes);
      this.#texts = larger;
    }
    this.#texts.set(known, this.#textBytes);
    this.#textBytes = end;
  }

  /** The bytes are overwritten by what is added next. */
  take(): Chunk {
    const chunk = { numbers: this.#writer.take(), texts: this.#texts.subarray(0, this.#textBytes) };
    this.#nodes = 0;
    this.#textBytes = 0;
    if (this.#texts.length > FIRST_CAPACITY) this.#texts = Buffer.allocUnsafeSlow(FIRST_CAPACITY);
    return chunk;
  }
}

/** In the order of their numbers; what they know lies in the chunk's own memory. */
export function* unpackTold(firstNode: NodeNumber, { numbers, texts }: Chunk): Generator<Told> {
  for (const { node, events, first, last, start, length } of entriesIn(firstNode, numbers)) {
    const known = length < 0 ? undefined : texts.subarray(start, start + length);
    yield { node, events, first, last, known };
  }
}

/** What a chunk has of one node, and where in `texts` that is what it knows; undefined for nothing. */
export function findTold(firstNode: NodeNumber, numbers: Uint8Array, wanted: NodeNumber): FoundTold | undefined {
  for (const entry of entriesIn(firstNode, numbers)) if (entry.node === wanted) return entry;
  return undefined;
}

function* entriesIn(firstNode: NodeNumber, numbers: Uint8Array): Generator<FoundTold> {
  const reader = new VarintReader(numbers);
  let node = firstNode;
  let start = 0;
  while (!reader.isAtEnd) {
    node += reader.get();
    const events = reader.get();
    const first = reader.getSigned();
    const last = first + reader.get();
    const length = reader.get() - 1;
    yield { node, events, first, last, start, length };
    start += Math.max(0, length);
  }
}

export function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString();
}
