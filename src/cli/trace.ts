/**
 * `sluice trace ID`: what became of a request. Looks at all tenants, since whoever holds a trace_id at night may not
 * know whose it is. An unknown id is answered with where else to look, and exit code 1.
 */

import { jsonText } from '../api/json-text.ts';
import { traceAnswer } from '../api/stored-answers.ts';
import type { Config } from '../config.ts';
import type { StoredTrace, TracedUser } from '../store.ts';
import { type FlagKinds, mistakesError, readFlags } from './flags.ts';
import { traceHelp, wantsHelp } from './help.ts';
import { formatSpan, localTime } from './local-time.ts';
import { isShared, placeName } from './place.ts';
import type { Shell } from './shell.ts';
import { type Ink, inkFor, printable, renderTable } from './table.ts';
import { readPlace, STORE_FLAGS, withStore } from './tenant.ts';

const HINT = 'More about it: sluice trace --help';
const FLAGS = STORE_FLAGS satisfies FlagKinds;
/** A trace_id, or the id of an event, which begins with one. */
const TRACE_ID = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:\.\d+\.\d+)?$/i;

export async function runTrace(args: readonly string[], shell: Shell): Promise<number> {
  const ink = inkFor(shell.outTerminal.isTty, shell.env);
  if (wantsHelp(args)) {
    shell.out(traceHelp(ink));
    return 0;
  }
  const flags = readFlags(args, FLAGS);
  const { config, mistakes } = readPlace(flags, shell);
  const [given, ...others] = flags.positionals;
  const [, traceId] = TRACE_ID.exec(given?.trim() ?? '') ?? [];
  if (given === undefined)
    mistakes.push('the trace_id is missing; it is in the answer to the request, and in its X-Trace-Id header');
  else if (traceId === undefined) mistakes.push(`"${given}" is not a trace_id; expected a UUID`);
  mistakes.push(...others.map((word) => `unexpected argument "${word}"; traces are shown one at a time`));
  if (traceId === undefined || mistakes.length > 0) throw mistakesError(mistakes, HINT);

  const id = traceId.toLowerCase();
  const trace = await withStore(shell, config, (store) => store.trace(null, id));
  const isJson = flags.switches.has('json');
  if (trace === undefined) {
    shell.out(isJson ? `${JSON.stringify({ error: 'not found', trace_id: id })}\n` : unknownTrace(id, config));
    return 1;
  }
  shell.out(isJson ? `${jsonText(traceAnswer(trace))}\n` : describe(trace, shell.now(), ink));
  return 0;
}

function describe(trace: StoredTrace, now: number, ink: Ink): string {
  const { processedAt, receivedAt, status, duplicateOf } = trace;
  const lines = [
    `${ink.bold(`Request ${trace.traceId}`)}: ${status}`,
    '',
    `  received   ${localTime(receivedAt)}  (${formatSpan(now - receivedAt)} ago)`,
    processedAt === null
      ? '  processed  not yet: it is safe in the log and waits for its turn'
      : `  processed  ${localTime(processedAt)}  (${formatSpan(processedAt - receivedAt)} after it came in)`,
    `  users      ${trace.usersAccepted} accepted, ${trace.usersRejected} rejected`,
  ];
  if (duplicateOf !== null) {
    lines.push(
      `  duplicate  of ${duplicateOf}`,
      '',
      'It had the Idempotency-Key and the body of that earlier request, so it was not stored again.',
      `There is nothing to do. What was stored: sluice trace ${duplicateOf}`,
    );
  }
  if (trace.users.length > 0) lines.push('', renderTable(HEADERS, trace.users.map(cellsOf), ink));
  if (status === 'pending' && now - receivedAt > PENDING_LONG_MS) {
    lines.push('', 'That is a long wait. "sluice doctor" says whether the server runs and how much is before it.');
  }
  if (trace.usersRejected > 0) {
    lines.push(
      '',
      'Rejected users are not stored. They are kept aside for 7 days, unless set otherwise (GET /rejections).',
      'Mend what the last column says and send them again.',
    );
  }
  return `${lines.join('\n')}\n`;
}

const PENDING_LONG_MS = 60_000;
const HEADERS = ['user', 'status', 'profile', 'events', 'merged in', 'notes'];

function cellsOf(user: TracedUser): string[] {
  const duplicates = user.duplicateEvents > 0 ? ` (${user.duplicateEvents} more were there already)` : '';
  return [
    String(user.userIndex),
    user.status,
    user.profileId ?? '–',
    user.status === 'accepted' ? `${user.events}${duplicates}` : '–',
    user.merged.map(({ from }) => from).join(', ') || '–',
    printable([...(user.message === null ? [] : [user.message]), ...user.warnings].join('; ')) || '–',
  ];
}

function unknownTrace(id: string, config: Config): string {
  const elsewhere = isShared(config) ? 'database: --store-url URL' : 'data folder: --data FOLDER';
  return `No request ${id} in ${placeName(config)}.

Where else to look:
  - It may have been refused as a whole: answers of 401, 413 and 503, and of 400 to a body that
    could not be used, have a trace_id too, and nothing of them is kept. The client's log has the
    status. A 400 because no user was valid is kept, and would be found here.
  - It may be older than traces are kept: "sluice config" shows how long that is.
  - It may have gone to another server or ${elsewhere} looks elsewhere.
`;
}
