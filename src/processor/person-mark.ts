/**
 * One short mark for all match keys of a user, by which somebody who comes again with the same identifiers is known at
 * once. Pure but for its random keys, which differ from thread to thread and are never stored: a mark is good for
 * shortcuts in the memory of one process.
 *
 * Each lane is a sum of the characters (of ASCII, of pairs of them) and of the length of each key, all times random
 * numbers for type and place, modulo a prime. Whoever does not know those numbers cannot do better than chance at
 * finding two texts with the same sum: 1 in 2^31 a lane, 2^93 in all. It does not matter in which order keys are added.
 */

import { randomFillSync } from 'node:crypto';
import { IDENTIFIER_TYPES, LIMITS, type MatchKey, type PersonMark } from '../model.ts';

const LANES = 3;
/** 2^31 - 1. */
const PRIME = 2_147_483_647;
/** Products are below 2^47: so many of them, and what was left before, are exact in a double. */
const EXACT_PRODUCTS = 48;
/** Of texts that are ASCII two characters at a time are multiplied; of other texts one, which this tells apart. */
const ASCII_BITS = 7;
const NOT_ASCII = 2 ** 16;
/** Products of two ASCII characters are below 2^45: those of four such keys are exact. */
export const PLAIN_LENGTH_MAX = 120;

/** By type: of each place in turn, one number a lane. The first place is that of the key's mark. */
const factors = IDENTIFIER_TYPES.map(() => randomFactors(1 + LIMITS.identifierCharactersMax));

export function markOf(keys: readonly MatchKey[]): PersonMark {
  const sum = new MarkSum();
  for (const { type, value } of keys) sum.add(IDENTIFIER_TYPES.indexOf(type), value);
  return { a: sum.a, b: sum.b, c: sum.c };
}

export class MarkSum {
  /** One a lane, below 2^53. */
  readonly #sums = new Float64Array(LANES);

  clear(): void {
    this.#sums.fill(0);
  }

  get a(): number {
    return reduced(this.#sums[0] as number) | 0;
  }

  get b(): number {
    return reduced(this.#sums[1] as number) | 0;
  }

  get c(): number {
    return reduced(this.#sums[2] as number) | 0;
  }

  add(type: number, value: string): void {
    const isAscii = isAsciiText(value);
    const table = factorsOf(type, value.length);
    const mark = markOfLength(value.length) + (isAscii ? 0 : NOT_ASCII);
    let a = mark * (table[0] as number);
    let b = mark * (table[1] as number);
    let c = mark * (table[2] as number);
    let place = LANES;
    for (let at = 0; at < value.length; at += isAscii ? 2 : 1) {
      const code = value.charCodeAt(at);
      // There is none behind the last, which makes 0.
      const factor = isAscii ? code | (value.charCodeAt(at + 1) << ASCII_BITS) : code;
      a += factor * (table[place] as number);
      b += factor * (table[place + 1] as number);
      c += factor * (table[place + 2] as number);
      place += LANES;
      if (place % (EXACT_PRODUCTS * LANES) === 0) [a, b, c] = [reduced(a), reduced(b), reduced(c)];
    }
    this.#add(reduced(a), reduced(b), reduced(c));
  }

  /** Adds a key that is ASCII, and not longer than `PLAIN_LENGTH_MAX`. */
  addPlain(type: number, bytes: Uint8Array, start: number, end: number): void {
    const table = factors[type] as Float64Array;
    const mark = markOfLength(end - start);
    // Sums that began with an integer would not be kept as doubles: three times as slow.
    let a = mark * (table[0] as number);
    let b = mark * (table[1] as number);
    let c = mark * (table[2] as number);
    let place = LANES;
    let at = start;
    for (; at < end - 1; at += 2) {
      const pair = (bytes[at] as number) | ((bytes[at + 1] as number) << ASCII_BITS);
      a += pair * (table[place] as number);
      b += pair * (table[place + 1] as number);
      c += pair * (table[place + 2] as number);
      place += LANES;
    }
    if (at < end) {
      const last = bytes[at] as number;
      a += last * (table[place] as number);
      b += last * (table[place + 1] as number);
      c += last * (table[place + 2] as number);
    }
    this.#add(a, b, c);
  }

  #add(a: number, b: number, c: number): void {
    const sums = this.#sums;
    sums[0] = (sums[0] as number) + a;
    sums[1] = (sums[1] as number) + b;
    sums[2] = (sums[2] as number) + c;
  }
}

/** Not 0, which stands for no key; and the length, because characters may be 0. Keys are shorter than 2^16. */
function markOfLength(length: number): number {
  return length + 1;
}

function isAsciiText(text: string): boolean {
  for (let at = 0; at < text.length; at++) if (text.charCodeAt(at) >> ASCII_BITS !== 0) return false;
  return true;
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
