/** The ranges of rejected users: which times they ask for, and that they agree with those of the overview. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { rangeOf } from '../../dashboard/src/overview-range.ts';
import { fromQuery, REJECTED_RANGES, rejectedRangeOf } from '../../dashboard/src/rejected-range.ts';

const NOW = Date.UTC(2026, 10, 15, 9, 41, 12, 345);

suite('Ranges of rejected users', () => {
  test('without a choice, or with one that does not exist, it is the last 7 days', () => {
    for (const value of ['', '1y', '__proto__']) {
      assert.equal(fromQuery(rejectedRangeOf(value), NOW), 'from=2026-11-08T10:00:00.000Z');
    }
  });

  test('all that is kept has no start', () => {
    assert.equal(fromQuery(rejectedRangeOf('all'), NOW), '');
  });

  test('the ranges of the overview start at the same time', () => {
    for (const name of ['1h', '24h']) {
      const result = rangeOf({ range: name, from: '', to: '' }, 'receipt', NOW);
      assert.ok('range' in result);
      assert.equal(fromQuery(rejectedRangeOf(name), NOW), `from=${new Date(result.range.from).toISOString()}`);
    }
  });

  test('what is asked for does not change from one second to the next', () => {
    for (const range of REJECTED_RANGES) assert.equal(fromQuery(range, NOW), fromQuery(range, NOW + 1_000));
  });
});
