/**
 * `/members` and `/invitations`: who may sign in to an account, and who was asked to. A member sees those of the own
 * account and nobody else. The link of an invitation is in the answer that makes it, this once; nothing is mailed.
 */

import type { FastifyInstance } from 'fastify';
import { comparableEmail } from '../members.ts';
import { emailMistake, invite, invitationLink, OPEN_INVITATIONS_MAX } from '../sign-in/invite.ts';
import type { Json } from './json-text.ts';
import { addMemberRoute, ConflictError, type MemberCall, type MemberParts, readTexts } from './member-route.ts';
import { BadParameterError } from './parameters.ts';
import { ownUrl } from './same-origin.ts';

export function registerMemberRoutes(app: FastifyInstance, parts: MemberParts): void {
  addMemberRoute(app, parts, { method: 'GET', url: '/members', answer: (call) => listMembers(parts, call) });
  addMemberRoute(app, parts, {
    method: 'DELETE',
    url: '/members/:id',
    answer: async ({ member, id }) => {
      if (id === member.id) throw new ConflictError('you cannot remove yourself; ask another member to');
      return (await parts.members.removeMember(member.accountId, id)) ? undefined : null;
    },
  });
  addMemberRoute(app, parts, {
    method: 'POST',
    url: '/invitations',
    status: 201,
    answer: (call) => inviteByEmail(parts, call),
  });
  addMemberRoute(app, parts, {
    method: 'DELETE',
    url: '/invitations/:id',
    answer: async ({ member, id }) => ((await parts.members.removeInvitation(member.accountId, id)) ? undefined : null),
  });
}

async function listMembers({ members }: MemberParts, { member, now }: MemberCall): Promise<Json> {
  const [all, invitations] = await Promise.all([
    members.members(member.accountId),
    members.invitations(member.accountId, now),
  ]);
  return {
    members: all.map(({ id, email, createdAt, lastSignedInAt }) => ({
      id,
      email,
      created_at: timeText(createdAt),
      last_signed_in_at: lastSignedInAt === null ? null : timeText(lastSignedInAt),
      is_you: id === member.id,
    })),
    invitations: invitations.map(({ id, email, createdAt, expiresAt }) => ({
      id,
      email,
      created_at: timeText(createdAt),
      expires_at: timeText(expiresAt),
    })),
  };
}

/** Of members of other accounts nothing is told here: such an invitation is made, and cannot be accepted. */
async function inviteByEmail(parts: MemberParts, { member, body, request, now }: MemberCall): Promise<Json> {
  const { members, publicUrl } = parts;
  const email = readTexts(body, ['email']).email.trim();
  const mistake = emailMistake(email);
  if (mistake !== undefined) throw new BadParameterError(mistake);
  const colleagues = await members.members(member.accountId);
  if (colleagues.some((one) => comparableEmail(one.email) === comparableEmail(email))) {
    throw new ConflictError('email is that of a member of this account already');
  }
  const { accountId } = member;
  const made = await invite(members, { accountId, kind: 'invitation', email, member: null }, now);
  if (made === undefined) {
    throw new ConflictError(`there are ${OPEN_INVITATIONS_MAX} open invitations already; withdraw some first`);
  }
  const link = invitationLink(ownUrl(request.headers, publicUrl), made.token);
  return { id: made.id, email, link, expires_at: timeText(made.expiresAt) };
}

function timeText(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}
