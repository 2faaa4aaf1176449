/** Where and why a text is not JSON: by table, and against `JSON.parse` on texts that are nearly JSON. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { describeJsonError, findJsonError } from '../../src/json/error.ts';

const KEY = 'expected a property name in double quotes';
const NO_CHARACTER = 'unexpected character at line 1, column';

const ROWS: readonly (readonly [sentence: string, text: string, description: string])[] = [
  ['an empty text ends too early', '', 'ends too early at line 1, column 1, expected a value'],
  ['a blank text ends too early', ' \n ', 'ends too early at line 2, column 2, expected a value'],
  ['a byte order mark is named', '\ufeff{}', 'byte order mark at line 1, column 1, expected JSON to start without one'],
  ['a comma before a closing brace is an error', '{"a":1,}', `${NO_CHARACTER} 8, ${KEY}`],
  ['a comma before a closing bracket is an error', '[1,]', `${NO_CHARACTER} 4, expected a value`],
  ['a name without quotes is an error', '{a:1}', `${NO_CHARACTER} 2, ${KEY} or a closing brace`],
  ['a name in single quotes is an error', "{'a':1}", `${NO_CHARACTER} 2, ${KEY} or a closing brace`],
  ['a missing comma in an array is an error', '[1 2]', `${NO_CHARACTER} 4, expected a comma or a closing bracket`],
  [
    'a missing comma in an object is found in its line',
    '[\n  {"a": 1,\r\n   "b": 2 "c": 3}]',
    'unexpected character at line 3, column 11, expected a comma or a closing brace',
  ],
  ['a missing colon is an error', '{"a" 1}', `${NO_CHARACTER} 6, expected a colon`],
  ['a bracket that closes a brace is an error', '{"a":1]', `${NO_CHARACTER} 7, expected a comma or a closing brace`],
  ['a brace that closes a bracket is an error', '[[1]}', `${NO_CHARACTER} 5, expected a comma or a closing bracket`],
  ['a misspelt literal is an error at its first wrong letter', '[trie]', `${NO_CHARACTER} 4, expected the word true`],
  ['a literal in capitals is an error', '[True]', `${NO_CHARACTER} 2, expected a value or a closing bracket`],
  ['NaN is an error', '{"a":NaN}', `${NO_CHARACTER} 6, expected a value`],
  ['a leading zero is named', '[-012]', 'number with a leading zero at line 1, column 4'],
  ['a leading plus is an error', '{"a":+1}', `${NO_CHARACTER} 6, expected a value`],
  ['a minus alone is an error', '[-]', `${NO_CHARACTER} 3, expected a digit`],
  ['a point without digits is an error', '[1.]', `${NO_CHARACTER} 4, expected a digit`],
  ['an exponent without digits is an error', '[1e+]', `${NO_CHARACTER} 5, expected a digit`],
  [
    'a raw line break in a string is named',
    '"a\nb"',
    'raw control character in a string at line 1, column 3, expected an escape such as \\n',
  ],
  [
    'U+001F in a string is a control character',
    '"\x1f"',
    'raw control character in a string at line 1, column 2, expected an escape such as \\n',
  ],
  [
    'an unknown escape is named',
    '"\\x41"',
    'bad escape in a string at line 1, column 3, expected one of " \\ / b f n r t u after a backslash',
  ],
  [
    'a \\u with a letter too far is an error',
    '"\\u12G4"',
    `${NO_CHARACTER} 6, expected four hexadecimal digits after \\u`,
  ],
  [
    'a string without an end ends too early',
    '{"a',
    'ends too early at line 1, column 4, expected a closing double quote',
  ],
  [
    'a backslash at the end ends too early',
    '"\\',
    'ends too early at line 1, column 3, expected the rest of an escape',
  ],
  ['a literal without its end ends too early', 'nul', 'ends too early at line 1, column 4, expected the word null'],
  [
    'something after the value is an error',
    '{} {}',
    `${NO_CHARACTER} 4, expected nothing more after the end of the JSON value`,
  ],
  [
    'a wrong bracket after 300 levels of objects in arrays is an error',
    `${'[{"a":'.repeat(150)}1${'}]'.repeat(149)}]`,
    `${NO_CHARACTER} 1200, expected a comma or a closing brace`,
  ],
  ['a no-break space is no white space', '\u00a0{}', `${NO_CHARACTER} 1, expected a value`],
  [
    'an emoji before the error counts as one column',
    '["😀😀" x]',
    `${NO_CHARACTER} 7, expected a comma or a closing bracket`,
  ],
];

for (const [sentence, text, description] of ROWS) {
  test(sentence, () => assert.equal(describeJsonError(text), description));
}

const alphabet = fc.constantFrom(
  ...'{}[]":,\\/ \n\r\ttfnrueabl0123.-+E'.split(''),
  'true',
  'null',
  '"a"',
  '\\u',
  '00e9',
  '\0',
  '\x1f',
  '\u2028',
  'é',
  '😀',
  '\ud800',
);
const jsonLike = fc.array(alphabet, { maxLength: 16 }).map((pieces) => pieces.join(''));
const nearlyJson = fc
  .record({
    text: fc
      .tuple(fc.jsonValue({ maxDepth: 4 }), fc.constantFrom(undefined, 1, '\t'))
      .map(([value, indent]) => JSON.stringify(value, null, indent)),
    at: fc.nat(),
    removed: fc.nat(2),
    inserted: fc.oneof(fc.constant(''), alphabet),
  })
  .map(({ text, at, removed, inserted }) => {
    const start = at % (text.length + 1);
    return text.slice(0, start) + inserted + text.slice(start + removed);
  });
const anyText = fc.oneof({ weight: 2, arbitrary: nearlyJson }, { weight: 1, arbitrary: jsonLike });

function engineError(text: string): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

test('an error is found exactly when JSON.parse throws, and at the position that it tells when it tells one', () => {
  let valid = 0;
  let positions = 0;
  fc.assert(
    fc.property(anyText, (text) => {
      const expected = engineError(text);
      const found = findJsonError(text);
      assert.equal(found === undefined, expected === undefined, JSON.stringify({ text, expected, found }));
      if (found === undefined) valid++;
      const position = /at position (\d+)/.exec(expected ?? '')?.[1];
      if (position !== undefined) {
        positions++;
        assert.equal(found?.offset, Number(position), JSON.stringify({ text, expected, found }));
      }
    }),
    { numRuns: 15_000, seed: 20_261_115 },
  );
  assert.ok(valid > 1_500 && positions > 1_500, `${valid} texts were valid, ${positions} errors had positions`);
});

test('everything before an error could still have become JSON', () => {
  fc.assert(
    fc.property(anyText, (text) => {
      const offset = findJsonError(text)?.offset ?? text.length;
      const error = findJsonError(text.slice(0, offset));
      assert.ok(error === undefined || (error.problem === 'ends too early' && error.offset === offset));
    }),
    { numRuns: 5_000 },
  );
});

test('a description never quotes the text', () => {
  const canary = 'CANARY@example.com';
  fc.assert(
    fc.property(fc.nat(), alphabet, (at, piece) => {
      const text = JSON.stringify({ users: [{ identifiers: { email: canary, [canary]: canary } }], [canary]: 1 });
      const start = at % text.length;
      const description = describeJsonError(text.slice(0, start) + piece + text.slice(start + 1)) ?? '';
      assert.doesNotMatch(description, /CANARY|example|users|identifiers/i);
    }),
    { numRuns: 2_000 },
  );
});
