/**
 * `sluice resubmit`: fixes rejected users. One, with a file that has the corrected user; or all that match a filter, each
 * by the same JSON Patch, with `--dry-run` first. Waits until the job is done.
 */

import { readFileSync } from 'node:fs';
import type { Static } from 'typebox';
import type { Job as JobSchema } from '../api/routes/jobs.ts';
import type { Resubmitted } from '../api/routes/resubmit.ts';
import { describeJsonError } from '../json/error.ts';
import { readArguments } from './arguments.ts';
import { FILTER_FLAGS, readRejectionFilter } from './rejections.ts';
import { callApi, messageIn, readServer, requestOnce, type Server, successOf } from './server.ts';
import { pause, type Shell } from './shell.ts';
import { bold, printable, renderTable } from './table.ts';

const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+$/i;
const POLL_MS = 300;
const ACCEPTED = 0;
const SOME_REJECTED = 2;
/** The status of a user that is still invalid. */
const INVALID = 400;
const FLAGS_OF_MANY = new Set(['patch', 'dry-run', ...FILTER_FLAGS]);

type Job = Static<typeof JobSchema>;
type Preview = NonNullable<Static<typeof Resubmitted>['preview']>;

/** What the calls that make a job respond with, as far as it is used. */
export type NewJob = Pick<Job, 'id'>;

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
  const filter = readRejectionFilter(flags, shell.now());
  const given = readJsonFile(userFile ?? patchFile, mistakes);
  const server = await readServer(flags, shell);

  if (id !== undefined) return resubmitOne(server, id, given, flags.isJson, shell);
  const isDryRun = flags.switches.has('dry-run');
  const body = `{"filter":${JSON.stringify(filter)},"patch":${given},"dry_run":${isDryRun}}`;
  const call = { method: 'POST', body, stop: shell.stop } as const;
  const { json, text } = await callApi<Static<typeof Resubmitted>>(server, 'rejections/resubmit', call);
  const { preview, job } = json;
  if (job !== null) return reportJob(server, job, flags.isJson, shell);
  if (preview === null) throw new Error('the server responds with neither a job nor a preview');
  shell.out(flags.isJson ? `${text}\n` : describePreview(preview));
  return preview.still_rejected + preview.cut === 0 ? ACCEPTED : SOME_REJECTED;
}

async function resubmitOne(server: Server, id: string, user: string, isJson: boolean, shell: Shell): Promise<number> {
  const body = `{"user":${user}}`;
  const reply = await requestOnce(server, `rejections/${id}/resubmit`, { method: 'POST', body, stop: shell.stop });
  const message = messageIn(reply);
  if (reply.status === INVALID && message !== undefined) {
    shell.err(`Still rejected: ${printable(message)}\n`);
    return SOME_REJECTED;
  }
  return reportJob(server, successOf<NewJob>(server, reply).json, isJson, shell);
}

/** The text of one JSON value, as it is: numbers keep their digits. Empty where there is none. */
function readJsonFile(file: string | undefined, mistakes: string[]): string {
  if (file === undefined) return '';
  try {
    const text = readFileSync(file === '-' ? 0 : file, 'utf8').replace(/^\uFEFF/, '');
    const problem = describeJsonError(text);
    if (problem === undefined) return text;
    mistakes.push(`${file} is not valid JSON: ${problem}`);
  } catch {
    mistakes.push(`${file} cannot be read; expected a file with JSON, or - for stdin`);
  }
  return '';
}

function describePreview(preview: Preview): string {
  const { matched, checked, valid, still_rejected, cut, warnings, reasons } = preview;
  const lines = [
    `${matched} rejected users match. Of ${checked} that were checked:`,
    `  ${valid} would be accepted`,
    `  ${still_rejected} would still be rejected`,
    ...(cut > 0 ? [`  ${cut} ${cut === 1 ? 'was' : 'were'} too large to be kept whole, and cannot be patched`] : []),
  ];
  if (valid > 0) lines.push('', 'What the accepted ones would do:', ...describeEffects(preview));
  for (const warning of warnings) lines.push('', `${bold('Careful:')} ${warning}.`);
  if (reasons.length > 0) {
    const rows = reasons.map(({ message, users }) => [String(users), message]);
    lines.push('', renderTable(['users', 'still rejected, because'], rows));
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
function describeEffects({ effects, users }: Preview): string[] {
  const lines = EFFECTS.flatMap(([name, one, many]) => {
    const count = effects[name];
    return count === 0 ? [] : [`  ${count} ${count === 1 ? one : many}`];
  });
  const rows = users.flatMap(({ id, prediction }) =>
    [
      ...(prediction?.merges ?? []).map(({ from, into, via }) => `would merge ${from} into ${into} by ${via.type}`),
      ...(prediction?.warnings ?? []),
      ...(prediction?.violations ?? []).map(({ path, message }) => `${path}: ${message} (tracking plan)`),
    ].map((note) => [id, note]),
  );
  return rows.length === 0 ? lines : [...lines, '', renderTable(['id', 'note'], rows)];
}

/** Waits until the job is done or stopped, or the command is; gives the exit code. Also for `sluice dead-letters`. */
export async function reportJob(server: Server, { id }: NewJob, isJson: boolean, shell: Shell): Promise<number> {
  let shown = '';
  for (;;) {
    const { json: job, text } = await callApi<Job>(server, `jobs/${id}`, { stop: shell.stop });
    const seen = `${job.matched - job.left} of ${job.matched}`;
    if (shell.errTerminal.isTty && seen !== shown) shell.err(`\r${seen} `);
    shown = seen;
    if (job.status === 'running' && !shell.stop.aborted) {
      await pause(POLL_MS, shell.stop);
      if (!shell.stop.aborted) continue;
    }
    if (shell.errTerminal.isTty) shell.err('\n');
    shell.out(isJson ? `${text}\n` : describeJob(job));
    if (job.status !== 'done') return 1;
    return job.still_rejected + job.failed + job.cut + job.gone === 0 ? ACCEPTED : SOME_REJECTED;
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

function describeJob(job: Job): string {
  const lines = [`Job ${job.id}: ${job.status}`];
  for (const [name, words] of OUTCOMES) if (job[name] > 0) lines.push(`  ${job[name]} ${words}`);
  if (job.problems.length > 0) {
    const rows = job.problems.map(({ id, message }) => [id, message]);
    lines.push('', renderTable(['id', 'why'], rows));
  }
  if (job.status === 'running') lines.push('', 'It continues by itself.');
  return `${lines.join('\n')}\n`;
}
