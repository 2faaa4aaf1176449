/** Rules 1 to 4: which keys a user is matched by. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { isJunk, type MatchOptions, matchKeysOf, normalise } from '../../src/identity/match-keys.ts';
import { IDENTIFIER_TYPES } from '../../src/model.ts';

const PLAIN: MatchOptions = { defaultCountry: null, junkValues: new Set() };
const countryOf = (defaultCountry: string): MatchOptions => ({ ...PLAIN, defaultCountry });

suite('Normalising (rule 2)', () => {
  for (const [type, raw, expected] of [
    ['user_id', '  U_1\n', 'U_1'],
    ['user_id', 'u_1', 'u_1'],
    ['user_id', 'e\u0301', '\u00e9'],
    ['anon_id', 'AbC', 'AbC'],
    ['email', ' Ada.Love+news@Example.COM ', 'ada.love+news@example.com'],
    ['email', 'ada@example.com', 'ada@example.com'],
    ['email', 'JOSE\u0301@EXAMPLE.COM', 'jos\u00e9@example.com'],
    ['email', 'H\u0331@example.com', '\u1e96@example.com'],
  ] as const) {
    test(`${type} ${JSON.stringify(raw)} becomes ${JSON.stringify(expected)}`, () => {
      assert.equal(normalise(type, raw, PLAIN), expected);
    });
  }

  const phoneNumbers: readonly (readonly [string, string | null, string])[] = [
    ['+49 30 123456', null, '+4930123456'],
    ['+4930123456', null, '+4930123456'],
    ['+49 (0)30 123456', null, '+4930123456'],
    ['(+49) 30 / 123-456', null, '+4930123456'],
    ['0049 30 123456', null, '+4930123456'],
    ['00 49 30 123456', null, '+4930123456'],
    ['00-49-30-123456', null, '+4930123456'],
    ['(0049) 30 123456', null, '+4930123456'],
    ['0049 30 123456', 'US', '+4930123456'],
    ['0049 30 123456', 'JP', '+4930123456'],
    ['0011 65 6123 4567', 'AU', '+6561234567'],
    ['tel:+49-30-123456', null, '+4930123456'],
    ['＋４９　３０　１２３４５６', null, '+4930123456'],
    ['+٤٩٣٠١٢٣٤٥٦', null, '+4930123456'],
    ['+49\u00a030\u2011123456', null, '+4930123456'],
    ['030 123456', 'DE', '+4930123456'],
    ['(213) 373-4253', 'US', '+12133734253'],
    ['+1 213 373 4253', 'DE', '+12133734253'],
    ['+1 213 373 4253 ext. 12', null, '+12133734253;ext=12'],
    ['213 373 4253 x12', 'US', '+12133734253;ext=12'],
    ['+4900301234567', null, '+49301234567'],
    ['030 123456', null, 'digits:030123456'],
    ['030/123-456', null, 'digits:030123456'],
    ['٠٣٠', null, 'digits:030'],
    ['030 123456', 'XX', 'digits:030123456'],
    ['+999 123 456', null, 'digits:999123456'],
    ['12', 'DE', 'digits:12'],
    ['digits:030123', null, 'digits:030123'],
    ['digits:030123', 'DE', 'digits:030123'],
    ['1-800-FLOWERS', null, 'text:1-800-FLOWERS'],
    ['+1 (800) FLOWERS', 'US', 'text:+1 (800) FLOWERS'],
    ['030 123456 ext. 4', null, 'text:030 123456 ext. 4'],
    ['text:1-800-FLOWERS', 'US', 'text:1-800-FLOWERS'],
  ];
  for (const [raw, country, expected] of phoneNumbers) {
    test(`phone number ${JSON.stringify(raw)} in ${country ?? 'no country'} becomes ${expected}`, () => {
      assert.equal(normalise('phone_number', raw, { ...PLAIN, defaultCountry: country }), expected);
    });
  }

  test('normalising twice changes nothing, whatever the default country is the second time', () => {
    const country = fc.constantFrom(null, 'DE', 'US', 'AU', 'JP', 'IT', 'AR', 'BR', 'XX');
    const dialled = fc
      .tuple(
        fc.constantFrom('+', '00', '0', '0011', '', 'tel:+', '(+', 'digits:', 'text:', '+49', '+1', '+39', '+54', '＋'),
        fc.string({
          unit: fc.constantFrom(...'0123456789012345678901234567890 -()/.x#+;٣３'.split('')),
          maxLength: 20,
        }),
      )
      .map((parts) => parts.join(''));
    const raw = fc.oneof(
      dialled,
      fc.string({ unit: 'grapheme' }),
      fc.string({ unit: 'binary' }),
      fc.string({ unit: fc.constantFrom('H', 'T', 'J', 'İ', 'Σ', 'a', '\u0331', '\u030c', '\u0308', '\u2000', '@') }),
    );
    fc.assert(
      fc.property(fc.constantFrom(...IDENTIFIER_TYPES), raw, country, country, (type, text, first, second) => {
        const once = normalise(type, text, { ...PLAIN, defaultCountry: first });
        if (once.trim() === '') return;
        assert.equal(normalise(type, once, { ...PLAIN, defaultCountry: second }), once);
      }),
      { numRuns: 1_500 },
    );
  });

  test('only what starts with a plus and a digit can equal an E.164 number', () => {
    const digits = fc.string({ unit: fc.constantFrom(...'0123456789 -'.split('')), minLength: 1 });
    fc.assert(
      fc.property(digits, (text) => {
        const value = normalise('phone_number', text, PLAIN);
        const isInternational = text.trim().startsWith('00') && /^\+[1-9][0-9]+$/.test(value);
        assert.ok(isInternational || value.startsWith('digits:') || value.startsWith('text:'), value);
      }),
    );
  });
});

suite('Junk (rule 3)', () => {
  const junk = [
    ...[
      'null',
      'NULL',
      'nil',
      'None',
      'undefined',
      'NaN',
      'n/a',
      'N/A',
      'unknown',
      'Anonymous',
      'guest',
      'true',
      'FALSE',
    ],
    ...['-1', '[object Object]', 'id', 'email', 'user_id', 'distinct_id', 'NOT_AUTHENTICATED', '0', '000', '-', '0-0'],
    ...['00000000-0000-0000-0000-000000000000', '—', '""', "''", '"null"', "'undefined'", '“null”', '„n/a“', '«none»'],
    ...['"', '" null "', '"\'null\'"', '`nil`', 'null"', '"-1"'],
  ];
  for (const value of junk) {
    test(`${value} is junk`, () => assert.ok(isJunk(value, PLAIN)));
  }

  for (const value of [
    'nullable',
    'u_0',
    '1',
    '-2',
    '01',
    'ids',
    'guest1',
    'anonymous@example.com',
    '0x0',
    "o'neill",
  ]) {
    test(`${value} is not junk`, () => assert.ok(!isJunk(value, PLAIN)));
  }

  test('a tenant can add values, in any case and within quotes', () => {
    const options = {
      ...PLAIN,
      junkValues: new Set(['test-user', 'a very long value that many people happen to share']),
    };
    assert.ok(isJunk('Test-User', options));
    assert.ok(isJunk('"test-user"', options));
    assert.ok(isJunk('a very long value that many people happen to share', options));
    assert.ok(!isJunk('test-user-1', options));
    assert.ok(isJunk('null', options));
  });

  for (const value of ['+00 000', '(000) 000-0000', '+', 'no phone', '０００', 'none given']) {
    test(`${value} is junk for a phone number`, () => {
      assert.deepEqual(matchKeysOf({ phone_number: value }, PLAIN), { keys: [], junk: ['phone_number'] });
    });
  }
});

suite('Match keys (rules 1 and 4)', () => {
  test('come strongest first, with the value as the client wrote it', () => {
    const identifiers = { city: 'Berlin', anon_id: ' a ', phone_number: '030 123456', email: 'A@b.c', user_id: 'u' };
    assert.deepEqual(matchKeysOf(identifiers, countryOf('DE')), {
      keys: [
        { type: 'user_id', value: 'u', raw: 'u' },
        { type: 'email', value: 'a@b.c', raw: 'A@b.c' },
        { type: 'phone_number', value: '+4930123456', raw: '030 123456' },
        { type: 'anon_id', value: 'a', raw: ' a ' },
      ],
      junk: [],
    });
  });

  test('leave out what is null or blank, and name what is junk', () => {
    const identifiers = { user_id: null, email: ' \t', phone_number: ' null ', anon_id: '\u00a0"0"\u00a0' };
    assert.deepEqual(matchKeysOf(identifiers, PLAIN), { keys: [], junk: ['phone_number', 'anon_id'] });
  });

  test('are made of the four identifiers alone', () => {
    const identifiers: unknown = JSON.parse('{"__proto__":{"user_id":"x"},"constructor":"y","first_name":"Ada"}');
    assert.deepEqual(matchKeysOf(identifiers as Record<string, unknown>, PLAIN), { keys: [], junk: [] });
  });
});
