/**
 * `sluice rejections`: what was rejected and why. Without a filter the reasons, with how many users each has and how many
 * of them are not fixed yet; with one, the users. `sluice resubmit` fixes them.
 */

import type { Static } from 'typebox';
import type { RejectionPage, RejectionReasons } from '../api/routes/rejections.ts';
import type { FlagsRead } from '../config/flags.ts';
import { readArguments } from './arguments.ts';
import { isoTime, localTime, readMoment } from './local-time.ts';
import { callApi, readServer, type Server } from './server.ts';
import type { Shell } from './shell.ts';
import { renderTable } from './table.ts';

const SHOWN_MAX = 50;
/** The flags, and what the API calls them. */
const FILTERS = [
  ['reason', 'reason'],
  ['event', 'event_name'],
  ['key-id', 'key_id'],
] as const;
export const FILTER_FLAGS = [...FILTERS.map(([flag]) => flag), 'from', 'to'];

type Filter = Readonly<Record<string, string>>;
type Page = Static<typeof RejectionPage>;

export async function runRejections(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readArguments('rejections', args);
  flags.refuse(flags.positionals);
  const filter = readRejectionFilter(flags, shell.now());
  const server = await readServer(flags, shell);
  const isList = flags.switches.has('list') || Object.keys(filter).some((name) => name !== 'from' && name !== 'to');
  if (isList) await listUsers(server, filter, flags.switches.has('all'), flags.isJson, shell);
  else await listReasons(server, filter, flags.isJson, shell);
  return 0;
}

/** Which rejected users a command is about, in the names of the API. */
export function readRejectionFilter(flags: FlagsRead, now: number): Filter {
  const filter: Record<string, string> = {};
  for (const [flag, name] of FILTERS) {
    const value = flags.values.get(flag);
    if (value !== undefined) filter[name] = value;
  }
  for (const name of ['from', 'to']) {
    const time = readMoment(flags, name, now);
    if (time !== undefined) filter[name] = isoTime(time);
  }
  return filter;
}

async function listReasons(server: Server, filter: Filter, isJson: boolean, shell: Shell): Promise<void> {
  const path = `rejections/reasons?${new URLSearchParams(filter).toString()}`;
  const { json, text } = await callApi<Static<typeof RejectionReasons>>(server, path, { stop: shell.stop });
  if (isJson) return shell.out(`${text}\n`);
  const { reasons } = json;
  if (reasons.length === 0) return shell.out('No user was rejected.\n');
  const rows = reasons.map(({ reason, users, resubmitted, last_at: lastAt }) => [
    String(users - resubmitted),
    String(users),
    localTime(Date.parse(lastAt)),
    reason,
  ]);
  shell.out(`${renderTable(['to fix', 'rejected', 'last', 'reason'], rows)}\n`);
  shell.out('\nThe users of one reason: sluice rejections --reason REASON\n');
}

async function listUsers(server: Server, filter: Filter, isAll: boolean, isJson: boolean, shell: Shell): Promise<void> {
  const query = new URLSearchParams({ ...filter, ...(!isAll && { resubmitted: 'false' }), limit: String(SHOWN_MAX) });
  if (isJson) return everyUser(server, query, shell);
  const { json } = await callApi<Page>(server, `rejections?${query.toString()}`, { stop: shell.stop });
  const { rejections } = json;
  if (rejections.length === 0) return shell.out('No rejected user matches.\n');
  const rows = rejections.map((rejection) => [
    rejection.id,
    localTime(Date.parse(rejection.received_at)),
    rejection.event_names.join(', ') || '–',
    stateOf(rejection),
  ]);
  shell.out(`${renderTable(['id', 'received', 'events', 'reason'], rows)}\n`);
  if (json.next_cursor !== null) shell.out(`\nThese are the newest ${SHOWN_MAX}; --json prints all.\n`);
}

function stateOf({ resubmitted_at: at, accepted_by: retry, message }: Page['rejections'][number]): string {
  if (at === null) return message;
  return retry === null ? 'resubmitted' : `accepted in the retry ${retry}`;
}

/** One line each, with the payload. */
async function everyUser(server: Server, query: URLSearchParams, shell: Shell): Promise<void> {
  query.set('limit', '500');
  for (;;) {
    const page = await callApi<Page>(server, `rejections?${query.toString()}`, { stop: shell.stop }).catch(
      (error: unknown) => {
        // The reader of the lines may be gone, as in `… | head`.
        if (!shell.stop.aborted) throw error;
      },
    );
    if (page === undefined) return;
    const { json } = page;
    for (const rejection of json.rejections) shell.out(`${JSON.stringify(rejection)}\n`);
    await shell.drained();
    if (json.next_cursor === null || shell.stop.aborted) return;
    query.set('cursor', json.next_cursor);
  }
}
