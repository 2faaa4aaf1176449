/**
 * The quick yes never says yes where the validator would not: on generated users, on requests in every white space, and
 * on valid requests broken byte by byte. And it does say yes to ordinary requests, or it would be of no use.
 */

import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { acceptPlain } from '../../src/validation/accept-plain.ts';
import { validateRequest } from '../../src/validation/validate-request.ts';
import { Random } from '../edge/mutations.ts';
import { arbitraryUser, textOf } from './arbitrary-users.ts';

const ROUNDS = 60_000;

/** What the quick yes has to be silent about, or agree with. Returns whether it said yes. */
function assertNoFalseYes(bytes: Buffer): boolean {
  if (!isUtf8(bytes)) return false;
  const plain = acceptPlain(bytes);
  if (plain === null) return false;
  const text = bytes.toString('utf8');
  assert.deepEqual(validateRequest(text), { ok: true, ...plain, rejections: [] }, text.slice(0, 2_000));
  return true;
}

const ORDINARY = {
  users: [
    {
      identifiers: { user_id: 'u-1', email: 'ada@example.com', anon_id: 'a-1', city: 'Zürich "1"', first_name: '' },
      user_properties: { plan: 'pro', visits: 483, tags: ['a', { b: [null, true, false, -0.5, 0, 12] }], empty: {} },
      events: [
        {
          event_name: 'order_placed',
          timestamp: '2026-11-15T10:20:30.123Z',
          revenue: 42.5,
          currency: 'EUR',
          items: [],
        },
        { event_name: 'päge_viewed', $event_id: 'e-1', event_value: -1, path: '/a\\b\n' },
      ],
    },
    { events: [{ event_name: 'x' }], identifiers: { phone_number: '+41 44 000 00 00' }, extra: { more: 1 } },
  ],
  sent_by: 'a test',
};

test('ordinary requests get the quick yes, however they are laid out', () => {
  for (const space of [0, 1, 2, '\t', '\n']) {
    const text = `\r\n ${JSON.stringify(ORDINARY, null, space)} \n`;
    assert.deepEqual(acceptPlain(Buffer.from(text)), { userCount: 2, eventCount: 3 }, text);
    assert.ok(assertNoFalseYes(Buffer.from(text)));
  }
});

for (const [what, text] of [
  ['users given twice', '{"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"x"}]}],"users":[]}'],
  [
    'identifiers given twice',
    '{"users":[{"identifiers":{"user_id":"a"},"identifiers":{},"events":[{"event_name":"x"}]}]}',
  ],
  [
    'an event name given twice',
    '{"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"x","event_name":1}]}]}',
  ],
  [
    'a name hidden in an escape',
    '{"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"x","\\u0065vent_name":1}]}]}',
  ],
  [
    'a number that is too large',
    '{"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"x","revenue":1e400}]}]}',
  ],
  ['a number with a leading zero', '{"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"x","n":01}]}]}'],
  [
    '30 February',
    '{"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"x","timestamp":"2026-02-30T00:00:00Z"}]}]}',
  ],
  [
    'a character that cannot be stored',
    '{"users":[{"identifiers":{"user_id":"a\\u0000"},"events":[{"event_name":"x"}]}]}',
  ],
  ['a comma too many', '{"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"x"},]}]}'],
  ['more behind the end', '{"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"x"}]}]}}'],
  ['nothing', ''],
  ['a lone brace', '}'],
] as const) {
  test(`${what}: no quick yes, the validator decides`, () => {
    assert.equal(acceptPlain(Buffer.from(text)), null);
  });
}

test('a request with more than 1,000 users gets no quick yes', () => {
  const one = '{"identifiers":{"user_id":"a"},"events":[{"event_name":"x"}]}';
  const of = (count: number): Buffer => Buffer.from(`{"users":[${Array(count).fill(one).join(',')}]}`);
  assert.deepEqual(acceptPlain(of(1_000)), { userCount: 1_000, eventCount: 1_000 });
  assert.equal(acceptPlain(of(1_001)), null);
});

test('on arbitrary users the quick yes agrees with the validator', () => {
  fc.assert(
    fc.property(fc.array(arbitraryUser, { minLength: 1, maxLength: 3 }), (users) => {
      assertNoFalseYes(Buffer.from(textOf({ users })));
    }),
    { numRuns: 800 },
  );
});

test('on valid requests broken byte by byte the quick yes agrees with the validator', (t) => {
  const seed = Number(process.env['PLAIN_SEED'] ?? Date.now() % 1e9);
  t.diagnostic(`PLAIN_SEED=${seed} repeats this run`);
  const random = new Random(seed);
  const whole = Buffer.from(JSON.stringify(ORDINARY));
  const alphabet = Buffer.from('{}[]",:\\0123456789.-+eEtrufalsn \n\t\u0001\u00e9TZ_$');
  let yes = 0;
  for (let round = 0; round < ROUNDS; round++) {
    let bytes = Buffer.from(whole);
    for (let changes = 1 + random.below(3); changes > 0; changes--) {
      const at = random.below(bytes.length);
      const how = random.below(4);
      if (how === 0) bytes[at] = alphabet[random.below(alphabet.length)] ?? 0;
      else if (how === 1) bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1 + random.below(3))]);
      else if (how === 2) {
        const more = alphabet.subarray(random.below(alphabet.length)).subarray(0, 1 + random.below(2));
        bytes = Buffer.concat([bytes.subarray(0, at), more, bytes.subarray(at)]);
      } else {
        const from = random.below(bytes.length);
        bytes = Buffer.concat([
          bytes.subarray(0, at),
          bytes.subarray(from, from + random.below(30)),
          bytes.subarray(at),
        ]);
      }
    }
    if (assertNoFalseYes(bytes)) yes += 1;
  }
  t.diagnostic(`${yes} of ${ROUNDS} broken requests were still valid`);
  assert.ok(yes > ROUNDS / 24);
});
