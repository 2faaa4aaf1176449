/**
 * The server that a command calls over HTTP, and with which key: `--url` or SLUICE_URL, else the server that is running on
 * the data folder; `--key` or SLUICE_KEY. The key is in the header of requests and nowhere else: not in messages, not in
 * errors.
 */

import { constants } from 'node:fs';
import { join, resolve } from 'node:path';
import type { FlagsRead } from '../config/flags.ts';
import { parseDurationMs } from '../config/values.ts';
import { deniedBy } from '../data-folder/access.ts';
import { OperatorError } from '../errors.ts';
import { parseJson } from '../json/parse.ts';
import { isObject, type JsonObject } from '../validation/shape.ts';
import { type Arguments, readFlag } from './arguments.ts';
import { formatSpan } from './local-time.ts';
import { readSettings } from './location.ts';
import type { Shell } from './shell.ts';
import { printable } from './table.ts';

export interface Server {
  /** Ends in a slash. */
  readonly url: URL;
  /** Found on the data folder: other commands can read there what was sent. */
  readonly isLocal: boolean;
  readonly key: string;
}

/** Call it when all other flags are read: throws for their mistakes, too. */
export async function readServer(flags: Arguments, shell: Shell): Promise<Server> {
  const given = flags.values.get('url') ?? shell.env['SLUICE_URL'] ?? '';
  const url = given === '' ? await findLocalServer(flags, shell) : readUrl(given, flags.mistakes);
  const key = givenKey(flags, shell);
  // The key itself is not repeated: it would end up in logs.
  if (key === '') {
    flags.mistakes.push(
      'no API key given; expected --key KEY, or SLUICE_KEY in the environment. To create one: sluice keys create --help',
    );
  } else if (!/^[\x21-\x7e]+$/.test(key)) {
    flags.mistakes.push('the API key has a blank, a line break or another character that no key has');
  }
  if (url === undefined || flags.mistakes.length > 0) throw flags.error();
  return { url, isLocal: given === '', key };
}

/** Empty where there is none. */
export function givenKey(flags: FlagsRead, shell: Shell): string {
  return flags.values.get('key') ?? shell.env['SLUICE_KEY'] ?? '';
}

export function readRetryTimeout(flags: FlagsRead, defaultMs: number): number {
  return readFlag(flags, 'retry-timeout', parseDurationMs, 'a time such as 10s') ?? defaultMs;
}

async function findLocalServer(flags: FlagsRead, shell: Shell): Promise<URL | undefined> {
  const { mistakes } = flags;
  const mistakesBefore = mistakes.length;
  const config = readSettings(flags, shell.env);
  if (mistakes.length > mistakesBefore) return undefined;
  const folder = resolve(config.dataFolder);
  const denied = [deniedBy(folder, constants.R_OK | constants.X_OK), deniedBy(join(folder, 'lock.db'), constants.R_OK)];
  if (denied.includes('EACCES')) {
    mistakes.push(
      `the data folder ${folder} cannot be read by this user (EACCES), so a server on it cannot be found; run this as ` +
        'the owner of the folder, or give the address of the server with --url URL or as SLUICE_URL',
    );
    return undefined;
  }
  const found = await shell.findServer(config);
  if (found !== undefined) return new URL('/', found);
  mistakes.push(
    `no server is running on the data folder ${folder}; start one (sluice serve), name another ` +
      'folder with --data FOLDER, or give the address of a server with --url URL or as SLUICE_URL',
  );
  return undefined;
}

function readUrl(text: string, mistakes: string[]): URL | undefined {
  const expected = 'expected the address of a server, such as http://127.0.0.1:8080';
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    mistakes.push(`--url is "${text}"; ${expected}`);
    return undefined;
  }
  if (url.username !== '' || url.password !== '') {
    mistakes.push('--url has a name or a password in it; the key goes into --key or SLUICE_KEY');
    return undefined;
  }
  if (!url.pathname.endsWith('/')) url.pathname += '/';
  return url;
}

const CALL_MS_MAX = 60_000;

interface Call {
  readonly method?: 'GET' | 'POST' | 'PUT';
  readonly body?: string | Buffer<ArrayBuffer>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly stop?: AbortSignal;
}

export interface Reply {
  /** What was called. */
  readonly path: string;
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Undefined for what is not a JSON object. */
  readonly json: JsonObject | undefined;
}

/** Rejects as `fetch` does. */
export async function request({ url, key }: Server, path: string, call: Call = {}): Promise<Reply> {
  const { method = 'GET', body, headers, stop } = call;
  const timeout = AbortSignal.timeout(CALL_MS_MAX);
  const response = await fetch(new URL(path, url), {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body }),
    // A redirect would carry the key to wherever it points.
    redirect: 'manual',
    signal: stop === undefined ? timeout : AbortSignal.any([stop, timeout]),
  });
  const text = await response.text();
  return { path, status: response.status, headers: response.headers, text, json: objectIn(text) };
}

function objectIn(text: string): JsonObject | undefined {
  try {
    const value = parseJson(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Rejects with an `OperatorError` if there is no response. Nothing is retried: the command can be run again. */
export async function requestOnce(server: Server, path: string, call: Call = {}): Promise<Reply> {
  return request(server, path, call).catch((error: unknown) => {
    const problem = call.stop?.aborted === true ? 'Stopped.' : `${unreachableText(server, error)}. Is --url right?`;
    throw new OperatorError(problem, { cause: error });
  });
}

/** The same for what has to succeed. `Body` is what the API says of the response (`Static` of its schema). */
export async function callApi<Body = JsonObject>(server: Server, path: string, call?: Call): Promise<Success<Body>> {
  return successOf<Body>(server, await requestOnce(server, path, call));
}

interface Success<Body> extends Omit<Reply, 'json'> {
  readonly json: Body;
}

export function successOf<Body = JsonObject>(server: Server, reply: Reply): Success<Body> {
  const { status, json } = reply;
  if (status >= 200 && status < 300 && json !== undefined) return { ...reply, json: json as Body };
  throw new OperatorError(refusalText(server, reply));
}

/** Also for a success whose body is another one than the API has. */
export function notSluiceText({ url }: Server, { status }: Pick<Reply, 'status'>): string {
  return `${url.origin} does not respond like Sluice (${status}). Is --url right?`;
}

export function unreachableText({ url }: Server, error: unknown): string {
  return `${url.origin} cannot be reached (${whyCallFailed(error)})`;
}

function whyCallFailed(error: unknown): string {
  if (!(error instanceof Error)) return 'no reason given';
  if (error.name === 'TimeoutError') return `no response within ${formatSpan(CALL_MS_MAX)}`;
  const { cause } = error;
  if (!(cause instanceof Error)) return error.message;
  const code = 'code' in cause ? String(cause.code) : cause.message;
  return code === 'ECONNREFUSED' ? 'ECONNREFUSED: nothing listens there' : code;
}

/** What a response means that is not a success and that no retry helps with. */
export function refusalText(server: Server, reply: Reply): string {
  const { url, key } = server;
  const { path, status, headers } = reply;
  const isSending = path.startsWith('ingest/');
  const text = messageIn(reply);
  const message = text === undefined ? undefined : printable(text);
  if (status === 401) {
    return (
      `${url.origin} does not accept this key (401). Is it complete, not revoked or expired, and for this server's ` +
      'environment? "sluice keys list" shows the keys of a data folder.'
    );
  }
  if (status === 403) {
    const reason = key.startsWith('pk_') && !isSending ? 'a publishable key can only send events' : message;
    return `${url.origin} does not allow that with this key (403)${reason === undefined ? '' : `: ${reason}`}.`;
  }
  if (status >= 300 && status < 400) {
    return `${url.origin} redirects to ${printable(headers.get('location') ?? 'elsewhere')}; give that address with --url.`;
  }
  if (message === undefined) return notSluiceText(server, reply);
  // Every Sluice has these paths.
  if (status === 404 && isSending) return `${url.origin} responds with 404: ${message}. Is --url right?`;
  return `${message} (${status})`;
}

/** The server's own words. */
export function messageIn({ json }: Reply): string | undefined {
  const message = json?.message ?? json?.error;
  return typeof message === 'string' ? message : undefined;
}

/**
 * A page of the dashboard. Secret keys name their environment; for a publishable one the dashboard chooses.
 */
export function dashboardPage({ url, key }: Server, view: string): string {
  const environment = key.startsWith('sk_prod_') ? 'production' : key.startsWith('sk_dev_') ? 'development' : undefined;
  const path = environment === undefined ? 'dashboard' : `dashboard/${environment}${view === '' ? '' : `/${view}`}`;
  return new URL(path, url).href;
}
