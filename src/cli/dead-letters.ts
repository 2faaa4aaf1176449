/**
 * `sluice dead-letters`: requests that were accepted and could not be processed, with the cause; `--retry` processes one or
 * all of them again, as after an upgrade. Exit code 0: done; 2: some still cannot be processed; 1: it could not be done.
 */

import { mistakesError, readFlags } from '../config/flags.ts';
import type { JsonObject } from '../validation/shape.ts';
import { type ApiServer, callApi, waitForJob } from './api-call.ts';
import { COMMANDS, flagKinds } from './commands.ts';
import { readIngestKey, readIngestServer } from './ingest-target.ts';
import { localTime } from './local-time.ts';
import { report } from './resubmit.ts';
import type { Shell } from './shell.ts';
import { type Ink, inkFor, renderTable } from './table.ts';

const HINT = 'For help: sluice help dead-letters';
const ID = /^(all|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+)$/i;

export async function runDeadLetters(args: readonly string[], shell: Shell): Promise<number> {
  const ink = inkFor(shell.outTerminal.isTty, shell.env);
  const flags = readFlags(args, flagKinds(COMMANDS['dead-letters']));
  const mistakes = [...flags.mistakes, ...flags.positionals.map((word) => `unexpected argument "${word}"`)];
  const retry = flags.values.get('retry');
  if (retry !== undefined && !ID.test(retry))
    mistakes.push(`--retry is "${retry}"; expected the id of a dead letter, or all`);
  const server = await readIngestServer(flags, shell, mistakes);
  const key = readIngestKey(flags, shell, mistakes);
  if (server === undefined || mistakes.length > 0) throw mistakesError(mistakes, HINT);
  const target = { url: server.url, key };
  const cause = flags.values.get('cause');
  const isJson = flags.switches.has('json');
  if (retry === undefined) {
    await list(target, cause, isJson, shell, ink);
    return 0;
  }
  const filter = { filter: cause === undefined ? {} : { cause } };
  const { json } =
    retry === 'all'
      ? await callApi(target, 'POST', 'dead-letters/retry', JSON.stringify(filter))
      : await callApi(target, 'POST', `dead-letters/${retry}/retry`);
  return report(await waitForJob(target, String(json.id), shell), isJson, shell, ink);
}

async function list(
  server: ApiServer,
  cause: string | undefined,
  isJson: boolean,
  shell: Shell,
  ink: Ink,
): Promise<void> {
  const query = new URLSearchParams({ limit: '500', ...(cause !== undefined && { cause }) });
  const { json, text } = await callApi(server, 'GET', `dead-letters?${query.toString()}`);
  if (isJson) return shell.out(`${text}\n`);
  const letters = json.dead_letters as readonly JsonObject[];
  if (letters.length === 0) return shell.out('There are no dead letters: every accepted request was processed.\n');
  const rows = letters.map((letter) => [
    String(letter.id),
    localTime(Date.parse(String(letter.received_at))),
    String(letter.users),
    String(letter.events),
    letter.can_retry === true ? 'yes' : 'no: its body is not kept',
    String(letter.cause),
  ]);
  shell.out(`${renderTable(['id', 'received', 'users', 'events', 'can be retried', 'cause'], rows, ink)}\n`);
  shell.out('\nAfter an upgrade that fixes the cause: sluice dead-letters --retry all\n');
}
