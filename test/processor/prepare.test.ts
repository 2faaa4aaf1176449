/** From a log record to users that can be stored. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { type LogRecord, NO_TENANT } from '../../src/log.ts';
import { IDENTIFIER_TYPES } from '../../src/model.ts';
import { prepareRecord } from '../../src/processor/prepare.ts';
import type { PreparedEvent, PreparedUser } from '../../src/processor/prepare.ts';
import { validateRequest } from '../../src/validation/validate-request.ts';
import { arbitraryUser, textOf } from '../validation/arbitrary-users.ts';
import { request } from './requests.ts';

const OPTIONS = { defaultCountry: 'DE', junkValues: new Set<string>() };
const RECEIVED_AT = Date.UTC(2026, 0, 15);
const FIRST_USER = 3;
const EVENT_FIELDS = new Set(['event_name', 'timestamp', 'revenue', 'event_value']);

function recordOf(text: string, changes: Partial<LogRecord> = {}): LogRecord {
  return {
    ...{ partition: 0, position: 1, traceId: 't', tenantId: 'a/production', keyId: 'k', keyKind: 'secret' },
    ...{ receivedAt: RECEIVED_AT, firstUserIndex: FIRST_USER, idempotencyKey: null },
    ...{ userCount: 1, eventCount: 1, rejections: [], body: Buffer.from(text), ...changes },
  };
}

function userOf(members: string): PreparedUser {
  const [user] = prepareRecord(recordOf(`{"users":[{${members}}]}`), OPTIONS).users;
  assert.ok(user);
  return user;
}

function eventOf(members: string): PreparedEvent {
  const [event] = userOf(`"identifiers":{"user_id":"u_1"},"events":[{"event_name":"seen"${members}}]`).events;
  assert.ok(event);
  return event;
}

suite('Preparing', () => {
  test('a user gets match keys, what it sets, and its events', () => {
    const user = userOf(
      '"identifiers":{"email":"Ada@Example.com","first_name":"Ada","phone_number":"null"},"user_properties":{"plan":"pro"},' +
        '"events":[{"event_name":"bought","timestamp":"2026-01-02T03:04:05Z","revenue":1.50,"currency":"eur","$event_id":"e"}]',
    );
    assert.deepEqual(user.origin, { receivedAt: RECEIVED_AT, traceId: 't', userIndex: FIRST_USER });
    assert.deepEqual(user.keys, [{ type: 'email', value: 'ada@example.com', raw: 'Ada@Example.com' }]);
    assert.deepEqual(user.junk, ['phone_number']);
    const { fields, properties, isCut } = user.propertyUpdate ?? {};
    assert.deepEqual([fields, properties, isCut], ['{"first_name":"Ada"}', '{"plan":"pro"}', false]);
    assert.deepEqual(user.events, [
      {
        ...{ eventIndex: 0, name: 'bought', timestamp: Date.UTC(2026, 0, 2, 3, 4, 5), eventId: 'e' },
        ...{ revenue: 1.5, value: null, currency: 'EUR', properties: '{"currency":"eur","$event_id":"e"}' },
      },
    ]);
  });

  test('numbers keep all of their digits', () => {
    const number = '123456789012345678901234567890.5';
    const event = eventOf(`,"revenue":${number},"total":${number},"small":-0`);
    assert.equal(event.revenue, number);
    assert.equal(event.properties, `{"total":${number},"small":-0}`);
  });

  test('a property may have any name', () => {
    const { properties } = eventOf(',"__proto__":{"a":1},"constructor":2,"7":3,"":4');
    assert.equal(properties, '{"7":3,"__proto__":{"a":1},"constructor":2,"":4}');
  });

  test('an event without a time happened when it was received', () => {
    for (const members of ['', ',"timestamp":null']) assert.equal(eventOf(members).timestamp, RECEIVED_AT);
  });

  test('a user who sets nothing changes no properties', () => {
    const events = '"events":[{"event_name":"seen"}]';
    for (const rest of ['', '"user_properties":{},', '"user_properties":null,']) {
      assert.equal(userOf(`"identifiers":{"user_id":"u_1","city":null},${rest}${events}`).propertyUpdate, null);
    }
  });

  test('a body may begin with a byte order mark', () => {
    const text = '\uFEFF{"users":[{"identifiers":{"user_id":"u_1"},"events":[{"event_name":"seen"}]}]}';
    assert.equal(prepareRecord(recordOf(text), OPTIONS).users.length, 1);
  });

  test('what the edge cannot have accepted is refused, without a word of it', () => {
    const text = '{"users":[{"identifiers":{"user_id":"u_1"},"events":[{"event_name":"seen"}]}]}';
    const message = (record: LogRecord): string => {
      try {
        prepareRecord(record, OPTIONS);
        return 'accepted';
      } catch (error) {
        return (error as Error).message;
      }
    };
    assert.equal(message(recordOf(text)), 'accepted');
    assert.equal(message(recordOf(text.slice(0, -1))), 'the body is not JSON');
    assert.equal(message(recordOf(text, { userCount: 2 })), 'the body has 1 users where the edge counted 2');
    assert.equal(
      message(recordOf(text, { eventCount: 2 })),
      'the accepted users have 1 events where the edge counted 2',
    );
    assert.equal(message(recordOf(text, { tenantId: NO_TENANT })), 'another program wrote this message into the topic');
    assert.equal(
      message(recordOf(text.replace('"seen"', '"seen","timestamp":"ada"'))),
      'a timestamp that the edge accepted cannot be read',
    );
  });

  test('of any request every accepted user is prepared, and every rejected one is kept as it was sent', () => {
    let accepted = 0;
    let rejected = 0;
    const check = (text: string): void => {
      const validation = validateRequest(text);
      if (!validation.ok) return;
      const { userCount, eventCount } = validation;
      const rejections = validation.rejections.map(({ userIndex, message }) => ({
        userIndex: FIRST_USER + userIndex,
        message,
      }));
      const prepared = prepareRecord(recordOf(text, { userCount, eventCount, rejections }), OPTIONS);
      const sent = (JSON.parse(text) as { users: Record<string, unknown>[] }).users;
      assert.deepEqual(
        [...prepared.users.map(({ origin }) => origin.userIndex), ...rejections.map(({ userIndex }) => userIndex)].sort(
          (a, b) => a - b,
        ),
        sent.map((_user, index) => FIRST_USER + index),
      );
      for (const { userIndex, payload } of prepared.rejections) {
        assert.deepEqual(JSON.parse(payload as string), sent[userIndex - FIRST_USER]);
        rejected += 1;
      }
      for (const user of prepared.users) {
        assertIsWhatWasSent(user, sent[user.origin.userIndex - FIRST_USER] ?? {});
        accepted += 1;
      }
    };
    fc.assert(fc.property(request, check), { numRuns: 800 });
    fc.assert(
      fc.property(fc.array(arbitraryUser, { minLength: 1, maxLength: 4 }), (users) => check(textOf({ users }))),
      { numRuns: 600 },
    );
    assert.ok(accepted > 100 && rejected > 100, `${accepted} accepted and ${rejected} rejected users`);
  });
});

/** Compared as values: numbers that a double cannot hold have tests of their own. */
function assertIsWhatWasSent(
  { events, propertyUpdate, keys, junk }: PreparedUser,
  user: Record<string, unknown>,
): void {
  const identifiers = user['identifiers'] as Record<string, unknown>;
  const others = Object.entries(identifiers).filter(
    ([name, value]) => value !== null && !(IDENTIFIER_TYPES as readonly string[]).includes(name),
  );
  assert.deepEqual(JSON.parse(propertyUpdate?.fields ?? '{}'), Object.fromEntries(others));
  assert.deepEqual(JSON.parse(propertyUpdate?.properties ?? '{}'), user['user_properties'] ?? {});
  for (const { type, raw } of keys) assert.equal(raw, identifiers[type]);
  for (const type of junk) assert.ok(!keys.some((key) => key.type === type));
  const sent = user['events'] as Record<string, unknown>[];
  assert.equal(events.length, sent.length);
  for (const [index, event] of events.entries()) {
    const one = sent[index] as Record<string, unknown>;
    assert.equal(event.eventIndex, index);
    assert.equal(event.name, one['event_name']);
    const { $event_id: id } = one;
    assert.equal(event.eventId, typeof id === 'string' ? id : null);
    const properties = Object.entries(one).filter(([name]) => !EVENT_FIELDS.has(name));
    assert.deepEqual(JSON.parse(event.properties), Object.fromEntries(properties));
  }
}
