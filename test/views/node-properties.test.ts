/** What a node knows in two parts, put together as text, is what parsing and folding would give, in either order. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { type Group, applyUpdates } from '../../src/identity/property-updates.ts';
import { boundedText, mergedGroups } from '../../src/views/node-properties.ts';

const NAMES = ['a', 'b', '__proto__', '7', 'quo"te', 'back\\', 'é', '\ud800', 'a,b', '{', ']]', ''];
const values = fc.oneof(
  fc.json().map((text): unknown => JSON.parse(text)),
  fc.constantFrom(null, 'x"]}', '\\', -1.5),
);
const members = fc.uniqueArray(fc.tuple(fc.constantFrom(...NAMES), values), {
  selector: ([name]) => name,
  maxLength: 4,
});
const objects = members.map((entries) => Object.fromEntries(entries));
const groups = fc
  .tuple(fc.nat(3), fc.constantFrom('trace-a', 'trace-b'), fc.nat(2), objects, objects)
  .filter(([, , , fields, properties]) => Object.keys(fields).length + Object.keys(properties).length > 0);
/** As the store keeps them: each origin once. */
const known = fc
  .uniqueArray(groups, { selector: ([at, trace, index]) => `${at} ${trace} ${index}`, minLength: 2, maxLength: 5 })
  .chain((said) => fc.tuple(fc.constant(said), fc.integer({ min: 1, max: said.length - 1 })));

function textOf(said: readonly Group[]): string {
  const statements = said.map(([receivedAt, traceId, userIndex, fields, properties]) => {
    return { origin: { receivedAt, traceId, userIndex }, fields: withoutNulls(fields), properties };
  });
  return boundedText(applyUpdates([], statements)) ?? '';
}

/** An absent field is not said. */
function withoutNulls(fields: Group[3]): Group[3] {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

suite('What a node knows in two parts', () => {
  test('is the same as if all had been set at once, whichever part comes first', () => {
    fc.assert(
      fc.property(known, ([said, cut]) => {
        const [one, other] = [textOf(said.slice(0, cut)), textOf(said.slice(cut))];
        fc.pre(one !== '' && other !== '');
        assert.equal(mergedGroups(one, other), textOf(said));
        assert.equal(mergedGroups(other, one), textOf(said));
      }),
      { numRuns: 2_000 },
    );
  });
});
