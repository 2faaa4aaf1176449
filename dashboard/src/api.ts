/**
 * The only door to the server: JSON over fetch, same origin, with the session's cookie. Every failure is an `ApiError`
 * whose message is fit to be shown to a person. A 401 means that the session is over and leads to the sign-in page,
 * but for the calls in which it means a wrong password. Long numbers keep their digits (`exact-json.ts`).
 */

import { parseExactly } from './exact-json.ts';
import { navigate, signInPath } from './router.tsx';
import type { Environment } from './api-constants.ts';

export class ApiError extends Error {
  override readonly name = 'ApiError';
  /** Of HTTP; 0 when the server did not respond. */
  readonly status: number;
  readonly traceId: string | null;
  readonly retryAfterSeconds: number | null;

  constructor(message: string, status: number, traceId: string | null, retryAfterSeconds: number | null = null) {
    super(message);
    this.status = status;
    this.traceId = traceId;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

export function asApiError(cause: unknown): ApiError {
  return cause instanceof ApiError ? cause : new ApiError('The response of the server could not be read.', 0, null);
}

export function get<T>(environment: Environment | null, path: string, signal?: AbortSignal): Promise<T> {
  return call<T>(environment, 'GET', path, undefined, signal);
}

export function send<T>(
  environment: Environment | null,
  method: 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  path: string,
  body?: unknown,
): Promise<T> {
  return call<T>(environment, method, path, body, undefined);
}

/** To `/ingest/`, with an API key in place of the session. The body is sent as it was typed. */
export async function ingest<T>(path: string, key: string, body: string): Promise<T> {
  const headers = new Headers({ 'content-type': 'application/json' });
  try {
    headers.set('authorization', `Bearer ${key}`);
  } catch {
    throw new ApiError('This is not an API key: it has characters that no key has.', 0, null);
  }
  const request: RequestInit = { method: 'POST', headers, body, credentials: 'omit', cache: 'no-store' };
  const { response, text } = await responseTo(path, request);
  if (response.ok) return parseExactly(text) as T;
  if (response.status === 401) {
    const words =
      'The server does not accept this key. Is it complete, and for this server? It may be revoked or expired.';
    throw new ApiError(words, 401, response.headers.get('x-trace-id'));
  }
  throw errorOf(response, text);
}

async function call<T>(
  environment: Environment | null,
  method: string,
  path: string,
  body: unknown,
  signal: AbortSignal | undefined,
): Promise<T> {
  const headers = new Headers({ accept: 'application/json' });
  if (environment !== null) headers.set('sluice-environment', environment);
  if (body !== undefined) headers.set('content-type', 'application/json');
  const request: RequestInit = { method, headers, credentials: 'same-origin', cache: 'no-store' };
  if (body !== undefined) request.body = JSON.stringify(body);
  if (signal !== undefined) request.signal = signal;

  const { response, text } = await responseTo(path, request);
  if (response.ok) return (text === '' ? undefined : parseExactly(text)) as T;

  if (response.status === 401 && !(method === 'POST' && path.startsWith('/session'))) leaveForSignIn();
  throw errorOf(response, text);
}

async function responseTo(path: string, request: RequestInit): Promise<{ response: Response; text: string }> {
  try {
    const response = await fetch(path, request);
    return { response, text: await response.text() };
  } catch (cause) {
    if (request.signal?.aborted === true) throw cause;
    throw new ApiError('The server did not respond. Check that it is running and that you are connected.', 0, null);
  }
}

function leaveForSignIn(): void {
  if (location.pathname === '/dashboard/sign-in' || location.pathname === '/dashboard/welcome') return;
  navigate(signInPath(), { replace: true });
}

const TEXT_BY_STATUS: Readonly<Record<number, string>> = {
  401: 'You are signed out. Sign in again.',
  403: 'That is not allowed.',
  404: 'Not found: it does not exist, or belongs to another account or environment.',
  413: 'That is too large to be sent.',
  429: 'Too many attempts. Wait a little, then try again.',
  500: 'The server had an internal error. Its log has the reason, under the trace_id below.',
  503: 'The server is unavailable. Try again in a moment.',
};

function errorOf(response: Response, text: string): ApiError {
  const { error, message, trace_id: traceId } = errorFields(text);
  const words = message ?? TEXT_BY_STATUS[response.status] ?? error ?? `The server responded with ${response.status}.`;
  const wait = Number(response.headers.get('retry-after') ?? Number.NaN);
  return new ApiError(
    sentence(words),
    response.status,
    traceId ?? response.headers.get('x-trace-id'),
    Number.isFinite(wait) ? wait : null,
  );
}

function errorFields(text: string): Partial<Record<'error' | 'message' | 'trace_id', string>> {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body !== 'object' || body === null) return {};
    return Object.fromEntries(Object.entries(body).filter(([, value]) => typeof value === 'string'));
  } catch {
    // A proxy between us and the server responded with its own text.
    return {};
  }
}

/** A message that begins with the name of a field, as `events[0].timestamp`, leaves that name as it is. */
function sentence(words: string): string {
  const isName = /^\S*[_.[]\S/.test(words);
  const capital = isName ? words : words.charAt(0).toUpperCase() + words.slice(1);
  return /[.?]$/.test(capital) ? capital : `${capital}.`;
}
