/**
 * Who is known: the hash of all match keys of a user (`personHash`), to the node of the strongest, where all of them are
 * of one profile. For up to two million people, in arrays that the garbage collector does not look into: 24 bytes a slot,
 * twice as many slots whenever half of them are taken. A hash has four slots that it can be in, side by side, so that a
 * look costs one or two fetches from memory; when they are taken, the newest takes the place of another.
 */

import type { NodeNumber } from '../model.ts';
import type { KeyHash } from './keyed-hash.ts';

/** Powers of two. */
const FIRST_SLOTS = 2 ** 14;
const SLOTS_MAX = 2 ** 21;
const WAYS = 4;
/** Remainders that nodes are sorted out by before a set is asked: most slots then cost a fetch from memory. */
const REMAINDERS = 4_096;
/** Of a slot: the two parts of the hash, and the node, which is 0 where there is none. */
const PARTS = 3;
const NODE = 2;

export class IdentityCache {
  #slots = new Float64Array(FIRST_SLOTS * PARTS);
  #taken = 0;
  #turn = 0;

  get(person: KeyHash): NodeNumber | undefined {
    const slot = this.#slotOf(person);
    return slot < 0 ? undefined : this.#slots[slot + NODE];
  }

  set(person: KeyHash, node: NodeNumber): void {
    let slot = this.#slotOf(person);
    if (slot < 0) {
      if (this.#taken * 2 * PARTS >= this.#slots.length && this.#slots.length < SLOTS_MAX * PARTS) this.#grow();
      slot = this.#slotFor(person);
      if (this.#slots[slot + NODE] === 0) this.#taken += 1;
    }
    this.#slots[slot] = person.hash;
    this.#slots[slot + 1] = person.rest;
    this.#slots[slot + NODE] = node;
  }

  /** Removes everybody who leads to one of these nodes. Looks at all slots: some milliseconds. */
  drop(nodes: ReadonlySet<NodeNumber>): void {
    if (this.#taken === 0 || nodes.size === 0) return;
    const slots = this.#slots;
    const mayBeOne = new Uint8Array(REMAINDERS);
    for (const node of nodes) mayBeOne[node & (REMAINDERS - 1)] = 1;
    for (let at = NODE; at < slots.length; at += PARTS) {
      const node = slots[at] as number;
      if (node === 0 || mayBeOne[node & (REMAINDERS - 1)] !== 1 || !nodes.has(node)) continue;
      slots[at] = 0;
      this.#taken -= 1;
    }
  }

  clear(): void {
    if (this.#taken > 0) this.#slots = new Float64Array(FIRST_SLOTS * PARTS);
    this.#taken = 0;
  }

  #grow(): void {
    const slots = this.#slots;
    this.#slots = new Float64Array(2 * slots.length);
    this.#taken = 0;
    for (let at = 0; at < slots.length; at += PARTS) {
      const node = slots[at + NODE] as number;
      if (node !== 0) this.set({ hash: slots[at] as number, rest: slots[at + 1] as number }, node);
    }
  }

  /** -1 for nobody who is known. */
  #slotOf({ hash, rest }: KeyHash): number {
    const slots = this.#slots;
    const first = this.#firstSlot(rest);
    for (let slot = first; slot < first + WAYS * PARTS; slot += PARTS) {
      if (slots[slot] === hash && slots[slot + 1] === rest && slots[slot + NODE] !== 0) return slot;
    }
    return -1;
  }

  /** One that is free, or that of another. */
  #slotFor({ rest }: KeyHash): number {
    const first = this.#firstSlot(rest);
    for (let slot = first; slot < first + WAYS * PARTS; slot += PARTS) {
      if (this.#slots[slot + NODE] === 0) return slot;
    }
    this.#turn = (this.#turn + 1) % WAYS;
    return first + this.#turn * PARTS;
  }

  #firstSlot(rest: number): number {
    return ((rest * WAYS) & (this.#slots.length / PARTS - 1)) * PARTS;
  }
}
