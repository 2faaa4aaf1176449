/** A request split into messages has the same content, byte for byte, however it was formatted. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import {
  type Arbitrary,
  array,
  assert as assertProperty,
  constantFrom,
  json,
  jsonValue,
  oneof,
  property,
  record,
  string,
  tuple,
} from 'fast-check';
import { bodyHashOf } from '../../../src/log/body-hash.ts';
import { headerOf, messagesOf, recordOf, usersInBody } from '../../../src/backends/kafka/message.ts';
import { recordsOf } from '../../../src/backends/kafka/reader.ts';
import { type LogEntry, NO_TENANT } from '../../../src/log.ts';
import { IDENTIFIER_TYPES } from '../../../src/model.ts';
import { timeOfUuid7 } from '../../../src/views/uuid.ts';
import { entry, eventsIn } from '../../contract/log-entries.ts';

const LOCATION = { partition: 3, position: 77 };

/** JSON with any spacing, any escapes in strings, and duplicate names. */
function strangeJson(): Arbitrary<string> {
  return tuple(oneof(json(), jsonValue().map(spaced)), space()).map(([text, after]) => text + after);
}

function spaced(value: unknown): string {
  return JSON.stringify(value, null, '\t').replaceAll('\n', '\r\n ');
}

function space(): Arbitrary<string> {
  return array(constantFrom(' ', '\n', '\t', '\r'), { maxLength: 3 }).map((parts) => parts.join(''));
}

/** A name as is, or with all its letters escaped. */
function name(of: Arbitrary<string>): Arbitrary<string> {
  return tuple(of, constantFrom(true, false)).map(([text, isEscaped]) =>
    isEscaped
      ? `"${text
          .split('')
          .map((letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`)
          .join('')}"`
      : JSON.stringify(text),
  );
}

function object(members: Arbitrary<string>): Arbitrary<string> {
  return tuple(space(), array(members, { maxLength: 5 })).map(([gap, all]) => `{${gap}${all.join(`,${gap}`)}${gap}}`);
}

function member(names: Arbitrary<string>, value: Arbitrary<string>): Arbitrary<string> {
  return tuple(name(names), space(), value).map(([key, gap, text]) => `${gap}${key}${gap}:${gap}${text}`);
}

function list(element: Arbitrary<string>, minLength = 0): Arbitrary<string> {
  return tuple(space(), array(element, { minLength, maxLength: 4 })).map(
    ([gap, all]) => `[${gap}${all.join(`${gap},${gap}`)}${gap}]`,
  );
}

const TEXT = string({ unit: 'grapheme' }).map((text) => JSON.stringify(text));
const IDENTIFIERS = object(
  oneof(member(constantFrom(...IDENTIFIER_TYPES), oneof(TEXT, strangeJson())), member(string(), strangeJson())),
);
const USER = oneof(
  object(
    oneof(
      member(constantFrom('identifiers'), oneof(IDENTIFIERS, strangeJson())),
      member(constantFrom('events'), oneof(list(strangeJson()), strangeJson())),
      member(constantFrom('user_properties', '', '__proto__', 'users'), strangeJson()),
    ),
  ),
  strangeJson(),
);
/** Other members of a body, an overridden `users` among them, and last the `users` that counts. */
const BODY = record({
  before: array(member(constantFrom('users', 'events', 'a]}"', '__proto__'), oneof(list(USER), strangeJson()))),
  users: member(constantFrom('users'), list(USER, 1)),
  after: array(member(constantFrom('user', 'userss', 'Users'), strangeJson())),
  gap: space(),
}).map(({ before, users, after, gap }) => `${gap}{${[...before, users, ...after].join(`,${gap}`)}${gap}}${gap}`);

function entryOf(text: string): LogEntry {
  const { users } = JSON.parse(text) as { users: unknown[] };
  return entry({ body: Buffer.from(text), userCount: users.length, eventCount: 0 });
}

function identifierOf(user: unknown): unknown {
  const identifiers = (user as { identifiers?: unknown } | null)?.identifiers;
  if (typeof identifiers !== 'object' || identifiers === null || Array.isArray(identifiers)) return null;
  for (const type of IDENTIFIER_TYPES) {
    const value: unknown = Object.getOwnPropertyDescriptor(identifiers, type)?.value;
    if (typeof value === 'string' && value !== '') return { type, value };
  }
  return null;
}

suite('A request as messages', () => {
  test('the messages together have the content of the request, however it was formatted', () => {
    assertProperty(
      property(BODY, (text) => {
        const sent = entryOf(text);
        const { users } = JSON.parse(text) as { users: unknown[] };
        const records = messagesOf(sent).map(({ value }) => recordOf(value, LOCATION));
        const read = records.flatMap(
          ({ body }) => (JSON.parse(Buffer.from(body).toString()) as typeof sent & { users: unknown[] }).users,
        );
        assert.deepEqual(read, users);
        // Byte for byte as in the body.
        let at = 0;
        for (const { body } of records) {
          const own = Buffer.from(body).subarray('{"users":['.length, -']}'.length);
          at = Buffer.from(sent.body).indexOf(own, at);
          assert.ok(at >= 0);
        }
        assert.deepEqual(
          records.map(({ firstUserIndex, eventCount }) => [firstUserIndex, eventCount]),
          users.map((user, index) => [index, eventsIn(Array.isArray(user) ? null : user)]),
        );
        assert.deepEqual(
          usersInBody(sent.body).map(({ identifier }) => identifier),
          users.map(identifierOf),
        );
      }),
      { numRuns: 300 },
    );
  });

  test('the last of duplicate names wins, for users, events and identifiers', () => {
    const user = '{"events":[1],"identifiers":{"user_id":"a","user_id":"b"},"events":[1,2,[3,4]]}';
    const [found, ...others] = usersInBody(Buffer.from(`{"users":[1,2],"\\u0075sers":[${user}],"x":"users"}`));
    assert.deepEqual(others, []);
    assert.equal(found?.events, 3);
    assert.deepEqual(found.identifier, { type: 'user_id', value: 'b' });
  });

  test('the strongest identifier is used, and one that is empty or not a string is ignored', () => {
    const user = (identifiers: unknown): string => JSON.stringify({ identifiers });
    const all: readonly unknown[] = [
      { anon_id: 'x', email: 'e@example.com' },
      { user_id: 7, phone_number: '+43 1' },
      { user_id: '', anon_id: 'x' },
      { constructor: 'x' },
      [],
      null,
    ];
    const found = usersInBody(Buffer.from(`{"users":[${all.map(user).join()}]}`));
    assert.deepEqual(
      found.map(({ identifier }) => identifier),
      [
        { type: 'email', value: 'e@example.com' },
        { type: 'phone_number', value: '+43 1' },
        { type: 'anon_id', value: 'x' },
        null,
        null,
        null,
      ],
    );
  });

  test('a deeply nested body uses no stack', () => {
    const deep = '['.repeat(2_000_000) + ']'.repeat(2_000_000);
    const [found] = usersInBody(Buffer.from(`{"deep":${deep},"users":[${deep}]}`));
    assert.equal((found?.end ?? 0) - (found?.start ?? 0), deep.length);
  });

  test('everything that the edge knows about a user is read back', () => {
    const sent = entry({
      users: [{ a: 1 }, 7],
      rejections: [{ userIndex: 1, message: 'user must be\nan object: "ü"' }],
      idempotencyKey: 'retry "1"',
      keyKind: 'publishable',
    });
    const [first, second] = messagesOf(sent).map(({ value }) => headerOf(value, LOCATION));
    const { traceId, tenantId, receivedAt, keyId } = sent;
    const common = {
      ...LOCATION,
      traceId,
      tenantId,
      receivedAt,
      keyId,
      keyKind: 'publishable',
      userCount: 1,
      eventCount: 0,
      bodyHash: bodyHashOf(sent.body),
    };
    assert.deepEqual(first, {
      ...common,
      firstUserIndex: 0,
      idempotencyKey: 'retry "1"',
      rejections: [],
    });
    assert.deepEqual(second, {
      ...common,
      firstUserIndex: 1,
      idempotencyKey: 'retry "1"\u001f1',
      rejections: sent.rejections,
    });
  });

  test('the key of a request with one user is the key as the client gave it', () => {
    const [message] = messagesOf(entry({ idempotencyKey: 'once' }));
    assert.equal(headerOf(message?.value ?? null, LOCATION).idempotencyKey, 'once');
  });

  test('messages of one person have one key, those of other tenants another', () => {
    const keyOf = (changes: Parameters<typeof entry>[0]): string => String(messagesOf(entry(changes))[0]?.key);
    const users = [{ identifiers: { user_id: 'ada', anon_id: '1' } }];
    const other = [{ identifiers: { anon_id: '2', user_id: 'ada' } }];
    assert.equal(keyOf({ users }), keyOf({ users: other, traceId: 'other' }));
    assert.notEqual(keyOf({ users }), keyOf({ users, tenantId: 'acct_other/development' }));
    // No identifier: spread by request.
    assert.notEqual(keyOf({ users: [{}], traceId: 'one' }), keyOf({ users: [{}], traceId: 'two' }));
  });

  test('the time of a message is that in its trace id', () => {
    const traceId = '0190a000-1234-7000-8000-000000000001';
    assert.equal(timeOfUuid7(traceId), 0x0190a0001234);
    assert.equal(timeOfUuid7('trace-1'), undefined);
    assert.equal(messagesOf(entry({ traceId }))[0]?.timestamp, 0x0190a0001234);
    assert.equal(messagesOf(entry({ traceId: 'trace-1', receivedAt: 5 }))[0]?.timestamp, 5);
  });

  test('a message that Sluice did not write is a record of no tenant and no users', () => {
    for (const text of ['', 'hello', '{}\n{}', 'null\n{}', '{"version":2}\n{}', '{"version":1,"trace_id":"x"}\n{}']) {
      const { tenantId, userCount, eventCount, traceId, body } = recordOf(Buffer.from(text), LOCATION);
      assert.deepEqual([tenantId, userCount, eventCount, Buffer.from(body).toString()], [NO_TENANT, 0, 0, text]);
      assert.equal(traceId, '00000003-0000-8000-8000-00000000004d');
    }
    assert.equal(headerOf(null, LOCATION).tenantId, NO_TENANT);
  });

  test('a message of another version is an error with its position, and messages before it are read', () => {
    const [message] = messagesOf(entry({}));
    const good = { value: message?.value ?? null, bytes: 1 };
    for (const change of [
      { from: '"version":1', to: '"version":2' },
      { from: '"key_kind":', to: '"format":"new","key_kind":' },
    ]) {
      const text = String(message?.value).replace(change.from, change.to);
      const bad = { position: 6, value: Buffer.from(text), bytes: 1 };
      const messages = [{ ...good, position: 4 }, { ...good, position: 5 }, bad, { ...good, position: 7 }];
      const { records, next, count } = recordsOf(messages, 3, 1_000_000);
      assert.deepEqual([records.map(({ position }) => position), next, count], [[4, 5], 6, 2]);
      assert.throws(() => recordsOf(messages.slice(count), 3, 1_000_000), {
        name: 'LogCorruptError',
        message: /^position 6 of partition 3 has a message that another version of Sluice wrote/,
      });
    }
  });

  test('a body with another number of users than its entry is rejected', () => {
    assert.throws(() => messagesOf(entry({ userCount: 2 })), /a body has 1 users, but its log entry says 2/);
  });
});
