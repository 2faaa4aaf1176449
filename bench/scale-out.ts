/**
 * The benchmark of several processors: Kafka and PostgreSQL as real servers on this machine, and one, two, four processors
 * that work off the same topic. An edge fills the topic once; each count of processors then starts at its beginning with a
 * database of its own, so all of them process the same records. The rate is taken between the first tenth and the end,
 * so that starting and joining the group is not in it. Everything shares the cores of this machine, so what limits
 * is said with it: how much CPU the processors used, and how much PostgreSQL and Kafka did.
 */

import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { type OwnKafka, ownKafka } from '../test/servers/kafka.ts';
import { type OwnPostgres, ownPostgres } from '../test/servers/postgres.ts';
import { type Benchmark, type Context, START_SECONDS } from './context.ts';
import { type Population, USERS_PER_REQUEST } from './people-generator.ts';
import { assertAllAccepted } from './generator.ts';
import { cpuReading, cpuUsed } from './proc.ts';
import { Reader } from './reading.ts';
import { type Outcome, thousands } from './report.ts';
import type { Server, Stage } from './servers.ts';

const SEED = 20_261_116;
const CONNECTIONS = 16;
const TOPIC = 'sluice-scale-out';
const PARTITIONS = 12;
/** Of all events: before it the group is being joined and code is compiled. */
const WARMUP_SHARE = 0.1;
const POLL_MILLISECONDS = 20;
const STALLED_SECONDS_MAX = 60;
const FILL_SECONDS_MAX = 300;
/** For the progress bar. */
const FILL_PER_SECOND = 20_000;
const OURS_PER_SECOND = 8_000;
const SERVER_SECONDS = 12;
/** So much more than one processor, or it has not grown. */
const GROWTH_MIN = 1.1;
/** Of all cores; more than this is all of them. */
const FULL_SHARE = 0.9;

interface Processed {
  readonly processors: number;
  readonly events: number;
  readonly seconds: number;
  readonly perSecond: number;
  /** Cores on average: of the processors, and of everything else on this machine. */
  readonly ownCores: number;
  readonly otherCores: number;
  readonly conflicts: number;
  readonly transactions: number;
}

export const scaleOutBenchmark: Benchmark = {
  name: 'scale-out',
  what: 'one, two, four processors on Kafka and PostgreSQL',
  seconds: ({ scaleOut: { events, processors } }) =>
    SERVER_SECONDS + events / FILL_PER_SECOND + processors.length * (START_SECONDS + events / OURS_PER_SECOND),
  run: async (context) => context.onStage(async (stage) => measure(context, stage)),
};

async function measure(context: Context, stage: Stage): Promise<Outcome[]> {
  const { events, people, processors } = context.pace.scaleOut;
  context.progress.begin('scale-out: starting Kafka', SERVER_SECONDS);
  const kafka = await ownKafka(1);
  const postgres = await ownPostgres();
  try {
    const population: Population = { people, order: { seed: SEED }, carries: 'everything' };
    context.progress.begin(`scale-out: ${thousands(events)} events into the topic`, events / FILL_PER_SECOND);
    const filledPerSecond = await fill(context, stage, { kafka, postgres }, population, events);
    const results: Processed[] = [];
    for (const count of processors) {
      context.progress.begin(`scale-out: ${count} processors`, START_SECONDS + events / OURS_PER_SECOND);
      results.push(await processAll(stage, { kafka, postgres }, count, events));
    }
    return outcomes(results, filledPerSecond);
  } finally {
    await Promise.all([kafka.close(), postgres.close()]);
  }
}

interface Servers {
  readonly kafka: OwnKafka;
  readonly postgres: OwnPostgres;
}

function logUrl({ brokers }: OwnKafka): string {
  return `kafka://${brokers}/${TOPIC}?partitions=${PARTITIONS}&replication=1`;
}

/** Requests a second are the edge's and Kafka's alone: no processor runs meanwhile. */
async function fill(
  context: Context,
  stage: Stage,
  { kafka, postgres }: Servers,
  population: Population,
  events: number,
): Promise<number> {
  const settings = { STORE_URL: postgres.url, LOG_URL: logUrl(kafka), SLUICE_ROLE: 'edge' };
  const edge = await stage.startSluice('edge', null, { settings });
  const requests = { population, sizes: [USERS_PER_REQUEST] };
  const end = { requests: Math.ceil(events / USERS_PER_REQUEST) };
  const result = await context.generator.run(edge, { requests, connections: CONNECTIONS, end }, FILL_SECONDS_MAX);
  assertAllAccepted(edge.name, result);
  await edge.stop();
  return result.users / result.seconds;
}

async function processAll(
  stage: Stage,
  { kafka, postgres }: Servers,
  count: number,
  events: number,
): Promise<Processed> {
  const settings = { STORE_URL: await postgres.newDatabase(), LOG_URL: logUrl(kafka), SLUICE_ROLE: 'processor' };
  const names = Array.from({ length: count }, (_, n) => `processor-${count}-${n}`);
  const servers = await Promise.all(names.map((name) => stage.startSluice(name, 'none', { settings })));
  const result = await watch(servers, events);
  await Promise.all(servers.map((server) => server.stop()));
  return result;
}

async function watch(servers: readonly Server[], events: number): Promise<Processed> {
  const pids = servers.map(({ pid }) => pid);
  const readers = servers.map((server) => new Reader(server));
  const sum = async (name: string): Promise<number> => {
    const all = await Promise.all(readers.map((reader) => reader.metrics()));
    return all.reduce((total, metrics) => total + (metrics.get(name) ?? 0), 0);
  };
  const start = await waitFor(() => sum('sluice_processed_events_total'), events * WARMUP_SHARE);
  const startedWith = cpuReading(...pids);
  const end = await waitFor(() => sum('sluice_processed_events_total'), events);
  const used = cpuUsed(startedWith, cpuReading(...pids));
  const seconds = (end.at - start.at) / 1000;
  const result: Processed = {
    processors: servers.length,
    events,
    seconds,
    perSecond: (end.value - start.value) / seconds,
    ownCores: used.servers / seconds,
    otherCores: (used.own + used.others) / seconds,
    conflicts: await sum('sluice_store_conflicts_total'),
    transactions: await sum('sluice_processor_transactions_total'),
  };
  if (end.value !== events) throw new Error(`${end.value} events were processed where ${events} were sent`);
  for (const reader of readers) reader.close();
  return result;
}

async function waitFor(read: () => Promise<number>, target: number): Promise<{ value: number; at: number }> {
  let seen = -1;
  let seenAt = performance.now();
  for (;;) {
    const value = await read();
    const at = performance.now();
    if (value >= target) return { value, at };
    if (value !== seen) seenAt = at;
    seen = value;
    if (at - seenAt > STALLED_SECONDS_MAX * 1000) {
      throw new Error(`nothing was processed for ${STALLED_SECONDS_MAX} s, at ${value} of ${target} events`);
    }
    await sleep(POLL_MILLISECONDS);
  }
}

function outcomes(results: readonly Processed[], filledPerSecond: number): Outcome[] {
  const [one] = results;
  if (one === undefined) return [];
  const best = results.reduce((most, result) => (result.perSecond > most.perSecond ? result : most));
  return results.map((result) => {
    const ratio = result.perSecond / one.perSecond;
    const used = result.ownCores + result.otherCores;
    return {
      name: `scale-out, ${result.processors}`,
      ours: `${thousands(result.perSecond)} events/s`,
      baseline: `1 processor: ${thousands(one.perSecond)} events/s`,
      ratio,
      ...(result.processors === 2 && { goal: `≥ ${GROWTH_MIN} × 1 processor`, met: ratio >= GROWTH_MIN }),
      notes: [
        `cores used: processors ${result.ownCores.toFixed(2)}, PostgreSQL, Kafka and the rest ` +
          `${result.otherCores.toFixed(2)}, together ${used.toFixed(2)} of ${availableParallelism()}; ` +
          `${thousands(result.transactions)} transactions, ${thousands(result.conflicts)} done again`,
        ...(result === one
          ? [
              `into Kafka, by one edge: ${thousands(filledPerSecond)} events/s; one broker that syncs every message ` +
                `(flush.messages=1), PostgreSQL as it comes (fsync and synchronous_commit on)`,
            ]
          : []),
        ...(result === best ? [limitOf(results)] : []),
      ],
      figures: [
        { name: 'throughput', value: result.perSecond, unit: 'events/s', better: 'higher' },
        {
          name: 'CPU of the processors',
          value: (result.ownCores / result.perSecond) * 1e6,
          unit: 's per million events',
          better: 'lower',
        },
      ],
      data: result,
    };
  });
}

/** What stopped it from growing further, as far as the fullest of the machines can tell. */
function limitOf(results: readonly Processed[]): string {
  const used = ({ ownCores, otherCores }: Processed): number => ownCores + otherCores;
  const fullest = results.reduce((most, result) => (used(result) > used(most) ? result : most));
  if (used(fullest) < availableParallelism() * FULL_SHARE) {
    return 'the limit is not the CPU of this machine: PostgreSQL waits for its disk, or processors for each other';
  }
  const most = fullest.otherCores > fullest.ownCores ? 'PostgreSQL and Kafka' : 'the processors';
  return `the limit is the CPU of this machine, which ${fullest.processors} use up, most of it ${most}`;
}
