/** Users and messages of a large body are counted before anything parses them, and too many get the same response. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { convertBody, validateBody } from '../../src/edge/validate-body.ts';
import { scanLargeBody } from '../../src/json/large-body.ts';
import { KnownKeys } from '../../src/json/scanner.ts';
import { convertSegment } from '../../src/intake/segment.ts';
import { validateRequest } from '../../src/validation/validate-request.ts';

const USERS = new KnownKeys('users');
/** Smaller bodies are parsed at once. */
const PAD = ' '.repeat(262_144);
const CONVERSION = { type: null, receivedAt: 0, matchOptions: { defaultCountry: null, junkValues: new Set<string>() } };

function counted(text: string): number {
  return scanLargeBody(Buffer.from(text + PAD), USERS).elements;
}

function empty(count: number): string {
  return `[${Array(count).fill('{}').join(',')}]`;
}

suite('Elements of an array', () => {
  test('are counted as JSON.parse finds them', () => {
    fc.assert(
      fc.property(fc.array(fc.json({ maxDepth: 3 })), fc.json(), fc.json(), (users, before, after) => {
        const text = `{"a":${before},"users": [ ${users.join(' , ')} ],"b":${after}}`;
        assert.equal(counted(text), users.length);
      }),
      { numRuns: 300 },
    );
  });

  test('are those of the last member of that name, also if the name is escaped', () => {
    assert.equal(counted('{"users":[1,2,3],"users":[1]}'), 1);
    assert.equal(counted('{"users":[1,2,3],"users":"x"}'), 0);
    assert.equal(counted('{"\\u0075sers":[1,2,3]}'), 3);
    assert.equal(counted('{"x":{"users":[1,2,3]}}'), 0);
  });

  test('are none where the text is no JSON or no object', () => {
    for (const text of [
      '',
      '[1,2]',
      '{"users":[1,2}',
      '{"users":[1,2]',
      '{"users":[1,2],}',
      '{"users":[1,2]}}',
      '{"users":[1,2,]}',
    ]) {
      assert.equal(counted(text), 0, text);
    }
  });
});

suite('A large body with too many', () => {
  const cases: [what: string, body: string][] = [
    ['users', `{"users":${empty(1_001)}}`],
    ['users, after others of that name', `{"users":[],"users":${empty(1_001)}}`],
    ['users, where another value of that name counts', `{"users":${empty(1_001)},"users":[]}`],
    ['users, and no JSON after them', `{"users":${empty(1_001)}]`],
    ['users in an array', `[${empty(1_001)}]`],
    ['users, one fewer', `{"users":${empty(1_000)}}`],
  ];
  for (const [what, body] of cases) {
    test(`${what}: gets the response of a small one`, () => {
      const { validation } = validateBody(Buffer.from(body + PAD));
      assert.deepEqual(validation, validateRequest(body + PAD));
    });
  }

  test('messages gets the response of a small one, and a single message is not taken for a batch', () => {
    const body = `{"batch":${empty(2_501)},"type":"track","userId":"a","event":"x"}${PAD}`;
    assert.deepEqual(convertBody(Buffer.from(body), CONVERSION), {
      ok: false,
      code: 'validation_failed',
      message: 'batch must hold at most 2500 messages, not 2501',
    });
    const single = { ...CONVERSION, type: 'track' } as const;
    assert.deepEqual(convertBody(Buffer.from(body), single), convertSegment(body, single));
  });

  test('users or messages is refused without building any of them', (t) => {
    const [users, batch] = [`{"users":${empty(3_000_000)}}`, `{"batch":${empty(3_000_000)}}`].map((text) =>
      Buffer.from(text),
    );
    assert.ok(users !== undefined && batch !== undefined);
    const before = process.memoryUsage().heapUsed;
    const { validation } = validateBody(users);
    const conversion = convertBody(batch, CONVERSION);
    const growth = process.memoryUsage().heapUsed - before;
    t.diagnostic(`the heap grew by ${Math.round(growth / 1e6)} MB`);
    assert.ok(!validation.ok && validation.message === 'users must hold at most 1000 users, not 3000000');
    assert.ok(!conversion.ok && conversion.message === 'batch must hold at most 2500 messages, not 3000000');
    assert.ok(growth < 10e6);
  });
});
