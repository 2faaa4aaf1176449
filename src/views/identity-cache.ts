/**
 * A cache of resolved people: from the fingerprint of all match keys of a user (`identityFingerprint`) to the node of
 * the strongest, if all of them belong to one profile. Up to two million slots of 16 bytes, in a typed array that the
 * garbage collector does not scan; doubled whenever half of the slots are in use. Four-way associative: a fingerprint
 * has four adjacent slots, so a lookup costs one or two cache lines; when all four are in use, a new entry replaces
 * one of them.
 *
 * A slot has 96 of the 99 bits of a fingerprint, and the node; nodes from 2^32 on are not cached.
 */

import type { NodeNumber } from '../model.ts';
import type { KeyHash } from './keyed-hash.ts';

const FIRST_SLOTS = 2 ** 14;
const SLOTS_MAX = 2 ** 21;
const WAYS = 4;
/** A table of remainders filters nodes before the set is queried: most slots then cost only one memory access. */
const REMAINDERS = 4_096;
/** The words of a slot: three of the fingerprint, and the node, which is 0 in a free slot. */
const WORDS = 4;
const NODE = 3;
const WORD = 2 ** 32;
const HALF_BITS = 16;

export class IdentityCache {
  #slots = new Uint32Array(FIRST_SLOTS * WORDS);
  #taken = 0;
  #nextReplaced = 0;

  get(fingerprint: KeyHash): NodeNumber | undefined {
    const slot = this.#slotOf(fingerprint);
    return slot < 0 ? undefined : this.#slots[slot + NODE];
  }

  set(fingerprint: KeyHash, node: NodeNumber): void {
    let slot = this.#slotOf(fingerprint);
    if (node >= WORD) {
      if (slot >= 0) this.#free(slot);
      return;
    }
    if (slot < 0) {
      if (this.#taken * 2 * WORDS >= this.#slots.length && this.#slots.length < SLOTS_MAX * WORDS) this.#grow();
      slot = this.#slotFor(fingerprint.rest >>> 0);
      if (this.#slots[slot + NODE] === 0) this.#taken += 1;
    }
    this.#slots[slot] = fingerprint.rest >>> 0;
    this.#slots[slot + 1] = fingerprint.hash >>> 0;
    this.#slots[slot + 2] = upperWord(fingerprint);
    this.#slots[slot + NODE] = node;
  }

  /** Removes every entry of these nodes. Scans all slots: some milliseconds. */
  drop(nodes: ReadonlySet<NodeNumber>): void {
    if (this.#taken === 0 || nodes.size === 0) return;
    const slots = this.#slots;
    const mayBeOne = new Uint8Array(REMAINDERS);
    for (const node of nodes) mayBeOne[node & (REMAINDERS - 1)] = 1;
    for (let at = NODE; at < slots.length; at += WORDS) {
      const node = slots[at] as number;
      if (node !== 0 && mayBeOne[node & (REMAINDERS - 1)] === 1 && nodes.has(node)) this.#free(at - NODE);
    }
  }

  clear(): void {
    if (this.#taken > 0) this.#slots = new Uint32Array(FIRST_SLOTS * WORDS);
    this.#taken = 0;
  }

  #free(slot: number): void {
    this.#slots[slot + NODE] = 0;
    this.#taken -= 1;
  }

  #grow(): void {
    const old = this.#slots;
    this.#slots = new Uint32Array(2 * old.length);
    this.#taken = 0;
    for (let at = 0; at < old.length; at += WORDS) {
      if (old[at + NODE] === 0) continue;
      const slot = this.#slotFor(old[at] as number);
      if (this.#slots[slot + NODE] === 0) this.#taken += 1;
      this.#slots.set(old.subarray(at, at + WORDS), slot);
    }
  }

  /** -1 if there is none. */
  #slotOf(fingerprint: KeyHash): number {
    const slots = this.#slots;
    const low = fingerprint.rest >>> 0;
    const middle = fingerprint.hash >>> 0;
    const first = this.#firstSlot(low);
    for (let slot = first; slot < first + WAYS * WORDS; slot += WORDS) {
      if (slots[slot] !== low || slots[slot + 1] !== middle || slots[slot + NODE] === 0) continue;
      if (slots[slot + 2] === upperWord(fingerprint)) return slot;
    }
    return -1;
  }

  /** A free slot, or one to replace, by the lowest word of the fingerprint. */
  #slotFor(low: number): number {
    const first = this.#firstSlot(low);
    for (let slot = first; slot < first + WAYS * WORDS; slot += WORDS) {
      if (this.#slots[slot + NODE] === 0) return slot;
    }
    this.#nextReplaced = (this.#nextReplaced + 1) % WAYS;
    return first + this.#nextReplaced * WORDS;
  }

  #firstSlot(low: number): number {
    return (low * WAYS * WORDS) & (this.#slots.length - 1);
  }
}

/** Of each number what is above its lower 32 bits: 16 bits with sign, and 16 of 19. */
function upperWord({ hash, rest }: KeyHash): number {
  return ((Math.floor(hash / WORD) << HALF_BITS) | (Math.floor(rest / WORD) & 0xffff)) >>> 0;
}
