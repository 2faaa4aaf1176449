import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import * as fc from 'fast-check';
import {
  allocateMetrics,
  METRIC,
  metricsWriter,
  REQUESTS_BY_STATUS,
  readGauge,
  renderMetrics,
} from '../../src/telemetry/metrics.ts';
import { parsePrometheus, valueOf } from '../prometheus-text.ts';

const ROUNDS = 200_000;

function startCounting(buffer: SharedArrayBuffer, slot: number): Worker {
  return new Worker(new URL('./metrics-worker.ts', import.meta.url), { workerData: { buffer, slot, rounds: ROUNDS } });
}

const COUNTERS = [METRIC.requests_202, METRIC.requests_503, METRIC.users_accepted, METRIC.unavailable_disk] as const;
const COUNTER_SERIES: [string, Record<string, string>][] = [
  ['sluice_requests_total', { status: '202' }],
  ['sluice_requests_total', { status: '503' }],
  ['sluice_users_accepted_total', {}],
  ['sluice_unavailable_total', { reason: 'disk' }],
];

describe('metrics', () => {
  test('what two threads count at the same time adds up exactly', async () => {
    const buffer = allocateMetrics(2);
    const workers = [startCounting(buffer, 0), startCounting(buffer, 1)];
    await Promise.all(workers.map((worker) => once(worker, 'exit')));

    const families = parsePrometheus(renderMetrics(buffer));
    assert.equal(valueOf(families, 'sluice_requests_total', { status: '202' }), 2 * ROUNDS);
    assert.equal(valueOf(families, 'sluice_body_bytes_total'), 2 * ROUNDS * 100);
    assert.equal(valueOf(families, 'sluice_request_duration_seconds_count'), 2 * ROUNDS);
  });

  test('a reading taken while a thread counts is whole and never goes back', async () => {
    const buffer = allocateMetrics(2);
    const worker = startCounting(buffer, 1);
    const exited = once(worker, 'exit');
    let requests = 0;
    // A thread that has ended has the id -1.
    while (worker.threadId !== -1) {
      const families = parsePrometheus(renderMetrics(buffer));
      const now = valueOf(families, 'sluice_requests_total', { status: '202' });
      assert.ok(now >= requests, `${now} after ${requests}`);
      requests = now;
      const count = valueOf(families, 'sluice_request_duration_seconds_count');
      assert.equal(valueOf(families, 'sluice_request_duration_seconds_bucket', { le: '+Inf' }), count);
      await new Promise(setImmediate);
    }
    await exited;
    const families = parsePrometheus(renderMetrics(buffer));
    assert.equal(valueOf(families, 'sluice_requests_total', { status: '202' }), ROUNDS);
  });

  test('a thread renders what the other threads counted, and the same start of the process', async () => {
    const buffer = allocateMetrics(2);
    metricsWriter(buffer, 0).inc(METRIC.users_rejected, 7);
    const [text] = (await once(startCounting(buffer, 1), 'message')) as [string];
    const theirs = parsePrometheus(text);
    const ours = parsePrometheus(renderMetrics(buffer));
    assert.equal(valueOf(theirs, 'sluice_users_rejected_total'), 7);
    assert.equal(valueOf(theirs, 'process_start_time_seconds'), valueOf(ours, 'process_start_time_seconds'));
  });

  test('whatever is added in whatever slot, the rendered sums are what was added', () => {
    const addition = fc.record({
      slot: fc.nat(2),
      counter: fc.nat(COUNTERS.length - 1),
      by: fc.option(fc.nat(1_000_000), { nil: undefined }),
    });
    fc.assert(
      fc.property(fc.array(addition, { maxLength: 50 }), (additions) => {
        const buffer = allocateMetrics(3);
        const expected = COUNTERS.map(() => 0);
        for (const { slot, counter, by } of additions) {
          metricsWriter(buffer, slot).inc(COUNTERS[counter]!, by);
          expected[counter]! += by ?? 1;
        }
        const families = parsePrometheus(renderMetrics(buffer));
        assert.deepEqual(
          COUNTER_SERIES.map(([name, labels]) => valueOf(families, name, labels)),
          expected,
        );
      }),
    );
  });

  test('whatever is observed, each bucket counts what is at most its bound, and the sum is the sum', () => {
    const seconds = fc.oneof(
      fc.constantFrom(0, 0.0001, 0.001, 0.25, 10, 10.5),
      fc.double({ min: 0, max: 20, noNaN: true }),
    );
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(1), seconds), { maxLength: 40 }), (observations) => {
        const buffer = allocateMetrics(2);
        for (const [slot, value] of observations)
          metricsWriter(buffer, slot).observe(METRIC.log_commit_duration, value);
        const family = parsePrometheus(renderMetrics(buffer)).get('sluice_log_commit_duration_seconds');
        assert.ok(family);
        const buckets = family.samples.filter(({ name }) => name.endsWith('_bucket'));
        assert.equal(buckets.length, 17);
        for (const { labels, value } of buckets) {
          const bound = labels['le'] === '+Inf' ? Infinity : Number(labels['le']);
          assert.equal(value, observations.filter(([, observed]) => observed <= bound).length);
        }
        const sum = family.samples.find(({ name }) => name.endsWith('_sum'))?.value ?? Number.NaN;
        const expected = observations.reduce((total, [, value]) => total + value, 0);
        assert.ok(Math.abs(sum - expected) <= 1e-9 * Math.max(1, expected));
        assert.equal(family.samples.find(({ name }) => name.endsWith('_count'))?.value, observations.length);
      }),
    );
  });

  test('a duration that comes out negative or not a number counts as zero', () => {
    const buffer = allocateMetrics(1);
    const metrics = metricsWriter(buffer, 0);
    metrics.observe(METRIC.request_duration, -0.5);
    metrics.observe(METRIC.request_duration, Number.NaN);
    const families = parsePrometheus(renderMetrics(buffer));
    assert.equal(valueOf(families, 'sluice_request_duration_seconds_bucket', { le: '0.0001' }), 2);
    assert.equal(valueOf(families, 'sluice_request_duration_seconds_sum'), 0);
  });

  test('bytes in flight are added up over the threads, and going down is seen', () => {
    const buffer = allocateMetrics(3);
    metricsWriter(buffer, 0).set(METRIC.in_flight_bytes, 1_000);
    metricsWriter(buffer, 2).set(METRIC.in_flight_bytes, 500);
    assert.equal(valueOf(parsePrometheus(renderMetrics(buffer)), 'sluice_in_flight_bytes'), 1_500);
    metricsWriter(buffer, 0).set(METRIC.in_flight_bytes, 0);
    assert.equal(valueOf(parsePrometheus(renderMetrics(buffer)), 'sluice_in_flight_bytes'), 500);
  });

  test('the server is ready when every thread that has a say is, and the longest stall is the one shown', () => {
    const buffer = allocateMetrics(3);
    metricsWriter(buffer, 0).set(METRIC.ready, 1);
    metricsWriter(buffer, 0).set(METRIC.event_loop_delay_max, 0.2);
    metricsWriter(buffer, 1).set(METRIC.event_loop_delay_max, 0.1);
    assert.equal(valueOf(parsePrometheus(renderMetrics(buffer)), 'sluice_ready'), 1);
    metricsWriter(buffer, 1).set(METRIC.ready, 0);
    const families = parsePrometheus(renderMetrics(buffer));
    assert.equal(valueOf(families, 'sluice_ready'), 0);
    assert.equal(valueOf(families, 'sluice_event_loop_delay_max_seconds'), 0.2);
  });

  test('free disk that was not measured yet is not reported as zero', () => {
    const buffer = allocateMetrics(2);
    assert.ok(!parsePrometheus(renderMetrics(buffer)).has('sluice_disk_free_bytes'));
    metricsWriter(buffer, 1).set(METRIC.disk_free_bytes, 42);
    assert.equal(valueOf(parsePrometheus(renderMetrics(buffer)), 'sluice_disk_free_bytes'), 42);
  });

  test('a gauge is read over all threads as it is rendered, and one that was never set is no number', () => {
    const buffer = allocateMetrics(3);
    assert.equal(readGauge(buffer, METRIC.disk_free_bytes), null);
    assert.equal(readGauge(buffer, METRIC.processor_lag), null);
    assert.equal(readGauge(buffer, METRIC.in_flight_bytes), 0);
    for (const [slot, value] of [5, 3].entries()) {
      for (const gauge of [METRIC.disk_free_bytes, METRIC.processor_lag, METRIC.in_flight_bytes]) {
        metricsWriter(buffer, slot).set(gauge, value);
      }
    }
    assert.equal(readGauge(buffer, METRIC.disk_free_bytes), 3);
    assert.equal(readGauge(buffer, METRIC.processor_lag), 5);
    assert.equal(readGauge(buffer, METRIC.in_flight_bytes), 8);
  });

  test('every series that can exist is there from the start, named by kind and unit, with closed labels', () => {
    const buffer = allocateMetrics(1);
    const families = parsePrometheus(renderMetrics(buffer, { version: '1.2.3' }));
    const labels = new Set(
      [...families.values()].flatMap(({ samples }) => samples.flatMap((s) => Object.keys(s.labels))),
    );
    assert.deepEqual([...labels].sort(), ['closed', 'le', 'node', 'reason', 'status', 'version']);
    for (const [name, { type }] of families) {
      assert.match(name, /^(sluice|process)_/);
      assert.equal(name.endsWith('_total'), type === 'counter', name);
      if (type === 'histogram') assert.match(name, /_seconds$/);
    }
    const statuses = families.get('sluice_requests_total')?.samples.map((sample) => Number(sample.labels['status']));
    assert.deepEqual(statuses, [...REQUESTS_BY_STATUS.keys()]);
  });

  test('the counter of a status found by its number is the one of that name', () => {
    assert.equal(REQUESTS_BY_STATUS.get(202), METRIC.requests_202);
    assert.equal(REQUESTS_BY_STATUS.get(503), METRIC.requests_503);
    assert.equal(REQUESTS_BY_STATUS.get(299), undefined);
  });

  test('no two metrics share a place', () => {
    const indexes = Object.values(METRIC);
    const named = Object.entries(METRIC).filter(([name]) => !name.startsWith('process_'));
    assert.ok(indexes.length > 30);
    assert.equal(new Set(named.map(([, index]) => index)).size, named.length);
  });

  test('version and Node are shown, and quotes in them do no harm', () => {
    const version = 'a "quoted" \\ version\nwith a line';
    const families = parsePrometheus(renderMetrics(allocateMetrics(1), { version }));
    assert.equal(valueOf(families, 'sluice_info', { version, node: process.versions.node }), 1);
  });

  test('memory, processor time and start of the process are plausible', () => {
    const families = parsePrometheus(renderMetrics(allocateMetrics(1)));
    assert.ok(valueOf(families, 'process_resident_memory_bytes') > 1e6);
    assert.ok(valueOf(families, 'process_cpu_seconds_total') > 0);
    const start = valueOf(families, 'process_start_time_seconds');
    assert.ok(start <= Date.now() / 1000 && start > Date.now() / 1000 - 3_600);
  });

  test('a slot that does not exist is refused', () => {
    const buffer = allocateMetrics(2);
    for (const slot of [-1, 2, 0.5, Number.NaN]) assert.throws(() => metricsWriter(buffer, slot), RangeError);
    for (const slots of [0, -1, 1.5]) assert.throws(() => allocateMetrics(slots), RangeError);
  });
});
