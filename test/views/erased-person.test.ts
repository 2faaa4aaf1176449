/** Finding an erased person in what was rejected: users, messages of Segment's SDKs, and what was kept in part only. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { payloadTest, textTest, userTest } from '../../src/views/erased-person.ts';

const OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };
const KEYS = [
  { type: 'user_id', value: '4711', raw: '4711' },
  { type: 'email', value: 'ada@example.com', raw: 'Ada@Example.com' },
  { type: 'phone_number', value: '+4930123456', raw: '+49 30 123456' },
  { type: 'anon_id', value: 'anon-7', raw: 'anon-7' },
] as const;

suite('A rejected user is found by the identifiers of a person who is erased', () => {
  const isAbout = payloadTest(KEYS, OPTIONS);

  test('in our own form, also as a number', () => {
    for (const identifiers of [
      { user_id: '4711' },
      { user_id: 4711 },
      { email: 'ADA@example.com' },
      { phone_number: '+49 (30) 123456' },
      { anon_id: 'anon-7', user_id: null },
    ]) {
      assert.equal(isAbout(JSON.stringify({ identifiers, events: 'wrong' })), true, JSON.stringify(identifiers));
    }
    for (const user of [
      { identifiers: { user_id: '47110', email: 'bob@example.com' } },
      // Another kind of identifier with the same value is another person.
      { identifiers: { anon_id: '4711' } },
      { user_properties: { note: '4711' } },
      { identifiers: null },
      'ada',
      null,
    ]) {
      assert.equal(isAbout(JSON.stringify(user)), false, JSON.stringify(user));
    }
  });

  test('whatever the default country and the junk values of today', () => {
    const spelt = { type: 'phone_number', raw: '030 123456' } as const;
    const stored = { none: 'digits:030123456', DE: '+4930123456', AT: '+4330123456' };
    const rejected = JSON.stringify({ identifiers: { phone_number: '030-123456' } });
    for (const value of Object.values(stored)) {
      for (const defaultCountry of [null, 'DE', 'AT']) {
        const options = { ...OPTIONS, defaultCountry };
        assert.equal(payloadTest([{ ...spelt, value }], options)(rejected), true, `${value} ${defaultCountry}`);
        assert.equal(userTest([{ ...spelt, value }], options)(rejected), true, `${value} ${defaultCountry}`);
      }
    }
    const junk = { ...OPTIONS, junkValues: new Set(['4711']) };
    assert.equal(payloadTest(KEYS, junk)('{"identifiers":{"user_id":"4711"}}'), true);
    assert.equal(userTest(KEYS, junk)('{"identifiers":{"user_id":"4711"}}'), true);
  });

  test('in a message of one of Segment’s SDKs', () => {
    for (const message of [
      { type: 'track', userId: '4711' },
      { type: 'track', userId: 4711 },
      { type: 'track', anonymousId: 'anon-7' },
      { type: 'alias', previousId: 'anon-7', userId: 'x' },
      { type: 'alias', previousId: 4711 },
      { type: 'identify', traits: { email: 'Ada@Example.com' } },
      { type: 'identify', traits: { phone: '+4930123456' } },
      { type: 'track', event: 7, context: { traits: { email: 'ada@example.com' } } },
    ]) {
      assert.equal(isAbout(JSON.stringify(message)), true, JSON.stringify(message));
    }
    for (const message of [
      { type: 'track', userId: 'x', anonymousId: 'y' },
      { type: 'track', properties: { email: 7 } },
      { type: 'identify', traits: 'ada' },
    ]) {
      assert.equal(isAbout(JSON.stringify(message)), false, JSON.stringify(message));
    }
  });

  test('wherever in it they are, however the member is called', () => {
    for (const user of [
      { user_id: '4711', events: [] },
      { email: 'Ada@Example.com', events: [] },
      { identifiers: { user_id: ['4711'] } },
      { identifiers: { email: { value: 'ada@example.com' } } },
      { identifiers: [{ email: 'ada@example.com' }] },
      { identifiers: { userId: 4711 } },
      { identifiers: { user_id: 'ada@example.com' } },
      { 'User-ID': '4711' },
      { users: [{ customer: { id: 4711 } }] },
      { type: 'track', user_id: '4711' },
      { identifiers: { user_id: 'other' }, events: [{ event_name: 'x', contact: '+49 30 12 34 56' }] },
      { identifiers: { 'ada@example.com': true } },
    ]) {
      assert.equal(isAbout(JSON.stringify(user)), true, JSON.stringify(user));
    }
    assert.equal(isAbout('['.repeat(8_000) + ']'.repeat(8_000)), false);
    const long = payloadTest(
      [{ type: 'user_id', value: '12345678901234567891', raw: '12345678901234567891' }],
      OPTIONS,
    );
    assert.equal(long('{"identifiers":{"user_id":12345678901234567891}}'), true);
    assert.equal(long('{"identifiers":{"user_id":12345678901234567892}}'), false);
  });

  test('a short value that is no identifier there does not name a person', () => {
    const user = { identifiers: { user_id: 7 }, events: [{ event_name: '4711', quantity: 4711, note: ['4711'] }] };
    assert.equal(isAbout(JSON.stringify(user)), false);
  });

  test('an accepted user is found by identifiers that are where they belong', () => {
    const isThePerson = userTest(KEYS, OPTIONS);
    assert.equal(isThePerson('{"identifiers":{"email":"ADA@example.com"}}'), true);
    assert.equal(isThePerson('{"identifiers":{"user_id":"bob"},"events":[{"invited":"ada@example.com"}]}'), false);
  });

  test('in the beginning of one that was too large', () => {
    assert.equal(isAbout('{"identifiers":{"user_id":4711},"events":[{"pad":"xx\\'), true);
    assert.equal(isAbout('{"identifiers":{"phone_number":"+49 30 123456"},"events":[{"a":"\\"'), true);
    assert.equal(isAbout(`{"pad":"${'\\"'.repeat(8_000)}`), false);
    assert.equal(isAbout('{"identifiers":{"email":"ADA@example.com"},"events":[{"pad":"xx'), true);
    assert.equal(isAbout('{"identifiers":{"email":"bob@example.com"},"events":[{"pad":"xx'), false);
  });
});

test('A text is searched for whole strings', () => {
  const names = textTest(KEYS);
  assert.equal(names('[{"op":"add","path":"/identifiers/email","value":"Ada@Example.com"}]'), true);
  assert.equal(names('[{"op":"add","path":"/identifiers/user_id","value":"4711-b"}]'), false);
});
