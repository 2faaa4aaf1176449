/**
 * The keyed hash of texts that are looked up: match keys, event ids and Idempotency-Keys. 99 bits of a universal hash
 * over tenant, kind and text, as two numbers. The secret is created with the store and never changes, so a text keeps
 * its hash for the lifetime of the store. Pure.
 *
 * Each of three lanes is a sum modulo a prime: every character times a factor for its offset. An attacker who does not
 * know the factors can only guess two texts with the same sums: a chance of 1 in 2^33 per lane, 1 in 2^99 for all
 * three. So two texts with the same hash are treated as equal (decision 032). The secret and the hashes are never
 * logged or shown.
 */

import { createHash } from 'node:crypto';
import type { NormalisedKey } from '../model.ts';

export interface KeyHash {
  /** 48 bits with sign: SQLite stores them in six bytes. */
  readonly hash: number;
  /** The other 51. */
  readonly rest: number;
}

/** The hash of a text of a tenant. Kinds of match keys are the indexes of their types in IDENTIFIER_TYPES. */
export type HashOfKey = (tenant: number, kind: number, value: string) => KeyHash;

/** Beyond all types of match keys: what else is hashed. */
export const HASHED = { idempotencyKey: 252, eventId: 253, names: 254, severalKeys: 255 } as const;

export const SECRET_BYTES = 32;

const LANES = 3;
/** 2^33 - 9. */
const PRIME = 8_589_934_583;
/** Products are below 2^49, so the sum of this many, plus the remainder of those before, is exact in a double. */
const EXACT_PRODUCTS = 13;
/** Tenant, in two halves, and kind come before the characters. */
const OFFSETS_BEFORE = 3;
const HALF = 2 ** 16;
const FIRST_PLACES = 512;
/** More bytes than a factor needs, so that all factors are about equally likely. */
const FACTOR_BYTES = 6;

const LANE = 2 ** 33;
/** Lane b is cut here: its upper 15 bits go to `hash`, the others to `rest`. */
const CUT = 2 ** 18;
const UPPER = 2 ** 15;
const SIGN = 2 ** 47;

export function keyHashes(secret: Uint8Array): HashOfKey {
  /** The factors of each offset in turn, one per lane. */
  let factors = factorsOf(secret, FIRST_PLACES);
  return (tenant, kind, value) => {
    // SQLite stores half a surrogate pair as U+FFFD; the hash is that of what is stored.
    const text = value.toWellFormed();
    const { length } = text;
    while (factors.length < (OFFSETS_BEFORE + length) * LANES) {
      factors = factorsOf(secret, (2 * factors.length) / LANES);
    }
    const table = factors;
    const low = tenant % HALF;
    const high = Math.floor(tenant / HALF);
    let a = low * (table[0] as number) + high * (table[3] as number) + kind * (table[6] as number);
    let b = low * (table[1] as number) + high * (table[4] as number) + kind * (table[7] as number);
    let c = low * (table[2] as number) + high * (table[5] as number) + kind * (table[8] as number);
    let offset = OFFSETS_BEFORE * LANES;
    for (let start = 0; start < length; start += EXACT_PRODUCTS) {
      const end = Math.min(length, start + EXACT_PRODUCTS);
      for (let at = start; at < end; at++) {
        // Not zero, or else a text would have the hash of the same text with zeros behind it.
        const character = text.charCodeAt(at) + 1;
        a += character * (table[offset] as number);
        b += character * (table[offset + 1] as number);
        c += character * (table[offset + 2] as number);
        offset += LANES;
      }
      a = reduced(a);
      b = reduced(b);
      c = reduced(c);
    }
    a = reduced(a);
    b = reduced(b);
    c = reduced(c);
    const upper = Math.floor(b / CUT);
    return { hash: a * UPPER + upper - SIGN, rest: (b - upper * CUT) * LANE + c };
  };
}

/** The hash of all match keys of a user together, strongest first. It identifies a returning person. */
export function identityFingerprint(hashOf: HashOfKey, tenant: number, keys: readonly NormalisedKey[]): KeyHash {
  let text = '';
  for (const { type, value } of keys) text += `${type}${value.length}:${value}`;
  return hashOf(tenant, HASHED.severalKeys, text);
}

/** Modulo the prime; for sums that are exact. A remainder of doubles would take longer than all the rest. */
function reduced(sum: number): number {
  const rest = sum - Math.floor(sum / PRIME) * PRIME;
  return rest < 0 ? rest + PRIME : rest >= PRIME ? rest - PRIME : rest;
}

/** A longer output of SHAKE256 begins with the shorter one, so existing factors stay the same when more are needed. */
function factorsOf(secret: Uint8Array, offsets: number): Float64Array {
  const outputLength = offsets * LANES * FACTOR_BYTES;
  const bytes = createHash('shake256', { outputLength }).update(secret).digest();
  return Float64Array.from(
    { length: offsets * LANES },
    (_, n) => bytes.readUIntLE(n * FACTOR_BYTES, FACTOR_BYTES) % PRIME,
  );
}
