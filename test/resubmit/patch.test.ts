/** JSON Patch on rejected users: what is applied, what is refused, and that nothing of the user is lost on the way. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { patchBetween } from '../../dashboard/src/json-patch.ts';
import { fixedByHand, fixUser, validateUser } from '../../src/resubmit/fixed-user.ts';
import {
  BadPatchError,
  changesBetween,
  parsePatch,
  patched,
  sharedIdentifiers,
  stepsOf,
} from '../../src/resubmit/patch.ts';

const patchOf = (...operations: object[]) => parsePatch(JSON.stringify(operations));
const OWN = { format: 'sluice', receivedAt: Date.UTC(2026, 2, 1) } as const;
const VALID = '{"identifiers":{"user_id":"u"},"events":[{"event_name":"x"}]}';

suite('A JSON Patch on a rejected user', () => {
  test('that doubles a user again and again is refused, and long lists are compared at once', () => {
    const user = '{"identifiers":{"user_id":"u"},"user_properties":{"a":"x"},"events":[{"event_name":"x"}]}';
    const doubling = Array.from({ length: 60 }, (_, n) => ({
      op: 'copy',
      from: '/user_properties',
      path: `/user_properties/x${n}`,
    }));
    assert.match(JSON.stringify(patched(user, patchOf(...doubling))), /becomes too large/);
    const add = { op: 'add', path: '/user_properties/b', value: ['x'.repeat(1_000)] };
    const copy = { op: 'copy', from: '/user_properties/b', path: '/user_properties/b/-' };
    const copies = (count: number) => patched(user, patchOf(add, ...Array.from({ length: count }, () => copy)));
    assert.match(JSON.stringify(copies(6)), /^{"user"/);
    assert.deepEqual(copies(7), { message: 'patch[7] copy /user_properties/b/-: the user becomes too large' });
    const list = (step: number): string => JSON.stringify({ a: Array.from({ length: 5_000 }, (_, n) => n * step) });
    assert.deepEqual(changesBetween(list(1), list(2)), [{ op: 'replace', path: '/a' }]);
    const test = { op: 'test', path: '/a', value: (JSON.parse(list(2)) as { a: number[] }).a };
    assert.match(JSON.stringify(patched(list(1), [test] as never)), /the value differs/);
  });

  test('does not apply to a user that is nested to the end of the stack, in whatever form it was sent', () => {
    for (const levels of [8_000, 200_000]) {
      const deep = '['.repeat(levels) + ']'.repeat(levels);
      const copied = patched(`{"a":${deep}}`, patchOf({ op: 'copy', from: '/a', path: '/b' }));
      assert.match('message' in copied ? copied.message : '', /nested too deeply|too large/);
      const patch = patchOf({ op: 'add', path: '/b', value: 1 });
      for (const format of ['sluice', 'segment'] as const) {
        assert.equal(fixUser(`{"a":${deep}}`, patch, { ...OWN, format }).status, 'still_rejected');
      }
    }
  });

  test('is refused with a value that is nested to the end of the stack', () => {
    const value = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels);
    const parse = (levels: number) => parsePatch(`[{"op":"add","path":"/a","value":${value(levels)}}]`);
    assert.equal(parse(100).length, 1);
    for (const levels of [102, 16_000]) {
      const message = 'patch[0].value is nested too deeply, at most 100 levels';
      assert.throws(() => parse(levels), { name: 'BadPatchError', message });
    }
  });

  test('does what each operation says', () => {
    const user = '{"identifiers":{"user_id":7,"e-mail":"a@x.org"},"events":[{"event_name":"x","a/b":1}]}';
    const patch = patchOf(
      { op: 'test', path: '/identifiers/user_id', value: 7 },
      { op: 'replace', path: '/identifiers/user_id', value: '7' },
      { op: 'move', from: '/identifiers/e-mail', path: '/identifiers/email' },
      { op: 'copy', from: '/events/0', path: '/events/-' },
      { op: 'remove', path: '/events/0/a~1b' },
      { op: 'add', path: '/user_properties', value: { plan: 'pro' } },
    );
    assert.deepEqual(patched(user, patch), {
      user: '{"identifiers":{"user_id":"7","email":"a@x.org"},"events":[{"event_name":"x"},{"event_name":"x","a/b":1}],"user_properties":{"plan":"pro"}}',
    });
  });

  test('makes a text of a number or a boolean, with all its digits, where it is asked to', () => {
    const user = '{"a":7,"b":12345678901234567890,"c":true,"d":"x","e":[1.5]}';
    const all = ['a', 'b', 'c', 'd', 'e/0'].map((path) => ({ op: 'to_string', path: `/${path}` }));
    assert.deepEqual(patched(user, patchOf(...all)), {
      user: '{"a":"7","b":"12345678901234567890","c":"true","d":"x","e":["1.5"]}',
    });
    for (const path of ['/e', '/none', '/none/x']) {
      assert.deepEqual(patched(user, patchOf({ op: 'to_string', path })), {
        message: `patch[0] to_string ${path}: there is no number, boolean or text at this path`,
      });
    }
  });

  test('that would make one person of many is known', () => {
    const value = 'x';
    assert.deepEqual(sharedIdentifiers(patchOf({ op: 'add', path: '/identifiers/email', value })), [
      '/identifiers/email',
    ]);
    assert.deepEqual(
      sharedIdentifiers(patchOf({ op: 'replace', path: '/identifiers', value: { anon_id: 'x', city: 'y' } })),
      ['/identifiers/anon_id'],
    );
    const harmless = [
      { op: 'add', path: '/identifiers/city', value },
      { op: 'to_string', path: '/identifiers/user_id' },
      { op: 'replace', path: '/identifiers/email', value: null },
    ];
    assert.deepEqual(sharedIdentifiers(patchOf(...harmless)), []);
  });

  test('keeps all digits, and names that every object inherits', () => {
    const user = '{"identifiers":{"user_id":7},"p":{"__proto__":{"n":12345678901234567890},"constructor":1e400}}';
    const patch = parsePatch(
      '[{"op":"copy","from":"/p","path":"/q"},{"op":"add","path":"/n","value":{"__proto__":98765432109876543210}},{"op":"test","path":"/p/constructor-","value":null}]',
    );
    assert.deepEqual(patched(user, patch.slice(0, 2)), {
      user: '{"identifiers":{"user_id":7},"p":{"__proto__":{"n":12345678901234567890},"constructor":1e400},"q":{"__proto__":{"n":12345678901234567890},"constructor":1e400},"n":{"__proto__":98765432109876543210}}',
    });
    assert.equal(Object.getPrototypeOf({}), Object.prototype);
    assert.ok('message' in patched(user, patch));
  });

  test('finds nothing that a value inherits, and changes no built-in object', () => {
    const user = '{"identifiers":{"user_id":"u"},"events":"page_viewed","user_properties":{"s":"text","list":[1]}}';
    const builtIns = [Object.prototype, Array.prototype, String.prototype, Function.prototype];
    const before = builtIns.map((one) => Object.getOwnPropertyNames(one).join());
    const paths = [
      ...['/identifiers/hasOwnProperty/call', '/user_properties/toString/call', '/user_properties/list/push/apply'],
      ...[
        '/user_properties/__proto__/x',
        '/constructor/prototype/x',
        '/events/0',
        '/events/length',
        '/events/map/call',
      ],
      ...['/user_properties/s/0', '/identifiers/user_id/x', '/user_properties/list/length', '/user_properties/list/00'],
    ];
    for (const path of paths) {
      for (const op of ['add', 'replace', 'remove', 'test', 'to_string']) {
        assert.ok('message' in patched(user, patchOf({ op, path, value: 1 })), `${op} ${path}`);
      }
      for (const op of ['move', 'copy']) {
        assert.ok('message' in patched(user, patchOf({ op, from: path, path: '/a' })), `${op} from ${path}`);
        assert.ok('message' in patched(user, patchOf({ op, from: '/events', path })), `${op} to ${path}`);
      }
    }
    assert.deepEqual(
      builtIns.map((one) => Object.getOwnPropertyNames(one).join()),
      before,
    );
    assert.equal(Function.prototype.call.length, 1);
    assert.deepEqual(patched('{}', patchOf({ op: 'add', path: '/__proto__', value: { x: 1 } })), {
      user: '{"__proto__":{"x":1}}',
    });
    assert.equal((Object.prototype as unknown as { x?: unknown }).x, undefined);
  });

  test('makes of any user any other, by the patch that the page makes of the two', () => {
    const names = fc.constantFrom('a', 'b', 'a/b', '~0', 'toString', 'constructor', '0', '-', '');
    const { value } = fc.letrec<{ value: unknown }>((tie) => ({
      value: fc.oneof(
        { depthSize: 'small' },
        fc.constantFrom(null, true, 7, 1.5, 'text', ''),
        fc.array(tie('value'), { maxLength: 4 }),
        fc.dictionary(names, tie('value'), { maxKeys: 4 }),
      ),
    }));
    const user = fc.dictionary(names, value, { maxKeys: 4 });
    const property = fc.property(user, user, (from, to) => {
      const patch = patchBetween(from, to);
      if (patch.length === 0 || patch.length > 100) return;
      const result = patched(JSON.stringify(from), parsePatch(JSON.stringify(patch)));
      assert.ok('user' in result, JSON.stringify([from, to, patch, result]));
      assert.deepEqual(JSON.parse(result.user), JSON.parse(JSON.stringify(to)));
    });
    fc.assert(property, { numRuns: 500 });
  });

  test('moves a value within its list, and not into itself', () => {
    const list = '{"list":[{"a":1},{"a":2},{"a":3}]}';
    const move = (from: string, path: string) => patched(list, patchOf({ op: 'move', from, path }));
    assert.deepEqual(move('/list/0', '/list/2'), { user: '{"list":[{"a":2},{"a":3},{"a":1}]}' });
    assert.deepEqual(move('/list/2', '/list/0'), { user: '{"list":[{"a":3},{"a":1},{"a":2}]}' });
    assert.deepEqual(move('/list/0', '/list/0'), { user: list });
    assert.ok('message' in move('/list', '/list/0/a'));
    assert.ok('message' in move('/list/0', '/list/3'));
  });

  test('that does not apply says which operation and why, without values', () => {
    const message = (user: string, ...operations: object[]) => {
      const result = patched(user, patchOf(...operations));
      return 'message' in result ? result.message : assert.fail('it was applied');
    };
    assert.equal(
      message(VALID, { op: 'add', path: '/a', value: 1 }, { op: 'remove', path: '/identifiers/email' }),
      'patch[1] remove /identifiers/email: there is nothing at this path',
    );
    assert.equal(
      message(VALID, { op: 'test', path: '/identifiers/user_id', value: 'secret' }),
      'patch[0] test /identifiers/user_id: the value differs',
    );
    assert.match(message(VALID, { op: 'add', path: '/events/9', value: 1 }), /there is nothing/);
    assert.match(message('"text"', { op: 'add', path: '/a', value: 1 }), /not an object/);
    assert.match(message('7', { op: 'remove', path: '/a' }), /not an object/);
  });

  test('that is no patch is refused, with the place of the mistake', () => {
    for (const [text, expected] of [
      ['{}', /^patch must be an array/],
      ['[]', /at least one operation/],
      ['[7]', /^patch\[0\] must be an object/],
      ['[{"op":"set","path":"/a"}]', /^patch\[0\]\.op must be add, remove/],
      ['[{"op":"remove","path":"/a"},{"op":"remove","path":"a"}]', /^patch\[1\]\.path must be a JSON Pointer/],
      ['[{"op":"remove","path":""}]', /^patch\[0\]\.path must be/],
      ['[{"op":"remove","path":"/a~2"}]', /^patch\[0\]\.path must be/],
      ['[{"op":"add","path":"/a"}]', /^patch\[0\]\.value is required for add/],
      ['[{"op":"move","path":"/a"}]', /^patch\[0\]\.from must be/],
      [JSON.stringify(Array.from({ length: 101 }, () => ({ op: 'remove', path: '/a' }))), /at most 100 operations/],
      [JSON.stringify([{ op: 'add', path: '/a', value: 'x'.repeat(40_000) }]), /at most 32768 characters/],
    ] as const) {
      assert.throws(
        () => parsePatch(text),
        (error) => error instanceof BadPatchError && expected.test(error.message),
        text.slice(0, 80),
      );
    }
  });

  test('is shown on traces without its values', () => {
    assert.deepEqual(
      stepsOf(patchOf({ op: 'replace', path: '/a', value: 'ada@x.org' }, { op: 'move', from: '/b', path: '/c' })),
      [
        { op: 'replace', path: '/a' },
        { op: 'move', path: '/c', from: '/b' },
      ],
    );
    assert.deepEqual(changesBetween('{"a":1,"b":{"c":2}}', '{"a":"1","b":{}}'), [
      { op: 'replace', path: '/a' },
      { op: 'remove', path: '/b/c' },
    ]);
  });
});

suite('A user that was fixed', () => {
  test('is validated as at the edge', () => {
    assert.deepEqual(validateUser(VALID), { status: 'valid', user: VALID, events: 1 });
    assert.deepEqual(fixUser(VALID, patchOf({ op: 'replace', path: '/identifiers/user_id', value: 7 }), OWN), {
      status: 'still_rejected',
      message: 'identifiers.user_id must be a string',
    });
    const digits = VALID.replace('"x"', '"x","revenue":12345678901234567890');
    assert.deepEqual(validateUser(digits), { status: 'valid', user: digits, events: 1 });
    assert.equal(validateUser(VALID.replace('"x"', '"\\u0000"')).status, 'still_rejected');
    assert.equal(validateUser('null').status, 'still_rejected');
  });

  test('may be a message of one of Segment’s SDKs, which becomes a user as at the edge', () => {
    const sentAs = { format: 'segment', receivedAt: Date.UTC(2026, 2, 1) } as const;
    const message = '{"type":"track","event":"Order","userId":"","properties":{"total":1}}';
    const patch = patchOf({ op: 'replace', path: '/userId', value: 'u' });
    const fixed = fixUser(message, patch, sentAs);
    assert.ok(fixed.status === 'valid');
    const user = JSON.parse(fixed.user) as { identifiers: object; events: { event_name: string }[] };
    assert.deepEqual([user.identifiers, user.events[0]?.event_name], [{ user_id: 'u' }, 'Order']);
    assert.equal(fixUser(message, patchOf({ op: 'remove', path: '/event' }), sentAs).status, 'still_rejected');
    assert.deepEqual(fixedByHand(VALID, sentAs), validateUser(VALID));
  });
});
