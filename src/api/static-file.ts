/**
 * A file that is kept in memory and served as it is: compressed as the client takes it, each form once, with a strong tag
 * for each, and 304 for those who have it. How long it may be cached, and by whom it may be used, is up to its route.
 */

import { hash } from 'node:crypto';
import { extname } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, gzip, constants as zlib } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';

const CONTENT_TYPES: ReadonlyMap<string, string> = new Map([
  ['.html', 'text/html; charset=utf-8'],
  ['.js', 'text/javascript; charset=utf-8'],
  ['.css', 'text/css; charset=utf-8'],
  ['.svg', 'image/svg+xml'],
  ['.json', 'application/json; charset=utf-8'],
  ['.map', 'application/json; charset=utf-8'],
  ['.png', 'image/png'],
  ['.woff2', 'font/woff2'],
]);
/** Compressed already; another round makes them larger. */
const PACKED = new Set(['.png', '.woff2']);
/** Below it the headers outweigh what is saved. */
const COMPRESSED_BYTES_MIN = 1_024;
/** One step below the best: a tenth of the time for a few hundred bytes more. */
const BROTLI_QUALITY = 9;
/** For addresses with a hash of the content: a year. */
export const CACHED_FOREVER = 'public, max-age=31536000, immutable';

type Encoding = 'br' | 'gzip' | 'identity';

const COMPRESSORS: Readonly<Record<Encoding, (bytes: Buffer) => Promise<Buffer>>> = {
  br: (bytes) => promisify(brotliCompress)(bytes, { params: { [zlib.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY } }),
  gzip: (bytes) => promisify(gzip)(bytes, { level: zlib.Z_BEST_COMPRESSION }),
  identity: async (bytes) => bytes,
};

export class StaticFile {
  readonly digest: string;
  readonly #type: string;
  readonly #bytes: Buffer;
  readonly #isCompressible: boolean;
  readonly #encoded = new Map<Encoding, Promise<Buffer>>();

  constructor(name: string, bytes: Buffer) {
    const extension = extname(name);
    this.digest = hash('sha256', bytes, 'base64url');
    this.#type = CONTENT_TYPES.get(extension) ?? 'application/octet-stream';
    this.#bytes = bytes;
    this.#isCompressible = !PACKED.has(extension) && bytes.length >= COMPRESSED_BYTES_MIN;
  }

  /** The caller has set `cache-control`. */
  async send(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const encoding = this.#isCompressible ? chosenEncoding(request.headers['accept-encoding']) : 'identity';
    // Each encoding has its own tag: a strong tag identifies the exact bytes.
    const tag = encoding === 'identity' ? `"${this.digest}"` : `"${this.digest}-${encoding}"`;
    reply.headers({ etag: tag, vary: 'accept-encoding' });
    if (isNamed(tag, request.headers['if-none-match'])) return reply.code(304).send();
    if (encoding !== 'identity') reply.header('content-encoding', encoding);
    const bytes = this.#encoded.get(encoding) ?? COMPRESSORS[encoding](this.#bytes);
    this.#encoded.set(encoding, bytes);
    return reply.type(this.#type).send(await bytes);
  }
}

/** For what is built before it is served, and is not there yet. */
export function sendNotBuilt(reply: FastifyReply, text: string): FastifyReply {
  return reply.code(503).header('cache-control', 'no-store').type('text/plain; charset=utf-8').send(text);
}

/** The tags that a client names are compared weakly, as RFC 9110 (13.1.2) has it. */
function isNamed(tag: string, ifNoneMatch: string | undefined): boolean {
  if (ifNoneMatch === undefined) return false;
  return ifNoneMatch.split(',').some((given) => ['*', tag, `W/${tag}`].includes(given.trim()));
}

/** The smallest encoding that the client accepts by name; a weight of 0 excludes it. */
function chosenEncoding(acceptEncoding = ''): Encoding {
  const taken = new Set<string>();
  for (const one of acceptEncoding.toLowerCase().split(',')) {
    const [name = '', ...parameters] = one.split(';').map((part) => part.trim());
    if (!parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter))) taken.add(name);
  }
  return taken.has('br') ? 'br' : taken.has('gzip') ? 'gzip' : 'identity';
}

/** Reads what was built, once; null while it is not there, and reads again then. */
export function readOnce<Built>(read: () => Promise<Built>): () => Promise<Built | null> {
  let loading: Promise<Built> | undefined;
  return async () => {
    loading ??= read();
    try {
      return await loading;
    } catch (error) {
      loading = undefined;
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
  };
}
