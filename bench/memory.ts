/**
 * The benchmark of memory, in two forms, each with a server of its own whose resident memory is read ten times a second.
 * Large bodies: 32 connections send bodies of 10 MB, as large as they may be, one after the other. Single users: 64
 * connections send requests of one user with a random `$event_id`, as fast as they are responded to. A server that cannot
 * take more responds with 503, and with large bodies the generator rests for 100 ms then, as a client would. The run is cut
 * short rather than fill the disk.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type Benchmark, type Context, START_SECONDS } from './context.ts';
import type { LoadJob, LoadResult } from './generator.ts';
import type { Population } from './people-generator.ts';
import { DISK_RESERVE_BYTES, freeBytes, residentMegabytes } from './proc.ts';
import { type Outcome, thousands } from './report.ts';
import type { Stage } from './servers.ts';

const BACKOFF_MILLISECONDS = 100;
const SAMPLE_MILLISECONDS = 100;
const REST_SECONDS = 3;
const POPULATION: Population = { people: 200_000, order: { seed: 20_261_120 }, carries: 'everything', eventIds: true };

interface Form {
  readonly name: string;
  readonly limitMegabytes: number;
  /** More than a server takes in this form, so that a cut run never fills the disk. */
  readonly diskBytesPerSecond: number;
  readonly load: Omit<LoadJob, 'end'>;
}

const FORMS: readonly Form[] = [
  {
    name: 'memory, 10 MB bodies',
    limitMegabytes: 600,
    diskBytesPerSecond: 400e6,
    load: { requests: '10 MB', connections: 32, backoffMilliseconds: BACKOFF_MILLISECONDS },
  },
  {
    name: 'memory, single users',
    limitMegabytes: 400,
    diskBytesPerSecond: 100e6,
    load: { requests: { population: POPULATION, sizes: [1] }, connections: 64 },
  },
];

export const memoryBenchmark: Benchmark = {
  name: 'memory',
  what: '32 connections sending bodies of 10 MB; 64 connections sending single users',
  seconds: (pace) => FORMS.length * (START_SECONDS + 2 * REST_SECONDS + pace.memorySeconds),
  run: async (context) => {
    const outcomes: Outcome[] = [];
    for (const form of FORMS) outcomes.push(await context.onStage(async (stage) => measure(context, stage, form)));
    return outcomes;
  },
};

async function measure(context: Context, stage: Stage, form: Form): Promise<Outcome> {
  context.progress.begin(`${form.name}: starting, at rest`, START_SECONDS + REST_SECONDS);
  const folder = stage.freshFolder();
  const key = await stage.createKey(folder);
  const server = await stage.startSluice('ours', key, { folder });
  await sleep(REST_SECONDS * 1000);
  const rest = residentMegabytes(server.pid).now;

  const affordable = (freeBytes(folder) - DISK_RESERVE_BYTES) / form.diskBytesPerSecond;
  const seconds = Math.max(1, Math.min(context.pace.memorySeconds, affordable));
  context.progress.begin(`${form.name}: under load`, seconds);
  const samples: number[] = [];
  const sampler = setInterval(() => samples.push(residentMegabytes(server.pid).now), SAMPLE_MILLISECONDS);
  const load = await context.generator.run(server, { ...form.load, end: { seconds } }, seconds);
  clearInterval(sampler);
  context.progress.begin(`${form.name}: at rest again`, REST_SECONDS);
  await sleep(REST_SECONDS * 1000);
  // What is still processed after the load counts too.
  const { now: after, peak } = residentMegabytes(server.pid);
  await server.stop();
  return outcome(form, { rest, peak, after, samples }, load);
}

interface Resident {
  readonly rest: number;
  readonly peak: number;
  readonly after: number;
  readonly samples: readonly number[];
}

function outcome({ name, limitMegabytes }: Form, resident: Resident, load: LoadResult): Outcome {
  const mean = resident.samples.reduce((sum, value) => sum + value, 0) / resident.samples.length;
  const refused = load.statuses['503'] ?? 0;
  const others = Object.entries(load.statuses).filter(([status]) => status !== '202' && status !== '503');
  return {
    name,
    ours: `${Math.round(resident.peak)} MB at most`,
    baseline: `at rest: ${Math.round(resident.rest)} MB`,
    goal: `< ${limitMegabytes} MB`,
    met: resident.peak < limitMegabytes && others.length === 0 && load.accepted > 0,
    notes: [
      `mean under load ${Math.round(mean)} MB, ${REST_SECONDS} s after it ${Math.round(resident.after)} MB`,
      `${thousands(load.accepted)} × 202 and ${thousands(refused)} × 503 in ${Math.round(load.seconds)} s, ` +
        `${thousands(load.accepted / load.seconds)} requests/s; broken connections ${load.broken}` +
        others.map(([status, count]) => `; ${count} × ${status}`).join(''),
    ],
    figures: [
      { name: 'RSS at rest', value: resident.rest, unit: 'MB', better: 'lower' },
      { name: 'RSS at most', value: resident.peak, unit: 'MB', better: 'lower' },
      { name: 'RSS under load', value: mean, unit: 'MB', better: 'lower' },
      { name: 'throughput', value: load.accepted / load.seconds, unit: 'requests/s', better: 'higher' },
    ],
    data: { ...resident, load },
  };
}
