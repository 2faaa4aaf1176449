/**
 * The progress of long commands: a bar where there is a terminal, a line now and then where there is none.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { formatBytes, formatCount, formatSpan, localTime, readMoment, shortTime } from '../../src/cli/local-time.ts';
import { Progress } from '../../src/cli/progress.ts';

function progressOn(isTty: boolean): { progress: Progress; text: () => string; wait: (milliseconds: number) => void } {
  let now = 1_000_000;
  let text = '';
  const progress = new Progress('users.ndjson', 'user', {
    errTerminal: { isTty, columns: 100 },
    now: () => now,
    err: (more) => {
      text += more;
    },
  });
  return {
    progress,
    text: () => text,
    wait: (milliseconds) => {
      now += milliseconds;
    },
  };
}

suite('Progress', () => {
  test('on a terminal it is a bar in one line, with rate and time left, and it goes away', () => {
    const { progress, text, wait } = progressOn(true);
    progress.show({ count: 0, bytes: 0, done: 0, total: 4_000 });
    wait(2_000);
    progress.show({ count: 2_000, bytes: 1_048_576, done: 1_000, total: 4_000, note: '3 rejected' });
    const drawn = text().split('\r').at(-1) ?? '';
    assert.match(
      drawn,
      /^users\.ndjson {2}█{4}░{12} {2}25% {2}2,000 users {2}1\.0 MB {2}1,000\/s {2}3 rejected {2}about 6s left/,
    );
    progress.end();
    assert.ok(text().endsWith('\r\u001b[K'));
    assert.ok(!text().includes('\n'));
  });

  test('it is redrawn ten times a second at most, and never wider than the terminal', () => {
    const { progress, text, wait } = progressOn(true);
    for (let n = 0; n < 1_000; n++) {
      progress.show({ count: n, bytes: n, done: n, total: 1_000, note: 'x'.repeat(200) });
      wait(1);
    }
    const frames = text().split('\r').slice(1);
    assert.equal(frames.length, 10);
    for (const frame of frames) assert.ok(frame.replace('\u001b[K', '').length < 100);
  });

  test('elsewhere it is a line every five seconds, without control characters', () => {
    const { progress, text, wait } = progressOn(false);
    for (let second = 0; second < 12; second++) {
      progress.show({ count: second * 10, bytes: 0, done: second, total: null });
      wait(1_000);
    }
    progress.end();
    assert.equal(text(), 'users.ndjson  50 users  0 B  10/s\nusers.ndjson  100 users  0 B  10/s\n');
  });

  test('what an earlier run did counts for the share, not for the rate', () => {
    const { progress, text, wait } = progressOn(true);
    progress.show({ count: 5_000, bytes: 0, done: 5_000, total: 10_000 });
    wait(1_000);
    progress.show({ count: 6_000, bytes: 0, done: 6_000, total: 10_000 });
    assert.match(text(), /60% {2}6,000 users {2}0 B {2}1,000\/s {2}about 4s left/);
  });
});

suite('Times and amounts for people', () => {
  test('spans, sizes and counts read well', () => {
    assert.deepEqual([0, 999, 1_000, 61_000, 3_600_000, 90_000_000].map(formatSpan), [
      '0 ms',
      '999 ms',
      '1s',
      '1m 1s',
      '1h',
      '1d 1h',
    ]);
    assert.deepEqual([0, 1_023, 1_536, 200 * 1_024 ** 2].map(formatBytes), ['0 B', '1023 B', '1.5 kB', '200 MB']);
    assert.deepEqual([0, 999, 1_000, 1_234_567].map(formatCount), ['0', '999', '1,000', '1,234,567']);
  });

  test('a local time is that of the zone of the process', () => {
    const time = new Date(2026, 0, 2, 3, 4, 5).valueOf();
    assert.equal(localTime(time), '2026-01-02 03:04:05');
    assert.equal(localTime(new Date(12_026, 0, 2, 3, 4, 5).getTime()), '12026-01-02 03:04:05');
    assert.equal(localTime(Date.parse('edited by hand')), 'an unknown time');
    assert.equal(shortTime(time + 6, time), '03:04:05.006');
    assert.equal(shortTime(time, time + 86_400_000), '01-02 03:04 ');
    assert.equal(shortTime(time, time + 366 * 86_400_000), `${localTime(time).slice(0, 10)}  `);
  });

  test('moments are times ago or ISO 8601', () => {
    const read = (from: string, now: number): number | undefined => {
      const flags = { values: new Map([['from', from]]), switches: new Set<string>(), positionals: [], mistakes: [] };
      return readMoment(flags, 'from', now);
    };
    assert.equal(read('10m', 1_000_000), 400_000);
    assert.equal(read('2026-01-31', 0), Date.UTC(2026, 0, 31));
    assert.equal(read('2026-02-30', 0), undefined);
    assert.equal(read('yesterday', 0), undefined);
  });
});
