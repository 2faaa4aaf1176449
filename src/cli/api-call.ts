/**
 * One call of the server's API for commands that fix what was rejected: with the key in the header alone, and refusals in
 * the server's own words. Nothing is retried: these commands say what they did, and can be run again.
 */

import { OperatorError } from '../errors.ts';
import { parseJson } from '../json/parse.ts';
import { isObject, type JsonObject } from '../validation/shape.ts';
import { pause, type Shell } from './shell.ts';

const CALL_MS_MAX = 60_000;
const POLL_MS = 300;

export interface ApiServer {
  /** Ends in a slash. */
  readonly url: URL;
  readonly key: string;
}

/** Rejects with an `OperatorError` for anything but success. */
export async function callApi(
  { url, key }: ApiServer,
  method: 'GET' | 'POST',
  path: string,
  body?: string,
): Promise<{ readonly json: JsonObject; readonly text: string }> {
  const response = await fetch(new URL(path, url), {
    method,
    headers: { authorization: `Bearer ${key}`, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body }),
    // A redirect would carry the key to wherever it points.
    redirect: 'manual',
    signal: AbortSignal.timeout(CALL_MS_MAX),
  }).catch((error: unknown) => {
    throw new OperatorError(`${url.origin} cannot be reached. Is the server running, and --url right?`, {
      cause: error,
    });
  });
  const text = await response.text();
  const json = objectIn(text);
  if (response.ok && json !== undefined) return { json, text };
  throw new OperatorError(refusal(response.status, json, url));
}

function refusal(status: number, json: JsonObject | undefined, url: URL): string {
  if (status === 401)
    return `${url.origin} does not accept this key (401). "sluice keys list" shows the keys of a data folder.`;
  if (status === 403) return 'This needs a secret key (403): a publishable one can only send events.';
  const said = json?.message ?? json?.error;
  if (typeof said === 'string') return `${said} (${status})`;
  return `${url.origin} does not respond like Sluice (${status}). Is --url right?`;
}

function objectIn(text: string): JsonObject | undefined {
  try {
    const value = parseJson(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export interface JobState {
  readonly id: string;
  readonly status: string;
  readonly matched: number;
  readonly resubmitted: number;
  readonly stillRejected: number;
  readonly already: number;
  readonly cut: number;
  readonly failed: number;
  readonly left: number;
  readonly gone: number;
  readonly problems: readonly { readonly id: string; readonly message: string }[];
  /** As the server sent it. */
  readonly text: string;
}

/** Until the job is done or stopped, or the command is. */
export async function waitForJob(server: ApiServer, id: string, shell: Shell): Promise<JobState> {
  let shown = '';
  for (;;) {
    const { json, text } = await callApi(server, 'GET', `jobs/${id}`);
    const job = jobIn(json, text);
    const seen = `${job.matched - job.left} of ${job.matched}`;
    if (shell.errTerminal.isTty && seen !== shown) shell.err(`\r${seen} `);
    shown = seen;
    if (job.status !== 'running' || shell.stop.aborted) {
      if (shell.errTerminal.isTty) shell.err('\n');
      return job;
    }
    await pause(POLL_MS, shell.stop);
  }
}

function jobIn(json: JsonObject, text: string): JobState {
  const count = (name: string): number => Number(json[name] ?? 0);
  const problems = Array.isArray(json.problems) ? (json.problems as JobState['problems']) : [];
  return {
    id: String(json.id),
    status: String(json.status),
    matched: count('matched'),
    resubmitted: count('resubmitted'),
    stillRejected: count('still_rejected'),
    already: count('already'),
    cut: count('cut'),
    failed: count('failed'),
    left: count('left'),
    gone: count('gone'),
    problems,
    text,
  };
}
