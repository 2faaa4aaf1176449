/**
 * Which nodes know just one group (identity/statements.ts), when it was said, and which names it has; for as many nodes
 * as there are slots. A node has one slot that it can be in, by its number, so a look costs no hashing and nothing is
 * allocated; nodes that came at about the same time do not get into each other's way.
 */

import type { NodeNumber } from '../../model.ts';
import { ownCopy } from '../../stored/generation-cache.ts';
import { NO_MARK } from './waiting-nodes.ts';

/** A power of two; 16 bytes each, of which the operating system gives only what is used. */
const SLOTS = 2 ** 21;
/** Names of a group, one after the other; longer ones are not worth remembering. */
const NAMES_LENGTH_MAX = 500;
/** Clients send the same few sets of names again and again; with more than this, it starts over. Fits 16 bits. */
const NAME_SETS_MAX = 10_000;
const NOBODY = 0;

/** Of a slot: when it was said; and which node it is, by how often the slots were gone round (from 1 on), with the names. */
const PARTS = 2;
const NAMES = 2 ** 16;

export class OnlyGroups {
  #slots = new Float64Array(SLOTS * PARTS);
  readonly #nameSets = new Map<string, number>();
  /** How often all was forgotten. */
  #generation = 0;

  /** For `setMarked` later on, when these names are not at hand. */
  markOf(names: string): number {
    if (names.length > NAMES_LENGTH_MAX) return NO_MARK;
    const nameSet = this.#nameSetOf(names);
    return this.#generation * NAMES + nameSet;
  }

  /** Like `set`; does nothing if all was forgotten since the mark was given. */
  setMarked(node: NodeNumber, receivedAt: number, mark: number): void {
    if (mark === NO_MARK || Math.floor(mark / NAMES) !== this.#generation) return;
    this.#note(node, receivedAt, mark % NAMES);
  }

  set(node: NodeNumber, receivedAt: number, names: string): void {
    if (names.length > NAMES_LENGTH_MAX) this.remove(node);
    else this.#note(node, receivedAt, this.#nameSetOf(names));
  }

  #note(node: NodeNumber, receivedAt: number, nameSet: number): void {
    const at = (node % SLOTS) * PARTS;
    this.#slots[at] = receivedAt;
    this.#slots[at + 1] = roundOf(node) * NAMES + nameSet;
  }

  /** It knows several groups now, or none: nothing may take the place of them all. */
  remove(node: NodeNumber): void {
    const at = (node % SLOTS) * PARTS;
    if (Math.floor((this.#slots[at + 1] as number) / NAMES) === roundOf(node)) this.#slots[at + 1] = NOBODY;
  }

  /** True if it is certain that the node knows just one group, older and of the same names; then this one is noted. */
  replace(node: NodeNumber, receivedAt: number, names: string): boolean {
    const at = (node % SLOTS) * PARTS;
    const nameSet = this.#nameSets.get(names);
    if (nameSet === undefined || this.#slots[at + 1] !== roundOf(node) * NAMES + nameSet) return false;
    if ((this.#slots[at] as number) >= receivedAt) return false;
    this.#slots[at] = receivedAt;
    return true;
  }

  forget(): void {
    // Not filled with zeros: memory that was never written to costs nothing.
    if (this.#nameSets.size > 0) this.#slots = new Float64Array(SLOTS * PARTS);
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
