/** Patterns of plans match what the engine's own regular expressions match, in linear time, and refuse what they cannot do. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { LinearPattern, PatternError } from '../../src/plans/pattern.ts';

/** Patterns put together from pieces that are valid on their own. */
const patterns: fc.Arbitrary<string> = fc.letrec<{ pattern: string; piece: string }>((tie) => ({
  pattern: fc.oneof(
    { maxDepth: 4 },
    fc.array(tie('piece'), { maxLength: 4 }).map((pieces) => pieces.join('')),
    fc.tuple(tie('pattern'), tie('pattern')).map(([a, b]) => `(?:${a}|${b})`),
  ),
  piece: fc
    .tuple(
      fc.oneof(
        { maxDepth: 4 },
        fc.constantFrom(
          'a',
          'b',
          'é',
          '😀',
          '.',
          '\\d',
          '\\W',
          '\\s',
          '[a-c]',
          '[^ab]',
          '[\\d_-]',
          '\\.',
          '\\u0061',
          '[^]',
        ),
        tie('pattern').map((pattern) => `(${pattern})`),
      ),
      fc.constantFrom('', '', '*', '+', '?', '{2}', '{1,3}', '{0,2}?', '{2,}', '+?'),
    )
    .map(([atom, quantifier]) => atom + quantifier),
})).pattern;

const texts = fc.string({ unit: fc.constantFrom('a', 'b', 'c', '1', '_', ' ', '\n', 'é', '😀', '.'), maxLength: 12 });

suite('Patterns', () => {
  test('match what regular expressions match', () => {
    fc.assert(
      fc.property(patterns, fc.boolean(), fc.boolean(), texts, (inner, isStart, isEnd, text) => {
        const pattern = `${isStart ? '^' : ''}(?:${inner})${isEnd ? '$' : ''}`;
        fc.pre(pattern.length <= 500);
        let own: LinearPattern;
        try {
          own = new LinearPattern(pattern);
        } catch (error) {
          assert.match((error as Error).message, /too large|repeat count/);
          return;
        }
        // Not `pattern` by itself: in Node.js 26 /[^ab]$/u does not find a character of two code units.
        assert.equal(own.test(text), new RegExp(`^[^]*?${pattern}`, 'u').test(text), pattern);
      }),
      { numRuns: 500 },
    );
  });

  test('anchors in the middle, empty alternatives and surrogate pairs match as they do there', () => {
    for (const pattern of ['a|^b$', '(^|,)b', 'a$|b', '(|a)b', '(a*)*$', '\\u{1f600}', '[😀-😂]', '']) {
      for (const text of ['', 'a', 'b', 'ab', 'a,b', 'bb', '😀', '😁', 'a\n']) {
        assert.equal(new LinearPattern(pattern).test(text), new RegExp(pattern, 'u').test(text), `${pattern} ${text}`);
      }
    }
  });

  for (const pattern of ['^(a+)+$', '^(a|a)*$', '^(a|ab|b)*c$', 'a*a*a*a*a*b', '(.*)(.*)(.*)x']) {
    test(`${pattern} takes time linear in the length of the text`, () => {
      assert.equal(new LinearPattern(pattern).test(`${'a'.repeat(100_000)}!`), false);
    });
  }

  test('plain patterns, which the engine matches, match texts of any length', () => {
    const texts = ['ab12', 'é', 'ab12😀', ''];
    for (const pattern of ['^[0-9a-f]+$', '^[^x]*$', '^a.{2,}', '^ab\\d{2}$', '^[\\]a]?', '^😀{2,}$']) {
      for (const text of texts) {
        for (const times of [1, 2, 2_500, 12_000]) {
          for (const end of ['', 'x']) {
            const long = text.repeat(times) + end;
            const expected = new LinearPattern(`(?:${pattern})`).test(long);
            assert.equal(new LinearPattern(pattern).test(long), expected, `${pattern} ${text} ${times} ${end}`);
          }
        }
      }
    }
  });

  test('a pattern whose automaton has very many states still matches', () => {
    const pattern = new LinearPattern('(a|b)*a(a|b){20}$');
    const text = Array.from({ length: 5_000 }, (_, index) => ((index * 7919) % 13 < 6 ? 'a' : 'b')).join('');
    assert.equal(pattern.test(text), /a[ab]{20}$/.test(text));
    assert.equal(pattern.test(`a${'b'.repeat(20)}`), true);
    assert.equal(pattern.test('b'.repeat(30)), false);
  });

  const refused: readonly [string, RegExp][] = [
    ['(?=a)', /look-around.*`\(\?=`/],
    ['(?<!a)b', /look-around/],
    ['(a)\\1', /backreferences.*`\\1`/],
    ['a**', /not a regular expression: .*Nothing to repeat/],
    ['(a', /Unterminated group/],
    ['[z-a]', /out of order/],
    ['(?i)a', /not a regular expression/],
    ['a{1000}', /too large/],
    ['(a{1,100}){1,100}', /large counts/],
    ['a'.repeat(501), /longer than 500/],
  ];
  for (const [pattern, message] of refused) {
    test(`${pattern.slice(0, 40)} is refused`, () => {
      assert.throws(
        () => new LinearPattern(pattern),
        (error) => error instanceof PatternError && message.test(error.message),
      );
    });
  }
});
