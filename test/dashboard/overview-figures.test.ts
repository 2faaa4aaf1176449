import assert from 'node:assert/strict';
import test from 'node:test';
import { type Range, rangeOf } from '../../dashboard/src/overview-range.ts';
import {
  addUp,
  countedIn,
  currencyLabel,
  differenceWords,
  formatMoney,
  receivedByHour,
  receivedByMinute,
  topNames,
} from '../../dashboard/src/pages/overview-figures.ts';

const NO_BOOKS = { stored: 0, duplicates: 0, erased: 0, expired: 0, dead_letters: 0, pending: 0, difference: 0 };
const BOOKS_OF_2 = { ...NO_BOOKS, received: 2 };
const BOOKS_OF_5 = { ...NO_BOOKS, received: 5 };
const NOW = Date.parse('2026-11-15T09:07:31.500Z');

function lastHour(now: number): Range {
  const result = rangeOf({ range: '1h', from: '', to: '' }, 'event', now);
  assert.ok('range' in result);
  return result.range;
}

test('figures that are known up to a time end with it, whatever the clock says by now', () => {
  const minutes = [{ start: '2026-11-15T09:06:00.000Z', users_accepted: 3, users_rejected: 1, events_accepted: 5 }];
  const { range, accepted, rejected, events } = receivedByMinute(lastHour(NOW - 60_000), minutes);
  assert.equal(new Date(range.starts.at(-1) ?? 0).toISOString(), '2026-11-15T09:06:00.000Z');
  assert.equal(accepted.values.at(-1), 3);
  assert.deepEqual([accepted.total, rejected.total, events.total], [3, 1, 5]);
});

test('times without anything are zeros, and what lies outside is left out', () => {
  const starts = [NOW - 120_000, NOW - 60_000, NOW].map((time) => Math.floor(time / 60_000) * 60_000);
  const range = { starts, from: starts[0] ?? 0, to: (starts[2] ?? 0) + 60_000 };
  const rows = [
    { start: '2026-11-15T09:04:00.000Z', n: 100 },
    { start: '2026-11-15T09:05:00.000Z', n: 1 },
    { start: '2026-11-15T09:07:00.000Z', n: 3 },
    { start: '2026-11-15T09:08:00.000Z', n: 100 },
  ];
  const sums = addUp(
    rows,
    range,
    ({ start }) => start,
    ({ n }) => n,
  );
  assert.deepEqual(sums, [1, 0, 3]);
});

test('what was received is taken from the ledger where minutes are not kept', () => {
  const result = rangeOf({ range: '7d', from: '', to: '' }, 'receipt', NOW);
  assert.ok('range' in result);
  const hours = ['2026-11-15T09:00:00.000Z', '2026-11-15T08:00:00.000Z', '2026-11-01T00:00:00.000Z'].map((hour) => {
    return {
      hour,
      users: BOOKS_OF_2,
      events: BOOKS_OF_5,
      users_rejected: 1,
      users_resubmitted: 1,
      dropped_by_clients: 0,
    };
  });
  const { accepted, rejected, events, resubmitted } = receivedByHour(result.range, hours);
  assert.deepEqual([accepted.total, rejected.total, events.total, resubmitted], [2, 2, 10, 2]);
  assert.deepEqual(events.values.slice(-2), [5, 5]);
});

test('revenue is added up by currency and never across, the currency of most events first', () => {
  const sum = (currency: string | null, events: number, revenue: number | null) => ({ currency, events, revenue });
  const { revenue, events } = countedIn(lastHour(NOW), [
    { start: '2026-11-15T09:06:00.000Z', events: 5, revenue: [sum('USD', 1, 3), sum('other', 1, null)] },
    { start: '2026-11-15T09:07:00.000Z', events: 4, revenue: [sum('EUR', 2, -8), sum('USD', 2, -5)] },
    { start: '2026-11-15T01:00:00.000Z', events: 9, revenue: [sum('GBP', 9, 99)] },
  ]);
  assert.equal(events.total, 9);
  assert.deepEqual(
    revenue.map((row) => [row.currency, row.events, row.revenue?.total, row.revenue?.values.slice(-2)]),
    [
      ['USD', 3, -2, [3, -5]],
      ['EUR', 2, -8, [0, -8]],
      ['other', 1, undefined, undefined],
    ],
  );
});

test('money is written with its code and with as many decimals as the currency has', () => {
  assert.equal(formatMoney(1234.5, 'EUR'), 'EUR 1,234.50');
  assert.equal(formatMoney(-3, 'JPY'), '-JPY 3');
  assert.equal(formatMoney(0.1 + 0.2, null), '0.30');
  assert.equal(formatMoney(5, 'ZZZ'), 'ZZZ 5.00');
  assert.deepEqual(
    [currencyLabel(null), currencyLabel('other'), currencyLabel('EUR')],
    ['no currency', 'other currencies', 'EUR'],
  );
});

test('event names are added up over time, most frequent first, hostile ones like any other', () => {
  const buckets = [
    { event_name: '__proto__', events: 2 },
    { event_name: 'b', events: 3 },
    { event_name: '__proto__', events: 2 },
    { event_name: 'a', events: 3 },
    { event_name: 'rare', events: 1 },
  ];
  assert.deepEqual(topNames(buckets, 3), [
    { name: '__proto__', events: 4 },
    { name: 'a', events: 3 },
    { name: 'b', events: 3 },
  ]);
});

test('what does not balance is said in words, whichever way it is off', () => {
  const even = { received: 10, difference: 0 };
  assert.equal(
    differenceWords({ received: 10, difference: 1 }, even),
    '1 user received, but neither stored nor accounted for.',
  );
  assert.equal(differenceWords(even, { received: 10, difference: -2 }), '2 events more accounted for than received.');
  assert.match(differenceWords(even, even), /individual hours/);
});
