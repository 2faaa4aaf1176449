/** Requests as text, for property tests: what clients send, and spellings that JavaScript would not choose. */

import * as fc from 'fast-check';

type Texts = fc.Arbitrary<string>;

const plainScalar = fc.constantFrom(
  ...['0', '12', '-1.5', '123456789012345', '0.000001', 'true', 'false', 'null'],
  ...['"EUR"', '"Straße"', '""', '"購入 😀"', '"\u2028"', '"{,}"', '"]"'],
);
const oddScalar = fc.oneof(
  fc.constantFrom('-0', '1.50', '0.0000001', '1e3', '1E400', '1234567890123456', '9007199254740993', '-0.0'),
  fc.constantFrom('"a\\"b"', '"\\u00e9"', '"\\ud83d"'),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => JSON.stringify(number)),
);
const plainName = fc.constantFrom(
  ...[
    'plan',
    'visits',
    'é',
    'a b',
    'user_id',
    'city',
    '$event_id',
    'b',
    'c',
    '',
    '_',
    'constructor',
    'events',
    'currency',
  ],
);
const oddName = fc.constantFrom('7', '__proto__', '__', 'n'.repeat(200));

const scalar = fc.oneof({ weight: 8, arbitrary: plainScalar }, oddScalar);
const name = fc.oneof({ weight: 8, arbitrary: plainName }, oddName);
const comma = fc.constantFrom(',', ',', ',', ', ');

/** A name may come twice. */
function members(pair: fc.Arbitrary<readonly [string, string]>, maxLength = 4): Texts {
  return fc
    .tuple(fc.array(pair, { maxLength }), comma)
    .map(([list, between]) => `{${list.map(([key, item]) => `"${key}":${item}`).join(between)}}`);
}

const timestamp = fc.constantFrom(
  ...['"2026-11-15"', '"2026-11-15T10:20:30.5Z"', '"2026-11-15T10:20:30.123Z"', '"2026-11-15T24:00:00.000Z"', 'null'],
);
const eventName = fc
  .constantFrom('"seen"', '" 購入"', '"first"', `"${'e'.repeat(200)}"`)
  .map((text) => `"event_name":${text}`);
const identifier = fc.oneof(
  fc.constantFrom('"u_1"', '" Ada@X.org"', '"Ada@X.org"', '"Ärger"', '"null"', '"0049 30 123456"', 'null', '""'),
  fc.constantFrom('"a@x.org"', '"0-0"', '"0a0"', '"-a"', '"NIL"', '"nila"', '"a b"', '"日本"', '"x\u007f"'),
  fc.integer({ min: 1, max: 512 }).map((length) => `"${'k'.repeat(length)}"`),
);

/** First, or last. */
function withMember(object: string, member: string, place: number): string {
  if (object === '{}') return `{${member}}`;
  return place % 2 === 0 ? `{${member},${object.slice(1)}` : `${object.slice(0, -1)},${member}}`;
}

const { value } = fc.letrec<{ value: string; object: string }>((tie) => ({
  value: fc.oneof(
    { weight: 5, arbitrary: scalar },
    { weight: 1, arbitrary: fc.array(tie('value'), { maxLength: 3 }).map((items) => `[${items.join()}]`) },
    { weight: 1, arbitrary: tie('object') },
  ),
  object: members(fc.tuple(name, tie('value'))),
}));

const event = members(
  fc.oneof(
    { weight: 4, arbitrary: fc.tuple(name, value) },
    fc.tuple(fc.constant('$event_id'), fc.constantFrom('"e-1"', '"é"')),
    fc.tuple(fc.constant('timestamp'), timestamp),
    fc.tuple(fc.constant('currency'), fc.oneof(value, fc.constantFrom('"usd"', '" EUR"', '"Åbc"'))),
    fc.tuple(fc.constantFrom('revenue', 'event_value'), fc.oneof(scalar, fc.constantFrom('1', '2.50', 'null'))),
  ),
  6,
);

const identifierNames = ['user_id', 'email', 'phone_number', 'anon_id', 'first_name', 'city', 'zip', '__proto__'];
const identifiers = members(fc.tuple(fc.constantFrom(...identifierNames), identifier));
// With what every user must have, so that most of them are valid.
const user = fc
  .tuple(
    fc.tuple(identifiers, fc.nat()).map(([object, place]) => withMember(object, '"anon_id":"a"', place)),
    members(fc.tuple(name, value)),
    fc.array(
      fc.tuple(event, eventName, fc.nat()).map(([object, member, place]) => withMember(object, member, place)),
      { minLength: 1, maxLength: 3 },
    ),
    fc.shuffledSubarray([0, 1, 2], { minLength: 3 }),
  )
  .map(([who, said, events, order]) => {
    const parts = [`"identifiers":${who}`, `"user_properties":${said}`, `"events":[${events.join()}]`];
    return `{${order.map((index) => parts[index]).join()}}`;
  });

export const request: Texts = fc
  .array(user, { minLength: 1, maxLength: 4 })
  .map((users) => `{"users":[${users.join()}]}`);
