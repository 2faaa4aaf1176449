/** Texts have one number each, and lists of them too, whatever came before. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { KnownTexts, TEXTS_MAX, UNKNOWN } from '../../src/processor/known-texts.ts';
import { EMPTY_LIST, NameLists } from '../../src/processor/name-lists.ts';
import type { Characters } from '../../src/processor/packer.ts';

/** Somewhere in other text, as narrow as can be. */
function charactersOf(text: string, before: number): Characters {
  const codes = Array.from({ length: text.length }, (_item, at) => text.charCodeAt(at));
  const all = [...Array<number>(before).fill(0x22), ...codes, 0x22, 0x3a, 0x22];
  return all.every((code) => code < 0x80) ? Uint8Array.from(all) : Uint16Array.from(all);
}

const short = fc.oneof(
  fc.constantFrom('', 'a', 'b', 'ab', 'ba', 'plan', 'plane', 'é', '日本', 'constructor', '__proto__'),
  fc.string({ maxLength: 6 }).map((text) => text.replaceAll('"', "'")),
);

suite('Known texts', () => {
  test('have one number each, and come back as the same string', () => {
    const first = ['first', 'second'];
    const known = new KnownTexts(first);
    const numbers = new Map(first.map((text, number) => [text, number]));
    let before = 0;
    fc.assert(
      fc.property(short, fc.nat({ max: 3 }), (text, start) => {
        if (known.room < 1) return;
        const number = known.find(charactersOf(text, start), start, before);
        assert.equal(number, numbers.get(text) ?? numbers.size);
        numbers.set(text, number);
        assert.equal(known.text(number), text);
        assert.equal(known.length(number), text.length);
        before = number;
      }),
      { numRuns: 3_000 },
    );
    assert.ok(numbers.size > 100);
  });

  test('are no more than there is room for, until they are forgotten', () => {
    const known = new KnownTexts(['first']);
    const find = (text: string): number => known.find(charactersOf(text, 0), 0, 0);
    for (let n = 1; n < TEXTS_MAX; n++) assert.equal(find(`text ${n}`), n);
    assert.equal(known.room, 0);
    assert.equal(find('one more'), UNKNOWN);
    assert.equal(find('text 7'), 7);
    assert.equal(find('first'), 0);
    known.clear();
    assert.equal(find('one more'), 1);
    assert.equal(find('text 7'), 2);
    assert.equal(find('first'), 0);
    assert.equal(find('x'.repeat(129)), UNKNOWN);
    for (let n = 0; find(`${'x'.repeat(120)} ${n}`) !== UNKNOWN; n++) assert.ok(n < TEXTS_MAX);
    assert.equal(find('one more'), 1);
  });
});

suite('Lists of names', () => {
  test('have one number each, and tell their names', () => {
    const lists = new NameLists((name) => `n${name}`);
    const numbers = new Map<string, number>([['', EMPTY_LIST]]);
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 4 }), { maxLength: 4 }), (names) => {
        let list: number = EMPTY_LIST;
        for (const name of names) list = lists.add(list, name);
        const text = names.map((name) => `n${name}\0`).join('');
        assert.equal(lists.text(list), text);
        assert.equal(numbers.get(text) ?? list, list);
        numbers.set(text, list);
      }),
    );
    assert.equal(new Set(numbers.values()).size, numbers.size);
    const { room } = lists;
    lists.clear();
    assert.ok(lists.room > room);
    assert.equal(lists.text(lists.add(EMPTY_LIST, 9)), 'n9\0');
  });
});
