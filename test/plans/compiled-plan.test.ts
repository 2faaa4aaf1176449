/** What a plan finds in users: each keyword that is promised, by an event that fits and one that does not. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { CompiledPlan, checkUser, countedPath, VIOLATIONS_PER_USER_MAX } from '../../src/plans/compiled-plan.ts';
import { type Plan, parsePlan } from '../../src/plans/plan.ts';
import { SCHEMA_KEYWORDS } from '../../src/plans/schema.ts';

function compiled(plan: object): CompiledPlan {
  const text = JSON.stringify(plan);
  const reading = parsePlan(text);
  assert.ok(reading.ok, JSON.stringify(reading));
  return new CompiledPlan(reading.plan, { id: 'tested', version: 1, text });
}

function planned(schema: object, mode = 'enforce'): CompiledPlan {
  return compiled({ events: { e: { mode, schema } } });
}

/** `path message` of each. */
function found(plan: CompiledPlan, properties: object): string[] {
  const user = { identifiers: { user_id: 'u_1' }, events: [{ event_name: 'e', ...properties }] };
  return checkUser(plan, user).map(({ path, message }) => `${path} ${message}`);
}

/** For a property `a` with this schema: a value that fits, one that does not, and what is said of it. */
const OF_A_PROPERTY: readonly [keyword: string, schema: object, good: unknown, bad: unknown, said: string][] = [
  ['type', { type: 'string' }, 'x', 1, 'events[0].a must be a string'],
  ['type', { type: ['integer', 'null'] }, null, 1.5, 'events[0].a must be a whole number or null'],
  ['enum', { enum: ['red', 'green'] }, 'red', 'blue', 'events[0].a must be one of "red", "green"'],
  ['enum', { enum: [0, '{"b":1}', null] }, -0, { b: 1 }, 'events[0].a must be one of 0, "{\\"b\\":1}", null'],
  ['enum', { enum: [[1, { c: 2, b: 1 }]] }, [1, { b: 1, c: 2 }], [1], 'events[0].a must be one of [1,{"c":2,"b":1}]'],
  ['enum', { enum: [{ b: 1 }] }, { b: 1 }, { toString: 1 }, 'events[0].a must be one of {"b":1}'],
  ['const', { const: { b: 1 } }, { b: 1 }, { b: 2 }, 'events[0].a must be {"b":1}'],
  ['const', { const: { b: 1 } }, { b: 1 }, { valueOf: 1 }, 'events[0].a must be {"b":1}'],
  [
    'const',
    { const: { constructor: { b: 1 } } },
    { constructor: { b: 1 } },
    {},
    'events[0].a must be {"constructor":{"b":1}}',
  ],
  ['const', { const: null }, null, false, 'events[0].a must be null'],
  ['const', { const: false }, false, 0, 'events[0].a must be false'],
  ['minimum', { minimum: 1 }, 1, 0, 'events[0].a must be at least 1'],
  ['maximum', { maximum: 1 }, 1, 2, 'events[0].a must be at most 1'],
  ['exclusiveMinimum', { exclusiveMinimum: 1 }, 2, 1, 'events[0].a must be above 1'],
  ['exclusiveMaximum', { exclusiveMaximum: 1 }, 0, 1, 'events[0].a must be below 1'],
  ['multipleOf', { multipleOf: 0.5 }, 1.5, 1.2, 'events[0].a must be a multiple of 0.5'],
  ['minLength', { minLength: 2 }, '😀a', '😀', 'events[0].a must have at least 2 characters'],
  ['maxLength', { maxLength: 1 }, '😀', 'ab', 'events[0].a must have at most 1 character'],
  ['pattern', { pattern: '^[A-Z]{3}$' }, 'EUR', 'eur', 'events[0].a must match the pattern ^[A-Z]{3}$'],
  ['format', { format: 'date' }, '2028-02-29', '2027-02-29', 'events[0].a must be a valid date'],
  ['format', { format: 'date-time' }, '2027-02-01T10:00:00Z', '2027-02-01', 'events[0].a must be a valid date-time'],
  ['format', { format: 'email' }, 'a@b.example', 'a b@c', 'events[0].a must be a valid email'],
  ['format', { format: 'uri' }, 'https://a.example/', 'a.example', 'events[0].a must be a valid uri'],
  ['format', { format: 'uuid' }, '0190a6f0-0000-7000-8000-000000000000', 'x', 'events[0].a must be a valid uuid'],
  ['items', { items: { type: 'number' } }, [1, 2], [1, 'x'], 'events[0].a[1] must be a number'],
  ['prefixItems', { prefixItems: [{ type: 'number' }] }, [1, 'x'], ['x'], 'events[0].a[0] must be a number'],
  [
    ...(['contains', { contains: { const: 1 } }, [0, 1], [0]] as const),
    'events[0].a must have at least 1 of the items that the plan asks for (contains)',
  ],
  [
    ...(['minContains', { contains: { const: 1 }, minContains: 2 }, [1, 1], [1]] as const),
    'events[0].a must have at least 2 of the items that the plan asks for (contains)',
  ],
  [
    ...(['maxContains', { contains: { const: 1 }, maxContains: 1 }, [1], [1, 1]] as const),
    'events[0].a must have at least 1 and at most 1 of the items that the plan asks for (contains)',
  ],
  ['minItems', { minItems: 1 }, [1], [], 'events[0].a must have at least 1 item'],
  ['maxItems', { maxItems: 1 }, [1], [1, 2], 'events[0].a must have at most 1 item'],
  [
    ...([
      'uniqueItems',
      { uniqueItems: true },
      [
        { b: 1, c: 2 },
        { b: 2, c: 1 },
      ],
    ] as const),
    ...([
      [
        { b: 1, c: 2 },
        { c: 2, b: 1 },
      ],
      'events[0].a must not have the same item twice',
    ] as const),
  ],
  [
    ...(['uniqueItems', { uniqueItems: true }, [{}, [], { b: 1 }, [['b', 1]]], [[], {}, []]] as const),
    'events[0].a must not have the same item twice',
  ],
  ['properties', { properties: { b: { type: 'string' } } }, { b: 'x' }, { b: 1 }, 'events[0].a.b must be a string'],
  ['required', { required: ['b'] }, { b: 1 }, {}, 'events[0].a.b is required'],
  ['required', { required: ['toString'] }, { toString: 1 }, {}, 'events[0].a.toString is required'],
  [
    ...(['additionalProperties', { properties: { b: true }, additionalProperties: false }, { b: 1 }] as const),
    ...([{ 'c d': 1 }, 'events[0].a["c d"] is not in the tracking plan'] as const),
  ],
  [
    ...(['patternProperties', { patternProperties: { '^n_': { type: 'number' } } }, { n_a: 1, b: 'x' }] as const),
    ...([{ n_a: 'x' }, 'events[0].a.n_a must be a number'] as const),
  ],
  [
    ...(['propertyNames', { propertyNames: { maxLength: 2 } }, { ab: 1 }, { abc: 1 }] as const),
    'events[0].a.abc has a name that is not allowed',
  ],
  ['minProperties', { minProperties: 1 }, { b: 1 }, {}, 'events[0].a must have at least 1 property'],
  ['maxProperties', { maxProperties: 0 }, {}, { b: 1 }, 'events[0].a must have at most 0 properties'],
  [
    ...(['dependentRequired', { dependentRequired: { b: ['c'] } }, { b: 1, c: 1 }, { b: 1 }] as const),
    'events[0].a.c is required if b is present',
  ],
  [
    ...(['dependentSchemas', { dependentSchemas: { b: { required: ['c'] } } }, {}, { b: 1 }] as const),
    'events[0].a.c is required',
  ],
  ['allOf', { allOf: [{ minimum: 1 }, { maximum: 3 }] }, 2, 4, 'events[0].a must be at most 3'],
  [
    ...(['anyOf', { anyOf: [{ type: 'string' }, { minimum: 3 }] }, 3, 2] as const),
    'events[0].a matches none of the alternatives (anyOf)',
  ],
  [
    ...(['oneOf', { oneOf: [{ minimum: 1 }, { minimum: 3 }] }, 2, 4] as const),
    'events[0].a matches more than one of the alternatives (oneOf)',
  ],
  ['not', { not: { type: 'string' } }, 1, 'x', 'events[0].a matches what is excluded (not)'],
  [
    // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
    ...(['if', { if: { type: 'string' }, then: { minLength: 2 }, else: { minimum: 2 } }, 2, 1] as const),
    'events[0].a must be at least 2',
  ],
  // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
  ['then', { if: { type: 'string' }, then: { minLength: 2 } }, 1, 'x', 'events[0].a must have at least 2 characters'],
  ['else', { if: { type: 'string' }, else: { minimum: 2 } }, 'x', 1, 'events[0].a must be at least 2'],
];

/** They say something about a property and check nothing, or are tested below. */
const NOT_CHECKS = ['title', 'description', '$comment', 'examples', 'default', 'deprecated', 'x-personal', '$schema'];
const TESTED_BELOW = ['$defs', '$ref'];

suite('Checking users with a plan', () => {
  for (const [keyword, schema, good, bad, said] of OF_A_PROPERTY) {
    test(`${keyword}: ${said}`, () => {
      const plan = planned({ properties: { a: schema } });
      assert.deepEqual(found(plan, { a: good }), []);
      assert.deepEqual(found(plan, { a: bad }), [said]);
    });
  }

  test('every keyword that may be used is tested here', () => {
    const tested = new Set([...OF_A_PROPERTY.map(([keyword]) => keyword), ...NOT_CHECKS, ...TESTED_BELOW]);
    assert.deepEqual([...tested].toSorted(), SCHEMA_KEYWORDS.toSorted());
  });

  test('several patterns of one plan are several patterns', () => {
    const plan = compiled({
      events: {
        e: { mode: 'enforce', schema: { properties: { a: { pattern: '^a$' }, b: { pattern: '^b$' } } } },
        f: {
          mode: 'enforce',
          schema: { properties: { c: { pattern: '^c$' } }, patternProperties: { '^d': { const: 1 } } },
        },
      },
    });
    const check = (event: object): string[] => checkUser(plan, { events: [event] }).map(({ path }) => path);
    assert.deepEqual(check({ event_name: 'e', a: 'a', b: 'b' }), []);
    assert.deepEqual(check({ event_name: 'e', a: 'b', b: 'a' }), ['events[0].a', 'events[0].b']);
    assert.deepEqual(check({ event_name: 'f', c: 'c', d: 1, a: 2 }), []);
    assert.deepEqual(check({ event_name: 'f', c: 'a', d: 2 }), ['events[0].c', 'events[0].d']);
  });

  test('definitions are shared by references', () => {
    const plan = planned({
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      $defs: { money: { type: 'number', minimum: 0 } },
      properties: { total: { $ref: '#/$defs/money' }, tax: { $ref: '#/$defs/money' } },
    });
    assert.deepEqual(found(plan, { total: 1, tax: 1 }), []);
    assert.deepEqual(found(plan, { total: -1, tax: 'x' }), [
      'events[0].total must be at least 0',
      'events[0].tax must be a number',
    ]);
  });

  test('all that is wrong with a user is found at once, in its order, and no more than a page of it', () => {
    const plan = planned({ properties: { a: { items: { type: 'number' } } }, required: ['b', 'c'] });
    assert.deepEqual(found(plan, { a: ['x'] }).toSorted(), [
      'events[0].a[0] must be a number',
      'events[0].b is required',
      'events[0].c is required',
    ]);
    assert.equal(found(plan, { a: Array.from({ length: 100 }, () => 'x') }).length, VIOLATIONS_PER_USER_MAX);
  });

  test('of large properties only the first violation is found, so that a client cannot make a check slow', () => {
    const plan = planned({ properties: { a: { items: { anyOf: [{ type: 'number' }, { type: 'boolean' }] } } } });
    assert.equal(found(plan, { a: Array.from({ length: 200_000 }, () => 'x') }).length, 1);
  });

  test('decimal multiples are compared as people write them', () => {
    const plan = planned({ properties: { price: { multipleOf: 0.01 } } });
    assert.deepEqual(found(plan, { price: 19.99 }), []);
    assert.equal(found(plan, { price: 19.999 }).length, 1);
  });

  test('the name, time and id of an event are no properties; revenue is one, unless it is null', () => {
    const plan = planned({ properties: { total: true }, additionalProperties: false });
    const standard = { timestamp: '2027-01-01', $event_id: 'e_1' };
    assert.deepEqual(found(plan, { ...standard, total: 1, revenue: null, event_value: null }), []);
    assert.deepEqual(found(plan, { ...standard, revenue: 2 }), ['events[0].revenue is not in the tracking plan']);
    assert.deepEqual(found(planned({ required: ['revenue'] }), { revenue: null }), ['events[0].revenue is required']);
  });

  test('user properties and profile fields are checked by schemas of their own', () => {
    const plan = compiled({
      user_properties: {
        mode: 'warn',
        schema: { properties: { plan: { enum: ['free', 'pro'] } }, required: ['plan'] },
      },
      profile_fields: { mode: 'enforce', schema: { additionalProperties: false } },
    });
    const identifiers = { user_id: 'u_1', email: 'a@b.example' };
    assert.deepEqual(checkUser(plan, { identifiers, user_properties: { plan: 'pro' } }), []);
    assert.deepEqual(
      checkUser(plan, { identifiers: { ...identifiers, city: 'Oslo' }, user_properties: { plan: 'x' } }),
      [
        { path: 'identifiers.city', message: 'is not in the tracking plan', event_name: null, mode: 'enforce' },
        { path: 'user_properties.plan', message: 'must be one of "free", "pro"', event_name: null, mode: 'warn' },
      ],
    );
    const paths = (user: object): string[] => checkUser(plan, user).map(({ path }) => path);
    assert.deepEqual(paths({ identifiers, user_properties: { other: 1 } }), ['user_properties.plan']);
    for (const none of [undefined, null, {}]) assert.deepEqual(paths({ identifiers, user_properties: none }), []);
  });

  test('each event is checked in the mode of its name, and unplanned ones in theirs', () => {
    const schema = { required: ['a'] };
    const events = ['off', 'warn', 'enforce', 'unplanned'].map((event_name) => ({ event_name }));
    const modes = (unplanned_events: Plan['unplanned_events'], only?: 'warn' | 'enforce'): string[] => {
      const plan = compiled({
        unplanned_events,
        events: { off: { mode: 'off', schema }, warn: { mode: 'warn', schema }, enforce: { mode: 'enforce', schema } },
      });
      return checkUser(plan, { events }, only).map(({ path, mode }) => `${path} ${mode}`);
    };
    assert.deepEqual(modes('allow'), ['events[1].a warn', 'events[2].a enforce']);
    assert.deepEqual(modes('warn', 'warn'), ['events[1].a warn', 'events[3].event_name warn']);
    assert.deepEqual(modes('reject', 'enforce'), ['events[2].a enforce', 'events[3].event_name enforce']);
  });

  test('events and properties with the names of object methods are data like any other', () => {
    const plan = compiled({
      unplanned_events: 'reject',
      events: { toString: { mode: 'enforce', schema: { required: ['valueOf'] } } },
    });
    const check = (events: string): string[] =>
      checkUser(plan, JSON.parse(`{"events":${events}}`)).map(({ path }) => path);
    assert.deepEqual(check('[{"event_name":"toString","valueOf":1,"__proto__":{"a":1}}]'), []);
    assert.deepEqual(check('[{"event_name":"toString"},{"event_name":"constructor"}]'), [
      'events[0].valueOf',
      'events[1].event_name',
    ]);
  });

  test('what clients sent is in no message, and long names are cut', () => {
    const plan = planned({ additionalProperties: false });
    const [line = ''] = found(plan, { ['x'.repeat(5_000)]: 'secret' });
    assert.ok(line.length < 400);
    assert.doesNotMatch(line, /secret/);
  });

  test('an error in the code of a schema is a violation of the users it is about, and no others', () => {
    const schema = { $ref: '#/$defs/missing' };
    const plan = new CompiledPlan(
      { unplanned_events: 'allow', events: { e: { mode: 'enforce', schema } } } as unknown as Plan,
      { id: 'tested', version: 1, text: '' },
    );
    const message = 'cannot be checked, because of a bug in Sluice (Error)';
    assert.deepEqual(checkUser(plan, { events: [{ event_name: 'other' }, { event_name: 'e', a: 'secret' }] }), [
      { path: 'events[1]', message, event_name: 'e', mode: 'enforce' },
    ]);
    assert.deepEqual(checkUser(plan, { events: [{ event_name: 'other' }] }), []);
  });

  test('a user that is no user has no violations', () => {
    const plan = planned({ required: ['a'] });
    for (const user of [null, 'x', [], {}, { events: 'x' }, { events: [null, { event_name: 1 }] }]) {
      assert.deepEqual(checkUser(plan, user), []);
    }
  });

  test('unique items are found in linear time', () => {
    const plan = planned({ properties: { a: { uniqueItems: true } } });
    assert.deepEqual(found(plan, { a: Array.from({ length: 20_000 }, (_, id) => ({ id })) }), []);
  });

  test('violations are counted without the indexes of lists', () => {
    assert.equal(countedPath('events[3].items[7].price'), 'items[].price');
    assert.equal(countedPath('user_properties.plan'), 'user_properties.plan');
    assert.equal(countedPath('events[3]["a b"]'), '["a b"]');
  });
});
