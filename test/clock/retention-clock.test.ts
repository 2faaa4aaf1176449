/** The time of retention over restarts: a wrong clock must not remove anything at once, and a right one catches up. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { openRetentionClock } from '../../src/clock/retention-clock.ts';
import { DAY_MS, MINUTE_MS } from '../../src/model.ts';
import { folderIn } from '../faults/scope.ts';

const START = Date.UTC(2026, 10, 1);

suite('The time of retention', () => {
  test('follows the clock while that is right', async () => {
    await using scope = new AsyncDisposableStack();
    let passed = 0;
    const file = join(folderIn(scope), 'retention-time');
    const clock = openRetentionClock({ file, time: () => START + passed, monotonic: () => passed });
    for (; passed < DAY_MS; passed += MINUTE_MS) assert.equal(clock(), START + passed);
  });

  test('does not follow a clock that is wrong at a start, nor in a crash loop', async () => {
    await using scope = new AsyncDisposableStack();
    const file = join(folderIn(scope), 'retention-time');
    openRetentionClock({ file, time: () => START, monotonic: () => 0 })();
    for (let restart = 0; restart < 50; restart++) {
      let passed = 0;
      const clock = openRetentionClock({ file, time: () => START + 100 * DAY_MS, monotonic: () => passed });
      assert.ok(clock() <= START + 50 * MINUTE_MS);
      passed = 5_000;
      clock();
    }
    const right = openRetentionClock({ file, time: () => START + 60 * MINUTE_MS, monotonic: () => 0 });
    assert.ok(right() <= START + 60 * MINUTE_MS);
  });

  test('catches up after a long stop, four times as fast as time passes', async () => {
    await using scope = new AsyncDisposableStack();
    const file = join(folderIn(scope), 'retention-time');
    openRetentionClock({ file, time: () => START, monotonic: () => 0 })();
    let passed = 0;
    const clock = openRetentionClock({ file, time: () => START + 30 * DAY_MS + passed, monotonic: () => passed });
    assert.equal(clock(), START);
    passed = DAY_MS;
    assert.equal(clock(), START + 4 * DAY_MS);
    passed = 11 * DAY_MS;
    assert.equal(clock(), START + 41 * DAY_MS);
  });

  test('continues at once when a clock that was behind is right again, and removes nothing meanwhile', async () => {
    await using scope = new AsyncDisposableStack();
    const file = join(folderIn(scope), 'retention-time');
    let [time, passed] = [START, 0];
    const setup = { file, time: () => time, monotonic: () => passed };
    const clock = openRetentionClock(setup);
    assert.equal(clock(), START);
    for (const behind of [Date.UTC(1970, 0, 2), Date.UTC(2026, 5, 1)]) {
      [time, passed] = [behind, passed + MINUTE_MS];
      assert.equal(clock(), behind);
      assert.equal(openRetentionClock(setup)(), behind);
      [time, passed] = [START + passed + MINUTE_MS, passed + MINUTE_MS];
      assert.equal(clock(), time);
      assert.equal(openRetentionClock(setup)(), time);
    }
  });

  test('takes the time of a machine whose clock was just set', async () => {
    await using scope = new AsyncDisposableStack();
    const file = join(folderIn(scope), 'retention-time');
    let time = Date.UTC(1970, 0, 1) + 5_000;
    const clock = openRetentionClock({ file, time: () => time, monotonic: () => 0 });
    clock();
    time = START;
    assert.equal(clock(), START);
  });

  test('begins with the clock where the file is missing or is none', async () => {
    await using scope = new AsyncDisposableStack();
    const file = join(folderIn(scope), 'retention-time');
    writeFileSync(file, 'not a time');
    assert.equal(openRetentionClock({ file, time: () => START, monotonic: () => 0 })(), START);
  });
});
