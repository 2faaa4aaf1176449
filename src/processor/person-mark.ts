/**
 * One short mark for all match keys of a user, by which somebody who comes again with the same identifiers is known at
 * once. Pure but for its random keys, which differ from thread to thread and are never stored: a mark is good for
 * shortcuts in the memory of one process.
 *
 * Each lane is a sum of the characters, each times a random number for its type and place, modulo a prime. Whoever does
 * not know those numbers cannot do better than chance at finding two texts with the same sum: 1 in 2^31 a lane, 2^93 in
 * all. It does not matter in which order the keys are added.
 */

import { randomFillSync } from 'node:crypto';
import { IDENTIFIER_TYPES, LIMITS, type MatchKey, type PersonMark } from '../model.ts';
import type { Characters } from './packer.ts';

const LANES = 3;
/** 2^31 - 1. */
const PRIME = 2_147_483_647;
/** Products are below 2^47: so many of them, and what was left before, are exact in a double. */
const EXACT_PRODUCTS = 48;
/** Beyond all characters, so that a key differs from none at all. The length goes on top: a character may be 0. */
const KEY_MARK = 2 ** 16;
/** Products of ASCII are below 2^38: those of four such keys are exact in a double. */
const PLAIN_LENGTH_MAX = LIMITS.identifierCharactersMax;
const PLAIN_PLACES_END = (PLAIN_LENGTH_MAX + 1) * LANES;
const QUOTE = 0x22;
const LOWEST_PRINTABLE = 0x21;
const HIGHEST_PRINTABLE = 0x7e;
const UPPER_A = 0x41;
const UPPER_Z = 0x5a;

/** By type: of each place in turn, one number a lane. The first place is that of the key's mark. */
const factors = IDENTIFIER_TYPES.map(() => randomFactors(PLAIN_LENGTH_MAX + 1));

export function markOf(keys: readonly MatchKey[]): PersonMark {
  const sum = new MarkSum();
  for (const { type, value } of keys) sum.add(IDENTIFIER_TYPES.indexOf(type), value);
  return { a: sum.a, b: sum.b, c: sum.c };
}

export class MarkSum {
  /** Of any size below 2^52. */
  #a = 0;
  #b = 0;
  #c = 0;
  #nextA = 0;
  #nextB = 0;
  #nextC = 0;

  clear(): void {
    this.#a = 0;
    this.#b = 0;
    this.#c = 0;
  }

  get a(): number {
    return reduced(this.#a) | 0;
  }

  get b(): number {
    return reduced(this.#b) | 0;
  }

  get c(): number {
    return reduced(this.#c) | 0;
  }

  add(type: number, value: string): void {
    const table = factorsOf(type, value.length);
    const mark = KEY_MARK + value.length;
    let a = mark * (table[0] as number);
    let b = mark * (table[1] as number);
    let c = mark * (table[2] as number);
    let place = LANES;
    for (let start = 0; start < value.length; start += EXACT_PRODUCTS) {
      const end = Math.min(value.length, start + EXACT_PRODUCTS);
      for (let at = start; at < end; at++) {
        const character = value.charCodeAt(at);
        a += character * (table[place] as number);
        b += character * (table[place + 1] as number);
        c += character * (table[place + 2] as number);
        place += LANES;
      }
      a = reduced(a);
      b = reduced(b);
      c = reduced(c);
    }
    this.#add(a, b, c);
  }

  /**
   * Sums a key up that ends with a quote, and returns where that is. Negative if its value may have to be normalised: it is
   * empty, long, or not all of it is printable ASCII without white space and, unless they may be there, without
   * capitals. One look at each character for all of that: this is done for every key.
   */
  sumUp(type: number, characters: Characters, start: number, mayHaveCapitals: boolean): number {
    const table = factors[type] as Float64Array;
    // Sums that began with an integer would not be kept as doubles: three times as slow.
    let a = KEY_MARK * (table[0] as number);
    let b = KEY_MARK * (table[1] as number);
    let c = KEY_MARK * (table[2] as number);
    let place = LANES;
    let at = start;
    for (let code = characters[at] as number; code !== QUOTE; code = characters[++at] as number) {
      if (code < LOWEST_PRINTABLE || code > HIGHEST_PRINTABLE || place === PLAIN_PLACES_END) return -1;
      if (code <= UPPER_Z && code >= UPPER_A && !mayHaveCapitals) return -1;
      a += code * (table[place] as number);
      b += code * (table[place + 1] as number);
      c += code * (table[place + 2] as number);
      place += LANES;
    }
    if (at === start) return -1;
    const length = at - start;
    this.#nextA = a + length * (table[0] as number);
    this.#nextB = b + length * (table[1] as number);
    this.#nextC = c + length * (table[2] as number);
    return at;
  }

  /** What was summed up last. */
  addSummed(): void {
    this.#add(this.#nextA, this.#nextB, this.#nextC);
  }

  #add(a: number, b: number, c: number): void {
    this.#a += a;
    this.#b += b;
    this.#c += c;
  }
}

/** Modulo the prime; for sums that are exact. A remainder of doubles would take longer than all the rest. */
function reduced(sum: number): number {
  const rest = sum - Math.floor(sum / PRIME) * PRIME;
  return rest < 0 ? rest + PRIME : rest >= PRIME ? rest - PRIME : rest;
}

/** Enough of them for a text of that length. */
function factorsOf(type: number, length: number): Float64Array {
  const known = factors[type] as Float64Array;
  if (known.length >= (length + 1) * LANES) return known;
  const more = randomFactors(2 * (length + 1));
  more.set(known);
  factors[type] = more;
  return more;
}

function randomFactors(places: number): Float64Array {
  const random = randomFillSync(new Uint32Array(places * LANES));
  return Float64Array.from(random, (number) => number % PRIME);
}
