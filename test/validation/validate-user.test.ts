/** The rules for users, one sentence each: the contract's table first, then its fine print, then the order of rules. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { firstViolation } from '../../src/validation/validate-user.ts';

const NO_IDENTIFIER = 'at least one identifier is required (user_id, email, phone_number, or anon_id)';
const NO_EVENTS = 'events array is required and must not be empty';
const NO_NAME = 'events[0].event_name is required and must be a non-empty string';

const EVENT = { event_name: 'purchase' };
const USER = { identifiers: { user_id: 'u_1' }, user_properties: { plan: 'pro' }, events: [EVENT] };

type Row = readonly [sentence: string, user: unknown, message: string | null];

const withIdentifiers = (identifiers: unknown): unknown => ({ ...USER, identifiers });
const withProperties = (user_properties: unknown): unknown => ({ ...USER, user_properties });
const withEvents = (...events: unknown[]): unknown => ({ ...USER, events });
const withEvent = (members: object): unknown => withEvents({ ...EVENT, ...members });
const without = (name: keyof typeof USER): unknown =>
  Object.fromEntries(Object.entries(USER).filter(([key]) => key !== name));

function nested(levels: number, inner: unknown = 'bottom'): unknown {
  let value = inner;
  for (let level = 0; level < levels; level++) value = level % 2 === 0 ? [value] : { a: value };
  return value;
}

const RULES: readonly Row[] = [
  ['a user with an identifier and an event is accepted', USER, null],
  ['a user that is a string is rejected', 'ada', 'user must be an object'],
  ['a user that is null is rejected', null, 'user must be an object'],
  ['a user that is an array is rejected', [USER], 'user must be an object'],
  ['a user without identifiers is rejected', without('identifiers'), NO_IDENTIFIER],
  ['a user with no identifier among the identifiers is rejected', withIdentifiers({ city: 'Paris' }), NO_IDENTIFIER],
  [
    'a lone identifier that is a number is named, and what it must be',
    withIdentifiers({ user_id: 42 }),
    'identifiers.user_id must be a string',
  ],
  [
    'of several identifiers of a wrong type the first is named, also beside null, a blank one and a profile field',
    withIdentifiers({ city: 'Paris', user_id: null, email: ' ', phone_number: ['+49'], anon_id: {} }),
    'identifiers.phone_number must be a string',
  ],
  [
    'an identifier of a wrong type comes before missing events when it is the only one',
    { identifiers: { anon_id: false } },
    'identifiers.anon_id must be a string',
  ],
  [
    'a profile field of a wrong type without any identifier is a missing identifier',
    withIdentifiers({ city: 7 }),
    NO_IDENTIFIER,
  ],
  [
    'blank identifiers are missing ones, not of a wrong type',
    withIdentifiers({ user_id: '', email: ' ' }),
    NO_IDENTIFIER,
  ],
  ['a user without events is rejected', without('events'), NO_EVENTS],
  ['a user with an empty events array is rejected', withEvents(), NO_EVENTS],
  [
    'an identifier that is a number is rejected even beside a good one',
    withIdentifiers({ user_id: 7, email: 'ada@example.com' }),
    'identifiers.user_id must be a string',
  ],
  [
    'a profile field that is not a string is rejected',
    withIdentifiers({ user_id: 'u', city: ['Paris'] }),
    'identifiers.city must be a string',
  ],
  [
    'an identifier of 513 characters is rejected',
    withIdentifiers({ user_id: 'u', email: 'e'.repeat(513) }),
    'identifiers.email must be at most 512 characters',
  ],
  ['user_properties that are an array are rejected', withProperties([]), 'user_properties must be an object'],
  ['user_properties that are a string are rejected', withProperties('pro'), 'user_properties must be an object'],
  ['an event that is a string is rejected', withEvents('purchase'), 'events[0] must be an object'],
  ['an event that is null is rejected', withEvents(EVENT, null), 'events[1] must be an object'],
  ['an event that is an array is rejected', withEvents([EVENT]), 'events[0] must be an object'],
  ['an event without a name is rejected', withEvents({}), NO_NAME],
  ['an event with an empty name is rejected', withEvent({ event_name: '' }), NO_NAME],
  [
    'an event name of 513 characters is rejected with the limit',
    withEvent({ event_name: 'n'.repeat(513) }),
    `${NO_NAME} of at most 512 characters`,
  ],
  [
    'a timestamp that is not ISO 8601 is rejected',
    withEvent({ timestamp: 'yesterday' }),
    'events[0].timestamp must be an ISO 8601 timestamp',
  ],
  [
    'a timestamp that is a number is rejected',
    withEvent({ timestamp: 1_763_201_630_123 }),
    'events[0].timestamp must be an ISO 8601 timestamp',
  ],
  ['revenue as a string is rejected', withEvent({ revenue: '12.5' }), 'events[0].revenue must be a number'],
  ['event_value as a boolean is rejected', withEvent({ event_value: true }), 'events[0].event_value must be a number'],
  [
    'an empty $event_id is rejected',
    withEvent({ $event_id: '' }),
    'events[0].$event_id must be a string of 1 to 255 characters',
  ],
  [
    'a $event_id of 256 characters is rejected',
    withEvent({ $event_id: 'i'.repeat(256) }),
    'events[0].$event_id must be a string of 1 to 255 characters',
  ],
  [
    'a $event_id that is a number is rejected',
    withEvent({ $event_id: 1 }),
    'events[0].$event_id must be a string of 1 to 255 characters',
  ],
  [
    'a property nested 65 deep is rejected, named by the property',
    withProperties({ plan: 'pro', tree: nested(65) }),
    'user_properties.tree is nested too deeply',
  ],
  [
    'an event property nested 65 deep is rejected',
    withEvent({ items: nested(65) }),
    'events[0].items is nested too deeply',
  ],
  [
    'an unknown part of the user nested 65 deep is rejected',
    { ...USER, extra: nested(65) },
    'extra is nested too deeply',
  ],
  [
    'a key of 513 characters is rejected, named by the object that holds it',
    withEvent({ items: [{ ok: { ['k'.repeat(513)]: 1 } }] }),
    'events[0].items[0].ok has a key longer than 512 characters',
  ],
  [
    'a key of 513 characters directly in the user is rejected',
    { ...USER, ['k'.repeat(513)]: 1 },
    'user has a key longer than 512 characters',
  ],
  [
    'a profile field with a name of 513 characters is rejected',
    withIdentifiers({ user_id: 'u', ['k'.repeat(513)]: 'x' }),
    'identifiers has a key longer than 512 characters',
  ],
  [
    'U+0000 deep in a property is rejected with the whole path',
    withEvent({ items: [1, 2, { sku: 'a\0' }] }),
    'events[0].items[2].sku contains a character that cannot be stored',
  ],
];

const FINE_PRINT: readonly Row[] = [
  ['each identifier alone is enough: email', withIdentifiers({ email: 'ada@example.com' }), null],
  ['each identifier alone is enough: phone_number', withIdentifiers({ phone_number: '+331234' }), null],
  ['each identifier alone is enough: anon_id', withIdentifiers({ anon_id: 'a' }), null],
  ['identifiers that are null count as missing', withIdentifiers(null), NO_IDENTIFIER],
  ['identifiers that are an array count as missing', withIdentifiers(['u_1']), NO_IDENTIFIER],
  ['identifiers that are a string count as missing', withIdentifiers('u_1'), NO_IDENTIFIER],
  ['an only identifier that is blank counts as missing', withIdentifiers({ user_id: ' \t\n\u00a0' }), NO_IDENTIFIER],
  ['a blank identifier beside a good one is no error', withIdentifiers({ user_id: '', email: 'a@b.c' }), null],
  ['null for an identifier counts as absent', withIdentifiers({ user_id: null, email: 'a@b.c' }), null],
  ['null for a profile field counts as absent', withIdentifiers({ user_id: 'u', city: null }), null],
  ['an identifier of 512 characters is accepted', withIdentifiers({ user_id: 'u'.repeat(512) }), null],
  ['an identifier of 512 emoji is accepted', withIdentifiers({ user_id: '😀'.repeat(512) }), null],
  [
    'an identifier of 513 emoji is rejected',
    withIdentifiers({ user_id: '😀'.repeat(513) }),
    'identifiers.user_id must be at most 512 characters',
  ],
  ['a profile field may be of any length', withIdentifiers({ user_id: 'u', bio: 'b'.repeat(5000) }), null],
  ['a user without user_properties is accepted', without('user_properties'), null],
  ['null for user_properties counts as absent', withProperties(null), null],
  ['empty user_properties are accepted', withProperties({}), null],
  ['events that are an object are rejected', { ...USER, events: { 0: EVENT, length: 1 } }, NO_EVENTS],
  ['events that are null are rejected', { ...USER, events: null }, NO_EVENTS],
  ['an event name that is white space is rejected', withEvent({ event_name: ' \t ' }), NO_NAME],
  ['an event name that is null is rejected', withEvent({ event_name: null }), NO_NAME],
  ['an event name that is a number is rejected', withEvent({ event_name: 5 }), NO_NAME],
  ['an event name of 600 spaces is blank rather than long', withEvent({ event_name: ' '.repeat(600) }), NO_NAME],
  ['an event name of 512 characters is accepted', withEvent({ event_name: 'n'.repeat(512) }), null],
  ['an event name of 512 emoji is accepted', withEvent({ event_name: '😀'.repeat(512) }), null],
  [
    'null for every optional field of an event counts as absent',
    withEvent({ timestamp: null, revenue: null, event_value: null, $event_id: null }),
    null,
  ],
  ['a negative revenue is a number', withEvent({ revenue: -12.5, event_value: 0 }), null],
  ['a revenue of twenty digits is a number', withEvent({ revenue: Number('12345678901234567890') }), null],
  ['a $event_id of 255 emoji is accepted', withEvent({ $event_id: '😀'.repeat(255) }), null],
  ['a plain event_id is a property like any other', withEvent({ event_id: 17 }), null],
  ['a property nested 64 deep is accepted', withProperties({ tree: nested(64) }), null],
  ['an event property nested 64 deep is accepted', withEvent({ items: nested(64) }), null],
  ['a key of 512 emoji is accepted', withProperties({ ['😀'.repeat(512)]: 1 }), null],
  ['unknown members of a user are accepted', { ...USER, source: { sdk: 'web' } }, null],
  [
    'a property may be of any type',
    withProperties({ a: 1, b: 'x', c: true, d: null, e: [1, 'x'], f: { g: [] } }),
    null,
  ],
  [
    'a name that is no plain word is written in brackets',
    withIdentifiers({ user_id: 'u', 'first "name"': 1 }),
    'identifiers["first \\"name\\""] must be a string',
  ],
  [
    'a member of the user that is no plain word is written in brackets',
    { ...USER, 'a b': nested(65) },
    'user["a b"] is nested too deeply',
  ],
  [
    'a name too long to repeat is cut in the message',
    withIdentifiers({ user_id: 'u', ['k'.repeat(9999)]: 1 }),
    `identifiers["${'k'.repeat(512)}…"] must be a string`,
  ],
];

const ORDER: readonly Row[] = [
  ['a missing identifier comes before missing events', {}, NO_IDENTIFIER],
  [
    'missing events come before an identifier of the wrong type',
    { identifiers: { user_id: 'u', email: 1 }, events: [] },
    NO_EVENTS,
  ],
  [
    'an identifier of the wrong type comes before one that is too long',
    withIdentifiers({ user_id: 'u'.repeat(513), email: 1 }),
    'identifiers.email must be a string',
  ],
  [
    'an identifier that is too long comes before bad user_properties',
    { ...USER, identifiers: { user_id: 'u'.repeat(513) }, user_properties: [] },
    'identifiers.user_id must be at most 512 characters',
  ],
  [
    'bad user_properties come before a bad event',
    { ...USER, user_properties: [], events: [1] },
    'user_properties must be an object',
  ],
  [
    'a second event that is no object comes before a first one without a name',
    withEvents({}, 'x'),
    'events[1] must be an object',
  ],
  [
    'a name missing in the last event comes before a bad timestamp in the first',
    withEvents({ ...EVENT, timestamp: 'x' }, EVENT, {}),
    'events[2].event_name is required and must be a non-empty string',
  ],
  [
    'a long name in the first event comes before a missing name in the second, as they are one rule',
    withEvents({ event_name: 'n'.repeat(513) }, {}),
    `${NO_NAME} of at most 512 characters`,
  ],
  [
    'a bad timestamp in the second event comes before a bad revenue in the first',
    withEvents({ ...EVENT, revenue: 'x' }, { ...EVENT, timestamp: 'x' }),
    'events[1].timestamp must be an ISO 8601 timestamp',
  ],
  [
    'event_value of the first event comes before revenue of the second, as they are one rule',
    withEvents({ ...EVENT, event_value: 'x' }, { ...EVENT, revenue: 'x' }),
    'events[0].event_value must be a number',
  ],
  [
    'revenue comes before event_value within an event',
    withEvent({ event_value: 'x', revenue: 'x' }),
    'events[0].revenue must be a number',
  ],
  [
    'a bad revenue in the second event comes before a bad $event_id in the first',
    withEvents({ ...EVENT, $event_id: '' }, { ...EVENT, revenue: 'x' }),
    'events[1].revenue must be a number',
  ],
  [
    'a bad $event_id comes before deep nesting',
    { ...USER, user_properties: { tree: nested(65) }, events: [{ ...EVENT, $event_id: '' }] },
    'events[0].$event_id must be a string of 1 to 255 characters',
  ],
  [
    'deep nesting in the last event comes before a bad character in the first',
    withEvents({ ...EVENT, note: '\0' }, { ...EVENT, tree: nested(65) }),
    'events[1].tree is nested too deeply',
  ],
  [
    'of two bad characters the first is reported',
    withEvents({ ...EVENT, a: { c: 'fine', d: '\0' } }, { ...EVENT, b: '\0' }),
    'events[0].a.d contains a character that cannot be stored',
  ],
];

for (const [sentence, user, message] of [...RULES, ...FINE_PRINT, ...ORDER]) {
  test(sentence, () => {
    // Through JSON, as the validator is only ever given what JSON.parse made.
    assert.equal(firstViolation(JSON.parse(JSON.stringify(user))), message);
  });
}
