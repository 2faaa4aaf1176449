/**
 * The only entry to the resources of a signed-in member: keys, members, invitations. A route defined here sees the
 * member of the session cookie and nothing of other accounts. A cross-origin change is rejected first (403), then a
 * request without a session (401), both before the body is read; an unavailable store is a 503. API keys are not
 * accepted here.
 */

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import type { KeyStore } from '../keys.ts';
import type { Member, MemberStore } from '../members.ts';
import type { Environment } from '../model.ts';
import { type FoundSession, findSession } from '../sign-in/session.ts';
import type { JsonOf } from './json-text.ts';
import { sendError, sendJson, sendNothing, sendUnauthorized } from './responses.ts';
import { type JsonResponse, type NO_CONTENT, type RouteKind, routeOptions, type RouteSchema } from './route-schema.ts';
import { isSameOrigin, NOT_SAME_ORIGIN } from './same-origin.ts';
import { text } from './schema.ts';
import { sessionTokenOf, setSessionCookie } from './session-cookie.ts';

export interface MemberParts {
  readonly members: MemberStore;
  /** API keys, and the tracking plans stored with them. */
  readonly keyStore: KeyStore;
  /** Only tenants and keys of this environment are served. */
  readonly environment: 'any' | Environment;
  /** SLUICE_PUBLIC_URL; empty when it is not known. */
  readonly publicUrl: string;
  readonly now: () => number;
}

interface PageCall {
  /** What stands for `:id` in the path, as it was sent; empty where the path has none. */
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

interface PageRoute<Call, Response extends MemberResponse> {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly url: string;
  readonly schema: RouteSchema & { readonly response: Response };
  /** Null: there is no such thing (404). Undefined: done, and there is nothing to say (204). */
  readonly handler: (
    call: Call,
  ) => Promise<(Response extends JsonResponse<infer Body> ? JsonOf<Static<Body>> : undefined) | null>;
}

/** In the path of everything about one key, member or invitation. */
export const ID_PARAMS = { id: text('As the list gives it.') };

const MEMBER: RouteKind = { tag: 'Dashboard', security: [{ session: [] }], errors: [401, 403, 500, 503] };
const OPEN: RouteKind = { ...MEMBER, security: [] };

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the hook that looks at the cookie; null on routes that need none, and for requests with a key. */
    session: FoundSession | null;
  }
}

/** A route for members who are signed in. */
export function memberRoute<Response extends MemberResponse>(
  app: FastifyInstance,
  parts: MemberParts,
  route: PageRoute<MemberCall, Response>,
): void {
  const authenticate = async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
    request.session = await sessionOf(parts, request, reply);
    return request.session === null ? sendUnauthorized(reply) : undefined;
  };
  addRoute(app, parts, MEMBER, authenticate, {
    ...route,
    handler: (call) => {
      const { session } = call.request;
      if (session === null) throw new Error('a request without a member got to its handler');
      return route.handler({ ...call, member: session.member });
    },
  });
}

/** A route that only our own page may call, signed in or not. */
export function pageRoute<Response extends MemberResponse>(
  app: FastifyInstance,
  parts: MemberParts,
  route: PageRoute<PageCall, Response>,
): void {
  addRoute(app, parts, OPEN, async () => undefined, route);
}

function addRoute<Response extends MemberResponse>(
  app: FastifyInstance,
  parts: MemberParts,
  kind: RouteKind,
  authenticate: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>,
  { method, url, schema, handler }: PageRoute<PageCall, Response>,
): void {
  app.route({
    method,
    url,
    ...routeOptions(schema, kind),
    onRequest: async (request, reply) =>
      refusesForeignOrigin(parts, request, reply) ? reply : authenticate(request, reply),
    handler: async (request, reply) => {
      const id = (request.params as { id?: string }).id ?? '';
      const response = await handler({ id, body: request.body, now: parts.now(), request, reply });
      if (response === undefined) return sendNothing(reply);
      if (response === null) return sendError(reply, 'not_found');
      return sendJson(reply, schema.response.status ?? 200, response);
    },
  });
}

/** Responds 403 to a change that comes from elsewhere, and says whether it did. */
export function refusesForeignOrigin(parts: MemberParts, request: FastifyRequest, reply: FastifyReply): boolean {
  if (isSameOrigin(request.method, request.headers, parts.publicUrl)) return false;
  sendError(reply, 'forbidden', NOT_SAME_ORIGIN);
  return true;
}

/** The session of the cookie, if there is one; a renewed one is sent to the browser again. */
export async function sessionOf(
  { members, publicUrl, now }: MemberParts,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FoundSession | null> {
  const token = sessionTokenOf(request.headers);
  const session = await findSession(members, token, now());
  if (session?.isRenewed === true && token !== undefined) setSessionCookie(reply, token, publicUrl);
  return session ?? null;
}
