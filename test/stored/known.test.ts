/** What a node knows in two parts, put together as text, is what parsing and folding would give, in either order. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { type Group, stateAll } from '../../src/identity/statements.ts';
import { boundedText, groupsIn } from '../../src/stored/known.ts';
import { mergedKnown, newerOfSameNames } from '../../src/stored/merged-known.ts';

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
  return boundedText(stateAll([], statements)) ?? '';
}

/** An absent field is not said. */
function withoutNulls(fields: Group[3]): Group[3] {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

suite('What a node knows in two parts', () => {
  test('is what it would know if all had been said at once, whichever part comes first', () => {
    fc.assert(
      fc.property(known, ([said, cut]) => {
        const [one, other] = [textOf(said.slice(0, cut)), textOf(said.slice(cut))];
        fc.pre(one !== '' && other !== '');
        assert.equal(mergedKnown(one, other), textOf(said));
        assert.equal(mergedKnown(other, one), textOf(said));
      }),
      { numRuns: 2_000 },
    );
  });

  test('is the newer part where both are one group of the same names', () => {
    fc.assert(
      fc.property(groups, fc.array(values, { minLength: 8, maxLength: 8 }), ([, , , fields, properties], others) => {
        const next = (): unknown => others.pop() ?? 0;
        const changed = (object: Group[3]): Group[3] =>
          Object.fromEntries(Object.keys(object).map((name) => [name, next()]));
        const old = JSON.stringify([[1, 'trace-b', 9, fields, properties]]);
        const young = JSON.stringify([[2, 'trace-a', 0, changed(fields), changed(properties)]]);
        assert.equal(newerOfSameNames(old, young), young);
        assert.equal(newerOfSameNames(young, old), young);
      }),
      { numRuns: 1_000 },
    );
  });

  test('is found without parsing only where that is certain', () => {
    const one = '[[1,"t",0,{},{"a":1,"b":[{"c":"]}"}]}]]';
    for (const other of [
      '[[2,"t",0,{},{"a":1}]]',
      '[[2,"t",0,{},{"a":1,"b":2,"c":3}]]',
      '[[2,"t",0,{},{"b":1,"a":2}]]',
      '[[2,"t",0,{"a":1,"b":2},{}]]',
      '[[2,"t",0,{},{"a":1,"b":2}],[1,"t",0,{},{"c":1}]]',
      '[[2,"t",0,{},{"a":1,"b":2}',
      '[[2,"t',
      '[]',
    ]) {
      assert.equal(newerOfSameNames(one, other), null, other);
      assert.equal(newerOfSameNames(other, one), null, other);
    }
    // Of the same time, the trace decides, and then the place in the request.
    const [early, late] = ['[[1,"s",5,{},{"a":1}]]', '[[1,"t",0,{},{"a":2}]]'];
    assert.equal(newerOfSameNames(early, late), late);
    assert.equal(newerOfSameNames(late, early), late);
    assert.equal(groupsIn(mergedKnown(one, '[[3,"t",0,{},{"a":2}]]')).length, 2);
  });
});
