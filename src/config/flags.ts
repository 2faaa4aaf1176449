/**
 * Reads flags off a command line. Nothing is thrown: every mistake becomes a sentence, so that a person sees all of
 * them at once, with the flag that was probably meant. `--flag value` and `--flag=value` are alike; given twice, the
 * last one counts. A value that begins with `--` must be written with `=`.
 */

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
  const values = new Map<string, string>();
  const switches = new Set<string>();
  const positionals: string[] = [];
  const mistakes: string[] = [];
  const names = Object.keys(kinds).map((name) => `--${name}`);
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? '';
    if (arg === '--') return { values, switches, positionals: positionals.concat(args.slice(i + 1)), mistakes };
    const [, flag, given] = /^(-[^=]+)(?:=(.*))?$/s.exec(arg) ?? [];
    if (flag === undefined) {
      positionals.push(arg);
      continue;
    }
    const name = flag.slice(2);
    const next = args[i + 1];
    if (!names.includes(flag)) {
      mistakes.push(`unknown flag ${flag}${suggestion(flag, names)}`);
      // What follows a mistyped flag was meant as its value: one mistake, one sentence.
      if (given === undefined && next?.startsWith('-') === false) i += 1;
    } else if (kinds[name] === 'switch') {
      if (given === undefined) switches.add(name);
      else mistakes.push(`${flag} takes no value, but "${given}" was given`);
    } else if (given !== undefined) {
      values.set(name, given);
    } else if (next === undefined || next.startsWith('--')) {
      mistakes.push(`${flag} needs a value`);
    } else {
      values.set(name, next);
      i += 1;
    }
  }
  return { values, switches, positionals, mistakes };
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

/** How many characters must be added, removed or changed. */
function editDistance(a: string, b: string): number {
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = (last[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, changed));
    }
    last = row;
  }
  return last[b.length] ?? 0;
}

/** One error with all mistakes, for callers to throw. */
export function mistakesError(mistakes: readonly string[], hint: string, title = 'Invalid arguments:'): OperatorError {
  return new OperatorError([title, ...mistakes.map((mistake) => `  - ${mistake}`), hint].join('\n'));
}
