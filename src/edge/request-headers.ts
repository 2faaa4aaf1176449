/**
 * What the headers and the URL of a request say: whether they can be trusted to mean one thing, the key, what to expect
 * of the body, and which web page sent it. Pure.
 */

import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { ApiKey } from '../keys.ts';
import { LIMITS } from '../model.ts';
import { ENCODINGS, type Encoding } from './body.ts';

/** The key in a header `Authorization`; the API reads it the same way. */
export const BEARER = /^Bearer +(\S+) *$/i;
const JSON_TYPE = /^application\/json[\t ]*(;|$)/i;
const TEXT_TYPE = /^text\/plain[\t ]*(;|$)/i;

export const TRANSFER_CODING_PROBLEM =
  'Transfer-Encoding must be chunked, once and without Content-Length, or absent; compress a body with Content-Encoding';

/** A proxy and this server may each believe another one of two, so a request may have one at most. */
const SINGLE_HEADERS = ['host', 'content-type', 'authorization', 'idempotency-key'] as const;
const SPELLED = ['Host', 'Content-Type', 'Authorization', 'Idempotency-Key'] as const;
/** No two are of one length. */
const SINGLE_BY_LENGTH: readonly (number | undefined)[] = Array.from({ length: 16 }, (_, length) => {
  const index = SINGLE_HEADERS.findIndex((header) => header.length === length);
  return index === -1 ? undefined : index;
});

/**
 * Why a request may mean something else to a proxy in front than it does here, in words; undefined if it cannot. For every
 * request of every route, so it is cheap: one pass over the names, which are compared by length first.
 */
export function ambiguityOf({
  headers,
  rawHeaders,
}: Pick<IncomingMessage, 'headers' | 'rawHeaders'>): string | undefined {
  const transferEncoding = headers['transfer-encoding'];
  if (transferEncoding !== undefined && transferEncoding.trim().toLowerCase() !== 'chunked') {
    return TRANSFER_CODING_PROBLEM;
  }
  let seen = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? '';
    const index = SINGLE_BY_LENGTH[name.length];
    if (index === undefined || name.toLowerCase() !== SINGLE_HEADERS[index]) continue;
    const bit = 1 << index;
    if ((seen & bit) !== 0) return `the ${SPELLED[index]} header must not be sent twice`;
    seen |= bit;
  }
  return undefined;
}

const CHARSET = /;[\t ]*charset[\t ]*=[\t ]*("?)([^\s;"]*)\1/gi;

/** Why text in another charset than UTF-8 cannot be read, in words; undefined if a Content-Type says no such thing. */
export function charsetProblemOf(contentType: string | undefined): string | undefined {
  if (contentType === undefined || !contentType.includes(';')) return undefined;
  for (const [, , charset = ''] of contentType.matchAll(CHARSET)) {
    if (!/^utf-?8$/i.test(charset)) return 'the charset of Content-Type must be utf-8, or absent';
  }
  return undefined;
}

export interface GivenKey {
  readonly key: string;
  /** A URL ends up in logs and histories: a secret key is not accepted from there. */
  readonly isInUrl: boolean;
}

export function keyOf(authorization: string | undefined, url: string): GivenKey | undefined {
  const inQuery = queryValue(url, 'key');
  const key = BEARER.exec(authorization ?? '')?.[1] ?? inQuery;
  return key === undefined ? undefined : { key, isInUrl: key === inQuery };
}

const BASIC = /^Basic +([A-Za-z0-9+/=_-]+) *$/i;

/** As SDKs of Segment send it: the user of Basic authentication, without a password; or in the URL. */
export function segmentKeyOf(authorization: string | undefined, url: string): GivenKey | undefined {
  const [, credentials] = BASIC.exec(authorization ?? '') ?? [];
  const [user = ''] = Buffer.from(credentials ?? '', 'base64')
    .toString('utf8')
    .split(':', 1);
  const inHeader = user === '' ? BEARER.exec(authorization ?? '')?.[1] : user;
  if (inHeader !== undefined) return { key: inHeader, isInUrl: false };
  const inUrl = queryValue(url, 'writeKey');
  return inUrl === undefined ? undefined : { key: inUrl, isInUrl: true };
}

export interface Envelope {
  readonly encoding: Encoding | null;
  readonly idempotencyKey: string | null;
  readonly declaredBytes: number;
}

/** The envelope, or what is wrong with it, in words. A page that is closing can only send plain text. */
export function envelopeOf(headers: IncomingHttpHeaders, mayBePlainText: boolean): Envelope | string {
  const contentType = headers['content-type'] ?? '';
  if (!JSON_TYPE.test(contentType) && !(mayBePlainText && TEXT_TYPE.test(contentType))) {
    return 'Content-Type must be application/json';
  }
  return envelopeOfAnyType(headers);
}

/** The same whatever the body is said to be: some SDKs send compressed JSON as a form. */
export function envelopeOfAnyType(headers: IncomingHttpHeaders): Envelope | string {
  const charsetProblem = charsetProblemOf(headers['content-type']);
  if (charsetProblem !== undefined) return charsetProblem;
  const encoding = encodingOf(headers['content-encoding']);
  if (encoding === undefined) return `Content-Encoding must be one of ${ENCODINGS.join(', ')}, or absent`;
  const idempotencyKey = headers['idempotency-key'] ?? null;
  if (idempotencyKey !== null && !isIdempotencyKey(idempotencyKey)) {
    return `Idempotency-Key must have 1 to ${LIMITS.idempotencyKeyBytesMax} bytes`;
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

/** Node reads headers as Latin-1: one character per byte. */
function isIdempotencyKey(header: string | string[]): header is string {
  return typeof header === 'string' && header.length > 0 && header.length <= LIMITS.idempotencyKeyBytesMax;
}

function queryValue(url: string, name: string): string | undefined {
  const at = url.indexOf('?');
  if (at === -1) return undefined;
  return new URLSearchParams(url.slice(at + 1)).get(name) ?? undefined;
}

/**
 * Which web pages may read the responses of `/ingest/*`. Publishable keys are for pages: any origin, or those on the
 * key's list. A secret key on a page of another site has probably leaked: the data is taken, the page gets no CORS
 * headers, and the use is recorded. `allowed` is the value of `Access-Control-Allow-Origin`.
 */
export function corsFor(key: ApiKey, origin: string, leaked: boolean): { allowed: string | null; refused: boolean } {
  if (leaked) return { allowed: null, refused: false };
  if (key.origins.length === 0) return { allowed: '*', refused: false };
  if (key.origins.includes(origin)) return { allowed: origin, refused: false };
  return { allowed: null, refused: true };
}

export function isForeignOrigin(origin: string | undefined, host: string | undefined): boolean {
  if (origin === undefined) return false;
  // Parsed, because neither capitals nor a default port make it another site.
  const from = URL.parse(origin);
  return from === null || from.host !== URL.parse(`${from.protocol}//${host ?? ''}`)?.host;
}
