/**
 * The benchmark of memory: 32 connections send bodies of 10 MB, as large as they may be, one after the other, and the
 * server's resident memory is read ten times a second. A server that cannot take more answers 503, and the generator
 * rests for 100 ms then, as a client would. The run is cut short rather than fill the disk.
 */

import { statfsSync } from 'node:fs';
import { perSecond, START_SECONDS } from './context.ts';
import type { Benchmark, Context } from './context.ts';
import type { LoadResult } from './generator.ts';
import { residentMegabytes } from './proc.ts';
import type { Outcome } from './report.ts';

const CONNECTIONS = 32;
const BACKOFF_MILLISECONDS = 100;
const SAMPLE_MILLISECONDS = 100;
const REST_SECONDS = 3;
const LIMIT_MEGABYTES = 600;
/** More than a disk of today takes from one server, so that a cut run never fills it. */
const DISK_BYTES_PER_SECOND = 400e6;
const DISK_RESERVE_BYTES = 2e9;

export const memoryBenchmark: Benchmark = {
  name: 'memory',
  what: `${CONNECTIONS} connections sending bodies of 10 MB`,
  seconds: (pace) => START_SECONDS + 2 * REST_SECONDS + pace.memorySeconds,
  run: async (context) =>
    context.onStage(async (stage) => {
      context.progress.begin('memory: starting, at rest', START_SECONDS + REST_SECONDS);
      const folder = stage.freshFolder();
      const key = await stage.createKey(folder);
      const ours = await stage.startSluice('ours', key, { folder });
      await sleep(REST_SECONDS);
      const rest = residentMegabytes(ours.pid).now;

      const seconds = affordableSeconds(folder, context.pace.memorySeconds);
      context.progress.begin('memory: under load', seconds);
      const samples: number[] = [];
      const sampler = setInterval(() => samples.push(residentMegabytes(ours.pid).now), SAMPLE_MILLISECONDS);
      const result = await load(context, { ...ours, key }, seconds);
      clearInterval(sampler);
      const { peak } = residentMegabytes(ours.pid);
      context.progress.begin('memory: at rest again', REST_SECONDS);
      await sleep(REST_SECONDS);
      const after = residentMegabytes(ours.pid).now;
      await ours.stop();
      return [outcome({ rest, peak, after, samples }, result)];
    }),
};

async function load(
  context: Context,
  server: { readonly port: number; readonly key: string; readonly pid: number },
  seconds: number,
): Promise<LoadResult> {
  return context.generator.run({
    port: server.port,
    key: server.key,
    shape: '10 MB',
    connections: CONNECTIONS,
    warmupSeconds: 0,
    seconds,
    rate: null,
    backoffMilliseconds: BACKOFF_MILLISECONDS,
    serverPid: server.pid,
  });
}

interface Resident {
  readonly rest: number;
  readonly peak: number;
  readonly after: number;
  readonly samples: readonly number[];
}

function outcome(resident: Resident, result: LoadResult): Outcome {
  const mean = resident.samples.reduce((sum, value) => sum + value, 0) / resident.samples.length;
  const refused = result.statuses['503'] ?? 0;
  const others = Object.entries(result.statuses).filter(([status]) => status !== '202' && status !== '503');
  return {
    name: 'memory',
    ours: `${Math.round(resident.peak)} MB at most`,
    yardstick: `at rest: ${Math.round(resident.rest)} MB`,
    ratio: null,
    goal: `< ${LIMIT_MEGABYTES} MB`,
    met: resident.peak < LIMIT_MEGABYTES && others.length === 0 && result.accepted > 0,
    notes: [
      `mean under load ${Math.round(mean)} MB, ${REST_SECONDS} s after it ${Math.round(resident.after)} MB`,
      `${result.accepted} × 202 and ${refused} × 503 in ${Math.round(result.seconds)} s, ` +
        `${(perSecond(result) * 10.5).toFixed(0)} MB/s taken; broken connections ${result.broken}` +
        others.map(([status, count]) => `; ${count} × ${status}`).join(''),
    ],
    figures: [
      { name: 'RSS at rest', value: resident.rest, unit: 'MB', better: 'lower' },
      { name: 'RSS at most', value: resident.peak, unit: 'MB', better: 'lower' },
      { name: 'RSS under load', value: mean, unit: 'MB', better: 'lower' },
    ],
    data: { ...resident, result },
  };
}

function affordableSeconds(folder: string, wanted: number): number {
  const { bavail, bsize } = statfsSync(folder);
  return Math.max(1, Math.min(wanted, (bavail * bsize - DISK_RESERVE_BYTES) / DISK_BYTES_PER_SECOND));
}

async function sleep(seconds: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}
