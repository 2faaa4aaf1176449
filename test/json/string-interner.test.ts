/** Strings have one number each, whatever came before. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { StringInterner, STRINGS_MAX, UNKNOWN } from '../../src/json/string-interner.ts';

function find(interner: StringInterner, string: string, start: number, before: number): number {
  const bytes = Buffer.from(`${'"'.repeat(start)}${string}":"`);
  return interner.find(bytes, start, bytes.length - 3, before);
}

const short = fc.oneof(
  fc.constantFrom('', 'a', 'b', 'ab', 'ba', 'plan', 'plane', 'é', '日本', 'constructor', '__proto__'),
  fc.string({ maxLength: 6, unit: 'grapheme' }).map((text) => text.replaceAll('"', "'")),
);

suite('Interned strings', () => {
  test('have one number each, and come back as the same string', () => {
    const first = ['first', 'second'];
    const interner = new StringInterner(first);
    const numbers = new Map(first.map((string, number) => [string, number]));
    let before = 0;
    fc.assert(
      fc.property(short, fc.nat({ max: 3 }), (string, start) => {
        if (interner.room < 1) return;
        const number = find(interner, string, start, before);
        assert.equal(number, numbers.get(string) ?? numbers.size);
        numbers.set(string, number);
        assert.equal(interner.string(number), string);
        before = number;
      }),
      { numRuns: 3_000 },
    );
    assert.ok(numbers.size > 100);
  });

  test('are no more than there is room for, until they are forgotten', () => {
    const interner = new StringInterner(['first']);
    const numberOf = (string: string): number => find(interner, string, 0, 0);
    for (let n = 1; n < STRINGS_MAX; n++) assert.equal(numberOf(`text ${n}`), n);
    assert.equal(interner.room, 0);
    assert.equal(numberOf('one more'), UNKNOWN);
    assert.equal(numberOf('text 7'), 7);
    assert.equal(numberOf('first'), 0);
    interner.clear();
    assert.equal(numberOf('one more'), 1);
    assert.equal(numberOf('text 7'), 2);
    assert.equal(numberOf('first'), 0);
    assert.equal(numberOf('x'.repeat(129)), UNKNOWN);
    for (let n = 0; numberOf(`${'x'.repeat(120)} ${n}`) !== UNKNOWN; n++) assert.ok(n < STRINGS_MAX);
    assert.equal(numberOf('one more'), 1);
  });

  test('the one that is likely is found where it begins, if all of it is there', () => {
    const interner = new StringInterner(['first']);
    const plan = find(interner, 'plan', 0, 0);
    assert.equal(interner.likelyAfter(0), plan);
    assert.equal(interner.endIfAt(Buffer.from('{"plan":1}'), 2, plan), 6);
    for (const text of ['{"plane":1}', '{"pla":1}', '{"plan', '{"']) {
      assert.equal(interner.endIfAt(Buffer.from(text), 2, plan), -1, text);
    }
    // For one that is not ASCII the caller counts the characters.
    find(interner, 'é', 0, 0);
    assert.equal(interner.likelyAfter(0), plan);
  });
});
