/** The writer's memory of who is known: right about everybody it still knows, and about nobody else. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { PeopleByMark } from '../../src/stored/people-by-mark.ts';

const A = { a: 5, b: 6, c: 7 };

suite('Known people', () => {
  test('are known by tenant and whole mark, and by nothing less', () => {
    const people = new PeopleByMark();
    people.set(1, A, 10);
    people.set(2, A, 20);
    assert.equal(people.get(1, A), 10);
    assert.equal(people.get(2, A), 20);
    for (const other of [
      { ...A, a: 6 },
      { ...A, b: 7 },
      { ...A, c: 8 },
    ])
      assert.equal(people.get(1, other), undefined);
    assert.equal(people.get(3, A), undefined);
    assert.equal(people.get(0, { a: 0, b: 0, c: 0 }), undefined);
  });

  test('are moved by a new node, and gone when all is forgotten', () => {
    const people = new PeopleByMark();
    people.set(1, A, 10);
    people.set(1, A, 11);
    assert.equal(people.get(1, A), 11);
    people.clear();
    assert.equal(people.get(1, A), undefined);
  });

  test('are dropped by node, under all their marks, and others stay', () => {
    const people = new PeopleByMark();
    const marks = Array.from({ length: 3_000 }, (_none, n) => ({ a: n * 7, b: n, c: 1 }));
    // Numbers that agree in many of their bits, and some beyond 32 bits.
    const nodeOf = (n: number): number => 1 + (n % 1_000) * 4_096 + (n % 3 === 0 ? 2 ** 40 : 0);
    for (const [n, mark] of marks.entries()) people.set(1, mark, nodeOf(n));
    const dropped = new Set([nodeOf(0), nodeOf(1), nodeOf(5), 123]);
    people.drop(dropped);
    for (const [n, mark] of marks.entries()) {
      assert.equal(people.get(1, mark), dropped.has(nodeOf(n)) ? undefined : nodeOf(n));
    }
    people.set(1, marks[0] as (typeof marks)[0], 99);
    assert.equal(people.get(1, marks[0] as (typeof marks)[0]), 99);
  });

  test('stay known while there come to be more of them', () => {
    const people = new PeopleByMark();
    // Marks are hashes: these fill all slots alike.
    const marks = Array.from({ length: 100_000 }, (_none, n) => ({ a: Math.imul(n, 0x9e3779b1), b: n, c: 1 }));
    for (const [n, mark] of marks.entries()) people.set(1 + (n % 2), mark, n + 1);
    const found = marks.map((mark, n) => people.get(1 + (n % 2), mark));
    for (const [n, node] of found.entries()) assert.ok(node === undefined || node === n + 1);
    assert.ok(found.filter((node) => node !== undefined).length > 95_000);
    people.drop(new Set(marks.keys()));
    assert.deepEqual([people.get(1, A), people.get(2, marks[99_999] as typeof A)], [undefined, 100_000]);
    people.clear();
    assert.equal(people.get(2, marks[99_999] as typeof A), undefined);
  });

  test('make room for newer ones where there is no other place, and are then unknown', () => {
    const people = new PeopleByMark();
    const marks = Array.from({ length: 9 }, (_none, b) => ({ a: 77, b, c: 1 }));
    for (const [n, mark] of marks.entries()) people.set(1, mark, n + 1);
    const found = marks.map((mark) => people.get(1, mark));
    assert.equal(found.at(-1), marks.length);
    for (const [n, node] of found.entries()) assert.ok(node === undefined || node === n + 1);
    assert.equal(found.filter((node) => node !== undefined).length, 4);
  });
});
