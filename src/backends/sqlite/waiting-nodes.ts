/**
 * What is to be added to nodes at the end of a transaction: events, times and what was said of each, as UTF-8. There are
 * tens of thousands of them for a second or more; as objects and texts, copying them about was most of what the garbage
 * collector did. So they lie in arrays, one after the other, and texts in one piece of memory, where a text that was
 * replaced stays until all are taken.
 */

import { sortedOrder } from '../../columnar/sorted-order.ts';
import type { NodeNumber } from '../../model.ts';
import { mergedKnown } from '../../stored/merged-known.ts';
import type { Sum } from '../../stored/known.ts';
import { NO_NAMES, type TakeTold, textOf } from './told-chunks.ts';

/** What was said of a node: groups (identity/statements.ts), as text. */
export interface Said {
  readonly text: string;
  /** Where it is one group: which names it has (names.ts), and when it was received. Else NO_NAMES. */
  readonly names: number;
  readonly saidAt: number;
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
  #names = new Float64Array(FIRST_NODES);
  #saidAt = new Float64Array(FIRST_NODES);
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

  add(node: NodeNumber, { events, first, last }: Sum, said: Said | null): void {
    const place = this.#sum(node, events, first, last);
    if (said === null) return;
    const { text, names, saidAt } = said;
    if (this.#isOlder(place, names, saidAt)) {
      this.#keep(place, text);
      this.#names[place] = names;
      this.#saidAt[place] = saidAt;
    } else if (!this.#isNewer(place, names, saidAt)) this.#merge(place, text, names);
  }

  /** Something that was told before. */
  readonly addTold: TakeTold = (node, events, first, last, known, names, saidAt) => {
    const place = this.#sum(node, events, first, last);
    if (known === undefined) return;
    if (this.#isOlder(place, names, saidAt)) {
      const start = this.#room(known.length);
      this.#texts.set(known, start);
      this.#end(place, start, known.length);
      this.#names[place] = names;
      this.#saidAt[place] = saidAt;
    } else if (!this.#isNewer(place, names, saidAt)) this.#merge(place, textOf(known), names);
  };

  /** Gives all of them, in the order of their numbers; then none is left. Texts are overwritten by what waits next. */
  readonly takeAll = (take: TakeTold): void => {
    for (const place of sortedOrder([this.#nodes], this.count)) {
      take(
        this.#nodes[place] as number,
        this.#events[place] as number,
        this.#first[place] as number,
        this.#last[place] as number,
        this.#known(place),
        this.#names[place] as number,
        this.#saidAt[place] as number,
      );
    }
    this.clear();
  };

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

  #sum(node: NodeNumber, events: number, first: number, last: number): number {
    const before = this.#places.get(node);
    if (before === undefined) {
      const place = this.#newPlace(node);
      this.#events[place] = events;
      this.#first[place] = first;
      this.#last[place] = last;
      this.#names[place] = NO_NAMES;
      this.#saidAt[place] = last;
      this.#starts[place] = NOTHING_SAID;
      return place;
    }
    this.#events[before] = (this.#events[before] as number) + events;
    if (first < (this.#first[before] as number)) this.#first[before] = first;
    if (last > (this.#last[before] as number)) this.#last[before] = last;
    return before;
  }

  #newPlace(node: NodeNumber): number {
    const place = this.#places.size;
    if (place === this.#nodes.length) this.#grow();
    this.#places.set(node, place);
    this.#nodes[place] = node;
    return place;
  }

  /** Whether what is there is nothing, or an older group of these names: then a new one takes its place. */
  #isOlder(place: number, names: number, saidAt: number): boolean {
    if (this.#starts[place] === NOTHING_SAID) return true;
    return names !== NO_NAMES && this.#names[place] === names && (this.#saidAt[place] as number) < saidAt;
  }

  /** Whether what is there is a newer group of these names: then it stays as it is. */
  #isNewer(place: number, names: number, saidAt: number): boolean {
    return names !== NO_NAMES && this.#names[place] === names && (this.#saidAt[place] as number) > saidAt;
  }

  #known(place: number): Uint8Array | undefined {
    const start = this.#starts[place] as number;
    return start === NOTHING_SAID ? undefined : this.#texts.subarray(start, this.#ends[place]);
  }

  /** What was said before and this together; of the same names at the same time, that is one of them. */
  #merge(place: number, text: string, names: number): void {
    const known = this.#known(place);
    this.#keep(place, known === undefined ? text : mergedKnown(textOf(known), text));
    if (this.#names[place] !== names) this.#names[place] = NO_NAMES;
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
    this.#names = doubled(this.#names, Float64Array);
    this.#saidAt = doubled(this.#saidAt, Float64Array);
    this.#starts = doubled(this.#starts, Int32Array);
    this.#ends = doubled(this.#ends, Int32Array);
  }
}

function doubled<T extends Int32Array | Float64Array>(array: T, Type: new (length: number) => T): T {
  const larger = new Type(array.length * 2);
  larger.set(array);
  return larger;
}
