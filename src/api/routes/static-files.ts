/**
 * The files that were built with the package: the dashboard (`dashboard/dist`) under `/dashboard`, and the SDK for pages
 * (`sdk/dist/sluice.js`) as `/ingest/sluice.js`. Read at the first request and kept in memory, so no request reaches the
 * disk and none can name another file. What was not built gets a 503, and is looked for again the next time.
 *
 * Addresses with a hash of the content are cached for a year. Each file is compressed as the client accepts, each form
 * once, with a strong tag of its own and 304 for those who have it.
 */

import { hash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, gzip, constants as zlib } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { SDK_SCRIPT_PATH } from '../../config/roles.ts';
import type { ApiParts, OperatorParts } from '../parts.ts';
import { sendError } from '../responses.ts';

const BUILT_PAGE = new URL('../../../dashboard/dist/', import.meta.url);
const INDEX = 'index.html';
const ASSETS = 'assets/';
const PAGE_NOT_BUILT = 'The dashboard is not built yet. Run: npm run build:dashboard\n';
const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const BUILT_SCRIPT = new URL('../../../sdk/dist/sluice.js', import.meta.url);
const SCRIPT_NOT_BUILT = 'The SDK is not built yet. Run: npm run build:sdk\n';
/** Shorter ones would match by chance. */
const HASH_CHARACTERS_MIN = 12;

const CACHED_FOREVER = 'public, max-age=31536000, immutable';
const CACHED_BRIEFLY = 'public, max-age=3600';

/** Every address without a file is the page itself, which is requested again each time and gets a 304 when unchanged. */
export function registerDashboardPage(app: FastifyInstance, { pageFolder = BUILT_PAGE }: ApiParts): void {
  const files = once(() => readPage(pageFolder));

  const serve = async (request: FastifyRequest, reply: FastifyReply, name: string): Promise<FastifyReply> => {
    const page = await files().catch(nullIfNotBuilt);
    if (page === null) return sendNotBuilt(reply, PAGE_NOT_BUILT);
    const isAsset = name.startsWith(ASSETS);
    const file = page.get(name) ?? (isAsset ? undefined : page.get(INDEX));
    if (file === undefined) return sendError(reply, 'not_found');
    reply.headers({
      'cache-control': isAsset ? CACHED_FOREVER : 'no-cache',
      'content-security-policy': PAGE_POLICY,
    });
    return file.send(request, reply);
  };

  // A person with a browser; everything else has its own address.
  app.get('/', (_request, reply) => reply.redirect('/dashboard'));
  app.get('/dashboard', (request, reply) => serve(request, reply, INDEX));
  app.get<{ Params: { '*': string } }>('/dashboard/*', (request, reply) => serve(request, reply, request.params['*']));
}

/**
 * Cached for an hour. With `?v=` and the beginning of its hash (in the `ETag`), cached for a year; a hash of another
 * version gets the current script, and no cache keeps it for long.
 */
export function registerSdkScript(app: FastifyInstance, { sdkScript = BUILT_SCRIPT }: OperatorParts): void {
  const script = once(async () => new StaticFile('sluice.js', await readFile(sdkScript)));

  app.get<{ Querystring: { v?: unknown } }>(SDK_SCRIPT_PATH, async (request, reply) => {
    // A page of any site may load it, also with crossorigin and integrity on its tag.
    reply.headers({ 'access-control-allow-origin': '*', 'cross-origin-resource-policy': 'cross-origin' });
    const file = await script().catch(nullIfNotBuilt);
    if (file === null) return sendNotBuilt(reply, SCRIPT_NOT_BUILT);
    const { v: given } = request.query;
    const isCurrent = typeof given === 'string' && given.length >= HASH_CHARACTERS_MIN && file.digest.startsWith(given);
    reply.header('cache-control', isCurrent ? CACHED_FOREVER : CACHED_BRIEFLY);
    return file.send(request, reply);
  });
}

async function readPage(folder: URL): Promise<ReadonlyMap<string, StaticFile>> {
  const root = fileURLToPath(folder);
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
  const files = paths.map(async (path) => [relative(root, path), new StaticFile(path, await readFile(path))] as const);
  const page = new Map(await Promise.all(files));
  if (!page.has(INDEX)) throw Object.assign(new Error(`there is no ${INDEX}`), { code: 'ENOENT' });
  return page;
}

/** What is loaded, once. A failure (too many open files, say) may not repeat: the next call tries again. */
export function once<T>(load: () => Promise<T>): () => Promise<T> {
  let loading: Promise<T> | undefined;
  return async () => {
    loading ??= load();
    try {
      return await loading;
    } catch (error) {
      loading = undefined;
      throw error;
    }
  };
}

function nullIfNotBuilt(error: unknown): null {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
  throw error;
}

function sendNotBuilt(reply: FastifyReply, text: string): FastifyReply {
  return reply.code(503).header('cache-control', 'no-store').type('text/plain; charset=utf-8').send(text);
}

const CONTENT_TYPES: ReadonlyMap<string, string> = new Map([
  ['.html', 'text/html; charset=utf-8'],
  ['.js', 'text/javascript; charset=utf-8'],
  ['.css', 'text/css; charset=utf-8'],
  ['.svg', 'image/svg+xml'],
]);
/** Below it the headers outweigh what is saved. */
const COMPRESSED_BYTES_MIN = 1_024;
/** One step below the best: a tenth of the time for a few hundred bytes more. */
const BROTLI_QUALITY = 9;

type Encoding = 'br' | 'gzip' | 'identity';

const COMPRESSORS: Readonly<Record<Encoding, (bytes: Buffer) => Promise<Buffer>>> = {
  br: (bytes) => promisify(brotliCompress)(bytes, { params: { [zlib.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY } }),
  gzip: (bytes) => promisify(gzip)(bytes, { level: zlib.Z_BEST_COMPRESSION }),
  identity: async (bytes) => bytes,
};

class StaticFile {
  readonly digest: string;
  readonly #type: string;
  readonly #bytes: Buffer;
  readonly #encoded = new Map<Encoding, Promise<Buffer>>();

  constructor(name: string, bytes: Buffer) {
    this.digest = hash('sha256', bytes, 'base64url');
    this.#type = CONTENT_TYPES.get(extname(name)) ?? 'application/octet-stream';
    this.#bytes = bytes;
  }

  async send(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const isLarge = this.#bytes.length >= COMPRESSED_BYTES_MIN;
    const encoding = isLarge ? chosenEncoding(request.headers['accept-encoding']) : 'identity';
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
