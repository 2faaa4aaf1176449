/** What the page says about a rejection, for every rule that the real validation can find broken. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { adviceFor, withoutIndexes } from '../../dashboard/src/rejection-advice.ts';
import { firstViolation } from '../../src/validation/validate-user.ts';

const EVENT = { event_name: 'signed_up' };
const WHO = { user_id: 'ada' };

function deep(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level++) value = { inner: value };
  return value;
}

const CASES: readonly (readonly [path: string | null, user: unknown])[] = [
  [null, 'ada'],
  ['identifiers', { identifiers: {}, events: [EVENT] }],
  ['events', { identifiers: WHO, events: [] }],
  ['identifiers.email', { identifiers: { ...WHO, email: 7 }, events: [EVENT] }],
  ['identifiers.user_id', { identifiers: { user_id: 'x'.repeat(513) }, events: [EVENT] }],
  ['user_properties', { identifiers: WHO, user_properties: [], events: [EVENT] }],
  ['events[1]', { identifiers: WHO, events: [EVENT, 'bought'] }],
  ['events[0].event_name', { identifiers: WHO, events: [{ name: 'bought' }] }],
  ['events[0].timestamp', { identifiers: WHO, events: [{ ...EVENT, timestamp: '30.2.2026' }] }],
  ['events[0].revenue', { identifiers: WHO, events: [{ ...EVENT, revenue: '12' }] }],
  ['events[0].event_value', { identifiers: WHO, events: [{ ...EVENT, event_value: '12' }] }],
  ['events[0].$event_id', { identifiers: WHO, events: [{ ...EVENT, $event_id: '' }] }],
  ['user_properties', { identifiers: WHO, user_properties: { ['k'.repeat(513)]: 1 }, events: [EVENT] }],
  ['user_properties["a key"]', { identifiers: WHO, user_properties: { 'a key': 'a\0b' }, events: [EVENT] }],
  ['user_properties.plan', { identifiers: WHO, user_properties: { plan: 'a\0b' }, events: [EVENT] }],
];

suite('Advice on rejections', () => {
  for (const [path, user] of CASES) {
    const message = firstViolation(user) ?? '';
    test(`“${message}” points at ${path ?? 'the whole user'} and says how to fix it`, () => {
      assert.notEqual(message, '');
      const advice = adviceFor(message);
      assert.equal(advice.path, path);
      assert.ok(advice.fix.length > 20);
    });

    test(`“${message}” has the same advice when its indexes are left out, as in the list of reasons`, () => {
      const reason = message.replaceAll(/\[\d+\]/g, '[]');
      assert.equal(adviceFor(reason).fix, adviceFor(message).fix);
    });
  }

  test('what a tracking plan enforces is pointed at', () => {
    const message = 'events[3].items[0].price: must be a number (tracking plan, version 4)';
    assert.equal(adviceFor(message).path, 'events[3].items[0].price');
    assert.match(adviceFor(message).fix, /tracking plan/);
    assert.equal(adviceFor(withoutIndexes(message)).fix, adviceFor(message).fix);
  });

  test('a value that is nested too deeply is pointed at', () => {
    const message = firstViolation({ identifiers: WHO, user_properties: { tree: deep(80) }, events: [EVENT] }) ?? '';
    assert.match(message, /nested too deeply/);
    const advice = adviceFor(message);
    assert.match(advice.path ?? '', /^user_properties\.tree/);
    assert.match(advice.fix, /64/);
  });

  test('for a decimal comma it says to send a point', () => {
    const message = firstViolation({ identifiers: WHO, events: [{ ...EVENT, revenue: '12,50' }] }) ?? '';
    assert.match(adviceFor(message).fix, /point before the decimals, not a comma/);
  });

  test('a reason is the message without its indexes', () => {
    const message = firstViolation({ identifiers: WHO, events: [EVENT, { name: 'bought' }] }) ?? '';
    assert.match(message, /^events\[1\]\.event_name /);
    assert.match(withoutIndexes(message), /^events\[\]\.event_name /);
  });

  test('a message that the page does not know is shown without advice', () => {
    assert.deepEqual(adviceFor('the moon is full'), { path: null, fix: '' });
  });
});
