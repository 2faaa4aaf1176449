/**
 * `/session` and the two open calls of `/invitations`: how a browser comes to a session, keeps it and leaves it. Only our
 * own page may call them. A wrong e-mail and a wrong password get the same words after about the same time; guesses are
 * slowed for each e-mail and each address. Neither passwords, tokens nor e-mails go to a log.
 */

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Config } from '../config.ts';
import type { Environment } from '../model.ts';
import type { Member } from '../members.ts';
import { acceptInvitation, lookAtInvitation } from '../sign-in/invite.ts';
import { Passwords, PASSWORD_CHARACTERS_MAX, passwordMistake } from '../sign-in/password.ts';
import { type Browser, changePassword, type SignedIn, signIn } from '../sign-in/session.ts';
import { tokenHashOf } from '../sign-in/token.ts';
import { TrustedProxies } from '../trusted-proxies.ts';
import { isLongerThan } from '../validation/characters.ts';
import { sendError, sendJson, sendNothing } from './responses.ts';
import type { Json } from './json-text.ts';
import { addMemberRoute, addPageRoute, type MemberParts, readTexts } from './member-route.ts';
import { BadParameterError, NotFoundError } from './parameters.ts';
import { ownUrl } from './same-origin.ts';
import { addressOf, clearSessionCookie, sessionTokenOf, setSessionCookie } from './session-cookie.ts';
import { servedEnvironments } from './tenant-route.ts';

export interface SessionParts extends MemberParts {
  readonly environment: 'any' | Environment;
  readonly version: string;
  readonly config: Pick<Config, 'edges' | 'trustedProxies'>;
}

const WRONG = 'e-mail or password is wrong';
const NO_INVITATION = 'this link was used, has expired or was withdrawn; ask for a new one';

export function registerSessionRoutes(app: FastifyInstance, parts: SessionParts): void {
  const { members, now } = parts;
  // One for each edge, since it bounds what an edge computes at once.
  const passwords = new Passwords(parts.config.edges);
  const proxies = new TrustedProxies(parts.config.trustedProxies);
  const browserOf = (request: FastifyRequest): Browser => ({
    address: addressOf(request, proxies),
    token: sessionTokenOf(request.headers),
  });

  addPageRoute(app, parts, {
    method: 'POST',
    url: '/session',
    handler: async (request, reply) => {
      const { email, password } = readTexts(request.body, ['email', 'password']);
      refuseLong('password', password);
      const result = await signIn(members, passwords, { email, password, browser: browserOf(request) }, now());
      if (result.outcome === 'slowed') return sendSlowed(reply, result.waitMs);
      if (result.outcome === 'wrong') return sendError(reply, 'unauthorized', WRONG);
      return sendSession(parts, reply, result);
    },
  });
  addMemberRoute(app, parts, {
    method: 'GET',
    url: '/session',
    answer: async ({ member, request }) => sessionAnswer(parts, request, member),
  });
  addPageRoute(app, parts, {
    method: 'DELETE',
    url: '/session',
    handler: async (request, reply) => {
      const tokenHash = tokenHashOf(sessionTokenOf(request.headers));
      if (tokenHash !== undefined) await members.endSession(tokenHash);
      clearSessionCookie(reply, parts.publicUrl);
      return sendNothing(reply);
    },
  });
  addMemberRoute(app, parts, {
    method: 'POST',
    url: '/session/password',
    answer: async ({ member, body, request, reply, now: at }) => {
      const { current_password: current, new_password: next } = readTexts(body, ['current_password', 'new_password']);
      refuseLong('current_password', current);
      const mistake = passwordMistake('new_password', next);
      if (mistake !== undefined) throw new BadParameterError(mistake);
      const browser = browserOf(request);
      const result = await changePassword(members, passwords, { member, current, next, browser }, at);
      if (result.outcome === 'slowed') throw new SlowedError(result.waitMs);
      if (result.outcome === 'wrong') throw new BadParameterError('current_password is wrong');
      setSessionCookie(reply, result.token, parts.publicUrl);
      return undefined;
    },
  });
  addPageRoute(app, parts, {
    method: 'POST',
    url: '/invitations/look',
    handler: async (request, reply) => {
      const { token } = readTexts(request.body, ['token']);
      const invitation = await lookAtInvitation(members, token, now());
      if (invitation === undefined) throw new NotFoundError(NO_INVITATION);
      const { kind, accountName, email, expiresAt } = invitation;
      const expires = new Date(expiresAt).toISOString();
      return sendJson(reply, 200, { kind, account_name: accountName, email, expires_at: expires });
    },
  });
  addPageRoute(app, parts, {
    method: 'POST',
    url: '/invitations/accept',
    handler: async (request, reply) => {
      const { token, password, email = null } = readTexts(request.body, ['token', 'password'], ['email']);
      const wishes = { token, password, email, browser: browserOf(request) };
      const result = await acceptInvitation(members, passwords, wishes, now);
      if (result.outcome === 'gone') throw new NotFoundError(NO_INVITATION);
      if (result.outcome === 'refused') throw new BadParameterError(result.mistake);
      return sendSession(parts, reply, result);
    },
  });
}

/** Guesses come too fast: answered 429. */
export class SlowedError extends Error {
  override readonly name = 'SlowedError';
  readonly waitMs: number;

  constructor(waitMs: number) {
    super('attempts are slowed');
    this.waitMs = waitMs;
  }
}

export function sendSlowed(reply: FastifyReply, waitMs: number): FastifyReply {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000));
  const message = `too many attempts failed; try again in ${seconds} ${seconds === 1 ? 'second' : 'seconds'}`;
  return sendError(reply.header('retry-after', seconds), 'too_many_attempts', message);
}

function sendSession(parts: SessionParts, reply: FastifyReply, { member, token }: SignedIn): FastifyReply {
  setSessionCookie(reply, token, parts.publicUrl);
  return sendJson(reply, 200, sessionAnswer(parts, reply.request, member));
}

function sessionAnswer(parts: SessionParts, request: FastifyRequest, member: Member): Json {
  return {
    member: { id: member.id, email: member.email },
    account: { id: member.accountId, name: member.accountName },
    environments: servedEnvironments(parts.environment),
    server: { url: ownUrl(request.headers, parts.publicUrl), version: parts.version },
  };
}

/** No password is so long, and each character of it costs time to hash. */
function refuseLong(field: string, password: string): void {
  if (!isLongerThan(password, PASSWORD_CHARACTERS_MAX)) return;
  throw new BadParameterError(`${field} must have at most ${PASSWORD_CHARACTERS_MAX} characters`);
}
