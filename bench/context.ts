/**
 * What all benchmarks of one run share: how long to measure, the load generator, the progress bar, and what earlier
 * benchmarks found out (the generator's ceiling, the peak of edge-1). Each benchmark makes its own stage.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { Capacity } from './capacity.ts';
import { assertAllAccepted, Generator, type LoadJob, type LoadResult } from './generator.ts';
import type { Noise } from './noise.ts';
import type { ThreadTime } from './proc.ts';
import { Progress } from './progress.ts';
import { Reader } from './reading.ts';
import type { Outcome } from './report.ts';
import type { ShapeName } from './requests.ts';
import { PROJECT, type Server, Stage } from './servers.ts';

export interface Pace {
  /** Before the first round of a server: its code is compiled and its files grow. */
  readonly firstSeconds: number;
  readonly warmupSeconds: number;
  readonly seconds: number;
  /** How often ours and the baseline take turns. Many short rounds: machines change speed from second to second. */
  readonly pairs: number;
  /** Without pause, and without the other side: longer than the processor gives way. */
  readonly withoutPauseSeconds: number;
  readonly calibrationSeconds: number;
  readonly latencySeconds: number;
  /** For each of the two forms of memory. */
  readonly memorySeconds: number;
  readonly starts: number;
  /** The baseline takes a part of it, with the same share of new people. */
  readonly endToEnd: { readonly events: number; readonly people: number };
  readonly mergePeople: number;
  readonly growth: {
    /** Stored events at which it is measured, ascending; the first is what the others are compared with. */
    readonly sizes: readonly number[];
    readonly roundEvents: number;
    readonly rounds: number;
    readonly reads: number;
  };
  readonly scaleOut: {
    readonly events: number;
    readonly people: number;
    readonly processors: readonly number[];
  };
  readonly sustained: {
    /** Until the rate has settled; not counted. */
    readonly warmupSeconds: number;
    readonly seconds: number;
  };
  readonly soakSeconds: number;
  readonly cost: CostPace;
  readonly sdk: {
    readonly events: number;
    /** Sent before those that count. */
    readonly warmupEvents: number;
    readonly rounds: number;
    /** Packages that are not in the cache are not downloaded. */
    readonly isOffline: boolean;
  };
}

export interface CostPace {
  /** Until everything is compiled; not counted. */
  readonly warmupSeconds: number;
  readonly seconds: number;
  /** After the last response, which counts: the store syncs and checkpoints every 5 s. */
  readonly afterwardsSeconds: number;
}

/** A run of all of them, which has ten minutes. */
export const FULL: Pace = {
  firstSeconds: 2,
  warmupSeconds: 0.3,
  seconds: 1.2,
  pairs: 4,
  withoutPauseSeconds: 8,
  calibrationSeconds: 2,
  latencySeconds: 15,
  memorySeconds: 25,
  starts: 4,
  endToEnd: { events: 1_000_000, people: 100_000 },
  mergePeople: 100_000,
  growth: { sizes: [300_000, 900_000], roundEvents: 100_000, rounds: 3, reads: 1_000 },
  scaleOut: { events: 100_000, people: 10_000, processors: [1, 2, 4] },
  sustained: { warmupSeconds: 10, seconds: 20 },
  soakSeconds: 600,
  cost: { warmupSeconds: 6, seconds: 20, afterwardsSeconds: 6 },
  sdk: { events: 100_000, warmupEvents: 10_000, rounds: 3, isOffline: false },
};

/** Asked for by name: sizes that mean more, and take minutes. */
export const BY_NAME: Pace = {
  ...FULL,
  memorySeconds: 60,
  endToEnd: { events: 2_000_000, people: 200_000 },
  growth: { sizes: [1_000_000, 10_000_000], roundEvents: 500_000, rounds: 3, reads: 2_000 },
  scaleOut: { events: 300_000, people: 30_000, processors: [1, 2, 4] },
  sustained: { warmupSeconds: 15, seconds: 60 },
};
export const LONG: Pace = {
  ...BY_NAME,
  growth: { ...BY_NAME.growth, sizes: [...BY_NAME.growth.sizes, 50_000_000] },
};

/** A round of one side with `--against`: shorter, because there are several of them. */
export const AGAINST: Pace = {
  ...FULL,
  pairs: 2,
  withoutPauseSeconds: 4,
  starts: 1,
  sustained: { warmupSeconds: 10, seconds: 30 },
  soakSeconds: 120,
};

export const SHORT: Pace = {
  firstSeconds: 0.5,
  warmupSeconds: 0.2,
  seconds: 1,
  pairs: 1,
  withoutPauseSeconds: 1,
  calibrationSeconds: 0.7,
  latencySeconds: 2,
  memorySeconds: 5,
  starts: 1,
  endToEnd: { events: 5_000, people: 1_000 },
  mergePeople: 1_000,
  growth: { sizes: [2_000, 4_000], roundEvents: 1_000, rounds: 1, reads: 50 },
  scaleOut: { events: 4_000, people: 500, processors: [1, 2] },
  sustained: { warmupSeconds: 2, seconds: 3 },
  soakSeconds: 4,
  cost: { warmupSeconds: 0.5, seconds: 1, afterwardsSeconds: 0.5 },
  sdk: { events: 2_000, warmupEvents: 500, rounds: 1, isOffline: true },
};

export interface Benchmark {
  readonly name: string;
  readonly what: string;
  /** About how long it takes, for the progress bar. */
  seconds(pace: Pace): number;
  run(context: Context): Promise<Outcome[]>;
  /** Runs with `--against` only: both sides at the same time, under the same load. Then `run` throws. */
  readonly runBoth?: (
    contexts: Readonly<Record<'new' | 'old', Context>>,
  ) => Promise<Readonly<Record<'new' | 'old', Outcome[]>>>;
  /** Left out of a run of all, because it takes too long. */
  readonly onlyByName?: true;
  /** Why it cannot run with `--against`; undefined when it can. */
  readonly notAgainst?: string;
}

/** One pass of a pipeline benchmark: requests sent until their events could be read back. */
export interface StoredResult {
  readonly events: number;
  /** From the first request until all of it could be read back. */
  readonly seconds: number;
  readonly perSecond: number;
  readonly edge: LoadResult;
  readonly serverCpuSeconds: number;
  /** The same by thread, the busiest first, without threads that have ended. */
  readonly threads: readonly ThreadTime[];
  readonly serverDiskBytes: number;
  /** The most so far, since the server was started. */
  readonly serverMegabytes: number;
  readonly transactions: number;
  readonly usersPerTransaction: number;
  readonly merges: number;
  readonly noise: Noise;
}

/** What a run finds out on the way, or has to end on Ctrl-C; one for all contexts of the run. */
interface Shared {
  /** Requests a second of ours in edge-1, once it is known; for both sides of `--against`, so that both get the same load. */
  peak: number | null;
  readonly ceilings: Map<string, LoadResult>;
  readonly stages: Set<Stage>;
}

export interface Workload {
  readonly shape: ShapeName;
  readonly connections: number;
}

export const START_SECONDS = 1;
/** About how long a server needs after a round until it rests; and when it is no longer waited for. */
export const SETTLE_SECONDS = 4;
const SETTLE_SECONDS_MAX = 60;
const SETTLE_POLL_MILLISECONDS = 50;

export class Context {
  readonly pace: Pace;
  readonly generator: Generator;
  readonly progress: Progress;
  readonly capacity: Capacity;
  /** What end-to-end found, once it is known: without and with a `$event_id` on every event. */
  readonly endToEnd: { without: StoredResult | null; with: StoredResult | null } = { without: null, with: null };
  private readonly dataRoot: string;
  shared: Shared = { peak: null, ceilings: new Map(), stages: new Set() };
  /** The checkout whose server is measured. */
  private project: string = PROJECT;

  constructor(pace: Pace, generator: Generator, progress: Progress, capacity: Capacity, dataRoot: string) {
    this.pace = pace;
    this.generator = generator;
    this.progress = progress;
    this.capacity = capacity;
    this.dataRoot = dataRoot;
  }

  /** For the server of another checkout: what was found out about a server is not carried over, the rest is shared. */
  forServerOf(project: string): Context {
    const other = new Context(this.pace, this.generator, this.progress, this.capacity, this.dataRoot);
    other.shared = this.shared;
    other.project = project;
    return other;
  }

  /** Runs `work` with a stage of its own that is cleared afterwards, whatever happens. */
  async onStage<T>(work: (stage: Stage) => Promise<T>): Promise<T> {
    const stage = new Stage(this.dataRoot, this.project);
    this.shared.stages.add(stage);
    try {
      return await work(stage);
    } finally {
      stage.close();
      this.shared.stages.delete(stage);
    }
  }

  /** For Ctrl-C: ends and removes everything at once. */
  close(): void {
    for (const stage of this.shared.stages) stage.close();
    this.generator.close();
    this.progress.close();
  }

  /** Every response a 202. A closed loop unless there is a rate. */
  async drive(
    server: Server,
    { shape, connections }: Workload,
    seconds: number,
    rate: Pick<LoadJob, 'usersPerSecond'> = {},
  ): Promise<LoadResult> {
    const { warmupSeconds } = this.pace;
    const job = { requests: shape, connections, warmupSeconds, end: { seconds }, ...rate };
    const result = await this.generator.run(server, job, warmupSeconds + seconds);
    assertAllAccepted(server.name, result);
    return result;
  }

  /**
   * Waits until a server that stores has processed all that it has responded to: what it still does would slow down the
   * other side's round. One that takes too long is not waited for; the next round then counts as disturbed.
   */
  async settle(server: Server): Promise<void> {
    if (!server.stores) return;
    this.progress.begin(`${server.name}: letting the processor finish`, SETTLE_SECONDS);
    const reader = new Reader(server);
    const giveUpAt = performance.now() + SETTLE_SECONDS_MAX * 1000;
    while ((await reader.progress()).isBehind && performance.now() < giveUpAt) {
      await sleep(SETTLE_POLL_MILLISECONDS);
    }
    reader.close();
  }

  /** How fast the generator goes against a responder that costs next to nothing. Measured once a run and workload. */
  async ceiling(stage: Stage, workload: Workload): Promise<LoadResult> {
    const name = `${workload.shape} ${workload.connections}`;
    const known = this.shared.ceilings.get(name);
    if (known !== undefined) return known;
    const canned = await stage.startBaseline('canned');
    this.progress.begin(`generator: its ceiling with ${workload.shape} a request`, calibrationSeconds(this.pace));
    const result = await this.drive(canned, workload, this.pace.calibrationSeconds);
    await canned.stop();
    this.shared.ceilings.set(name, result);
    return result;
  }
}

interface RunOptions {
  readonly pace: Pace;
  /** About how long it takes, for the progress bar. */
  readonly seconds: number;
  readonly dataRoot: string;
}

/** Runs `work`, and ends all that was started afterwards, on Ctrl-C too. */
export async function withContext<T>(
  { pace, seconds, dataRoot }: RunOptions,
  work: (context: Context) => Promise<T>,
  onClose: () => void = () => undefined,
): Promise<T> {
  const capacity = await Capacity.open();
  const context = new Context(pace, new Generator(), new Progress(process.stdout, seconds), capacity, dataRoot);
  const close = (): void => {
    context.close();
    onClose();
  };
  const interrupted = (): void => {
    close();
    process.exit(130);
  };
  process.once('SIGINT', interrupted);
  process.once('SIGTERM', interrupted);
  try {
    return await work(context);
  } finally {
    close();
    await capacity.close();
  }
}

export function calibrationSeconds(pace: Pace): number {
  return pace.warmupSeconds + pace.calibrationSeconds;
}

export function perSecond(result: LoadResult): number {
  return result.accepted / result.seconds;
}
