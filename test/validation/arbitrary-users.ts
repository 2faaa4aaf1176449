/**
 * Users for property tests: valid ones, then broken at random places by nothing, one or two mutations. Some mutations
 * put nasty values anywhere in the tree, others aim at one rule, so that every rule is hit often. What comes out has
 * been through `JSON.stringify` and `JSON.parse`, as real users have.
 */

import * as fc from 'fast-check';

type Members = Record<string, unknown>;

/** JSON text has it, JavaScript has not; put in place in the text. */
const HUGE_NUMBER = '@1e400@';

const LONG = 'x'.repeat(513);
const EMOJI_512 = '😀'.repeat(512);
const NUL = 'nul\0nul';
const LONE = 'lone\ud83d';

function nested(levels: number, inner: unknown = 1): unknown {
  let value = inner;
  for (let level = 0; level < levels; level++) value = level % 3 === 0 ? { a: value } : [0, value];
  return value;
}

const key = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('plan', 'currency', 'order_id', 'quantity', 'a b', '7', 'é', '$x') },
  { weight: 2, arbitrary: fc.constantFrom('__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf') },
  { weight: 1, arbitrary: fc.string({ maxLength: 4 }) },
);

const value: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('EUR', '', 'é', '😀', 0, -1.5, 2 ** 53, true, null) },
  { weight: 1, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 64 }).map((levels) => nested(levels)) },
);

/** Entries rather than objects, so that `__proto__` becomes a member like any other. */
const entries = (names: fc.Arbitrary<string>, values: fc.Arbitrary<unknown>): fc.Arbitrary<Members> =>
  fc.array(fc.tuple(names, values), { maxLength: 3 }).map((pairs) => membersOf(pairs));

function membersOf(pairs: Iterable<readonly [string, unknown]>): Members {
  const members: Members = {};
  for (const [name, member] of pairs) setOwn(members, name, member);
  return members;
}

function setOwn(object: object, name: string, member: unknown): void {
  Object.defineProperty(object, name, { value: member, enumerable: true, configurable: true, writable: true });
}

const identifiers = fc
  .tuple(
    fc.constantFrom('user_id', 'email', 'phone_number', 'anon_id'),
    fc.constantFrom('u_1', ' ada', 'é', 'x'.repeat(512), EMOJI_512),
    entries(
      fc.constantFrom('user_id', 'email', 'anon_id', 'first_name', 'city', '__proto__'),
      fc.constantFrom('', ' ', 'Ada', null),
    ),
  )
  .map(([name, text, others]) => membersOf([...Object.entries(others), [name, text]]));

const event = fc
  .tuple(
    fc.constantFrom('purchase', ' view', '購入', 'x'.repeat(512)),
    fc.constantFrom(undefined, null, '2026-11-15', '2026-11-15T10:20:30.123Z', '20261115T1020+01'),
    fc.constantFrom(undefined, null, 0, 12.5, 2 ** 64),
    fc.constantFrom(undefined, null, 'e-1', ' ', '😀'.repeat(255)),
    entries(key, value),
  )
  .map(([name, timestamp, amount, id, others]) =>
    membersOf([
      ...Object.entries(others),
      ['event_name', name],
      ['timestamp', timestamp],
      ['revenue', amount],
      ['event_value', amount],
      ['$event_id', id],
    ]),
  );

const validUser = fc
  .tuple(
    identifiers,
    fc.option(entries(key, value), { nil: null }),
    fc.array(event, { minLength: 1, maxLength: 3 }),
    entries(key, value),
  )
  .map(([identifiers, user_properties, events, others]) =>
    membersOf([
      ...Object.entries({ events, identifiers }),
      ...Object.entries(others),
      ['user_properties', user_properties],
    ]),
  );

type Mutation = (user: Members) => void;

const nasty: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom(null, true, 0, -0.5, HUGE_NUMBER, '', ' \t', '\u00a0\ufeff', LONG, EMOJI_512, `${EMOJI_512}x`),
  fc.constantFrom(NUL, LONE, '\udc00', '2026-02-30', [], {}, [null], ['x'], { event_name: 'e' }, { user_id: 'x' }),
  fc.integer({ min: 60, max: 70 }).map((levels) => nested(levels)),
);
const nastyKey = fc.constantFrom(
  '__proto__',
  'constructor',
  LONG,
  EMOJI_512,
  `${EMOJI_512}x`,
  NUL,
  LONE,
  '',
  'user_id',
);

function objectsIn(root: unknown): object[] {
  const found: object[] = [];
  const visit = (node: unknown): void => {
    if (typeof node !== 'object' || node === null) return;
    found.push(node);
    for (const child of Object.values(node)) visit(child);
  };
  visit(root);
  return found;
}

/** Replaces, removes or adds something anywhere. */
const anywhere: fc.Arbitrary<Mutation> = fc
  .record({ place: fc.nat(), member: fc.nat(), what: fc.constantFrom('replace', 'remove', 'add'), nasty, nastyKey })
  .map(({ place, member, what, nasty, nastyKey }) => (user) => {
    const objects = objectsIn(user);
    const object = objects[place % objects.length] as object;
    const names = Object.keys(object);
    const name = names[member % Math.max(names.length, 1)];
    if (Array.isArray(object)) {
      if (what === 'replace' && name !== undefined) object[Number(name)] = nasty;
      else if (what === 'remove') object.pop();
      else object.push(nasty);
    } else if (what === 'add' || name === undefined) {
      setOwn(object, nastyKey, nasty);
    } else if (what === 'remove') {
      Reflect.deleteProperty(object, name);
    } else {
      setOwn(object, name, nasty);
    }
  });

/** A nasty value for one of the names that have a rule of their own, in the user or in one of its events. */
const aimed: fc.Arbitrary<Mutation> = fc
  .record({
    target: fc.oneof(
      fc.constantFrom('identifiers', 'user_properties', 'events').map((name) => ({ part: 'user', name })),
      fc.constantFrom('user_id', 'email', 'anon_id', 'city', 'a b').map((name) => ({ part: 'identifiers', name })),
      fc
        .constantFrom('event_name', 'event_name', 'timestamp', 'revenue', 'event_value', '$event_id')
        .map((name) => ({ part: 'event', name })),
    ),
    index: fc.nat(2),
    nasty: fc.oneof({ weight: 3, arbitrary: nasty }, { weight: 1, arbitrary: fc.constantFrom(LONG, `${EMOJI_512}x`) }),
  })
  .map(({ target, index, nasty }) => (user) => {
    const events = Array.isArray(user.events) ? (user.events as unknown[]) : [];
    const parts: Record<string, unknown> = {
      user,
      identifiers: user.identifiers,
      event: events[index % events.length],
    };
    const part = parts[target.part];
    if (typeof part === 'object' && part !== null && !Array.isArray(part)) setOwn(part, target.name, nasty);
  });

/** A bad character, a long key or deep nesting in an otherwise untouched place: what the last two rules are for. */
const inside: fc.Arbitrary<Mutation> = fc
  .record({
    place: fc.nat(),
    key: fc.constantFrom('note', 'a b', '9', LONG, NUL, LONE),
    value: fc.constantFrom(NUL, LONE, 'fine', nested(63, NUL), nested(65), nested(2, { [LONG]: nested(64) })),
  })
  .map(({ place, key, value }) => (user) => {
    const objects = objectsIn(user).filter((object) => !Array.isArray(object) && object !== user.identifiers);
    setOwn(objects[place % objects.length] as object, key, value);
  });

/** A user as `JSON.parse` makes it: valid in about two of five cases. */
export const arbitraryUser: fc.Arbitrary<unknown> = fc.oneof(
  {
    weight: 24,
    arbitrary: fc.tuple(validUser, fc.array(fc.oneof(anywhere, aimed, inside), { maxLength: 2 })).map(mutated),
  },
  { weight: 1, arbitrary: fc.constantFrom(null, 1, 'user', true, [], [{}], {}) },
);

function mutated([user, mutations]: [Members, Mutation[]]): unknown {
  let copy = throughJson(user) as Members;
  for (const mutate of mutations) {
    mutate(copy);
    // Again after each, so that no mutation changes the constants that another one has put in.
    copy = throughJson(copy) as Members;
  }
  return copy;
}

function throughJson(value: unknown): unknown {
  return JSON.parse(textOf(value));
}

/** JSON text of a value; the place holder for a number that is too big becomes one. */
export function textOf(value: unknown): string {
  return JSON.stringify(value, (_, member: unknown) => (member === Infinity ? HUGE_NUMBER : member)).replaceAll(
    JSON.stringify(HUGE_NUMBER),
    '1e400',
  );
}
