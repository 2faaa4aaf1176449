import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { AppendSignal } from '../../src/runtime/append-signal.ts';

/** Less than the timeout of a wait, and far more than a wake-up takes. */
const SOON_MS = 300;
/** Of several, since a busy machine may stop for a moment in any of them. */
const TRIES = 8;

async function durationOf(work: Promise<void>): Promise<number> {
  const startedAt = performance.now();
  await work;
  return performance.now() - startedAt;
}

suite('The signal that the log has more', () => {
  test('wakes a waiting thread up with a commit, through memory that threads share', async () => {
    const buffer = AppendSignal.allocate();
    const waiting = new AppendSignal(buffer);
    await waiting.wait();
    const durations: number[] = [];
    for (let tries = 0; tries < TRIES; tries++) {
      const duration = durationOf(waiting.wait());
      new AppendSignal(buffer).committed();
      durations.push(await duration);
    }
    assert.ok(Math.min(...durations) < SOON_MS, `${durations.join(', ')} ms`);
  });

  test('does not wait for a commit that came before, reports it once, and ends every wait after a while', async () => {
    const signal = new AppendSignal(AppendSignal.allocate());
    await signal.wait();
    const durations: number[] = [];
    for (let tries = 0; tries < TRIES; tries++) {
      signal.committed();
      durations.push(await durationOf(signal.wait()));
    }
    assert.ok(Math.min(...durations) < SOON_MS, `${durations.join(', ')} ms`);
    assert.ok((await durationOf(signal.wait())) > SOON_MS);
  });
});
