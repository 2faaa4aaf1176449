/**
 * Invitations: one-time links that create a member or set a new password. The token is in the fragment of the link,
 * which browsers never send, so it is in no log. Nothing is mailed: the operator passes the link on. If several people
 * use one link at the same moment, the store admits one.
 */

import { randomBase62 } from '../keys/format.ts';
import { comparableEmail, type Invitation, type InvitationKind, type Member, type MemberStore } from '../members.ts';
import { DAY_MS } from '../model.ts';
import { isLongerThan, isStorable } from '../validation/characters.ts';
import { emailSubject } from './attempts.ts';
import { type Passwords, passwordMistake } from './password.ts';
import { type Browser, newSession, type SignedIn } from './session.ts';
import { newToken, tokenHashOf } from './token.ts';

/** Links for the first member or a new password give access to existing data, so they expire sooner. */
export const INVITATION_MS = { first: DAY_MS, invitation: 7 * DAY_MS, reset: DAY_MS } as const satisfies Record<
  InvitationKind,
  number
>;
export const OPEN_INVITATIONS_MAX = 100;
/** RFC 5321 leaves room for no more. */
const EMAIL_CHARACTERS_MAX = 254;

const ID_CHARACTERS = 12;
const EMAIL = /^[^\s@]+@[^\s@]+$/u;

interface InvitationOptions {
  readonly accountId: string;
  readonly kind: InvitationKind;
  readonly email: string | null;
  readonly member: Member | null;
}

/**
 * Why a person who is a member already cannot be invited to an account; undefined for its own members. It does not name
 * the other account: members see nothing of others.
 */
export function otherAccountMistake(known: Member, accountName: string): string | undefined {
  if (known.accountName === accountName) return undefined;
  return 'email is that of a member of another account, and a person can be a member of one account only';
}

/** Undefined when the account has as many open invitations as it may have. */
export async function invite(
  members: MemberStore,
  { accountId, kind, email, member }: InvitationOptions,
  now: number,
): Promise<{ readonly id: string; readonly token: string; readonly expiresAt: number } | undefined> {
  const { token, tokenHash } = newToken();
  const id = `inv_${randomBase62(ID_CHARACTERS)}`;
  const expiresAt = now + INVITATION_MS[kind];
  const memberId = member?.id ?? null;
  const invitation = { id, tokenHash, accountId, kind, email, memberId, createdAt: now, expiresAt };
  return (await members.createInvitation(invitation, OPEN_INVITATIONS_MAX)) ? { id, token, expiresAt } : undefined;
}

/** Where the person goes; `baseUrl` is where they reach this server. */
export function invitationLink(baseUrl: string, token: string): string {
  return `${baseUrl}/dashboard/welcome#${token}`;
}

export async function readInvitation(
  members: MemberStore,
  token: string,
  now: number,
): Promise<Invitation | undefined> {
  const tokenHash = tokenHashOf(token);
  return tokenHash === undefined ? undefined : members.findInvitation(tokenHash, now);
}

type AcceptOutcome =
  | ({ readonly outcome: 'signed in' } & SignedIn)
  | { readonly outcome: 'gone' }
  | { readonly outcome: 'refused'; readonly mistake: string };

interface AcceptOptions {
  readonly token: string;
  /** Null where the person gave none, which is enough if the invitation names one. */
  readonly email: string | null;
  readonly password: string;
  readonly browser: Browser;
}

export async function acceptInvitation(
  members: MemberStore,
  passwords: Passwords,
  options: AcceptOptions,
  now: () => number,
): Promise<AcceptOutcome> {
  const invitation = await readInvitation(members, options.token, now());
  const tokenHash = tokenHashOf(options.token);
  if (invitation === undefined || tokenHash === undefined) return { outcome: 'gone' };
  const email = (options.email?.trim() || invitation.email) ?? '';
  const mistake = acceptMistake(invitation, email) ?? passwordMistake('password', options.password);
  if (mistake !== undefined) return { outcome: 'refused', mistake };

  const passwordHash = await passwords.hash(options.password);
  const at = now();
  const { token, session } = newSession(options.browser, at);
  const memberId = `mem_${randomBase62(ID_CHARACTERS)}`;
  const member = await members.acceptInvitation({ tokenHash, memberId, email, passwordHash, session, at });
  if (member === 'gone') return { outcome: 'gone' };
  if (member === 'email taken') return { outcome: 'refused', mistake: 'email is that of a member already' };
  // Guesses of the old password do not count against the new one.
  await members.forgiveAttempt(emailSubject(member.email).hash, []);
  return { outcome: 'signed in', member, token };
}

function acceptMistake(invitation: Invitation, email: string): string | undefined {
  if (invitation.email !== null && comparableEmail(email) !== comparableEmail(invitation.email)) {
    return 'email is not the one that was invited; leave it out';
  }
  return emailMistake(email);
}

/** Whether mail is delivered does not matter: an e-mail is the name that a person signs in with. */
export function emailMistake(email: string): string | undefined {
  const trimmed = email.trim();
  if (trimmed === '') return 'email is missing';
  if (!isStorable(trimmed) || /\p{Cc}/u.test(trimmed)) return 'email contains a character that cannot be stored';
  if (isLongerThan(trimmed, EMAIL_CHARACTERS_MAX)) return `email must have at most ${EMAIL_CHARACTERS_MAX} characters`;
  return EMAIL.test(trimmed) ? undefined : 'email is not an e-mail address, such as ada@example.com';
}
