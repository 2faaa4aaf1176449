/**
 * Asks a server what would become of a request: one call of `POST /ingest/events/check`, which stores nothing. The key is
 * in the request's header and nowhere else. It does not retry: a check has nothing to lose, and is run again.
 */

import { OperatorError } from '../errors.ts';
import { isObject } from '../validation/shape.ts';
import { finalErrorText, objectIn, reasonOf, rejectedIn, type SentUser } from './import-send.ts';

const ATTEMPT_MS_MAX = 60_000;

export interface CheckTarget {
  /** Ends in a slash. */
  readonly server: URL;
  readonly key: string;
  readonly stop: AbortSignal;
}

export interface ServerCheck {
  readonly rejected: readonly SentUser[];
  /** Why no user could be checked; null where they were. */
  readonly problem: string | null;
  /** As the server gave them, by index; empty for a publishable key. */
  readonly users: readonly Readonly<Record<string, unknown>>[];
  readonly pendingRequests: number;
}

export async function checkOnServer(body: string, { server, key, stop }: CheckTarget): Promise<ServerCheck> {
  const url = new URL('ingest/events/check', server);
  let response: Response;
  let text: string;
  try {
    response = await fetch(url, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body,
      // A redirect would carry the key to wherever it points.
      redirect: 'manual',
      signal: AbortSignal.any([stop, AbortSignal.timeout(ATTEMPT_MS_MAX)]),
    });
    text = await response.text();
  } catch (error) {
    throw new OperatorError(stop.aborted ? 'Stopped.' : `${url.origin} cannot be reached (${reasonOf(error)})`);
  }
  const { status, headers } = response;
  if (status === 413) throw new OperatorError('A request in the file is larger than 10 MB, which no server accepts.');
  if (status === 503) throw new OperatorError(`${url.origin} responds with 503 (unavailable). Run it again later.`);
  const json = status === 200 ? objectIn(text) : undefined;
  const would = json?.['would_respond'];
  if (!isObject(would) || !isObject(would['body'])) throw new OperatorError(finalErrorText(status, headers, url));
  const { message, errors } = would['body'];
  const users = json?.['users'];
  const pending = json?.['pending_requests'];
  return {
    rejected: rejectedIn(errors),
    problem: typeof message === 'string' ? message : null,
    users: Array.isArray(users) ? users.filter(isObject) : [],
    pendingRequests: typeof pending === 'number' ? pending : 0,
  };
}
