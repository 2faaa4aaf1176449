/**
 * `/session` and the two open calls of `/invitations`: how a browser gets a session, keeps it and ends it. Only our
 * own page may call them. A wrong e-mail and a wrong password get the same words after about the same time; guesses are
 * slowed for each e-mail and each address. Neither passwords, tokens nor e-mails go to a log.
 */

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Member } from '../../members.ts';
import { acceptInvitation, readInvitation } from '../../sign-in/invite.ts';
import { PASSWORD_CHARACTERS_MAX, passwordMistake, Passwords } from '../../sign-in/password.ts';
import { type Browser, changePassword, type SignedIn, signIn } from '../../sign-in/session.ts';
import { tokenHashOf } from '../../sign-in/token.ts';
import { TrustedProxies } from '../../config/trusted-proxies.ts';
import { isLongerThan } from '../../validation/characters.ts';
import { textMembers } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { NO_CONTENT } from '../route-schema.ts';
import { list, object, oneOf, orNull, text, time, Type } from '../schema.ts';
import { addressOf, clearSessionCookie, ownUrl, sessionTokenOf, setSessionCookie } from '../session-cookie.ts';
import { BadParameterError, RefusedError, rowJson } from '../responses.ts';
import { memberRoute, pageRoute, servedEnvironments } from '../route-kinds.ts';
import { environment } from './keys.ts';
import { email } from './members.ts';

const WRONG = 'wrong e-mail address or password';
const NO_INVITATION = 'this link was used, has expired or was withdrawn; ask for a new one';

const Session = object('Session', 'Who is signed in, and to what.', {
  member: Type.Object({ id: text('Id of the member.'), email }, { description: 'Who is signed in.' }),
  account: Type.Object(
    { id: text('Id of the account.'), name: text('The name of the account.') },
    { description: 'The account and environment.' },
  ),
  environments: list(environment, 'Those that this server serves.'),
  server: Type.Object(
    { url: text('Where it is reached.'), version: text('Of Sluice.') },
    { description: 'This server.' },
  ),
});

const InvitationLook = object('InvitationLook', 'What an invitation is for.', {
  kind: oneOf(
    ['first', 'invitation', 'reset'],
    'For the first member of an account, for another one, or for a new password.',
  ),
  account_name: text('Of which account.'),
  email: orNull(text('Who it is for; null if anyone with the link may use it.')),
  expires_at: time('Until when it can be accepted.'),
});

const SIGNED_IN = { description: 'Signed in; the cookie is set.', body: Session };
const token = text('From the link.');
const newPassword = (description: string) => Type.String({ minLength: 10, maxLength: 200, description });

export function registerSessionRoutes(app: FastifyInstance, parts: ApiParts): void {
  const { members } = parts.keyStore;
  // One for each edge, since it bounds what an edge computes at once.
  const passwords = new Passwords(parts.config.edges);
  const proxies = new TrustedProxies(parts.config.trustedProxies);
  const browserOf = (request: FastifyRequest): Browser => ({
    address: addressOf(request, proxies),
    token: sessionTokenOf(request.headers),
  });

  memberRoute(app, parts, 'GET /session', {
    operationId: 'getSession',
    summary: 'Who is signed in',
    description: 'The member of the cookie.',
    response: { description: 'The session.', body: Session },
    handler: async ({ member, request }) => sessionJson(parts, request, member),
  });

  pageRoute(app, parts, 'POST /session', {
    operationId: 'signIn',
    summary: 'Sign in',
    description:
      'With e-mail and password. Failed attempts delay further ones, per e-mail address and per client address.',
    body: Type.Object({ email, password: text('The password.') }),
    response: SIGNED_IN,
    errors: [429],
    handler: async ({ body, now, request, reply }) => {
      const { email, password } = textMembers(body, ['email', 'password']);
      refuseLong('password', password);
      const result = await signIn(members, passwords, { email, password, browser: browserOf(request) }, now);
      if (result.outcome === 'slowed') throw tooManyAttempts(result.waitMs);
      if (result.outcome === 'wrong') throw new RefusedError('unauthorized', WRONG);
      return newSessionJson(parts, reply, result);
    },
  });

  pageRoute(app, parts, 'DELETE /session', {
    operationId: 'signOut',
    summary: 'Sign out',
    description: 'Ends the session and clears the cookie.',
    response: NO_CONTENT,
    handler: async ({ request, reply }) => {
      const tokenHash = tokenHashOf(sessionTokenOf(request.headers));
      if (tokenHash !== undefined) await members.endSession(tokenHash);
      clearSessionCookie(reply, parts.publicUrl);
      return undefined;
    },
  });

  memberRoute(app, parts, 'POST /session/password', {
    operationId: 'changePassword',
    summary: 'Change the password',
    description: 'All other sessions of the member end.',
    body: Type.Object({
      current_password: text('The one that is to be replaced.'),
      new_password: newPassword('The new one: 10 to 200 characters.'),
    }),
    response: NO_CONTENT,
    errors: [429],
    handler: async ({ member, body, request, reply, now }) => {
      const { current_password: current, new_password: next } = textMembers(body, ['current_password', 'new_password']);
      refuseLong('current_password', current);
      const mistake = passwordMistake('new_password', next);
      if (mistake !== undefined) throw new BadParameterError(mistake);
      const browser = browserOf(request);
      const result = await changePassword(members, passwords, { member, current, next, browser }, now);
      if (result.outcome === 'slowed') throw tooManyAttempts(result.waitMs);
      if (result.outcome === 'wrong') throw new BadParameterError('current_password is wrong');
      setSessionCookie(reply, result.token, parts.publicUrl);
      return undefined;
    },
  });

  pageRoute(app, parts, 'POST /invitations/look', {
    operationId: 'lookAtInvitation',
    summary: 'Look up an invitation',
    description: 'Of a one-time link that can still be used.',
    body: Type.Object({ token }),
    response: { description: 'What it is for.', body: InvitationLook },
    errors: [404],
    handler: async ({ body, now }) => {
      const invitation = await readInvitation(members, textMembers(body, ['token']).token, now);
      if (invitation === undefined) throw new RefusedError('not_found', NO_INVITATION);
      return rowJson(InvitationLook, invitation);
    },
  });

  pageRoute(app, parts, 'POST /invitations/accept', {
    operationId: 'acceptInvitation',
    summary: 'Accept an invitation',
    description: 'Creates the member, or sets the new password, and signs in. Each link works once.',
    body: Type.Object({ token, email: Type.Optional(email), password: newPassword('10 to 200 characters.') }),
    response: SIGNED_IN,
    errors: [404],
    handler: async ({ body, request, reply }) => {
      const { token, password, email = null } = textMembers(body, ['token', 'password'], ['email']);
      const given = { token, password, email, browser: browserOf(request) };
      const result = await acceptInvitation(members, passwords, given, parts.now);
      if (result.outcome === 'gone') throw new RefusedError('not_found', NO_INVITATION);
      if (result.outcome === 'refused') throw new BadParameterError(result.mistake);
      return newSessionJson(parts, reply, result);
    },
  });
}

function tooManyAttempts(waitMs: number): RefusedError {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000));
  const message = `too many attempts failed; try again in ${seconds} ${seconds === 1 ? 'second' : 'seconds'}`;
  return new RefusedError('too_many_attempts', message, seconds);
}

function newSessionJson(parts: ApiParts, reply: FastifyReply, { member, token }: SignedIn) {
  setSessionCookie(reply, token, parts.publicUrl);
  return sessionJson(parts, reply.request, member);
}

function sessionJson(parts: ApiParts, request: FastifyRequest, member: Member) {
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
