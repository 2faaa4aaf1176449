/**
 * The benchmark soak: ten minutes of what a server meets in production, at a rate that it should not notice. 16,000
 * events/s in an open loop, single users and small batches, a random `$event_id` on every event, new people, anonymous
 * ones, readers, live streams and erases, all at once. It shows what a benchmark of seconds cannot: whether lag, memory,
 * open files and disk stay where they are. Every 30 s a line is printed; the summary is about the whole time.
 */

import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Benchmark, type Context, START_SECONDS } from './context.ts';
import { type Population, identifiersOf } from './people-generator.ts';
import type { LoadResult } from './generator.ts';
import { Histogram, type Quantiles } from './histogram.ts';
import { LagMeter } from './lag.ts';
import { type Noise, noiseText } from './noise.ts';
import {
  cpuReading,
  cpuSeconds,
  cpuUsed,
  DISK_RESERVE_BYTES,
  freeBytes,
  openFiles,
  residentMegabytes,
} from './proc.ts';
import { LiveStream, Reader } from './reading.ts';
import { milliseconds, type Outcome, thousands } from './report.ts';
import { mulberry32 } from './requests.ts';
import type { Server, Stage } from './servers.ts';

const EVENTS_PER_SECOND = 16_000;
const CONNECTIONS = 16;
/** One request in five with 50 users, the others with one. */
const SIZES = [50, 1, 1, 1, 1];
const NEW_SHARE = 0.1;
const POPULATION: Population = {
  people: 90_000_000,
  order: { seed: 20_261_117, newShare: NEW_SHARE },
  carries: 'everything',
  anonymousShare: 0.3,
  eventIds: true,
};
const READERS = 2;
const READ_PAUSE_MILLISECONDS = 100;
const LIVE_STREAMS = 3;
const ERASE_INTERVAL_MILLISECONDS = 2_000;
/** Until a person is found who can be erased. */
const ERASE_TRIES = 10;
const ROW_SECONDS = 30;
/** A short run still has a few rows. */
const ROWS_MIN = 4;
const DRAIN_SECONDS_MAX = 300;
const REST_SECONDS = 1;
const DISK_BYTES_PER_EVENT = 1_000;

const LAG_SECONDS_GOAL = 2;
const MEGABYTES_GOAL = 500;
/** The mean of the last quarter to that of the second: the first quarter fills caches. */
const GROWTH_MAX = 1.1;
const BYTES_PER_EVENT_GOAL = 350;

export const soakBenchmark: Benchmark = {
  name: 'soak',
  what: '10 minutes of mixed load at 16,000 events/s: lag, memory, open files and disk',
  onlyByName: true,
  seconds: ({ soakSeconds }) => START_SECONDS + REST_SECONDS + soakSeconds,
  run: async (context) => context.onStage(async (stage) => soak(context, stage)),
};

/** Every 30 s. Bytes are what the file system has allocated to the files. */
interface Row {
  readonly seconds: number;
  readonly eventsPerSecond: number;
  readonly lagSeconds: number;
  readonly lagSecondsMax: number;
  readonly megabytes: number;
  readonly openFiles: number;
  readonly cores: number;
  readonly events: number;
  readonly logBytes: number;
  readonly storeBytes: number;
  readonly erased: number;
}

interface SoakResult {
  readonly restMegabytes: number;
  readonly rows: readonly Row[];
  /** All samples of the lag, and of memory. */
  readonly lagSecondsMax: number;
  readonly megabytes: readonly number[];
  readonly load: LoadResult;
  /** After the last request, until nothing was pending. */
  readonly drainSeconds: number;
  readonly received: number;
  readonly difference: number;
  readonly reads: Readonly<Record<ReadKind, Quantiles>>;
  readonly erase: Quantiles;
  readonly erased: number;
  readonly liveEvents: number;
  readonly cpuPerMillion: number;
  readonly noise: Noise;
}

async function soak(context: Context, stage: Stage): Promise<Outcome[]> {
  const { soakSeconds } = context.pace;
  const folder = stage.freshFolder();
  requireDisk(folder, soakSeconds);
  context.progress.begin('soak: starting', START_SECONDS + REST_SECONDS);
  const key = await stage.createKey(folder);
  const server = { ...(await stage.startSluice('ours', key, { folder })), key };
  await sleep(REST_SECONDS * 1000);
  const restMegabytes = residentMegabytes(server.pid).now;
  const coresBefore = await context.capacity.now();
  const result = await new Soak(context, server, folder).run(soakSeconds);
  const cores = Math.min(coresBefore, await context.capacity.now());
  await server.stop();
  return outcomes({ ...result, restMegabytes, noise: { cores, otherCores: result.otherCores } });
}

export class Soak {
  private readonly context: Context;
  private readonly server: Server;
  private readonly folder: string;
  private readonly companions: Companions;
  private readonly meter: LagMeter;
  private readonly rows: Row[] = [];
  private readonly megabytes: number[] = [];
  private from = performance.now();
  private cpuAtRow = 0;
  private sampler: NodeJS.Timeout | undefined;

  constructor(context: Context, server: Server, folder: string) {
    this.context = context;
    this.server = server;
    this.folder = folder;
    this.meter = new LagMeter(server);
    this.companions = new Companions(server, () => this.meter.latest?.done ?? 0);
  }

  async run(seconds: number): ReturnType<Soak['measure']> {
    try {
      return await this.measure(seconds);
    } finally {
      await this.end();
    }
  }

  private async measure(
    seconds: number,
  ): Promise<Omit<SoakResult, 'restMegabytes' | 'noise'> & { readonly otherCores: number }> {
    const { context, server, meter, companions } = this;
    await meter.next();
    this.from = performance.now();
    this.cpuAtRow = cpuSeconds(server.pid);
    const before = cpuReading(server.pid);
    context.progress.begin(`soak: ${thousands(EVENTS_PER_SECOND)} events/s`, seconds);
    const requests = { population: POPULATION, sizes: SIZES };
    const offer = { requests, connections: CONNECTIONS, usersPerSecond: EVENTS_PER_SECOND };
    const load = context.generator.steady(server, offer, seconds);
    this.sampler = setInterval(() => this.megabytes.push(residentMegabytes(server.pid).now), 1_000);
    const rowSeconds = Math.min(ROW_SECONDS, seconds / ROWS_MIN);
    for (let row = 1; row <= Math.round(seconds / rowSeconds); row += 1) {
      await sleep(Math.max(0, row * rowSeconds - this.seconds()) * 1000);
      meter.assertWell();
      companions.assertWell();
      this.addRow();
    }
    const loaded = await load.stop();
    clearInterval(this.sampler);
    const [drainSeconds] = await Promise.all([meter.drained(DRAIN_SECONDS_MAX), companions.stop()]);
    await meter.stop();
    const reader = new Reader(server);
    const { received, difference } = await reader.ledger();
    reader.close();
    const used = cpuUsed(before, cpuReading(server.pid), loaded.generatorCpuSeconds);
    return {
      rows: this.rows,
      lagSecondsMax: Math.max(...meter.samples.map(({ lagSeconds }) => lagSeconds)),
      megabytes: this.megabytes,
      load: loaded,
      drainSeconds,
      received,
      difference,
      ...companions.result(),
      cpuPerMillion: (used.servers / received) * 1e6,
      otherCores: used.others / this.seconds(),
    };
  }

  /** After a failure, too: nothing goes on beside the next benchmark, or keeps the process from ending. */
  private async end(): Promise<void> {
    clearInterval(this.sampler);
    await Promise.allSettled([this.companions.stop(), this.meter.stop()]);
  }

  private seconds(): number {
    return (performance.now() - this.from) / 1000;
  }

  private addRow(): void {
    const { meter, rows } = this;
    const seconds = this.seconds();
    const last = rows.at(-1);
    const samples = meter.since(this.from + (last?.seconds ?? 0) * 1000);
    const latest = meter.latest;
    const cpu = cpuSeconds(this.server.pid);
    const span = seconds - (last?.seconds ?? 0);
    const events = latest?.received ?? 0;
    const row: Row = {
      seconds,
      eventsPerSecond: (events - (last?.events ?? 0)) / span,
      lagSeconds: latest?.lagSeconds ?? Number.NaN,
      lagSecondsMax: Math.max(latest?.lagSeconds ?? 0, ...samples.map(({ lagSeconds }) => lagSeconds)),
      megabytes: residentMegabytes(this.server.pid).now,
      openFiles: openFiles(this.server.pid),
      cores: (cpu - this.cpuAtRow) / span,
      events,
      ...diskUse(this.folder),
      erased: this.companions.erased,
    };
    this.cpuAtRow = cpu;
    rows.push(row);
    this.context.progress.print(lineOf(row));
  }
}

type ReadKind = 'profile' | 'timeline' | 'identity' | 'newest events' | 'ledger';

/** All that continues beside the load: readers, live streams, erases. */
class Companions {
  erased = 0;
  private readonly server: Server;
  private readonly stored: () => number;
  private readonly random = mulberry32(20_261_118);
  private readonly reads: Record<ReadKind, Histogram> = {
    profile: new Histogram(),
    timeline: new Histogram(),
    identity: new Histogram(),
    'newest events': new Histogram(),
    ledger: new Histogram(),
  };
  private readonly erases = new Histogram();
  private readonly streams: readonly LiveStream[];
  private readonly loops: readonly Promise<void>[];
  private readonly eraser: NodeJS.Timeout;
  private readonly running = new Set<Promise<void>>();
  private isEnding = false;
  private problem: string | null = null;

  /** `stored`: how many events are stored by now. */
  constructor(server: Server, stored: () => number) {
    this.server = server;
    this.stored = stored;
    this.streams = Array.from({ length: LIVE_STREAMS }, () => new LiveStream(server));
    const readers = Array.from({ length: READERS }, async () => this.loop(async (reader) => this.read(reader)));
    this.loops = readers;
    this.eraser = setInterval(() => this.running.add(this.eraseOne()), ERASE_INTERVAL_MILLISECONDS);
  }

  async stop(): Promise<void> {
    this.isEnding = true;
    for (const stream of this.streams) stream.close();
    clearInterval(this.eraser);
    await Promise.all([...this.loops, ...this.running]);
    this.assertWell();
  }

  /** Throws when one of them got anything but the expected response. */
  assertWell(): void {
    const problem = this.problem ?? this.streams.find((stream) => stream.problem !== null)?.problem;
    if (problem !== undefined && problem !== null) throw new Error(problem);
  }

  result(): Pick<SoakResult, 'reads' | 'erase' | 'erased' | 'liveEvents'> {
    const reads = Object.entries(this.reads).map(([kind, times]) => [kind, times.quantiles()] as const);
    return {
      reads: Object.fromEntries(reads) as Record<ReadKind, Quantiles>,
      erase: this.erases.quantiles(),
      erased: this.erased,
      liveEvents: this.streams.reduce((sum, { events }) => sum + events, 0),
    };
  }

  private async loop(turn: (reader: Reader) => Promise<void>): Promise<void> {
    await this.withReader(async (reader) => {
      while (!this.isEnding) await turn(reader);
    });
  }

  private async read(reader: Reader): Promise<void> {
    const profile = await this.timed('profile', async () => this.randomPerson(reader));
    if (profile !== undefined) {
      await this.timed('timeline', async () => reader.timeline(profile.id));
      await this.timed('identity', async () => reader.identity(profile.id));
    }
    await this.timed('newest events', async () => reader.newestEvents());
    await this.timed('ledger', async () => reader.ledger());
  }

  /** On a connection of its own: when one erase takes long, the next is sent all the same. */
  private async eraseOne(): Promise<void> {
    await this.withReader(async (reader) => {
      let profile = await this.randomPerson(reader);
      for (let tries = 1; profile === undefined && tries < ERASE_TRIES; tries += 1)
        profile = await this.randomPerson(reader);
      if (profile === undefined || this.isEnding) return;
      const from = performance.now();
      if (await reader.erase(profile.id)) this.erased += 1;
      this.erases.record(performance.now() - from);
    });
  }

  private async withReader(work: (reader: Reader) => Promise<void>): Promise<void> {
    const reader = new Reader(this.server);
    try {
      await work(reader);
    } catch (error) {
      this.problem ??= error instanceof Error ? error.message : String(error);
    }
    reader.close();
  }

  /** One of the people who were stored by now; undefined for some who were erased, or have only been seen as anonymous. */
  private async randomPerson(reader: Reader): ReturnType<Reader['profile']> {
    const person = Math.floor(this.random() * this.stored() * NEW_SHARE);
    return reader.profile({ user_id: identifiersOf(person).user_id });
  }

  private async timed<T>(kind: ReadKind, call: () => Promise<T>): Promise<T> {
    const from = performance.now();
    const result = await call();
    this.reads[kind].record(performance.now() - from);
    await sleep(READ_PAUSE_MILLISECONDS);
    return result;
  }
}

function outcomes(result: SoakResult): Outcome[] {
  const { rows, load, noise } = result;
  const last = rows.at(-1);
  if (last === undefined) throw new Error('the soak was too short for a single line');
  const bytesPerEvent = { log: last.logBytes / last.events, store: last.storeBytes / last.events };
  const bytes = bytesPerEvent.log + bytesPerEvent.store;
  const megabytesMax = Math.max(...result.megabytes);
  const growth = growthOf(result.megabytes);
  const refused = Object.entries(load.statuses).filter(([status]) => status !== '202');
  const { received, difference } = result;
  const conditions: readonly (readonly [holds: boolean, failure: string])[] = [
    [result.lagSecondsMax < LAG_SECONDS_GOAL, `lag up to ${result.lagSecondsMax.toFixed(1)} s`],
    [megabytesMax < MEGABYTES_GOAL, `memory up to ${thousands(megabytesMax)} MB`],
    [growth < GROWTH_MAX, `memory grew to ${growth.toFixed(2)} ×`],
    [bytes < BYTES_PER_EVENT_GOAL, `${thousands(bytes)} bytes an event on disk`],
    ...refused.map(([status, count]) => [false, `${thousands(count)} requests with status ${status}`] as const),
    [
      load.notSent + load.unanswered + load.broken === 0,
      `requests not sent ${load.notSent}, without a response ${load.unanswered}, broken ${load.broken}`,
    ],
    [difference === 0, `the ledger differs by ${difference} events`],
    [
      load.broken + load.unanswered > 0 || received === load.users,
      `${thousands(received)} events in the ledger where ${thousands(load.users)} were accepted`,
    ],
  ];
  const failures = conditions.flatMap(([holds, failure]) => (holds ? [] : [failure]));
  return [
    {
      noise,
      name: 'soak, lag',
      ours: `${result.lagSecondsMax.toFixed(1)} s at most`,
      goal: `< ${LAG_SECONDS_GOAL} s`,
      met: result.lagSecondsMax < LAG_SECONDS_GOAL,
      notes: [
        `VERDICT after ${Math.round(last.seconds)} s: ${failures.length === 0 ? 'it holds' : `it does not hold: ${failures.join('; ')}`}`,
        `${thousands(load.users)} events accepted, ${thousands(load.users / load.seconds)} a second; ` +
          `${result.drainSeconds.toFixed(1)} s after the last request nothing was pending; ${noiseText(noise)}`,
        `response after p50 ${milliseconds(load.latency.p50)}, p99 ${milliseconds(load.latency.p99)}, p999 ` +
          `${milliseconds(load.latency.p999)}; reads, p50 and p99: ${readsText(result)}; ` +
          `${thousands(result.erased)} erases, p99 ${milliseconds(result.erase.p99)}; ` +
          `${thousands(result.liveEvents)} messages on ${LIVE_STREAMS} live streams`,
        `CPU-seconds of the server per million events, with all reads and erases: ${result.cpuPerMillion.toFixed(1)}`,
      ],
      figures: [
        { name: 'lag at most', value: result.lagSecondsMax, unit: 's', better: 'lower' },
        { name: 'lag after the last request', value: result.drainSeconds, unit: 's', better: 'lower' },
        { name: 'CPU', value: result.cpuPerMillion, unit: 's per million events', better: 'lower' },
        { name: 'response p99', value: load.latency.p99, unit: 'ms', better: 'lower' },
        { name: 'timeline p99', value: result.reads.timeline.p99, unit: 'ms', better: 'lower' },
      ],
      data: result,
    },
    {
      noise,
      name: 'soak, memory',
      ours: `${thousands(megabytesMax)} MB at most`,
      baseline: `at rest: ${thousands(result.restMegabytes)} MB`,
      goal: `< ${MEGABYTES_GOAL} MB, flat`,
      met: megabytesMax < MEGABYTES_GOAL && growth < GROWTH_MAX,
      notes: [
        `the last quarter has ${growth.toFixed(2)} × the memory of the second; open files ` +
          `${rows[0]?.openFiles} at the first line, ${last.openFiles} at the last`,
      ],
      figures: [
        { name: 'RSS at most', value: megabytesMax, unit: 'MB', better: 'lower' },
        { name: 'RSS, last quarter by second', value: growth, unit: '×', better: 'lower' },
        { name: 'open files', value: last.openFiles, unit: '', better: 'lower' },
      ],
      data: { megabytes: result.megabytes },
    },
    {
      noise,
      name: 'soak, disk',
      ours: `${thousands(bytes)} bytes an event`,
      goal: `< ${BYTES_PER_EVENT_GOAL} bytes`,
      met: bytes < BYTES_PER_EVENT_GOAL,
      notes: [`log ${thousands(bytesPerEvent.log)}, store ${thousands(bytesPerEvent.store)} bytes an event received`],
      figures: [
        { name: 'log', value: bytesPerEvent.log, unit: 'bytes an event', better: 'lower' },
        { name: 'store', value: bytesPerEvent.store, unit: 'bytes an event', better: 'lower' },
      ],
      data: bytesPerEvent,
    },
  ];
}

function growthOf(megabytes: readonly number[]): number {
  const quarter = megabytes.length / 4;
  const mean = (from: number, to: number): number => {
    const part = megabytes.slice(Math.floor(from * quarter), Math.ceil(to * quarter));
    return part.reduce((sum, value) => sum + value, 0) / part.length;
  };
  return mean(3, 4) / mean(1, 2);
}

function readsText({ reads }: SoakResult): string {
  return Object.entries(reads)
    .map(([kind, { p50, p99 }]) => `${kind} ${milliseconds(p50)} and ${milliseconds(p99)}`)
    .join(', ');
}

function lineOf(row: Row): string {
  return (
    `${Math.round(row.seconds)} s: ${thousands(row.eventsPerSecond)} events/s, lag ${row.lagSeconds.toFixed(2)} s ` +
    `(at most ${row.lagSecondsMax.toFixed(2)} s), RSS ${thousands(row.megabytes)} MB, ${row.openFiles} files, ` +
    `${row.cores.toFixed(2)} cores, log ${thousands(row.logBytes / 1e6)} MB, store ${thousands(row.storeBytes / 1e6)} MB ` +
    `(${thousands(row.logBytes / row.events)} and ${thousands(row.storeBytes / row.events)} bytes an event), ` +
    `${thousands(row.erased)} erased`
  );
}

/** The folder `log` and `log-ends` are the log; all else is the store and what belongs to it. */
function diskUse(folder: string): { readonly logBytes: number; readonly storeBytes: number } {
  let [logBytes, storeBytes] = [0, 0];
  for (const name of readdirSync(folder)) {
    const bytes = bytesOf(join(folder, name));
    if (name === 'log' || name.startsWith('log-')) logBytes += bytes;
    else storeBytes += bytes;
  }
  return { logBytes, storeBytes };
}

/** What the file system has allocated; 0 for what was removed meanwhile. */
function bytesOf(path: string): number {
  const status = lstatSync(path, { throwIfNoEntry: false });
  if (status === undefined) return 0;
  if (!status.isDirectory()) return status.blocks * 512;
  return readdirSync(path).reduce((sum, name) => sum + bytesOf(join(path, name)), 0);
}

function requireDisk(folder: string, seconds: number): void {
  const needed = EVENTS_PER_SECOND * seconds * DISK_BYTES_PER_EVENT + DISK_RESERVE_BYTES;
  if (freeBytes(folder) >= needed) return;
  throw new Error(
    `a soak of ${seconds} s needs ${Math.ceil(needed / 1e9)} GB of free disk; choose another disk with --data, or ` +
      'fewer seconds with --seconds',
  );
}
