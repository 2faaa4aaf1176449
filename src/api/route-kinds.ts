/**
 * The kinds of routes, which are the only entries to data. `tenantRoute` sees the tenant of its secret key and nothing
 * else. The key is accepted in the `Authorization` header only, since URLs end up in logs and browser histories. Without
 * that header, the session cookie of a signed-in member is accepted: the tenant is the member's account in the environment
 * that the page names. `memberRoute` sees the member of the session cookie and nothing of other accounts; API keys are not
 * accepted there.
 *
 * Before the body is read, a cross-origin change with a cookie is rejected (403), then a request without a valid key or
 * session (401); an unavailable store is a 503.
 */

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Static, TSchema } from 'typebox';
import { BEARER } from '../edge/request-headers.ts';
import { isUsable } from '../keys/cache.ts';
import type { Member } from '../members.ts';
import { ENVIRONMENTS, type Environment, type TenantId, tenantOf } from '../model.ts';
import { type FoundSession, findSession } from '../sign-in/session.ts';
import type { AuditContext, Store } from '../store.ts';
import { isStorable } from '../validation/characters.ts';
import { uuidOf } from '../views/uuid.ts';
import { NO_PARAMETERS, type ParameterKinds, readParameters, type ValuesOf } from './parameters.ts';
import type { ApiParts } from './parts.ts';
import { type JsonOf, sendError, sendJson, sendUnauthorized } from './responses.ts';
import {
  type JsonResponse,
  type NO_CONTENT,
  type RouteKind,
  type RouteName,
  routeOptions,
  type RouteSchema,
} from './route-schema.ts';
import { text } from './schema.ts';
import { isSameOrigin, NOT_SAME_ORIGIN, sessionTokenOf, setSessionCookie } from './session-cookie.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the hook that looks at the key or the cookie; null on routes that belong to no tenant. */
    tenantId: TenantId | null;
    /** Set with it: the id of the key; null for a session. */
    keyId: string | null;
    /** Set by the hook that looks at the cookie; null on routes that need none, and for requests with a key. */
    session: FoundSession | null;
  }
}

export interface Call<Kinds extends ParameterKinds> {
  readonly tenantId: TenantId;
  readonly store: Store;
  readonly parameters: ValuesOf<Kinds>;
  /** The value of `:id` or `:trace_id` in the path, in the form that the route takes; empty if the path has neither. */
  readonly id: string;
  readonly body: unknown;
  readonly traceId: string;
  /** By the clock that `received_at` is taken from. */
  readonly now: number;
  readonly by: NonNullable<AuditContext['by']>;
}

const READING: RouteKind = {
  tag: 'Reading back',
  security: [{ secretKey: [] }],
  errors: [400, 401, 403, 500, 503],
};

/** For the dashboard, and open to a secret key as well. */
export const DASHBOARD_READING: RouteKind = {
  ...READING,
  tag: 'Dashboard',
  security: [{ secretKey: [] }, { session: [] }],
};

/** A UUID; a user of a request, `<trace_id>.<userIndex>`; or a name that a client chose. */
type IdForm = 'uuid' | 'user' | 'text';

interface TenantRoute<Kinds extends ParameterKinds, Body extends TSchema> extends RouteSchema {
  /** The form of the id in the path: a UUID unless given. */
  readonly idForm?: IdForm;
  /** For a body that its handler parses itself (`parseBody`), and that may be so large. */
  readonly bodyBytesMax?: number;
  readonly kind?: RouteKind;
  readonly query?: Kinds;
  readonly response: JsonResponse<Body>;
  /** Undefined: there is no such thing (404). */
  readonly handler: (call: Call<Kinds>) => Promise<JsonOf<Static<Body>> | undefined>;
}

/** No request has ten thousand users. */
const USER_OF_REQUEST = /^([^.]+)\.(\d{1,4})$/;

export function tenantRoute<Kinds extends ParameterKinds, Body extends TSchema>(
  app: FastifyInstance,
  parts: ApiParts,
  name: RouteName,
  { idForm = 'uuid', bodyBytesMax, kind = READING, handler, ...schema }: TenantRoute<Kinds, Body>,
): void {
  const { query = NO_PARAMETERS as Kinds } = schema;
  const status = schema.response.status ?? 200;
  app.route({
    ...routeOptions(name, schema, kind),
    ...(bodyBytesMax !== undefined && { bodyLimit: bodyBytesMax, config: { takesJsonText: true } }),
    onRequest: (request, reply) => authenticate(parts, request, reply),
    handler: async (request, reply) => {
      const { tenantId, session, body, id: traceId } = request;
      if (tenantId === null) throw new Error('a request without a tenant got to its handler');
      const parameters = readParameters(query, request.url);
      const id = pathId(request.params, idForm);
      if (id === null) return sendError(reply, 'not_found');
      const by = session === null ? { key_id: request.keyId ?? '' } : { member_id: session.member.id };
      const { store, receiptTime } = parts;
      const response = await handler({ tenantId, store, parameters, id, body, traceId, now: receiptTime(), by });
      parts.onRead();
      return response === undefined ? sendError(reply, 'not_found') : sendJson(reply, status, response);
    },
  });
}

/** Sets the tenant of the request, or responds to it. */
export async function authenticate(
  parts: ApiParts,
  request: FastifyRequest,
  reply: FastifyReply,
  environmentInQuery = false,
): Promise<unknown> {
  if (request.headers.authorization === undefined)
    return authenticateSession(parts, request, reply, environmentInQuery);
  const key = BEARER.exec(request.headers.authorization)?.[1];
  if (key === undefined) return sendUnauthorized(reply);
  const now = parts.now();
  const found = parts.keys.peek(key) ?? (await parts.keys.lookup(key));
  if (found === undefined || !isUsable(found, now, parts.environment)) return sendUnauthorized(reply);
  // Known by their prefix and refused before this; their kind is what counts.
  if (found.kind !== 'secret') return sendError(reply, 'forbidden');
  parts.noteUse(found, now, request.headers.origin, request.headers.host);
  request.tenantId = tenantOf(found.accountId, found.environment);
  request.keyId = found.id;
  return undefined;
}

async function authenticateSession(
  parts: ApiParts,
  request: FastifyRequest,
  reply: FastifyReply,
  environmentInQuery: boolean,
): Promise<unknown> {
  if (sessionTokenOf(request.headers) === undefined) return sendUnauthorized(reply);
  if (refusesForeignOrigin(parts, request, reply)) return reply;
  const session = await sessionOf(parts, request, reply);
  if (session === null) return sendUnauthorized(reply);
  const served = servedEnvironments(parts.environment);
  const inQuery = environmentInQuery ? new URL(request.url, 'http://localhost').searchParams.get('environment') : null;
  const asked = request.headers['sluice-environment'] ?? inQuery;
  const environment = served.find((one) => one === asked);
  if (environment === undefined) {
    const where = environmentInQuery ? 'the parameter environment' : 'the header Sluice-Environment';
    return sendError(reply, 'bad_request', `${where} must be ${served.join(' or ')}`);
  }
  request.session = session;
  request.tenantId = tenantOf(session.member.accountId, environment);
  return undefined;
}

export function servedEnvironments(environment: 'any' | Environment): readonly Environment[] {
  return environment === 'any' ? ENVIRONMENTS : [environment];
}

/** Null for anything that is not of the form, which cannot be there. */
function pathId(params: unknown, form: IdForm): string | null {
  if (typeof params !== 'object' || params === null) return '';
  const [given] = Object.values(params) as (string | undefined)[];
  if (given === undefined) return '';
  if (form === 'uuid') return uuidOf(given) ?? null;
  if (form === 'text') return isStorable(given) ? given : null;
  const [, request, index] = USER_OF_REQUEST.exec(given) ?? [];
  const uuid = uuidOf(request);
  return uuid === undefined ? null : `${uuid}.${Number(index)}`;
}

interface PageCall {
  /** The value of `:id` in the path, as it was sent; empty where the path has none. */
  readonly id: string;
  readonly body: unknown;
  readonly now: number;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

export interface MemberCall extends PageCall {
  readonly member: Member;
}

type MemberResponse = JsonResponse | typeof NO_CONTENT;

interface PageRoute<Call, Response extends MemberResponse> extends RouteSchema {
  readonly response: Response;
  /** Null: there is no such thing (404). Undefined: done, and there is nothing to say (204). */
  readonly handler: (
    call: Call,
  ) => Promise<(Response extends JsonResponse<infer Body> ? JsonOf<Static<Body>> : undefined) | null>;
}

/** In the path of everything about one key, member or invitation. */
export const ID_PARAMS = { id: text('The `id` from the list.') };

const MEMBER: RouteKind = { tag: 'Dashboard', security: [{ session: [] }], errors: [401, 403, 500, 503] };
const OPEN: RouteKind = { ...MEMBER, security: [] };

export function memberRoute<Response extends MemberResponse>(
  app: FastifyInstance,
  parts: ApiParts,
  name: RouteName,
  { handler, ...schema }: PageRoute<MemberCall, Response>,
): void {
  const handle = (call: PageCall) => {
    const { session } = call.request;
    if (session === null) throw new Error('a request without a member got to its handler');
    return handler({ ...call, member: session.member });
  };
  pageRoute(app, parts, name, { ...schema, handler: handle }, MEMBER);
}

/** A route that only our own page may call, signed in or not. */
export function pageRoute<Response extends MemberResponse>(
  app: FastifyInstance,
  parts: ApiParts,
  name: RouteName,
  { handler, ...schema }: PageRoute<PageCall, Response>,
  kind = OPEN,
): void {
  app.route({
    ...routeOptions(name, schema, kind),
    onRequest: async (request, reply) => {
      if (refusesForeignOrigin(parts, request, reply)) return reply;
      if (kind !== MEMBER) return undefined;
      request.session = await sessionOf(parts, request, reply);
      return request.session === null ? sendUnauthorized(reply) : undefined;
    },
    handler: async (request, reply) => {
      const id = (request.params as { id?: string }).id ?? '';
      const response = await handler({ id, body: request.body, now: parts.now(), request, reply });
      if (response === null) return sendError(reply, 'not_found');
      if (response === undefined) return reply.header('cache-control', 'no-store').code(204).send();
      return sendJson(reply, schema.response.status ?? 200, response);
    },
  });
}

/** Responds 403 to a change that comes from elsewhere, and says whether it did. */
function refusesForeignOrigin(parts: ApiParts, request: FastifyRequest, reply: FastifyReply): boolean {
  if (isSameOrigin(request.method, request.headers, parts.publicUrl)) return false;
  sendError(reply, 'forbidden', NOT_SAME_ORIGIN);
  return true;
}

async function sessionOf(
  { keyStore, publicUrl, now }: ApiParts,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FoundSession | null> {
  const token = sessionTokenOf(request.headers);
  const session = await findSession(keyStore.members, token, now());
  if (session?.isRenewed === true && token !== undefined) setSessionCookie(reply, token, publicUrl);
  return session ?? null;
}
