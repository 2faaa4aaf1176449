/**
 * Which nodes know just one group (identity/statements.ts), when it was said, and which names it has; for as many nodes
 * as there are slots. A node has one slot that it can be in, by its number, so a look costs no hashing and nothing is
 * allocated; nodes that came at about the same time do not get into each other's way.
 */

import type { NodeNumber } from '../../model.ts';
import { ownCopy } from '../../stored/generation-cache.ts';
import { NO_MARK } from './waiting-nodes.ts';

/** A power of two; 14 bytes each, of which the operating system gives only what is used. */
const SLOTS = 2 ** 21;
/** Names of a group, one after the other; longer ones are not worth remembering. */
const NAMES_LENGTH_MAX = 500;
/** Clients send the same few sets of names again and again; with more than this, it starts over. Fits 16 bits. */
const NAME_SETS_MAX = 10_000;
const NO_ROUND = 0;
const MARKS_PER_GENERATION = 2 ** 16;

export class OnlyGroups {
  /** How often the slots were gone round to come to the node that is in one, from 1 on. */
  #rounds = new Uint32Array(SLOTS);
  readonly #receivedAt = new Float64Array(SLOTS);
  readonly #names = new Uint16Array(SLOTS);
  readonly #nameSets = new Map<string, number>();
  /** How often all was forgotten. */
  #generation = 0;

  /** For `setMarked` later on, when these names are not at hand. */
  markOf(names: string): number {
    if (names.length > NAMES_LENGTH_MAX) return NO_MARK;
    const nameSet = this.#nameSetOf(names);
    return this.#generation * MARKS_PER_GENERATION + nameSet;
  }

  /** Like `set`; does nothing if all was forgotten since the mark was given. */
  setMarked(node: NodeNumber, receivedAt: number, mark: number): void {
    if (mark === NO_MARK || Math.floor(mark / MARKS_PER_GENERATION) !== this.#generation) return;
    this.#note(node, receivedAt, mark % MARKS_PER_GENERATION);
  }

  set(node: NodeNumber, receivedAt: number, names: string): void {
    if (names.length > NAMES_LENGTH_MAX) this.remove(node);
    else this.#note(node, receivedAt, this.#nameSetOf(names));
  }

  #note(node: NodeNumber, receivedAt: number, nameSet: number): void {
    const slot = node % SLOTS;
    this.#names[slot] = nameSet;
    this.#rounds[slot] = roundOf(node);
    this.#receivedAt[slot] = receivedAt;
  }

  /** It knows several groups now, or none: nothing may take the place of them all. */
  remove(node: NodeNumber): void {
    const slot = node % SLOTS;
    if (this.#rounds[slot] === roundOf(node)) this.#rounds[slot] = NO_ROUND;
  }

  /** True if it is certain that the node knows just one group, older and of the same names; then this one is noted. */
  replace(node: NodeNumber, receivedAt: number, names: string): boolean {
    const slot = node % SLOTS;
    if (this.#rounds[slot] !== roundOf(node) || (this.#receivedAt[slot] ?? 0) >= receivedAt) return false;
    if (this.#names[slot] !== this.#nameSets.get(names)) return false;
    this.#receivedAt[slot] = receivedAt;
    return true;
  }

  forget(): void {
    // Not filled with zeros: memory that was never written to costs nothing.
    if (this.#nameSets.size > 0) this.#rounds = new Uint32Array(SLOTS);
    this.#nameSets.clear();
    this.#generation++;
  }

  #nameSetOf(names: string): number {
    const known = this.#nameSets.get(names);
    if (known !== undefined) return known;
    if (this.#nameSets.size >= NAME_SETS_MAX) this.forget();
    const number = this.#nameSets.size;
    this.#nameSets.set(ownCopy(names), number);
    return number;
  }
}

/** Fits 32 bits, because node numbers are safe integers. */
function roundOf(node: NodeNumber): number {
  return Math.floor(node / SLOTS) + 1;
}
