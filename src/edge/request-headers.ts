/**
 * What the headers and the address of an ingest request say: the key, and what to expect of the body. Pure.
 */

import type { IncomingHttpHeaders } from 'node:http';
import { LIMITS } from '../model.ts';
import { ENCODINGS, type Encoding } from './body.ts';

const BEARER = /^Bearer +(\S+) *$/i;
const JSON_TYPE = /^application\/json[\t ]*(;|$)/i;
const TEXT_TYPE = /^text\/plain[\t ]*(;|$)/i;

/** The key of a request, and whether it came in the address; undefined if there is none. */
export function keyOf(
  authorization: string | undefined,
  url: string,
): { readonly key: string; readonly isInQuery: boolean } | undefined {
  const inQuery = queryKey(url);
  const key = BEARER.exec(authorization ?? '')?.[1] ?? inQuery;
  return key === undefined ? undefined : { key, isInQuery: key === inQuery };
}

export interface Envelope {
  readonly encoding: Encoding | null;
  readonly idempotencyKey: string | null;
  /** As the client says; 0 when it does not. */
  readonly declaredBytes: number;
}

/** The envelope, or what is wrong with it, in words. Browsers that are closing can only send plain text. */
export function envelopeOf(headers: IncomingHttpHeaders, mayBePlainText: boolean): Envelope | string {
  const contentType = headers['content-type'] ?? '';
  if (!JSON_TYPE.test(contentType) && !(mayBePlainText && TEXT_TYPE.test(contentType))) {
    return 'Content-Type must be application/json';
  }
  const encoding = encodingOf(headers['content-encoding']);
  if (encoding === undefined) return `Content-Encoding must be one of ${ENCODINGS.join(', ')}, or absent`;
  const idempotencyKey = headers['idempotency-key'] ?? null;
  if (idempotencyKey !== null && !isIdempotencyKey(idempotencyKey)) {
    return `Idempotency-Key must have 1 to ${LIMITS.idempotencyKeyCharactersMax} characters`;
  }
  return { encoding, idempotencyKey, declaredBytes: Number(headers['content-length'] ?? 0) };
}

/** undefined: not one that is understood. */
function encodingOf(header: string | undefined): Encoding | null | undefined {
  if (header === undefined) return null;
  const name = header.trim().toLowerCase();
  if (name === 'identity' || name === '') return null;
  return ENCODINGS.find((encoding) => encoding === name);
}

function isIdempotencyKey(header: string | string[]): header is string {
  return typeof header === 'string' && header.length > 0 && header.length <= LIMITS.idempotencyKeyCharactersMax;
}

function queryKey(url: string): string | undefined {
  const at = url.indexOf('?');
  if (at === -1) return undefined;
  return new URLSearchParams(url.slice(at + 1)).get('key') ?? undefined;
}
