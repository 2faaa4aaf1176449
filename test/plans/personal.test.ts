/** Personal data is masked where the plan marks it, and everything else stays as it was written. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { maskedEvent, maskedProfile, personalDataIn } from '../../src/plans/personal.ts';
import { type Plan, readPlan } from '../../src/plans/plan.ts';

const mark = (...names: string[]): object => ({
  schema: { properties: Object.fromEntries(names.map((name) => [name, { 'x-personal': true }])) },
});

function planWith(plan: object): Plan {
  const reading = readPlan(plan);
  assert.ok(reading.ok);
  return reading.plan;
}

const PLAN = planWith({
  events: { order: mark('card', 'revenue'), plain: { schema: { properties: { card: {} } } } },
  user_properties: mark('income'),
  profile_fields: mark('city'),
});

const event = (eventName: string, properties: string) => ({ eventName, properties, revenue: '1.50', eventValue: '2' });

suite('Personal data', () => {
  test('marked properties of an event are masked, digits of others stay', () => {
    assert.deepEqual(maskedEvent(PLAN, event('order', '{"card":{"no":1},"id":12345678901234567890,"x":1e400}')), {
      eventName: 'order',
      properties: '{"card":"•••","id":12345678901234567890,"x":1e400}',
      revenue: null,
      eventValue: '2',
    });
  });

  test('events without personal properties are left as they are', () => {
    for (const plan of [PLAN, null]) {
      const plain = event('plain', '{"card": 1.0}');
      assert.equal(maskedEvent(plan, plain), plain);
    }
    const other = event('toString', '{}');
    assert.equal(maskedEvent(PLAN, other), other);
    assert.equal(maskedEvent(PLAN, event('order', '{"x": 1.0}')).properties, '{"x": 1.0}');
  });

  test('marked properties and fields of a profile are masked', () => {
    const profile = {
      profileFields: new Map([['city', { value: '"Oslo"' }]]),
      userProperties: new Map([
        ['income', { value: '7' }],
        ['plan', { value: '"pro"' }],
      ]),
    };
    const masked = maskedProfile(PLAN, profile);
    assert.deepEqual(
      [...masked.profileFields, ...masked.userProperties].map(([name, { value }]) => `${name} ${value}`),
      ['city "•••"', 'income "•••"', 'plan "pro"'],
    );
    assert.equal(maskedProfile(null, profile), profile);
  });

  test('what is marked can be listed', () => {
    assert.deepEqual(personalDataIn(PLAN), {
      profile_fields: ['city'],
      user_properties: ['income'],
      events: { order: ['card', 'revenue'] },
    });
    assert.equal(personalDataIn(null), null);
    assert.equal(personalDataIn(planWith({ events: { plain: {} } })), null);
  });
});
