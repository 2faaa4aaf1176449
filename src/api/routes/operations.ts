/**
 * The routes for operators: health checks, metrics and version, which every role serves, and the description of the
 * API for tools and for people. They need no key and read nothing that belongs to a tenant. Nothing here waits:
 * `/livez` responds as long as the event loop turns.
 */

import type { FastifyInstance, FastifyReply } from 'fastify';
import { RETRY_AFTER_SECONDS } from '../../errors.ts';
import { METRICS_CONTENT_TYPE } from '../../telemetry/metrics.ts';
import { ROLES } from '../../model.ts';
import type { OpenApiDocument } from '../openapi-document.ts';
import type { OperatorParts } from '../parts.ts';
import { type RouteKind, type RouteName, routeOptions, type RouteSchema } from '../route-schema.ts';
import { list, object, oneOf, text, Type } from '../schema.ts';
import { once } from './static-files.ts';

const OPERATIONS: RouteKind = { tag: 'Operations', security: [], errors: [403, 500] };

export const role = oneOf(ROLES, 'The role of this server.');

const Alive = object('Alive', 'The process runs and responds.', { status: Type.Literal('alive') });

const Ready = object('Ready', 'Ready. A server that receives events accepts them.', {
  status: Type.Literal('ready'),
});

const NotReady = object('NotReady', 'Not ready: see `reasons`. Events may still be accepted.', {
  status: Type.Literal('not ready'),
  reasons: list(Type.String(), 'Why, for an operator.'),
});

const Version = object('Version', 'The version of this server.', { version: text('Of Sluice.'), role });

export function registerOperatorRoutes(app: FastifyInstance, parts: OperatorParts): void {
  operatorRoute(app, 'GET /livez', {
    operationId: 'livez',
    summary: 'Is the process alive?',
    description: 'Restart the process when this stops responding.',
    response: { description: 'Alive.', body: Alive },
    respond: (reply) => reply.send({ status: 'alive' }),
  });

  operatorRoute(app, 'GET /readyz', {
    operationId: 'readyz',
    summary: 'Is the server ready?',
    description:
      'Send traffic only while this is 200. It is 503 while events cannot be accepted (the disk is full, nearly full or failing; the backlog is full; keys cannot be read; Kafka cannot be reached), while `store.db` or `keys.db` is gone or replaced, or `STORE_URL` points to another database, for the roles `processor` and `api` while PostgreSQL cannot be reached, for every role until PostgreSQL was first reached, and from the moment a shutdown begins: requests are served for `SLUICE_DRAIN` more.',
    response: [
      { description: 'Ready.', body: Ready },
      { status: 503, description: 'Not ready.', body: NotReady },
    ],
    respond: (reply) => {
      const { ready, reasons } = parts.readiness();
      if (ready) return reply.send({ status: 'ready' });
      return reply.code(503).header('retry-after', RETRY_AFTER_SECONDS).send({ status: 'not ready', reasons });
    },
  });

  operatorRoute(app, 'GET /metrics', {
    operationId: 'metrics',
    summary: 'Metrics for Prometheus',
    description:
      'All threads of this process, summed. Labels never name a tenant, a key or anything that a client chose.',
    response: {
      description: 'Prometheus text, format 0.0.4.',
      content: { 'text/plain': { schema: { type: 'string' } } },
    },
    respond: (reply) => reply.type(METRICS_CONTENT_TYPE).send(parts.renderMetrics()),
  });

  operatorRoute(app, 'GET /version', {
    operationId: 'version',
    summary: 'Which version is this?',
    description: 'And its role.',
    response: { description: 'The version of this server.', body: Version },
    respond: (reply) => reply.send({ version: parts.version, role: parts.role }),
  });
}

/** `generate` is called when the description is first asked for, which is after the address of the server is known. */
export function registerDocsRoutes(app: FastifyInstance, generate: () => Promise<OpenApiDocument>): void {
  const described = once(async () => {
    const [document, { docsPage, docsPolicy }] = await Promise.all([generate(), import('../docs-page.ts')]);
    return { text: JSON.stringify(document), page: docsPage(document), policy: docsPolicy() };
  });

  operatorRoute(app, 'GET /openapi.json', {
    operationId: 'openapi',
    summary: 'OpenAPI document',
    description: 'OpenAPI 3.1, for tools.',
    response: {
      description: 'An OpenAPI 3.1 document.',
      content: { 'application/json': { schema: { type: 'object' } } },
    },
    respond: async (reply) => {
      const { text } = await described();
      return reply.header('cache-control', 'no-cache').type('application/json; charset=utf-8').send(text);
    },
  });

  operatorRoute(app, 'GET /docs', {
    operationId: 'docs',
    summary: 'API reference',
    description: 'One page, without scripts.',
    response: { description: 'An HTML page.', content: { 'text/html': { schema: { type: 'string' } } } },
    respond: async (reply) => {
      const { page, policy } = await described();
      reply.headers({ 'cache-control': 'no-cache', 'content-security-policy': policy });
      return reply.type('text/html; charset=utf-8').send(page);
    },
  });
}

interface OperatorRoute extends RouteSchema {
  readonly respond: (reply: FastifyReply) => FastifyReply | Promise<FastifyReply>;
}

function operatorRoute(app: FastifyInstance, name: RouteName, { respond, ...schema }: OperatorRoute): void {
  app.route({
    ...routeOptions(name, schema, OPERATIONS),
    handler: (_request, reply) => respond(reply.header('cache-control', 'no-store')),
  });
}
