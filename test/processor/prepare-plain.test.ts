/** The quick way of preparing says the same as parsing, or nothing. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { Packer } from '../../src/processor/packer.ts';
import { PlainPreparer } from '../../src/processor/prepare-plain.ts';
import type { PreparedUser } from '../../src/processor/prepared.ts';
import { headerOf, Preparer, prepareParsed } from '../../src/processor/prepare.ts';
import { unpack } from '../../src/processor/unpacking.ts';
import { validateRequest } from '../../src/validation/validate-request.ts';
import { arbitraryUser, textOf } from '../validation/arbitrary-users.ts';
import { entriesOf } from './history.ts';
import { ordinaryRequest, request } from './requests.ts';

const OPTIONS = { defaultCountry: 'DE', junkValues: new Set<string>() };
const RECORD = {
  ...{ partition: 0, position: 1, traceId: 't', tenantId: 'a/production', keyId: 'k', keyKind: 'secret' as const },
  ...{ receivedAt: 1_770_000_000_000, firstUserIndex: 3, idempotencyKey: null },
  ...{ userCount: 1, eventCount: 1, rejections: [], body: Buffer.alloc(0) },
};

function user(changes: string): string {
  return `{"users":[{"identifiers":{"user_id":"u_1"},"events":[{"event_name":"seen"${changes}}]}]}`;
}

/** One for all tests, as in a thread: what it remembers of others must not show. */
const PACKER = new Packer();
const PREPARER = new PlainPreparer(PACKER, OPTIONS);

function preparePlain(text: string): readonly PreparedUser[] | null {
  const isPacked = PREPARER.pack({ ...RECORD, body: Buffer.from(text) }, headerOf(RECORD)) !== null;
  const records = unpack(PACKER.finish());
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
    for (const currency of ['"eur"', '" EUR "', '"Euro"', '"é€£"', '""', 'null', '978', '{"a":1}', '["EUR"]', 'true']) {
      assert.ok(assertSame(user(`,"currency":${currency},"revenue":1.5`)), currency);
      assert.ok(assertSame(user(`,"revenue":null,"currency":${currency}`)), currency);
    }
    assert.ok(assertSame(user(',"revenue":1.5')));
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
      const summary = validateRequest(text);
      if (!summary.ok || summary.rejections.length > 0) return;
      valid++;
      if (assertSame(text)) plain++;
    };
    fc.assert(fc.property(request, check), { numRuns: 4_000 });
    assert.ok(valid > 100 && plain > 20, `${valid} valid ones, ${plain} of them plain`);
    fc.assert(fc.property(ordinaryRequest, check), { numRuns: 2_000 });
    assert.ok(plain > 500, `${plain} plain ones`);
    fc.assert(
      fc.property(arbitraryUser, (one) => check(textOf({ users: [one] }))),
      { numRuns: 1_000 },
    );
  });

  test('a name may be anywhere else as well, but twice in one object it is left to parsing', () => {
    const events = '"events":[{"event_name":"seen","events":1,"a":{"a":{"a":1},"events":2}}]';
    const said = '"user_properties":{"events":1,"identifiers":2}';
    const who = '"identifiers":{"user_id":"u_1","events":"x","user_properties":"y"}';
    assert.ok(assertSame(`{"users":[{${events},${said},${who}}]}`));
    for (const twice of [events, said, who]) {
      assert.equal(preparePlain(`{"users":[{${events},${said},${who},${twice}}]}`), null, twice);
    }
    assert.equal(preparePlain(user(',"a":{"b":{"a":1},"c":2,"b":3}')), null);
    assert.equal(preparePlain(user(',"b":1,"a":{"b":{"b":1}},"b":3')), null);
  });

  test('what is left out of an object leaves no trace, wherever it was', () => {
    const members = ['"event_name":"seen"', '"revenue":2', '"a":1', '"$event_id":"e-1"', '"timestamp":null', '"b":"ü"'];
    const fields = ['"user_id":"u_1"', '"city":"Bern"', '"email":"a@b.c"', '"zip":null', '"anon_id":"A1"', '"x":[1]'];
    for (let turn = 0; turn < members.length; turn++) {
      members.push(members.shift() ?? '');
      fields.push(fields.shift() ?? '');
      for (const event of [members, members.slice(0, 4), members.toReversed()]) {
        if (!event.includes('"event_name":"seen"')) continue;
        const one = `{"events":[{${event.join()}},{${event.join()}}],"identifiers":{${fields.join()}}}`;
        assert.ok(assertSame(`{"users":[${one},${one}]}`), one);
      }
    }
  });

  test('a body that ends too early is left to parsing, whatever lay in that memory before', () => {
    const said = '"user_properties":{"plan":"pro","left":null,"isNew":false}';
    const more = ',"timestamp":"2026-11-15T10:20:30.123Z","revenue":1.5,"tags":["a",{"b":true}],"$event_id":"e-1"';
    for (const letter of ['e', 'é']) {
      const whole = user(more).replace('"events"', `${said},"events"`).replace('seen', `s${letter}n`);
      for (let length = 0; length < whole.length; length++) {
        assert.ok(assertSame(whole), whole);
        assert.equal(preparePlain(whole.slice(0, length)), null, whole.slice(0, length));
      }
    }
  });

  test('more names than can be remembered, or than a person has room for, change nothing', () => {
    const names = (count: number, prefix: string) =>
      Array.from({ length: count }, (_item, n) => `"${prefix}${n}":${n}`).join();
    for (let round = 0; round < 40; round++) {
      assert.ok(assertSame(user(`,${names(200, `name ${round} `)},"nested":{${names(50, `nested ${round} `)}}`)));
      assert.ok(assertSame(user(`,${names(20, `${'n'.repeat(100)} ${round} `)}`).replace('"seen"', `"seen ${round}"`)));
    }
    const many = `"user_properties":{${names(1_001, 'p')}}`;
    assert.equal(preparePlain(user('').replace('"events"', `${many},"events"`)), null);
    for (let n = 0; n < 5_000; n++) assertSame(user('').replace('"seen"', `"seen for the ${n}th time"`));
  });

  test('of a batch each record is prepared as by parsing, whatever the others are', () => {
    const preparer = new Preparer(OPTIONS);
    const bodies = fc.array(
      fc.oneof(request, ordinaryRequest).filter((text) => validateRequest(text).ok),
      { minLength: 1, maxLength: 8 },
    );
    const check = (texts: readonly string[]): void => {
      const records = texts.flatMap((text) => {
        const summary = validateRequest(text);
        if (!summary.ok) return [];
        const { userCount, eventCount, rejections } = summary;
        return [{ ...RECORD, body: Buffer.from(text), firstUserIndex: 0, userCount, eventCount, rejections }];
      });
      const expected = records.map((record, index) => {
        return { header: headerOf(record), ...prepareParsed(texts[index] ?? '', record, OPTIONS) };
      });
      assert.deepEqual(unpack(preparer.prepare(records)), expected);
    };
    fc.assert(fc.property(bodies, check), { numRuns: 300 });
  });

  test('records of megabytes, and many at once, are prepared as by parsing', () => {
    const preparer = new Preparer(OPTIONS);
    for (const text of ['x', 'ü', '日']) {
      const large = user(`,"long":"${text.repeat(1_500_000)}","revenue":1,"more":1`);
      const bodies = [large, user(',"a":1'), large, ...Array.from({ length: 8_000 }, () => user(',"b":1'))];
      const records = bodies.map((body) => Object.assign({}, RECORD, { body: Buffer.from(body) }));
      const prepared = unpack(preparer.prepare(records));
      assert.equal(prepared.length, records.length);
      for (const index of [0, 1, 2, 3, records.length - 1]) {
        const body = (records[index]?.body ?? '').toString();
        assert.deepEqual(prepared[index]?.users, prepareParsed(body, RECORD, OPTIONS).users);
      }
    }
  });

  test('a mixed history is prepared as by parsing, much of it without', () => {
    let plain = 0;
    const entries = entriesOf(7, 600).filter(({ rejections }) => rejections.length === 0);
    for (const { body } of entries) if (assertSame(Buffer.from(body).toString('utf8'))) plain++;
    assert.ok(plain > entries.length / 3, `${plain} of ${entries.length}`);
  });
});
