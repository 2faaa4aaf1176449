/**
 * `sluice plan infer|push|pull|diff|types|check`: manages the tracking plan as a file in git and as the plan that a
 * server uses. Calls the server over HTTP with a secret key, like any client. A file with errors is never sent: each
 * error is printed with its path. Exit code 2: the file has errors, differs, or was refused; 1: the server was not
 * reached.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { type FlagsRead, mistakesError, readFlags } from '../config/flags.ts';
import { OperatorError } from '../errors.ts';
import { parseJson } from '../json/parse.ts';
import { diffPlans, type PlanDifference } from '../plans/diff.ts';
import { type CataloguedEvent, type InferredFrom, inferPlan } from '../plans/infer.ts';
import { describeMistakes, type Plan, parsePlan, readPlan } from '../plans/plan.ts';
import { typesOf } from '../plans/types.ts';
import { COMMANDS, flagKinds } from './commands.ts';
import { commandHelp, unknownCommand } from './help.ts';
import { type IngestServer, readIngestKey, readIngestServer } from './ingest-target.ts';
import type { Shell } from './shell.ts';
import { inkFor, printable, shorten } from './table.ts';

const PLAN_FILE = 'sluice-plan.json';

const TIMEOUT_MS = 30_000;
const VALUE_CHARACTERS_MAX = 100;

interface Target {
  readonly server: IngestServer;
  readonly key: string;
}

export async function runPlan(args: readonly string[], shell: Shell): Promise<number> {
  const [command, ...rest] = args;
  switch (command) {
    case undefined:
      shell.out(commandHelp('plan', [], inkFor(shell.outTerminal.isTty, shell.env)));
      return 0;
    case 'infer':
      return inferCommand(rest, shell);
    case 'types':
      return typesCommand(rest, shell);
    case 'push':
      return pushCommand(rest, shell);
    case 'pull':
      return pullCommand(rest, shell);
    case 'diff':
      return diffCommand(rest, shell);
    case 'check':
      return checkCommand(rest, shell);
    default:
      throw unknownCommand(['plan', command]);
  }
}

async function pushCommand(args: readonly string[], shell: Shell): Promise<number> {
  const { flags, file, target } = await readOptions('push', args, shell);
  const plan = readFile(file, shell);
  if (plan === null) return 2;
  const { status, body } = await call(target, 'PUT', 'plan', plan);
  if (status === 400 || status === 409) {
    shell.err(`The server refused ${file}:\n${printableLines(messageIn(body))}\n`);
    return 2;
  }
  const pushed = expectJson(status, body) as { version: number; is_new: boolean };
  if (flags.switches.has('json')) shell.out(`${JSON.stringify(pushed)}\n`);
  else if (pushed.is_new) shell.out(`Pushed ${file} as version ${pushed.version}. Servers use it within 2 seconds.\n`);
  else shell.out(`Nothing to do: the plan is the same already (version ${pushed.version}).\n`);
  return 0;
}

async function pullCommand(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readFlags(args, flagKinds(COMMANDS.plan.commands.pull));
  const mistakes = [...flags.mistakes, ...flags.positionals.map((word) => `unexpected argument "${word}"`)];
  const version = flags.values.get('version');
  if (version !== undefined && !/^[1-9]\d{0,8}$/.test(version)) {
    mistakes.push(`--version is "${version}"; expected the number of a version`);
  }
  const target = await readTarget('pull', flags, shell, mistakes);
  const { plan, version: pulled } = await currentPlan(target, version);
  writeTo(flags, shell, jsonText(plan), `version ${pulled}`);
  return 0;
}

/** Events that the catalogue has and the plan has not are added to the plan of the server. */
async function inferCommand(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readFlags(args, flagKinds(COMMANDS.plan.commands.infer));
  const mistakes = [...flags.mistakes, ...flags.positionals.map((word) => `unexpected argument "${word}"`)];
  const target = await readTarget('infer', flags, shell, mistakes);
  const { plan: current, version } = await currentPlan(target, undefined);
  const known = new Set(Object.keys(current.events));
  const catalogue = await read<InferredFrom>(target, 'catalogue');
  const events: CataloguedEvent[] = [];
  for (const { event_name: name } of catalogue.events) {
    if (known.has(name)) continue;
    // Not in the path, which cannot hold `.` and `..`.
    events.push(await read<CataloguedEvent>(target, `catalogue/_?event_name=${encodeURIComponent(name)}`));
  }
  const text = jsonText(inferPlan({ ...catalogue, events }, version === 0 ? null : { ...current, version }));
  const reading = parsePlan(text);
  if (!reading.ok) {
    shell.err(`The catalogue makes no valid plan:\n${printableLines(describeMistakes(reading.mistakes))}\n`);
    return 2;
  }
  const added = Object.keys(reading.plan.events).length - known.size;
  writeTo(flags, shell, text, `a plan with ${added} new ${added === 1 ? 'event' : 'events'}`);
  return 0;
}

async function typesCommand(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readFlags(args, flagKinds(COMMANDS.plan.commands.types));
  const mistakes = [...flags.mistakes];
  const file = fileOf(flags, mistakes);
  if (mistakes.length > 0) throw mistakesError(mistakes, 'For help: sluice help plan types');
  const plan = readFile(file, shell);
  if (plan === null) return 2;
  writeTo(flags, shell, typesOf(plan), `the types of ${file}`);
  return 0;
}

function jsonText(plan: Plan): string {
  return `${JSON.stringify(plan, undefined, 2)}\n`;
}

function writeTo(flags: FlagsRead, shell: Shell, text: string, what: string): void {
  const out = flags.values.get('out');
  if (out === undefined) {
    shell.out(text);
    return;
  }
  writeFileSync(out, text);
  shell.err(`Wrote ${what} to ${out}.\n`);
}

async function read<T>(target: Target, path: string): Promise<T> {
  const { status, body } = await call(target, 'GET', path);
  return expectJson(status, body) as T;
}

async function diffCommand(args: readonly string[], shell: Shell): Promise<number> {
  const { flags, file, target } = await readOptions('diff', args, shell);
  const plan = readFile(file, shell);
  if (plan === null) return 2;
  const current = await currentPlan(target, undefined);
  const differences = diffPlans(current.plan, plan);
  if (flags.switches.has('json')) shell.out(`${JSON.stringify({ version: current.version, differences })}\n`);
  else if (differences.length === 0) shell.out(`${file} is the same as version ${current.version}.\n`);
  else {
    shell.out(`${file} differs from version ${current.version}:\n`);
    for (const difference of differences) shell.out(`${lineOf(difference)}\n`);
  }
  return differences.length === 0 ? 0 : 2;
}

async function checkCommand(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readFlags(args, flagKinds(COMMANDS.plan.commands.check));
  const mistakes = [...flags.mistakes];
  const file = fileOf(flags, mistakes);
  if (mistakes.length > 0) throw mistakesError(mistakes, 'For help: sluice help plan check');
  const plan = readFile(file, shell);
  if (plan === null) return 2;
  const events = Object.keys(plan.events).length;
  shell.out(`${file} is a valid plan with ${events} ${events === 1 ? 'event' : 'events'}.\n`);
  return 0;
}

async function readOptions(
  command: 'push' | 'diff',
  args: readonly string[],
  shell: Shell,
): Promise<{ readonly flags: FlagsRead; readonly file: string; readonly target: Target }> {
  const flags = readFlags(args, flagKinds(COMMANDS.plan.commands[command]));
  const mistakes = [...flags.mistakes];
  const file = fileOf(flags, mistakes);
  return { flags, file, target: await readTarget(command, flags, shell, mistakes) };
}

async function readTarget(command: string, flags: FlagsRead, shell: Shell, mistakes: string[]): Promise<Target> {
  const server = await readIngestServer(flags, shell, mistakes);
  const key = readIngestKey(flags, shell, mistakes);
  if (server === undefined || mistakes.length > 0)
    throw mistakesError(mistakes, `For help: sluice help plan ${command}`);
  return { server, key };
}

function fileOf({ positionals }: FlagsRead, mistakes: string[]): string {
  const [file = PLAN_FILE, ...others] = positionals;
  mistakes.push(...others.map((word) => `unexpected argument "${word}"; one plan file is enough`));
  return file;
}

/** Null where the file has mistakes, which are then printed. */
function readFile(file: string, shell: Shell): Plan | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new OperatorError(
      `${file} cannot be read: ${reason}. To get the plan of a server: sluice plan pull --out ${file}`,
    );
  }
  const reading = parsePlan(text);
  if (reading.ok) return reading.plan;
  shell.err(`${file} has mistakes:\n${printableLines(describeMistakes(reading.mistakes))}\n`);
  return null;
}

async function currentPlan(target: Target, version: string | undefined): Promise<{ plan: Plan; version: number }> {
  const { status, body } = await call(target, 'GET', version === undefined ? 'plan' : `plan?version=${version}`);
  if (status === 404)
    throw new OperatorError(`The server has no version ${version} of the plan; see GET /plan/versions.`);
  const { plan, version: current } = expectJson(status, body) as { plan: unknown; version: number };
  const reading = readPlan(plan);
  if (!reading.ok) {
    throw new OperatorError(`This Sluice cannot read the plan of the server:\n${describeMistakes(reading.mistakes)}`);
  }
  return { plan: reading.plan, version: current };
}

interface Reply {
  readonly status: number;
  readonly body: string;
}

async function call({ server, key }: Target, method: 'GET' | 'PUT', path: string, plan?: Plan): Promise<Reply> {
  const url = new URL(path, server.url);
  try {
    const response = await fetch(url, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      signal: AbortSignal.timeout(TIMEOUT_MS),
      ...(plan !== undefined && { body: JSON.stringify(plan) }),
    });
    return { status: response.status, body: await response.text() };
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new OperatorError(`${url.origin} cannot be reached: ${reason}`);
  }
}

function expectJson(status: number, body: string): unknown {
  if (status === 200) return parseJson(body);
  if (status === 401)
    throw new OperatorError('The server does not accept this key: is it a key of this server, and not revoked?');
  if (status === 403)
    throw new OperatorError('The plan needs a secret key (sk_…): publishable keys can only send events.');
  throw new OperatorError(`The server responded with ${status}: ${printable(messageIn(body))}`);
}

/** What the server says is wrong. */
function messageIn(body: string): string {
  try {
    const { message, error } = parseJson(body) as { message?: string; error?: string };
    return message ?? error ?? 'no reason given';
  } catch {
    return 'no reason given';
  }
}

/** Names in a plan may hold anything. */
function printableLines(text: string): string {
  return text.split('\n').map(printable).join('\n');
}

const SIGNS = { added: '+', removed: '-', changed: '~' } as const;

function lineOf({ kind, path, before, after }: PlanDifference): string {
  const values = [before, after]
    .filter((value) => value !== undefined)
    .map((value) => shorten(value, VALUE_CHARACTERS_MAX));
  return printable(`  ${SIGNS[kind]} ${path}: ${values.join(' → ')}`);
}
