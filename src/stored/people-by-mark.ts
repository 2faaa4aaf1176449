/**
 * Who is known: the mark of all match keys of a user (processor/person-mark.ts), to the node of the strongest, where all
 * of them are of one profile. For two million people, in arrays that the garbage collector does not look into: about
 * 28 bytes each, of which the operating system gives only what is used. A mark has four slots that it can be in; when
 * they are taken, the newest takes the place of another.
 */

import type { NodeNumber, PersonMark } from '../model.ts';

/** A power of two. */
const SLOTS = 2 ** 21;
const WAYS = 4;
const NO_NODE = 0;

interface Slots {
  readonly a: Int32Array;
  readonly b: Int32Array;
  readonly c: Int32Array;
  readonly tenants: Int32Array;
  readonly nodes: Float64Array;
}

export class PeopleByMark {
  #slots = newSlots();
  #isEmpty = true;
  #turn = 0;

  get(tenant: number, { a, b, c }: PersonMark): NodeNumber | undefined {
    const slots = this.#slots;
    const first = firstSlot(a);
    for (let slot = first; slot < first + WAYS; slot++) {
      if (slots.a[slot] !== a || slots.b[slot] !== b || slots.c[slot] !== c || slots.tenants[slot] !== tenant) continue;
      const node = slots.nodes[slot] as NodeNumber;
      return node === NO_NODE ? undefined : node;
    }
    return undefined;
  }

  set(tenant: number, mark: PersonMark, node: NodeNumber): void {
    const slots = this.#slots;
    const slot = this.#slotFor(tenant, mark);
    slots.a[slot] = mark.a;
    slots.b[slot] = mark.b;
    slots.c[slot] = mark.c;
    slots.tenants[slot] = tenant;
    slots.nodes[slot] = node;
    this.#isEmpty = false;
  }

  clear(): void {
    // Every start and every rollback comes by here, and memory that was never written to costs nothing.
    if (this.#isEmpty) return;
    this.#slots = newSlots();
    this.#isEmpty = true;
  }

  /** Its own, or a free one, or that of another. */
  #slotFor(tenant: number, { a, b, c }: PersonMark): number {
    const { a: as, b: bs, c: cs, tenants, nodes } = this.#slots;
    const first = firstSlot(a);
    for (let slot = first; slot < first + WAYS; slot++) {
      if (nodes[slot] === NO_NODE) return slot;
      if (as[slot] === a && bs[slot] === b && cs[slot] === c && tenants[slot] === tenant) return slot;
    }
    this.#turn = (this.#turn + 1) % WAYS;
    return first + this.#turn;
  }
}

function firstSlot(a: number): number {
  return (a * WAYS) & (SLOTS - 1);
}

function newSlots(): Slots {
  return {
    a: new Int32Array(SLOTS),
    b: new Int32Array(SLOTS),
    c: new Int32Array(SLOTS),
    tenants: new Int32Array(SLOTS),
    nodes: new Float64Array(SLOTS),
  };
}
