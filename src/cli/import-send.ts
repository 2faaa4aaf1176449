/**
 * Sends one batch to `POST /ingest/events` and retries until it is accepted, rejected permanently, or the timeout is
 * over. Retries carry the same Idempotency-Key, so a batch whose response was lost is stored once.
 */

import { OperatorError } from '../errors.ts';
import { isObject } from '../validation/shape.ts';
import { formatSpan } from './local-time.ts';
import { messageIn, refusalText, type Reply, request, type Server, unreachableText } from './server.ts';
import { pause, type Shell } from './shell.ts';

const BACKOFF_MS_MIN = 250;
const BACKOFF_MS_MAX = 15_000;
/** A server that asks for more than this is asked again earlier. */
const RETRY_AFTER_MS_MAX = 60_000;
const RETRYABLE = new Set([408, 425, 429, 500, 502, 503, 504]);

export interface Target {
  readonly server: Server;
  readonly timeoutMs: number;
  readonly stop: AbortSignal;
  readonly now: () => number;
  /** Called with the reason while it waits; null when it continues. */
  readonly onWait: (problem: string | null) => void;
}

export function targetOf(server: Server, timeoutMs: number, { stop, now, err }: Shell): Target {
  const onWait: Target['onWait'] = (problem) => {
    if (problem !== null) err(`${problem}; trying again.\n`);
  };
  return { server, timeoutMs, stop, now, onWait };
}

interface SentUser {
  readonly userIndex: number;
  readonly message: string;
}

/** The response to a request. */
interface Sent {
  readonly status: number;
  /** Empty where the server gave none. */
  readonly traceId: string;
  readonly rejected: readonly SentUser[];
  /** Why all of it was refused; null where it was not. */
  readonly refusal: string | null;
}

/** It is unknown whether it was stored; sending it again with the same key is safe. */
export class UnsentError extends OperatorError {}

/** It was not stored, and would be refused again. */
export class RefusedError extends UnsentError {}

/** Throws an `UnsentError` where there is no response to wait for. */
export async function sendBody(body: Buffer<ArrayBuffer>, idempotencyKey: string, target: Target): Promise<Sent> {
  const { stop, now, timeoutMs, onWait } = target;
  let firstProblemAt: number | undefined;
  for (let tries = 1; ; tries++) {
    if (stop.aborted) throw new UnsentError('Stopped.');
    const result = await attempt(body, idempotencyKey, target);
    if (!('later' in result)) {
      if (tries > 1) onWait(null);
      return result;
    }
    firstProblemAt ??= now();
    const waitMs = result.afterMs ?? backoffMs(tries);
    if (now() - firstProblemAt + waitMs > timeoutMs) {
      const waited = formatSpan(Math.max(timeoutMs, 1));
      throw new UnsentError(`${result.later}; gave up after ${waited} (--retry-timeout)`);
    }
    onWait(result.later);
    await pause(waitMs, stop);
  }
}

/** `later`: why it is tried again. */
type Attempt = Sent | { readonly later: string; readonly afterMs: number | null };

async function attempt(body: Buffer<ArrayBuffer>, idempotencyKey: string, { server, stop }: Target): Promise<Attempt> {
  let reply: Reply;
  try {
    const headers = { 'idempotency-key': idempotencyKey };
    reply = await request(server, 'ingest/events', { method: 'POST', body, headers, stop });
  } catch (error) {
    if (stop.aborted) throw new UnsentError('Stopped.');
    const problem = unreachableText(server, error);
    // A port that is kept for something else than HTTP: retrying does not help.
    if (problem.includes('(bad port)')) throw new RefusedError(`${problem}. Is --url right?`);
    return { later: problem, afterMs: null };
  }
  const { status, headers, json } = reply;
  if (RETRYABLE.has(status)) {
    return { later: `${server.url.origin} responds with ${status}`, afterMs: retryAfterMs(headers) };
  }
  const sent = {
    status,
    traceId: typeof json?.trace_id === 'string' ? json.trace_id : '',
    rejected: rejectedIn(json?.errors),
  };
  if (status === 413) return { ...sent, refusal: 'the server says that it is too large (413)' };
  if ((status === 202 && sent.traceId !== '') || (status === 400 && sent.rejected.length > 0)) {
    return { ...sent, refusal: null };
  }
  if (status === 400 && json !== undefined) {
    return { ...sent, refusal: messageIn(reply) ?? 'the server responded with 400' };
  }
  throw new RefusedError(refusalText(server, reply));
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
