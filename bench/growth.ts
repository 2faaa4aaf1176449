/**
 * The benchmark of growth: how fast events go all the way to the store, and how fast people are read, when much is
 * stored already. Each size has a data folder, which `fill.ts` fills, and a server on it. When all have been warmed up,
 * they are measured in turns: rounds of events as in end-to-end, then reads, one at a time, so that a machine whose speed
 * changes is as fast for one as for the other. There are ten events for each person, drawn uniformly, so that nothing
 * stays in a cache for being popular.
 */

import { type Benchmark, type Context, type Pace, START_SECONDS, type StoredResult } from './context.ts';
import { type Population, identifiersOf } from './people-generator.ts';
import type { FillJob, FillResult } from './fill.ts';
import { Histogram, type Quantiles } from './histogram.ts';
import { disturbance, sendAndWait } from './pipeline.ts';
import { DISK_RESERVE_BYTES, freeBytes } from './proc.ts';
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
  readonly reads: Reads;
}

/** A size while it is measured. */
interface Subject {
  readonly size: number;
  readonly fill: FillResult;
  readonly server: Server;
  readonly reader: Reader;
  readonly population: (seed: number) => Population;
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
  const events = sizes.reduce((sum, size) => sum + size, 0);
  const perSize = START_SECONDS + (rounds * roundEvents) / OURS_PER_SECOND + (2 * reads) / READS_PER_SECOND;
  return events / FILL_PER_SECOND + events / EVENTS_PER_PERSON / OURS_PER_SECOND + sizes.length * perSize;
}

async function measureAll(context: Context, stage: Stage, name: string, eventIds: boolean): Promise<Outcome[]> {
  const { sizes, rounds, roundEvents, reads } = context.pace.growth;
  const subjects: Subject[] = [];
  for (const size of sizes) {
    const folder = stage.freshFolder();
    const needed = size * DISK_BYTES_PER_EVENT + DISK_RESERVE_BYTES;
    if (needed < freeBytes(folder)) subjects.push(await prepare(context, stage, { name, folder, size, eventIds }));
  }
  const warmups: StoredResult[] = [];
  for (const { server, reader, size, population } of subjects) {
    context.progress.begin(`${name}: warming up at ${thousands(size)} events`, warmupOf(size) / OURS_PER_SECOND);
    warmups.push(await sendAndWait(context, server, reader, population(2), warmupOf(size)));
  }
  const results = subjects.map(() => [] as StoredResult[]);
  for (let round = 0; round < rounds; round += 1) {
    const order = subjects.map((subject, index) => ({ ...subject, index }));
    for (const { server, reader, size, population, index } of round % 2 === 0 ? order : order.toReversed()) {
      context.progress.begin(
        `${name}: at ${thousands(size)} events, round ${round + 1}`,
        roundEvents / OURS_PER_SECOND,
      );
      results[index]?.push(await sendAndWait(context, server, reader, population(3 + round), roundEvents));
    }
  }
  context.progress.begin(`${name}: reading`, (subjects.length * 2 * reads) / READS_PER_SECOND);
  const readResults = await measureReads(subjects, reads);
  for (const { server, reader } of subjects) {
    reader.close();
    await server.stop();
  }
  const measured = subjects.map(({ size, fill }, index) => ({
    size,
    fill,
    warmup: warmups[index] as StoredResult,
    rounds: results[index] as StoredResult[],
    reads: readResults[index] as Reads,
  }));
  return outcomes(name, measured, sizes.length - subjects.length);
}

interface Filling {
  readonly name: string;
  readonly folder: string;
  readonly size: number;
  readonly eventIds: boolean;
}

/** Fills a folder, and starts a server on it. */
async function prepare(context: Context, stage: Stage, { name, folder, size, eventIds }: Filling): Promise<Subject> {
  const population = (seed: number): Population => ({ ...populationOf(size, seed), eventIds });
  const key = await stage.createKey(folder);
  context.progress.begin(`${name}: filling up to ${thousands(size)} events`, size / FILL_PER_SECOND);
  const to = Date.now();
  const job: FillJob = { folder, key, population: population(1), users: size, from: to - FILLED_MILLISECONDS, to };
  const fill = await stage.runProgram<FillResult>('fill', job, 60 + size / FILL_PER_SECOND_MIN);
  if (fill.events !== size) throw new Error(`${fill.events} events were filled in instead of ${size}`);
  context.progress.begin(`${name}: starting at ${thousands(size)} events`, START_SECONDS);
  const server = await stage.startSluice(`ours-${size}`, key, { folder });
  const reader = new Reader(server);
  const { stored } = await reader.ledger();
  if (stored !== size) throw new Error(`${stored} events are stored where ${size} were filled in`);
  return { size, fill, server, reader, population };
}

/** Random people, nothing else going on; from the call to the end of the response, its JSON parsed. */
async function measureReads(subjects: readonly Subject[], count: number): Promise<Reads[]> {
  const random = mulberry32(20_260_404);
  const histograms = subjects.map(() => ({ profile: new Histogram(), timeline: new Histogram() }));
  for (let n = -WARMUP_READS; n < count; n += 1) {
    for (const [index, { reader, size }] of subjects.entries()) {
      const { user_id } = identifiersOf(Math.floor(random() * (size / EVENTS_PER_PERSON)));
      const from = performance.now();
      const found = await reader.profile({ user_id });
      // Of people drawn uniformly a few never come up.
      if (found === undefined) continue;
      const between = performance.now();
      const { events } = await reader.timeline(found.id);
      const to = performance.now();
      if (n >= 0) {
        histograms[index]?.profile.record(between - from);
        histograms[index]?.timeline.record(to - between);
      }
      if (events.length !== Math.min(found.event_count, PAGE_EVENTS)) {
        throw new Error(`a person with ${found.event_count} events has a first page of ${events.length}`);
      }
    }
  }
  return histograms.map(({ profile, timeline }) => ({ profile: profile.quantiles(), timeline: timeline.quantiles() }));
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
  return [{ ...row, notes: [...(row.notes ?? []), `${leftOut} sizes were left out for want of free disk`] }, ...rest];
}

/** The ratio is the median of those of the rounds. */
function rateOutcome(name: string, first: SizeResult, result: SizeResult): Outcome {
  const ratio = medianRatio(first, result, ({ perSecond }) => perSecond);
  const perSecond = ({ rounds }: SizeResult): number => median(rounds.map((round) => round.perSecond));
  const rates = ({ rounds }: SizeResult): string => rounds.map((round) => thousands(round.perSecond)).join(', ');
  return {
    name: `${name}, ${sizeText(result)}`,
    ours: `${thousands(perSecond(result))} events/s`,
    baseline: `at ${sizeText(first)}: ${thousands(perSecond(first))} events/s`,
    ratio,
    goal: `≥ ${RATIO_GOAL} ×`,
    met: ratio >= RATIO_GOAL,
    notes: [
      `${ratio >= RATIO_FLOOR ? 'above' : 'BELOW'} the floor of ${RATIO_FLOOR}; ` +
        disturbance([...first.rounds, ...result.rounds]),
      `CPU per event ${medianRatio(first, result, ({ serverCpuSeconds }) => serverCpuSeconds).toFixed(2)} × that at ${sizeText(first)}`,
      `rounds ${rates(result)}; at ${sizeText(first)} ${rates(first)} events/s`,
      `warming up ${thousands(result.warmup.perSecond)}, at ${sizeText(first)} ${thousands(first.warmup.perSecond)} events/s`,
      `filled in at ${thousands(result.fill.events / result.fill.seconds)} events/s, without HTTP and log`,
    ],
    data: { first, result },
  };
}

function medianRatio(first: SizeResult, { rounds }: SizeResult, value: (round: StoredResult) => number): number {
  return median(rounds.map((round, index) => value(round) / value(first.rounds[index] as StoredResult)));
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
