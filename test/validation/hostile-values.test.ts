/**
 * Values that break naive servers, each written as the client would send it. Whole requests go in as text, since half
 * of these values exist in JSON text only.
 */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { validateRequest } from '../../src/validation/validate-request.ts';

const NO_IDENTIFIER = 'at least one identifier is required (user_id, email, phone_number, or anon_id)';
const UNSTORABLE = 'contains a character that cannot be stored';

/** The user as JSON text, the message or null. */
type Row = readonly [sentence: string, user: string, message: string | null];

const user = (identifiers: string, event = '"event_name":"e"', more = ''): string =>
  `{"identifiers":{${identifiers}},"events":[{${event}}]${more}}`;
const ID = '"user_id":"u"';
const property = (text: string): string => user(ID, '"event_name":"e"', `,"user_properties":{${text}}`);

const ROWS: readonly Row[] = [
  ['__proto__ as a property is data', property('"__proto__":{"polluted":true}'), null],
  ['__proto__ in a nested value is data', property('"a":{"__proto__":{"polluted":true}}'), null],
  ['__proto__ in an event is data', user(ID, '"event_name":"e","__proto__":{"polluted":true}'), null],
  ['identifiers do not come from __proto__ of the user', `{"__proto__":${user(ID)}}`, NO_IDENTIFIER],
  ['an identifier does not come from __proto__ of identifiers', user('"__proto__":{"user_id":"u"}'), NO_IDENTIFIER],
  [
    '__proto__ among the identifiers is a profile field, and those are strings',
    user(`${ID},"__proto__":{"user_id":"x"}`),
    'identifiers.__proto__ must be a string',
  ],
  ['__proto__ as a profile field with a string is data', user(`${ID},"__proto__":"x"`), null],
  [
    'an event name does not come from __proto__ of the event',
    user(ID, '"__proto__":{"event_name":"e"}'),
    'events[0].event_name is required and must be a non-empty string',
  ],
  [
    'a bad character under __proto__ is found',
    property('"__proto__":{"a":"\\u0000"}'),
    `user_properties.__proto__.a ${UNSTORABLE}`,
  ],
  [
    'constructor, toString and hasOwnProperty as properties are data',
    property('"constructor":{"prototype":{"polluted":true}},"toString":1,"hasOwnProperty":null,"valueOf":"x"'),
    null,
  ],
  [
    'constructor as a member of the user is data',
    user(ID, '"event_name":"e"', ',"constructor":{},"toString":[]'),
    null,
  ],
  [
    'constructor among the identifiers is a profile field, and those are strings',
    user(`${ID},"constructor":1`),
    'identifiers.constructor must be a string',
  ],
  ['U+0000 in an identifier is rejected', user('"user_id":"a\\u0000b"'), `identifiers.user_id ${UNSTORABLE}`],
  ['U+0000 in an event name is rejected', user(ID, '"event_name":"\\u0000"'), `events[0].event_name ${UNSTORABLE}`],
  [
    'U+0000 in a key is rejected, named by the object that holds it',
    property('"a\\u0000":1'),
    `user_properties ${UNSTORABLE}`,
  ],
  ['U+0000 in a key of the user is rejected', user(ID, '"event_name":"e"', ',"\\u0000":1'), `user ${UNSTORABLE}`],
  [
    'U+0000 in $event_id is rejected',
    user(ID, '"event_name":"e","$event_id":"\\u0000"'),
    `events[0].$event_id ${UNSTORABLE}`,
  ],
  ['a backslash followed by u0000 as plain text is accepted', property('"path":"c:\\\\u0000"'), null],
  ['other control characters are accepted when escaped', property('"a":"\\u0001\\u001f\\u007f\\n"'), null],
  ['a lone high surrogate is rejected', property('"a":"\\ud83d"'), `user_properties.a ${UNSTORABLE}`],
  ['a lone low surrogate is rejected', property('"a":"\\uDE00"'), `user_properties.a ${UNSTORABLE}`],
  ['surrogates the wrong way round are rejected', property('"a":"\\ude00\\ud83d"'), `user_properties.a ${UNSTORABLE}`],
  ['a lone surrogate in a key is rejected', property('"a":{"\\uDBFF":1}'), `user_properties.a ${UNSTORABLE}`],
  [
    'a lone surrogate in an array is rejected',
    property('"a b":[["\\ud800"]]'),
    `user_properties["a b"][0][0] ${UNSTORABLE}`,
  ],
  ['a surrogate pair written as two escapes is accepted', property('"a":"\\ud83d\\ude00","\\uD83D\\uDE00":1'), null],
  ['U+FFFF and U+FEFF are accepted', property('"a":"\\uffff\\ufeff"'), null],
  ['of duplicate keys the last one counts, when it is fine', user('"user_id":7,"user_id":"u"'), null],
  [
    'of duplicate keys the last one counts, when it is wrong',
    user('"user_id":"u","user_id":7'),
    'identifiers.user_id must be a string',
  ],
  [
    'of duplicate events the last one counts',
    `{"identifiers":{${ID}},"events":[{"event_name":"e"}],"events":[]}`,
    'events array is required and must not be empty',
  ],
  [
    'a revenue of 1e400 is no finite number',
    user(ID, '"event_name":"e","revenue":1e400'),
    'events[0].revenue must be a number',
  ],
  [
    'an event_value of -1e400 is no finite number',
    user(ID, '"event_name":"e","event_value":-1e400'),
    'events[0].event_value must be a number',
  ],
  ['1e400 in a custom property is kept as written', property('"a":1e400'), null],
  ['a revenue of 1e308 is a number', user(ID, '"event_name":"e","revenue":1e308'), null],
  ['2^53+1 in a custom property is accepted', user(ID, '"event_name":"e","order":9007199254740993'), null],
  ['a revenue of 2^53+1 is a number', user(ID, '"event_name":"e","revenue":9007199254740993'), null],
  [
    '30 February is rejected',
    user(ID, '"event_name":"e","timestamp":"2026-02-30"'),
    'events[0].timestamp must be an ISO 8601 timestamp',
  ],
  [
    '29 February of a common year is rejected',
    user(ID, '"event_name":"e","timestamp":"2026-02-29T00:00:00Z"'),
    'events[0].timestamp must be an ISO 8601 timestamp',
  ],
  ['29 February of a leap year is accepted', user(ID, '"event_name":"e","timestamp":"2028-02-29T00:00:00Z"'), null],
];

afterEach(() => {
  assert.equal(Reflect.get({}, 'polluted'), undefined);
  assert.equal(Reflect.get([], 'user_id'), undefined);
});

for (const [sentence, text, message] of ROWS) {
  test(sentence, () => {
    assert.deepEqual(validateRequest(`{"users":[${text}]}`), {
      ok: true,
      userCount: 1,
      eventCount: message === null ? 1 : 0,
      rejections: message === null ? [] : [{ userIndex: 0, message }],
    });
  });
}

test('of duplicate users arrays the last one counts', () => {
  assert.deepEqual(validateRequest(`{"users":[1,2,3],"users":[${user(ID)}]}`), {
    ok: true,
    userCount: 1,
    eventCount: 1,
    rejections: [],
  });
});

test('users under __proto__ of the body are not the users of the request', () => {
  assert.deepEqual(validateRequest(`{"__proto__":{"users":[${user(ID)}]}}`), {
    ok: false,
    message: 'users is required and must be an array',
  });
});

test('a lone surrogate that is in the text itself, not escaped, is rejected too', () => {
  const validation = validateRequest(`{"users":[${property('"a":"\ud83d"')}]}`);
  assert.deepEqual(validation.ok && validation.rejections, [
    { userIndex: 0, message: `user_properties.a ${UNSTORABLE}` },
  ]);
});

test('no message holds a character that cannot be stored, whatever the keys were', () => {
  const validation = validateRequest(
    `{"users":[${user(`${ID},"\\u0000\\ud800":1`)},${property('"a":{"b\\"\\u0007 ":{"\\udfff":1}}')}]}`,
  );
  assert.deepEqual(validation.ok && validation.rejections.map(({ message }) => message), [
    'identifiers["\\u0000\\ud800"] must be a string',
    `user_properties.a["b\\"\\u0007 "] ${UNSTORABLE}`,
  ]);
});
