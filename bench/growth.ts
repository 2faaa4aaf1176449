/**
 * The benchmark of growth: how fast events go all the way to the store, and how fast people are read, when much is
 * stored already. One data folder grows from size to size: `fill.ts` adds what is missing, a server is started on it,
 * and rounds of events are measured as in end-to-end, then reads, one at a time. There are ten events for each person,
 * drawn uniformly, so that nothing stays in a cache for being popular.
 */

import { statfsSync } from 'node:fs';
import { type Benchmark, type Context, type Pace, START_SECONDS } from './context.ts';
import { type Population, identifiersOf } from './people-generator.ts';
import type { FillJob, FillResult } from './fill.ts';
import { Histogram, type Quantiles } from './histogram.ts';
import type { StoredResult } from './stored-result.ts';
import { disturbance, sendAndWait } from './pipeline.ts';
import { PAGE_EVENTS, Reader } from './reading.ts';
import { median, milliseconds, type Outcome, thousands } from './report.ts';
import { mulberry32 } from './requests.ts';
import type { Server, Stage } from './servers.ts';

const RATIO_GOAL = 0.9;
const RATIO_FLOOR = 0.8;
const READ_GROWTH_MAX = 1.5;
/** Not counted: the first reads load and compile code. */
const WARMUP_READS = 100;
const EVENTS_PER_PERSON = 10;
/** What is filled in lies in the days before now. */
const FILLED_MILLISECONDS = 30 * 86_400_000;
const FILL_PER_SECOND_MIN = 5_000;
const DISK_BYTES_PER_EVENT = 700;
const DISK_RESERVE_BYTES = 2e9;
/** For the progress bar. */
const FILL_PER_SECOND = 60_000;
const OURS_PER_SECOND = 50_000;
const READS_PER_SECOND = 1_000;

interface Reads {
  readonly profile: Quantiles;
  readonly timeline: Quantiles;
}

interface SizeResult {
  readonly size: number;
  readonly fill: FillResult;
  readonly warmup: StoredResult;
  readonly rounds: readonly StoredResult[];
  readonly perSecond: number;
  readonly reads: Reads;
}

const NOT_AGAINST =
  'it fills data folders with the store of this checkout, which an older server may not be able to open';

export const growthBenchmark: Benchmark = {
  name: 'growth',
  what: 'end-to-end and reads when much is stored already (asked for by name: 1 and 10 million, --long 50)',
  notAgainst: NOT_AGAINST,
  seconds: secondsOf,
  run: async (context) => context.onStage(async (stage) => measureAll(context, stage, 'growth', false)),
};

export const growthIdsBenchmark: Benchmark = {
  name: 'growth-ids',
  what: 'growth with a random $event_id on every event',
  notAgainst: NOT_AGAINST,
  onlyByName: true,
  seconds: secondsOf,
  run: async (context) => context.onStage(async (stage) => measureAll(context, stage, 'growth-ids', true)),
};

function secondsOf({ growth: { sizes, roundEvents, rounds, reads } }: Pace): number {
  const warmupEvents = sizes.reduce((sum, size) => sum + warmupOf(size), 0);
  const perSize = START_SECONDS + (rounds * roundEvents) / OURS_PER_SECOND + (2 * reads) / READS_PER_SECOND;
  return Math.max(...sizes) / FILL_PER_SECOND + warmupEvents / OURS_PER_SECOND + sizes.length * perSize;
}

async function measureAll(context: Context, stage: Stage, name: string, eventIds: boolean): Promise<Outcome[]> {
  const folder = stage.freshFolder();
  const key = await stage.createKey(folder);
  const { growth } = context.pace;
  const sizes = growth.sizes.filter((size) => fits(folder, size));
  const results: SizeResult[] = [];
  let stored = 0;
  for (const size of sizes) {
    context.progress.begin(`${name}: filling up to ${thousands(size)} events`, (size - stored) / FILL_PER_SECOND);
    const fill = await fillUp(stage, { folder, key, stored, size, sizeMax: Math.max(...sizes), eventIds });
    context.progress.begin(`${name}: starting at ${thousands(size)} events`, START_SECONDS);
    const server = await stage.startSluice('ours', key, { folder });
    const result = await measureSize(context, server, { size, eventIds }, fill);
    stored = size + warmupOf(size) + result.rounds.reduce((sum, { events }) => sum + events, 0);
    await server.stop();
    results.push(result);
  }
  return outcomes(name, results, growth.sizes.length - sizes.length);
}

function fits(folder: string, size: number): boolean {
  const { bavail, bsize } = statfsSync(folder);
  return size * DISK_BYTES_PER_EVENT + DISK_RESERVE_BYTES < bavail * bsize;
}

interface Filling {
  readonly folder: string;
  readonly key: string;
  readonly stored: number;
  readonly size: number;
  readonly sizeMax: number;
  readonly eventIds: boolean;
}

async function fillUp(stage: Stage, { folder, key, stored, size, sizeMax, eventIds }: Filling): Promise<FillResult> {
  const beginning = Date.now() - FILLED_MILLISECONDS;
  const timeAt = (events: number): number => beginning + (events / sizeMax) * FILLED_MILLISECONDS;
  const users = size - stored;
  const job: FillJob = {
    folder,
    key,
    population: { ...populationOf(size, 1), eventIds },
    users,
    from: timeAt(stored),
    to: timeAt(size),
  };
  const result = await stage.runProgram<FillResult>('fill', job, 60 + users / FILL_PER_SECOND_MIN);
  if (result.events !== users) throw new Error(`${result.events} events were filled in instead of ${users}`);
  return result;
}

async function measureSize(
  context: Context,
  server: Server,
  { size, eventIds }: Pick<Filling, 'size' | 'eventIds'>,
  fill: FillResult,
): Promise<SizeResult> {
  const { growth } = context.pace;
  const label = `growth: at ${thousands(size)} events`;
  const reader = new Reader(server);
  const ledger = await reader.ledger();
  if (ledger.stored !== size) throw new Error(`${ledger.stored} events are stored where ${size} were filled in`);
  context.progress.begin(`${label}, warming up`, warmupOf(size) / OURS_PER_SECOND);
  const warmup = await sendAndWait(context, server, reader, { ...populationOf(size, 2), eventIds }, warmupOf(size));
  const rounds: StoredResult[] = [];
  for (let round = 1; round <= growth.rounds; round += 1) {
    context.progress.begin(`${label}, round ${round}`, growth.roundEvents / OURS_PER_SECOND);
    const population = { ...populationOf(size, 2 + round), eventIds };
    rounds.push(await sendAndWait(context, server, reader, population, growth.roundEvents));
  }
  context.progress.begin(`${label}, reading`, (2 * growth.reads) / READS_PER_SECOND);
  const reads = await measureReads(reader, size / EVENTS_PER_PERSON, growth.reads);
  reader.close();
  return { size, fill, warmup, rounds, perSecond: median(rounds.map(({ perSecond }) => perSecond)), reads };
}

/** Random people, nothing else going on; from the call to the end of the response, its JSON parsed. */
async function measureReads(reader: Reader, people: number, count: number): Promise<Reads> {
  const random = mulberry32(20_260_404);
  const profile = new Histogram();
  const timeline = new Histogram();
  for (let n = -WARMUP_READS; n < count; n += 1) {
    const { user_id } = identifiersOf(Math.floor(random() * people));
    const from = performance.now();
    const found = await reader.profile({ user_id });
    // Of people drawn uniformly a few never come up.
    if (found === undefined) continue;
    const between = performance.now();
    const { events } = await reader.timeline(found.id);
    const to = performance.now();
    if (n >= 0) {
      profile.record(between - from);
      timeline.record(to - between);
    }
    if (events.length !== Math.min(found.event_count, PAGE_EVENTS)) {
      throw new Error(`a person with ${found.event_count} events has a first page of ${events.length}`);
    }
  }
  return { profile: profile.quantiles(), timeline: timeline.quantiles() };
}

/** As many events as there are people: a server that was just started has yet to meet them, at every size as many of them. */
function warmupOf(size: number): number {
  return size / EVENTS_PER_PERSON;
}

function populationOf(size: number, seed: number): Population {
  return { people: Math.floor(size / EVENTS_PER_PERSON), order: { seed }, carries: 'everything' };
}

function outcomes(name: string, results: readonly SizeResult[], leftOut: number): Outcome[] {
  const [first, ...others] = results;
  if (first === undefined) throw new Error('there is not enough free disk for any size');
  const rows = others.flatMap((result) => [
    rateOutcome(name, first, result),
    readOutcome(name, first, result, 'profile'),
    readOutcome(name, first, result, 'timeline'),
  ]);
  const [row, ...rest] = rows;
  if (row === undefined || leftOut === 0) return rows;
  return [{ ...row, notes: [...row.notes, `${leftOut} sizes were left out for want of free disk`] }, ...rest];
}

function rateOutcome(name: string, first: SizeResult, result: SizeResult): Outcome {
  const ratio = result.perSecond / first.perSecond;
  const rates = ({ rounds }: SizeResult): string => rounds.map(({ perSecond }) => thousands(perSecond)).join(', ');
  return {
    name: `${name}, ${sizeText(result)}`,
    ours: `${thousands(result.perSecond)} events/s`,
    baseline: `at ${sizeText(first)}: ${thousands(first.perSecond)} events/s`,
    ratio,
    goal: `≥ ${RATIO_GOAL} ×`,
    met: ratio >= RATIO_GOAL,
    notes: [
      `${ratio >= RATIO_FLOOR ? 'above' : 'BELOW'} the floor of ${RATIO_FLOOR}; ` +
        disturbance([...first.rounds, ...result.rounds]),
      `rounds ${rates(result)}; at ${sizeText(first)} ${rates(first)} events/s`,
      `warming up ${thousands(result.warmup.perSecond)}, at ${sizeText(first)} ${thousands(first.warmup.perSecond)} events/s`,
      `filled in at ${thousands(result.fill.events / result.fill.seconds)} events/s, without HTTP and log`,
    ],
    data: { first, result },
  };
}

function readOutcome(name: string, first: SizeResult, result: SizeResult, what: keyof Reads): Outcome {
  const [before, now] = [first.reads[what], result.reads[what]];
  const ratio = now.p99 / before.p99;
  return {
    name: `${name}, ${sizeText(result)}, ${what} read, p99`,
    ours: milliseconds(now.p99),
    baseline: `at ${sizeText(first)}: ${milliseconds(before.p99)}`,
    ratio,
    goal: `< ${READ_GROWTH_MAX} ×`,
    met: ratio < READ_GROWTH_MAX,
    notes: [`p50 ${milliseconds(now.p50)}, at ${sizeText(first)} ${milliseconds(before.p50)}`],
    data: { before, now },
  };
}

function sizeText({ size }: SizeResult): string {
  return size >= 100_000 ? `${size / 1e6} million` : thousands(size);
}
