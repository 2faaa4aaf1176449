/** Rules 9 and 10: the order of origins, and ids that come from them. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { nodeIdOf } from '../../src/identity/node-id.ts';
import { compareOrigins } from '../../src/identity/origin.ts';
import type { Origin } from '../../src/model.ts';

const origins: fc.Arbitrary<Origin> = fc.record({
  receivedAt: fc.oneof(fc.nat(3), fc.nat(2 ** 31)),
  traceId: fc.constantFrom('a', 'b', 'B', 'ä', 'aa'),
  userIndex: fc.nat(12),
});

suite('Origins (rule 9)', () => {
  test('are ordered by time, then trace by code unit, then place', () => {
    const at = (receivedAt: number, traceId: string, userIndex: number): Origin => ({ receivedAt, traceId, userIndex });
    const sorted = [at(1, 'z', 9), at(2, 'B', 0), at(2, 'a', 2), at(2, 'a', 10), at(2, 'ä', 0), at(10, 'a', 0)];
    assert.deepEqual(sorted.toReversed().sort(compareOrigins), sorted);
  });

  test('have a total order', () => {
    fc.assert(
      fc.property(origins, origins, origins, (a, b, c) => {
        assert.equal(Math.sign(compareOrigins(a, b)) + Math.sign(compareOrigins(b, a)), 0);
        assert.equal(compareOrigins(a, a), 0);
        if (compareOrigins(a, b) < 0 && compareOrigins(b, c) < 0) assert.ok(compareOrigins(a, c) < 0);
      }),
    );
  });
});

suite('Node ids (rule 10)', () => {
  test('are the same for the same request, today and in later versions', () => {
    const origin = { receivedAt: 1_790_000_000_000, traceId: '01a0c4b2-0000-7000-8000-000000000000', userIndex: 3 };
    assert.equal(nodeIdOf('acc/production', origin), '01a0c450-6c00-8df0-b544-347c9d144f66');
  });

  test('are UUIDs of version 8 that sort by time', () => {
    fc.assert(
      fc.property(origins, origins, (a, b) => {
        const [first, second] = [nodeIdOf('t', a), nodeIdOf('t', b)];
        assert.match(first, /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
        if (a.receivedAt < b.receivedAt) assert.ok(first < second);
      }),
    );
  });

  test('differ by tenant, trace and place, and cannot be confused', () => {
    const ids = [
      nodeIdOf('t', { receivedAt: 5, traceId: 'a', userIndex: 11 }),
      nodeIdOf('t', { receivedAt: 5, traceId: 'a1', userIndex: 1 }),
      nodeIdOf('ta', { receivedAt: 5, traceId: '', userIndex: 11 }),
      nodeIdOf('t', { receivedAt: 5, traceId: 'a', userIndex: 1 }),
      nodeIdOf('u', { receivedAt: 5, traceId: 'a', userIndex: 1 }),
    ];
    assert.equal(new Set(ids).size, ids.length);
  });

  test('stay well formed for times that do not fit', () => {
    for (const receivedAt of [-1, 2 ** 48, 1.5]) {
      assert.match(nodeIdOf('t', { receivedAt, traceId: 'a', userIndex: 0 }), /^[0-9a-f]{8}-[0-9a-f]{4}-8/);
    }
  });
});
