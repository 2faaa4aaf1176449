/**
 * `sluice dead-letters`: requests that were accepted and could not be processed, with the cause; `--retry` processes one or
 * all of them again, as after an upgrade.
 */

import type { Static } from 'typebox';
import type { DeadLetterPage } from '../api/routes/dead-letters.ts';
import { readArguments } from './arguments.ts';
import { localTime } from './local-time.ts';
import { type NewJob, reportJob } from './resubmit.ts';
import { callApi, readServer, type Server } from './server.ts';
import type { Shell } from './shell.ts';
import { renderTable } from './table.ts';

const ID = /^(all|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+)$/i;

export async function runDeadLetters(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readArguments('dead-letters', args);
  const { mistakes } = flags;
  flags.refuse(flags.positionals);
  const retry = flags.values.get('retry');
  if (retry !== undefined && !ID.test(retry))
    mistakes.push(`--retry is "${retry}"; expected the id of a dead letter, or all`);
  const server = await readServer(flags, shell);
  const cause = flags.values.get('cause');
  if (retry === undefined) {
    await list(server, cause, flags.isJson, shell);
    return 0;
  }
  const body = JSON.stringify({ filter: cause === undefined ? {} : { cause } });
  const { stop } = shell;
  const { json } =
    retry === 'all'
      ? await callApi<NewJob>(server, 'dead-letters/retry', { method: 'POST', body, stop })
      : await callApi<NewJob>(server, `dead-letters/${retry}/retry`, { method: 'POST', stop });
  return reportJob(server, json, flags.isJson, shell);
}

async function list(server: Server, cause: string | undefined, isJson: boolean, shell: Shell): Promise<void> {
  const query = new URLSearchParams({ limit: '500', ...(cause !== undefined && { cause }) });
  const path = `dead-letters?${query.toString()}`;
  const { json, text } = await callApi<Static<typeof DeadLetterPage>>(server, path, { stop: shell.stop });
  if (isJson) return shell.out(`${text}\n`);
  const letters = json.dead_letters;
  if (letters.length === 0) return shell.out('There are no dead letters: every accepted request was processed.\n');
  const rows = letters.map((letter) => [
    letter.id,
    localTime(Date.parse(letter.received_at)),
    String(letter.users),
    String(letter.events),
    letter.can_retry ? 'yes' : 'no: its body is not kept',
    letter.cause,
  ]);
  shell.out(`${renderTable(['id', 'received', 'users', 'events', 'can be retried', 'cause'], rows)}\n`);
  shell.out('\nAfter an upgrade that fixes the cause: sluice dead-letters --retry all\n');
}
