/** A mark stands for all match keys of a user: the same for the same keys, another one for any others. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { IDENTIFIER_TYPES, type IdentifierType, type MatchKey } from '../../src/model.ts';
import { MarkSum, markOf, PLAIN_LENGTH_MAX } from '../../src/processor/person-mark.ts';

function key(type: IdentifierType, value: string, raw = value): MatchKey {
  return { type, value, raw };
}

function textOf(keys: readonly MatchKey[]): string {
  const { a, b, c } = markOf(keys);
  for (const lane of [a, b, c]) assert.ok(Number.isInteger(lane) && lane >= 0 && lane < 2 ** 31, String(lane));
  return `${a} ${b} ${c}`;
}

suite('The mark of a person', () => {
  test('is the same for the same keys, whatever the client wrote and however long they are', () => {
    for (const length of [1, 47, 48, 49, 300, 5_000]) {
      const value = 'é'.repeat(length);
      const mark = textOf([key('user_id', value), key('email', 'a@b.c', 'A@B.C')]);
      assert.equal(textOf([key('user_id', value), key('email', 'a@b.c')]), mark);
    }
  });

  test('differs where a type, a character or the border between two keys differs', () => {
    const lists = [
      [],
      [key('user_id', 'ab')],
      [key('email', 'ab')],
      [key('phone_number', 'ab')],
      [key('anon_id', 'ab')],
      [key('user_id', 'ba')],
      [key('user_id', 'a')],
      [key('user_id', 'abb')],
      [key('user_id', 'a'), key('email', 'b')],
      [key('user_id', 'ab'), key('email', 'b')],
      [key('user_id', 'aeb')],
      [key('user_id', 'ab\0')],
      [key('user_id', 'ab\0\0')],
      [key('user_id', '')],
      [key('user_id', '\0')],
      [key('user_id', 'aé')],
      [key('user_id', '\u00e1\u0000')],
      [key('user_id', '\uffff')],
      [key('user_id', '\uffff\uffff')],
    ];
    assert.equal(new Set(lists.map(textOf)).size, lists.length);
  });

  test('is the same however the keys are added, and in whatever order', () => {
    for (let length = 1; length <= PLAIN_LENGTH_MAX; length++) {
      // The largest sums that there are.
      const keys = IDENTIFIER_TYPES.map((type) => key(type, `${'~'.repeat(length - 1)}${type.charAt(0)}`));
      const { a, b, c } = markOf(keys);
      const sum = new MarkSum();
      for (const { type, value } of keys.toReversed()) {
        const characters = Uint8Array.from(Buffer.from(`..${value}"`));
        sum.addPlain(IDENTIFIER_TYPES.indexOf(type), characters, 2, 2 + length);
      }
      assert.deepEqual([sum.a, sum.b, sum.c], [a, b, c]);
      sum.clear();
      for (const { type, value } of keys.toReversed()) sum.add(IDENTIFIER_TYPES.indexOf(type), value);
      assert.deepEqual([sum.a, sum.b, sum.c], [a, b, c]);
    }
  });

  test('differs for many that are alike', () => {
    const people = 20_000;
    const marks = new Set<string>();
    for (let n = 0; n < people; n++)
      marks.add(textOf([key('user_id', `u_${n}`), key('email', `person.${n}@example.com`)]));
    assert.equal(marks.size, people);
  });
});
