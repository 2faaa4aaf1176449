/**
 * One short mark for all match keys of a user, by which somebody who comes again with the same identifiers is known at
 * once. Pure but for its random keys, which differ from thread to thread and are never stored: a mark is good for
 * shortcuts in the memory of one process.
 *
 * Each lane is a sum of the characters, each times a random number for its place, modulo a prime. Whoever does not know
 * those numbers cannot do better than chance at finding two texts with the same sum: 1 in 2^31 a lane, 2^93 in all.
 */

import { randomFillSync } from 'node:crypto';
import type { MatchKey, PersonMark } from '../model.ts';

const LANES = 3;
/** 2^31 - 1. */
const PRIME = 2_147_483_647;
/** Products are below 2^47: so many of them, and what was left before, are exact in a double. */
const EXACT_PRODUCTS = 48;
/** Beyond all characters. */
const KEY_MARK = 2 ** 16;
const FIRST_PLACES = 256;

/** Of each place in turn, one number a lane. */
let factors = randomFactors(FIRST_PLACES);

export function markOf(keys: readonly MatchKey[]): PersonMark {
  let [a, b, c] = [0, 0, 0];
  let place = 0;
  for (const { type, value } of keys) {
    const { length } = value;
    while (factors.length < place + (length + 1) * LANES) factors = moreFactors(factors);
    const table = factors;
    // Types begin with different letters, and no value holds one that is 2^16 and more: so no two lists of keys are the
    // same characters.
    const mark = KEY_MARK + type.charCodeAt(0);
    a += mark * (table[place] as number);
    b += mark * (table[place + 1] as number);
    c += mark * (table[place + 2] as number);
    place += LANES;
    for (let start = 0; start < length; start += EXACT_PRODUCTS) {
      const end = Math.min(length, start + EXACT_PRODUCTS);
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
  }
  return { a: reduced(a) | 0, b: reduced(b) | 0, c: reduced(c) | 0 };
}

/** Modulo the prime; for sums that are exact. A remainder of doubles would take longer than all the rest. */
function reduced(sum: number): number {
  const rest = sum - Math.floor(sum / PRIME) * PRIME;
  return rest < 0 ? rest + PRIME : rest >= PRIME ? rest - PRIME : rest;
}

function moreFactors(known: Float64Array): Float64Array {
  const more = randomFactors((2 * known.length) / LANES);
  more.set(known);
  return more;
}

function randomFactors(places: number): Float64Array {
  const random = randomFillSync(new Uint32Array(places * LANES));
  return Float64Array.from(random, (number) => number % PRIME);
}
