/**
 * The benchmark of latency: requests with one user fall due at half of the peak rate of edge-1, and the time of each
 * counts from the moment it was due. Bare at the same rate shows what the machine and the generator add by themselves.
 */

import { type Benchmark, type Context, perSecond, START_SECONDS, type Workload } from './context.ts';
import type { LoadResult } from './generator.ts';
import { milliseconds, type Outcome, thousands } from './report.ts';
import type { Server } from './servers.ts';

const WORKLOAD: Workload = { shape: 'one user', connections: 64 };
const P99_MILLISECONDS = 10;
const P999_MILLISECONDS = 50;

export const latencyBenchmark: Benchmark = {
  name: 'latency',
  what: 'half of the peak rate of edge-1, open loop',
  seconds: (pace) => 2 * (pace.firstSeconds + 2 * pace.warmupSeconds + pace.latencySeconds + START_SECONDS),
  run: async (context) =>
    context.onStage(async (stage) => {
      context.progress.begin('latency: starting both sides', 2 * (START_SECONDS + context.pace.firstSeconds));
      const ours = await stage.startSluice('ours', null, {});
      const bare = { ...(await stage.startBaseline('bare')), key: ours.key };
      // Also warms both up when the peak is known already.
      await context.drive(bare, WORKLOAD, context.pace.firstSeconds);
      const warm = await context.drive(ours, WORKLOAD, context.pace.firstSeconds);
      await context.settle(ours);
      context.shared.peak ??= perSecond(warm);
      const rate = Math.round(context.shared.peak / 2);
      const results = { ours: await steady(context, ours, rate), bare: await steady(context, bare, rate) };
      await Promise.all([ours.stop(), bare.stop()]);
      return outcomes(rate, results);
    }),
};

async function steady(context: Context, server: Server, rate: number): Promise<LoadResult> {
  const { pace } = context;
  const label = `latency: ${server.name} at ${thousands(rate)} requests/s`;
  context.progress.begin(label, pace.warmupSeconds + pace.latencySeconds);
  const result = await context.drive(server, WORKLOAD, pace.latencySeconds, { usersPerSecond: rate });
  await context.settle(server);
  return result;
}

function outcomes(rate: number, { ours, bare }: { ours: LoadResult; bare: LoadResult }): Outcome[] {
  const row = (name: 'p99' | 'p999', limit: number): Outcome => ({
    name: `latency, ${name}`,
    ours: milliseconds(ours.latency[name]),
    baseline: `bare: ${milliseconds(bare.latency[name])}`,
    goal: `< ${limit} ms`,
    met: ours.latency[name] < limit && ours.unanswered === 0,
    notes:
      name === 'p99'
        ? [
            `at ${thousands(rate)} requests/s; reached: ours ${thousands(perSecond(ours))}, bare ${thousands(perSecond(bare))}`,
            `ours ${quantiles(ours)}; bare ${quantiles(bare)}`,
            `the generator sent late by p50 ${milliseconds(ours.sendDelay.p50)}, p99 ` +
              `${milliseconds(ours.sendDelay.p99)} (counted as latency); unanswered ${ours.unanswered}; ` +
              `other programs used ${ours.otherCpu.toFixed(2)} cores meanwhile`,
          ]
        : [],
    figures: [{ name, value: ours.latency[name], unit: 'ms', better: 'lower' }],
    data: { rate, ours, bare },
  });
  return [row('p99', P99_MILLISECONDS), row('p999', P999_MILLISECONDS)];
}

function quantiles({ latency }: LoadResult): string {
  return (
    `p50 ${milliseconds(latency.p50)}, p90 ${milliseconds(latency.p90)}, p99 ${milliseconds(latency.p99)}, ` +
    `p999 ${milliseconds(latency.p999)}, max ${milliseconds(latency.max)}`
  );
}
