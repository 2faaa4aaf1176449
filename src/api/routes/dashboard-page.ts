/**
 * Serves the built page of `dashboard/dist` under `/dashboard`. The files are read at the first request and kept in
 * memory, a few hundred kilobytes; a path is only ever looked up among their names, so no request reaches the disk and
 * none can name another file. Files under `assets/` carry a hash of their content in their names and are cached for a
 * year; every other address is the page itself, which is requested again each time and gets a 304 when unchanged.
 *
 * A page that was not built gets a 503 and is looked for again the next time.
 */

import { hash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, gzip, constants as zlib } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { sendError } from '../responses.ts';

const BUILT_PAGE = new URL('../../../dashboard/dist/', import.meta.url);
const INDEX = 'index.html';
const ASSETS = 'assets/';
const NOT_BUILT = 'The dashboard is not built yet. Run: npm run build:dashboard\n';

const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

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
const YEAR_SECONDS = 31_536_000;

type Encoding = 'br' | 'gzip' | 'identity';

const COMPRESSORS: Readonly<Record<Encoding, (bytes: Buffer) => Promise<Buffer>>> = {
  br: (bytes) => promisify(brotliCompress)(bytes, { params: { [zlib.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY } }),
  gzip: (bytes) => promisify(gzip)(bytes, { level: zlib.Z_BEST_COMPRESSION }),
  identity: async (bytes) => bytes,
};

class PageFile {
  readonly type: string;
  readonly isHashed: boolean;
  readonly #bytes: Buffer;
  readonly #digest: string;
  readonly #isCompressible: boolean;
  readonly #encoded = new Map<Encoding, Promise<Buffer>>();

  constructor(name: string, bytes: Buffer) {
    const extension = extname(name);
    this.type = CONTENT_TYPES.get(extension) ?? 'application/octet-stream';
    this.isHashed = name.startsWith(ASSETS);
    this.#bytes = bytes;
    this.#digest = hash('sha256', bytes, 'base64url');
    this.#isCompressible = !PACKED.has(extension) && bytes.length >= COMPRESSED_BYTES_MIN;
  }

  encodingFor(acceptEncoding: string | undefined): Encoding {
    return this.#isCompressible ? chosenEncoding(acceptEncoding) : 'identity';
  }

  /** Each encoding has its own tag: a strong tag identifies the exact bytes. */
  tag(encoding: Encoding): string {
    return encoding === 'identity' ? `"${this.#digest}"` : `"${this.#digest}-${encoding}"`;
  }

  bytes(encoding: Encoding): Promise<Buffer> {
    const known = this.#encoded.get(encoding);
    if (known !== undefined) return known;
    const made = COMPRESSORS[encoding](this.#bytes);
    this.#encoded.set(encoding, made);
    return made;
  }
}

type PageFiles = ReadonlyMap<string, PageFile>;

export interface DashboardPageParts {
  /** Where the built page is; in this package unless given. */
  readonly pageFolder?: URL;
}

export function registerDashboardPage(app: FastifyInstance, { pageFolder = BUILT_PAGE }: DashboardPageParts): void {
  let loading: Promise<PageFiles> | undefined;
  const files = async (): Promise<PageFiles | null> => {
    loading ??= readPage(pageFolder);
    try {
      return await loading;
    } catch (error) {
      loading = undefined;
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
  };

  const serve = async (request: FastifyRequest, reply: FastifyReply, name: string): Promise<FastifyReply> => {
    const page = await files();
    if (page === null) {
      return reply.code(503).header('cache-control', 'no-store').type('text/plain; charset=utf-8').send(NOT_BUILT);
    }
    const file = page.get(name) ?? (name.startsWith(ASSETS) ? undefined : page.get(INDEX));
    return file === undefined ? sendError(reply, 'not_found') : sendFile(request, reply, file);
  };

  // A person with a browser; everything else has its own address.
  app.get('/', (_request, reply) => reply.redirect('/dashboard'));
  app.get('/dashboard', (request, reply) => serve(request, reply, INDEX));
  app.get<{ Params: { '*': string } }>('/dashboard/*', (request, reply) => serve(request, reply, request.params['*']));
}

async function readPage(folder: URL): Promise<PageFiles> {
  const [top, assets] = await Promise.all([namesIn(folder), namesIn(new URL(ASSETS, folder))]);
  const names = [...top, ...assets.map((name) => ASSETS + name)];
  const files = await Promise.all(
    names.map(async (name) => [name, new PageFile(name, await readFile(new URL(name, folder)))] as const),
  );
  const page = new Map(files);
  if (!page.has(INDEX)) throw Object.assign(new Error(`there is no ${INDEX}`), { code: 'ENOENT' });
  return page;
}

async function namesIn(folder: URL): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map(({ name }) => name);
}

async function sendFile(request: FastifyRequest, reply: FastifyReply, file: PageFile): Promise<FastifyReply> {
  const encoding = file.encodingFor(request.headers['accept-encoding']);
  const tag = file.tag(encoding);
  reply.headers({
    'cache-control': file.isHashed ? `public, max-age=${YEAR_SECONDS}, immutable` : 'no-cache',
    'content-security-policy': PAGE_POLICY,
    etag: tag,
    vary: 'accept-encoding',
  });
  if (isNamed(tag, request.headers['if-none-match'])) return reply.code(304).send();
  if (encoding !== 'identity') reply.header('content-encoding', encoding);
  return reply.type(file.type).send(await file.bytes(encoding));
}

/** The tags that a client names are compared weakly, as RFC 9110 (13.1.2) has it. */
function isNamed(tag: string, ifNoneMatch: string | undefined): boolean {
  if (ifNoneMatch === undefined) return false;
  return ifNoneMatch.split(',').some((given) => ['*', tag, `W/${tag}`].includes(given.trim()));
}

/** The smallest that the client takes by name; a weight of 0 means that it does not. */
function chosenEncoding(acceptEncoding = ''): Encoding {
  const taken = new Set<string>();
  for (const one of acceptEncoding.toLowerCase().split(',')) {
    const [name = '', ...parameters] = one.split(';').map((part) => part.trim());
    if (!parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter))) taken.add(name);
  }
  return taken.has('br') ? 'br' : taken.has('gzip') ? 'gzip' : 'identity';
}
