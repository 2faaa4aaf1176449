/**
 * What is to be added to nodes at the end of a transaction: events, times and what each knows, as UTF-8. There are tens
 * of thousands of them for a second or more; as objects and texts, copying them about was most of what the garbage
 * collector did. So they lie in arrays, one after the other, and texts in one piece of memory, where a text that was
 * replaced stays until all are taken.
 */

import type { NodeNumber } from '../../model.ts';
import { orderBy } from './index-entries.ts';

/** What is to be added to a node. */
export interface Waiting {
  readonly events: number;
  readonly first: number;
  readonly last: number;
  /** Undefined: what it knew. */
  readonly known: string | null | undefined;
}

/** As `Waiting`, with what it knows as bytes, which are overwritten when the next ones wait. */
export interface TakenNode extends Omit<Waiting, 'known'> {
  readonly node: NodeNumber;
  readonly known: Uint8Array | null | undefined;
}

const FIRST_NODES = 65_536;
const FIRST_BYTES = 8 * 1024 * 1024;
/** Larger memory is given back. */
const KEPT_BYTES_MAX = 64 * 1024 * 1024;
const UTF8_BYTES_PER_CHARACTER_MAX = 3;

/** Instead of where a text begins. */
const UNCHANGED = -1;
const NOTHING = -2;

export class WaitingNodes {
  /** To the place in the arrays. */
  readonly #places = new Map<NodeNumber, number>();
  #nodes = new Float64Array(FIRST_NODES);
  #events = new Float64Array(FIRST_NODES);
  #first = new Float64Array(FIRST_NODES);
  #last = new Float64Array(FIRST_NODES);
  #starts = new Int32Array(FIRST_NODES);
  #ends = new Int32Array(FIRST_NODES);
  #texts = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #textBytes = 0;

  get count(): number {
    return this.#places.size;
  }

  /** Of all texts, those that were replaced among them. */
  get textBytes(): number {
    return this.#textBytes;
  }

  add(node: NodeNumber, { events, first, last, known }: Waiting): void {
    const before = this.#places.get(node);
    const place = before ?? this.#newPlace(node);
    const isNew = before === undefined;
    this.#events[place] = isNew ? events : (this.#events[place] as number) + events;
    this.#first[place] = isNew ? first : Math.min(this.#first[place] as number, first);
    this.#last[place] = isNew ? last : Math.max(this.#last[place] as number, last);
    if (known !== undefined) this.#keep(place, known);
    else if (isNew) this.#starts[place] = UNCHANGED;
  }

  /** What a node that waits will know; undefined for what it knew, and for one that does not wait. */
  knownOf(node: NodeNumber): string | null | undefined {
    const place = this.#places.get(node);
    const bytes = place === undefined ? undefined : this.#known(place);
    return bytes instanceof Uint8Array ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString() : bytes;
  }

  /** All of them, in the order of their numbers; then none is left. */
  *taken(): Generator<TakenNode> {
    for (const place of orderBy(this.#nodes, this.count)) {
      yield {
        node: this.#nodes[place] as number,
        events: this.#events[place] as number,
        first: this.#first[place] as number,
        last: this.#last[place] as number,
        known: this.#known(place),
      };
    }
    this.clear();
  }

  clear(): void {
    this.#places.clear();
    this.#textBytes = 0;
    if (this.#texts.length > KEPT_BYTES_MAX) this.#texts = Buffer.allocUnsafeSlow(FIRST_BYTES);
  }

  #newPlace(node: NodeNumber): number {
    const place = this.#places.size;
    if (place === this.#nodes.length) this.#grow();
    this.#places.set(node, place);
    this.#nodes[place] = node;
    return place;
  }

  #known(place: number): Uint8Array | null | undefined {
    const start = this.#starts[place] as number;
    if (start === UNCHANGED) return undefined;
    return start === NOTHING ? null : this.#texts.subarray(start, this.#ends[place]);
  }

  #keep(place: number, known: string | null): void {
    if (known === null) {
      this.#starts[place] = NOTHING;
      return;
    }
    const start = this.#textBytes;
    const end = start + known.length * UTF8_BYTES_PER_CHARACTER_MAX;
    if (end > this.#texts.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(2 * this.#texts.length, end));
      this.#texts.copy(larger, 0, 0, start);
      this.#texts = larger;
    }
    this.#textBytes += this.#texts.write(known, start);
    this.#starts[place] = start;
    this.#ends[place] = this.#textBytes;
  }

  #grow(): void {
    this.#nodes = doubled(this.#nodes, Float64Array);
    this.#events = doubled(this.#events, Float64Array);
    this.#first = doubled(this.#first, Float64Array);
    this.#last = doubled(this.#last, Float64Array);
    this.#starts = doubled(this.#starts, Int32Array);
    this.#ends = doubled(this.#ends, Int32Array);
  }
}

function doubled<T extends Int32Array | Float64Array>(array: T, Type: new (length: number) => T): T {
  const larger = new Type(array.length * 2);
  larger.set(array);
  return larger;
}
