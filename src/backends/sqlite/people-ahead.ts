/**
 * Who is in the store, as far as it was read ahead (`people-reader.ts`): the hash of the strongest key with that of all
 * keys that came with it, to their node. Somebody who was not met since the start is found here for a fetch from memory,
 * where a look into the table costs several microseconds.
 *
 * 101 bits under the store's secret tell people apart; what is not here is looked up. Three numbers each, in one array that
 * the garbage collector does not look into.
 */

import type { NodeNumber } from '../../model.ts';

/** Numbers of a person in what was read: the hash, the company and the node. */
export const PERSON_NUMBERS = 3;
const COMPANY = 1;
const NODE = 2;

/** 24 bytes each. A power of two. */
const SLOTS_MAX = 2 ** 21;
/** Slots that a person can be in, side by side. */
const WAYS = 4;
/** Slots for each person: few of them find all of theirs taken. */
const ROOM = 1.5;
/** Beyond it too many would find no slot. */
export const PEOPLE_AHEAD_MAX = SLOTS_MAX / ROOM;

/** Below them are 17 bits, above them 31. */
const LOWER_BITS = 2 ** 17;
/** Instead of a node: nobody. */
const FREE = 0;

export class PeopleAhead {
  #slots = new Float64Array(0);

  get isEmpty(): boolean {
    return this.#slots.length === 0;
  }

  /** Forgets everybody. */
  clear(): void {
    this.#slots = new Float64Array(0);
  }

  /** To be called before anybody is added. */
  makeRoom(people: number): void {
    const slots = 2 ** Math.ceil(Math.log2(Math.max(WAYS, people * ROOM)));
    this.#slots = new Float64Array(Math.min(slots, SLOTS_MAX) * PERSON_NUMBERS);
  }

  /** Who finds no room is left out. */
  add(people: Float64Array): void {
    const slots = this.#slots;
    if (slots.length === 0) return;
    for (let from = 0; from < people.length; from += PERSON_NUMBERS) {
      const first = this.#first(people[from] as number);
      for (let at = first; at < first + WAYS * PERSON_NUMBERS; at += PERSON_NUMBERS) {
        if (slots[at + NODE] !== FREE) continue;
        slots[at] = people[from] as number;
        slots[at + COMPANY] = people[from + COMPANY] as number;
        slots[at + NODE] = people[from + NODE] as number;
        break;
      }
    }
  }

  get(hash: number, company: number): NodeNumber | undefined {
    const slots = this.#slots;
    if (slots.length === 0) return undefined;
    const first = this.#first(hash);
    for (let at = first; at < first + WAYS * PERSON_NUMBERS; at += PERSON_NUMBERS) {
      if (slots[at] !== hash || slots[at + COMPANY] !== company) continue;
      if (slots[at + NODE] !== FREE) return slots[at + NODE];
    }
    return undefined;
  }

  /** Where the slots of that hash begin. */
  #first(hash: number): number {
    const places = this.#slots.length / PERSON_NUMBERS / WAYS;
    return (Math.floor(hash / LOWER_BITS) & (places - 1)) * WAYS * PERSON_NUMBERS;
  }
}
