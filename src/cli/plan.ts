/**
 * `sluice plan infer|push|pull|diff|types|check`: manages the tracking plan as a file in git and as the plan that a
 * server uses. Calls the server over HTTP with a secret key, like any client. A file with errors is never sent: each
 * error is printed with its path.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import type { Static } from 'typebox';
import type { CurrentPlan, PushedPlan } from '../api/routes/plan.ts';
import { messageOf, OperatorError } from '../errors.ts';
import { diffPlans, type PlanDifference } from '../plans/diff.ts';
import { type CataloguedEvent, type InferredFrom, inferPlan } from '../plans/infer.ts';
import { describeMistakes, type Plan, parsePlan, readPlan } from '../plans/plan.ts';
import { typesOf } from '../plans/types.ts';
import { type Arguments, readSubcommand } from './arguments.ts';
import { callApi, messageIn, readServer, requestOnce, type Server, successOf } from './server.ts';
import type { Shell } from './shell.ts';
import { indented, printable, shorten } from './table.ts';

const PLAN_FILE = 'sluice-plan.json';
const VALUE_CHARACTERS_MAX = 100;

export async function runPlan(args: readonly string[], shell: Shell): Promise<number> {
  const { run, flags } = readSubcommand('plan', args, COMMANDS);
  return run(flags, shell);
}

const COMMANDS = {
  infer: inferCommand,
  types: typesCommand,
  push: pushCommand,
  pull: pullCommand,
  diff: diffCommand,
  check: checkCommand,
};

async function pushCommand(flags: Arguments, shell: Shell): Promise<number> {
  const file = fileOf(flags);
  const server = await readServer(flags, shell);
  const plan = readFile(file, shell);
  if (plan === null) return 2;
  const reply = await requestOnce(server, 'plan', { method: 'PUT', body: JSON.stringify(plan), stop: shell.stop });
  if (reply.status === 400 || reply.status === 409) {
    shell.err(`The server refused ${file}:\n${printableLines(messageIn(reply) ?? 'no reason given')}\n`);
    return 2;
  }
  const { json: pushed } = successOf<Static<typeof PushedPlan>>(server, reply);
  if (flags.isJson) shell.out(`${JSON.stringify(pushed)}\n`);
  else if (pushed.is_new) shell.out(`Pushed ${file} as version ${pushed.version}. Servers use it within 2 seconds.\n`);
  else shell.out(`Nothing to do: the plan is the same already (version ${pushed.version}).\n`);
  return 0;
}

async function pullCommand(flags: Arguments, shell: Shell): Promise<number> {
  flags.refuse(flags.positionals);
  const version = flags.values.get('version');
  if (version !== undefined && !/^[1-9]\d{0,8}$/.test(version)) {
    flags.mistakes.push(`--version is "${version}"; expected the number of a version`);
  }
  const { plan, version: pulled } = await currentPlan(await readServer(flags, shell), version, shell);
  writeTo(flags, shell, indented(plan), `version ${pulled}`);
  return 0;
}

/** Events that the catalogue has and the plan has not are added to the plan of the server. */
async function inferCommand(flags: Arguments, shell: Shell): Promise<number> {
  flags.refuse(flags.positionals);
  const server = await readServer(flags, shell);
  const { plan: current, version } = await currentPlan(server, undefined, shell);
  const known = new Set(Object.keys(current.events));
  const { json: catalogue } = await callApi<InferredFrom>(server, 'catalogue', { stop: shell.stop });
  const events: CataloguedEvent[] = [];
  for (const { event_name: name } of catalogue.events) {
    if (known.has(name)) continue;
    // Not in the path, which cannot hold `.` and `..`.
    const path = `catalogue/_?event_name=${encodeURIComponent(name)}`;
    events.push((await callApi<CataloguedEvent>(server, path, { stop: shell.stop })).json);
  }
  const text = indented(inferPlan({ ...catalogue, events }, version === 0 ? null : { ...current, version }));
  const reading = parsePlan(text);
  if (!reading.ok) {
    shell.err(`The catalogue makes no valid plan:\n${printableLines(describeMistakes(reading.mistakes))}\n`);
    return 2;
  }
  const added = Object.keys(reading.plan.events).length - known.size;
  writeTo(flags, shell, text, `a plan with ${added} new ${added === 1 ? 'event' : 'events'}`);
  return 0;
}

async function typesCommand(flags: Arguments, shell: Shell): Promise<number> {
  const file = fileOf(flags);
  if (flags.mistakes.length > 0) throw flags.error();
  const plan = readFile(file, shell);
  if (plan === null) return 2;
  writeTo(flags, shell, typesOf(plan), `the types of ${file}`);
  return 0;
}

function writeTo(flags: Arguments, shell: Shell, text: string, what: string): void {
  const out = flags.values.get('out');
  if (out === undefined) {
    shell.out(text);
    return;
  }
  writeFileSync(out, text);
  shell.err(`Wrote ${what} to ${out}.\n`);
}

async function diffCommand(flags: Arguments, shell: Shell): Promise<number> {
  const file = fileOf(flags);
  const server = await readServer(flags, shell);
  const plan = readFile(file, shell);
  if (plan === null) return 2;
  const current = await currentPlan(server, undefined, shell);
  const differences = diffPlans(current.plan, plan);
  if (flags.isJson) shell.out(`${JSON.stringify({ version: current.version, differences })}\n`);
  else if (differences.length === 0) shell.out(`${file} is the same as version ${current.version}.\n`);
  else {
    shell.out(`${file} differs from version ${current.version}:\n`);
    for (const difference of differences) shell.out(`${lineOf(difference)}\n`);
  }
  return differences.length === 0 ? 0 : 2;
}

async function checkCommand(flags: Arguments, shell: Shell): Promise<number> {
  const file = fileOf(flags);
  if (flags.mistakes.length > 0) throw flags.error();
  const plan = readFile(file, shell);
  if (plan === null) return 2;
  const events = Object.keys(plan.events).length;
  shell.out(`${file} is a valid plan with ${events} ${events === 1 ? 'event' : 'events'}.\n`);
  return 0;
}

function fileOf(flags: Arguments): string {
  const [file = PLAN_FILE, ...others] = flags.positionals;
  flags.refuse(others, 'one plan file is enough');
  return file;
}

/** Null where the file has mistakes, which are then printed. */
function readFile(file: string, shell: Shell): Plan | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new OperatorError(
      `${file} cannot be read: ${messageOf(error)}. To get the plan of a server: sluice plan pull --out ${file}`,
    );
  }
  const reading = parsePlan(text);
  if (reading.ok) return reading.plan;
  shell.err(`${file} has mistakes:\n${printableLines(describeMistakes(reading.mistakes))}\n`);
  return null;
}

async function currentPlan(
  server: Server,
  version: string | undefined,
  { stop }: Shell,
): Promise<{ plan: Plan; version: number }> {
  const reply = await requestOnce(server, version === undefined ? 'plan' : `plan?version=${version}`, { stop });
  if (reply.status === 404)
    throw new OperatorError(`The server has no version ${version} of the plan; see GET /plan/versions.`);
  const { plan, version: current } = successOf<Static<typeof CurrentPlan>>(server, reply).json;
  const reading = readPlan(plan);
  if (!reading.ok) {
    throw new OperatorError(`This Sluice cannot read the plan of the server:\n${describeMistakes(reading.mistakes)}`);
  }
  return { plan: reading.plan, version: current };
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
