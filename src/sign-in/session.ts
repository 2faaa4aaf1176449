/**
 * Sessions: signing in, staying signed in, changing the password. A session lasts 14 days from its last renewal; use
 * renews it, at most once in 10 minutes. Every sign-in creates a new token and ends the browser's previous session
 * instead of continuing it, so a planted cookie gains nothing (session fixation).
 */

import type { CheckedMember, Member, MemberStore, NewSession } from '../members.ts';
import { DAY_MS, MINUTE_MS } from '../model.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import { addressSubject, emailSubject, passwordChangeSubject, decideAttempt, type Subject } from './attempts.ts';
import { type Passwords, TooBusyError } from './password.ts';
import { newToken, tokenHashOf } from './token.ts';

export const SESSION_MS = 14 * DAY_MS;
const RENEW_AFTER_MS = 10 * MINUTE_MS;

/** Where a request to sign in comes from, and what its browser was before. */
export interface Browser {
  /** For slowing. */
  readonly address: string;
  /** The token in its cookie, whatever that is; undefined if it has none. */
  readonly token: string | undefined;
}

export interface SignedIn {
  readonly member: Member;
  readonly token: string;
}

type SignInOutcome =
  | ({ readonly outcome: 'signed in' } & SignedIn)
  | { readonly outcome: 'wrong' }
  | { readonly outcome: 'slowed'; readonly waitMs: number };

export interface FoundSession {
  readonly member: Member;
  readonly tokenHash: Uint8Array;
  /** Whether the cookie should be sent again, so that the browser keeps it as long as we do. */
  readonly isRenewed: boolean;
}

export function newSession(browser: Browser, now: number): { readonly token: string; readonly session: NewSession } {
  const { token, tokenHash } = newToken();
  const replaces = tokenHashOf(browser.token) ?? null;
  return { token, session: { tokenHash, createdAt: now, expiresAt: now + SESSION_MS, replaces } };
}

export async function signIn(
  members: MemberStore,
  passwords: Passwords,
  { email, password, browser }: { readonly email: string; readonly password: string; readonly browser: Browser },
  now: number,
): Promise<SignInOutcome> {
  const subjects = [emailSubject(email), addressSubject(browser.address)] as const;
  const waitMs = await takeAttempt(members, passwords, subjects, now);
  if (waitMs > 0) return { outcome: 'slowed', waitMs };
  const member = await members.findMember(email.trim());
  if (!(await passwords.verify(password, member?.passwordHash)) || member === undefined) return { outcome: 'wrong' };
  const { token, session } = newSession(browser, now);
  // The member was removed, or got another password, during the check: this one no longer grants access.
  if (!(await members.startSession(member, session))) return { outcome: 'wrong' };
  await members.forgiveAttempt(subjects[0].hash, [subjects[1].hash]);
  if (passwords.isOutdated(member.passwordHash)) await rehash(members, passwords, member, password);
  return { outcome: 'signed in', member, token };
}

/** Only now is the password at hand. A failure to store it does not prevent the sign-in. */
async function rehash(
  members: MemberStore,
  passwords: Passwords,
  member: CheckedMember,
  password: string,
): Promise<void> {
  try {
    await members.replacePasswordHash(member, await passwords.hash(password));
  } catch (error) {
    if (!(error instanceof StoreUnavailableError) && !(error instanceof TooBusyError)) throw error;
  }
}

/** Ends all other sessions of the member. A stolen session does not reveal the password, so guesses are slowed. */
export async function changePassword(
  members: MemberStore,
  passwords: Passwords,
  change: { readonly member: Member; readonly current: string; readonly next: string; readonly browser: Browser },
  now: number,
): Promise<SignInOutcome> {
  const { member, current, next, browser } = change;
  const subject = passwordChangeSubject(member.id);
  const waitMs = await takeAttempt(members, passwords, [subject], now);
  if (waitMs > 0) return { outcome: 'slowed', waitMs };
  const stored = await members.findMember(member.email);
  const isRight = await passwords.verify(current, stored?.passwordHash);
  if (!isRight || stored?.id !== member.id) return { outcome: 'wrong' };
  const { token, session } = newSession(browser, now);
  if (!(await members.changePassword(stored, await passwords.hash(next), session))) return { outcome: 'wrong' };
  await members.forgiveAttempt(subject.hash, []);
  return { outcome: 'signed in', member, token };
}

export async function findSession(
  members: MemberStore,
  token: string | undefined,
  now: number,
): Promise<FoundSession | undefined> {
  const tokenHash = tokenHashOf(token);
  if (tokenHash === undefined) return undefined;
  const session = await members.findSession(tokenHash);
  if (session === undefined || session.expiresAt <= now) return undefined;
  // A session last used in the future was used while the clock was ahead: its 14 days count from now.
  const isDue = Math.abs(now - session.renewedAt) >= RENEW_AFTER_MS;
  const isRenewed = isDue && (await renew(members, tokenHash, now));
  return { member: session.member, tokenHash, isRenewed };
}

/** A store that can only be read (a full disk) does not sign anyone out: it is tried again with the next request. */
async function renew(members: MemberStore, tokenHash: Uint8Array, now: number): Promise<boolean> {
  try {
    await members.renewSession(tokenHash, now, now + SESSION_MS);
    return true;
  } catch (error) {
    if (!(error instanceof StoreUnavailableError)) throw error;
    return false;
  }
}

/** Not counted when there is no room to check it anyway. */
function takeAttempt(
  members: MemberStore,
  passwords: Passwords,
  subjects: readonly Subject[],
  now: number,
): Promise<number> {
  if (passwords.isFull) throw new TooBusyError('too many passwords are being checked');
  const hashes = subjects.map(({ hash }) => hash);
  return members.takeAttempt(hashes, now, (counts) => decideAttempt(subjects, counts, now));
}
