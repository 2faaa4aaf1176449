/**
 * The CPU time that a user costs, from the socket until all is stored: both sides of `--against` at the same time, each
 * on a fresh server and under the same load at a fixed rate. A machine that slows down then slows both, so small
 * differences show that turns of some seconds do not. The rate is far below what a server can do, so that both fit.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { SIDES, type SideName } from './against.ts';
import { type Benchmark, type Context, type CostPace, START_SECONDS } from './context.ts';
import { assertAllAccepted, Generator, type LoadResult } from './generator.ts';
import type { Population } from './people-generator.ts';
import type { Noise } from './noise.ts';
import { cpuReading, cpuUsed, threadTimes, type ThreadTime } from './proc.ts';
import type { Figure, Outcome } from './report.ts';
import type { Server, Stage } from './servers.ts';

interface Load {
  readonly name: string;
  readonly connections: number;
  readonly usersPerRequest: number;
  readonly usersPerSecond: number;
}

const LOADS: readonly Load[] = [
  { name: 'cost, one user', connections: 16, usersPerRequest: 1, usersPerSecond: 1_000 },
  { name: 'cost, 100 users', connections: 4, usersPerRequest: 100, usersPerSecond: 8_000 },
];
const POPULATION: Population = {
  people: 200_000,
  order: { seed: 1, newShare: 0.1 },
  carries: 'everything',
  anonymousShare: 0.3,
  eventIds: true,
};
const THREADS = ['edge', 'log writer', 'processor'];

type Sides<Value> = Readonly<Record<SideName, Value>>;

export const costBenchmark: Benchmark = {
  name: 'cost',
  what: 'CPU time per user, of both sides of --against at the same time',
  onlyByName: true,
  seconds: ({ cost }) => (LOADS.length * loadSeconds(cost)) / 2,
  run: async () => Promise.reject(new Error('it runs with --against only')),
  runBoth: async (contexts) => {
    const rows: { new: Outcome[]; old: Outcome[] } = { new: [], old: [] };
    for (const load of LOADS) {
      const both = await contexts.new.onStage(async (newStage) =>
        contexts.old.onStage(async (oldStage) => measure(contexts.new, { new: newStage, old: oldStage }, load)),
      );
      rows.new.push(both.new);
      rows.old.push(both.old);
    }
    return rows;
  },
};

function loadSeconds({ warmupSeconds, seconds, afterwardsSeconds }: CostPace): number {
  return 2 * START_SECONDS + warmupSeconds + seconds + 2 * afterwardsSeconds;
}

async function measure(context: Context, stages: Sides<Stage>, load: Load): Promise<Sides<Outcome>> {
  const { progress, pace } = context;
  progress.begin(`${load.name}: both sides`, loadSeconds(pace.cost));
  const generators = { new: context.generator, old: new Generator() };
  try {
    const servers = {
      new: await stages.new.startSluice('new', null, {}),
      old: await stages.old.startSluice('old', null, {}),
    };
    const coresBefore = await context.capacity.now();
    await loadBoth(load, generators, servers, pace.cost.warmupSeconds);
    await sleep(pace.cost.afterwardsSeconds * 1000);
    const before = bothOf((side) => threadTimes(servers[side].pid));
    const pids = SIDES.map((side) => servers[side].pid);
    const cpuBefore = cpuReading(...pids);
    const from = performance.now();
    const results = await loadBoth(load, generators, servers, pace.cost.seconds);
    await Promise.all([context.settle(servers.new), context.settle(servers.old)]);
    await sleep(pace.cost.afterwardsSeconds * 1000);
    const costs = bothOf((side) => costOf(before[side], threadTimes(servers[side].pid)));
    const generatorCpu = results.new.generatorCpuSeconds + results.old.generatorCpuSeconds;
    const { others } = cpuUsed(cpuBefore, cpuReading(...pids), generatorCpu);
    const otherCores = others / ((performance.now() - from) / 1000);
    const noise = { cores: Math.min(coresBefore, await context.capacity.now()), otherCores };
    await Promise.all(SIDES.map(async (side) => servers[side].stop()));
    return bothOf((side) => outcomeOf(load, costs[side], results[side], noise));
  } finally {
    generators.old.close();
  }
}

async function loadBoth(
  load: Load,
  generators: Sides<Generator>,
  servers: Sides<Server>,
  seconds: number,
): Promise<Sides<LoadResult>> {
  const { connections, usersPerSecond, usersPerRequest } = load;
  const requests = { population: POPULATION, sizes: [usersPerRequest] };
  const job = { requests, connections, usersPerSecond, end: { seconds } };
  const runs = bothOf((side) => generators[side].run(servers[side], job, seconds));
  const [ofNew, ofOld] = await Promise.all([runs.new, runs.old]);
  assertAllAccepted('new', ofNew);
  assertAllAccepted('old', ofOld);
  return { new: ofNew, old: ofOld };
}

interface Cost {
  /** CPU-seconds of the process. */
  readonly all: number;
  readonly byThread: ReadonlyMap<string, number>;
}

function costOf(before: ReadonlyMap<string, ThreadTime>, after: ReadonlyMap<string, ThreadTime>): Cost {
  const byThread = new Map<string, number>();
  let all = 0;
  for (const [thread, { name, seconds }] of after) {
    const used = seconds - (before.get(thread)?.seconds ?? 0);
    byThread.set(name, (byThread.get(name) ?? 0) + used);
    all += used;
  }
  return { all, byThread };
}

function outcomeOf({ name }: Load, cost: Cost, result: LoadResult, noise: Noise): Outcome {
  const figure = (figureName: string, seconds: number): Figure => ({
    name: figureName,
    value: (seconds / result.users) * 1e6,
    unit: 's per million users',
    better: 'lower',
  });
  return {
    name,
    ours: '',
    noise,
    figures: [
      figure('CPU', cost.all),
      ...THREADS.map((thread) => figure(`CPU, ${thread}`, cost.byThread.get(thread) ?? Number.NaN)),
    ],
    data: { result },
  };
}

function bothOf<Value>(of: (side: SideName) => Value): Sides<Value> {
  return { new: of('new'), old: of('old') };
}
