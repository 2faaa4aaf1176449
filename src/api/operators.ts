/**
 * The routes for those who run Sluice: health, metrics and version, which every role serves, and the description of the
 * API for tools and for people. They need no key and read nothing that belongs to a tenant. Nothing here waits:
 * `/livez` answers as long as the event loop turns.
 */

import type { FastifyInstance } from 'fastify';
import { RETRY_AFTER_SECONDS } from '../errors.ts';
import { METRICS_CONTENT_TYPE } from '../metrics.ts';
import type { Role } from '../model.ts';

export interface OperatorParts {
  readonly version: string;
  readonly role: Role;
  /** Where clients reach this server, if that is known. */
  readonly serverUrl?: string;
  readonly readiness: () => { readonly ready: boolean; readonly reasons: readonly string[] };
  readonly renderMetrics: () => string;
}

export function registerOperatorRoutes(app: FastifyInstance, parts: OperatorParts): void {
  app.get('/livez', (_request, reply) => {
    reply.header('cache-control', 'no-store').send({ status: 'alive' });
  });

  app.get('/readyz', (_request, reply) => {
    const { ready, reasons } = parts.readiness();
    reply.header('cache-control', 'no-store');
    if (ready) reply.send({ status: 'ready' });
    else reply.code(503).header('retry-after', RETRY_AFTER_SECONDS).send({ status: 'not ready', reasons });
  });

  app.get('/metrics', (_request, reply) => {
    reply.header('cache-control', 'no-store').type(METRICS_CONTENT_TYPE).send(parts.renderMetrics());
  });

  app.get('/version', (_request, reply) => {
    reply.header('cache-control', 'no-store').send({ version: parts.version, role: parts.role });
  });
}

export function registerDocsRoutes(app: FastifyInstance, parts: OperatorParts): void {
  // Loaded and made when first asked for: loading the schemas alone takes 100 ms, which the start need not wait for.
  let description: ReturnType<typeof describe> | undefined;
  const described = async (): ReturnType<typeof describe> => {
    description ??= describe(parts);
    try {
      return await description;
    } catch (error) {
      // What went wrong once (too many open files, say) may go well the next time.
      description = undefined;
      throw error;
    }
  };

  app.get('/openapi.json', async (_request, reply) => {
    const { text } = await described();
    return reply.header('cache-control', 'no-cache').type('application/json; charset=utf-8').send(text);
  });

  app.get('/docs', async (_request, reply) => {
    const { page, policy } = await described();
    reply.headers({ 'cache-control': 'no-cache', 'content-security-policy': policy });
    return reply.type('text/html; charset=utf-8').send(page);
  });
}

async function describe(parts: OperatorParts): Promise<{ text: string; page: string; policy: string }> {
  const [{ openApiDocument }, { docsPage, docsPolicy }] = await Promise.all([
    import('./openapi.ts'),
    import('./docs-page.ts'),
  ]);
  const document = openApiDocument(parts);
  return { text: JSON.stringify(document), page: docsPage(document), policy: docsPolicy() };
}
