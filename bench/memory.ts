/**
 * The benchmark of memory, in two forms, each with a server of its own whose resident memory is read ten times a second.
 * Large bodies: 32 connections send bodies of 10 MB, as large as they may be, one after the other. Single users: 64
 * connections send requests of one user with a random `$event_id`, as fast as they are responded to. A server that cannot
 * take more responds with 503, and with large bodies the generator rests for 100 ms then, as a client would. The run is cut
 * short rather than fill the disk.
 */

import { statfsSync } from 'node:fs';
import { type Benchmark, type Context, START_SECONDS } from './context.ts';
import type { Population } from './people-generator.ts';
import { residentMegabytes } from './proc.ts';
import { type Outcome, thousands } from './report.ts';
import type { Server, Stage } from './servers.ts';

const BACKOFF_MILLISECONDS = 100;
const SAMPLE_MILLISECONDS = 100;
const REST_SECONDS = 3;
const DISK_RESERVE_BYTES = 2e9;
const PATIENCE_SECONDS = 30;
const POPULATION: Population = { people: 200_000, order: { seed: 20_261_120 }, carries: 'everything', eventIds: true };

interface Form {
  readonly name: string;
  readonly limitMegabytes: number;
  /** More than a server takes in this form, so that a cut run never fills the disk. */
  readonly diskBytesPerSecond: number;
  load(context: Context, server: Server, seconds: number): Promise<Load>;
}

interface Load {
  readonly seconds: number;
  readonly accepted: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly broken: number;
}

const FORMS: readonly Form[] = [
  {
    name: 'memory, 10 MB bodies',
    limitMegabytes: 600,
    diskBytesPerSecond: 400e6,
    load: async (context, server, seconds) =>
      context.generator.run({
        port: server.port,
        key: server.key,
        shape: '10 MB',
        connections: 32,
        warmupSeconds: 0,
        seconds,
        rate: null,
        backoffMilliseconds: BACKOFF_MILLISECONDS,
        serverPid: server.pid,
      }),
  },
  {
    name: 'memory, single users',
    limitMegabytes: 400,
    diskBytesPerSecond: 100e6,
    load: async (context, server, seconds) =>
      context.generator.stream({
        port: server.port,
        key: server.key,
        connections: 64,
        population: POPULATION,
        usersPerRequest: 1,
        end: { seconds },
        secondsMax: seconds + PATIENCE_SECONDS,
      }),
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
  await sleep(REST_SECONDS);
  const rest = residentMegabytes(server.pid).now;

  const seconds = affordableSeconds(folder, form.diskBytesPerSecond, context.pace.memorySeconds);
  context.progress.begin(`${form.name}: under load`, seconds);
  const samples: number[] = [];
  const sampler = setInterval(() => samples.push(residentMegabytes(server.pid).now), SAMPLE_MILLISECONDS);
  const load = await form.load(context, server, seconds);
  clearInterval(sampler);
  context.progress.begin(`${form.name}: at rest again`, REST_SECONDS);
  await sleep(REST_SECONDS);
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

function outcome({ name, limitMegabytes }: Form, resident: Resident, load: Load): Outcome {
  const mean = resident.samples.reduce((sum, value) => sum + value, 0) / resident.samples.length;
  const refused = load.statuses['503'] ?? 0;
  const others = Object.entries(load.statuses).filter(([status]) => status !== '202' && status !== '503');
  return {
    name,
    ours: `${Math.round(resident.peak)} MB at most`,
    baseline: `at rest: ${Math.round(resident.rest)} MB`,
    ratio: null,
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

function affordableSeconds(folder: string, bytesPerSecond: number, wanted: number): number {
  const { bavail, bsize } = statfsSync(folder);
  return Math.max(1, Math.min(wanted, (bavail * bsize - DISK_RESERVE_BYTES) / bytesPerSecond));
}

async function sleep(seconds: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}
