/**
 * Sends one batch to `POST /ingest/events` and retries until it is accepted, rejected permanently, or the timeout is
 * over. Retries carry the same Idempotency-Key, so a batch whose response was lost is stored once.
 */

import { OperatorError } from '../errors.ts';
import { isObject } from '../validation/shape.ts';
import { formatSpan } from './local-time.ts';
import { CALL_MS_MAX, type Reply, request, type Server } from './server.ts';
import { pause, type Shell } from './shell.ts';

const BACKOFF_MS_MIN = 250;
const BACKOFF_MS_MAX = 15_000;
/** A server that asks for more than this is asked again earlier. */
const RETRY_AFTER_MS_MAX = 60_000;
const RETRYABLE = new Set([408, 425, 429, 500, 502, 503, 504]);

export interface Target {
  readonly url: URL;
  readonly key: string;
  readonly timeoutMs: number;
  readonly stop: AbortSignal;
  readonly now: () => number;
  /** Called with the reason while it waits; null when it continues. */
  readonly onWait: (problem: string | null) => void;
}

export function targetOf({ url, key }: Server, timeoutMs: number, { stop, now, err }: Shell): Target {
  const onWait: Target['onWait'] = (problem) => {
    if (problem !== null) err(`${problem}; trying again.\n`);
  };
  return { url: new URL('ingest/events', url), key, timeoutMs, stop, now, onWait };
}

interface SentUser {
  readonly userIndex: number;
  readonly message: string;
}

/**
 * `traceId` is empty where the server gave none. `unsent`: it is unknown whether it was stored; sending it
 * again with the same key is safe.
 */
export type Sent =
  | { readonly kind: 'taken'; readonly traceId: string; readonly rejected: readonly SentUser[] }
  | { readonly kind: 'refused'; readonly traceId: string; readonly message: string }
  | { readonly kind: 'too large' }
  | { readonly kind: 'unsent'; readonly problem: OperatorError | null };

export async function sendBody(body: Buffer<ArrayBuffer>, idempotencyKey: string, target: Target): Promise<Sent> {
  const { stop, now, timeoutMs, onWait } = target;
  let firstProblemAt: number | undefined;
  for (let tries = 1; ; tries++) {
    if (stop.aborted) return { kind: 'unsent', problem: null };
    const result = await attempt(body, idempotencyKey, target);
    if (result.kind !== 'later') {
      if (tries > 1) onWait(null);
      return result;
    }
    firstProblemAt ??= now();
    const waitMs = result.afterMs ?? backoffMs(tries);
    if (now() - firstProblemAt + waitMs > timeoutMs) {
      const message = `${result.problem}; gave up after ${formatSpan(Math.max(timeoutMs, 1))} (--retry-timeout)`;
      return { kind: 'unsent', problem: new OperatorError(message) };
    }
    onWait(result.problem);
    await pause(waitMs, stop);
  }
}

type Attempt = Sent | { readonly kind: 'later'; readonly problem: string; readonly afterMs: number | null };

async function attempt(
  body: Buffer<ArrayBuffer>,
  idempotencyKey: string,
  { url, key, stop }: Target,
): Promise<Attempt> {
  try {
    const headers = { 'idempotency-key': idempotencyKey };
    return resultOf(await request(url, key, { method: 'POST', body, headers, stop }), url);
  } catch (error) {
    if (stop.aborted) return { kind: 'unsent', problem: null };
    const problem = `${url.origin} cannot be reached (${whyCallFailed(error)})`;
    // A port that is kept for something else than HTTP: retrying does not help.
    if (isForbiddenPort(error)) return { kind: 'unsent', problem: new OperatorError(`${problem}. Is --url right?`) };
    return { kind: 'later', problem, afterMs: null };
  }
}

function resultOf({ status, headers, json }: Reply, url: URL): Attempt {
  if (status === 202 && json !== undefined && typeof json['trace_id'] === 'string') {
    return { kind: 'taken', traceId: json['trace_id'], rejected: rejectedIn(json['errors']) };
  }
  if (status === 400 && json !== undefined) {
    const traceId = typeof json['trace_id'] === 'string' ? json['trace_id'] : '';
    const rejected = rejectedIn(json['errors']);
    if (rejected.length > 0) return { kind: 'taken', traceId, rejected };
    const given = json['message'] ?? json['error'];
    const message = typeof given === 'string' ? given : 'the server responded with 400';
    return { kind: 'refused', traceId, message };
  }
  if (status === 413) return { kind: 'too large' };
  if (RETRYABLE.has(status)) {
    return { kind: 'later', problem: `${url.origin} responds with ${status}`, afterMs: retryAfterMs(headers) };
  }
  return { kind: 'unsent', problem: new OperatorError(finalErrorText(status, headers, url)) };
}

/** What a status means that no retry helps with. */
export function finalErrorText(status: number, headers: Headers, url: URL): string {
  if (status === 401) {
    return (
      `${url.origin} does not accept this key (401). Is it complete, not revoked or expired, and for this server's ` +
      'environment? "sluice keys list" shows the keys of a data folder.'
    );
  }
  if (status === 403) return `This key cannot send events to ${url.origin} (403).`;
  if (status >= 300 && status < 400) {
    return `${url.origin} redirects to ${headers.get('location') ?? 'elsewhere'}; give that address with --url.`;
  }
  return `${url.origin} does not respond like Sluice (${status} from ${url.pathname}). Is --url right?`;
}

/** Never negative: a clock that runs ahead must not make this a flood. */
function retryAfterMs(headers: Headers): number | null {
  const text = headers.get('retry-after') ?? '';
  return /^\d+$/.test(text) ? Math.min(Math.max(Number(text) * 1_000, BACKOFF_MS_MIN), RETRY_AFTER_MS_MAX) : null;
}

/** Doubles, with a random half, so that requests which failed together do not come back together. */
function backoffMs(tries: number): number {
  const whole = Math.min(BACKOFF_MS_MIN * 2 ** (tries - 1), BACKOFF_MS_MAX);
  return whole / 2 + (Math.random() * whole) / 2;
}

export function rejectedIn(errors: unknown): SentUser[] {
  if (!Array.isArray(errors)) return [];
  return errors.flatMap((entry: unknown) => {
    if (!isObject(entry)) return [];
    const { userIndex, message } = entry;
    return typeof userIndex === 'number' && typeof message === 'string' ? [{ userIndex, message }] : [];
  });
}

export function whyCallFailed(error: unknown): string {
  if (!(error instanceof Error)) return 'no reason given';
  if (error.name === 'TimeoutError') return `no response within ${formatSpan(CALL_MS_MAX)}`;
  const { cause } = error;
  if (!(cause instanceof Error)) return error.message;
  const code = 'code' in cause ? String(cause.code) : cause.message;
  return code === 'ECONNREFUSED' ? 'ECONNREFUSED: nothing listens there' : code;
}

function isForbiddenPort(error: unknown): boolean {
  return error instanceof Error && error.cause instanceof Error && error.cause.message === 'bad port';
}
