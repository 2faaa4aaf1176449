/**
 * Who is in the store, as far as it was read ahead (`people-reader.ts`): the hash of the strongest key with that of all
 * keys that came with it, to their node. Somebody who was not met since the start is found here for a fetch from memory,
 * where a look into the table costs several microseconds.
 *
 * 101 bits under the store's secret tell people apart; what is not here is looked up. Nodes that were dropped are
 * remembered, because a thread that is still reading may add them again. Three numbers each, in one array that
 * the garbage collector does not look into.
 */

import type { NodeNumber } from '../../model.ts';

/** Numbers of a person in what was read: the hash, the company and the node. */
export const PERSON_NUMBERS = 3;
const COMPANY = 1;
const NODE = 2;

/** 24 bytes each. A power of two. */
const SLOTS_MAX = 2 ** 21;
/** Slots for each person: with these, one in two is in the first slot that it can be in. */
const ROOM = 1.5;
/** So many slots from the first on. Nearly nobody finds them all taken. */
const PROBES_MAX = 32;
const SLOTS_MIN = 64;
/** Beyond it too many would find no slot. */
export const PEOPLE_AHEAD_MAX = SLOTS_MAX / ROOM;

/** Nodes to be remembered as dropped, some 50 bytes each. */
export const DROPPED_MAX = 10_000;

/** Below them are 17 bits, above them 31. */
const LOWER_BITS = 2 ** 17;
/** Instead of a node: nobody. */
const FREE = 0;

export class PeopleAhead {
  #slots = new Float64Array(0);
  readonly #dropped = new Set<NodeNumber>();

  get isEmpty(): boolean {
    return this.#slots.length === 0;
  }

  /** Forgets everybody. */
  clear(): void {
    this.#slots = new Float64Array(0);
    this.#dropped.clear();
  }

  /** These are not found any more, even if they are added later. False when there are too many of them to remember. */
  drop(nodes: ReadonlySet<NodeNumber>): boolean {
    for (const node of nodes) this.#dropped.add(node);
    return this.#dropped.size <= DROPPED_MAX;
  }

  /** To be called before anybody is added. */
  makeRoom(people: number): void {
    const slots = 2 ** Math.ceil(Math.log2(people * ROOM));
    this.#slots = new Float64Array(Math.min(Math.max(slots, SLOTS_MIN), SLOTS_MAX) * PERSON_NUMBERS);
  }

  /** Who finds no room is left out. */
  add(people: Float64Array): void {
    const slots = this.#slots;
    if (slots.length === 0) return;
    for (let from = 0; from < people.length; from += PERSON_NUMBERS) {
      let at = this.#first(people[from] as number);
      for (let probe = 0; probe < PROBES_MAX; probe++) {
        if (slots[at + NODE] === FREE) {
          slots[at] = people[from] as number;
          slots[at + COMPANY] = people[from + COMPANY] as number;
          slots[at + NODE] = people[from + NODE] as number;
          break;
        }
        at += PERSON_NUMBERS;
        if (at === slots.length) at = 0;
      }
    }
  }

  get(hash: number, company: number): NodeNumber | undefined {
    const slots = this.#slots;
    if (slots.length === 0) return undefined;
    let at = this.#first(hash);
    for (let probe = 0; probe < PROBES_MAX; probe++) {
      const node = slots[at + NODE] as number;
      if (node === FREE) return undefined;
      if (slots[at] === hash && slots[at + COMPANY] === company) return this.#dropped.has(node) ? undefined : node;
      at += PERSON_NUMBERS;
      if (at === slots.length) at = 0;
    }
    return undefined;
  }

  /** Where the first slot of that hash begins. */
  #first(hash: number): number {
    const slots = this.#slots.length / PERSON_NUMBERS;
    return (Math.floor(hash / LOWER_BITS) & (slots - 1)) * PERSON_NUMBERS;
  }
}
