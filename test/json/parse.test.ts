/** Property names that are written with an escape are read rightly, whatever `JSON.parse` has seen before. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { parseExact } from '../../src/json/exact-numbers.ts';
import { parseJson } from '../../src/json/parse.ts';
import { referenceValue } from './reference.ts';

const PARSERS = [parseJson, parseExact];

/** Few letters and names of few of them, so that many names are alike: as text, and as it is escaped. */
const name = fc.oneof(
  { weight: 6, arbitrary: fc.string({ unit: fc.constantFrom(...'\\\\na"\n\ud800'.split('')), maxLength: 4 }) },
  { weight: 1, arbitrary: fc.constantFrom('__proto__', 'constructor', '7', '10', '-0', '', '😀', 'é') },
);
const { value: anyValue } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { weight: 2, arbitrary: fc.constantFrom(null, true, false, '', 'a:"\\', 0, -1.5, 1e21) },
    { weight: 2, arbitrary: name },
    { weight: 1, arbitrary: fc.array(tie('value'), { maxLength: 3 }) },
    // The same name first, so that objects begin alike. Maps, because they can hold a name twice.
    {
      weight: 4,
      arbitrary: fc
        .array(fc.tuple(name, tie('value')), { maxLength: 4 })
        .map((members) => new Members([['a', 1], ...members])),
    },
  ),
}));

/** An object as it is written, with names that may come twice. */
class Members {
  readonly entries: readonly (readonly [string, unknown])[];

  constructor(entries: readonly (readonly [string, unknown])[]) {
    this.entries = entries;
  }
}

function valueOf(written: unknown): unknown {
  if (Array.isArray(written)) return written.map(valueOf);
  if (!(written instanceof Members)) return written;
  return Object.fromEntries(written.entries.map(([key, value]) => [key, valueOf(value)]));
}

/** As JSON, with escapes and white space where chance wants them. */
function write(written: unknown, chance: () => number): string {
  const space = (): string => ['', '', '', ' ', '\n'][chance() % 5] ?? '';
  if (typeof written === 'string') return writeString(written, chance);
  if (Array.isArray(written)) return `[${written.map((item) => space() + write(item, chance)).join()}${space()}]`;
  if (!(written instanceof Members)) return JSON.stringify(written);
  const members = written.entries.map(
    ([key, value]) => `${space()}${writeString(key, chance)}${space()}:${space()}${write(value, chance)}`,
  );
  return `{${members.join()}${space()}}`;
}

function writeString(text: string, chance: () => number): string {
  const units = Array.from({ length: text.length }, (_, at) => {
    const unit = text.charAt(at);
    if (chance() % 8 === 0) return `\\u${text.charCodeAt(at).toString(16).padStart(4, '0')}`;
    // Half of a pair may also be in a text as it is.
    return /[\ud800-\udfff]/.test(unit) ? unit : JSON.stringify(unit).slice(1, -1);
  });
  return `"${units.join('')}"`;
}

/** Deeply equal, and names in the same order. */
function assertSame(actual: unknown, expected: unknown, text: string): void {
  assert.deepEqual(actual, expected, text);
  assert.equal(JSON.stringify(actual), JSON.stringify(expected), text);
}

suite('Parsing', () => {
  test('an escaped name is not taken for one that JSON.parse has met before', () => {
    for (const [before, text] of [
      ['{"a":1,"\\\\n":1}', '{"a":1,"\\nb":1}'],
      ['{"a":1,"x\\\\ny":1}', '{"a":1,"x\\nyz":1}'],
      ['{"a":1,"\\\\\\\\":1}', '{"a":1,"\\\\x":1}'],
      ['{"a":1,"\\\\":1}', '{"a":1,"\\"":1}'],
      ['{"a":1,"\\\\u00":1}', '{"a":1,"\\u0000bcd":1}'],
      ['[{"a":1,"\\\\t":1}]', '[1,{"b":{"a":1,"\\tb" \n:1}}]'],
    ] as const) {
      JSON.parse(before);
      for (const parse of PARSERS) assertSame(parse(text), referenceValue(text), text);
    }
  });

  test('any value comes back as it was written, in whatever spelling', () => {
    fc.assert(
      fc.property(anyValue, fc.array(fc.nat(59), { minLength: 1 }), (written, choices) => {
        let next = 0;
        const text = write(written, () => choices[next++ % choices.length] ?? 0);
        const expected = valueOf(written);
        // What it remembers of this text must not show in the next ones.
        JSON.parse(text);
        assertSame(referenceValue(text), expected, text);
        for (const parse of PARSERS) assertSame(parse(text), expected, text);
      }),
      // What fails depends on all that was parsed before, so there is no smaller case to look for.
      { numRuns: 4_000, endOnFailure: true },
    );
  });

  test('numbers keep their digits beside escaped names', () => {
    const text = '{"a":12345678901234567890,"\\n":[1e400,-0,1.5],"__proto__":-0}';
    assert.equal(JSON.stringify(parseExact(text)), text);
    assert.equal(JSON.stringify(parseJson(text)), '{"a":12345678901234567000,"\\n":[null,0,1.5],"__proto__":0}');
  });

  test('what is not JSON is refused, with an escaped name or without, and its text is not quoted', () => {
    const whole = '{"a":[1,"b",true],"secret\\n":{"c":null}} ';
    for (const parse of PARSERS) {
      for (const text of ['', '{"\\n":}', '{"\\x":1}', '{"\\n":1,}', '["\\n":1]', '\uFEFF{"\\n":1}', '{"\\n":01}']) {
        assert.throws(() => parse(text), SyntaxError, text);
      }
      for (let length = 1; length < whole.length - 1; length++) {
        assert.throws(() => parse(whole.slice(0, length)), SyntaxError);
      }
      assert.throws(
        () => parse(`${whole}secret`),
        (error: Error) => !error.message.includes('secret'),
      );
    }
  });

  test('millions of escapes and absurd nesting are parsed in linear time, without a stack', () => {
    const long = '\\n\\"'.repeat(1_000_000);
    assert.deepEqual(parseJson(`{"a":"${long}","\\n":1}`), { a: '\n"'.repeat(1_000_000), '\n': 1 });
    const levels = 100_000;
    const deep = `${'[{"\\n":'.repeat(levels)}1${'}]'.repeat(levels)}`;
    let inner: unknown = parseJson(deep);
    for (let level = 0; level < levels; level++) inner = (inner as [{ '\n': unknown }])[0]['\n'];
    assert.equal(inner, 1);
  });
});
