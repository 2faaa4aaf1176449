/**
 * `npm run bench`: runs all benchmarks, or those that are named, shows how far it is, prints a table and writes the
 * results as JSON. A full run takes less than ten minutes and writes `results/latest.json`; a run of some, or a short
 * one, writes `results/partial.json`, which is not kept. Exits with 1 when a benchmark could not be run, never because
 * of a figure. Ctrl-C ends what was started and removes its data.
 */

import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { messageOf } from '../src/errors.ts';
import { compare, type Comparison, formatComparisons, runInTurns, type Sides } from './against.ts';
import {
  AGAINST,
  type Benchmark,
  BY_NAME,
  type Context,
  FULL,
  LONG,
  type Pace,
  SHORT,
  withContext,
} from './context.ts';
import { edgeBenchmarks, edgesBenchmark, generatorBenchmark, planBenchmark } from './edge.ts';
import { costBenchmark } from './cost.ts';
import { cpuBenchmark, endToEndBenchmark } from './end-to-end.ts';
import { growthBenchmark, growthIdsBenchmark } from './growth.ts';
import { latencyBenchmark } from './latency.ts';
import { describeMachine, type Machine, machineLine } from './machine.ts';
import { memoryBenchmark } from './memory.ts';
import { mergeStormBenchmark } from './merge-storm.ts';
import { nameOfThisCheckout, OldCommit } from './old-commit.ts';
import { DURABILITY, formatReport, type Outcome, type Report } from './report.ts';
import { scaleOutBenchmark } from './scale-out.ts';
import { sdkBenchmark } from './sdk.ts';
import { PROJECT } from './servers.ts';
import { soakBenchmark } from './soak.ts';
import { startBenchmark } from './start.ts';
import { sustainedBenchmark } from './sustained.ts';

const BENCHMARKS: readonly Benchmark[] = [
  generatorBenchmark,
  ...edgeBenchmarks,
  latencyBenchmark,
  memoryBenchmark,
  startBenchmark,
  edgesBenchmark,
  planBenchmark,
  endToEndBenchmark,
  cpuBenchmark,
  costBenchmark,
  sustainedBenchmark,
  mergeStormBenchmark,
  growthBenchmark,
  growthIdsBenchmark,
  scaleOutBenchmark,
  soakBenchmark,
  sdkBenchmark,
];

const ROUNDS = 4;
const ROUNDS_MAX = 100;
const SECONDS_MAX = 7 * 86_400;
/** Those whose length can be given. */
const TIMED = [soakBenchmark.name, sustainedBenchmark.name];

const HELP = `npm run bench -- [NAME…] [--short] [--long] [--data FOLDER]
npm run bench -- NAME… --against COMMIT [--rounds N] [--short] [--data FOLDER]
npm run bench -- soak|sustained [--seconds N] [--against COMMIT]

${BENCHMARKS.map(({ name, what }) => `  ${name.padEnd(11)} ${what}`).join('\n')}

  --against COMMIT  compare the server of this checkout with that of COMMIT, in turns
  --rounds N        with --against: how often both take their turn (${ROUNDS})
  --seconds N       how long soak or sustained lasts (600 and 60; with --against 120 and 30)
  --short           a few seconds each: shows that they work, says little about speed
  --long            growth up to 50 million events: needs 40 GB of disk and half an hour
  --data FOLDER     where data folders are made (bench/.data); should be on a real disk
`;

process.exitCode = await main();

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      against: { type: 'string' },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      short: { type: 'boolean', default: false },
      long: { type: 'boolean', default: false },
      data: { type: 'string', default: join(PROJECT, 'bench', '.data') },
      help: { type: 'boolean', default: false },
    },
  });
  const problems = problemsOf(values, positionals);
  if (values.help || problems.length > 0) {
    console.log(`${problems.map((problem) => `${problem}\n`).join('')}${HELP}`);
    return values.help ? 0 : 1;
  }
  const all = BENCHMARKS.filter(({ onlyByName }) => onlyByName === undefined);
  const chosen = positionals.length === 0 ? all : BENCHMARKS.filter(({ name }) => positionals.includes(name));
  const pace = paceOf(values, positionals);
  const machine = describeMachine(values.data);
  console.log(`${machineLine(machine)}\n`);
  if (values.against !== undefined) {
    const rounds = Number(values.rounds ?? (values.short ? 1 : ROUNDS));
    const { against: commit, short, data } = values;
    return runAgainst(chosen, { commit, rounds, short, data, machine, pace });
  }
  const from = performance.now();
  const { outcomes, failed } = await runAll(chosen, pace, values.data);
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
  const isFull = positionals.length === 0 && !values.short && !values.long && failed.length === 0;
  write(isFull ? 'latest.json' : 'partial.json', report);
  return finish(failed);
}

interface Options {
  readonly against?: string | undefined;
  readonly rounds?: string | undefined;
  readonly seconds?: string | undefined;
  readonly short: boolean;
  readonly long: boolean;
}

/** What is wrong with the command line, in sentences. */
function problemsOf({ against, rounds, seconds, long }: Options, names: readonly string[]): string[] {
  const unknown = names.filter((name) => !BENCHMARKS.some((benchmark) => benchmark.name === name));
  const problems = unknown.map((name) => `There is no benchmark "${name}".`);
  if (seconds !== undefined && !TIMED.some((name) => names.includes(name))) {
    problems.push(`--seconds goes with ${TIMED.join(' and ')}.`);
  }
  if (!isWholeNumber(seconds, SECONDS_MAX)) problems.push(`--seconds must be a whole number from 1 to ${SECONDS_MAX}.`);
  if (against === undefined) {
    if (rounds !== undefined) problems.push('--rounds goes with --against.');
    for (const { name, runBoth } of BENCHMARKS) {
      if (runBoth !== undefined && names.includes(name)) problems.push(`"${name}" runs with --against only.`);
    }
    return problems;
  }
  if (names.length === 0) problems.push('--against needs the name of at least one benchmark.');
  if (long) problems.push('--long does not go with --against.');
  if (!isWholeNumber(rounds, ROUNDS_MAX)) problems.push(`--rounds must be a whole number from 1 to ${ROUNDS_MAX}.`);
  for (const { name, notAgainst } of BENCHMARKS) {
    if (notAgainst !== undefined && names.includes(name)) {
      problems.push(`"${name}" cannot run with --against: ${notAgainst}.`);
    }
  }
  return problems;
}

/** From 1 to `max`; or not given. */
function isWholeNumber(text: string | undefined, max: number): boolean {
  return text === undefined || (/^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= max);
}

function paceOf({ against, seconds, short, long }: Options, names: readonly string[]): Pace {
  const byName = long ? LONG : names.length === 0 ? FULL : BY_NAME;
  const pace = short ? SHORT : against !== undefined ? AGAINST : byName;
  if (seconds === undefined) return pace;
  return { ...pace, soakSeconds: Number(seconds), sustained: { ...pace.sustained, seconds: Number(seconds) } };
}

async function runAll(
  chosen: readonly Benchmark[],
  pace: Pace,
  dataRoot: string,
): Promise<{ outcomes: Outcome[]; failed: string[] }> {
  const outcomes: Outcome[] = [];
  const failed = await runEach(chosen, { pace, turns: 1, dataRoot, old: null }, async (benchmark, context) => {
    outcomes.push(...(await benchmark.run(context)));
  });
  return { outcomes, failed };
}

interface AgainstOptions {
  readonly commit: string;
  readonly rounds: number;
  readonly short: boolean;
  readonly data: string;
  readonly machine: Machine;
  readonly pace: Pace;
}

async function runAgainst(
  chosen: readonly Benchmark[],
  { commit, rounds, short, data, machine, pace }: AgainstOptions,
): Promise<number> {
  const from = performance.now();
  let old: OldCommit;
  try {
    old = OldCommit.open(commit);
  } catch (error) {
    console.error(messageOf(error));
    return 1;
  }
  const names = { new: nameOfThisCheckout(), old: old.name };
  const comparisons: Comparison[] = [];
  let sides: Sides | null = null;
  const failed = await runEach(chosen, { pace, turns: 2 * rounds, dataRoot: data, old }, async (benchmark, context) => {
    sides ??= {
      new: { name: names.new, contexts: Array.from({ length: rounds }, () => context.forServerOf(PROJECT)) },
      old: { name: names.old, contexts: Array.from({ length: rounds }, () => context.forServerOf(old.root)) },
    };
    comparisons.push(...compare(await runInTurns(benchmark, sides, rounds)));
  });
  const seconds = Math.round((performance.now() - from) / 1000);
  console.log(`\n${formatComparisons(comparisons, names)}`);
  console.log(`Both sides: ${DURABILITY.ours}.\nMachine: ${machineLine(machine)}.\nTook ${seconds} s.`);
  if (short) console.log('A short run: it shows that the benchmarks work; its figures say little.');
  write('against.json', { date: new Date().toISOString(), short, seconds, machine, names, rounds, comparisons });
  return finish(failed);
}

interface Run {
  readonly pace: Pace;
  /** How often each benchmark runs, for the progress bar. */
  readonly turns: number;
  readonly dataRoot: string;
  readonly old: OldCommit | null;
}

/** Calls `work` for each benchmark. Returns what could not be run. */
async function runEach(
  chosen: readonly Benchmark[],
  { pace, turns, dataRoot, old }: Run,
  work: (benchmark: Benchmark, context: Context) => Promise<void>,
): Promise<string[]> {
  const seconds = turns * chosen.reduce((sum, benchmark) => sum + benchmark.seconds(pace), 0);
  const failed: string[] = [];
  const each = async (context: Context): Promise<void> => {
    for (const benchmark of chosen) {
      try {
        await work(benchmark, context);
      } catch (error) {
        failed.push(`${benchmark.name}: ${messageOf(error)}`);
      }
    }
  };
  await withContext({ pace, seconds, dataRoot }, each, () => {
    old?.close();
    removeIfEmpty(dataRoot);
  });
  return failed;
}

/** Each stage has removed its own folder; another run may still have one in here. */
function removeIfEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // Not empty, or gone already.
  }
}

function write(file: string, content: object): void {
  const folder = join(PROJECT, 'bench', 'results');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, file), `${JSON.stringify(content, null, 1)}\n`);
  console.log(`Written to bench/results/${file}.`);
}

function finish(failed: readonly string[]): number {
  for (const message of failed) console.error(`\nCould not be run: ${message}`);
  return failed.length === 0 ? 0 : 1;
}
