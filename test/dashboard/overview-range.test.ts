/** The ranges of the overview: what the address may ask for, which buckets they have, and what is asked of the server. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import {
  addressQuery,
  type Clock,
  clockOf,
  countPieces,
  placeIn,
  type Range,
  rangeOf,
} from '../../dashboard/src/overview-range.ts';
import { DAY_MS, HOUR_MS } from '../../src/model.ts';

const NOW = Date.parse('2026-11-15T09:07:31.500Z');

function known(range: string, ends: { from?: string; to?: string; clock?: Clock; now?: number } = {}): Range {
  const { from = '', to = '', clock = 'event', now = NOW } = ends;
  const result = rangeOf({ range, from, to }, clock, now);
  assert.ok('range' in result, 'problem' in result ? result.problem : '');
  return result.range;
}

function problem(range: string, from = '', to = ''): string {
  const result = rangeOf({ range, from, to }, 'event', NOW);
  assert.ok('problem' in result);
  return result.problem;
}

suite('Ranges of the overview', () => {
  test('the last hour is sixty minutes, and the last of them is the one that it is now', () => {
    const { starts, from, to, unit } = known('');
    assert.deepEqual([unit, starts.length], ['minute', 60]);
    assert.equal(new Date(starts.at(-1) ?? 0).toISOString(), '2026-11-15T09:07:00.000Z');
    assert.equal(new Date(from).toISOString(), '2026-11-15T08:08:00.000Z');
    assert.equal(new Date(to).toISOString(), '2026-11-15T09:08:00.000Z');
    assert.deepEqual(known('1h'), known(''));
  });

  test('a day and a week are hours, longer ranges are days of the viewer, today among them', () => {
    assert.deepEqual([known('24h').unit, known('24h').starts.length], ['hour', 24]);
    assert.deepEqual([known('7d').unit, known('7d').starts.length], ['hour', 168]);
    for (const [name, days] of [
      ['30d', 30],
      ['90d', 90],
    ] as const) {
      const { unit, starts, to } = known(name);
      assert.deepEqual([unit, starts.length], ['day', days]);
      assert.ok(starts.every((start) => new Date(start).getHours() === 0));
      assert.equal(new Date(starts.at(-1) ?? 0).toDateString(), new Date(NOW).toDateString());
      assert.ok(to > NOW && to - NOW <= HOUR_MS);
    }
  });

  test('what is asked for does not change from one second to the next', () => {
    for (const name of ['1h', '24h', '7d', '30d', '90d']) {
      assert.deepEqual(known(name), known(name, { now: NOW + 1_000 }));
    }
  });

  test('a range, a clock and ends that the page does not know are refused in words', () => {
    assert.match(problem('12h'), /no range “12h”.*1h, 24h, 7d, 30d, 90d, custom/);
    assert.match(problem('__proto__'), /no range/);
    assert.match(problem('custom'), /Choose the beginning and the end/);
    assert.match(problem('custom', 'yesterday', '2026-11-15T00:00:00Z'), /“yesterday” is not a time/);
    assert.match(problem('custom', '2026-11-15T00:00:00Z', '<b>'), /“<b>” is not a time/);
    assert.match(problem('custom', '2026-11-15T00:00:00Z', '2026-11-15T00:00:00Z'), /begin before it ends/);
    assert.match(problem('custom', '2020-01-01T00:00:00Z', '2026-01-01T00:00:00Z'), /at most 400 days/);
    assert.deepEqual([clockOf(''), clockOf('event'), clockOf('receipt')], ['event', 'event', 'receipt']);
    assert.equal(clockOf('server'), undefined);
  });

  test('a custom range is widened to whole buckets, which are as long as suits it', () => {
    const short = known('custom', { from: '2026-11-15T08:00:30Z', to: '2026-11-15T08:10:01Z' });
    assert.deepEqual([short.unit, short.starts.length], ['minute', 11]);
    const middle = known('custom', { from: '2026-11-10T08:59:00Z', to: '2026-11-12T08:01:00Z' });
    assert.deepEqual([middle.unit, middle.starts.length], ['hour', 49]);
    const long = known('custom', { from: '2026-01-01T08:00:00Z', to: '2026-03-01T08:00:00Z' });
    assert.equal(long.unit, 'day');
    assert.deepEqual([long.starts[0], long.from], [long.from, Date.parse('2026-01-01T08:00:00Z')]);
    assert.ok(long.starts.length >= 59 && long.starts.length <= 61);
  });

  test('by receipt time, minutes that are not kept any more are hours', () => {
    const ends = { from: '2026-10-01T08:10:00Z', to: '2026-10-01T08:20:00Z' };
    assert.equal(known('custom', ends).unit, 'minute');
    const { unit, from, to } = known('custom', { ...ends, clock: 'receipt' });
    assert.deepEqual([unit, to - from], ['hour', HOUR_MS]);
  });

  test('every hour of a range is in one bucket, and hours outside are in none', () => {
    const range = known('90d');
    const places: number[] = [];
    for (let hour = range.from; hour < range.to; hour += HOUR_MS) places.push(placeIn(range, hour));
    assert.ok(places.every((place, index) => place >= 0 && place >= (places[index - 1] ?? 0)));
    assert.equal(new Set(places).size, 90);
    assert.deepEqual([placeIn(range, range.from - 1), placeIn(range, range.to)], [-1, -1]);
  });

  test('names are asked for exactly: whole days of UTC as days, what is left of the range by hour', () => {
    const from = Date.parse('2026-10-16T22:00:00Z');
    const to = Date.parse('2026-11-15T10:00:00Z');
    const pieces = countPieces({ unit: 'day', from, to });
    assert.deepEqual(
      pieces.map(({ interval }) => interval),
      ['hour', 'day', 'hour'],
    );
    assert.equal(
      pieces.reduce((sum, piece) => sum + piece.to - piece.from, 0),
      to - from,
    );
    const [, days] = pieces;
    assert.deepEqual([(days?.from ?? 1) % DAY_MS, (days?.to ?? 1) % DAY_MS], [0, 0]);
    assert.equal(countPieces({ unit: 'day', from: days?.from ?? 0, to: days?.to ?? 0 }).length, 1);
    assert.deepEqual(countPieces({ unit: 'hour', from, to }), [{ interval: 'hour', from, to }]);
  });

  test('the address keeps what is not default, and ends only of a custom range', () => {
    const ends = { from: 'a', to: 'b' };
    assert.equal(addressQuery({ range: '1h', ...ends }, 'event'), '');
    assert.equal(addressQuery({ range: '7d', ...ends }, 'receipt'), '?range=7d&clock=receipt');
    assert.equal(addressQuery({ range: 'custom', ...ends }, 'event'), '?range=custom&from=a&to=b');
  });
});
