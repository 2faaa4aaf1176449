/**
 * The routes for those who run Sluice: health, metrics, and the description of the API for tools and for people. They
 * need no key and read nothing that belongs to a tenant. Nothing here waits: `/livez` answers as long as the event
 * loop turns.
 */

import type { FastifyInstance } from 'fastify';
import { RETRY_AFTER_SECONDS } from '../errors.ts';
import { METRICS_CONTENT_TYPE } from '../metrics.ts';
import { docsPage, docsPolicy } from './docs-page.ts';
import { openApiDocument } from './openapi.ts';
import { Alive, NotReady, Ready } from './schemas.ts';

export interface OperatorParts {
  readonly version: string;
  /** Where clients reach this server, if that is known. */
  readonly serverUrl?: string;
  readonly readiness: () => { readonly ready: boolean; readonly reasons: readonly string[] };
  readonly renderMetrics: () => string;
}

export function registerOperatorRoutes(app: FastifyInstance, parts: OperatorParts): void {
  app.get('/livez', { schema: { response: { 200: Alive } } }, (_request, reply) => {
    reply.header('cache-control', 'no-store').send({ status: 'alive' });
  });

  app.get('/readyz', { schema: { response: { 200: Ready, 503: NotReady } } }, (_request, reply) => {
    const { ready, reasons } = parts.readiness();
    reply.header('cache-control', 'no-store');
    if (ready) reply.send({ status: 'ready' });
    else reply.code(503).header('retry-after', RETRY_AFTER_SECONDS).send({ status: 'not ready', reasons });
  });

  app.get('/metrics', (_request, reply) => {
    reply.header('cache-control', 'no-store').type(METRICS_CONTENT_TYPE).send(parts.renderMetrics());
  });

  // Made when first asked for: neither should slow down the start.
  const document = once(() => openApiDocument(parts));
  const documentText = once(() => JSON.stringify(document()));
  const page = once(() => docsPage(document()));

  app.get('/openapi.json', (_request, reply) => {
    reply.header('cache-control', 'no-cache').type('application/json; charset=utf-8').send(documentText());
  });

  app.get('/docs', (_request, reply) => {
    reply.headers({ 'cache-control': 'no-cache', 'content-security-policy': docsPolicy() });
    reply.type('text/html; charset=utf-8').send(page());
  });
}

function once<T>(make: () => T): () => T {
  let made: { value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}
