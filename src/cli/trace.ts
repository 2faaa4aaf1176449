/**
 * `sluice trace ID`: what happened to a request. Searches all tenants, since an operator who has a trace_id may not
 * know whose it is. For an unknown id it says where else to look, with exit code 1.
 */

import { jsonText } from '../api/responses.ts';
import { traceJson } from '../api/routes/traces.ts';
import type { Config } from '../config/config.ts';
import type { StoredTrace, TracedUser } from '../store.ts';
import { readArguments } from './arguments.ts';
import { formatSpan, localTime } from './local-time.ts';
import { locationName, readSettings } from './location.ts';
import type { Shell } from './shell.ts';
import { bold, printable, renderTable } from './table.ts';
import { withStore } from './tenant.ts';

/** A trace_id, or the id of an event, which begins with one. */
const TRACE_ID = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:\.\d+\.\d+)?$/i;

export async function runTrace(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readArguments('trace', args);
  const { mistakes, isJson } = flags;
  const config = readSettings(flags, shell.env);
  const [given, ...others] = flags.positionals;
  const [, traceId] = TRACE_ID.exec(given?.trim() ?? '') ?? [];
  if (given === undefined)
    mistakes.push('no trace_id given; it is in the response to the request, and in its X-Trace-Id header');
  else if (traceId === undefined)
    mistakes.push(
      `"${given}" is neither a trace_id nor the id of a stored event; expected a UUID, or a UUID and two numbers (UUID.0.0)`,
    );
  flags.refuse(others, 'traces are shown one at a time');
  if (traceId === undefined || mistakes.length > 0) throw flags.error();

  const id = traceId.toLowerCase();
  const trace = await withStore(shell, config, (store) => store.trace(null, id));
  if (trace === undefined) {
    shell.out(isJson ? `${JSON.stringify({ error: 'not found', trace_id: id })}\n` : unknownTrace(id, config));
    return 1;
  }
  shell.out(isJson ? `${jsonText(traceJson(trace))}\n` : describe(trace, shell.now()));
  return 0;
}

function describe(trace: StoredTrace, now: number): string {
  const { processedAt, failedAt, receivedAt, status, duplicateOf } = trace;
  const lines = [
    `${bold(`Request ${trace.traceId}`)}: ${status}`,
    '',
    `  received   ${localTime(receivedAt)}  (${formatSpan(now - receivedAt)} ago)`,
    processedAt === null
      ? notProcessed(failedAt)
      : `  processed  ${localTime(processedAt)}  (${formatSpan(processedAt - receivedAt)} after it was received)`,
    `  users      ${trace.usersAccepted} accepted, ${trace.usersRejected} rejected`,
  ];
  if (duplicateOf !== null) {
    const isStoredInPart = trace.users.some(({ events }) => events > 0);
    lines.push(
      `  duplicate  of ${duplicateOf}`,
      '',
      'It had the Idempotency-Key and the body of that earlier request, so it was not stored again'.concat(
        isStoredInPart ? ', except for users that the earlier request rejected.' : '.',
      ),
      `There is nothing to do. What was stored: sluice trace ${duplicateOf}`,
    );
  }
  if (trace.users.length > 0) lines.push('', renderTable(HEADERS, trace.users.map(cellsOf)));
  if (status === 'pending' && failedAt === undefined && now - receivedAt > PENDING_LONG_MS) {
    lines.push(
      '',
      'That is a long wait. "sluice doctor" says whether the server is running and how large its backlog is.',
    );
  }
  if (trace.usersRejected > 0) {
    lines.push(
      '',
      'Rejected users are not stored. They can be read for 7 days, unless set otherwise (GET /rejections).',
      'Fix what the last column says: sluice help resubmit',
    );
  }
  return `${lines.join('\n')}\n`;
}

function notProcessed(failedAt: number | undefined): string {
  if (failedAt === undefined) return '  processed  not yet: it is stored in the log and waiting to be processed';
  return `  processed  failed ${localTime(failedAt)}: it is a dead letter; cause and retry: sluice dead-letters`;
}

const PENDING_LONG_MS = 60_000;
const HEADERS = ['user', 'status', 'profile', 'events', 'merged in', 'notes'];

function cellsOf(user: TracedUser): string[] {
  const duplicates = user.duplicateEvents > 0 ? ` (and ${user.duplicateEvents} duplicates)` : '';
  return [
    String(user.userIndex),
    user.status,
    user.profileId ?? '–',
    user.status === 'accepted' ? `${user.events}${duplicates}` : '–',
    user.merged.map(({ from }) => from).join(', ') || '–',
    printable(notesOf(user).join('; ')) || '–',
  ];
}

function notesOf({ message, warnings, resubmitted }: TracedUser): string[] {
  const fixed = resubmitted === undefined ? [] : [`fixed and resubmitted ${localTime(resubmitted.at)}`];
  return [...(message === null ? [] : [message]), ...fixed, ...warnings];
}

function unknownTrace(id: string, config: Config): string {
  const elsewhere =
    config.storeUrl !== '' ? 'database. To look there: --store-url URL' : 'data folder. To look there: --data FOLDER';
  return `No request ${id} in ${locationName(config)}.

Where else to look:
  - It may have been rejected: responses with 401, 413 and 503, and with 400 to a body that could
    not be read, have a trace_id too, but the request is not kept. The client's log has the status.
    A request rejected with 400 because no user was valid is kept, and would be found here.
  - It may have expired. Traces are kept as long as events: see SLUICE_EVENT_RETENTION in
    "sluice config".
  - It may be an $event_id, which cannot be looked up. The timeline of its person shows it:
    sluice profile TYPE=VALUE
  - It may be of an unmerge or an erasure: GET /audit?trace_id=${id}. A check has no trace.
  - It may have gone to another server or ${elsewhere}
`;
}
