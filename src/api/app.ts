/**
 * The Fastify app: everything but the ingest path. It does not listen itself; `serverFactory` receives its handler and
 * passes it the requests that the fast path does not take. Every response carries `X-Trace-Id` and the security
 * headers, publishable keys are rejected on every path, and an unexpected exception becomes a 500 that contains only
 * the trace_id.
 *
 * Routes are in `routes/`, one file and one `register…Routes(app, …)` per resource, called from `buildApp`; other
 * methods on the same paths get 405. A path that only another role serves gets a 404 that names the role.
 */

import Fastify, { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { LIMITS, type Role } from '../model.ts';
import { UnusablePlanError } from '../plans/unusable-plan.ts';
import { BadPatchError } from '../resubmit/patch.ts';
import { isRetryable } from '../runtime/unavailable.ts';
import { servedElsewhere, servesIngest } from '../config/roles.ts';
import { TooBusyError } from '../sign-in/password.ts';
import { BadCursorError } from '../store.ts';
import { TrustedProxies } from '../config/trusted-proxies.ts';
import type { DescribedRoute } from './openapi-document.ts';
import type { ApiParts, OperatorParts } from './parts.ts';
import { RefusedError, sendError } from './responses.ts';
import { registerAuditRoutes } from './routes/audit.ts';
import { registerCatalogueRoutes } from './routes/catalogue.ts';
import { registerEventRoutes } from './routes/events.ts';
import { registerHealthRoutes } from './routes/health.ts';
import { registerIdentityRoutes } from './routes/identity.ts';
import { registerKeyRoutes } from './routes/keys.ts';
import { registerLedgerRoutes } from './routes/ledger.ts';
import { registerLiveRoutes } from './routes/live.ts';
import { registerMemberRoutes } from './routes/members.ts';
import { registerDocsRoutes, registerOperatorRoutes } from './routes/operations.ts';
import { registerPlanRoutes } from './routes/plan.ts';
import { registerProfileRoutes } from './routes/profiles.ts';
import { registerReceiptRoutes } from './routes/receipts.ts';
import { registerDeadLetterRoutes } from './routes/dead-letters.ts';
import { registerJobRoutes } from './routes/jobs.ts';
import { registerResubmitRoutes } from './routes/resubmit.ts';
import { registerRejectionRoutes } from './routes/rejections.ts';
import { registerSessionRoutes } from './routes/session.ts';
import { registerDashboardPage, registerSdkScript } from './routes/static-files.ts';
import { registerTraceRoutes } from './routes/traces.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** What there is to call, so that a test can leave none out. Grows while routes are added. */
    methodsByPath: ReadonlyMap<string, ReadonlySet<string>>;
  }
  interface FastifyContextConfig {
    /** Set on routes that exist only to refuse a method: the value of the `Allow` header. */
    allow?: string;
    /** The handler gets the text of a JSON body: parsed as usual, numbers would lose digits. */
    takesJsonText?: boolean;
  }
}

const SECURITY_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
  'cross-origin-resource-policy': 'same-origin',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
};

/** For requests with a body, none of which is large here: events take the other path. */
const BODY_BYTES_MAX = 65_536;

const PUBLISHABLE_BEARER = /^[Bb][Ee][Aa][Rr][Ee][Rr] +pk_/;
const PUBLISHABLE_REFUSED = 'publishable keys may only be used under /ingest/';

export function buildApp(options: ApiParts): FastifyInstance {
  const app = frame(options);
  const routes = collectRoutes(app);
  dropUntrustedForwardedHeaders(app, new TrustedProxies(options.config.trustedProxies));
  for (const name of ['session', 'tenantId', 'keyId']) app.decorateRequest(name, null);
  // In the order of the OpenAPI document.
  registerProfileRoutes(app, options);
  registerIdentityRoutes(app, options);
  registerEventRoutes(app, options);
  registerTraceRoutes(app, options);
  registerRejectionRoutes(app, options);
  registerPlanRoutes(app, options);
  registerResubmitRoutes(app, options);
  registerDeadLetterRoutes(app, options);
  registerJobRoutes(app, options);
  registerReceiptRoutes(app, options);
  registerLedgerRoutes(app, options);
  registerCatalogueRoutes(app, options);
  registerAuditRoutes(app, options);
  registerLiveRoutes(app, options);
  registerHealthRoutes(app, options);
  registerSessionRoutes(app, options);
  registerMemberRoutes(app, options);
  registerKeyRoutes(app, options);
  registerOperatorRoutes(app, options);
  registerDocsRoutes(app, async () => {
    const { generateDocument } = await import('./openapi-document.ts');
    return generateDocument(routes, options);
  });
  registerDashboardPage(app, options);
  if (servesIngest(options.role)) registerSdkScript(app, options);

  refuseOtherMethods(app, new Map(app.methodsByPath));
  return app;
}

/**
 * A proxy's claims about its client are accepted from the proxies that the operator named. From any other client such a
 * header is removed before anything reads it. `X-Forwarded-Host` is not used at all.
 */
function dropUntrustedForwardedHeaders(app: FastifyInstance, proxies: TrustedProxies): void {
  app.addHook('onRequest', (request, _reply, done) => {
    if (!proxies.has(request.socket.remoteAddress ?? '')) {
      delete request.headers['x-forwarded-for'];
      delete request.headers['x-forwarded-proto'];
    }
    done();
  });
}

export function buildOperatorApp(options: OperatorParts): FastifyInstance {
  const app = frame(options);
  registerOperatorRoutes(app, options);
  if (servesIngest(options.role)) registerSdkScript(app, options);
  refuseOtherMethods(app, new Map(app.methodsByPath));
  return app;
}

function collectRoutes(app: FastifyInstance): readonly DescribedRoute[] {
  const routes: DescribedRoute[] = [];
  app.addHook('onRoute', ({ method, url, schema }) => {
    if (schema !== undefined && method !== 'HEAD') routes.push({ method, url, schema });
  });
  return routes;
}

function frame(options: OperatorParts): FastifyInstance {
  const early = (request: FastifyRequest, reply: FastifyReply): boolean => refusesEarly(request, reply, options.role);
  const app = Fastify({
    logger: false,
    serverFactory: (handler) => options.serverFactory(handler),
    genReqId: () => options.newTraceId(),
    bodyLimit: BODY_BYTES_MAX,
    // An event name in a path: each character may be four bytes, and each byte is written as `%F0`.
    routerOptions: { maxParamLength: 4 * 3 * LIMITS.eventNameCharactersMax },
    // One method stands for all that no route has: a route for each of them would take a good part of the start.
    rewriteUrl: (request) => {
      if (!supported.has(request.method ?? '')) request.method = 'TRACE';
      return request.url ?? '';
    },
    // While the server drains, health checks still get responses from this server.
    return503OnClosing: false,
    // Malformed HTTP is handled by the edge's server; Fastify would write a second response.
    clientErrorHandler: () => {},
    // A path that cannot be decoded gets to no hook and no route.
    frameworkErrors: (_error, request, reply) => {
      if (!early(request, reply)) sendError(reply, 'not_found');
    },
  });
  const supported = new Set(app.supportedMethods);

  const standard = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser<string>('application/json', { parseAs: 'string' }, (request, text, done) => {
    if (request.routeOptions.config.takesJsonText === true) done(null, text);
    else return standard(request, text, done);
  });

  const allowed = new Map<string, Set<string>>();
  app.decorate('methodsByPath', allowed);
  app.addHook('onRoute', ({ url, method, config }) => {
    if (config?.allow !== undefined) return;
    const methods = allowed.get(url) ?? new Set();
    for (const one of [method].flat()) methods.add(one);
    allowed.set(url, methods);
  });
  // Before the body is read: what is refused anyway is refused whatever the body is.
  app.addHook('onRequest', (request, reply, done) => {
    if (!early(request, reply)) done();
  });
  app.setErrorHandler((error: unknown, request, reply) => {
    if (isRetryable(error)) {
      options.onUnavailable(error);
      return sendError(reply, 'unavailable');
    }
    const refusal = refusalOf(error, request.routeOptions.bodyLimit);
    if (refusal === null) {
      options.onError(error, request.id);
      return sendError(reply, 'internal');
    }
    if (refusal.retryAfterSeconds !== null) reply.header('retry-after', refusal.retryAfterSeconds);
    return sendError(reply, refusal.code, refusal.message || undefined);
  });
  return app;
}

const UNUSABLE_PLAN_TEXT =
  'the tracking plan cannot be read by this version, so what is personal is unknown: push it again';

/** Sets the headers that every response has, and responds to what no route needs to see. */
function refusesEarly(request: FastifyRequest, reply: FastifyReply, role: Role): boolean {
  reply.header('x-trace-id', request.id).headers(SECURITY_HEADERS);
  if (PUBLISHABLE_BEARER.test(request.headers.authorization ?? '') && !request.url.startsWith('/ingest/')) {
    sendError(reply, 'forbidden', PUBLISHABLE_REFUSED);
    return true;
  }
  if (request.is404) {
    sendError(reply, 'not_found', servedElsewhere(role, request.url));
    return true;
  }
  const { allow } = request.routeOptions.config;
  if (allow === undefined) return false;
  sendError(reply.header('allow', allow), 'method_not_allowed');
  return true;
}

const TOO_BUSY = 'too many people are signing in at this moment; try again';

/** Fastify's own refusals of a request have codes that start with FST_: the client's doing. All else is ours. */
function refusalOf(error: unknown, bodyBytesMax: number): RefusedError | null {
  if (error instanceof RefusedError) return error;
  if (error instanceof TooBusyError) return new RefusedError('unavailable', TOO_BUSY);
  if (error instanceof UnusablePlanError) return new RefusedError('unavailable', UNUSABLE_PLAN_TEXT);
  if (error instanceof BadPatchError) return new RefusedError('bad_request', error.message);
  if (error instanceof BadCursorError) return new RefusedError('bad_request', `cursor ${error.message}`);
  if (!(error instanceof Error)) return null;
  const { code, statusCode } = error as Partial<FastifyError>;
  if (code === undefined || !code.startsWith('FST_') || statusCode === undefined || statusCode > 499) return null;
  return statusCode === 413
    ? new RefusedError('too_large', `the body must not exceed ${bodyBytesMax} bytes`)
    : new RefusedError('bad_request', error.message);
}

function refuseOtherMethods(app: FastifyInstance, allowed: ReadonlyMap<string, ReadonlySet<string>>): void {
  for (const [url, has] of allowed) {
    app.route({
      url,
      method: app.supportedMethods.filter((method) => !has.has(method)),
      config: { allow: [...has].sort().join(', ') },
      handler: () => {
        throw new Error('a method that should have been refused got to its handler');
      },
    });
  }
}
