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
import { readSettings } from './location.ts';
import type { Shell } from './shell.ts';

export interface Server {
  /** Ends in a slash. */
  readonly url: URL;
  /** Found on the data folder: other commands can read there what was sent. */
  readonly isLocal: boolean;
  readonly key: string;
}

/** Undefined where there is none, which is then among the mistakes. */
export async function readServer(flags: FlagsRead, shell: Shell): Promise<Server | undefined> {
  const given = flags.values.get('url') ?? shell.env['SLUICE_URL'] ?? '';
  const url = given === '' ? await findLocalServer(flags, shell) : readUrl(given, flags.mistakes);
  const key = givenKey(flags, shell);
  // The key itself is not repeated: it would end up in logs.
  if (!/^[\x21-\x7e]+$/.test(key)) {
    flags.mistakes.push(
      'no API key given; expected --key KEY, or SLUICE_KEY in the environment. To create one: sluice keys create --help',
    );
  }
  return url === undefined ? undefined : { url, isLocal: given === '', key };
}

/** Empty where there is none. */
export function givenKey(flags: FlagsRead, shell: Shell): string {
  return flags.values.get('key') ?? shell.env['SLUICE_KEY'] ?? '';
}

/** Undefined where it is not a time, which is then among the mistakes. */
export function readRetryTimeout(flags: FlagsRead, defaultMs: number): number | undefined {
  const given = flags.values.get('retry-timeout');
  const timeoutMs = given === undefined ? defaultMs : parseDurationMs(given);
  if (timeoutMs === undefined) flags.mistakes.push(`--retry-timeout is "${given}"; expected a time such as 10s`);
  return timeoutMs;
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

export const CALL_MS_MAX = 60_000;

export interface Call {
  readonly method?: 'GET' | 'POST' | 'PUT';
  readonly body?: string | Buffer<ArrayBuffer>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly stop?: AbortSignal;
  readonly timeoutMs?: number;
}

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Undefined for what is not a JSON object. */
  readonly json: JsonObject | undefined;
}

/** Rejects as `fetch` does. */
export async function request(url: URL, key: string, call: Call = {}): Promise<Reply> {
  const { method = 'GET', body, headers, stop, timeoutMs = CALL_MS_MAX } = call;
  const timeout = AbortSignal.timeout(timeoutMs);
  const response = await fetch(url, {
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
  return { status: response.status, headers: response.headers, text, json: objectIn(text) };
}

function objectIn(text: string): JsonObject | undefined {
  try {
    const value = parseJson(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export class CallRefusedError extends OperatorError {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/**
 * A call of the API: rejects with an `OperatorError` for anything but success, with refusals in the server's own words.
 * Nothing is retried: commands that use it say what they did, and can be run again.
 */
export async function callApi(
  { url, key }: Server,
  method: 'GET' | 'POST',
  path: string,
  body?: string,
): Promise<{ readonly json: JsonObject; readonly text: string }> {
  const call = { method, ...(body !== undefined && { body }) };
  const { status, json, text } = await request(new URL(path, url), key, call).catch((error: unknown) => {
    throw new OperatorError(`${url.origin} cannot be reached. Is the server running, and --url right?`, {
      cause: error,
    });
  });
  if (status >= 200 && status < 300 && json !== undefined) return { json, text };
  throw new CallRefusedError(status, refusal(status, json, url));
}

function refusal(status: number, json: JsonObject | undefined, url: URL): string {
  if (status === 401)
    return `${url.origin} does not accept this key (401). "sluice keys list" shows the keys of a data folder.`;
  if (status === 403) return 'This needs a secret key (403): a publishable one can only send events.';
  const said = json?.message ?? json?.error;
  if (typeof said === 'string') return `${said} (${status})`;
  return `${url.origin} does not respond like Sluice (${status}). Is --url right?`;
}

/**
 * A page of the dashboard. Secret keys name their environment; for a publishable one the dashboard chooses.
 */
export function dashboardPage({ url, key }: Server, view: string): string {
  const environment = key.startsWith('sk_prod_') ? 'production' : key.startsWith('sk_dev_') ? 'development' : undefined;
  const path = environment === undefined ? 'dashboard' : `dashboard/${environment}${view === '' ? '' : `/${view}`}`;
  return new URL(path, url).href;
}
