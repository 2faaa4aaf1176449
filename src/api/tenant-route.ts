/**
 * The only entry to the data of a tenant. A route defined here sees the tenant of its secret key and nothing else:
 * without a valid key the response is 401 before the body is read, and an unavailable key store is a 503. The key is
 * accepted in the `Authorization` header only, since URLs end up in logs and browser histories. Without that header,
 * the session cookie of a signed-in member is accepted: the tenant is the member's account in the environment that the
 * page names, and changes must be same-origin.
 */

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Static, TSchema } from 'typebox';
import type { MatchOptions } from '../identity/match-keys.ts';
import { isStorable } from '../validation/characters.ts';
import { isUsable, type KeyCache } from '../keys/cache.ts';
import { ENVIRONMENTS, type Environment, type TenantId, tenantOf } from '../model.ts';
import type { ApiKey } from '../keys.ts';
import type { AuditContext, Store } from '../store.ts';
import { uuidOf } from '../views/uuid.ts';
import { sendError, sendJson, sendUnauthorized } from './responses.ts';
import type { JsonOf } from './json-text.ts';
import { type MemberParts, refusesForeignOrigin, sessionOf } from './member-route.ts';
import { NO_PARAMETERS, type ParameterKinds, readParameters, type ValuesOf } from './parameters.ts';
import { type JsonResponse, type RouteKind, routeOptions, type RouteSchema } from './route-schema.ts';
import { sessionTokenOf } from './session-cookie.ts';

export interface TenantParts extends MemberParts {
  readonly store: Store;
  readonly keys: KeyCache;
  /** The clock that `received_at` is taken from: what is stored, or asked about times of receipt, goes by it. */
  readonly receiptTime: () => number;
  /** Called when the store has responded to a call. */
  readonly onRead: () => void;
  /** How identifiers that are asked for become match keys. */
  readonly matchOptions: MatchOptions;
  /** Called for every use of a key, with the origin of the request. Must not throw. */
  readonly noteUse: (key: ApiKey, at: number, origin: string | undefined, host: string | undefined) => void;
}

export interface Call<Kinds extends ParameterKinds> {
  readonly tenantId: TenantId;
  readonly store: Store;
  readonly parameters: ValuesOf<Kinds>;
  /** What stands for `:id` or `:trace_id` in the path, in the form that the route takes; empty where the path has neither. */
  readonly id: string;
  readonly body: unknown;
  /** Trace id of this API request. */
  readonly traceId: string;
  /** By the clock that `received_at` is taken from. */
  readonly now: number;
  /** The key or session of the request. */
  readonly by: NonNullable<AuditContext['by']>;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the hook that looks at the key or the cookie; null on routes that belong to no tenant. */
    tenantId: TenantId | null;
    /** Set with it: the id of the key; null for a session. */
    keyId: string | null;
  }
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

/** A route of a tenant: its schema, and the handler that responds to it. */
interface TenantRoute<Kinds extends ParameterKinds, Body extends TSchema> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly url: string;
  /** The form of the id in the path: a UUID unless given. */
  readonly idForm?: IdForm;
  /** For a body that its handler parses itself (`json-body.ts`), and that may be so large. */
  readonly bodyBytesMax?: number;
  /** Reading back unless given. */
  readonly kind?: RouteKind;
  readonly schema: RouteSchema & { readonly query?: Kinds; readonly response: JsonResponse<Body> };
  /** Null: there is no such thing (404). */
  readonly handler: (call: Call<Kinds>) => Promise<JsonOf<Static<Body>> | null>;
}

export const BEARER = /^Bearer +(\S+) *$/i;

/** No request has ten thousand users. */
const USER_OF_REQUEST = /^([^.]+)\.(\d{1,4})$/;

export function tenantRoute<Kinds extends ParameterKinds, Body extends TSchema>(
  app: FastifyInstance,
  parts: TenantParts,
  { method, url, idForm = 'uuid', bodyBytesMax, kind = READING, schema, handler }: TenantRoute<Kinds, Body>,
): void {
  const { query = NO_PARAMETERS as Kinds } = schema;
  const status = schema.response.status ?? 200;
  app.route({
    method,
    url,
    ...routeOptions(schema, kind),
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
      return response === null ? sendError(reply, 'not_found') : sendJson(reply, status, response);
    },
  });
}

/** Sets the tenant of the request, or responds to it. */
export async function authenticate(
  parts: TenantParts,
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
  parts: TenantParts,
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

/** Those that this deployment lets in. */
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
