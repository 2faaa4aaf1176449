/**
 * Makes requests that are nearly good, from a seed: the same seed gives the same requests. Tame ones keep the framing of
 * HTTP whole, so that the next request on the connection is understood; wild ones may not. Nothing here sends anything.
 */

import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { chunkOf, LAST_CHUNK } from './raw-socket.ts';

/** Small, fast, good enough (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  /** A whole number from 0 to below `limit`. */
  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4_294_967_296) * limit);
  }

  chance(percent: number): boolean {
    return this.below(100) < percent;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }
}

const ODD_VALUES: readonly unknown[] = [
  null,
  true,
  '',
  ' ',
  '\t\u00a0',
  '\0',
  '\ud800',
  'é\u{1f600}',
  'x'.repeat(513),
  0,
  -0.5,
  1e300,
  Number.MAX_SAFE_INTEGER,
  [],
  {},
  [[]],
  { a: { b: [1, { c: null }] } },
  '2024-02-30',
  '2024-02-29T23:59:60Z',
  '20240101T000000+0100',
  JSON.parse('{"__proto__":{"x":1},"constructor":1}'),
  JSON.parse(`${'['.repeat(70)}${']'.repeat(70)}`),
];
const ODD_TOKENS = [
  '1e400',
  '12345678901234567890',
  '-',
  '01',
  'NaN',
  '"',
  '\\',
  '\ufeff',
  ',',
  '}',
  '/*',
  '\\u0000',
  '\n',
  '\0',
];
const ODD_KEYS = ['', '__proto__', 'toString', 'users', 'events', '\ud800', 'k'.repeat(513), 'a.b', '0', '$event_id'];

function goodUser(random: Random): Record<string, unknown> {
  const event = { event_name: 'bought', timestamp: '2026-01-02T03:04:05.678Z', revenue: 9.99, tags: ['a', { b: 1 }] };
  return {
    identifiers: { user_id: `user-${random.below(1_000)}`, email: 'ada@example.com', city: 'Wien' },
    user_properties: { plan: 'pro', nested: { deep: [1, 2, 3] } },
    events: Array.from({ length: 1 + random.below(2) }, () => structuredClone(event)),
  };
}

type Container = Record<string, unknown> | unknown[];

function containersIn(value: unknown, found: Container[] = []): Container[] {
  if (typeof value !== 'object' || value === null) return found;
  found.push(value as Container);
  for (const member of Object.values(value)) containersIn(member, found);
  return found;
}

/** Changes one place of a tree: another value, a member less, a member more. */
function mutateTree(random: Random, root: unknown): void {
  const container = random.pick(containersIn(root));
  const key = random.pick([...Object.keys(container), random.pick(ODD_KEYS)]);
  if (random.chance(25)) {
    Reflect.deleteProperty(container, key);
    return;
  }
  const isCopy = random.chance(15) && Object.hasOwn(container, key);
  const value: unknown = isCopy ? Reflect.get(container, key) : random.pick(ODD_VALUES);
  // Defined, not assigned: `__proto__` is to be a member like any other.
  const member = { value: structuredClone(value), enumerable: true, configurable: true, writable: true };
  Object.defineProperty(container, isCopy && !Array.isArray(container) ? random.pick(ODD_KEYS) : key, member);
}

function bodyText(random: Random): string {
  const root = { users: Array.from({ length: 1 + random.below(4) }, () => goodUser(random)) };
  for (let count = random.below(4); count > 0; count--) mutateTree(random, root);
  let text = JSON.stringify(root, undefined, random.chance(10) ? 1 : 0);
  if (random.chance(8)) {
    const at = random.below(text.length);
    text = text.slice(0, at) + random.pick(ODD_TOKENS) + text.slice(at + random.below(3));
  }
  return text;
}

const COMPRESSORS = {
  gzip: gzipSync,
  deflate: deflateSync,
  br: (text: Buffer): Buffer => (text.length < 2_000 ? brotliCompressSync(text) : text),
  zstd: zstdCompressSync,
};

const ODD_HEADERS = [
  'Content-Type: text/plain',
  'Content-Encoding: gzip',
  'Content-Encoding: identity',
  'Content-Encoding: x',
  'Idempotency-Key: once',
  'Idempotency-Key:',
  `Idempotency-Key: ${'k'.repeat(256)}`,
  'Authorization: Bearer sk_dev_wrong',
  'Origin: https://example.com',
  'Origin: null',
  'Expect: something',
  'Connection: keep-alive',
  'X-Forwarded-For: 1.2.3.4',
  `X-Long: ${'x'.repeat(3_000)}`,
  'Cookie: a=b',
  'TE: trailers',
];
const ODD_LINES = [
  'PUT /ingest/events',
  'DELETE /ingest/events',
  'POST /ingest/event',
  'POST /%00',
  'POST /ingest/events?key=x',
];

/** Framing is whole: a length that is right, or chunks that are. */
export function tameRequest(random: Random, key: string): Buffer {
  let body: Buffer = Buffer.from(bodyText(random));
  const headers = ['Host: localhost', `Authorization: Bearer ${key}`, 'Content-Type: application/json'];
  if (random.chance(15)) {
    const name = random.pick(Object.keys(COMPRESSORS) as (keyof typeof COMPRESSORS)[]);
    body = name === 'deflate' && random.chance(50) ? deflateRawSync(body) : COMPRESSORS[name](body);
    headers.push(`Content-Encoding: ${name}`);
  }
  if (random.chance(10)) body = scramble(random, body);
  // In front, because of two headers that may be there once the first one counts.
  if (random.chance(10)) headers.splice(random.below(headers.length), 0, random.pick(ODD_HEADERS));
  if (random.chance(5)) headers.splice(1 + random.below(headers.length - 1), 1);
  const isChunked = random.chance(10);
  headers.push(isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length}`);
  const requestLine = `${random.chance(4) ? random.pick(ODD_LINES) : 'POST /ingest/events'} HTTP/1.1`;
  const head = Buffer.from(`${[requestLine, ...headers].join('\r\n')}\r\n\r\n`, 'latin1');
  return Buffer.concat([head, ...(isChunked ? inChunks(random, body) : [body])]);
}

/** Bytes changed anywhere, in the framing too. */
export function wildRequest(random: Random, key: string): Buffer {
  return scramble(random, tameRequest(random, key));
}

function inChunks(random: Random, body: Buffer): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < body.length; ) {
    const size = 1 + random.below(400);
    chunks.push(chunkOf(body.subarray(at, at + size)));
    at += size;
  }
  return [...chunks, LAST_CHUNK];
}

function scramble(random: Random, bytes: Buffer): Buffer {
  const from = random.below(bytes.length);
  const to = from + random.below(40);
  switch (random.below(4)) {
    case 0: {
      const flipped = Buffer.from(bytes);
      for (let count = 1 + random.below(4); count > 0; count--)
        flipped[random.below(flipped.length)] = random.below(256);
      return flipped;
    }
    case 1:
      return bytes.subarray(0, from);
    case 2:
      return Buffer.concat([bytes.subarray(0, to), bytes.subarray(from)]);
    default:
      return Buffer.concat([bytes.subarray(0, from), bytes.subarray(to)]);
  }
}
