/**
 * `sluice resubmit`: fixes rejected users. One, with a file that has the corrected user; or all that match a filter, each
 * by the same JSON Patch, with `--dry-run` first. Waits until the job is done. Exit code 0: all of them were accepted, or
 * would be; 2: some are still rejected, or cannot be patched; 1: it could not be done.
 */

import { readFileSync } from 'node:fs';
import { describeJsonError } from '../json/error.ts';
import type { JsonObject } from '../validation/shape.ts';
import { readArguments } from './arguments.ts';
import { FILTER_FLAGS, readRejectionFilter } from './rejections.ts';
import { callApi, CallRefusedError, readServer, type Server } from './server.ts';
import { inkOf, pause, type Shell } from './shell.ts';
import { type Ink, renderTable } from './table.ts';

const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+$/i;
const POLL_MS = 300;
const ACCEPTED = 0;
const SOME_REJECTED = 2;
/** The status of a user that is still invalid. */
const INVALID = 400;
const FLAGS_OF_MANY = new Set(['patch', 'dry-run', ...FILTER_FLAGS]);

export async function runResubmit(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readArguments('resubmit', args);
  const { mistakes } = flags;
  const [id, ...others] = flags.positionals;
  flags.refuse(others);
  if (id !== undefined && !ID.test(id))
    mistakes.push(`"${id}" is not the id of a rejected user; "sluice rejections" has them`);
  const [userFile, patchFile] = [flags.values.get('user'), flags.values.get('patch')];
  if (id !== undefined && userFile === undefined)
    mistakes.push('no corrected user given; expected --user FILE with an ID');
  if (id === undefined && patchFile === undefined)
    mistakes.push('no patch given; expected --patch FILE, or an ID and --user FILE');
  if (id !== undefined) {
    const given = [...flags.values.keys(), ...flags.switches].filter((flag) => FLAGS_OF_MANY.has(flag));
    mistakes.push(...given.map((flag) => `--${flag} is for all that match a filter; with an ID: --user FILE`));
  }
  const server = await readServer(flags, shell);
  const filter = readRejectionFilter(flags, shell.now());
  const given = readJsonFile(userFile ?? patchFile, mistakes);
  if (server === undefined || given === undefined || mistakes.length > 0) throw flags.error();

  if (id !== undefined) {
    return resubmitOne(server, id, given, flags.isJson, shell);
  }
  const isDryRun = flags.switches.has('dry-run');
  const body = `{"filter":${JSON.stringify(filter)},"patch":${given},"dry_run":${isDryRun}}`;
  const { json, text } = await callApi(server, 'POST', 'rejections/resubmit', body);
  if (isDryRun) {
    const preview = json.preview as JsonObject;
    shell.out(flags.isJson ? `${text}\n` : describePreview(preview, inkOf(shell)));
    return Number(preview.still_rejected) + Number(preview.cut) === 0 ? ACCEPTED : SOME_REJECTED;
  }
  return reportJob(server, json.job as JsonObject, flags.isJson, shell);
}

async function resubmitOne(server: Server, id: string, user: string, isJson: boolean, shell: Shell): Promise<number> {
  try {
    const { json } = await callApi(server, 'POST', `rejections/${id}/resubmit`, `{"user":${user}}`);
    return await reportJob(server, json, isJson, shell);
  } catch (error) {
    if (!(error instanceof CallRefusedError) || error.status !== INVALID) throw error;
    shell.err(`Still rejected: ${error.message}\n`);
    return SOME_REJECTED;
  }
}

/** The text of one JSON value, as it is: numbers keep their digits. */
function readJsonFile(file: string | undefined, mistakes: string[]): string | undefined {
  if (file === undefined) return undefined;
  try {
    const text = readFileSync(file === '-' ? 0 : file, 'utf8').replace(/^\uFEFF/, '');
    const problem = describeJsonError(text);
    if (problem === undefined) return text;
    mistakes.push(`${file} is not valid JSON: ${problem}`);
  } catch {
    mistakes.push(`${file} cannot be read; expected a file with JSON, or - for stdin`);
  }
  return undefined;
}

function describePreview(preview: JsonObject, ink: Ink): string {
  const count = (name: string): number => Number(preview[name]);
  const lines = [
    `${count('matched')} rejected users match. Of ${count('checked')} that were checked:`,
    `  ${count('valid')} would be accepted`,
    `  ${count('still_rejected')} would still be rejected`,
    ...(count('cut') > 0
      ? [`  ${count('cut')} ${count('cut') === 1 ? 'was' : 'were'} too large to be kept whole, and cannot be patched`]
      : []),
  ];
  if (count('valid') > 0) lines.push('', 'What the accepted ones would do:', ...describeEffects(preview, ink));
  for (const warning of preview.warnings as readonly string[]) lines.push('', `${ink.bold('Careful:')} ${warning}.`);
  const reasons = preview.reasons as readonly JsonObject[];
  if (reasons.length > 0) {
    const rows = reasons.map(({ message, users }) => [String(users), String(message)]);
    lines.push('', renderTable(['users', 'still rejected, because'], rows, ink));
  }
  return `${lines.join('\n')}\n\nNothing was changed. Without --dry-run they are resubmitted.\n`;
}

const EFFECTS = [
  ['events', 'event would be stored', 'events would be stored'],
  ['duplicate_events', 'event is stored already', 'events are stored already'],
  ['new_profiles', 'profile would be created', 'profiles would be created'],
  ['merges', 'merge of profiles', 'merges of profiles'],
  ['refusals', 'identifier would not be linked', 'identifiers would not be linked'],
  ['property_changes', 'property would change', 'properties would change'],
  ['violations', 'violation of the tracking plan', 'violations of the tracking plan'],
] as const;

/** The sums, and what is unusual about single users. */
function describeEffects(preview: JsonObject, ink: Ink): string[] {
  const effects = preview.effects as JsonObject;
  const lines = EFFECTS.flatMap(([name, one, many]) => {
    const count = Number(effects[name]);
    return count === 0 ? [] : [`  ${count} ${count === 1 ? one : many}`];
  });
  const rows = (preview.users as readonly JsonObject[]).flatMap(({ id, prediction }) =>
    prediction === null ? [] : notesOn(prediction as JsonObject).map((note) => [String(id), note]),
  );
  return rows.length === 0 ? lines : [...lines, '', renderTable(['id', 'note'], rows, ink)];
}

function notesOn(user: JsonObject): string[] {
  const merges = (user.merges as readonly JsonObject[]).map(
    ({ from, into, via }) => `would merge ${String(from)} into ${String(into)} by ${String((via as JsonObject).type)}`,
  );
  const violations = (user.violations as readonly JsonObject[]).map(
    ({ path, message }) => `${String(path)}: ${String(message)} (tracking plan)`,
  );
  return [...merges, ...(user.warnings as readonly string[]), ...violations];
}

/** Waits until the job is done or stopped, or the command is; gives the exit code. Also for `sluice dead-letters`. */
export async function reportJob(server: Server, { id }: JsonObject, isJson: boolean, shell: Shell): Promise<number> {
  let shown = '';
  for (;;) {
    const { json: job, text } = await callApi(server, 'GET', `jobs/${String(id)}`);
    const seen = `${countIn(job, 'matched') - countIn(job, 'left')} of ${countIn(job, 'matched')}`;
    if (shell.errTerminal.isTty && seen !== shown) shell.err(`\r${seen} `);
    shown = seen;
    if (job.status === 'running' && !shell.stop.aborted) {
      await pause(POLL_MS, shell.stop);
      continue;
    }
    if (shell.errTerminal.isTty) shell.err('\n');
    shell.out(isJson ? `${text}\n` : describeJob(job, inkOf(shell)));
    if (job.status !== 'done') return 1;
    const isAccepted = ['still_rejected', 'failed', 'cut', 'gone'].every((name) => countIn(job, name) === 0);
    return isAccepted ? ACCEPTED : SOME_REJECTED;
  }
}

const OUTCOMES = [
  ['resubmitted', 'accepted and stored'],
  ['still_rejected', 'still rejected'],
  ['already', 'resubmitted by another call meanwhile'],
  ['cut', 'too large to be kept whole, and cannot be patched'],
  ['failed', 'could not be processed'],
  ['left', 'not seen yet'],
  ['gone', 'were gone before the job reached them'],
] as const;

function describeJob(job: JsonObject, ink: Ink): string {
  const lines = [`Job ${String(job.id)}: ${String(job.status)}`];
  for (const [name, words] of OUTCOMES) if (countIn(job, name) > 0) lines.push(`  ${countIn(job, name)} ${words}`);
  const problems = Array.isArray(job.problems) ? (job.problems as readonly { id: string; message: string }[]) : [];
  if (problems.length > 0) {
    const rows = problems.map(({ id, message }) => [id, message]);
    lines.push('', renderTable(['id', 'why'], rows, ink));
  }
  if (job.status === 'running') lines.push('', 'It continues by itself.');
  return `${lines.join('\n')}\n`;
}

function countIn(json: JsonObject, name: string): number {
  return Number(json[name] ?? 0);
}
