/** Rules 11 to 13: last write wins per name, tombstones, profile fields, provenance. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { compareOrigins } from '../../src/identity/origin.ts';
import {
  type Group,
  applyUpdates,
  propertyUpdateOf,
  type PropertyValue,
  type Values,
  viewOf,
} from '../../src/identity/property-updates.ts';
import { LIMITS, type Origin } from '../../src/model.ts';
import { originAt } from './histories.ts';

function applyUpdate(groups: readonly Group[], origin: Origin, fields: Values, properties: Values): readonly Group[] {
  return applyUpdates(groups, [{ origin, fields, properties }]);
}

interface Said {
  readonly origin: Origin;
  readonly fields: Values;
  readonly properties: Values;
}

const names = fc.constantFrom('plan', 'city', '__proto__', 'constructor', 'toString', '1');
const values = (value: fc.Arbitrary<unknown>): fc.Arbitrary<Values> =>
  fc.array(fc.tuple(names, value), { maxLength: 4 }).map((pairs): Values => Object.fromEntries(pairs));
const value = fc.constantFrom<unknown>('a', 0, false, '', [null], { __proto__: null, b: null });

const sayings: fc.Arbitrary<Said[]> = fc
  .array(fc.tuple(values(fc.oneof(value, fc.constant(null))), values(fc.oneof(value, fc.constant(null)))), {
    maxLength: 12,
    size: 'max',
  })
  .map((pairs) => pairs.map(([fields, properties], index) => ({ origin: originAt(index), fields, properties })));

function naive(said: readonly Said[]): { fields: Map<string, PropertyValue>; properties: Map<string, PropertyValue> } {
  const fields = new Map<string, PropertyValue>();
  const properties = new Map<string, PropertyValue>();
  for (const { origin, ...statement } of said.toSorted((a, b) => compareOrigins(a.origin, b.origin))) {
    for (const [name, reported] of Object.entries(statement.fields)) {
      if (reported !== null) fields.set(name, { value: reported, origin });
    }
    for (const [name, reported] of Object.entries(statement.properties)) {
      if (reported === null) properties.delete(name);
      else properties.set(name, { value: reported, origin });
    }
  }
  return { fields, properties };
}

function known(said: readonly Said[]): readonly Group[] {
  return said.reduce<readonly Group[]>((groups, { origin, fields, properties }) => {
    return applyUpdate(groups, origin, fields, properties);
  }, []);
}

const OLD = originAt(0);
const NEW = originAt(9);

suite('Property updates', () => {
  test('have the result of a naive replay of the whole history, in any order, over any nodes (rules 11 and 13)', () => {
    const cases = sayings.chain((said) =>
      fc.tuple(
        fc.constant(said),
        fc.shuffledSubarray(said, { minLength: said.length }),
        fc.array(fc.nat(2), { minLength: said.length, maxLength: said.length }),
      ),
    );
    fc.assert(
      fc.property(cases, ([said, shuffled, nodes]) => {
        const parts = [0, 1, 2].map((node) => known(shuffled.filter((_, index) => nodes[index] === node)));
        assert.deepEqual(viewOf(parts), naive(said));
        assert.deepEqual([...viewOf(parts.toReversed()).properties.keys()], [...viewOf(parts).properties.keys()]);
      }),
      { numRuns: 500 },
    );
  });

  test('are kept as groups, newest first, each name once, none empty, the same in any order', () => {
    const cases = sayings.chain((said) =>
      fc.tuple(fc.constant(said), fc.shuffledSubarray(said, { minLength: said.length })),
    );
    fc.assert(
      fc.property(cases, ([said, shuffled]) => {
        const groups = known(shuffled);
        assert.deepEqual(groups, known(said));
        for (const kind of [3, 4] as const) {
          const all = groups.flatMap((group) => Object.keys(group[kind]));
          assert.equal(new Set(all).size, all.length);
        }
        const times = groups.map(([receivedAt, traceId, userIndex]) => ({ receivedAt, traceId, userIndex }));
        assert.deepEqual(times.toSorted(compareOrigins).toReversed(), times);
        assert.ok(groups.every((group) => Object.keys(group[3]).length + Object.keys(group[4]).length > 0));
      }),
      { numRuns: 500 },
    );
  });

  test('applied all at once have the same result as one by one', () => {
    fc.assert(
      fc.property(sayings, fc.nat(12), (said, cut) => {
        assert.deepEqual(applyUpdates(known(said.slice(0, cut)), said.slice(cut)), known(said));
        assert.deepEqual(applyUpdates([], said.toReversed()), known(said));
      }),
      { numRuns: 500 },
    );
  });

  test('with more names than a person may have keep the newest', () => {
    const room = LIMITS.namesPerNodeMax;
    const said = Array.from({ length: room + 5 }, (_, index) => {
      return { origin: originAt(index), fields: { [`f${index}`]: 'x' }, properties: { [`p${index}`]: index } };
    });
    const { fields, properties } = viewOf([applyUpdates([], said)]);
    assert.deepEqual([fields.size, properties.size], [room, room]);
    assert.equal(properties.has('p4'), false);
    assert.equal(properties.get('p5')?.value, 5);
    const later = { origin: originAt(room + 5), fields: {}, properties: { p5: 'again', p6: null } };
    assert.equal(viewOf([applyUpdates(applyUpdates([], said), [later])]).properties.get('p5')?.value, 'again');
  });

  test('that delete displace no value, however many there are, and what was deleted stays deleted', () => {
    /** A millisecond apart. */
    const at = (n: number): Origin => originAt(6 * n);
    const valuesIn = (groups: readonly Group[]): Values =>
      Object.fromEntries([...viewOf([groups]).properties].map(([name, { value }]) => [name, value]));
    const numbered = (start: string, count: number, value: unknown): Values =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [start + index, value]));
    const room = LIMITS.namesPerNodeMax;
    const full = numbered('kept', room, 1);
    const updates = [
      { origin: at(0), fields: {}, properties: full },
      { origin: at(1), fields: {}, properties: numbered('temporary', room / 2, 1) },
      { origin: at(2), fields: {}, properties: numbered('temporary', room, null) },
    ];
    assert.deepEqual(valuesIn(applyUpdates([], updates)), full);
    const oneByOne = updates.reduce<readonly Group[]>((before, one) => applyUpdates(before, [one]), []);
    assert.deepEqual(valuesIn(oneByOne), numbered('kept', room / 2, 1));

    let groups = applyUpdate([], at(0), {}, { plan: 'pro' });
    for (let n = 0; n <= LIMITS.deletionsPerNodeMax / room; n++) {
      groups = applyUpdate(groups, at(2 * n + 1), {}, numbered(`${n}-`, room - 1, n));
      groups = applyUpdate(groups, at(2 * n + 2), {}, numbered(`${n}-`, room, null));
    }
    assert.deepEqual(valuesIn(groups), { plan: 'pro' });
    const deletions = groups.flatMap((group) => Object.values(group[4])).filter((value) => value === null);
    assert.equal(deletions.length, LIMITS.deletionsPerNodeMax);
    assert.deepEqual(applyUpdate(groups, at(3), {}, { '9-0': 'late' }), groups);
  });

  test('applied again change nothing, and return the same array', () => {
    fc.assert(
      fc.property(sayings, (said) => {
        const groups = known(said);
        for (const { origin, fields, properties } of said) {
          assert.equal(applyUpdate(groups, origin, fields, properties), groups);
        }
      }),
    );
  });

  test('that replace all earlier values leave one group', () => {
    const groups = applyUpdate(applyUpdate([], OLD, {}, { plan: 'free' }), NEW, {}, { plan: 'pro', city: 'Rome' });
    assert.deepEqual(groups, [[NEW.receivedAt, NEW.traceId, NEW.userIndex, {}, { plan: 'pro', city: 'Rome' }]]);
  });

  test('that delete keep a tombstone, so that an older value does not come back (rule 11)', () => {
    const groups = applyUpdate(applyUpdate([], NEW, {}, { plan: null }), OLD, {}, { plan: 'free', age: 3 });
    assert.deepEqual([...viewOf([groups]).properties.keys()], ['age']);
    assert.deepEqual(groups[0]?.[4], { plan: null });
  });

  test('replace objects and arrays as a whole (rule 11)', () => {
    const groups = applyUpdate(
      applyUpdate([], OLD, {}, { address: { city: 'Rome', zip: '1' } }),
      NEW,
      {},
      { address: { city: 'Bonn' } },
    );
    assert.deepEqual(viewOf([groups]).properties.get('address')?.value, { city: 'Bonn' });
  });

  test('keep profile fields apart from properties of the same name (rule 12)', () => {
    const { fields, properties } = viewOf([applyUpdate([], OLD, { city: 'Rome' }, { city: 'Bonn' })]);
    assert.deepEqual([fields.get('city')?.value, properties.get('city')?.value], ['Rome', 'Bonn']);
  });

  test('treat every identifier except the four as a profile field, and null as absent (rule 12)', () => {
    const identifiers: unknown = JSON.parse(
      '{"user_id":"u","email":"e","phone_number":"p","anon_id":"a","first_name":"Ada","city":null,"__proto__":"x"}',
    );
    const { fields, properties } = propertyUpdateOf(identifiers as Values, null);
    assert.deepEqual(Object.entries(fields), [
      ['first_name', 'Ada'],
      ['__proto__', 'x'],
    ]);
    assert.deepEqual(properties, {});
    const given = { plan: null };
    assert.equal(propertyUpdateOf({ user_id: 'u' }, given).properties, given);
  });
});
