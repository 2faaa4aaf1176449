/**
 * The routes for those who run Sluice: health, metrics and version, which every role serves, and the description of the
 * API for tools and for people. They need no key and read nothing that belongs to a tenant. Nothing here waits:
 * `/livez` answers as long as the event loop turns.
 */

import type { FastifyInstance } from 'fastify';
import { RETRY_AFTER_SECONDS } from '../errors.ts';
import { METRICS_CONTENT_TYPE } from '../metrics.ts';
import type { Role } from '../model.ts';
import { docsPage, docsPolicy } from './docs-page.ts';
import { generatedDocument } from './openapi-document.ts';

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

export function registerDocsRoutes(app: FastifyInstance): void {
  // Made when first asked for, which is after the address of the server is known.
  let description: { readonly text: string; readonly page: string } | undefined;
  const described = () => {
    if (description === undefined) {
      const document = generatedDocument(app);
      description = { text: JSON.stringify(document), page: docsPage(document) };
    }
    return description;
  };

  app.get('/openapi.json', (_request, reply) => {
    reply.header('cache-control', 'no-cache').type('application/json; charset=utf-8').send(described().text);
  });

  app.get('/docs', (_request, reply) => {
    reply.headers({ 'cache-control': 'no-cache', 'content-security-policy': docsPolicy() });
    reply.type('text/html; charset=utf-8').send(described().page);
  });
}
