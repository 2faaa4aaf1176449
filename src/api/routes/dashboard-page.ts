/**
 * Serves the built page of `dashboard/dist` under `/dashboard`. The files are read at the first request and kept in
 * memory, a few hundred kilobytes; a path is only ever looked up among their names, so no request reaches the disk and
 * none can name another file. Files under `assets/` carry a hash of their content in their names and are cached for a
 * year; every other address is the page itself, which is requested again each time and gets a 304 when unchanged.
 *
 * A page that was not built gets a 503 and is looked for again the next time.
 */

import { readdir, readFile } from 'node:fs/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { sendError } from '../responses.ts';
import { CACHED_FOREVER, readOnce, sendNotBuilt, StaticFile } from '../static-file.ts';

const BUILT_PAGE = new URL('../../../dashboard/dist/', import.meta.url);
const INDEX = 'index.html';
const ASSETS = 'assets/';
const NOT_BUILT = 'The dashboard is not built yet. Run: npm run build:dashboard\n';

const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

type PageFiles = ReadonlyMap<string, StaticFile>;

export interface DashboardPageParts {
  /** Where the built page is; in this package unless given. */
  readonly pageFolder?: URL;
}

export function registerDashboardPage(app: FastifyInstance, { pageFolder = BUILT_PAGE }: DashboardPageParts): void {
  const files = readOnce(() => readPage(pageFolder));

  const serve = async (request: FastifyRequest, reply: FastifyReply, name: string): Promise<FastifyReply> => {
    const page = await files();
    if (page === null) return sendNotBuilt(reply, NOT_BUILT);
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

async function readPage(folder: URL): Promise<PageFiles> {
  const [top, assets] = await Promise.all([namesIn(folder), namesIn(new URL(ASSETS, folder))]);
  const names = [...top, ...assets.map((name) => ASSETS + name)];
  const files = await Promise.all(
    names.map(async (name) => [name, new StaticFile(name, await readFile(new URL(name, folder)))] as const),
  );
  const page = new Map(files);
  if (!page.has(INDEX)) throw Object.assign(new Error(`there is no ${INDEX}`), { code: 'ENOENT' });
  return page;
}

async function namesIn(folder: URL): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map(({ name }) => name);
}
