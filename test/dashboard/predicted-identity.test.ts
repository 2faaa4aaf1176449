/** The identity graph after a checked request, made of what is stored and the prediction. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { layoutGraph } from '../../dashboard/src/graph-layout.ts';
import { graphAfter, peopleIn } from '../../dashboard/src/predicted-identity.ts';
import type { Identity, PredictedUser } from '../../dashboard/src/api-types.ts';

const AT = '2026-11-14T09:30:00.000Z';
const OLD = '019a8262-f0d8-83b1-a1c5-7d20f4e6b98a';
const OTHER = '019a8267-8e10-8f44-b2d9-31c06a58e7f2';

function predicted(userIndex: number, profileId: string | null, changes: Partial<PredictedUser> = {}): PredictedUser {
  return {
    userIndex,
    status: 'accepted',
    profile_id: profileId,
    is_new: false,
    events: 1,
    duplicate_events: 0,
    duplicate_of: null,
    new_identifiers: [],
    merges: [],
    refusals: [],
    property_changes: [],
    property_changes_omitted: 0,
    warnings: [],
    violations: [],
    message: null,
    ...changes,
  };
}

function identityOf(node: string, type: 'user_id' | 'anon_id', value: string): Identity {
  const link = { type, value, node, first_trace_id: node, userIndex: 0, first_seen: AT };
  return { identifiers: [link], merges: [], refusals: [] };
}

test('users of one person are one person, and what was separate before is named', () => {
  const via = { type: 'anon_id', value: 'a' } as const;
  const users = [
    predicted(0, OLD),
    predicted(1, 'new:1', { is_new: true }),
    predicted(2, OLD, { merges: [{ from: OTHER, into: OLD, via }] }),
    predicted(3, null),
  ];
  assert.deepEqual(
    peopleIn(users).map(({ id, isNew, before, users: own }) => [
      id,
      isNew,
      before,
      own.map(({ userIndex }) => userIndex),
    ]),
    [
      [OLD, false, [OLD, OTHER], [0, 2]],
      ['new:1', true, [], [1]],
    ],
  );
});

test('links, merges and refusals are added, marked, and can be drawn', () => {
  const via = { type: 'anon_id', value: 'a' } as const;
  const user = predicted(0, OLD, {
    new_identifiers: [{ type: 'email', value: 'a@b.c' }],
    merges: [{ from: OTHER, into: OLD, via }],
    refusals: [{ type: 'phone_number', value: '+49', reason: 'limit', rule: 7, message: 'full' }],
  });
  const [person] = peopleIn([user]);
  assert.ok(person);
  const { identity, added } = graphAfter(
    person,
    [identityOf(OLD, 'user_id', 'u'), identityOf(OTHER, 'anon_id', 'a')],
    AT,
  );
  assert.deepEqual(
    identity.identifiers.map(({ value, node }) => [value, node]),
    [
      ['u', OLD],
      ['a', OTHER],
      ['a@b.c', OLD],
    ],
  );
  assert.equal(added.size, 3);
  const layout = layoutGraph(person.id, identity, { isFolded: true });
  assert.deepEqual([layout.nodes.length, layout.merges.length, layout.refusals.length], [2, 1, 1]);
});

test('a new person has a node of its own, which may be merged in the same request', () => {
  const created = predicted(0, OLD, { new_identifiers: [{ type: 'user_id', value: 'u' }] });
  const merging = predicted(1, OLD, {
    merges: [{ from: 'new:0', into: OLD, via: { type: 'anon_id', value: 'a' } }],
  });
  const [person] = peopleIn([created, merging]);
  assert.ok(person);
  const { identity, added } = graphAfter(person, [identityOf(OLD, 'anon_id', 'a')], AT);
  assert.equal(identity.identifiers.find(({ value }) => value === 'u')?.node, 'new:0');
  assert.ok(added.has('new:0'));
});
