/**
 * `/members` and `/invitations`: who may sign in to an account, and who is invited. A member sees those of the own
 * account and no others. The link of an invitation is in the response that makes it, and never again; nothing is mailed.
 */

import type { FastifyInstance } from 'fastify';
import {
  emailMistake,
  invite,
  invitationLink,
  OPEN_INVITATIONS_MAX,
  otherAccountMistake,
} from '../../sign-in/invite.ts';
import { textMembers } from '../parameters.ts';
import { ID_PARAMS, type MemberCall, memberRoute } from '../route-kinds.ts';
import type { ApiParts } from '../parts.ts';
import { NO_CONTENT } from '../route-schema.ts';
import { BadParameterError, RefusedError, rowJson, timeText } from '../responses.ts';
import { ownUrl } from '../session-cookie.ts';
import { flag, list, object, orNull, text, time, Type } from '../schema.ts';

export const email = text('An e-mail address.');

const Member = object('Member', 'A person who may sign in to the account.', {
  id: text('Id of the member.'),
  email,
  created_at: time('Since when.'),
  last_signed_in_at: orNull(time('When they last signed in.')),
  is_you: flag('Whether it is the member who asks.'),
});

const invitation = { id: text('Id of the invitation.'), expires_at: time('Until when it can be accepted.') };

const Invitation = object('Invitation', 'An invitation that can still be accepted.', {
  ...invitation,
  email: orNull(text('Who it is for; null if anyone with the link may use it.')),
  created_at: time('When it was made.'),
});

const MemberList = object('MemberList', 'Who may sign in to an account, and who is invited.', {
  members: list(Member, 'Oldest first.'),
  invitations: list(Invitation, 'Those that can still be accepted.'),
});

const CreatedInvitation = object('CreatedInvitation', 'An invitation. Sluice sends no e-mail.', {
  ...invitation,
  email,
  link: text('For the person. Shown only once, in this response.'),
});

export function registerMemberRoutes(app: FastifyInstance, parts: ApiParts): void {
  const { members } = parts.keyStore;
  memberRoute(app, parts, 'GET /members', {
    operationId: 'listMembers',
    summary: 'Who may sign in',
    description: 'The members of the account, and the invitations that are open.',
    response: { description: 'Members.', body: MemberList },
    handler: async ({ member, now }) => {
      const [team, invitations] = await Promise.all([
        members.members(member.accountId),
        members.invitations(member.accountId, now),
      ]);
      return {
        members: team.map((one) => rowJson(Member, { ...one, isYou: one.id === member.id })),
        invitations: invitations.map((one) => rowJson(Invitation, one)),
      };
    },
  });

  memberRoute(app, parts, 'DELETE /members/:id', {
    operationId: 'removeMember',
    summary: 'Remove a member',
    description: 'Their sessions end. Members cannot remove themselves.',
    params: ID_PARAMS,
    response: NO_CONTENT,
    errors: [409],
    handler: async ({ member, id }) => {
      if (id === member.id) throw new RefusedError('conflict', 'you cannot remove yourself; ask another member to');
      return (await members.removeMember(member.accountId, id)) ? undefined : null;
    },
  });

  memberRoute(app, parts, 'POST /invitations', {
    operationId: 'invite',
    summary: 'Invite a person',
    description: 'Creates a link that works once, within 7 days. Sluice sends no e-mail.',
    body: Type.Object({ email }),
    response: { status: 201, description: 'The invitation.', body: CreatedInvitation },
    errors: [409],
    handler: (call) => inviteByEmail(parts, call),
  });

  memberRoute(app, parts, 'DELETE /invitations/:id', {
    operationId: 'withdrawInvitation',
    summary: 'Withdraw an invitation',
    description: 'The link no longer works.',
    params: ID_PARAMS,
    response: NO_CONTENT,
    handler: async ({ member, id }) => ((await members.removeInvitation(member.accountId, id)) ? undefined : null),
  });
}

async function inviteByEmail({ keyStore, publicUrl }: ApiParts, { member, body, request, now }: MemberCall) {
  const { members } = keyStore;
  const email = textMembers(body, ['email']).email.trim();
  const mistake = emailMistake(email);
  if (mistake !== undefined) throw new BadParameterError(mistake);
  const known = await members.findMember(email);
  if (known !== undefined) {
    const elsewhere = otherAccountMistake(known, member.accountName);
    throw new RefusedError('conflict', elsewhere ?? 'this e-mail address already belongs to a member of this account');
  }
  const { accountId } = member;
  const made = await invite(members, { accountId, kind: 'invitation', email, member: null }, now);
  if (made === undefined) {
    const message = `there are ${OPEN_INVITATIONS_MAX} open invitations already; withdraw some first`;
    throw new RefusedError('conflict', message);
  }
  const link = invitationLink(ownUrl(request.headers, publicUrl), made.token);
  return { id: made.id, email, link, expires_at: timeText(made.expiresAt) };
}
