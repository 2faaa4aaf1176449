/** The quick way of preparing says the same as parsing, or nothing. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { Packer } from '../../src/processor/packer.ts';
import { PlainPreparer } from '../../src/processor/prepare-plain.ts';
import { headerOf, type PreparedUser, prepareParsed } from '../../src/processor/prepare.ts';
import { unpack } from '../../src/processor/unpacking.ts';
import { validateRequest } from '../../src/validation/validate-request.ts';
import { arbitraryUser, textOf } from '../validation/arbitrary-users.ts';
import { entriesOf } from './history.ts';
import { plain } from './unpacked.ts';

const OPTIONS = { defaultCountry: 'DE', junkValues: new Set<string>() };
const RECORD = {
  ...{ partition: 0, position: 1, traceId: 't', tenantId: 'a/production', keyId: 'k', keyKind: 'secret' as const },
  ...{ receivedAt: 1_770_000_000_000, firstUserIndex: 3, idempotencyKey: null },
  ...{ userCount: 1, eventCount: 1, rejections: [] },
};

function user(changes: string): string {
  return `{"users":[{"identifiers":{"user_id":"u_1"},"events":[{"event_name":"seen"${changes}}]}]}`;
}

/** One for all tests, as in a thread: what it remembers of others must not show. */
const PACKER = new Packer();
const PREPARER = new PlainPreparer(PACKER, OPTIONS);

function preparePlain(text: string): readonly PreparedUser[] | null {
  const isPacked = PREPARER.pack({ ...RECORD, body: Buffer.from(text) }, headerOf(RECORD)) !== null;
  const records = plain(unpack(PACKER.finish()));
  assert.equal(records.length, isPacked ? 1 : 0);
  assert.deepEqual(records[0]?.header ?? headerOf(RECORD), headerOf(RECORD));
  return records[0]?.users ?? null;
}

function assertSame(text: string): boolean {
  const users = preparePlain(text);
  if (users === null) return false;
  assert.deepEqual(users, prepareParsed(text, RECORD, OPTIONS).users);
  return true;
}

/** Tokens of JSON, some of them spelled in a way that JavaScript would not choose. */
const scalar = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('0', '12', '-1.5', '"EUR"', '"Straße"', 'true', 'null') },
  fc.constantFrom('0', '-0', '7', '-1.5', '1.50', '0.000001', '0.0000001', '1e3', '1E400', '123456789012345'),
  fc.constantFrom('1234567890123456', '9007199254740993', '0.1', '100', '-0.0', 'true', 'false', 'null'),
  fc.constantFrom('""', '"EUR"', '"Straße"', '"購入 😀"', '"a\\"b"', '"\\u00e9"', '"\u2028"', '"{,}"', '"]"'),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => JSON.stringify(number)),
);
const name = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom('plan', 'visits', 'é', 'a b', 'user_id', 'city', '$event_id', 'b', 'c') },
  fc.constantFrom('7', '', '__proto__', 'constructor', '_', '__'),
);
const { value } = fc.letrec<{ value: string; object: string }>((tie) => ({
  value: fc.oneof(
    { weight: 5, arbitrary: scalar },
    { weight: 1, arbitrary: fc.array(tie('value'), { maxLength: 3 }).map((items) => `[${items.join()}]`) },
    { weight: 1, arbitrary: tie('object') },
  ),
  object: members(fc.tuple(name, tie('value'))),
}));

function members(pair: fc.Arbitrary<readonly [string, string]>): fc.Arbitrary<string> {
  return fc
    .tuple(fc.array(pair, { maxLength: 4 }), fc.constantFrom(',', ',', ',', ', '))
    .map(([pairs, comma]) => `{${pairs.map(([key, item]) => `"${key}":${item}`).join(comma)}}`);
}

const event = members(
  fc.oneof(
    { weight: 4, arbitrary: fc.tuple(name, value) },
    fc.tuple(fc.constant('event_name'), fc.constantFrom('"seen"', '" 購入"')),
    fc.tuple(fc.constant('timestamp'), fc.constantFrom('"2026-11-15"', '"2026-11-15T10:20:30.5Z"', 'null')),
    fc.tuple(fc.constantFrom('revenue', 'event_value'), scalar),
  ),
);
const identifiers = members(
  fc.tuple(
    fc.constantFrom('user_id', 'email', 'phone_number', 'anon_id', 'first_name', 'city', '__proto__'),
    fc.constantFrom('"u_1"', '" Ada@X.org"', '"Ärger"', '"null"', '"0049 30 123456"', 'null', '""'),
  ),
);
const request = fc
  .array(fc.tuple(identifiers, members(fc.tuple(name, value)), fc.array(event, { minLength: 1, maxLength: 3 })), {
    minLength: 1,
    maxLength: 2,
  })
  // What every user must have, so that most of them are valid.
  .map((users) =>
    users.map(([who, said, events]) => [withFirst(who, '"anon_id":"a"'), said, events.map(named)] as const),
  )
  .map((users) => users.map(([who, said, events]) => userText(who, said, events)))
  .map((users) => `{"users":[${users.join()}]}`);

function withFirst(object: string, member: string): string {
  return object === '{}' ? `{${member}}` : `{${member},${object.slice(1)}`;
}

function named(object: string): string {
  return withFirst(object, '"event_name":"first"');
}

function userText(who: string, said: string, events: readonly string[]): string {
  return `{"identifiers":${who},"user_properties":${said},"events":[${events.join()}]}`;
}

suite('Preparing without parsing', () => {
  test('an ordinary user is prepared without parsing, and just as with it', () => {
    for (const more of [
      ',"timestamp":"2026-11-15T10:20:30.123Z","revenue":19.90,"currency":"EUR","quantity":3',
      ',"currency":"EUR","event_value":-2,"plan":null,"timestamp":null,"tags":["a",1,true],"cart":{"a":{"b":0.5}}',
      ',"$event_id":"e-1","revenue":0,"city":"Zürich 😀"',
      '',
    ]) {
      assert.ok(assertSame(user(more)), more);
    }
    const said = '"user_properties":{"plan":"pro","visits":3,"left":null}';
    const who =
      '"identifiers":{"email":"Ada@X.org","city":"Bern","user_id":"u_1","zip":null,"phone_number":"+4930123456"}';
    assert.ok(assertSame(`{"users":[{${said},"events":[{"a":1,"event_name":"seen","b":2}],${who}}]}\n`));
  });

  test('what JavaScript would write in another way is left to parsing', () => {
    for (const odd of [
      '1.50',
      '1e3',
      '-0',
      '0.0000001',
      '1234567890123456',
      '{"7":1}',
      '{"a":1,"a":2}',
      '"\\n"',
      '[1 ]',
    ]) {
      assert.equal(preparePlain(user(`,"odd":${odd}`)), null, odd);
    }
    for (const odd of [',"a":1,"a":2', ',"7":1', ',"__proto__":1', ', "a":1', ',"revenue":1e2', ',"timestamp":"no"']) {
      assert.equal(preparePlain(user(odd)), null, odd);
    }
    assert.equal(preparePlain(`\uFEFF${user('')}`), null);
    assert.equal(preparePlain(`{"more":1,${user('').slice(1)}`), null);
    assert.equal(preparePlain(user('').slice(0, -1)), null);
  });

  test('any valid request is prepared as by parsing, or left to it', () => {
    let plain = 0;
    let valid = 0;
    const check = (text: string): void => {
      const verdict = validateRequest(text);
      if (!verdict.ok || verdict.rejections.length > 0) return;
      valid++;
      if (assertSame(text)) plain++;
    };
    fc.assert(fc.property(request, check), { numRuns: 8_000 });
    assert.ok(valid > 200 && plain > 100, `${valid} valid ones, ${plain} of them plain`);
    fc.assert(
      fc.property(arbitraryUser, (one) => check(textOf({ users: [one] }))),
      { numRuns: 2_000 },
    );
  });

  test('a mixed history is prepared as by parsing, much of it without', () => {
    let plain = 0;
    const entries = entriesOf(7, 600).filter(({ rejections }) => rejections.length === 0);
    for (const { body } of entries) if (assertSame(Buffer.from(body).toString('utf8'))) plain++;
    assert.ok(plain > entries.length / 3, `${plain} of ${entries.length}`);
  });
});
