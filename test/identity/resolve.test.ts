/** Rules 5 to 9 by example; what holds for any history is in resolve-properties.test.ts. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { KeyKind, MatchKey } from '../../src/model.ts';
import { type Entry, GraphInMemory } from './graph-in-memory.ts';
import { key, originAt, SMALL_LIMITS } from './histories.ts';

const U1 = key('user_id', 'u1');
const U2 = key('user_id', 'u2');
const E1 = key('email', 'e1');
const E2 = key('email', 'e2');
const P1 = key('phone_number', 'p1');
const A1 = key('anon_id', 'a1');
const A2 = key('anon_id', 'a2');

/** Users of one key each, in their order. */
function history(keyKind: KeyKind, ...records: readonly (readonly MatchKey[])[]): Entry[] {
  return records.map((keys, index) => ({ origin: originAt(index), keyKind, keys, fields: {}, properties: {} }));
}

function graphOf(...records: readonly (readonly MatchKey[])[]): GraphInMemory {
  return new GraphInMemory().add(history('secret', ...records));
}

function added(graph: GraphInMemory, keyKind: KeyKind, ...keys: MatchKey[]): readonly string[] {
  const before = graph.refusals.length;
  graph.add([{ origin: { receivedAt: 9_000, traceId: 't', userIndex: 0 }, keyKind, keys, fields: {}, properties: {} }]);
  return graph.refusals.slice(before).map((refusal) => `${refusal.key.value} ${refusal.reason}`);
}

suite('Resolving users', () => {
  test('a user without a key gets no node and changes nothing (rule 3)', () => {
    const graph = graphOf([]);
    assert.equal(graph.nodes.size, 0);
  });

  test('new keys attach to the node of the strongest key taken, not to its root (rule 5)', () => {
    const graph = graphOf([A1], [E1], [E1, A1], [E1, A2]);
    assert.equal(graph.identifiers.get('anon_id:a2')?.node, graph.identifiers.get('email:e1')?.node);
    assert.deepEqual([...graph.aliases], [[2, 1]]);
    assert.deepEqual(graph.merges[0]?.nodes, [1, 2]);
    assert.deepEqual([graph.merges[0]?.from, graph.merges[0]?.into, graph.merges[0]?.via], [2, 1, A1]);
  });

  test('the oldest node survives, whichever is seen first (rule 9)', () => {
    const [young, old, joining] = history('secret', [A1], [E1], [E1, A1]);
    assert.ok(young !== undefined && old !== undefined && joining !== undefined);
    const graph = new GraphInMemory().add([
      { ...young, origin: originAt(7) },
      { ...old, origin: originAt(3) },
      joining,
    ]);
    assert.deepEqual([...graph.aliases], [[1, 2]]);
  });

  test('when a root is merged away, all its nodes get the new one', () => {
    const graph = graphOf([A1], [E1], [P1], [P1, E1], [P1, A1]);
    assert.deepEqual(
      [...graph.aliases].sort(([a], [b]) => a - b),
      [
        [2, 1],
        [3, 1],
      ],
    );
  });

  test('two people on one device never become one, whatever is sent and in whatever order (rule 6)', () => {
    const graph = graphOf([A1], [U1, A1], [U2, A1], [U1, E1, A1], [U2, E2, A1], [A1], [U2, E1], [E2, A1]);
    assert.ok(!graph.isOneProfile(U1, U2));
    assert.ok(graph.isOneProfile(U1, A1), 'the device stays with its first owner');
    assert.ok(graph.isOneProfile(U2, E2) && graph.isOneProfile(U1, E1));
    assert.deepEqual(
      graph.refusals.map((refusal) => `${refusal.key.value} ${refusal.reason}`),
      ['a1 other_user_id', 'a1 other_user_id', 'e1 other_user_id', 'a1 other_user_id'],
    );
    const second = graph.identifiers.get('user_id:u2')?.node;
    assert.ok(graph.refusals.slice(0, 3).every(({ node }) => node === second));
  });

  test('a user_id without a profile already counts against others (rule 6)', () => {
    const graph = graphOf([U1, E1]);
    assert.deepEqual(added(graph, 'secret', U2, E1, A1), ['e1 other_user_id']);
    assert.ok(graph.isOneProfile(U2, A1));
  });

  test('at a limit a new key is refused and stays without a node (rule 7)', () => {
    const graph = new GraphInMemory(SMALL_LIMITS).add(
      history('secret', [U1, key('email', '1')], [U1, key('email', '2')]),
    );
    assert.deepEqual(added(graph, 'secret', U1, key('email', '3')), ['3 limit']);
    assert.equal(graph.identifiers.has('email:3'), false);
    assert.deepEqual(added(graph, 'secret', key('email', '3')), []);
    assert.deepEqual(added(graph, 'secret', U1, key('email', '3')), ['3 limit'], 'as a merge it is over the limit too');
  });

  test('a profile holds at most 10 e-mail addresses and 100 nodes by default (rule 7)', () => {
    const emails = Array.from({ length: 11 }, (_, index) => [U1, key('email', `e${index}`)]);
    assert.equal(graphOf(...emails).refusals.length, 1);
    const devices = Array.from({ length: 100 }, (_, index) => key('anon_id', `d${index}`));
    const graph = graphOf([U1], ...devices.map((device) => [device]), ...devices.map((device) => [U1, device]));
    assert.deepEqual(
      graph.refusals.map((refusal) => `${refusal.key.value} ${refusal.reason}`),
      ['d99 limit'],
    );
  });

  test('a publishable key may join an anonymous profile to one other (rule 8)', () => {
    assert.deepEqual(added(graphOf([A1], [U1]), 'publishable', U1, A1), []);
    assert.deepEqual(added(graphOf([A1], [E1]), 'publishable', E1, A1), []);
  });

  test('a publishable key never joins two known profiles, and a secret one does (rule 8)', () => {
    for (const [strong, weak] of [
      [U1, E1],
      [E1, P1],
    ] as const) {
      assert.deepEqual(added(graphOf([strong], [weak]), 'publishable', strong, weak), [
        `${weak.value} publishable_key`,
      ]);
      assert.deepEqual(added(graphOf([strong], [weak]), 'secret', strong, weak), []);
    }
    const known = graphOf([E2, A1], [E1]);
    assert.deepEqual(added(known, 'publishable', E1, A1), ['a1 publishable_key'], 'a device that has an owner');
  });

  test('a publishable key gives no new name to a known person who is not named by user_id (rule 8)', () => {
    // A visitor with the key of a web page could otherwise claim any e-mail address for a user_id of their own.
    const claimed = graphOf([E1]);
    assert.deepEqual(added(claimed, 'publishable', U1, E1), ['e1 publishable_key']);
    assert.ok(!claimed.isOneProfile(U1, E1));
    assert.deepEqual(added(claimed, 'secret', U2, E1), [], 'the true owner comes later');
    assert.ok(claimed.isOneProfile(U2, E1));

    const lured = graphOf([E1]);
    assert.deepEqual(added(lured, 'publishable', E1, P1), [`${P1.value} publishable_key`]);
    assert.deepEqual(added(lured, 'secret', U2, P1), []);
    assert.ok(!lured.isOneProfile(U2, E1));
  });

  test('a publishable key may name a visitor, and tell more of who is named by user_id (rule 8)', () => {
    const visitor = graphOf([A1]);
    assert.deepEqual(added(visitor, 'publishable', U1, E1, A1), []);
    assert.ok(visitor.isOneProfile(U1, A1) && visitor.isOneProfile(E1, A1));
    const customer = graphOf([U1]);
    assert.deepEqual(added(customer, 'publishable', U1, E1, P1, A1), []);
    assert.ok(customer.isOneProfile(U1, P1));
    assert.deepEqual(added(graphOf([E1]), 'publishable', E1, A1), [], 'a new device of a known person');
  });

  test('nodes that an unmerge parted are not joined again (rule 16)', () => {
    const graph = graphOf([E1], [A1], [], [E1, A1], [E1, A2]);
    graph.unmerge(originAt(3).traceId);
    assert.ok(!graph.isOneProfile(E1, A1));
    assert.ok(graph.isOneProfile(E1, A2));
    assert.deepEqual(added(graph, 'secret', E1, A1), ['a1 cannot_link']);
  });

  test('nodes that were parted stay so when one of them is merged with a third in the same batch (rule 16)', () => {
    const graph = graphOf([A1], [E1], [P1], [E1, P1]);
    graph.unmerge(originAt(3).traceId);
    graph.add(history('secret', [P1, A1], [E1, A1]));
    assert.ok(graph.isOneProfile(P1, A1));
    assert.ok(!graph.isOneProfile(E1, A1));
    assert.deepEqual(
      graph.refusals.map((refusal) => `${refusal.key.value} ${refusal.reason}`),
      ['a1 cannot_link'],
    );
  });

  test('an unmerge keeps apart all the parts that the request had joined', () => {
    const graph = graphOf([E1], [P1], [A1], [E1, P1, A1]);
    graph.unmerge(originAt(3).traceId);
    assert.equal(graph.aliases.size, 0);
    assert.deepEqual(added(graph, 'secret', P1, A1), ['a1 cannot_link']);
    assert.deepEqual(added(graph, 'secret', E1, P1, A1), ['p1 cannot_link', 'a1 cannot_link']);
  });
});
