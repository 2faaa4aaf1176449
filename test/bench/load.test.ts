/** What the benchmarks send, and how they see that a server is behind: both must be right before a figure can be. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { type Population, RequestMaker } from '../../bench/people-generator.ts';
import { lagSecondsOf } from '../../bench/lag.ts';

interface User {
  readonly identifiers: { readonly user_id?: string; readonly email?: string; readonly anon_id: string };
  readonly events: readonly { readonly $event_id?: string }[];
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/;
const MIXED: Population = {
  people: 1_000_000,
  order: { seed: 1, newShare: 0.1 },
  carries: 'everything',
  anonymousShare: 0.3,
  eventIds: true,
};

function usersOf(population: Population, sizes: readonly number[], requests: number): User[] {
  const maker = new RequestMaker(population, sizes, () => '');
  return Array.from({ length: requests }, () => {
    const { bytes, users } = maker.next(Date.now());
    const body = JSON.parse(bytes.toString()) as { users: User[] };
    assert.equal(body.users.length, users);
    return body.users;
  }).flat();
}

suite('the load of the benchmarks', () => {
  test('every event of a population with ids has an id of its own, in every run', () => {
    const ids = [1, 2].flatMap(() => usersOf(MIXED, [100], 100).map(({ events }) => events[0]?.$event_id ?? ''));
    assert.equal(new Set(ids).size, 20_000);
    assert.deepEqual(
      ids.filter((id) => !UUID.test(id)),
      [],
    );
    assert.ok(
      usersOf({ ...MIXED, eventIds: false }, [100], 1).every(({ events }) => !('$event_id' in (events[0] ?? {}))),
    );
  });

  test('requests have the given sizes in turn', () => {
    const maker = new RequestMaker(MIXED, [50, 1, 1], () => '');
    assert.deepEqual(
      Array.from({ length: 6 }, () => maker.next(0).users),
      [50, 1, 1, 50, 1, 1],
    );
  });

  test('the given shares of the users are new people and anonymous', () => {
    const users = usersOf(MIXED, [50, 1, 1, 1, 1], 2_000);
    const people = new Set(users.map(({ identifiers }) => identifiers.anon_id)).size / users.length;
    const anonymous = users.filter(({ identifiers }) => !('email' in identifiers)).length / users.length;
    assert.ok(people > 0.09 && people < 0.11, `${people} are new people`);
    assert.ok(anonymous > 0.28 && anonymous < 0.32, `${anonymous} are anonymous`);
  });

  test('the same population sends the same people in the same order', () => {
    const people = (): string[] => usersOf(MIXED, [50, 1], 100).map(({ identifiers }) => identifiers.anon_id);
    assert.deepEqual(people(), people());
  });
});

suite('the lag', () => {
  const history = [
    { at: 1_000, received: 100 },
    { at: 2_000, received: 300 },
    { at: 3_000, received: 300 },
    { at: 4_000, received: 500 },
  ];

  test('is the age of the oldest event that is pending', () => {
    assert.equal(lagSecondsOf(history, { at: 4_000, done: 300 }), 1);
    assert.equal(lagSecondsOf(history, { at: 4_000, done: 200 }), 2.5);
    assert.equal(lagSecondsOf(history, { at: 4_500, done: 100 }), 3.5);
  });

  test('is zero when nothing is pending', () => {
    assert.equal(lagSecondsOf(history, { at: 9_000, done: 500 }), 0);
  });

  test('counts from the first time it looked when events were pending before', () => {
    assert.equal(lagSecondsOf(history, { at: 4_000, done: 50 }), 3);
  });
});
