/**
 * `sluice rejections`: what was rejected and why. Without a filter the reasons, with how many users each has and how many
 * of them are not fixed yet; with one, the users. `sluice resubmit` fixes them.
 */

import { mistakesError, readFlags } from '../config/flags.ts';
import type { JsonObject } from '../validation/shape.ts';
import { type ApiServer, callApi } from './api-call.ts';
import { COMMANDS, flagKinds } from './commands.ts';
import { readIngestKey, readIngestServer } from './ingest-target.ts';
import { localTime } from './local-time.ts';
import { readRejectionFilter } from './rejection-filter.ts';
import type { Shell } from './shell.ts';
import { type Ink, inkFor, renderTable } from './table.ts';

const HINT = 'For help: sluice help rejections';
const SHOWN_MAX = 50;

export async function runRejections(args: readonly string[], shell: Shell): Promise<number> {
  const ink = inkFor(shell.outTerminal.isTty, shell.env);
  const flags = readFlags(args, flagKinds(COMMANDS.rejections));
  const mistakes = [...flags.mistakes, ...flags.positionals.map((word) => `unexpected argument "${word}"`)];
  const server = await readIngestServer(flags, shell, mistakes);
  const key = readIngestKey(flags, shell, mistakes);
  const filter = readRejectionFilter(flags, shell.now(), mistakes);
  if (server === undefined || mistakes.length > 0) throw mistakesError(mistakes, HINT);
  const target = { url: server.url, key };
  const isList = flags.switches.has('list') || Object.keys(filter).some((name) => name !== 'from' && name !== 'to');
  const isJson = flags.switches.has('json');
  if (isList) await listUsers(target, filter, flags.switches.has('all'), isJson, shell, ink);
  else await listReasons(target, filter, isJson, shell, ink);
  return 0;
}

async function listReasons(
  server: ApiServer,
  filter: Readonly<Record<string, string>>,
  isJson: boolean,
  shell: Shell,
  ink: Ink,
): Promise<void> {
  const { json, text } = await callApi(server, 'GET', `rejections/reasons?${new URLSearchParams(filter).toString()}`);
  if (isJson) return shell.out(`${text}\n`);
  const reasons = json.reasons as readonly JsonObject[];
  if (reasons.length === 0) return shell.out('No user was rejected.\n');
  const rows = reasons.map(({ reason, users, resubmitted, last_at: lastAt }) => [
    String(Number(users) - Number(resubmitted)),
    String(users),
    localTime(Date.parse(String(lastAt))),
    String(reason),
  ]);
  shell.out(`${renderTable(['to fix', 'rejected', 'last', 'reason'], rows, ink)}\n`);
  shell.out('\nThe users of one reason: sluice rejections --reason REASON\n');
}

async function listUsers(
  server: ApiServer,
  filter: Readonly<Record<string, string>>,
  isAll: boolean,
  isJson: boolean,
  shell: Shell,
  ink: Ink,
): Promise<void> {
  const query = new URLSearchParams({ ...filter, ...(!isAll && { resubmitted: 'false' }), limit: String(SHOWN_MAX) });
  if (isJson) return everyUser(server, query, shell);
  const { json } = await callApi(server, 'GET', `rejections?${query.toString()}`);
  const rejections = json.rejections as readonly JsonObject[];
  if (rejections.length === 0) return shell.out('No rejected user matches.\n');
  const rows = rejections.map((rejection) => [
    String(rejection.id),
    localTime(Date.parse(String(rejection.received_at))),
    (rejection.event_names as readonly string[]).join(', ') || '–',
    stateOf(rejection),
  ]);
  shell.out(`${renderTable(['id', 'received', 'events', 'reason'], rows, ink)}\n`);
  if (json.next_cursor !== null) shell.out(`\nThese are the newest ${SHOWN_MAX}; --json prints all.\n`);
}

function stateOf({ resubmitted_at: at, accepted_by: retry, message }: JsonObject): string {
  if (at === null) return String(message);
  return typeof retry === 'string' ? `accepted in the retry ${retry}` : 'resubmitted';
}

/** One line each, with the payload. */
async function everyUser(server: ApiServer, query: URLSearchParams, shell: Shell): Promise<void> {
  query.set('limit', '500');
  for (;;) {
    const { json } = await callApi(server, 'GET', `rejections?${query.toString()}`);
    for (const rejection of json.rejections as readonly JsonObject[]) shell.out(`${JSON.stringify(rejection)}\n`);
    await shell.drained();
    if (typeof json.next_cursor !== 'string' || shell.stop.aborted) return;
    query.set('cursor', json.next_cursor);
  }
}
