/** Messages in Segment's form as users in ours: the mapping member by member, errors by message, and what becomes one user. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { ConvertedRequest } from '../../src/intake/segment.ts';
import { convertSegment, writeKeyOf } from '../../src/intake/segment.ts';
import { validateBody } from '../../src/edge/validate-body.ts';

const RECEIVED_AT = Date.parse('2026-11-16T12:00:00.000Z');
const MATCH_OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };
const OPTIONS = { type: null, receivedAt: RECEIVED_AT, matchOptions: MATCH_OPTIONS };

interface User {
  readonly identifiers: Record<string, string>;
  readonly user_properties?: Record<string, unknown>;
  readonly events: Record<string, unknown>[];
}

function convert(body: unknown): ConvertedRequest & { readonly users: User[]; readonly text: string } {
  const converted = convertSegment(typeof body === 'string' ? body : JSON.stringify(body), OPTIONS);
  assert.ok(converted.ok, converted.ok ? '' : converted.message);
  const text = Buffer.from(converted.body).toString();
  assert.deepEqual(accepted(validateBody(converted.body).validation), accepted(converted));
  return { ...converted, users: (JSON.parse(text) as { users: User[] }).users, text };
}

/** What the validator of our own form says of the body has to be what the conversion says. */
function accepted(validation: {
  ok: boolean;
  userCount?: number;
  eventCount?: number;
  rejections?: readonly unknown[];
}) {
  return [validation.ok, validation.userCount, validation.eventCount, validation.rejections?.length];
}

function users(...batch: unknown[]): User[] {
  const { users, rejections } = convert({ batch });
  assert.deepEqual(rejections, []);
  return users;
}

function user(message: object): User {
  const [only, ...others] = users({ userId: 'ada', ...message });
  assert.ok(only !== undefined && others.length === 0);
  return only;
}

function errorOf(message: unknown): string | undefined {
  return convert({ batch: [message, { type: 'track', event: 'fine', userId: 'ada' }] }).errors[0]?.message;
}

suite('A message in Segment’s form', () => {
  test('a track call becomes an event with its properties as they are', () => {
    assert.deepEqual(
      user({
        type: 'track',
        event: 'Order Completed',
        anonymousId: 'anon-1',
        messageId: 'm-1',
        properties: { revenue: 42.5, value: 3, currency: 'EUR', email: 'gift@example.com', items: [1, { a: null }] },
      }),
      {
        identifiers: { user_id: 'ada', anon_id: 'anon-1' },
        events: [
          {
            event_name: 'Order Completed',
            $event_id: 'm-1',
            revenue: 42.5,
            event_value: 3,
            currency: 'EUR',
            email: 'gift@example.com',
            items: [1, { a: null }],
          },
        ],
      },
    );
  });

  test('the traits of an identify call become identifiers, profile fields and user_properties', () => {
    assert.deepEqual(
      user({
        type: 'identify',
        messageId: 'm-2',
        context: { ip: '::1', traits: { plan: 'free', phone: '+351210000000' } },
        traits: {
          email: 'ada@example.com',
          plan: 'pro',
          firstName: 'Ada',
          lastName: 'L.',
          name: 'Ada L.',
          address: { city: 'Lisbon', postalCode: '1000', country: 'PT', floor: 3 },
          age: 36,
          gone: null,
        },
      }),
      {
        identifiers: {
          user_id: 'ada',
          phone_number: '+351210000000',
          email: 'ada@example.com',
          first_name: 'Ada',
          last_name: 'L.',
          name: 'Ada L.',
          city: 'Lisbon',
          postal_code: '1000',
          country: 'PT',
        },
        user_properties: { plan: 'pro', address: { floor: 3 }, age: 36, gone: null },
        events: [{ event_name: '$identify', $event_id: 'm-2', context: { ip: '::1', traits: { plan: 'free' } } }],
      },
    );
  });

  test('traits that are no text where text belongs stay user_properties', () => {
    assert.deepEqual(
      user({ type: 'identify', traits: { firstName: 7, email: { a: 1 }, phone: '', address: 'here' } }),
      {
        identifiers: { user_id: 'ada' },
        user_properties: { firstName: 7, email: { a: 1 }, phone: '', address: 'here' },
        events: [{ event_name: '$identify' }],
      },
    );
  });

  test('a trait of an identify call that context.traits has with another value is used, and the other one is kept', () => {
    const contextTraits = { email: 'b@example.com', phone: '+351210000002', firstName: 'B', plan: 'pro', age: 36 };
    const traits = { email: 'a@example.com', phone: '+351210000001', firstName: 'A', plan: 'free', age: 36 };
    assert.deepEqual(user({ type: 'identify', traits, context: { ip: '::1', traits: contextTraits } }), {
      identifiers: { user_id: 'ada', email: 'a@example.com', phone_number: '+351210000001', first_name: 'A' },
      user_properties: { plan: 'free', age: 36 },
      events: [
        {
          event_name: '$identify',
          context: {
            ip: '::1',
            traits: { email: 'b@example.com', phone: '+351210000002', firstName: 'B', plan: 'pro' },
          },
        },
      ],
    });
    const unusable = { type: 'identify', traits: { email: null }, context: { traits: { email: 'b@example.com' } } };
    assert.equal(user(unusable).identifiers['email'], 'b@example.com');
    assert.deepEqual(user({ type: 'identify', context: { traits: 'unknown' } }).events[0]?.['context'], {
      traits: 'unknown',
    });
  });

  test('a profile field that traits give two values has the first one, and the other is a user property', () => {
    const { identifiers, user_properties } = user({
      type: 'identify',
      traits: { first_name: 'Ada', address: { postalCode: '1000', postal_code: '2000' } },
      context: { traits: { firstName: 'Augusta' } },
    });
    assert.deepEqual(identifiers, { user_id: 'ada', first_name: 'Ada', postal_code: '1000' });
    assert.deepEqual(user_properties, { address: { postal_code: '2000' }, firstName: 'Augusta' });
  });

  test('of other calls, context.traits name the person and change nothing about them', () => {
    const context = { traits: { email: 'ada@example.com', plan: 'pro' } };
    assert.deepEqual(user({ type: 'track', event: 'x', context }), {
      identifiers: { user_id: 'ada', email: 'ada@example.com' },
      events: [{ event_name: 'x', context }],
    });
  });

  test('page and screen calls become events with name and category', () => {
    const page = { name: 'Home', category: 'Docs', properties: { name: 'Home', url: '/', category: 'other' } };
    for (const type of ['page', 'screen']) {
      assert.deepEqual(user({ type, ...page }).events, [
        { event_name: `${type}_viewed`, name: 'Home', category: 'Docs', url: '/', segment_category: 'other' },
      ]);
    }
  });

  test('a group call keeps the group and its traits as properties', () => {
    assert.deepEqual(user({ type: 'group', groupId: 'g-1', traits: { plan: 'enterprise' } }), {
      identifiers: { user_id: 'ada' },
      events: [{ event_name: '$group', group_id: 'g-1', traits: { plan: 'enterprise' } }],
    });
  });

  test('an alias call names the previous id as anon_id', () => {
    assert.deepEqual(user({ type: 'alias', previousId: 'anon-9', anonymousId: 'anon-1' }), {
      identifiers: { user_id: 'ada', anon_id: 'anon-9' },
      events: [{ event_name: '$alias', previous_id: 'anon-9', anonymous_id: 'anon-1' }],
    });
  });

  test('external ids of users become identifiers where the type is known, and a property where not', () => {
    const externalIds = [
      { type: 'phone', id: '+351210000000', collection: 'users', encoding: 'none' },
      { type: 'ga_client_id', id: 'ga-1', collection: 'users' },
      { type: 'ga_client_id', id: 'ga-2' },
      { type: 'user_id', id: 'someone-else', collection: 'users' },
      { type: 'company', id: 'c-1', collection: 'accounts' },
    ];
    const { identifiers, user_properties } = user({ type: 'track', event: 'x', context: { externalIds } });
    assert.deepEqual(identifiers, { user_id: 'ada', phone_number: '+351210000000' });
    assert.deepEqual(user_properties, { external_ids: { ga_client_id: ['ga-1', 'ga-2'], user_id: 'someone-else' } });
  });

  test('properties with names that have another meaning get a prefix', () => {
    const properties = {
      event_name: 1,
      timestamp: 2,
      event_value: 3,
      value: 4,
      $event_id: 5,
      context: 6,
      segment_context: 7,
    };
    assert.deepEqual(user({ type: 'track', event: 'x', context: { ip: '::1' }, properties }).events, [
      {
        event_name: 'x',
        context: { ip: '::1' },
        segment_event_name: 1,
        segment_timestamp: 2,
        segment_event_value: 3,
        event_value: 4,
        segment_$event_id: 5,
        segment_segment_context: 6,
        segment_context: 7,
      },
    ]);
  });

  test('amounts sent as text are numbers, and what is no number is kept under another name', () => {
    const event = (properties: object) => user({ type: 'track', event: 'x', properties }).events[0];
    assert.deepEqual(event({ revenue: '42.50', value: '1e2' }), { event_name: 'x', revenue: 42.5, event_value: 100 });
    assert.deepEqual(event({ revenue: '€ 3', value: 'high' }), {
      event_name: 'x',
      segment_revenue: '€ 3',
      value: 'high',
    });
  });

  test('numbers keep their digits, revenue included', () => {
    const { text } = convert(
      '{"batch":[{"type":"track","event":"x","userId":12345678901234567890,"properties":{"revenue":0.1000000000000000055511,"n":12345678901234567890}}]}',
    );
    assert.equal(
      text,
      '{"users":[{"identifiers":{"user_id":"12345678901234567890"},"events":[{"event_name":"x","revenue":0.1000000000000000055511,"n":12345678901234567890}]}]}',
    );
  });

  test('names such as __proto__ are data like any other', () => {
    const { text } = convert(
      '{"batch":[{"type":"identify","userId":"u","traits":{"__proto__":{"a":1}},"properties":{"__proto__":2},"__proto__":3}]}',
    );
    assert.equal(
      text,
      '{"users":[{"identifiers":{"user_id":"u"},"user_properties":{"__proto__":{"a":1}},"events":[{"event_name":"$identify","segment":{"__proto__":3},"__proto__":2}]}]}',
    );
  });

  test('members without a place of their own are kept, but for keys and what SDKs say about themselves', () => {
    const [event] = user({
      type: 'track',
      event: 'x',
      integrations: { All: false },
      channel: 'server',
      writeKey: 'secret',
      _metadata: { bundled: [] },
      receivedAt: 'now',
    }).events;
    assert.deepEqual(event, { event_name: 'x', segment: { integrations: { All: false }, channel: 'server' } });
  });

  test('the context and integrations of a batch belong to each of its messages', () => {
    const { users } = convert({
      context: { library: 'l', ip: 'batch' },
      integrations: { All: true },
      batch: [{ type: 'track', event: 'x', userId: 'ada', context: { ip: 'message' } }],
    });
    assert.deepEqual(users[0]?.events, [
      { event_name: 'x', context: { library: 'l', ip: 'message' }, segment: { integrations: { All: true } } },
    ]);
  });
});

suite('The time of a message in Segment’s form', () => {
  const timesOf = (message: object, batch: object = {}): unknown[] => {
    const { users } = convert({ ...batch, batch: [{ type: 'track', event: 'x', userId: 'ada', ...message }] });
    return [users[0]?.events[0]?.['timestamp'], users[0]?.events[0]?.['original_timestamp']];
  };

  test('a clock that is wrong is corrected by the time of sending', () => {
    const timestamp = '2031-01-01T00:00:00.000Z';
    const sentAt = '2031-01-01T00:00:05.000Z';
    const corrected = ['2026-11-16T11:59:55.000Z', timestamp];
    assert.deepEqual(timesOf({ timestamp, sentAt }), corrected);
    assert.deepEqual(timesOf({ timestamp }, { sentAt }), corrected);
    assert.deepEqual(timesOf({ originalTimestamp: timestamp, timestamp: '2031-01-01T00:00:03Z', sentAt }), corrected);
  });

  test('without a time of sending, or with one before the event, the time is the one that was sent', () => {
    const timestamp = '2026-11-16T10:00:00.123456+00:00';
    assert.deepEqual(timesOf({ timestamp }), [timestamp, undefined]);
    assert.deepEqual(timesOf({ timestamp, sentAt: '2026-11-16T09:00:00Z' }), [timestamp, undefined]);
    assert.deepEqual(timesOf({ timestamp, sentAt: 'yesterday' }), [timestamp, undefined]);
    assert.deepEqual(timesOf({ timestamp: '0000-01-01', sentAt: '9999-12-31T00:00:00Z' }), ['0000-01-01', undefined]);
    assert.deepEqual(timesOf({}), [undefined, undefined]);
  });

  test('a time that cannot be read is an error', () => {
    const message = { type: 'track', event: 'x', userId: 'ada', timestamp: 'yesterday' };
    assert.equal(errorOf(message), 'timestamp must be an ISO 8601 timestamp');
  });
});

suite('The errors of messages in Segment’s form', () => {
  const track = { type: 'track', event: 'x', userId: 'ada' };
  const errors: [what: string, message: unknown, error: string][] = [
    ['no object', 7, 'message must be an object'],
    ['of an unknown type', { type: 'merge' }, 'type must be one of track, identify, page, screen, group, alias'],
    ['without an id', { ...track, userId: ' ' }, 'userId or anonymousId is required'],
    ['whose userId is no text', { ...track, userId: {} }, 'userId must be a string'],
    [
      'whose anonymousId is too long',
      { ...track, anonymousId: 'x'.repeat(513) },
      'anonymousId must be at most 512 characters',
    ],
    ['without an event', { type: 'track', userId: 'ada' }, 'event is required and must be a non-empty string'],
    [
      'whose event is too long',
      { ...track, event: 'x'.repeat(513) },
      'event must be a non-empty string of at most 512 characters',
    ],
    ['whose properties are no object', { ...track, properties: [] }, 'properties must be an object'],
    ['whose context is no object', { ...track, context: 'x' }, 'context must be an object'],
    [
      'whose messageId is too long',
      { ...track, messageId: 'x'.repeat(256) },
      'messageId must be a string of 1 to 255 characters',
    ],
    [
      'whose property is not storable',
      { ...track, properties: { a: 'nul\0' } },
      'properties.a contains a character that cannot be stored',
    ],
    [
      'whose trait is not storable',
      { type: 'identify', userId: 'a', traits: { a: '\0' } },
      'traits.a contains a character that cannot be stored',
    ],
    ['of a group that is not named', { type: 'group', userId: 'ada' }, 'groupId is required and must be a string'],
    ['that is an alias without a previous id', { type: 'alias', userId: 'ada' }, 'previousId is required'],
  ];
  for (const [what, message, error] of errors) {
    test(`a message ${what} is rejected, and kept as it was sent`, () => {
      const { users, rejections, errors, eventCount } = convert({ batch: [track, message, track] });
      assert.deepEqual(errors, [{ index: 1, message: error }]);
      assert.deepEqual(rejections, [{ userIndex: 1, message: error }]);
      assert.deepEqual(users[1], message);
      assert.equal(eventCount, 2);
    });
  }

  const unusable: [what: string, text: string, message: string][] = [
    ['empty', '', 'body is empty, expected a JSON object'],
    [
      'not JSON',
      '{',
      'body is not valid JSON: ends too early at line 1, column 2, expected a property name in double quotes or a closing brace',
    ],
    ['an array', '[]', 'body must be a JSON object'],
    ['without a batch', '{}', 'batch is required and must be an array'],
    ['with an empty batch', '{"batch":[]}', 'batch must not be empty'],
    ['with 2,501 messages', `{"batch":[${'1,'.repeat(2500)}1]}`, 'batch must hold at most 2500 messages, not 2501'],
  ];
  for (const [what, text, message] of unusable) {
    test(`a body that is ${what} is unusable as a whole`, () => {
      assert.deepEqual(convertSegment(text, OPTIONS), { ok: false, code: 'validation_failed', message });
    });
  }

  test('a shared context that would make the body too large is refused before it is multiplied', () => {
    const text = JSON.stringify({
      context: { a: 'x'.repeat(10_000) },
      batch: Array.from({ length: 2_500 }, () => track),
    });
    const converted = convertSegment(text, OPTIONS);
    assert.ok(!converted.ok && converted.code === 'too_large');
  });
});

suite('Messages of one person', () => {
  const call = (type: string, ids: object, rest: object = {}) => ({ type, event: 'x', ...ids, ...rest });
  const shape = (list: User[]) =>
    list.map(({ identifiers, events }) => [Object.values(identifiers).join(), events.length]);

  test('become one user, in order, with later values of a property before earlier ones', () => {
    const [only, ...others] = users(
      call('identify', { userId: 'u', anonymousId: 'a' }, { traits: { email: 'e@example.com', plan: 1, city: 'x' } }),
      call('track', { userId: 'u' }),
      call('identify', { userId: 'u', anonymousId: 'a' }, { traits: { plan: 2 } }),
    );
    assert.deepEqual(others, []);
    assert.deepEqual(only?.user_properties, { plan: 2, city: 'x' });
    assert.deepEqual(
      only?.events.map(({ event_name }) => event_name),
      ['$identify', 'x', '$identify'],
    );
  });

  test('become several users where one would link identifiers too early or lose the order', () => {
    const list = users(
      call('track', { anonymousId: 'a' }),
      call('identify', { userId: 'u', anonymousId: 'a' }, { traits: { plan: 1 } }),
      call('track', { anonymousId: 'a' }),
      call('identify', { userId: 'v' }, { traits: { plan: 2 } }),
      call('identify', { userId: 'u' }, { traits: { plan: 3 } }),
      call('track', { userId: 'u', anonymousId: 'b' }),
    );
    assert.deepEqual(shape(list), [
      ['a', 2],
      ['u,a', 1],
      ['v', 1],
      ['u', 1],
      ['u,b', 1],
    ]);
  });

  test('placeholder ids do not make one person of two messages', () => {
    const list = users(call('track', { userId: 'null', anonymousId: 'a' }), call('track', { userId: 'null' }));
    assert.deepEqual(shape(list), [
      ['null,a', 1],
      ['null', 1],
    ]);
  });
});

suite('The key in a body', () => {
  test('is found wherever it is at the top, and nowhere else', () => {
    const keyIn = (text: string) => writeKeyOf(Buffer.from(text));
    assert.equal(keyIn('{"batch":[{"writeKey":"b"}],"writeKey":"a"}'), 'a');
    assert.equal(keyIn('{"writeKey":"a","writeKey":"\\u0062"}'), 'b');
    for (const text of ['', '[]', '{}', '{"writeKey":7}', '{"batch":[{"writeKey":"b"}]}', '{"writeKey":"a"']) {
      assert.equal(keyIn(text), null, text);
    }
  });
});
