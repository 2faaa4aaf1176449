/**
 * The people who sign in to the dashboard, as they are kept: members, their sessions, invitations, and how often
 * signing in has failed. `MemberStore` is the interface and `test/contract/members.ts` the suite that every backend
 * passes; the rules (how long, how slow, which password) are in `sign-in/`. A member belongs to one account, and an
 * e-mail, compared in lower case, to one member. Tokens and passwords are here as hashes only.
 */

import { HOUR_MS } from './model.ts';

/** Browsers are rarely signed out, only abandoned; the least recently used sessions go first. */
export const SESSIONS_PER_MEMBER_MAX = 50;
/** Longer than any failure is remembered (`sign-in/attempts.ts`): counts that are older have no more effect. */
export const ATTEMPTS_KEPT_MS = 2 * HOUR_MS;

export interface Member {
  /** Public and harmless: `mem_` and 12 base62 characters. */
  readonly id: string;
  readonly accountId: string;
  readonly accountName: string;
  readonly email: string;
  readonly createdAt: number;
  readonly lastSignedInAt: number | null;
}

export interface MemberWithPassword extends Member {
  /** As `sign-in/password.ts` writes it: method, parameters, salt and hash. */
  readonly passwordHash: string;
}

/** A member as of the moment at which the password was checked. */
export type CheckedMember = Pick<MemberWithPassword, 'id' | 'passwordHash'>;

export interface Session {
  readonly member: Member;
  readonly createdAt: number;
  readonly renewedAt: number;
  readonly expiresAt: number;
}

export interface NewSession {
  readonly tokenHash: Uint8Array;
  readonly createdAt: number;
  readonly expiresAt: number;
  /** The session of the browser's cookie before, which ends with this; null if there was none. */
  readonly replaces: Uint8Array | null;
}

/** `first`: for the first member of an account; `reset`: a new password for a member who is there. */
export type InvitationKind = 'first' | 'invitation' | 'reset';

export interface Invitation {
  /** Public and harmless: `inv_` and 12 base62 characters. */
  readonly id: string;
  readonly accountId: string;
  readonly accountName: string;
  readonly kind: InvitationKind;
  /** Null: the person who opens the link enters it. */
  readonly email: string | null;
  readonly createdAt: number;
  readonly expiresAt: number;
}

export interface NewInvitation extends Omit<Invitation, 'accountName'> {
  readonly tokenHash: Uint8Array;
  /** Whose password it sets; null for all kinds but `reset`. */
  readonly memberId: string | null;
}

export interface Acceptance {
  readonly tokenHash: Uint8Array;
  readonly memberId: string;
  /** Counts where the invitation names none. */
  readonly email: string;
  readonly passwordHash: string;
  readonly session: NewSession;
  readonly at: number;
}

/** How often something failed for an e-mail or an address, which are here as hashes: `sign-in/attempts.ts`. */
export interface AttemptCount {
  readonly failures: number;
  readonly lastAt: number;
}

/** Whether an attempt may be made now, and what to count then. */
export interface AttemptDecision {
  /** 0 when it may. */
  readonly waitMs: number;
  /** For each subject, in their order, the failures with this one. */
  readonly failures: readonly number[];
}

/** Every method rejects with `StoreUnavailableError` when the store cannot be read or written. */
export interface MemberStore {
  /** Members of an account, oldest first. */
  members(accountId: string): Promise<Member[]>;
  /** By e-mail, in capitals or not. */
  findMember(email: string): Promise<MemberWithPassword | undefined>;
  /** With the sessions. False if the account has no such member. */
  removeMember(accountId: string, id: string): Promise<boolean>;

  /** False if the member is gone or has another password by now. Sets the time of the last sign-in. */
  startSession(member: CheckedMember, session: NewSession): Promise<boolean>;
  /** Sets the password, ends all sessions of the member and starts the new one; false as for `startSession`. */
  changePassword(member: CheckedMember, passwordHash: string, session: NewSession): Promise<boolean>;
  /** Another hash of the same password: sessions continue. False as for `startSession`. */
  replacePasswordHash(member: CheckedMember, passwordHash: string): Promise<boolean>;
  /** Expired ones included. */
  findSession(tokenHash: Uint8Array): Promise<Session | undefined>;
  renewSession(tokenHash: Uint8Array, renewedAt: number, expiresAt: number): Promise<void>;
  endSession(tokenHash: Uint8Array): Promise<void>;

  /**
   * Those for the same e-mail of the account that were open before are withdrawn, and expired ones removed. False, and
   * nothing is made, if the account has `openMax` of them already.
   */
  createInvitation(invitation: NewInvitation, openMax: number): Promise<boolean>;
  /** Invitations of an account, of kind `invitation`, that can still be accepted, newest first. */
  invitations(accountId: string, now: number): Promise<Invitation[]>;
  /** One that can still be accepted: not used, not expired, and a `first` one only while the account has no member. */
  findInvitation(tokenHash: Uint8Array, now: number): Promise<Invitation | undefined>;
  removeInvitation(accountId: string, id: string): Promise<boolean>;
  /**
   * Makes the member, or sets the password and ends the sessions, and starts a session: all of it or nothing, and once
   * for each invitation, however many ask at the same moment.
   */
  acceptInvitation(acceptance: Acceptance): Promise<Member | 'gone' | 'email taken'>;

  /**
   * Hands the counts of the subjects to `rule` and, if that lets the attempt be made, counts it as failed: in one step,
   * so that many attempts at one moment are no way around. Returns how long to wait, 0 if it may be made.
   */
  takeAttempt(
    subjects: readonly Uint8Array[],
    at: number,
    rule: (counts: readonly AttemptCount[]) => AttemptDecision,
  ): Promise<number>;
  /** After a success: forgets the failures of the first, and takes back the one that was counted for the others. */
  forgiveAttempt(forgotten: Uint8Array, takenBack: readonly Uint8Array[]): Promise<void>;
}

/** How e-mails are compared. */
export function comparableEmail(email: string): string {
  return email.normalize('NFC').toLowerCase();
}
