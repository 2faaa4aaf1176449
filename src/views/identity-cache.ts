/**
 * A cache of resolved people: from the fingerprint of all match keys of a user (`identityFingerprint`) to the node of
 * the strongest, if all of them belong to one profile. Up to two million slots of 24 bytes, in typed arrays that the
 * garbage collector does not scan; doubled whenever half of the slots are in use. Four-way associative: a fingerprint
 * has four adjacent slots, so a lookup costs one or two cache lines; when all four are in use, a new entry replaces
 * one of them.
 */

import type { NodeNumber } from '../model.ts';
import type { KeyHash } from './keyed-hash.ts';

/** Powers of two. */
const FIRST_SLOTS = 2 ** 14;
const SLOTS_MAX = 2 ** 21;
const WAYS = 4;
/** A table of remainders filters nodes before the set is queried: most slots then cost only one memory access. */
const REMAINDERS = 4_096;
/** A slot has the two parts of the hash, and the node, which is 0 where there is none. */
const PARTS = 3;
const NODE = 2;

export class IdentityCache {
  #slots = new Float64Array(FIRST_SLOTS * PARTS);
  #taken = 0;
  #nextReplaced = 0;

  get(fingerprint: KeyHash): NodeNumber | undefined {
    const slot = this.#slotOf(fingerprint);
    return slot < 0 ? undefined : this.#slots[slot + NODE];
  }

  set(fingerprint: KeyHash, node: NodeNumber): void {
    let slot = this.#slotOf(fingerprint);
    if (slot < 0) {
      if (this.#taken * 2 * PARTS >= this.#slots.length && this.#slots.length < SLOTS_MAX * PARTS) this.#grow();
      slot = this.#slotFor(fingerprint);
      if (this.#slots[slot + NODE] === 0) this.#taken += 1;
    }
    this.#slots[slot] = fingerprint.hash;
    this.#slots[slot + 1] = fingerprint.rest;
    this.#slots[slot + NODE] = node;
  }

  /** Removes every entry of these nodes. Scans all slots: some milliseconds. */
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

  /** -1 if there is none. */
  #slotOf({ hash, rest }: KeyHash): number {
    const slots = this.#slots;
    const first = this.#firstSlot(rest);
    for (let slot = first; slot < first + WAYS * PARTS; slot += PARTS) {
      if (slots[slot] === hash && slots[slot + 1] === rest && slots[slot + NODE] !== 0) return slot;
    }
    return -1;
  }

  /** A free slot, or one to replace. */
  #slotFor({ rest }: KeyHash): number {
    const first = this.#firstSlot(rest);
    for (let slot = first; slot < first + WAYS * PARTS; slot += PARTS) {
      if (this.#slots[slot + NODE] === 0) return slot;
    }
    this.#nextReplaced = (this.#nextReplaced + 1) % WAYS;
    return first + this.#nextReplaced * PARTS;
  }

  #firstSlot(rest: number): number {
    return ((rest * WAYS) & (this.#slots.length / PARTS - 1)) * PARTS;
  }
}
