/** Plan files: what is read, and what is refused, with the path of each mistake. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { checkUser, compileStored } from '../../src/plans/compiled-plan.ts';
import { personalNames } from '../../src/plans/personal.ts';
import { describeMistakes, eventOf, type Plan, parsePlan } from '../../src/plans/plan.ts';

const read = (plan: unknown): Plan => {
  const reading = parsePlan(JSON.stringify(plan));
  assert.ok(reading.ok, JSON.stringify(reading));
  return reading.plan;
};

function mistakesIn(text: string): string {
  const reading = parsePlan(text);
  assert.ok(!reading.ok, 'was read');
  return describeMistakes(reading.mistakes);
}

const inSchema = (schema: unknown): string => JSON.stringify({ events: { e: { mode: 'enforce', schema } } });
const inProperty = (schema: unknown): string => inSchema({ properties: { a: schema } });

/** Ten definitions, each of which refers to the next one ten times. */
function exploding(): object {
  const $defs: Record<string, object> = { d10: { type: 'string' } };
  for (let level = 9; level >= 0; level--) {
    $defs[`d${level}`] = { allOf: Array.from({ length: 10 }, () => ({ $ref: `#/$defs/d${level + 1}` })) };
  }
  return { $defs, $ref: '#/$defs/d0' };
}

function nested(levels: number): object {
  let schema: object = { type: 'string' };
  for (let level = 0; level < levels; level++) schema = { items: schema };
  return schema;
}

const REFUSED: readonly [sentence: string, text: string, said: RegExp][] = [
  ['text that is no JSON', '{"events":', /^the plan is not valid JSON: /],
  ['a list', '[]', /^the plan must be a JSON object$/],
  ['more than a megabyte', JSON.stringify({ events: {}, x: 'x'.repeat(1_100_000) }), /^the plan is larger than 1 MB$/],
  ['an unknown member', '{"event":{}}', /^event is unknown, expected /],
  ['a version that is no number', '{"version":"2"}', /^version must be the number/],
  [
    'an unknown mode for unplanned events',
    '{"unplanned_events":"drop"}',
    /^unplanned_events must be one of allow, warn, reject$/,
  ],
  ['events in a list', '{"events":[]}', /^events must be an object/],
  ['an unknown mode', '{"events":{"e":{"mode":"block"}}}', /^events\.e\.mode must be one of off, warn, enforce$/],
  ['a blank event name', '{"events":{" ":{"schema":{}}}}', /^events\[" "\] name must be 1 to/],
  [
    'a schema beside the event',
    '{"events":{"e":{"type":"object"}}}',
    /^events\.e\.type is unknown, expected mode, description, schema$/,
  ],
  ['a schema that is a string', inSchema('x'), /^events\.e\.schema must be an object: a JSON Schema$/],
  ['a misspelt keyword', inProperty({ minLenght: 1 }), /^events\.e\.schema\.properties\.a\.minLenght is not a keyword/],
  [
    'a type that is none',
    inProperty({ type: 'text' }),
    /^events\.e\.schema\.properties\.a\.type must be one or several of string,/,
  ],
  ['a minimum that is no number', inProperty({ minimum: '1' }), /a\.minimum must be a number$/],
  ['a negative length', inProperty({ maxLength: -1 }), /a\.maxLength must be a whole number/],
  [
    'a list of names with the same twice',
    inSchema({ required: ['a', 'a'] }),
    /schema\.required must be a list of different/,
  ],
  ['an empty enum', inProperty({ enum: [] }), /a\.enum must be a list/],
  [
    'an enum with too many values',
    inProperty({ enum: Array.from({ length: 1_001 }, (_, n) => n) }),
    /a\.enum must be a list/,
  ],
  [
    'an unknown format',
    inProperty({ format: 'hostname' }),
    /a\.format must be one of date, date-time, email, uri, uuid; for/,
  ],
  [
    'a pattern that is none',
    inProperty({ pattern: '(' }),
    /a\.pattern is not a regular expression: .*Unterminated group/,
  ],
  [
    'a pattern with look-ahead',
    inProperty({ pattern: '(?=x)' }),
    /a\.pattern uses what RE2 does not have, such as look-around/,
  ],
  ['a pattern that is too large', inProperty({ pattern: 'a{1000}' }), /a\.pattern is too large/],
  [
    'a pattern of names that is none',
    inSchema({ patternProperties: { '[': {} } }),
    /patternProperties\["\["\] is not a regular expression/,
  ],
  [
    'a reference to another server',
    inProperty({ $ref: 'https://a.example/s.json' }),
    /a\.\$ref must be "#\/\$defs\/NAME"/,
  ],
  ['a reference to the whole schema', inProperty({ $ref: '#' }), /a\.\$ref must be "#\/\$defs\/NAME"/],
  [
    'a reference to what is not there',
    inProperty({ $ref: '#/$defs/x' }),
    /a\.\$ref refers to x, which is not in \$defs$/,
  ],
  [
    'a recursive schema',
    inSchema({ $defs: { t: { items: { $ref: '#/$defs/t' } } } }),
    /^events\.e\.schema \$defs\.t refers to itself/,
  ],
  [
    'references that multiply',
    inSchema(exploding()),
    /^events\.e\.schema has \d+ schemas with every \$ref written out/,
  ],
  ['deep nesting', inProperty(nested(30)), /is nested too deeply/],
  [
    'other dialects',
    inSchema({ $schema: 'http://json-schema.org/draft-07/schema#' }),
    /schema\.\$schema must be https/,
  ],
  [
    'the name __proto__',
    '{"events":{"e":{"schema":{"properties":{"__proto__":{}}}}}}',
    /properties\.__proto__ is a name/,
  ],
  [
    'a mark of personal data further in',
    inProperty({ properties: { b: { 'x-personal': true } } }),
    /a\.properties\.b\["x-personal"\] may only be/,
  ],
  ['a mark that is no boolean', inProperty({ 'x-personal': 'yes' }), /a\["x-personal"\] must be true or false$/],
  [
    'too many events',
    JSON.stringify({ events: Object.fromEntries(Array.from({ length: 2_001 }, (_, n) => [n, {}])) }),
    /^events must have at most/,
  ],
];

suite('Plan files', () => {
  test('a plan is read with its defaults', () => {
    assert.deepEqual(read({}), { unplanned_events: 'allow', events: {} });
    assert.deepEqual(read({ version: 3, events: { e: {} }, user_properties: { mode: 'off' } }), {
      version: 3,
      unplanned_events: 'allow',
      events: { e: { mode: 'warn', schema: {} } },
      user_properties: { mode: 'off', schema: {} },
    });
  });

  for (const [sentence, text, said] of REFUSED) {
    test(`refused: ${sentence}`, () => assert.match(mistakesIn(text), said));
  }

  test('several mistakes are named at once, and no more than twenty', () => {
    assert.equal(mistakesIn('{"a":1,"b":2}').split('\n').length, 2);
    const events = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`e${n}`, { mode: 'x' }]));
    assert.equal(mistakesIn(JSON.stringify({ events })).split('\n').length, 20);
  });

  test('annotations and extensions of others are kept', () => {
    const schema = {
      title: 'T',
      'x-owner': 'web',
      examples: [1],
      default: 1,
      deprecated: true,
      $comment: 'c',
      description: 'd',
    };
    assert.deepEqual(read({ events: { e: { mode: 'off', description: 'An event', schema } } }).events.e, {
      mode: 'off',
      description: 'An event',
      schema,
    });
  });

  test('the largest schema that is allowed compiles and checks', () => {
    const properties = Object.fromEntries(
      Array.from({ length: 998 }, (_, n) => [`p${n}`, { type: ['string', 'null'] }]),
    );
    const text = JSON.stringify({ events: { e: { mode: 'enforce', schema: { properties } } } });
    const plan = compileStored({ id: 'tested', version: 1, text });
    assert.equal(checkUser(plan, { events: [{ event_name: 'e', p997: 1 }] }).length, 1);
  });

  test('properties and fields are personal where the plan marks them', () => {
    const mark = (...names: string[]): object => ({
      schema: {
        properties: Object.fromEntries([['other', {}], ...names.map((name) => [name, { 'x-personal': true }])]),
      },
    });
    const plan = read({
      events: { e: mark('card', 'name') },
      user_properties: mark('income'),
      profile_fields: mark('city'),
    });
    assert.deepEqual(personalNames(eventOf(plan, 'e')), ['card', 'name']);
    for (const unplanned of [eventOf(plan, 'f'), eventOf(plan, 'toString'), eventOf(null, 'e')]) {
      assert.deepEqual(personalNames(unplanned), []);
    }
    assert.deepEqual(personalNames(plan.user_properties), ['income']);
    assert.deepEqual(personalNames(plan.profile_fields), ['city']);
  });
});
