/**
 * The benchmark of starting: from spawning the command to the first 200 of /readyz, asked every 2 ms. Four ways: with
 * node and with npm (which a person types), each on a fresh folder (first start: makes the account and a key) and again
 * on the same one. Bare shows what Node itself takes.
 */

import { type Benchmark, type Context, START_SECONDS } from './context.ts';
import { median, milliseconds, type Outcome } from './report.ts';
import type { Stage } from './servers.ts';

const LIMIT_MILLISECONDS = 1000;

export const startBenchmark: Benchmark = {
  name: 'start',
  what: 'from the command to ready',
  seconds: (pace) => pace.starts * 5 * START_SECONDS,
  run: async (context) => context.onStage(async (stage) => measure(context, stage)),
};

async function measure(context: Context, stage: Stage): Promise<Outcome[]> {
  const times = {
    bare: [] as number[],
    'node, first': [] as number[],
    'node, again': [] as number[],
    'npm, first': [] as number[],
    'npm, again': [] as number[],
  };
  for (let round = 1; round <= context.pace.starts; round += 1) {
    context.progress.begin(`start: round ${round}`, 5 * START_SECONDS);
    const bare = await stage.startBaseline('bare');
    times.bare.push(bare.readySeconds * 1000);
    await bare.stop();
    for (const [way, npm] of [['node', false] as const, ['npm', true] as const]) {
      const folder = stage.freshFolder();
      for (const time of ['first', 'again'] as const) {
        const server = await stage.startSluice(`${way}, ${time}`, null, { npm, folder });
        times[`${way}, ${time}`].push(server.readySeconds * 1000);
        await server.stop();
      }
      stage.removeFolder(folder);
    }
  }
  const bareText = `bare: ${milliseconds(median(times.bare))}`;
  return (['node, first', 'node, again', 'npm, first', 'npm, again'] as const).map((way) => {
    const value = median(times[way]);
    return {
      name: `start, ${way}`,
      ours: milliseconds(value),
      baseline: bareText,
      goal: `< ${LIMIT_MILLISECONDS / 1000} s`,
      met: value < LIMIT_MILLISECONDS,
      figures: [{ name: 'time to ready', value, unit: 'ms', better: 'lower' }],
      data: { milliseconds: times[way], bare: times.bare },
    };
  });
}
