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
/** More than there are tenants. */
const TENANTS = 2 ** 32;

export class PeopleByMark {
  readonly #a = new Int32Array(SLOTS);
  readonly #b = new Int32Array(SLOTS);
  readonly #c = new Int32Array(SLOTS);
  /** The tenant, and behind how many times all was forgotten: what was there before belongs to nobody any more. */
  readonly #owners = new Float64Array(SLOTS);
  readonly #nodes = new Float64Array(SLOTS);
  #forgotten = 1;
  #turn = 0;

  get(tenant: number, mark: PersonMark): NodeNumber | undefined {
    const slot = this.#slotOf(tenant, mark);
    return slot < 0 ? undefined : this.#nodes[slot];
  }

  set(tenant: number, mark: PersonMark, node: NodeNumber): void {
    const own = this.#slotOf(tenant, mark);
    const slot = own < 0 ? this.#slotFor(mark) : own;
    this.#a[slot] = mark.a;
    this.#b[slot] = mark.b;
    this.#c[slot] = mark.c;
    this.#owners[slot] = this.#ownerOf(tenant);
    this.#nodes[slot] = node;
  }

  clear(): void {
    this.#forgotten += 1;
  }

  #ownerOf(tenant: number): number {
    return this.#forgotten * TENANTS + tenant;
  }

  /** -1 for nobody who is known. */
  #slotOf(tenant: number, { a, b, c }: PersonMark): number {
    const first = firstSlot(a);
    for (let slot = first; slot < first + WAYS; slot++) {
      if (this.#a[slot] !== a || this.#b[slot] !== b || this.#c[slot] !== c) continue;
      if (this.#owners[slot] === this.#ownerOf(tenant)) return slot;
    }
    return -1;
  }

  /** One that is free, or that of another. */
  #slotFor({ a }: PersonMark): number {
    const first = firstSlot(a);
    for (let slot = first; slot < first + WAYS; slot++) {
      if ((this.#owners[slot] as number) < this.#forgotten * TENANTS) return slot;
    }
    this.#turn = (this.#turn + 1) % WAYS;
    return first + this.#turn;
  }
}

function firstSlot(a: number): number {
  return (a * WAYS) & (SLOTS - 1);
}
