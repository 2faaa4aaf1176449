/**
 * The benchmark merge-storm: every person is seen twice apart, once by anon_id and once by email, as two profiles; then
 * comes one record for each that carries both, and merges them. Only these records are measured, against end-to-end of
 * the same run. It fails unless every one of them has merged exactly two profiles.
 */

import { type Benchmark, type Context, START_SECONDS, type StoredResult } from './context.ts';
import { type Population, identifiersOf, type CarriedIdentifiers } from './people-generator.ts';
import { endToEnd } from './end-to-end.ts';
import { disturbance, sendAndWait } from './pipeline.ts';
import { Reader } from './reading.ts';
import { type Outcome, thousands } from './report.ts';
import type { Server, Stage } from './servers.ts';

const GOAL = 0.3;
const FLOOR = 0.2;
/** Primes, so that people come in another order each time. */
const STRIDES = { anon_id: 1, email: 7_919, 'email and anon_id': 104_729 } as const;
const SAMPLED_PEOPLE = 20;
/** For the progress bar. */
const APART_PER_SECOND = 50_000;
const MERGES_PER_SECOND = 15_000;

export const mergeStormBenchmark: Benchmark = {
  name: 'merge-storm',
  what: 'every record merges two profiles, against end-to-end',
  seconds: ({ mergePeople }) => START_SECONDS + (2 * mergePeople) / APART_PER_SECOND + mergePeople / MERGES_PER_SECOND,
  run: async (context) => {
    const calm = await endToEnd(context, 'without');
    return [outcome(await context.onStage(async (stage) => measure(context, stage)), calm)];
  },
};

async function measure(context: Context, stage: Stage): Promise<StoredResult> {
  const people = context.pace.mergePeople;
  context.progress.begin('merge-storm: starting', START_SECONDS);
  const server = await stage.startSluice('ours', null, {});
  const reader = new Reader(server);
  const result = await sendStorm(context, server, reader, people);
  for (let n = 0; n < SAMPLED_PEOPLE; n += 1) {
    const { email } = identifiersOf(Math.floor((n * people) / SAMPLED_PEOPLE));
    const profile = await reader.profile({ email });
    if (profile?.event_count !== 3 || profile.merged_ids.length !== 1) {
      const { event_count, merged_ids } = profile ?? { event_count: 0, merged_ids: [] };
      throw new Error(`a merged person has ${event_count} events instead of 3, and ${merged_ids.length} merged ids`);
    }
  }
  reader.close();
  await server.stop();
  return result;
}

/** The result is that of the records that merge. */
export async function sendStorm(
  context: Context,
  server: Server,
  reader: Reader,
  people: number,
): Promise<StoredResult> {
  const send = async (carries: keyof typeof STRIDES): Promise<StoredResult> =>
    sendAndWait(context, server, reader, populationOf(people, carries), people);
  context.progress.begin('merge-storm: everybody twice, apart', (2 * people) / APART_PER_SECOND);
  const apart = (await send('anon_id')).merges + (await send('email')).merges;
  context.progress.begin(`merge-storm: ${thousands(people)} merges`, people / MERGES_PER_SECOND);
  const result = await send('email and anon_id');
  if (apart !== 0 || result.merges !== people) {
    throw new Error(`${people} records that merge made ${result.merges} merges, and those before ${apart}`);
  }
  return result;
}

function populationOf(people: number, carries: CarriedIdentifiers & keyof typeof STRIDES): Population {
  return { people, order: { stride: STRIDES[carries] }, carries };
}

function outcome(storm: StoredResult, calm: StoredResult): Outcome {
  const ratio = storm.perSecond / calm.perSecond;
  const cpu = ({ serverCpuSeconds, events }: StoredResult): number => (serverCpuSeconds / events) * 1e6;
  return {
    name: 'merge-storm',
    ours: `${thousands(storm.perSecond)} merges/s`,
    baseline: `end-to-end: ${thousands(calm.perSecond)} events/s`,
    ratio,
    goal: `≥ ${GOAL} × end-to-end`,
    met: ratio >= GOAL,
    notes: [
      `${ratio >= FLOOR ? 'above' : 'BELOW'} the floor of ${FLOOR}; ${disturbance([storm])}`,
      `${thousands(storm.merges)} records made as many merges; CPU-seconds of the server per million: merges ` +
        `${cpu(storm).toFixed(1)}, events of end-to-end ${cpu(calm).toFixed(1)}; written to disk ` +
        `${thousands(storm.serverDiskBytes / storm.events)} bytes a merge`,
    ],
    figures: [
      { name: 'throughput', value: storm.perSecond, unit: 'merges/s', better: 'higher' },
      { name: '× end-to-end', value: ratio, unit: '', better: 'higher' },
      { name: 'CPU', value: cpu(storm), unit: 's per million merges', better: 'lower' },
    ],
    noise: storm.noise,
    data: { storm, calm },
  };
}
