/**
 * `--against COMMIT`: each benchmark runs on the server of this checkout and on that of an older commit, in turns, and
 * what counts is the ratio of the two within a round; `cost` runs both at the same time. Load, baselines and benchmark code are this checkout's on both
 * sides. The side that goes first changes with every round (ABBA), so a machine that becomes slower favours neither.
 * Rounds in which the machine was busy with other things are marked, and left out of the median while enough others are
 * left.
 */

import type { Benchmark, Context } from './context.ts';
import { isNoisy, type Noise, noiseText, worstNoise } from './noise.ts';
import { type Figure, median, type Outcome, table, thousands } from './report.ts';

export const SIDES = ['new', 'old'] as const;
export type SideName = (typeof SIDES)[number];

export interface Side {
  /** As the table calls it. */
  readonly name: string;
  /** One for each round: what one benchmark has found out about this side, another may use in the same round. */
  readonly contexts: readonly Context[];
}

export type Sides = Readonly<Record<SideName, Side>>;

/** One row of one benchmark in one round, on both sides. */
export interface RoundPair {
  readonly new: Outcome;
  readonly old: Outcome;
}

/** One figure over all rounds. */
export interface Comparison {
  readonly name: string;
  readonly figure: string;
  readonly unit: string;
  readonly better: Figure['better'];
  readonly new: readonly number[];
  readonly old: readonly number[];
  /** New by old, by round. */
  readonly ratios: readonly number[];
  /** By round; false where the benchmark does not measure noise. */
  readonly noisy: readonly boolean[];
  readonly noise: Noise | null;
  /** Of the rounds that were not noisy; of all rounds when fewer than a third were not. */
  readonly ratio: number;
}

/** Runs one benchmark to its end on both sides. */
export async function runInTurns(benchmark: Benchmark, sides: Sides, rounds: number): Promise<RoundPair[]> {
  const pairs: RoundPair[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const contextOf = (side: SideName): Context => {
      const context = sides[side].contexts[round];
      if (context === undefined) throw new Error(`there is no context for round ${round + 1}`);
      return context;
    };
    const contexts = { new: contextOf('new'), old: contextOf('old') };
    const { progress } = contexts.new;
    let outcomes: Readonly<Record<SideName, readonly Outcome[]>>;
    if (benchmark.runBoth === undefined) {
      const inTurns: Record<SideName, readonly Outcome[]> = { new: [], old: [] };
      for (const side of round % 2 === 0 ? SIDES : SIDES.toReversed()) {
        progress.prefix = `round ${round + 1} of ${rounds}, ${sides[side].name}: `;
        inTurns[side] = await benchmark.run(contexts[side]);
      }
      outcomes = inTurns;
    } else {
      progress.prefix = `round ${round + 1} of ${rounds}: `;
      outcomes = await benchmark.runBoth(contexts);
    }
    progress.prefix = '';
    for (const outcome of outcomes.new) {
      const old = outcomes.old.find(({ name }) => name === outcome.name);
      if (old !== undefined) pairs.push({ new: outcome, old });
    }
  }
  return pairs;
}

export function compare(pairs: readonly RoundPair[]): Comparison[] {
  const byName = Map.groupBy(pairs, (pair) => pair.new.name);
  return [...byName].flatMap(([name, rounds]) =>
    (rounds[0]?.new.figures ?? []).map(({ name: figure }) => compareFigure(name, figure, rounds)),
  );
}

function compareFigure(name: string, figure: string, rounds: readonly RoundPair[]): Comparison {
  const find = (outcome: Outcome): Figure => {
    const found = outcome.figures?.find((candidate) => candidate.name === figure);
    if (found === undefined) throw new Error(`${name} has no figure "${figure}" in one of the rounds`);
    return found;
  };
  const { unit, better } = find((rounds[0] as RoundPair).new);
  const values = (side: SideName): number[] => rounds.map((pair) => find(pair[side]).value);
  const [ours, old] = [values('new'), values('old')];
  const ratios = ours.map((value, round) => value / (old[round] ?? Number.NaN));
  const noises = rounds.map((pair) => [pair.new.noise, pair.old.noise].filter((noise) => noise !== undefined));
  const noisy = noises.map((both) => both.some(isNoisy));
  const quiet = ratios.filter((_, round) => noisy[round] === false);
  return {
    name,
    figure,
    unit,
    better,
    new: ours,
    old,
    ratios,
    noisy,
    noise: noises.flat().length === 0 ? null : worstNoise(noises.flat()),
    ratio: median(quiet.length * 3 >= ratios.length ? quiet : ratios),
  };
}

export function formatComparisons(
  comparisons: readonly Comparison[],
  names: Readonly<Record<SideName, string>>,
): string {
  const head = ['name', 'figure', names.new, names.old, 'ratio by round', 'median ratio', 'better is'];
  const rows = comparisons.map((row) => [
    row.name,
    row.figure,
    valueText(median(row.new), row.unit),
    valueText(median(row.old), row.unit),
    row.ratios.map((ratio, round) => `${ratio.toFixed(2)}${row.noisy[round] === true ? '*' : ''}`).join(', '),
    row.ratio.toFixed(2),
    row.better,
  ]);
  return [...table(head, rows), '', ...noiseLines(comparisons), ''].join('\n');
}

/** One line a benchmark, for all of its figures were measured in the same rounds. */
function noiseLines(comparisons: readonly Comparison[]): string[] {
  const byName = new Map(comparisons.map((row) => [row.name, row]));
  const lines = [...byName.values()].flatMap(({ name, noise, noisy }) => {
    if (noise === null) return [];
    const quiet = noisy.filter((value) => !value).length;
    const summary =
      quiet === noisy.length
        ? 'no round was disturbed'
        : quiet * 3 >= noisy.length
          ? `${noisy.length - quiet} of ${noisy.length} rounds were disturbed and are not in the median ratio`
          : `NOISY, ${noisy.length - quiet} of ${noisy.length} rounds were disturbed: do not believe this row`;
    return [`- ${name}: ${summary}; in the worst round: ${noiseText(noise)}`];
  });
  return [...lines, '- A ratio is this checkout by the older commit; * marks a disturbed round.'];
}

function valueText(value: number, unit: string): string {
  const text = value >= 1000 ? thousands(value) : value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
  return unit === '' ? text : `${text} ${unit}`;
}
