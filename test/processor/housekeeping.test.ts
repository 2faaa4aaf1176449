/** What the log and the metrics say about data that is removed between transactions. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { LogReader } from '../../src/log.ts';
import { Housekeeping } from '../../src/processor/housekeeping.ts';
import type { Retention, StoreWriter } from '../../src/store-writer.ts';
import type { Logger } from '../../src/telemetry/logger.ts';
import { allocateMetrics, METRIC, metricsWriter, readCounter } from '../../src/telemetry/metrics.ts';

test('rejections that go before their time are counted, and logged once although every sweep removes some', async () => {
  const lines: unknown[] = [];
  const metrics = allocateMetrics(1);
  const writer = {
    difference: async () => ({ users: 0, events: 0 }),
    lostRecords: async () => 0,
    processed: async () => ({ positions: new Map(), lastTraceIds: new Map(), skipped: [] }),
    sweep: async (retention: Retention) => {
      retention.onRejectionsOverLimit?.(3);
      return true;
    },
  } as Partial<StoreWriter> as StoreWriter;
  const housekeeping = new Housekeeping({
    log: { partitions: async () => [] as number[] } as Partial<LogReader> as LogReader,
    writer,
    metrics: metricsWriter(metrics, 0),
    logger: { warn: (fields: object, message: string) => lines.push([fields, message]) } as unknown as Logger,
    now: () => 0,
    retentionTime: () => 0,
    retention: { eventsMs: 1, tracesMs: 1, rejectionsMs: 1, rejectionBytesMax: 1_000 },
    backlogBytesMax: 1,
    setBacklogFull: () => undefined,
  });
  await housekeeping.run(new Map(), 0);
  await housekeeping.run(new Map(), 0);
  assert.equal(readCounter(metrics, METRIC.rejections_over_limit), 6);
  assert.deepEqual(lines, [
    [
      { removed: 3, limit_bytes: 1_000 },
      'rejected users are removed before their time, the oldest first: together they exceed SLUICE_REJECTION_BYTES',
    ],
  ]);
});
