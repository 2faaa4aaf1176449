/** Whole requests: what makes a payload unusable and how it is reported, how users are counted, and bodies made to hurt. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { validateBody } from '../../src/edge/validate-body.ts';
import { validateRequest } from '../../src/validation/validate-request.ts';

const USER = '{"identifiers":{"user_id":"u"},"events":[{"event_name":"a"},{"event_name":"b"}]}';
const BAD_USER = '{"identifiers":{"user_id":"u"}}';
const NO_EVENTS = 'events array is required and must not be empty';

const UNUSABLE: readonly (readonly [sentence: string, text: string, message: string])[] = [
  ['an empty body is reported', '', 'body is empty, expected a JSON object'],
  [
    'a body that is not JSON is reported with where and what was expected',
    '{\n  "users": [\n    {"identifiers": oops}\n  ]\n}',
    'body is not valid JSON: unexpected character at line 3, column 21, expected a value',
  ],
  [
    'a body that was cut off is reported with where it ends',
    '{"users":[',
    'body is not valid JSON: ends too early at line 1, column 11, expected a value or a closing bracket',
  ],
  ['a body that is an array is reported', `[${USER}]`, 'body must be a JSON object, not an array'],
  ['a body that is null is reported', 'null', 'body must be a JSON object, not null'],
  ['a body that is a string is reported', '"users"', 'body must be a JSON object, not a string'],
  ['a body that is a number is reported', '1', 'body must be a JSON object, not a number'],
  ['a body without users is reported', '{"user":[]}', 'users is required and must be an array'],
  ['a body with null for users is reported', '{"users":null}', 'users is required and must be an array'],
  ['users that are an object are reported', `{"users":${USER}}`, 'users must be an array, not an object'],
  ['users that are a boolean are reported', '{"users":true}', 'users must be an array, not a boolean'],
  ['an empty users array is reported', '{"users":[]}', 'users must not be empty'],
  [
    'a users array with 1,001 entries is reported',
    `{"users":[${Array(1001).fill(USER).join()}]}`,
    'users must hold at most 1000 users, not 1001',
  ],
];

for (const [sentence, text, message] of UNUSABLE) {
  test(sentence, () => assert.deepEqual(validateRequest(text), { ok: false, message }));
}

test('a request with 1,000 users is accepted', () => {
  assert.deepEqual(validateRequest(`{"users":[${Array(1000).fill(USER).join()}]}`), {
    ok: true,
    userCount: 1000,
    eventCount: 2000,
    rejections: [],
  });
});

test('bad users are rejected by their index while the others are accepted and their events counted', () => {
  assert.deepEqual(validateRequest(`{"users":[${BAD_USER},${USER},7,${USER}],"sent_by":"shop"}`), {
    ok: true,
    userCount: 4,
    eventCount: 4,
    rejections: [
      { userIndex: 0, message: NO_EVENTS },
      { userIndex: 2, message: 'user must be an object' },
    ],
  });
});

test('a request whose users are all bad has a rejection for each and no events', () => {
  assert.deepEqual(validateRequest(`{"users":[${BAD_USER},${BAD_USER}]}`), {
    ok: true,
    userCount: 2,
    eventCount: 0,
    rejections: [
      { userIndex: 0, message: NO_EVENTS },
      { userIndex: 1, message: NO_EVENTS },
    ],
  });
});

test('the number of events that a client dropped is read wherever it stands; a wrong one is ignored', () => {
  const users = '"users":[{"identifiers":{"user_id":"u"},"events":[{"event_name":"e"}]}]';
  const validated = { ok: true, userCount: 1, eventCount: 1, rejections: [] };
  const right = ['1', '3', '1000000000'];
  const wrong = ['0', '-1', '1.5', '1000000001', '1e400', 'null', '"3"', '[3]', 'true'];
  for (const [given, droppedByClient] of [
    ...right.map((text) => [text, Number(text)]),
    ...wrong.map((text) => [text]),
  ]) {
    for (const body of [`{"dropped_by_client":${given},${users}}`, `{${users},"dropped\\u005fby_client":${given}}`]) {
      const expected = droppedByClient === undefined ? validated : { ...validated, droppedByClient };
      assert.deepEqual(validateRequest(body), expected, body);
      assert.deepEqual(validateBody(Buffer.from(body)).validation, expected, body);
    }
  }
});

test('members of the body besides users are ignored, whatever they hold', () => {
  const validation = validateRequest(`{"a":${'['.repeat(100)}${']'.repeat(100)},"b":"\\u0000","users":[${USER}]}`);
  assert.deepEqual(validation, { ok: true, userCount: 1, eventCount: 2, rejections: [] });
});

const MILLION = 1_000_000;
const withProperty = (json: string): string =>
  `{"users":[{"identifiers":{"user_id":"u"},"events":[{"event_name":"e","x":${json}}]}]}`;
const rejectedFor = (message: string): object => ({
  ok: true,
  userCount: 1,
  eventCount: 0,
  rejections: [{ userIndex: 0, message }],
});
const ACCEPTED = { ok: true, userCount: 1, eventCount: 1, rejections: [] };

test('a million nested arrays as the body are refused without a stack overflow', () => {
  assert.deepEqual(validateRequest('['.repeat(MILLION) + ']'.repeat(MILLION)), {
    ok: false,
    message: 'body must be a JSON object, not an array',
  });
});

test('a million nested arrays that are never closed are refused at their end', () => {
  assert.deepEqual(validateRequest('['.repeat(MILLION)), {
    ok: false,
    message: 'body is not valid JSON: ends too early at line 1, column 1000001, expected a value or a closing bracket',
  });
});

test('a million nested arrays in a property are nested too deeply', () => {
  const validation = validateRequest(withProperty('['.repeat(MILLION) + ']'.repeat(MILLION)));
  assert.deepEqual(validation, rejectedFor('events[0].x is nested too deeply'));
});

test('a million nested objects in a property are nested too deeply', () => {
  const validation = validateRequest(withProperty(`${'{"a":'.repeat(MILLION)}1${'}'.repeat(MILLION)}`));
  assert.deepEqual(validation, rejectedFor('events[0].x is nested too deeply'));
});

test('a million nested arrays as the only user are no user', () => {
  const validation = validateRequest(`{"users":[${'['.repeat(MILLION)}${']'.repeat(MILLION)}]}`);
  assert.deepEqual(validation, rejectedFor('user must be an object'));
});

test('three million empty objects as users are too many', () => {
  assert.deepEqual(validateRequest(`{"users":[${'{},'.repeat(3 * MILLION - 1)}{}]}`), {
    ok: false,
    message: 'users must hold at most 1000 users, not 3000000',
  });
});

test('three million empty objects as events are rejected for the first name that is missing', () => {
  const events = `[${'{},'.repeat(3 * MILLION - 1)}{}]`;
  assert.deepEqual(
    validateRequest(`{"users":[{"identifiers":{"user_id":"u"},"events":${events}}]}`),
    rejectedFor('events[0].event_name is required and must be a non-empty string'),
  );
});

test('three million empty objects in a property are data', () => {
  assert.deepEqual(validateRequest(withProperty(`[${'{},'.repeat(3 * MILLION - 1)}{}]`)), ACCEPTED);
});

test('six hundred thousand keys in a property are data', () => {
  const members = Array.from({ length: 600_000 }, (_, index) => `"k${index}":0`);
  assert.deepEqual(validateRequest(withProperty(`{${members.join()}}`)), ACCEPTED);
});

test('U+0000 in an escaped name is found, also where JSON.parse would take the name for one that it met before', () => {
  JSON.parse('{"a":1,"\\\\u00":1}');
  const validation = validateRequest(withProperty('{"a":1,"\\u0000bcd":1}'));
  assert.match(
    validation.ok ? (validation.rejections[0]?.message ?? '') : '',
    /contains a character that cannot be stored/,
  );
});
