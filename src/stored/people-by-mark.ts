/**
 * Who is known: the mark of all match keys of a user (processor/person-mark.ts), to the node of the strongest, where all
 * of them are of one profile. For up to two million people, in arrays that the garbage collector does not look into: 24
 * bytes a slot, twice as many slots whenever half of them are taken. A mark has four slots that it can be in, side by side,
 * so that a look costs one or two fetches from memory; when they are taken, the newest takes the place of another.
 */

import type { NodeNumber, PersonMark } from '../model.ts';

/** Powers of two. */
const FIRST_SLOTS = 2 ** 14;
const SLOTS_MAX = 2 ** 21;
const WAYS = 4;
/** Remainders that nodes are sorted out by before a set is asked: most slots then cost a fetch from memory. */
const REMAINDERS = 4_096;
/** Of a slot: the three parts of the mark, and the tenant, which is 0 where nobody is. */
const PARTS = 4;
const TENANT = 3;

export class PeopleByMark {
  #slots = new Int32Array(FIRST_SLOTS * PARTS);
  #nodes = new Float64Array(FIRST_SLOTS);
  #taken = 0;
  #turn = 0;

  get(tenant: number, mark: PersonMark): NodeNumber | undefined {
    const slot = this.#slotOf(tenant, mark);
    return slot < 0 ? undefined : this.#nodes[slot];
  }

  set(tenant: number, mark: PersonMark, node: NodeNumber): void {
    const own = this.#slotOf(tenant, mark);
    if (own < 0 && this.#isHalfFull) this.#grow();
    const slot = own < 0 ? this.#slotFor(mark) : own;
    const at = slot * PARTS;
    if (this.#slots[at + TENANT] === 0) this.#taken += 1;
    this.#slots[at] = mark.a;
    this.#slots[at + 1] = mark.b;
    this.#slots[at + 2] = mark.c;
    this.#slots[at + TENANT] = tenant;
    this.#nodes[slot] = node;
  }

  /** Removes every mark that leads to one of these nodes. Looks at all slots: some milliseconds. */
  drop(nodes: ReadonlySet<NodeNumber>): void {
    if (this.#taken === 0 || nodes.size === 0) return;
    const mayBeOne = new Uint8Array(REMAINDERS);
    for (const node of nodes) mayBeOne[node & (REMAINDERS - 1)] = 1;
    for (let slot = 0; slot < this.#nodes.length; slot++) {
      const node = this.#nodes[slot] as number;
      if (mayBeOne[node & (REMAINDERS - 1)] !== 1 || !nodes.has(node)) continue;
      const at = slot * PARTS + TENANT;
      if (this.#slots[at] !== 0) this.#taken -= 1;
      this.#slots[at] = 0;
    }
  }

  clear(): void {
    if (this.#taken > 0) this.#makeRoom(FIRST_SLOTS);
  }

  get #isHalfFull(): boolean {
    return this.#taken * 2 >= this.#nodes.length && this.#nodes.length < SLOTS_MAX;
  }

  #grow(): void {
    const [slots, nodes] = [this.#slots, this.#nodes];
    this.#makeRoom(2 * nodes.length);
    for (let slot = 0; slot < nodes.length; slot++) {
      const at = slot * PARTS;
      const tenant = slots[at + TENANT] as number;
      if (tenant === 0) continue;
      const mark = { a: slots[at] as number, b: slots[at + 1] as number, c: slots[at + 2] as number };
      this.set(tenant, mark, nodes[slot] as number);
    }
  }

  #makeRoom(slots: number): void {
    this.#slots = new Int32Array(slots * PARTS);
    this.#nodes = new Float64Array(slots);
    this.#taken = 0;
  }

  /** -1 for nobody who is known. */
  #slotOf(tenant: number, { a, b, c }: PersonMark): number {
    const slots = this.#slots;
    const first = this.#firstSlot(a);
    for (let slot = first; slot < first + WAYS; slot++) {
      const at = slot * PARTS;
      if (slots[at] !== a || slots[at + 1] !== b || slots[at + 2] !== c) continue;
      if (slots[at + TENANT] === tenant && tenant !== 0) return slot;
    }
    return -1;
  }

  /** One that is free, or that of another. */
  #slotFor({ a }: PersonMark): number {
    const first = this.#firstSlot(a);
    for (let slot = first; slot < first + WAYS; slot++) {
      if (this.#slots[slot * PARTS + TENANT] === 0) return slot;
    }
    this.#turn = (this.#turn + 1) % WAYS;
    return first + this.#turn;
  }

  #firstSlot(a: number): number {
    return (a * WAYS) & (this.#nodes.length - 1);
  }
}
