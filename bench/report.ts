/**
 * What a benchmark hands back, and how it is shown: a table for people (it is Markdown, so it can be pasted as it is),
 * notes below it, and JSON for machines. Every row carries both sides of a comparison and what each side guarantees.
 */

import { type Machine, machineLine } from './machine.ts';
import type { Noise } from './noise.ts';

/** A number that can be compared with the same number of another commit. */
export interface Figure {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
}

export interface Outcome {
  readonly name: string;
  readonly ours: string;
  readonly baseline?: string;
  /** Ours by baseline, where there is something to divide. */
  readonly ratio?: number | undefined;
  readonly goal?: string;
  readonly met?: boolean;
  /** Columns that only some rows have, and remarks. */
  readonly notes?: readonly string[];
  /** What `--against` compares. A row without figures is not compared. */
  readonly figures?: readonly Figure[];
  readonly noise?: Noise;
  /** Every figure behind the row. */
  readonly data: unknown;
}

export const DURABILITY = {
  ours: 'each 202 is sent after the request was written and synced to disk (fdatasync of the log)',
  bare: 'stores nothing: its 202 promises nothing',
  store:
    'what the processor makes of the log is committed with synchronous=NORMAL and synced every 5 s; ' +
    'what a power loss takes away is made again from the log',
  rawInsert:
    'the same tables, indexes and settings as our store (WAL, synchronous=NORMAL), synced every 5 s and at the end; ' +
    'it has no log, so what was not synced is lost with the power',
} as const;

export interface Report {
  readonly date: string;
  readonly short: boolean;
  readonly seconds: number;
  readonly machine: Machine;
  readonly durability: typeof DURABILITY;
  readonly outcomes: readonly Outcome[];
}

export function formatReport(report: Report): string {
  const head = ['name', 'ours', 'baseline', 'ratio', 'goal', 'met?'];
  const rows = report.outcomes.map((outcome) => [
    outcome.name,
    outcome.ours,
    outcome.baseline ?? '–',
    outcome.ratio?.toFixed(2) ?? '–',
    outcome.goal ?? '–',
    report.short || outcome.met === undefined ? '–' : outcome.met ? 'yes' : 'no',
  ]);
  const notes = report.outcomes.flatMap(({ name, notes }) => (notes ?? []).map((note) => `- ${name}: ${note}`));
  return [
    ...table(head, rows),
    '',
    ...notes,
    '',
    `Ours: ${DURABILITY.ours}.`,
    `Bare: ${DURABILITY.bare}.`,
    `Our store: ${DURABILITY.store}.`,
    `Raw-insert: ${DURABILITY.rawInsert}.`,
    `Machine: ${machineLine(report.machine)}.`,
    `Took ${Math.round(report.seconds)} s.`,
    ...(report.short ? ['A short run: it shows that the benchmarks work; its figures say little.'] : []),
    '',
  ].join('\n');
}

export function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const widths = head.map((cell, column) => Math.max(cell.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`;
  return [line(head), `|${widths.map((width) => '-'.repeat(width + 2)).join('|')}|`, ...rows.map(line)];
}

export function thousands(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

export function milliseconds(value: number): string {
  return `${value < 10 ? value.toFixed(2) : value.toFixed(0)} ms`;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length % 2 === 1) return sorted[middle] ?? Number.NaN;
  return ((sorted[middle - 1] ?? Number.NaN) + (sorted[middle] ?? Number.NaN)) / 2;
}
