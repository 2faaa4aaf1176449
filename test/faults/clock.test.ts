/**
 * A clock that jumps: a day back, ten years ahead, and home again. Identities never depend on it: trace_ids stay unique
 * and well formed, and the log orders by position, whatever the time of receipt says.
 */

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { openEmbeddedLogAppender } from '../../src/backends/embedded/log/appender.ts';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { createTraceIds } from '../../src/edge/trace-id.ts';
import { DAY_MS } from '../../src/model.ts';
import { entry, readAll } from '../contract/log-entries.ts';
import { folderIn } from './scope.ts';

const TEN_YEARS_MS = 3_652 * DAY_MS;
const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

const now = fc.integer({ min: Date.UTC(2024), max: Date.UTC(2100) });
/** The clock is corrected by a little now and then, and mostly stands still between two requests. */
const ordinaryStep = fc.oneof(
  { weight: 20, arbitrary: fc.constant(0) },
  { weight: 5, arbitrary: fc.integer({ min: 0, max: 50 }) },
  { weight: 1, arbitrary: fc.integer({ min: -5_000, max: 0 }) },
);
const jump = fc.constantFrom(-DAY_MS, TEN_YEARS_MS, -TEN_YEARS_MS, DAY_MS, 0);

/** The ids that are given out while the clock takes these steps, each with the time that it showed. */
function idsOver(start: number, steps: readonly number[]): { id: string; at: number }[] {
  let at = start;
  const next = createTraceIds(() => at);
  return steps.map((step) => {
    at += step;
    return { id: next(), at };
  });
}

function timeIn(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}

suite('With a clock that jumps', () => {
  test('trace_ids of edges that share the newest one ascend in the order in which they are given out', () => {
    const steps = fc.array(fc.record({ edge: fc.nat({ max: 2 }), ms: fc.nat({ max: 2 }) }), { maxLength: 300 });
    fc.assert(
      fc.property(now, steps, fc.nat({ max: 0xfff }), (start, requests, counter) => {
        let at = start;
        // Also from where the counter is nearly used up.
        const newest = new BigInt64Array([BigInt(start) * 4096n + BigInt(counter)]);
        const edges = [0, 1, 2].map(() => createTraceIds(() => at, newest));
        let last = '';
        for (const { edge, ms } of requests) {
          at += ms;
          const id = edges[edge]?.() ?? '';
          assert.match(id, UUID_V7);
          assert.ok(id > last, `${id} comes after ${last}`);
          assert.ok(Math.abs(timeIn(id) - at) <= 1);
          last = id;
        }
      }),
    );
  });

  test('trace_ids are unique and well formed', () => {
    const steps = fc.array(fc.oneof({ weight: 30, arbitrary: ordinaryStep }, { weight: 1, arbitrary: jump }), {
      minLength: 1,
      maxLength: 2_000,
      size: 'max',
    });
    fc.assert(
      fc.property(now, steps, (start, steps) => {
        const ids = idsOver(start, steps).map(({ id }) => id);
        assert.equal(new Set(ids).size, ids.length);
        for (const id of ids) assert.match(id, UUID_V7);
      }),
      { numRuns: 50 },
    );
  });

  test('trace_ids ascend as long as the clock is only corrected by seconds', () => {
    fc.assert(
      fc.property(now, fc.array(ordinaryStep, { minLength: 2, maxLength: 2_000, size: 'max' }), (start, steps) => {
        let lowest = 0;
        // Many small corrections make a large one, so the clock is kept within seconds of its highest time.
        const bounded = steps.map((step) => {
          const taken = lowest + step < -5_000 ? 0 : step;
          lowest = Math.min(0, lowest + taken);
          return taken;
        });
        const ids = idsOver(start, bounded).map(({ id }) => id);
        assert.deepEqual(ids, ids.toSorted());
      }),
      { numRuns: 50 },
    );
  });

  test('positions in the log ascend in the order of arrival', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = join(folderIn(scope), 'log');
    mkdirSync(folder);
    const log = await openEmbeddedLogAppender({
      folder,
      segmentBytes: 64 * 1_024,
      metrics: null,
      onFatal: assert.fail,
    });
    const start = Date.UTC(2026, 0);
    const times = [0, -DAY_MS, TEN_YEARS_MS, TEN_YEARS_MS + 1, -1, 0].map((away) => start + away);
    for (const [n, receivedAt] of times.entries()) await log.append(entry({ traceId: `trace-${n}`, receivedAt }));
    await log.close();
    const reader = openEmbeddedLogReader({ folder, retentionMs: 0, now: Date.now });
    const records = await readAll(reader, 0);
    await reader.close();
    assert.deepEqual(
      records.map(({ traceId, receivedAt }) => [traceId, receivedAt]),
      times.map((receivedAt, n) => [`trace-${n}`, receivedAt]),
    );
    assert.deepEqual(
      records.map(({ position }) => position),
      times.map((_, n) => n + 1),
    );
  });
});
