/**
 * The arguments of one command, read as its entry in the table of commands says. What is wrong with them is collected in
 * `mistakes`, also by those who read single values, and thrown all at once before the command does anything.
 */

import { type FlagsRead, mistakesError, readFlags } from '../config/flags.ts';
import type { OperatorError } from '../errors.ts';
import { type CommandName, type CommandPath, findCommand } from './commands.ts';
import { unknownCommand } from './help.ts';

export interface Arguments extends FlagsRead {
  readonly isJson: boolean;
  /** All mistakes so far, to be thrown. */
  error(): OperatorError;
}

export function readArguments(path: CommandPath, args: readonly string[]): Arguments {
  const flags = Object.entries(findCommand(path.split(' '))?.command.flags ?? {});
  const kinds = flags.map(([name, { value }]) => [name, value === undefined ? 'switch' : 'value']);
  const read = readFlags(args, Object.fromEntries(kinds));
  const error = (): OperatorError => mistakesError(read.mistakes, `For help: sluice help ${path}`);
  return { ...read, isJson: read.switches.has('json'), error };
}

/**
 * The subcommand that the arguments begin with, and its own arguments; undefined if they are empty. Throws for an
 * unknown one.
 */
export function readSubcommand<Run>(
  name: CommandName,
  [given, ...args]: readonly string[],
  commands: Readonly<Record<string, Run>>,
): { readonly run: Run; readonly flags: Arguments } | undefined {
  if (given === undefined) return undefined;
  const run = Object.hasOwn(commands, given) ? commands[given] : undefined;
  if (run === undefined) throw unknownCommand([name, given]);
  return { run, flags: readArguments(`${name} ${given}` as CommandPath, args) };
}
