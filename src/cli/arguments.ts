/**
 * The arguments of one command, read as its entry in the table of commands says. What is wrong with them is collected in
 * `mistakes`, also by those who read single values, and thrown all at once before the command does anything.
 */

import { type FlagsRead, mistakesError, readFlags, suggestion } from '../config/flags.ts';
import type { OperatorError } from '../errors.ts';
import { ENVIRONMENTS, type Environment } from '../model.ts';
import {
  type CommandName,
  type CommandPath,
  ENVIRONMENT_CHOICES,
  ENVIRONMENTS_EXPECTED,
  findCommand,
  SHORT_ENVIRONMENTS,
} from './commands.ts';
import { unknownCommand } from './help.ts';

export interface Arguments extends FlagsRead {
  readonly isJson: boolean;
  /** For words that the command does not take. `advice` is what to do instead. */
  refuse(words: readonly string[], advice?: string): void;
  error(): OperatorError;
}

export function readArguments(path: CommandPath, args: readonly string[]): Arguments {
  const flags = Object.entries(findCommand(path.split(' '))?.command.flags ?? {});
  const kinds = flags.map(([name, { value }]) => [name, value === undefined ? 'switch' : 'value']);
  const read = readFlags(args, Object.fromEntries(kinds));
  return {
    ...read,
    isJson: read.switches.has('json'),
    refuse: (words, advice) => {
      const end = advice === undefined ? '' : `; ${advice}`;
      read.mistakes.push(...words.map((word) => `unexpected argument "${word}"${end}`));
    },
    error: () => mistakesError(read.mistakes, `For help: sluice help ${path}`),
  };
}

/** The subcommand that the arguments begin with, and its own arguments. Throws for an unknown one. */
export function readSubcommand<Run>(
  name: CommandName,
  [given = '', ...args]: readonly string[],
  commands: Readonly<Record<string, Run>>,
): { readonly run: Run; readonly flags: Arguments } {
  const run = Object.hasOwn(commands, given) ? commands[given] : undefined;
  if (run === undefined) throw unknownCommand([name, given]);
  return { run, flags: readArguments(`${name} ${given}`, args) };
}

/** Undefined where it is not given, or wrong, which is then among the mistakes. */
export function readFlag<T>(
  { values, mistakes }: FlagsRead,
  flag: string,
  parse: (text: string) => T | undefined,
  expected: string,
): T | undefined {
  const given = values.get(flag);
  if (given === undefined) return undefined;
  const value = parse(given);
  if (value === undefined) mistakes.push(`--${flag} is "${given}"; expected ${expected}`);
  return value;
}

/** Undefined where it is missing or wrong, which is then among the mistakes. */
export function readChoice<T extends string>(
  flags: FlagsRead,
  flag: string,
  choices: readonly T[],
  preset?: T,
): T | undefined {
  const given = flags.values.get(flag) ?? preset;
  const chosen = choices.find((choice) => choice === given);
  if (chosen === undefined) {
    flags.mistakes.push(wrongChoice(flag, given, `${choices.slice(0, -1).join(', ')} or ${choices.at(-1)}`, choices));
  }
  return chosen;
}

/** Undefined where it is not given; where it is wrong, that is among the mistakes. */
export function readEnvironment(flags: FlagsRead): Environment | undefined {
  const given = flags.values.get('env');
  if (given === undefined) return undefined;
  const short = Object.hasOwn(SHORT_ENVIRONMENTS, given) ? SHORT_ENVIRONMENTS[given] : undefined;
  const chosen = short ?? ENVIRONMENTS.find((environment) => environment === given);
  if (chosen === undefined) flags.mistakes.push(wrongChoice('env', given, ENVIRONMENTS_EXPECTED, ENVIRONMENT_CHOICES));
  return chosen;
}

function wrongChoice(flag: string, given: string | undefined, expected: string, choices: readonly string[]): string {
  return given === undefined
    ? `--${flag} is missing; expected ${expected}`
    : `--${flag} is "${given}"; expected ${expected}${suggestion(given, choices)}`;
}
