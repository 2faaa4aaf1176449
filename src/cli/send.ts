/**
 * `sluice send EVENT name=value…`: one event of one person, sent to a server over HTTP like any client would. A value that
 * is JSON (a number, true, null, an object) is sent as it was written, digit for digit; anything else is text. Whether
 * the fields are valid is for the server to say.
 */

import { randomUUID } from 'node:crypto';
import { OperatorError } from '../errors.ts';
import { parseJson } from '../json/parse.ts';
import { readArguments } from './arguments.ts';
import { RefusedError, sendBody, targetOf, UnsentError } from './import-send.ts';
import { dashboardPage, readRetryTimeout, readServer, type Server } from './server.ts';
import type { Shell } from './shell.ts';
import { printable } from './table.ts';

const RETRY_TIMEOUT_DEFAULT_MS = 10_000;
const IDENTIFIERS = [
  ['user-id', 'user_id'],
  ['email', 'email'],
  ['phone-number', 'phone_number'],
  ['anon-id', 'anon_id'],
] as const;
/** Texts by definition, even where they look like a number: `timestamp=20261116`. */
const TEXT_FIELDS: ReadonlySet<string> = new Set(['timestamp', '$event_id']);

export async function runSend(args: readonly string[], shell: Shell): Promise<number> {
  const { server, timeoutMs, body, json } = await readOptions(args, shell);
  const target = targetOf(server, timeoutMs, shell);
  const sent = await sendBody(Buffer.from(body), randomUUID(), target).catch((error: unknown) => {
    // The next run has another Idempotency-Key.
    if (!(error instanceof UnsentError) || error instanceof RefusedError) throw error;
    throw new OperatorError(`${error.message.replace(/\.?$/, '.')} It is unknown whether the event was stored.`);
  });
  const { status, traceId } = sent;
  const message = sent.refusal ?? sent.rejected[0]?.message ?? null;
  const result = { status, trace_id: traceId === '' ? null : traceId, message };
  shell.out(json ? `${JSON.stringify(result)}\n` : describe(result, server));
  return message === null ? 0 : 2;
}

async function readOptions(args: readonly string[], shell: Shell) {
  const flags = readArguments('send', args);
  const { mistakes } = flags;
  const [eventName, ...pairs] = flags.positionals;
  if (eventName === undefined || eventName.includes('=')) {
    mistakes.push('no event name given; expected it first: sluice send order_placed --user-id ada revenue=42.5');
  }
  const fields = readFields(eventName?.includes('=') === true ? [eventName, ...pairs] : pairs, mistakes);
  const identifiers = IDENTIFIERS.flatMap(([flag, name]) => {
    const value = flags.values.get(flag);
    return value === undefined ? [] : [[name, value]];
  });
  if (identifiers.length === 0) {
    mistakes.push('no person given; expected --user-id, --email, --phone-number or --anon-id');
  }
  const timeoutMs = readRetryTimeout(flags, RETRY_TIMEOUT_DEFAULT_MS);
  const server = await readServer(flags, shell);
  const event = [['event_name', JSON.stringify(eventName)] as const, ...fields]
    .map(([name, json]) => `${JSON.stringify(name)}:${json}`)
    .join(',');
  const body = `{"users":[{"identifiers":${JSON.stringify(Object.fromEntries(identifiers))},"events":[{${event}}]}]}`;
  return { server, timeoutMs, body, json: flags.isJson };
}

/** Name and JSON text of each; an event has all its fields side by side. */
function readFields(pairs: readonly string[], mistakes: string[]): Map<string, string> {
  const fields = new Map<string, string>();
  for (const pair of pairs) {
    const at = pair.indexOf('=');
    const name = pair.slice(0, Math.max(at, 0));
    if (at <= 0) mistakes.push(`unexpected argument "${pair}"; expected name=value`);
    else if (name === 'event_name') mistakes.push('event_name is given twice; the first argument is the event name');
    else if (fields.has(name)) mistakes.push(`${name} is given twice`);
    else fields.set(name, jsonTextOf(name, pair.slice(at + 1)));
  }
  return fields;
}

function jsonTextOf(name: string, text: string): string {
  return !TEXT_FIELDS.has(name) && isJson(text) ? text : JSON.stringify(text);
}

function isJson(text: string): boolean {
  try {
    parseJson(text);
    return true;
  } catch {
    return false;
  }
}

function describe(
  { status, trace_id: traceId, message }: { status: number; trace_id: string | null; message: string | null },
  server: Server,
): string {
  const words = message === null ? 'accepted and durable' : `rejected: ${printable(message)}`;
  const lines = [`${status} ${words}`];
  if (traceId !== null) {
    lines.push(`trace_id  ${traceId}`);
    if (!server.key.startsWith('pk_')) lines.push(`see it    ${dashboardPage(server, `traces/${traceId}`)}`);
    if (server.isLocal) lines.push(`or run    sluice trace ${traceId}`);
  }
  return `${lines.join('\n')}\n`;
}
