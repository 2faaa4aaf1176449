/**
 * Histories for property tests. Peaceful ones are about people who share no identifier and have one user_id each, so
 * nothing is ever refused. Messy ones draw all identifiers from a few, mix secret and publishable keys, and hit every
 * refusal often. Origins grow with the index, in bursts of equal time and trace; the order of processing is the caller's.
 */

import * as fc from 'fast-check';
import type { ProfileLimits } from '../../src/identity/resolve.ts';
import { IDENTIFIER_TYPES, type IdentifierType, type KeyKind, type MatchKey, type Origin } from '../../src/model.ts';
import type { Entry } from './graph-in-memory.ts';

export const SMALL_LIMITS: ProfileLimits = { emails: 2, phoneNumbers: 2, anonIds: 3, nodes: 3 };

export function key(type: IdentifierType, value: string): MatchKey {
  return { type, value, raw: value };
}

export function originAt(index: number): Origin {
  const request = Math.floor(index / 3);
  // Two requests share a millisecond, and their traces are not in the order of their arrival.
  return {
    receivedAt: 1_000 + Math.floor(request / 2),
    traceId: `trace-${String((request * 7) % 100).padStart(2, '0')}-${request}`,
    userIndex: index % 3,
  };
}

const valueArbitrary = fc.constantFrom<unknown>('a', 'b', 1, null, ['x'], { deep: null }, false);
const propertiesArbitrary = fc
  .array(fc.tuple(fc.constantFrom('plan', 'city', '__proto__', 'constructor', 'age'), valueArbitrary), { maxLength: 3 })
  .map((pairs): Record<string, unknown> => Object.fromEntries(pairs));

interface Draft {
  readonly keyKind: KeyKind;
  readonly keys: readonly MatchKey[];
  readonly fields: Record<string, unknown>;
  readonly properties: Record<string, unknown>;
}

function draft(keys: fc.Arbitrary<readonly MatchKey[]>, keyKind: fc.Arbitrary<KeyKind>): fc.Arbitrary<Draft> {
  return fc.record({ keyKind, keys, fields: propertiesArbitrary, properties: propertiesArbitrary });
}

function history(drafts: readonly Draft[]): Entry[] {
  return drafts.map((entry, index) => ({ ...entry, origin: originAt(index) }));
}

/** At least one type, each with one of the values that it may have. */
function keysFrom(valuesOf: (type: IdentifierType) => readonly string[]): fc.Arbitrary<MatchKey[]> {
  return fc
    .tuple(
      fc.subarray([...IDENTIFIER_TYPES], { minLength: 1 }),
      fc.array(fc.nat(1_000), { minLength: 4, maxLength: 4 }),
    )
    .map(([types, picks]) =>
      types.map((type, index) => {
        const values = valuesOf(type);
        return key(type, String(values[(picks[index] ?? 0) % values.length]));
      }),
    );
}

const PEOPLE = 4;

export const peaceful: fc.Arbitrary<Entry[]> = fc
  .array(
    fc.nat(PEOPLE - 1).chain((person) =>
      draft(
        keysFrom((type) => (type === 'user_id' ? [`u${person}`] : [0, 1, 2, 3].map((nth) => `${person}-${nth}`))),
        fc.constant('secret'),
      ),
    ),
    { maxLength: 30, size: 'max' },
  )
  .map(history);

export const messy: fc.Arbitrary<Entry[]> = fc
  .array(
    draft(
      keysFrom((type) => (type === 'user_id' ? ['u0', 'u1', 'u2'] : [0, 1, 2, 3, 4, 5].map((nth) => `${type}${nth}`))),
      fc.constantFrom<KeyKind>('secret', 'secret', 'publishable'),
    ),
    { maxLength: 30, size: 'max' },
  )
  .map(history);

/** Few user_ids, so that limits decide rather than rule 6. */
export const crowded: fc.Arbitrary<Entry[]> = fc
  .array(
    draft(
      keysFrom((type) => (type === 'user_id' ? ['u0'] : [0, 1, 2, 3, 4, 5, 6].map((nth) => `${type}${nth}`))),
      fc.constantFrom<KeyKind>('secret', 'secret', 'secret', 'publishable'),
    ),
    { maxLength: 30, size: 'max' },
  )
  .map(history);

export const batchSizes: fc.Arbitrary<number[]> = fc.array(fc.integer({ min: 1, max: 7 }), {
  minLength: 1,
  maxLength: 5,
});
