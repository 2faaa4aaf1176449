/**
 * `npm run bench`: runs all benchmarks, or those that are named, shows how far it is, prints a table and writes the
 * results as JSON. A full run takes less than ten minutes and writes `results/latest.json`; a run of some, or a short
 * one, writes `results/partial.json`, which is not kept. Exits with 1 when a benchmark could not be run, never because
 * of a figure. Ctrl-C ends what was started and removes its data.
 */

import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Capacity } from './capacity.ts';
import { Context, FULL, GROWTH_BY_NAME, GROWTH_LONG, SCALE_OUT_BY_NAME, SHORT } from './context.ts';
import type { Benchmark, Pace } from './context.ts';
import { edgeBenchmarks, edgesBenchmark, generatorBenchmark } from './edge.ts';
import { cpuBenchmark, endToEndBenchmark } from './end-to-end.ts';
import { Generator } from './generator.ts';
import { growthBenchmark } from './growth.ts';
import { latencyBenchmark } from './latency.ts';
import { describeMachine, machineLine } from './machine.ts';
import { memoryBenchmark } from './memory.ts';
import { mergeStormBenchmark } from './merge-storm.ts';
import { Progress } from './progress.ts';
import { DURABILITY, formatReport } from './report.ts';
import type { Outcome, Report } from './report.ts';
import { scaleOutBenchmark } from './scale-out.ts';
import { PROJECT } from './servers.ts';
import { startBenchmark } from './start.ts';

const BENCHMARKS: readonly Benchmark[] = [
  generatorBenchmark,
  ...edgeBenchmarks,
  latencyBenchmark,
  memoryBenchmark,
  startBenchmark,
  edgesBenchmark,
  endToEndBenchmark,
  cpuBenchmark,
  mergeStormBenchmark,
  growthBenchmark,
  scaleOutBenchmark,
];

const HELP = `npm run bench -- [NAME…] [--short] [--long] [--data FOLDER]

${BENCHMARKS.map(({ name, what }) => `  ${name.padEnd(11)} ${what}`).join('\n')}

  --short        a few seconds each: shows that they work, says little about speed
  --long         growth up to 50 million events: needs 40 GB of disk and half an hour
  --data FOLDER  where data folders are made (bench/.data); should be on a real disk
`;

process.exitCode = await main();

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      short: { type: 'boolean', default: false },
      long: { type: 'boolean', default: false },
      data: { type: 'string', default: join(PROJECT, 'bench', '.data') },
      help: { type: 'boolean', default: false },
    },
  });
  const unknown = positionals.filter((name) => !BENCHMARKS.some((benchmark) => benchmark.name === name));
  if (values.help || unknown.length > 0) {
    console.log(`${unknown.map((name) => `There is no benchmark "${name}".\n`).join('')}${HELP}`);
    return values.help ? 0 : 1;
  }
  const chosen = BENCHMARKS.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
  const from = performance.now();
  const machine = describeMachine(values.data);
  console.log(`${machineLine(machine)}\n`);
  const { outcomes, failed } = await runAll(chosen, paceOf(values, positionals), values.data);
  const seconds = (performance.now() - from) / 1000;
  const report: Report = {
    date: new Date().toISOString(),
    short: values.short,
    seconds,
    machine,
    durability: DURABILITY,
    outcomes,
  };
  console.log(`\n${formatReport(report)}`);
  const file = write(
    report,
    chosen.length === BENCHMARKS.length && !values.short && !values.long && failed.length === 0,
  );
  console.log(`Written to bench/results/${file}.`);
  for (const message of failed) console.error(`\nCould not be run: ${message}`);
  return failed.length === 0 ? 0 : 1;
}

/** A run of all has ten minutes; growth and scale-out with sizes that mean something have more only when it is wanted. */
function paceOf({ short, long }: { readonly short: boolean; readonly long: boolean }, names: readonly string[]): Pace {
  if (short) return SHORT;
  if (long) return { ...FULL, growth: GROWTH_LONG };
  return {
    ...FULL,
    ...(names.includes(growthBenchmark.name) && { growth: GROWTH_BY_NAME }),
    ...(names.includes(scaleOutBenchmark.name) && { scaleOut: SCALE_OUT_BY_NAME }),
  };
}

async function runAll(
  chosen: readonly Benchmark[],
  pace: Pace,
  dataRoot: string,
): Promise<{ outcomes: Outcome[]; failed: string[] }> {
  const total = chosen.reduce((sum, benchmark) => sum + benchmark.seconds(pace), 0);
  const capacity = await Capacity.open();
  const context = new Context(pace, new Generator(), new Progress(process.stdout, total), capacity, dataRoot);
  const interrupted = (): void => {
    context.close();
    removeIfEmpty(dataRoot);
    process.exit(130);
  };
  process.once('SIGINT', interrupted);
  process.once('SIGTERM', interrupted);
  const outcomes: Outcome[] = [];
  const failed: string[] = [];
  for (const benchmark of chosen) {
    try {
      outcomes.push(...(await benchmark.run(context)));
    } catch (error) {
      failed.push(`${benchmark.name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  context.close();
  await capacity.close();
  removeIfEmpty(dataRoot);
  return { outcomes, failed };
}

/** Each stage has removed its own folder; another run may still have one in here. */
function removeIfEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // Not empty, or gone already.
  }
}

function write(report: Report, full: boolean): string {
  const folder = join(PROJECT, 'bench', 'results');
  const file = full ? 'latest.json' : 'partial.json';
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, file), `${JSON.stringify(report, null, 1)}\n`);
  return file;
}
