/** Arrays of users as clients might send them: mostly valid, with odd values at every place where one can be odd. */

import * as fc from 'fast-check';

/** Rarely an odd value, otherwise one that is fine. */
function mostly(fine: fc.Arbitrary<unknown>, odd: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  return fc.oneof({ arbitrary: fine, weight: 30 }, { arbitrary: odd, weight: 1 });
}

const emoji = '👩‍👩‍👧';
const anything = fc.jsonValue();
const longText = fc.constantFrom('x'.repeat(511), 'x'.repeat(512), 'x'.repeat(513), '😀'.repeat(512), emoji.repeat(90));
const lineOfText = fc.oneof(
  { arbitrary: fc.string({ unit: 'grapheme', minLength: 1 }), weight: 10 },
  { arbitrary: fc.constantFrom('ada@example.com', ' ada ', '\u00a0x', '__proto__'), weight: 4 },
  { arbitrary: longText, weight: 1 },
);
const identifier = mostly(
  fc.oneof(lineOfText, fc.constant(null)),
  fc.oneof(fc.constantFrom('', ' ', '\ufeff'), anything),
);
const key = fc.oneof(
  { arbitrary: fc.string(), weight: 10 },
  { arbitrary: fc.constantFrom('__proto__', 'constructor', 'toString', 'user_id', 'events', ''), weight: 3 },
  { arbitrary: longText, weight: 1 },
);

const identifiers = fc
  .tuple(
    fc.record(
      { user_id: identifier, email: identifier, phone_number: identifier, anon_id: identifier },
      { requiredKeys: ['email'] },
    ),
    fc.dictionary(key, mostly(fc.oneof(fc.string(), fc.constant(null)), anything), { maxKeys: 2 }),
  )
  .map(([known, others]): unknown => Object.assign(others, known));

const timestamps = fc.constantFrom('2026-11-14T09:30:00Z', '2026-11-14', '20261114T0930', '2026-11-14T09:30:00,5+0100');
const amount = mostly(fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.constant(null)), anything);

const event = fc
  .tuple(
    fc.record(
      {
        event_name: mostly(lineOfText, fc.oneof(fc.constant(' '), anything)),
        timestamp: mostly(fc.oneof(timestamps, fc.constant(null)), anything),
        revenue: amount,
        event_value: amount,
        $event_id: mostly(fc.string({ minLength: 1 }), fc.oneof(fc.constantFrom('', '😀'.repeat(255)), anything)),
      },
      { requiredKeys: ['event_name'] },
    ),
    fc.dictionary(key, anything, { maxKeys: 2 }),
  )
  .map(([known, others]): unknown => Object.assign(others, known));

const user = fc.record(
  {
    identifiers: mostly(identifiers, anything),
    user_properties: mostly(fc.oneof(fc.dictionary(key, anything, { maxKeys: 3 }), fc.constant(null)), anything),
    events: mostly(fc.array(mostly(event, anything), { minLength: 1, maxLength: 3 }), anything),
    locale: anything,
  },
  { requiredKeys: ['identifiers', 'events'] },
);

export const users = fc.array(mostly(user, anything), { minLength: 1, maxLength: 3 });
