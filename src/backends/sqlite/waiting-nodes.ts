/**
 * What is to be added to nodes at the end of a transaction: events, times and what was said of each, as UTF-8. There are
 * tens of thousands of them for a second or more; as objects and texts, copying them about was most of what the garbage
 * collector did. So they lie in arrays, one after the other, and texts in one piece of memory, where a text that was
 * replaced stays until all are taken.
 */

import type { NodeNumber } from '../../model.ts';
import { mergedKnown } from '../../stored/merged-known.ts';
import type { Sum } from '../../stored/known.ts';
import { orderBy } from './index-entries.ts';
import { type Told, textOf } from './told-chunks.ts';

/** What was said of a node: groups (identity/statements.ts), as text. */
export interface Said {
  readonly text: string;
  /** Whether this is all that is known of the node, whatever is in the store. */
  readonly isWhole: boolean;
  /** For whoever said it; NO_MARK if nobody wants it back. */
  readonly mark: number;
}

export const NO_MARK = -1;

/** What it knows lies in memory that is overwritten when the next ones wait. */
export interface TakenNode extends Told {
  readonly isWhole: boolean;
  readonly mark: number;
}

const FIRST_NODES = 65_536;
const FIRST_BYTES = 8 * 1024 * 1024;
/** Larger memory is given back. */
const KEPT_BYTES_MAX = 64 * 1024 * 1024;
const UTF8_BYTES_PER_CHARACTER_MAX = 3;

/** Instead of where a text begins. */
const NOTHING_SAID = -1;

export class WaitingNodes {
  /** To the place in the arrays. */
  readonly #places = new Map<NodeNumber, number>();
  #nodes = new Float64Array(FIRST_NODES);
  #events = new Float64Array(FIRST_NODES);
  #first = new Float64Array(FIRST_NODES);
  #last = new Float64Array(FIRST_NODES);
  #marks = new Float64Array(FIRST_NODES);
  #starts = new Int32Array(FIRST_NODES);
  #ends = new Int32Array(FIRST_NODES);
  /** 1 where what was said is all that is known. */
  #whole = new Int32Array(FIRST_NODES);
  #texts = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #textBytes = 0;

  get count(): number {
    return this.#places.size;
  }

  /** Of all texts, those that were replaced among them. */
  get textBytes(): number {
    return this.#textBytes;
  }

  add(node: NodeNumber, sum: Sum, said: Said | null): void {
    const place = this.#sum(node, sum);
    if (said === null) return;
    const { text, isWhole, mark } = said;
    if (isWhole || this.#starts[place] === NOTHING_SAID) {
      this.#keep(place, text);
      this.#whole[place] = isWhole ? 1 : 0;
      this.#marks[place] = mark;
    } else this.#merge(place, text);
  }

  /** Something that was told before. */
  addTold({ node, known, ...sum }: Told): void {
    const place = this.#sum(node, sum);
    if (known === undefined) return;
    if (this.#starts[place] !== NOTHING_SAID) {
      this.#merge(place, textOf(known));
      return;
    }
    const start = this.#room(known.length);
    this.#texts.set(known, start);
    this.#end(place, start, known.length);
    this.#whole[place] = 0;
    this.#marks[place] = NO_MARK;
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
        isWhole: this.#whole[place] === 1,
        mark: this.#marks[place] as number,
      };
    }
    this.clear();
  }

  /** The greatest number of a node that waits. */
  get highest(): NodeNumber {
    let highest = 0;
    for (let place = 0; place < this.count; place++) {
      if ((this.#nodes[place] as number) > highest) highest = this.#nodes[place] as number;
    }
    return highest;
  }

  clear(): void {
    this.#places.clear();
    this.#textBytes = 0;
    if (this.#texts.length > KEPT_BYTES_MAX) this.#texts = Buffer.allocUnsafeSlow(FIRST_BYTES);
  }

  #sum(node: NodeNumber, { events, first, last }: Sum): number {
    const before = this.#places.get(node);
    if (before === undefined) {
      const place = this.#newPlace(node);
      this.#events[place] = events;
      this.#first[place] = first;
      this.#last[place] = last;
      this.#starts[place] = NOTHING_SAID;
      return place;
    }
    this.#events[before] = (this.#events[before] as number) + events;
    this.#first[before] = Math.min(this.#first[before] as number, first);
    this.#last[before] = Math.max(this.#last[before] as number, last);
    return before;
  }

  #newPlace(node: NodeNumber): number {
    const place = this.#places.size;
    if (place === this.#nodes.length) this.#grow();
    this.#places.set(node, place);
    this.#nodes[place] = node;
    return place;
  }

  #known(place: number): Uint8Array | undefined {
    const start = this.#starts[place] as number;
    return start === NOTHING_SAID ? undefined : this.#texts.subarray(start, this.#ends[place]);
  }

  /** What was said before and this together. If the former was all that is known, so are both. */
  #merge(place: number, text: string): void {
    const known = this.#known(place);
    this.#keep(place, known === undefined ? text : mergedKnown(textOf(known), text));
    this.#marks[place] = NO_MARK;
  }

  #keep(place: number, text: string): void {
    const start = this.#room(text.length * UTF8_BYTES_PER_CHARACTER_MAX);
    this.#end(place, start, this.#texts.write(text, start));
  }

  /** Where there is room for so many bytes. */
  #room(bytes: number): number {
    const start = this.#textBytes;
    const end = start + bytes;
    if (end > this.#texts.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(2 * this.#texts.length, end));
      this.#texts.copy(larger, 0, 0, start);
      this.#texts = larger;
    }
    return start;
  }

  #end(place: number, start: number, bytes: number): void {
    this.#textBytes = start + bytes;
    this.#starts[place] = start;
    this.#ends[place] = this.#textBytes;
  }

  #grow(): void {
    this.#nodes = doubled(this.#nodes, Float64Array);
    this.#events = doubled(this.#events, Float64Array);
    this.#first = doubled(this.#first, Float64Array);
    this.#last = doubled(this.#last, Float64Array);
    this.#marks = doubled(this.#marks, Float64Array);
    this.#starts = doubled(this.#starts, Int32Array);
    this.#ends = doubled(this.#ends, Int32Array);
    this.#whole = doubled(this.#whole, Int32Array);
  }
}

function doubled<T extends Int32Array | Float64Array>(array: T, Type: new (length: number) => T): T {
  const larger = new Type(array.length * 2);
  larger.set(array);
  return larger;
}
