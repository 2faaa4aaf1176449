/** The one scanner against `JSON.parse`: what is JSON, what its keys and values are, and where they are in the bytes. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { END, JsonScanner, KnownKeys, OTHER, QUOTE } from '../../src/json/scanner.ts';
import { referenceValue } from './reference.ts';

const NO_KEYS = new KnownKeys();

/** Builds the value again from what the scanner tells, by the calls that go step by step. */
function valueOf(scanner: JsonScanner): unknown {
  if (scanner.openObject()) {
    const members: [string, unknown][] = [];
    while (scanner.nextKey(NO_KEYS) !== END) {
      const name = scanner.stringText();
      members.push([name, valueOf(scanner)]);
    }
    return Object.fromEntries(members);
  }
  if (scanner.openArray()) {
    const elements: unknown[] = [];
    while (scanner.nextElement()) elements.push(valueOf(scanner));
    return elements;
  }
  if (scanner.string()) return scanner.stringText();
  scanner.peek();
  const [at, offset] = [scanner.at, scanner.offset];
  if (!scanner.number() && !scanner.skipValue()) return undefined;
  const source = Buffer.from(scanner.bytes.subarray(at, scanner.at)).toString('utf8');
  assert.equal(scanner.text.slice(offset, scanner.offset), source);
  return JSON.parse(source);
}

function parsed(text: string): { readonly value: unknown } | null {
  try {
    JSON.parse(text);
    return { value: referenceValue(text) };
  } catch {
    return null;
  }
}

/** Both ways through the text agree with `JSON.parse`; says whether it is JSON. */
function assertAgrees(text: string): boolean {
  const expected = parsed(text);
  const skipping = new JsonScanner(Buffer.from(text));
  skipping.skipValue();
  assert.equal(skipping.finish(), expected !== null, text);
  const stepping = new JsonScanner(Buffer.from(text));
  const value = valueOf(stepping);
  assert.equal(stepping.finish(), expected !== null, text);
  if (expected !== null) {
    assert.deepEqual(value, expected.value);
    assert.equal(skipping.at, Buffer.byteLength(text));
    assert.equal(skipping.offset, text.length);
    assert.equal(skipping.error, null);
  }
  return expected !== null;
}

const SPACE = fc.constantFrom('', '', ' ', '\n', '\t\r\n ');
/** A string as JSON in some spelling: as it is, or its units as escapes. Halves of pairs can only be escapes. */
const stringText = fc
  .tuple(
    fc.string({ unit: fc.constantFrom(...'ab"\\/\n\u0001\u007fé€😀\u2028\ud800\udc00'.split(''), '😀') }),
    fc.nat(),
  )
  .map(([value, how]) => {
    if (!value.isWellFormed() || how % 3 === 0) {
      const units = Array.from({ length: value.length }, (_, at) => value.charCodeAt(at).toString(16).padStart(4, '0'));
      return `"${units.map((unit) => `\\u${how % 2 === 0 ? unit : unit.toUpperCase()}`).join('')}"`;
    }
    return JSON.stringify(value);
  });
const numberText = fc.oneof(
  fc.constantFrom('0', '-0', '1e400', '-1E-7', '0.0000001', '12345678901234567890123456789.5', '1.50', '1e+2'),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => JSON.stringify(number)),
);
const { value: jsonText } = fc.letrec<{ value: string }>((tie) => {
  const list = (item: fc.Arbitrary<string>, open: string, close: string): fc.Arbitrary<string> =>
    fc
      .tuple(fc.array(item, { maxLength: 4 }), SPACE, SPACE)
      .map(([items, a, b]) => `${open}${a}${items.join(`${b},${a}`)}${b}${close}`);
  const member = fc.tuple(stringText, SPACE, tie('value')).map(([key, gap, value]) => `${key}${gap}:${gap}${value}`);
  return {
    value: fc.oneof(
      { weight: 3, arbitrary: stringText },
      { weight: 3, arbitrary: numberText },
      { weight: 2, arbitrary: fc.constantFrom('true', 'false', 'null') },
      { weight: 2, arbitrary: list(tie('value'), '[', ']') },
      // Few different keys, so that many objects have one twice.
      { weight: 3, arbitrary: list(member, '{', '}') },
    ),
  };
});

suite('The scanner', () => {
  test('takes what JSON.parse takes, in any spelling and white space, and sees the same keys and values', () => {
    fc.assert(
      fc.property(jsonText, SPACE, (text, space) => assert.ok(assertAgrees(space + text + space))),
      { numRuns: 4_000 },
    );
  });

  test('refuses what JSON.parse refuses: texts with a piece taken out, put in or written over', () => {
    const pieces = fc.constantFrom(
      ...'{}[]":,\\ 0123.-+eEtfnu\u0000\u001fé😀'.split(''),
      '\\u',
      '\\ud83d',
      '00',
      'tru',
    );
    let valid = 0;
    let invalid = 0;
    fc.assert(
      fc.property(jsonText, fc.nat(), fc.nat(2), fc.oneof(fc.constant(''), pieces), (text, at, removed, inserted) => {
        const start = at % (text.length + 1);
        const changed = text.slice(0, start) + inserted + text.slice(start + removed);
        // Half of a pair that was cut cannot be in UTF-8.
        if (assertAgrees(changed.toWellFormed())) valid++;
        else invalid++;
      }),
      { numRuns: 12_000 },
    );
    assert.ok(valid > 500 && invalid > 3_000, `${valid} valid and ${invalid} invalid ones`);
  });

  test('stops at the end of every beginning of a text, and of any bytes', () => {
    const whole = Buffer.from('{"users":[{"é😀":[1.5e-3,"\\u00e9\\n",true],"a":{}}],"b":null} ');
    for (let length = 0; length < whole.length - 1; length++) {
      const scanner = new JsonScanner(whole.subarray(0, length));
      valueOf(scanner);
      assert.equal(scanner.finish(), false);
      assert.equal(scanner.error?.problem, 'ends too early');
    }
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        const scanner = new JsonScanner(bytes);
        scanner.skipValue();
        scanner.finish();
      }),
    );
  });

  test('known keys are found in every spelling, and others are not taken for them', () => {
    const keys = new KnownKeys('users', 'user_id', '$event_id', 'email');
    const found = (text: string): number => {
      const scanner = new JsonScanner(Buffer.from(text));
      assert.ok(scanner.openObject());
      return scanner.nextKey(keys);
    };
    assert.equal(found('{"users":1}'), 0);
    assert.equal(found('{ "user_id" : 1}'), 1);
    assert.equal(found('{"$event_id":1}'), 2);
    assert.equal(found('{"\\u0065mail":1}'), 3);
    assert.equal(found('{"em\\u0061il":1}'), 3);
    for (const other of ['user', 'userz', 'Users', '', 'émail', 'user_id ', 'a key that is longer than any of them']) {
      assert.equal(found(JSON.stringify({ [other]: 1 })), OTHER, other);
    }
    assert.equal(found('{}'), END);
    assert.equal(found('{"users"}'), END);
  });

  test('of a key given twice both come, in order', () => {
    const scanner = new JsonScanner(Buffer.from('{"a":1,"b":2,"\\u0061":3}'));
    const keys = new KnownKeys('a');
    const found: [number, string][] = [];
    assert.ok(scanner.openObject());
    for (let key = scanner.nextKey(keys); key !== END; key = scanner.nextKey(keys)) {
      const { at } = scanner;
      scanner.skipValue();
      found.push([key, scanner.text.slice(at, scanner.at)]);
    }
    assert.deepEqual(found, [
      [0, '1'],
      [OTHER, '2'],
      [0, '3'],
    ]);
    assert.ok(scanner.finish());
  });

  test('tells places in bytes and in the text, behind characters of one to four bytes', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: fc.constantFrom('a', 'é', '€', '😀', '\n') })), (values) => {
        const scanner = new JsonScanner(Buffer.from(JSON.stringify(values)));
        assert.ok(scanner.openArray());
        for (const value of values) {
          assert.ok(scanner.nextElement());
          assert.ok(scanner.string());
          const { stringStart, stringEnd, stringStartOffset, stringEndOffset, text } = scanner;
          const source = JSON.stringify(value).slice(1, -1);
          assert.equal(Buffer.from(scanner.bytes.subarray(stringStart, stringEnd)).toString('utf8'), source);
          assert.equal(text.slice(stringStartOffset, stringEndOffset), source);
          assert.equal(scanner.isEscaped, value.includes('\n'));
          assert.equal(scanner.stringText(), value);
        }
        assert.equal(scanner.nextElement(), false);
        assert.ok(scanner.finish());
      }),
    );
  });

  test('tells of risky escapes, long keys, depth and exponents', () => {
    const scanned = (text: string): JsonScanner => {
      const scanner = new JsonScanner(Buffer.from(text));
      assert.ok(scanner.skipValue() && scanner.finish(), text);
      return scanner;
    };
    for (const risky of ['\\u0000', '\\ud83d', '\\uDFFF', '\\ud83d\\ude00']) {
      assert.ok(scanned(`["${risky}"]`).hasRiskyEscape, risky);
      assert.ok(scanned(`{"${risky}":1}`).hasRiskyEscape, risky);
    }
    for (const fine of ['\\u0001', '\\ud7ff', '\\ue000', '\\\\u0000', '\\n']) {
      assert.ok(!scanned(`["${fine}"]`).hasRiskyEscape, fine);
    }
    assert.equal(scanned('{"a":{"éé":[{"b":1}]},"c":1}').longestKeyBytes, 4);
    assert.equal(scanned('{"a":[[],[{}]],"b":{}}').deepest, 4);
    assert.equal(scanned('1').deepest, 0);
    for (const [text, hasExponent] of [
      ['1e3', true],
      ['-1.5E-3', true],
      ['1.5', false],
      ['12', false],
    ] as const) {
      assert.equal(scanned(text).hasExponent, hasExponent);
    }
  });

  test('nesting of a million levels takes no stack', () => {
    const levels = 1_000_000;
    const scanner = new JsonScanner(Buffer.from(`${'[{"a":'.repeat(levels / 2)}1${'}]'.repeat(levels / 2)}`));
    assert.ok(scanner.skipValue() && scanner.finish());
    assert.equal(scanner.deepest, levels);
    const open = new JsonScanner(Buffer.from('['.repeat(levels)));
    assert.ok(!open.skipValue() && !open.finish());
    assert.equal(open.error?.offset, levels);
  });

  test('goes nowhere if another kind of value comes next', () => {
    const scanner = new JsonScanner(Buffer.from('[1,"a",{}]'));
    assert.ok(!scanner.openObject() && !scanner.string() && !scanner.number());
    assert.equal(scanner.at, 0);
    assert.ok(scanner.openArray() && scanner.nextElement());
    assert.ok(!scanner.string() && !scanner.openObject() && scanner.number());
    assert.ok(scanner.nextElement() && !scanner.number() && scanner.peek() === QUOTE && scanner.string());
    assert.ok(scanner.nextElement() && !scanner.openArray() && scanner.openObject());
    assert.equal(scanner.nextKey(NO_KEYS), END);
    assert.ok(!scanner.nextElement() && scanner.finish());
  });
});
