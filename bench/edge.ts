/**
 * The benchmarks of throughput: edge-1, edge-100 and edge-1000 (ours against bare), generator (its ceiling), edges
 * (one edge thread against two) and edge-100-plan (with and without an enforced tracking plan). Both sides run at the same time on ports of their own and take turns under load, so
 * that a machine that slows down slows both; the ratio is the median of the pairs. In its round ours also processes what
 * it takes in, as in production; before the other side's round it may finish.
 */

import { availableParallelism } from 'node:os';
import {
  type Benchmark,
  calibrationSeconds,
  type Context,
  type Pace,
  perSecond,
  SETTLE_SECONDS,
  START_SECONDS,
  type Workload,
} from './context.ts';
import type { LoadResult } from './generator.ts';
import { isNoisy, type Noise, worstNoise } from './noise.ts';
import { median, type Outcome, thousands } from './report.ts';
import { EVENT_NAMES, SHAPES } from './requests.ts';
import { cpuSeconds } from './proc.ts';
import { Reader } from './reading.ts';
import type { Server, SluiceOptions } from './servers.ts';

interface EdgeCase extends Workload {
  readonly name: string;
  readonly goal: number;
  /** What no change may fall below, while the goal is not reached. */
  readonly floor: number;
}

export const EDGE_CASES: readonly EdgeCase[] = [
  { name: 'edge-1', shape: 'one user', connections: 64, goal: 0.8, floor: 0.6 },
  { name: 'edge-100', shape: '100 users', connections: 16, goal: 1, floor: 0.8 },
  { name: 'edge-1000', shape: '1,000 users', connections: 8, goal: 1, floor: 0.8 },
];

export const generatorBenchmark: Benchmark = {
  name: 'generator',
  notAgainst: 'it measures the load generator, which is always the one of this checkout',
  what: 'how fast the load generator can go',
  seconds: (pace) => EDGE_CASES.length * (calibrationSeconds(pace) + 0.3),
  run: async (context) =>
    context.onStage(async (stage) => {
      const outcomes: Outcome[] = [];
      for (const edge of EDGE_CASES) {
        const result = await context.ceiling(stage, edge);
        outcomes.push({
          name: `generator, ${edge.shape}`,
          ours: `${thousands(perSecond(result))} requests/s`,
          baseline: 'a canned response, no HTTP',
          data: result,
        });
      }
      return outcomes;
    }),
};

export const edgeBenchmarks: readonly Benchmark[] = EDGE_CASES.map((edge) => ({
  name: edge.name,
  what: `${edge.connections} connections, ${edge.shape} a request, durable 202, against bare`,
  seconds: (pace) =>
    calibrationSeconds(pace) + pairsSeconds(pace, 1) + pace.withoutPauseSeconds + SETTLE_SECONDS + 2 * START_SECONDS,
  run: async (context) =>
    context.onStage(async (stage) => {
      const ceiling = await context.ceiling(stage, edge);
      context.progress.begin(`${edge.name}: starting both sides`, 2 * START_SECONDS);
      const ours = await stage.startSluice('ours', null, {});
      const bare = { ...(await stage.startBaseline('bare')), key: ours.key };
      const pairs = await takeTurns(context, edge.name, edge, ours, bare);
      // In a short round the processor gives way; this shows what is left when it no longer can.
      context.progress.begin(`${edge.name}: ours without pause`, context.pace.withoutPauseSeconds);
      const before = await processed(ours);
      const sustained = await context.drive(ours, edge, context.pace.withoutPauseSeconds);
      await context.settle(ours);
      const after = await processed(ours);
      const cpuUntilProcessed = ((after.cpuSeconds - before.cpuSeconds) / (after.users - before.users)) * 1e6;
      await stopAll(ours, bare);
      if (edge.shape === 'one user') context.shared.peak = median(pairs.first.map(perSecond));
      return [edgeOutcome(edge, pairs, { ...sustained, cpuUntilProcessed }, ceiling)];
    }),
}));

export const edgesBenchmark: Benchmark = {
  name: 'edges',
  notAgainst: 'it compares two settings of one server; use edge-1 and edge-100',
  what: 'two edge threads against one',
  seconds: (pace) => 2 * (pairsSeconds(pace, 2) + 2 * START_SECONDS),
  run: async (context) => {
    const outcomes: Outcome[] = [];
    for (const edge of EDGE_CASES.filter(({ name }) => name !== 'edge-1000')) {
      const two = { name: 'two', options: { edges: 2 } };
      const one = { name: 'one', options: { edges: 1 } };
      outcomes.push(await compareVariants(context, `edges, ${edge.shape}`, edge, two, one));
    }
    return outcomes;
  },
};

/** No change may make a plan cost more than this. */
const PLAN_GOAL = 0.6;

/** Ten properties of every event, of which a request has five. */
const ENFORCED_PLAN = {
  unplanned_events: 'reject',
  events: Object.fromEntries(
    EVENT_NAMES.map((name) => [
      name,
      {
        mode: 'enforce',
        schema: {
          type: 'object',
          properties: {
            revenue: { type: 'number', minimum: 0 },
            currency: { type: 'string', pattern: '^[A-Z]{3}$' },
            order_id: { type: 'string', minLength: 1, maxLength: 100 },
            product_id: { type: 'string', pattern: '^sku_[0-9a-f]+$' },
            quantity: { type: 'integer', minimum: 1 },
            coupon: { type: ['string', 'null'] },
            discount: { type: 'number', minimum: 0, maximum: 1 },
            is_gift: { type: 'boolean' },
            placed_at: { type: 'string', format: 'date-time' },
            tags: { type: 'array', items: { type: 'string' }, maxItems: 20 },
          },
          required: ['revenue', 'currency', 'order_id', 'product_id', 'quantity'],
          additionalProperties: false,
        },
      },
    ]),
  ),
};

export const planBenchmark: Benchmark = {
  name: 'edge-100-plan',
  notAgainst: 'it compares two tenants of one version; use edge-100',
  what: 'every event enforced by a tracking plan of ten properties, against no plan',
  seconds: (pace) => pairsSeconds(pace, 2) + 2 * START_SECONDS,
  run: async (context) => {
    const [edge] = EDGE_CASES.filter(({ name }) => name === 'edge-100') as [EdgeCase];
    const planned = { name: 'with', options: {}, prepare: pushPlan };
    const row = await compareVariants(context, 'edge-100-plan', edge, planned, { name: 'without', options: {} });
    return [{ ...row, goal: `≥ ${PLAN_GOAL} × without`, met: row.ratio >= PLAN_GOAL }];
  },
};

async function pushPlan({ port, key }: Server): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${port}/plan`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(ENFORCED_PLAN),
  });
  if (response.status !== 200) throw new Error(`the plan was refused: ${await response.text()}`);
}

/** How many pairs may be repeated because they were disturbed. */
const REPEATED_SHARE_MAX = 0.34;

interface Pairs {
  readonly first: readonly LoadResult[];
  readonly second: readonly LoadResult[];
  readonly ratios: readonly number[];
  readonly ratio: number;
  readonly noise: Noise;
  readonly remark: string;
}

interface Pair {
  readonly first: LoadResult;
  readonly second: LoadResult;
  /** The least that was there, see `capacity.ts`. */
  readonly cores: number;
}

/** `storing`: how many of the two sides store what they accept. */
function pairsSeconds(pace: Pace, storing: number): number {
  const rounds = 2 * pace.firstSeconds + pace.pairs * 2 * (pace.warmupSeconds + pace.seconds);
  return rounds + storing * pace.pairs * SETTLE_SECONDS;
}

async function takeTurns(
  context: Context,
  label: string,
  workload: Workload,
  first: Server,
  second: Server,
): Promise<Pairs> {
  const { pace } = context;
  const turn = async (server: Server, round: number): Promise<LoadResult> => {
    context.progress.begin(`${label}: ${server.name}, round ${round}`, pace.warmupSeconds + pace.seconds);
    const result = await context.drive(server, workload, pace.seconds);
    await context.settle(server);
    return result;
  };
  for (const server of [first, second]) {
    context.progress.begin(`${label}: ${server.name}, warming up`, pace.firstSeconds);
    await context.drive(server, workload, pace.firstSeconds - pace.warmupSeconds);
    await context.settle(server);
  }
  const pairs: Pair[] = [];
  const roundsMax = Math.ceil(pace.pairs * (1 + REPEATED_SHARE_MAX));
  for (let round = 1; round <= roundsMax && pairs.filter(isUndisturbed).length < pace.pairs; round += 1) {
    const before = await context.capacity.now();
    // Who goes first changes, so that neither side always gets the better half of a drift.
    const odd = round % 2 === 1;
    const one = await turn(odd ? first : second, round);
    const between = await context.capacity.now();
    const other = await turn(odd ? second : first, round);
    const cores = Math.min(before, between, await context.capacity.now());
    pairs.push({ first: odd ? one : other, second: odd ? other : one, cores });
  }
  return selectPairs(pairs);
}

/** Disturbed pairs count only when there are hardly any others. */
function selectPairs(pairs: readonly Pair[]): Pairs {
  const undisturbed = pairs.filter(isUndisturbed);
  const used = undisturbed.length * 3 >= pairs.length ? undisturbed : pairs;
  const first = used.map((pair) => pair.first);
  const second = used.map((pair) => pair.second);
  const ratios = used.map((pair) => perSecond(pair.first) / perSecond(pair.second));
  const ratio = median(ratios);
  const noisy = used === undisturbed ? '' : 'NOISY, the machine was busy with other things: ';
  const left = pairs.length - used.length;
  const remark =
    `${noisy}ratios of the rounds ${ratios.map((value) => value.toFixed(2)).join(', ')}` +
    `${left > 0 ? ` (${left} disturbed ones left out)` : ''}; ` +
    `cores that were there ${median(used.map((pair) => pair.cores)).toFixed(1)} of ${availableParallelism()}, ` +
    `used by other programs ${median(first.concat(second).map((result) => result.otherCpu)).toFixed(2)}`;
  return { first, second, ratios, ratio, noise: worstNoise(used.map(noiseOf)), remark };
}

function noiseOf({ first, second, cores }: Pair): Noise {
  return { cores, otherCores: Math.max(first.otherCpu, second.otherCpu) };
}

function isUndisturbed(pair: Pair): boolean {
  return !isNoisy(noiseOf(pair));
}

/** Without pause. */
interface Sustained extends LoadResult {
  /** CPU-seconds per million users until all of them were stored, after the last request too. */
  readonly cpuUntilProcessed: number;
}

async function processed(server: Server): Promise<{ readonly users: number; readonly cpuSeconds: number }> {
  const reader = new Reader(server);
  const users = (await reader.metrics()).get('sluice_processed_users_total') ?? Number.NaN;
  reader.close();
  return { users, cpuSeconds: cpuSeconds(server.pid) };
}

function edgeOutcome(edge: EdgeCase, pairs: Pairs, sustained: Sustained, ceiling: LoadResult): Outcome {
  const { first: ours, second: bare, ratio, ratios, remark } = pairs;
  const rate = median(ours.map(perSecond));
  const users = SHAPES[edge.shape].usersPerRequest;
  const fastest = Math.max(rate, median(bare.map(perSecond)));
  const busy = Math.max(...ours.concat(bare).map((result) => result.generatorBusy));
  return {
    name: edge.name,
    ours: rateText(edge, rate),
    baseline: `bare: ${rateText(edge, median(bare.map(perSecond)))}`,
    ratio,
    goal: `≥ ${edge.goal.toFixed(1)} × bare`,
    met: ratio >= edge.goal,
    notes: [
      `${ratio >= edge.floor ? 'above' : 'BELOW'} the floor of ${edge.floor.toFixed(1)}; ${remark}`,
      `without pause for ${Math.round(sustained.seconds)} s: ${rateText(edge, perSecond(sustained))}, ` +
        `${(perSecond(sustained) / median(bare.map(perSecond))).toFixed(2)} × bare, p99 ` +
        `${sustained.latency.p99.toFixed(1)} ms`,
      `CPU-seconds per million users, all threads: ours ${cpuText(ours)}, bare ${cpuText(bare)}; ` +
        `without pause and until all are stored: ours ${sustained.cpuUntilProcessed.toFixed(1)}`,
      `latency at this load, p50 and p99: ours ${latencyText(ours)}, bare ${latencyText(bare)}`,
      `written to disk by ours: ${thousands(median(ours.map((r) => r.serverDiskBytes / r.users)))} bytes a user`,
      `generator: can do ${(perSecond(ceiling) / fastest).toFixed(1)} × the faster side; ` +
        `its event loop was busy ${Math.round(busy * 100)} % of the time at most`,
    ],
    figures: [
      { name: 'throughput', value: rate * users, unit: 'users/s', better: 'higher' },
      { name: '× bare', value: ratio, unit: '', better: 'higher' },
      { name: 'without pause', value: sustained.users / sustained.seconds, unit: 'users/s', better: 'higher' },
      { name: 'CPU', value: cpuPerMillion(ours), unit: 's per million users', better: 'lower' },
      { name: 'CPU until stored', value: sustained.cpuUntilProcessed, unit: 's per million users', better: 'lower' },
      { name: 'p99', value: median(ours.map(({ latency }) => latency.p99)), unit: 'ms', better: 'lower' },
    ],
    noise: pairs.noise,
    data: { ratios, ours, bare, sustained, ceiling },
  };
}

/** A server of ours that differs from another in one thing. */
interface Variant {
  readonly name: string;
  readonly options: SluiceOptions;
  readonly prepare?: (server: Server) => Promise<void>;
}

async function compareVariants(
  context: Context,
  label: string,
  edge: EdgeCase,
  one: Variant,
  other: Variant,
): Promise<Outcome & { readonly ratio: number }> {
  return context.onStage(async (stage) => {
    context.progress.begin(`${label}: starting both sides`, 2 * START_SECONDS);
    const servers = [];
    for (const { name, options, prepare } of [one, other]) {
      const server = await stage.startSluice(name, null, options);
      await prepare?.(server);
      servers.push(server);
    }
    const [first, second] = servers as [Server, Server];
    const pairs = await takeTurns(context, label, edge, first, second);
    await stopAll(first, second);
    const text = (of: (results: readonly LoadResult[]) => string): string =>
      `${one.name} ${of(pairs.first)}, ${other.name} ${of(pairs.second)}`;
    return {
      name: label,
      ours: `${one.name}: ${rateText(edge, median(pairs.first.map(perSecond)))}`,
      baseline: `${other.name}: ${rateText(edge, median(pairs.second.map(perSecond)))}`,
      ratio: pairs.ratio,
      notes: [pairs.remark, `CPU-seconds per million users: ${text(cpuText)}; p50 and p99: ${text(latencyText)}`],
      noise: pairs.noise,
      data: pairs,
    };
  });
}

async function stopAll(...servers: readonly Server[]): Promise<void> {
  await Promise.all(servers.map(async (server) => server.stop()));
}

function rateText(edge: EdgeCase, rate: number): string {
  const users = SHAPES[edge.shape].usersPerRequest;
  return users === 1 ? `${thousands(rate)} requests/s` : `${thousands(rate * users)} users/s`;
}

function cpuPerMillion(results: readonly LoadResult[]): number {
  return median(results.map((result) => (result.serverCpuSeconds / result.users) * 1e6));
}

function cpuText(results: readonly LoadResult[]): string {
  const value = cpuPerMillion(results);
  return Number.isNaN(value) ? '–' : value.toFixed(1);
}

function latencyText(results: readonly LoadResult[]): string {
  const p50 = median(results.map((result) => result.latency.p50));
  const p99 = median(results.map((result) => result.latency.p99));
  return `${p50.toFixed(1)} and ${p99.toFixed(1)} ms`;
}
