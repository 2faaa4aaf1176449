/** A thread that counts into its own slot: `rounds` times one request of one user, 3 ms and 100 bytes. */

import { parentPort, workerData } from 'node:worker_threads';
import { METRIC, metricsWriter, renderMetrics } from '../../src/telemetry/metrics.ts';

const { buffer, slot, rounds } = workerData as { buffer: SharedArrayBuffer; slot: number; rounds: number };
const metrics = metricsWriter(buffer, slot);
for (let round = 0; round < rounds; round++) {
  metrics.inc(METRIC.requests_202);
  metrics.inc(METRIC.body_bytes, 100);
  metrics.observe(METRIC.request_duration, 0.003);
}
parentPort?.postMessage(renderMetrics(buffer));
