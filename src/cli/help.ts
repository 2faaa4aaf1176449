/**
 * Prints help from the table of commands: the list of all, and what one command takes. Lines fit into 100 columns.
 */

import { ALL_COMMANDS, type Command, findCommand, type Flag } from './commands.ts';
import { OperatorError } from '../errors.ts';
import { suggestion } from '../config/flags.ts';
import type { Shell } from './shell.ts';
import { bold, dim, wrap } from './table.ts';

const COLUMNS = 100;
const FLAG_COLUMNS = 21;
const SYNOPSIS_COLUMNS = 31;

/** Also of a command that does nothing without a subcommand. */
export function wantsHelp(name: string, args: readonly string[]): boolean {
  if (args.length === 0) return findCommand([name])?.command.commands !== undefined;
  const end = args.indexOf('--');
  return args.slice(0, end < 0 ? args.length : end).some((arg) => arg === '--help' || arg === '-h');
}

export function mainHelp(): string {
  return `${bold('sluice')}: receives customer events over HTTP, stores them durably, and lets you read them back.

${bold('Usage')}
  sluice COMMAND [options]
  sluice --version

${bold('Commands')}
${commandList('', ALL_COMMANDS)}

All settings, with their environment variables and defaults: sluice help serve
Exit codes: 0 success, 1 failure (stderr says why), 2 depends on the command: see its help.
Details: README.md and docs/ in the package
`;
}

/** For `sluice COMMAND --help`: of the subcommand, if one is named, else of the command. */
export function commandHelp(name: string, args: readonly string[]): string {
  const found = findCommand([name, ...args.slice(0, 1)]) ?? findCommand([name]);
  return found === undefined ? mainHelp() : helpText(found.path, found.command);
}

export async function runHelp(args: readonly string[], { out }: Pick<Shell, 'out'>): Promise<number> {
  out(helpOn(args));
  return 0;
}

/** For `sluice help WORDS`. Throws `OperatorError` for a command that does not exist. */
export function helpOn(words: readonly string[]): string {
  const names = words.filter((word) => !word.startsWith('-'));
  if (names.length === 0) return mainHelp();
  const found = findCommand(names);
  if (found === undefined) throw unknownCommand(names);
  return helpText(found.path, found.command);
}

/** Says which command was probably meant, among those of the command that the words before name. */
export function unknownCommand(words: readonly string[]): OperatorError {
  const known = words.findIndex((_, index) => findCommand(words.slice(0, index + 1)) === undefined);
  const parent = findCommand(words.slice(0, known));
  const names = Object.keys(parent === undefined ? ALL_COMMANDS : (parent.command.commands ?? {}));
  const path = parent === undefined ? '' : `${parent.path} `;
  const given = words[known] ?? '';
  const title = parent === undefined ? `"${given}" is not a command` : `"sluice ${path}${given}" is not a command`;
  return new OperatorError(
    `${title}${suggestion(given, names)}\nFor help: sluice help${path === '' ? '' : ` ${path}`.trimEnd()}`,
  );
}

function helpText(path: string, command: Command): string {
  const { summary, argument, flags, commands, note, exitCodes } = command;
  const optional = Object.keys(flags).length === 0 ? '' : ' [options]';
  const usage: NonNullable<Command['usage']> = command.usage ?? [[`sluice ${path}${whatFollows(command)}${optional}`]];
  const lineWidth = Math.max(0, ...usage.map(([line, remark]) => (remark === undefined ? 0 : line.length)));
  const usageLines = usage.map(([line, remark]) =>
    remark === undefined ? `  ${line}` : `  ${line.padEnd(lineWidth)}   ${dim(remark)}`,
  );
  const options = [
    ...(argument === undefined ? [] : [columns(argument.value, argument.help, FLAG_COLUMNS)]),
    ...Object.entries(flags).map(([name, flag]) => columns(flagName(name, flag), flag.help, FLAG_COLUMNS)),
  ];
  const remarks = [
    ...(note === undefined ? [] : wrap(note, COLUMNS)),
    ...(exitCodes === undefined ? [] : [titled('Exit codes', exitCodes)]),
    titled('Details', pageOf(path)),
  ];
  const parts = [
    titled(`sluice ${path}`, `${summary}.`),
    `${bold('Usage')}\n${usageLines.join('\n')}`,
    ...(commands === undefined ? [] : [`${bold('Commands')}\n${commandList(`${path} `, commands)}`]),
    ...(options.length === 0 ? [] : [`${bold('Options')}\n${options.join('\n')}`]),
    remarks.join('\n'),
  ];
  return `${parts.join('\n\n')}\n`;
}

/** That of the command, else of its parent, else its section in commands.md. */
function pageOf(path: string): string {
  const [name = ''] = path.split(' ');
  const page = findCommand(path.split(' '))?.command.docs ?? findCommand([name])?.command.docs;
  return `docs/${page ?? `commands.md#${name}`}`;
}

function flagName(name: string, { value }: Flag): string {
  return value === undefined ? `--${name}` : `--${name} ${value}`;
}

function commandList(before: string, commands: Readonly<Record<string, Command>>): string {
  return Object.entries(commands)
    .map(([name, command]) => columns(before + name + whatFollows(command), command.summary, SYNOPSIS_COLUMNS))
    .map((text) => text.replace(/^ {2}\S+/, (name) => `  ${bold(name.trim())}`))
    .join('\n');
}

function whatFollows({ argument, commands, synopsis = argument?.value ?? '' }: Command): string {
  const text = commands === undefined ? synopsis : Object.keys(commands).join('|');
  return text === '' ? '' : ` ${text}`;
}

/** Two columns; the right one is wrapped, and begins on a new line where the left one is too wide. */
function columns(left: string, right: string, width: number): string {
  const indent = ' '.repeat(width + 2);
  const lines = wrap(right, COLUMNS - indent.length).map((line) => indent + line);
  if (left.length > width - 1) return [`  ${left}`, ...lines].join('\n');
  const [first = '', ...rest] = lines;
  return [`  ${left.padEnd(width)}${first.slice(indent.length)}`, ...rest].join('\n');
}

function titled(title: string, text: string): string {
  const lines = wrap(`${title}: ${text}`, COLUMNS).join('\n');
  return bold(title) + lines.slice(title.length);
}
