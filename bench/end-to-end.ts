/**
 * The benchmarks end-to-end (from the first request until every event can be read back, without and with a `$event_id`
 * on every event) and cpu (what that costs with ids, as every SDK sends them). Without ids the baseline is raw-insert,
 * with ids it is the run without. Raw-insert runs right before and right after the two, in a process of its own; the
 * ratio is to the mean of both. Transactions of the baseline are as large as the processor's were on average; the one that runs
 * before cannot know that yet and takes what the processor does under load.
 */

import { BATCH_BYTES_MAX } from '../src/processor/processor.ts';
import { join } from 'node:path';
import { type Benchmark, type Context, START_SECONDS, type StoredResult } from './context.ts';
import { type Population, identifiersOf, timesDrawn, USERS_PER_REQUEST } from './people-generator.ts';
import { worstNoise } from './noise.ts';
import { disturbance, sendAndWait } from './pipeline.ts';
import type { RawInsertJob, RawInsertResult } from './raw-insert.ts';
import { PAGE_EVENTS, Reader } from './reading.ts';
import { type Figure, milliseconds, type Outcome, thousands } from './report.ts';
import type { Server, Stage } from './servers.ts';

const RATIO_GOAL = 0.7;
const RATIO_FLOOR = 0.5;
const RATE_GOAL = 100_000;
const RATE_FLOOR = 60_000;
const CPU_SECONDS_GOAL = 12;
/** With ids, to without. */
const IDS_RATIO_GOAL = 0.85;

const SEED = 20_261_115;
const ASSUMED_TRANSACTION_USERS = 45_000;
/** What the processor reads at once, of users of about 390 bytes. */
const BATCH_USERS = Math.round(BATCH_BYTES_MAX / 390);
const SAMPLED_PEOPLE = 40;
/** For the progress bar. */
const OURS_PER_SECOND = 60_000;
const RAW_PER_SECOND = 100_000;
const RAW_SECONDS_MAX = 600;

export const endToEndBenchmark: Benchmark = {
  name: 'end-to-end',
  what: 'until all events can be read back, without and with $event_id, against inserting the same rows',
  seconds: ({ endToEnd: { events } }) => 2 * (START_SECONDS + events / OURS_PER_SECOND) + (2 * events) / RAW_PER_SECOND,
  run: async (context) => context.onStage(async (stage) => compare(context, stage)),
};

export const cpuBenchmark: Benchmark = {
  name: 'cpu',
  what: 'CPU-seconds of the server per million events, during end-to-end with $event_id',
  // Nothing in a run of all, because end-to-end was before it.
  seconds: () => 0,
  run: async (context) => [cpuOutcome(await endToEnd(context, 'with'))],
};

type Ids = 'without' | 'with';

/** Of this run: measured now unless it was before. */
export async function endToEnd(context: Context, ids: Ids): Promise<StoredResult> {
  return (context.endToEnd[ids] ??= await context.onStage(async (stage) => measure(context, stage, ids)));
}

async function measure(context: Context, stage: Stage, ids: Ids): Promise<StoredResult> {
  const { events } = context.pace.endToEnd;
  context.progress.begin('end-to-end: starting', START_SECONDS);
  const server = await stage.startSluice('ours', null, {});
  const reader = new Reader(server);
  const population = { ...populationOf(context), eventIds: ids === 'with' };
  context.progress.begin(`end-to-end: ours, ${thousands(events)} events ${ids} ids`, events / OURS_PER_SECOND);
  const result = await sendAndWait(context, server, reader, population, events);
  await check(reader, server, population, result);
  reader.close();
  await server.stop();
  return result;
}

async function compare(context: Context, stage: Stage): Promise<Outcome[]> {
  const before = await rawInsert(context, stage, 'before', ASSUMED_TRANSACTION_USERS);
  const ours = await measure(context, stage, 'without');
  const withIds = await measure(context, stage, 'with');
  context.endToEnd.without = ours;
  context.endToEnd.with = withIds;
  const after = await rawInsert(context, stage, 'after', ours.usersPerTransaction);
  const rawEvents = ours.events;
  const rawPerSecond = (2 * rawEvents) / (before.seconds + after.seconds);
  const ratio = ours.perSecond / rawPerSecond;
  const { edge } = ours;
  return [
    {
      name: 'end-to-end',
      ours: `${thousands(ours.perSecond)} events/s`,
      baseline: `raw-insert: ${thousands(rawPerSecond)} events/s`,
      ratio,
      goal: `≥ ${RATIO_GOAL} × raw-insert`,
      met: ratio >= RATIO_GOAL,
      notes: [
        `${ratio >= RATIO_FLOOR ? 'above' : 'BELOW'} the floor of ${RATIO_FLOOR}; ${disturbance([ours])}; ` +
          `a core had ${Math.round(context.capacity.speed * 100)} % of its best speed of this run`,
        `raw-insert, ${thousands(rawEvents)} events: before ${thousands(rawEvents / before.seconds)}, after ` +
          `${thousands(rawEvents / after.seconds)} events/s, CPU-seconds per million ` +
          `${perMillion(before.cpuSeconds, rawEvents)} and ${perMillion(after.cpuSeconds, rawEvents)}; events a ` +
          `transaction: ours ${thousands(ours.usersPerTransaction)}, raw-insert ` +
          `${thousands(rawEvents / before.transactions)} and ${thousands(rawEvents / after.transactions)}`,
        `every event is stored exactly once, by the ledger and by the counts, for ` +
          `${thousands(context.pace.endToEnd.people)} people at most`,
        `last response after ${edge.seconds.toFixed(1)} s of ${ours.seconds.toFixed(1)} s, p50 ` +
          `${milliseconds(edge.latency.p50)}, p99 ${milliseconds(edge.latency.p99)}; the generator used ` +
          `${edge.generatorCpuSeconds.toFixed(1)} CPU-seconds, ${edge.makingSeconds.toFixed(1)} s to make the requests`,
        `written to disk by ours: ${thousands(ours.serverDiskBytes / ours.events)} bytes an event; ` +
          `memory at most ${thousands(ours.serverMegabytes)} MB`,
      ],
      figures: figuresOf(ours, { name: '× raw-insert', value: ratio }),
      noise: ours.noise,
      data: { ours, before, after },
    },
    {
      name: 'end-to-end, rate',
      ours: `${thousands(ours.perSecond)} events/s`,
      goal: `≥ ${thousands(RATE_GOAL)} events/s`,
      met: ours.perSecond >= RATE_GOAL,
      notes: [`${ours.perSecond >= RATE_FLOOR ? 'above' : 'BELOW'} the floor of ${thousands(RATE_FLOOR)}`],
      data: { perSecond: ours.perSecond },
    },
    withIdsOutcome(ours, withIds, rawPerSecond),
  ];
}

function withIdsOutcome(without: StoredResult, withIds: StoredResult, rawPerSecond: number): Outcome {
  const ratio = withIds.perSecond / without.perSecond;
  return {
    name: 'end-to-end, with ids',
    ours: `${thousands(withIds.perSecond)} events/s`,
    baseline: `without: ${thousands(without.perSecond)} events/s`,
    ratio,
    goal: `≥ ${IDS_RATIO_GOAL} × without`,
    met: ratio >= IDS_RATIO_GOAL,
    notes: [
      `a random $event_id on every event; ${(withIds.perSecond / rawPerSecond).toFixed(2)} × raw-insert, which stores no ` +
        `ids; ${disturbance([without, withIds])}`,
      `CPU-seconds per million events: with ids ${cpuPerMillion(withIds).toFixed(1)}, without ` +
        `${cpuPerMillion(without).toFixed(1)}; written to disk ` +
        `${thousands(withIds.serverDiskBytes / withIds.events)} and ` +
        `${thousands(without.serverDiskBytes / without.events)} bytes an event; memory at most ` +
        `${thousands(withIds.serverMegabytes)} and ${thousands(without.serverMegabytes)} MB`,
    ],
    figures: figuresOf(withIds, { name: '× without ids', value: ratio }),
    noise: worstNoise([without.noise, withIds.noise]),
    data: withIds,
  };
}

function figuresOf(result: StoredResult, multiple: { readonly name: string; readonly value: number }): Figure[] {
  const { perSecond, serverDiskBytes, events, serverMegabytes } = result;
  return [
    { name: 'throughput', value: perSecond, unit: 'events/s', better: 'higher' },
    { ...multiple, unit: '', better: 'higher' },
    { name: 'CPU', value: cpuPerMillion(result), unit: 's per million events', better: 'lower' },
    { name: 'written to disk', value: serverDiskBytes / events, unit: 'bytes an event', better: 'lower' },
    { name: 'RSS at most', value: serverMegabytes, unit: 'MB', better: 'lower' },
  ];
}

async function rawInsert(context: Context, stage: Stage, when: string, users: number): Promise<RawInsertResult> {
  const { events } = context.pace.endToEnd;
  context.progress.begin(`end-to-end: raw-insert ${when}`, events / RAW_PER_SECOND);
  const folder = stage.freshFolder();
  const job: RawInsertJob = {
    file: join(folder, 'store.db'),
    population: populationOf(context),
    users: events,
    transactionUsers: Math.max(1, Math.round(users / USERS_PER_REQUEST)) * USERS_PER_REQUEST,
    batchUsers: BATCH_USERS,
  };
  const result = await stage.runProgram<RawInsertResult>('raw-insert', job, RAW_SECONDS_MAX);
  stage.removeFolder(folder);
  return result;
}

/** The counts of the read API agree with what was sent, and so do the profiles of some people. */
async function check(
  reader: Reader,
  server: Server,
  population: Population,
  { events, edge }: StoredResult,
): Promise<void> {
  const counted = await reader.countedEvents(edge.startedAt - 3_600_000);
  if (counted !== events) throw new Error(`${server.name}: ${counted} events are counted where ${events} were sent`);
  const step = population.people / SAMPLED_PEOPLE;
  const people = Array.from({ length: SAMPLED_PEOPLE }, (_, n) => Math.floor(n * step));
  for (const [n, times] of timesDrawn(population, events, people).entries()) {
    if (times === 0) continue;
    const profile = await reader.profile({ user_id: identifiersOf(people[n] ?? 0).user_id });
    const page = profile === undefined ? [] : (await reader.timeline(profile.id)).events;
    if (profile?.event_count !== times || page.length !== Math.min(times, PAGE_EVENTS)) {
      const found = `${profile?.event_count ?? 'no'} events and a page of ${page.length}`;
      throw new Error(`${server.name}: a person who sent ${times} events has ${found}`);
    }
  }
}

function cpuOutcome(result: StoredResult): Outcome {
  const perMillionEvents = cpuPerMillion(result);
  return {
    name: 'cpu',
    ours: `${perMillionEvents.toFixed(1)} s per million events`,
    goal: `< ${CPU_SECONDS_GOAL} s`,
    met: perMillionEvents < CPU_SECONDS_GOAL,
    notes: [
      `all threads of the server, during end-to-end with ids of this run: ${result.serverCpuSeconds.toFixed(1)} CPU-seconds in ` +
        `${result.seconds.toFixed(1)} s; ${disturbance([result])}`,
      `per million by thread: ${threadsText(result)}`,
    ],
    figures: [{ name: 'CPU', value: perMillionEvents, unit: 's per million events', better: 'lower' }],
    noise: result.noise,
    data: { perMillionEvents, ...result },
  };
}

function cpuPerMillion({ serverCpuSeconds, events }: StoredResult): number {
  return (serverCpuSeconds / events) * 1e6;
}

/** Threads of one name together; node-V8Worker collects garbage and compiles. */
function threadsText({ threads, events }: StoredResult): string {
  const byName = Map.groupBy(threads, ({ name }) => name);
  return [...byName]
    .map(([name, times]) => `${name} ${times.map(({ seconds }) => perMillion(seconds, events)).join(' + ')}`)
    .join(', ');
}

function populationOf({ pace }: Context): Population {
  return { people: pace.endToEnd.people, order: { seed: SEED }, carries: 'everything' };
}

function perMillion(value: number, events: number): string {
  return ((value / events) * 1e6).toFixed(1);
}
