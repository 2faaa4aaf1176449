/** Where the log is shared, the edges find out themselves how much of it waits, and no request waits for that. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { type BacklogWatchParts, watchBacklog } from '../../src/log/backlog.ts';
import { createLogger } from '../../src/telemetry/logger.ts';

const RECORD_BYTES = 10;

/** A log of two partitions whose records have ten bytes each, and a store that may be away. */
function shared(ends: readonly [number, number], bytesMax: number) {
  const state = {
    ends: [...ends],
    positions: new Map([[0, 0]]),
    isAway: false,
    full: [] as boolean[],
    report: [] as unknown[],
  };
  const parts: BacklogWatchParts = {
    log: {
      partitions: async () => [0, 1],
      backlogBytes: async (partition, position) => ((state.ends[partition] ?? 0) - position) * RECORD_BYTES,
    },
    positions: async () => {
      if (state.isAway) throw new Error('the store is away');
      return state.positions;
    },
    bytesMax,
    setFull: (isFull) => state.full.push(isFull),
    report: (bytes) => state.report.push(bytes),
    logger: createLogger('silent', 'test'),
  };
  return { state, watch: watchBacklog(parts) };
}

suite('The watch over the backlog of a shared log', () => {
  test('counts what all partitions hold beyond the positions in the store', async (context) => {
    const { state, watch } = shared([100, 50], 10_000);
    context.after(() => watch.stop());
    await watch.measure();
    state.positions.set(0, 90);
    state.positions.set(1, 50);
    await watch.measure();
    assert.deepEqual(state.report, [1_500, 100]);
    assert.deepEqual(state.full, [false, false]);
  });

  test('says full above the bound, and that there is room again only well below it', async (context) => {
    const { state, watch } = shared([101, 0], 1_000);
    context.after(() => watch.stop());
    await watch.measure();
    for (const position of [6, 10, 12]) {
      state.positions.set(0, position);
      await watch.measure();
    }
    assert.deepEqual(state.full, [true, true, true, false]);
  });

  test('while the store cannot be read, the positions last read count', async (context) => {
    const { state, watch } = shared([150, 0], 1_000);
    context.after(() => watch.stop());
    state.positions.set(0, 100);
    await watch.measure();
    state.isAway = true;
    await watch.measure();
    state.ends = [201, 0];
    await watch.measure();
    assert.deepEqual(state.full, [false, false, true]);
    assert.deepEqual(state.report, [500, 500, 1_010]);
  });

  test('positions that were never read are no reason to refuse events', async (context) => {
    const { state, watch } = shared([1_000, 0], 1_000);
    context.after(() => watch.stop());
    state.isAway = true;
    await watch.measure();
    assert.deepEqual([state.full, state.report], [[false], []]);
  });

  test('a call during a check waits for that one', async (context) => {
    const { state, watch } = shared([1, 0], 1_000);
    context.after(() => watch.stop());
    await Promise.all([watch.measure(), watch.measure(), watch.measure()]);
    assert.equal(state.report.length, 1);
  });
});
