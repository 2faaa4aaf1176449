/** Ids are ordered by the calls that made them, whatever the clock does. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../sdk/src/uuid.ts';

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

test('each id is greater than the one before: within a millisecond, and when the clock is set back or jumps', (context) => {
  let now = Date.parse('2026-11-16T12:00:00Z');
  context.mock.method(Date, 'now', () => now);
  const ids: string[] = [];
  const make = (count: number): void => {
    for (let made = 0; made < count; made++) ids.push(newId());
  };
  // More than one millisecond has room for.
  make(5_000);
  for (const step of [1, -3_600_000, 0, 86_400_000, -1]) {
    now += step;
    make(10);
  }
  assert.deepEqual(ids.toSorted(), ids);
  assert.equal(new Set(ids).size, ids.length);
  for (const id of ids) assert.match(id, UUID_V7);
});
