/** Numbers come back as the client wrote them, and all else as `JSON.parse` gives it. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { parseExact } from '../../src/json/exact-numbers.ts';
import { referenceValue } from './reference.ts';

const digits = (maxLength: number): fc.Arbitrary<string> =>
  fc.string({ unit: fc.constantFrom(...'0123456789'.split('')), minLength: 1, maxLength });
const whole = fc.tuple(fc.constantFrom('1', '9', '90071992547409', '5'), digits(24)).map((parts) => parts.join(''));
const numberText = fc
  .tuple(
    fc.constantFrom('', '-'),
    fc.oneof(fc.constantFrom('0', '1', '9007199254740993', '12345678901234567890'), whole),
    fc.oneof(
      fc.constant(''),
      digits(20).map((text) => `.${text}`),
    ),
    fc.oneof(
      fc.constant(''),
      fc.tuple(fc.constantFrom('e', 'E', 'e+', 'e-'), digits(4)).map((parts) => parts.join('')),
    ),
  )
  .map((parts) => parts.join(''));

/** The value of a number as a fraction of whole numbers, by another way than that of the code; exponents are capped. */
function exactly(text: string): string {
  const [mantissa = '', exponent = '0'] = text.toLowerCase().split('e');
  const [integer = '', fraction = ''] = mantissa.split('.');
  const scaled = BigInt(integer.replace('-', '') + fraction);
  if (scaled === 0n) return text.startsWith('-') ? '-0' : '0';
  let power = Number(exponent) - fraction.length;
  let rest = scaled;
  while (rest % 10n === 0n) {
    rest /= 10n;
    power++;
  }
  return `${text.startsWith('-') ? '-' : ''}${rest} ${power}`;
}

suite('Exact JSON', () => {
  test('every number keeps its value, wherever it stands', () => {
    const spaces = fc.constantFrom('', ' ', '\n', '\t');
    const place = fc.constantFrom('@', '[@]', '[1,@,2]', '{"a":@}', '{"a":[{"b":@}],"c":1}', '{"__proto__":@}');
    fc.assert(
      fc.property(numberText, spaces, spaces, place, (number, before, after, template) => {
        const text = template.replace('@', before + number + after);
        const written = JSON.stringify(parseExact(text));
        const shape = template.replace('@', '§');
        const [head = '', tail = ''] = JSON.stringify(JSON.parse(shape.replace('§', '"§"'))).split('"§"');
        assert.ok(written.startsWith(head) && written.endsWith(tail));
        assert.equal(exactly(written.slice(head.length, written.length - tail.length)), exactly(number));
      }),
      { numRuns: 3_000 },
    );
  });

  for (const text of [
    '9007199254740993',
    '-9007199254740993',
    '12345678901234567890',
    '0.12345678901234567890',
    '1e400',
    '-1E+400',
    '1e-400',
    '1.2345e-320',
    '-0',
    '-0.0',
    '-0e7',
  ]) {
    test(`${text} comes back digit for digit`, () => {
      assert.equal(JSON.stringify(parseExact(`{"n":[${text}]}`)), `{"n":[${text}]}`);
      assert.equal(JSON.stringify(parseExact(text)), text);
    });
  }

  for (const text of [
    '1.50',
    '1e2',
    '9007199254740992',
    '0.30000000000000004',
    '1e300',
    '-0.5',
    '100000000000000000000',
  ]) {
    test(`${text} is a plain number`, () => assert.equal(parseExact(text), Number(text)));
  }

  test('what has no such number is what JSON.parse gives, and what is no JSON is refused', () => {
    fc.assert(fc.property(fc.json(), (text) => assert.deepEqual(parseExact(text), referenceValue(text))));
    for (const text of ['', '{', '[12345678901234567890', '012345678901234567890', '{"a":1e400e}']) {
      assert.throws(() => parseExact(text), SyntaxError);
    }
  });

  test('keys such as __proto__ are own members, next to long numbers too', () => {
    const text = '{"__proto__":{"n":12345678901234567890},"constructor":{"__proto__":1},"a":1e400}';
    const parsed = parseExact(text) as object;
    assert.deepEqual(Object.keys(parsed), ['__proto__', 'constructor', 'a']);
    assert.equal(Object.getPrototypeOf(parsed), Object.prototype);
    assert.equal(JSON.stringify(parsed), text);
  });

  test('of a name given twice the last one counts', () => {
    const text = '{"a":1,"a":12345678901234567890,"b":12345678901234567890,"b":5}';
    assert.equal(JSON.stringify(parseExact(text)), '{"a":12345678901234567890,"b":5}');
  });

  test('digits inside of strings stay strings', () => {
    const text = '{"a":"12345678901234567890","b":"x, 1e400, -0 ","c":"\\"n\\": 12345678901234567890,"}';
    assert.equal(JSON.stringify(parseExact(text)), text);
  });

  test('backslashes before a quote are paired, so a number after the string is seen', () => {
    for (const inside of ['\\\\', 'a\\\\\\"', '\\"\\"', '\\\\\\\\']) {
      const text = `{"a":"${inside}","n":12345678901234567890,"b":"12345678901234567890"}`;
      assert.equal(JSON.stringify(parseExact(text)), text);
    }
  });

  test('absurd nesting takes no stack, and numbers keep their digits', () => {
    const deep = '['.repeat(100_000) + ']'.repeat(100_000);
    const parsed = parseExact(`{"a":${deep},"n":12345678901234567890}`) as { n: unknown };
    assert.equal(JSON.stringify(parsed.n), '12345678901234567890');
  });

  test('long digits take linear time', () => {
    const zeros = '0'.repeat(500_000);
    const text = `[1${zeros}1,0.${zeros}1,1${zeros}]`;
    assert.equal(JSON.stringify(parseExact(text)), text);
  });
});
