/**
 * The benchmark sustained: how many events a second become readable when the load lasts, with 100 users a request and a
 * random `$event_id` on every event. Events are offered in an open loop whose rate follows the lag: twice a second it is
 * set to what was processed lately, a little more while the lag is below its target and a little less above it. So the
 * server is never flooded and never idle, and the rate that remains is the one at which the lag stays where it is.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type Benchmark, type Context, perSecond, START_SECONDS, type Workload } from './context.ts';
import type { Population } from './people-generator.ts';
import type { LoadResult, SteadyLoad } from './generator.ts';
import { LagMeter, type LagSample } from './lag.ts';
import { type Noise, noiseText } from './noise.ts';
import { cpuReading, cpuUsed, residentMegabytes } from './proc.ts';
import { Reader } from './reading.ts';
import { median, milliseconds, type Outcome, thousands } from './report.ts';
import { SHAPES } from './requests.ts';
import type { Server, Stage } from './servers.ts';

const WORKLOAD: Workload = { shape: '100 users', connections: 16 };
const USERS = SHAPES[WORKLOAD.shape].usersPerRequest;
const POPULATION: Population = { people: 200_000, order: { seed: 20_261_119 }, carries: 'everything', eventIds: true };

const RATE_GOAL = 100_000;
const LAG_SECONDS_GOAL = 2;
/** More of the samples above the goal, and the rate was not held. */
const LATE_SHARE_MAX = 0.05;

export const FIRST_RATE = 30_000;
const RATE_MIN = 1_000;
const CONTROL_MILLISECONDS = 500;
/** Above the second for which the processor may give way, below the goal. */
const LAG_SECONDS_TARGET = 1.5;
/** In about so many seconds the lag shall be at its target. */
const HORIZON_SECONDS = 4;
/** Long enough for several transactions of the processor. */
export const RECENT_MILLISECONDS = 3_000;
const DRAIN_SECONDS_MAX = 120;

export const sustainedBenchmark: Benchmark = {
  name: 'sustained',
  what: '100 users a request with $event_id: the rate at which lag stays under 2 s',
  seconds: ({ sustained: { warmupSeconds, seconds }, firstSeconds }) =>
    2 * (START_SECONDS + firstSeconds) + warmupSeconds + seconds + LAG_SECONDS_TARGET,
  run: async (context) => context.onStage(async (stage) => sustain(context, stage)),
};

interface SustainedResult {
  readonly seconds: number;
  /** Events that became readable, and those that were accepted, in the measured time. */
  readonly done: number;
  readonly accepted: number;
  readonly barePerSecond: readonly [before: number, after: number];
  readonly lag: { readonly p50: number; readonly max: number; readonly lateShare: number };
  /** Offered in the measured time, twice a second. */
  readonly rates: readonly number[];
  readonly load: LoadResult;
  /** After the last request, until nothing was pending. */
  readonly drainSeconds: number;
  readonly cpuPerMillion: number;
  readonly megabytes: number;
  readonly noise: Noise;
}

async function sustain(context: Context, stage: Stage): Promise<Outcome[]> {
  const bareBefore = await bareUsersPerSecond(context, stage);
  context.progress.begin('sustained: starting', START_SECONDS);
  const server = await stage.startSluice('ours', null, {});
  const result = await measure(context, server);
  await server.stop();
  const bareAfter = await bareUsersPerSecond(context, stage);
  return [outcome({ ...result, barePerSecond: [bareBefore, bareAfter] })];
}

async function bareUsersPerSecond(context: Context, stage: Stage): Promise<number> {
  context.progress.begin('sustained: bare', START_SECONDS + context.pace.firstSeconds);
  const bare = await stage.startBaseline('bare');
  const result = await context.drive(bare, WORKLOAD, context.pace.firstSeconds);
  await bare.stop();
  return perSecond(result) * USERS;
}

async function measure(context: Context, server: Server): Promise<Omit<SustainedResult, 'barePerSecond'>> {
  const { warmupSeconds, seconds } = context.pace.sustained;
  const coresBefore = await context.capacity.now();
  const meter = new LagMeter(server);
  await meter.next();
  const requests = { population: POPULATION, sizes: [USERS] };
  const offer = { requests, connections: WORKLOAD.connections, usersPerSecond: FIRST_RATE };
  const load = context.generator.steady(server, offer, warmupSeconds + seconds);
  context.progress.begin('sustained: finding the rate', warmupSeconds);
  await follow(meter, load, warmupSeconds);
  const before = { sample: await meter.next(), cpu: cpuReading(server.pid) };
  context.progress.begin('sustained: measuring', seconds);
  const rates = await follow(meter, load, seconds);
  const after = { sample: await meter.next(), cpu: cpuReading(server.pid) };
  const samples = meter.since(before.sample.at);
  const loaded = await load.stop();
  const drainSeconds = await meter.drained(DRAIN_SECONDS_MAX);
  await meter.stop();
  await assertAllStored(server, loaded);
  const cores = Math.min(coresBefore, await context.capacity.now());

  const lags = samples.map(({ lagSeconds }) => lagSeconds);
  const measuredSeconds = (after.sample.at - before.sample.at) / 1000;
  const done = after.sample.done - before.sample.done;
  const generatorCpu = (loaded.generatorCpuSeconds / loaded.seconds) * measuredSeconds;
  const used = cpuUsed(before.cpu, after.cpu, generatorCpu);
  return {
    seconds: measuredSeconds,
    done,
    accepted: after.sample.received - before.sample.received,
    lag: {
      p50: median(lags),
      max: Math.max(...lags),
      lateShare: lags.filter((lag) => lag >= LAG_SECONDS_GOAL).length / lags.length,
    },
    rates,
    load: loaded,
    drainSeconds,
    cpuPerMillion: (used.servers / done) * 1e6,
    megabytes: residentMegabytes(server.pid).peak,
    noise: { cores, otherCores: used.others / measuredSeconds },
  };
}

/** Lets the offered rate follow the lag for some seconds; returns the rates that it set. */
async function follow(meter: LagMeter, load: SteadyLoad, seconds: number): Promise<number[]> {
  const until = performance.now() + seconds * 1000;
  const rates: number[] = [];
  while (performance.now() < until) {
    await sleep(CONTROL_MILLISECONDS);
    meter.assertWell();
    const rate = nextRate(meter.since(performance.now() - RECENT_MILLISECONDS));
    if (rate === null) continue;
    load.setRate(rate);
    rates.push(rate);
  }
  return rates;
}

/** What to offer after these samples; null when they are too few to say. */
export function nextRate(recent: readonly LagSample[]): number | null {
  const [first, last] = [recent[0], recent.at(-1)];
  if (first === undefined || last === undefined || last.at - first.at < RECENT_MILLISECONDS / 2) return null;
  const processedPerSecond = ((last.done - first.done) / (last.at - first.at)) * 1000;
  const change = (LAG_SECONDS_TARGET - last.lagSeconds) / HORIZON_SECONDS;
  return Math.max(RATE_MIN, processedPerSecond * (1 + Math.max(-0.5, change)));
}

/** What was accepted must be readable at the end, each event once. */
async function assertAllStored(server: Server, { users, broken, unanswered }: LoadResult): Promise<void> {
  const reader = new Reader(server);
  const { stored, difference } = await reader.ledger();
  reader.close();
  if (broken + unanswered === 0 && stored === users && difference === 0) return;
  throw new Error(
    `${stored} events are stored where ${users} were accepted; the ledger differs by ${difference}; ` +
      `${broken} connections broke, ${unanswered} requests had no response`,
  );
}

function outcome(result: SustainedResult): Outcome {
  const { lag, load, noise, barePerSecond } = result;
  const rate = result.done / result.seconds;
  const bare = (barePerSecond[0] + barePerSecond[1]) / 2;
  const isHeld = lag.lateShare <= LATE_SHARE_MAX;
  const refused = Object.entries(load.statuses).filter(([status]) => status !== '202');
  return {
    name: 'sustained',
    ours: `${thousands(rate)} events/s`,
    baseline: `bare: ${thousands(bare)} users/s`,
    ratio: rate / bare,
    goal: `≥ ${thousands(RATE_GOAL)} events/s`,
    met: rate >= RATE_GOAL && isHeld && refused.length === 0,
    notes: [
      `${isHeld ? 'held' : 'NOT HELD'} for ${Math.round(result.seconds)} s: lag p50 ${lag.p50.toFixed(2)} s, at most ` +
        `${lag.max.toFixed(2)} s, ${LAG_SECONDS_GOAL} s or more in ${(lag.lateShare * 100).toFixed(0)} % of the samples; ` +
        noiseText(noise),
      `accepted ${thousands(result.accepted / result.seconds)} events/s, response after p50 ` +
        `${milliseconds(load.latency.p50)}, p99 ${milliseconds(load.latency.p99)}; offered between ` +
        `${thousands(Math.min(...result.rates))} and ${thousands(Math.max(...result.rates))} events/s; ` +
        `${result.drainSeconds.toFixed(1)} s after the last request all of it was readable` +
        refused.map(([status, count]) => `; ${thousands(count)} × ${status}`).join(''),
      `CPU-seconds of the server per million events: ${result.cpuPerMillion.toFixed(1)}; memory at most ` +
        `${thousands(result.megabytes)} MB; bare before ${thousands(barePerSecond[0])}, after ` +
        `${thousands(barePerSecond[1])} users/s`,
    ],
    figures: [
      { name: 'throughput', value: rate, unit: 'events/s', better: 'higher' },
      { name: '× bare', value: rate / bare, unit: '', better: 'higher' },
      { name: 'CPU', value: result.cpuPerMillion, unit: 's per million events', better: 'lower' },
      { name: 'lag at most', value: lag.max, unit: 's', better: 'lower' },
      { name: 'RSS at most', value: result.megabytes, unit: 'MB', better: 'lower' },
    ],
    noise,
    data: result,
  };
}
