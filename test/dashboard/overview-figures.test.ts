import assert from 'node:assert/strict';
import test from 'node:test';
import {
  addUp,
  bucketStarts,
  differenceWords,
  RANGES,
  rangeOf,
  receivedIn,
  topNames,
} from '../../dashboard/src/pages/overview-figures.ts';

const NOW = Date.parse('2026-11-15T09:07:31.500Z');

test('the last hour is sixty minutes, and the last of them is the one that it is now', () => {
  const [hour] = RANGES;
  const starts = bucketStarts(NOW, hour.spanMs, hour.bucketMs);
  assert.equal(starts.length, 60);
  assert.equal(new Date(starts.at(-1) ?? 0).toISOString(), '2026-11-15T09:07:00.000Z');
  assert.equal(new Date(starts[0] ?? 0).toISOString(), '2026-11-15T08:08:00.000Z');
});

test('a day is added up to quarters of an hour, without more minutes than may be asked for', () => {
  const day = rangeOf('24h');
  const starts = bucketStarts(NOW, day.spanMs, day.bucketMs);
  assert.equal(starts.length, 96);
  const minutes = (NOW - (starts[0] ?? 0)) / 60_000;
  assert.ok(minutes > 1_425 && minutes <= 1_440, `${minutes}`);
  const rows = [
    { start: '2026-11-15T08:59:00.000Z', users: 1 },
    { start: '2026-11-15T09:00:00.000Z', users: 2 },
    { start: '2026-11-15T09:07:00.000Z', users: 4 },
  ];
  const sums = addUp(rows, starts, day.bucketMs, ({ users }) => users);
  assert.deepEqual(sums.slice(-3), [0, 1, 6]);
});

test('figures that are known up to a time end with it, whatever the clock says by now', () => {
  const [hour] = RANGES;
  const minutes = [{ start: '2026-11-15T09:06:00.000Z', users_accepted: 3, users_rejected: 1, events_accepted: 5 }];
  const { starts, accepted, rejected, events } = receivedIn(hour, minutes, NOW - 60_000);
  assert.equal(new Date(starts.at(-1) ?? 0).toISOString(), '2026-11-15T09:06:00.000Z');
  assert.equal(accepted.values.at(-1), 3);
  assert.deepEqual([accepted.total, rejected.total, events.total], [3, 1, 5]);
});

test('times without anything are zeros, and what lies outside is left out', () => {
  const starts = bucketStarts(NOW, 3 * 60_000, 60_000);
  const rows = [
    { start: '2026-11-15T09:04:00.000Z', n: 100 },
    { start: '2026-11-15T09:05:00.000Z', n: 1 },
    { start: '2026-11-15T09:07:00.000Z', n: 3 },
    { start: '2026-11-15T09:08:00.000Z', n: 100 },
  ];
  assert.deepEqual(
    addUp(rows, starts, 60_000, ({ n }) => n),
    [1, 0, 3],
  );
});

test('a range that nobody knows is the last hour', () => {
  assert.equal(rangeOf('<script>'), RANGES[0]);
});

test('event names are added up over time, most frequent first, hostile ones like any other', () => {
  const buckets = [
    { event_name: '__proto__', events: 2, revenue: 1 },
    { event_name: 'b', events: 3, revenue: 0 },
    { event_name: '__proto__', events: 2, revenue: 0.5 },
    { event_name: 'a', events: 3, revenue: 0 },
    { event_name: 'rare', events: 1, revenue: 0 },
  ];
  assert.deepEqual(topNames(buckets, 3), [
    { name: '__proto__', events: 4, revenue: 1.5 },
    { name: 'a', events: 3, revenue: 0 },
    { name: 'b', events: 3, revenue: 0 },
  ]);
});

test('what does not balance is said in words, whichever way it is off', () => {
  const even = { received: 10, difference: 0 };
  assert.equal(
    differenceWords({ received: 10, difference: 1 }, even),
    '1 user received, but neither stored nor accounted for.',
  );
  assert.equal(differenceWords(even, { received: 10, difference: -2 }), '2 events more accounted for than received.');
  assert.match(differenceWords(even, even), /single hours/);
});
