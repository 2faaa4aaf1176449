/**
 * The one way in to what belongs to a signed-in member: keys, members, invitations. A route that is made here sees the
 * member of the browser's cookie and nothing of another account. A change that does not come from our own page is refused
 * first (403), then who is not signed in (401), both before the body is read; a store that cannot be asked is 503. API
 * keys open nothing here.
 */

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Member, MemberStore } from '../members.ts';
import { type FoundSession, findSession } from '../sign-in/session.ts';
import { sendError, sendJson, sendNothing, sendUnauthorized } from './responses.ts';
import type { Json } from './json-text.ts';
import { BadParameterError } from './parameters.ts';
import { isSameOrigin, NOT_SAME_ORIGIN } from './same-origin.ts';
import { sessionTokenOf, setSessionCookie } from './session-cookie.ts';

export interface MemberParts {
  readonly members: MemberStore;
  /** SLUICE_PUBLIC_URL; empty when it is not known. */
  readonly publicUrl: string;
  readonly now: () => number;
}

export interface MemberCall {
  readonly member: Member;
  /** What stands for `:id` in the path, as it was sent; empty where the path has none. */
  readonly id: string;
  readonly body: unknown;
  /** Of this very request. */
  readonly traceId: string;
  readonly now: number;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

export interface MemberRoute {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly url: string;
  /** 200 unless said otherwise. */
  readonly status?: number;
  /** Null: there is no such thing. Undefined: done, and there is nothing to say (204). */
  readonly answer: (call: MemberCall) => Promise<Json | undefined>;
}

/** Answered 409. */
export class ConflictError extends Error {
  override readonly name = 'ConflictError';
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the hook that looks at the cookie; null on routes that need none, and for requests with a key. */
    session: FoundSession | null;
  }
}

export function addMemberRoute(app: FastifyInstance, parts: MemberParts, route: MemberRoute): void {
  addPageRoute(app, parts, {
    ...route,
    authenticate: async (request, reply) => {
      request.session = await sessionOf(parts, request, reply);
      return request.session === null ? sendUnauthorized(reply) : undefined;
    },
    handler: async (request, reply) => {
      const { session, body, id: traceId, params } = request;
      if (session === null) throw new Error('a request without a member got to its handler');
      const id = (params as { id?: string }).id ?? '';
      const { member } = session;
      const answer = await route.answer({ member, id, body, traceId, now: parts.now(), request, reply });
      if (answer === undefined) return sendNothing(reply);
      return answer === null ? sendError(reply, 'not_found') : sendJson(reply, route.status ?? 200, answer);
    },
  });
}

export interface PageRoute {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly url: string;
  readonly authenticate?: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>;
  readonly handler: (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>;
}

/** A route that only our own page may call, signed in or not. */
export function addPageRoute(app: FastifyInstance, parts: MemberParts, route: PageRoute): void {
  ensureSessionDecorator(app);
  app.route({
    method: route.method,
    url: route.url,
    onRequest: async (request, reply) => {
      if (refusesForeign(parts, request, reply)) return reply;
      return route.authenticate?.(request, reply);
    },
    handler: route.handler,
  });
}

export function ensureSessionDecorator(app: FastifyInstance): void {
  if (!app.hasRequestDecorator('session')) app.decorateRequest('session', null);
}

/** Answers 403 to a change that comes from elsewhere, and says whether it did. */
export function refusesForeign(parts: MemberParts, request: FastifyRequest, reply: FastifyReply): boolean {
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

/**
 * The texts in a JSON body, by name. Null stands for absent. What is missing, not a text or unknown is refused with its
 * name, and so is a body of another type: plain text is what forms of other sites can send.
 */
export function readTexts<Name extends string>(
  body: unknown,
  needed: readonly Name[],
  optional: readonly string[] = [],
): Readonly<Record<Name, string> & Record<string, string | undefined>> {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new BadParameterError('the body must be a JSON object, with Content-Type: application/json');
  }
  const given = new Map(Object.entries(body).filter(([, value]) => value !== null));
  const known: readonly string[] = [...needed, ...optional];
  for (const [name, value] of given) {
    if (!known.includes(name))
      throw new BadParameterError(`the body has an unknown field; there are ${known.join(', ')}`);
    if (typeof value !== 'string') throw new BadParameterError(`${name} must be a string`);
  }
  for (const name of needed) if (!given.has(name)) throw new BadParameterError(`${name} is required`);
  return Object.fromEntries(given) as Record<Name, string> & Record<string, string | undefined>;
}
