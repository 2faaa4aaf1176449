/**
 * Reads flags off a command line. Nothing is thrown: every mistake becomes a sentence, so that a person sees all of
 * them at once, with the flag that was probably meant. `--flag value` and `--flag=value` are alike; given twice, the
 * last one counts. A value that begins with `--` must be written with `=`.
 */

import { parseArgs } from 'node:util';
import { OperatorError } from '../errors.ts';

/** Flags by name without dashes: those that take a value, and those that are simply there or not. */
type FlagKinds = Readonly<Record<string, 'value' | 'switch'>>;

export interface FlagsRead {
  readonly values: ReadonlyMap<string, string>;
  readonly switches: ReadonlySet<string>;
  readonly positionals: readonly string[];
  /** Those who read the values add to them. */
  readonly mistakes: string[];
}

export function readFlags(args: readonly string[], kinds: FlagKinds): FlagsRead {
  const options = Object.fromEntries(
    Object.entries(kinds).map(([name, kind]) => [
      name,
      { type: kind === 'value' ? ('string' as const) : ('boolean' as const) },
    ]),
  );
  const { kept, mistakes } = withoutValuelessFlags(args, kinds);
  const { tokens } = parseArgs({ args: kept, options, strict: false, allowPositionals: true, tokens: true });

  const values = new Map<string, string>();
  const switches = new Set<string>();
  const positionals: string[] = [];
  let unknownAt = -2;
  for (const token of tokens) {
    if (token.kind === 'positional') {
      // What follows a mistyped flag was meant as its value: one mistake, one sentence.
      if (token.index !== unknownAt + 1) positionals.push(token.value);
    } else if (token.kind === 'option') {
      const kind = Object.hasOwn(kinds, token.name) ? kinds[token.name] : undefined;
      if (kind === undefined || !token.rawName.startsWith('--')) {
        mistakes.push(`unknown flag ${token.rawName}${suggestion(token.rawName, flagNames(kinds))}`);
        if (token.value === undefined) unknownAt = token.index;
      } else if (kind === 'switch' && token.value !== undefined) {
        mistakes.push(`${token.rawName} takes no value, but "${token.value}" was given`);
      } else if (kind === 'switch') {
        switches.add(token.name);
      } else {
        values.set(token.name, token.value ?? '');
      }
    }
  }
  return { values, switches, positionals, mistakes };
}

/** `--port --host x` would make `--host` the port; reported as a missing value. */
function withoutValuelessFlags(args: readonly string[], kinds: FlagKinds): { kept: string[]; mistakes: string[] } {
  const kept: string[] = [];
  const mistakes: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? '';
    if (arg === '--') return { kept: kept.concat(args.slice(i)), mistakes };
    const next = args[i + 1];
    const name = arg.slice(2);
    const takesValue = arg.startsWith('--') && Object.hasOwn(kinds, name) && kinds[name] === 'value';
    if (takesValue && (next === undefined || next.startsWith('--'))) {
      mistakes.push(`${arg} needs a value`);
    } else if (takesValue && next !== undefined) {
      kept.push(`${arg}=${next}`);
      i += 1;
    } else {
      kept.push(arg);
    }
  }
  return { kept, mistakes };
}

function flagNames(kinds: FlagKinds): string[] {
  return Object.keys(kinds).map((name) => `--${name}`);
}

/** `; did you mean X?` for the nearest of the names, or nothing when none is near. */
export function suggestion(given: string, names: readonly string[]): string {
  let nearest = '';
  let nearestDistance = Math.max(2, Math.floor(given.replace(/^-+/, '').length / 3)) + 1;
  for (const name of names) {
    const distance = editDistance(given.toLowerCase(), name.toLowerCase());
    if (distance < nearestDistance) [nearest, nearestDistance] = [name, distance];
  }
  return nearest === '' ? '' : `; did you mean ${nearest}?`;
}

/** How many characters must be added, removed, changed or swapped with their neighbour. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = (last[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      let best = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, changed);
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (isSwap) best = Math.min(best, (beforeLast[j - 2] ?? 0) + 1);
      row.push(best);
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length] ?? 0;
}

/** One error with all mistakes, for callers to throw. */
export function mistakesError(mistakes: readonly string[], hint: string, title = 'Invalid arguments:'): OperatorError {
  return new OperatorError([title, ...mistakes.map((mistake) => `  - ${mistake}`), hint].join('\n'));
}
