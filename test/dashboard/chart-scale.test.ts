import assert from 'node:assert/strict';
import test from 'node:test';
import { nearestIndex, slotOf, timeTicks, valueTicks } from '../../dashboard/src/ui/chart-scale.ts';
import { MINUTE_MS } from '../../src/model.ts';

test('values go up by whole, round steps and end at or above the largest', () => {
  assert.deepEqual(valueTicks(0, 5), [0, 1]);
  assert.deepEqual(valueTicks(3, 5), [0, 1, 2, 3]);
  assert.deepEqual(valueTicks(210, 5), [0, 50, 100, 150, 200, 250]);
  for (const most of [0.4, 7, 99, 101, 4_999, 123_456, 9e9]) {
    const ticks = valueTicks(most, 5);
    assert.ok((ticks.at(-1) ?? 0) >= most, `${most}`);
    assert.ok(ticks.every(Number.isInteger) && ticks.length <= 7, `${most}`);
  }
});

test('values below zero have steps of their own, and zero is one of them', () => {
  assert.deepEqual(valueTicks(3, 5, -2), [-2, -1, 0, 1, 2, 3]);
  assert.deepEqual(valueTicks(0, 5, -40), [-40, -30, -20, -10, 0]);
  for (const [most, least] of [
    [1_000, -1],
    [0.5, -7_777],
    [0, -0.2],
    [1e12, -1e12],
  ] as const) {
    const ticks = valueTicks(most, 5, least);
    assert.ok((ticks[0] ?? 0) <= least && (ticks.at(-1) ?? 0) >= most, `${least} to ${most}: ${ticks.join()}`);
    assert.ok(ticks.some((tick) => Object.is(tick, 0)) && ticks.length <= 8, ticks.join());
  }
});

test('times stand on whole minutes, hours and days, no more of them than there is room for', () => {
  const first = Date.parse('2026-11-15T08:07:00Z');
  const hour = timeTicks(first, first + 60 * MINUTE_MS, 5);
  assert.deepEqual(
    hour.at.map((at) => new Date(at).getUTCMinutes()),
    [15, 30, 45, 0],
  );
  assert.equal(hour.areDays, false);
  const month = timeTicks(first, first + 30 * 24 * 60 * MINUTE_MS, 6);
  assert.equal(month.areDays, true);
  assert.ok(month.at.length <= 6);
  assert.ok(month.at.every((at) => new Date(at).getHours() === 0));
});

test('a bar is as wide as the least distance, and the nearest of them is pointed at', () => {
  assert.equal(slotOf([0, 5, 7, 20]), 2);
  assert.equal(slotOf([0]), MINUTE_MS);
  assert.equal(nearestIndex([0, 10, 20], 14), 1);
  assert.equal(nearestIndex([0, 10, 20], 900), 2);
});
