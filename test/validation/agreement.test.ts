/**
 * The fast validator against the slow oracle, on users that are broken at random places. A fixed-seed run counts which
 * messages come up, so that a generator that no longer reaches a rule fails here instead of passing quietly.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { validateRequest } from '../../src/validation/validate-request.ts';
import { firstViolation } from '../../src/validation/validate-user.ts';
import { arbitraryUser, textOf } from './arbitrary-users.ts';
import { oracle } from './oracle.ts';

test('the validator and the oracle agree on arbitrary users', () => {
  fc.assert(
    fc.property(arbitraryUser, (user) => {
      assert.equal(firstViolation(user), oracle(user));
    }),
    { numRuns: 1_500 },
  );
});

test('the validation on a request is the validation on each of its users, counted', () => {
  fc.assert(
    fc.property(fc.array(arbitraryUser, { minLength: 1, maxLength: 8 }), (users) => {
      const messages = users.map((user) => oracle(user));
      const accepted = users.filter((_, index) => messages[index] === null) as { events: unknown[] }[];
      assert.deepEqual(validateRequest(textOf({ users, more: '😀' })), {
        ok: true,
        userCount: users.length,
        eventCount: accepted.reduce((sum, user) => sum + user.events.length, 0),
        rejections: messages.flatMap((message, userIndex) => (message === null ? [] : [{ userIndex, message }])),
      });
    }),
    { numRuns: 400 },
  );
});

test('the generated users reach every rule, and enough of them are valid', () => {
  const runs = 2_000;
  const counts = new Map<string, number>();
  for (const user of fc.sample(arbitraryUser, { numRuns: runs, seed: 20_261_115 })) {
    const kind = kindOf(oracle(user));
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  const shares = Object.fromEntries([...counts].sort((a, b) => b[1] - a[1]));
  for (const kind of KINDS)
    assert.ok((counts.get(kind) ?? 0) > runs / 200, `${kind}: ${JSON.stringify(shares, null, 2)}`);
  const accepted = counts.get('accepted') ?? 0;
  assert.ok(accepted > runs * 0.25 && accepted < runs * 0.6, `${accepted} of ${runs} accepted`);
  assert.deepEqual(
    [...counts.keys()].filter((kind) => !KINDS.includes(kind)),
    [],
  );
});

test('validation users leaves the prototypes of objects and arrays untouched', () => {
  const before = [Object.prototype, Array.prototype].map((prototype) => Reflect.ownKeys(prototype));
  fc.assert(
    fc.property(arbitraryUser, (user) => {
      const text = textOf(user);
      firstViolation(user);
      assert.equal(textOf(user), text);
    }),
    { numRuns: 300 },
  );
  assert.deepEqual(
    [Object.prototype, Array.prototype].map((prototype) => Reflect.ownKeys(prototype)),
    before,
  );
});

const KINDS = [
  'accepted',
  'user must be an object',
  'at least one identifier is required (user_id, email, phone_number, or anon_id)',
  'events array is required and must not be empty',
  'identifiers… must be a string',
  'identifiers… must be at most 512 characters',
  'user_properties must be an object',
  'events… must be an object',
  'events….event_name is required and must be a non-empty string',
  'events….event_name is required and must be a non-empty string of at most 512 characters',
  'events….timestamp must be an ISO 8601 timestamp',
  'events….revenue must be a number',
  'events….event_value must be a number',
  'events….$event_id must be a string of 1 to 255 characters',
  '… is nested too deeply',
  '… has a key longer than 512 characters',
  '… contains a character that cannot be stored',
];

function kindOf(message: string | null): string {
  if (message === null) return 'accepted';
  return message
    .replace(/^.* (is nested too deeply|has a key longer than .*|contains a character .*)$/s, '… $1')
    .replace(/^events\[\d\]( |\.)/, 'events…$1')
    .replace(/^identifiers[.[].* must/s, 'identifiers… must');
}
