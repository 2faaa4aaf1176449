/** The writer's identity cache: right about every person in it, and empty for all others. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { KeyHash } from '../../src/views/keyed-hash.ts';
import { IdentityCache } from '../../src/views/identity-cache.ts';

const ADA = { hash: -5, rest: 7 };

suite('Known people', () => {
  test('are known by the whole hash, and by nothing less', () => {
    const people = new IdentityCache();
    people.set(ADA, 10);
    assert.equal(people.get(ADA), 10);
    for (const other of [
      { ...ADA, hash: 5 },
      { ...ADA, rest: 8 },
      { ...ADA, rest: 7 + 2 ** 40 },
      { ...ADA, hash: -5 - 2 ** 40 },
    ])
      assert.equal(people.get(other), undefined);
    assert.equal(people.get({ hash: 0, rest: 0 }), undefined);
  });

  test('are moved by a new node, and gone when all is forgotten', () => {
    const people = new IdentityCache();
    people.set(ADA, 10);
    people.set(ADA, 11);
    assert.equal(people.get(ADA), 11);
    people.clear();
    assert.equal(people.get(ADA), undefined);
  });

  test('are dropped by node, under all their hashes, and others stay', () => {
    const people = new IdentityCache();
    const hashes = Array.from({ length: 3_000 }, (_none, n) => ({ hash: n, rest: n * 7 }));
    // Numbers that agree in many of their bits.
    const nodeOf = (n: number): number => 1 + (n % 1_000) * 4_096 + (n % 3 === 0 ? 2 ** 31 : 0);
    for (const [n, person] of hashes.entries()) people.set(person, nodeOf(n));
    const dropped = new Set([nodeOf(0), nodeOf(1), nodeOf(5), 123]);
    people.drop(dropped);
    for (const [n, person] of hashes.entries()) {
      assert.equal(people.get(person), dropped.has(nodeOf(n)) ? undefined : nodeOf(n));
    }
    people.set(hashes[0] as KeyHash, 99);
    assert.equal(people.get(hashes[0] as KeyHash), 99);
  });

  test('are not known by a node that takes more than 32 bits', () => {
    const people = new IdentityCache();
    people.set(ADA, 2 ** 32 - 1);
    assert.equal(people.get(ADA), 2 ** 32 - 1);
    people.set(ADA, 2 ** 32 + 5);
    assert.equal(people.get(ADA), undefined);
    people.drop(new Set([5]));
    people.set(ADA, 6);
    assert.equal(people.get(ADA), 6);
  });

  test('stay known while there come to be more of them', () => {
    const people = new IdentityCache();
    // As even as hashes are: these fill all slots alike.
    const hashes = Array.from({ length: 100_000 }, (_none, n) => ({ hash: n, rest: Math.imul(n, 0x9e3779b1) >>> 0 }));
    for (const [n, person] of hashes.entries()) people.set(person, n + 1);
    const found = hashes.map((person) => people.get(person));
    for (const [n, node] of found.entries()) assert.ok(node === undefined || node === n + 1);
    assert.ok(found.filter((node) => node !== undefined).length > 95_000);
    people.drop(new Set(hashes.keys()));
    assert.deepEqual([people.get(ADA), people.get(hashes[99_999] as KeyHash)], [undefined, 100_000]);
    people.clear();
    assert.equal(people.get(hashes[99_999] as KeyHash), undefined);
  });

  test('make room for newer ones where there is no other place, and are then unknown', () => {
    const people = new IdentityCache();
    const hashes = Array.from({ length: 9 }, (_none, hash) => ({ hash, rest: 77 }));
    for (const [n, person] of hashes.entries()) people.set(person, n + 1);
    const found = hashes.map((person) => people.get(person));
    assert.equal(found.at(-1), hashes.length);
    for (const [n, node] of found.entries()) assert.ok(node === undefined || node === n + 1);
    assert.equal(found.filter((node) => node !== undefined).length, 4);
  });
});
