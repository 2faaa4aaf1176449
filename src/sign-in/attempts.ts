/**
 * How guessing is slowed: a rule on counts, pure. After a few free failures each further one makes the next attempt wait
 * twice as long. For an e-mail the wait ends at a minute, so that its owner cannot be locked out for long; for an address
 * it ends at 15 minutes. An attempt is counted as failed before it is made and taken back if it succeeds, so guesses at
 * one moment count as guesses one after the other. The store keeps the counts, for all edges and over restarts, under
 * hashes: neither e-mails of strangers nor addresses are kept.
 */

import type { AttemptCount, AttemptRuling } from '../members.ts';
import { comparableEmail } from '../members.ts';
import { sha256 } from './token.ts';

export interface Slowing {
  /** Failures without any wait. */
  readonly freeFailures: number;
  readonly firstWaitMs: number;
  readonly waitMsMax: number;
  /** After so long without an attempt, all is forgotten. */
  readonly forgetMs: number;
}

const MINUTE_MS = 60_000;

export const EMAIL_SLOWING: Slowing = {
  freeFailures: 5,
  firstWaitMs: 1_000,
  waitMsMax: MINUTE_MS,
  forgetMs: 60 * MINUTE_MS,
};

/** More are free, for a whole office may share an address. */
export const ADDRESS_SLOWING: Slowing = {
  freeFailures: 20,
  firstWaitMs: 1_000,
  waitMsMax: 15 * MINUTE_MS,
  forgetMs: 60 * MINUTE_MS,
};

export interface Subject {
  readonly hash: Uint8Array;
  readonly slowing: Slowing;
}

export function emailSubject(email: string): Subject {
  return { hash: sha256(`email ${comparableEmail(email.trim())}`), slowing: EMAIL_SLOWING };
}

export function addressSubject(address: string): Subject {
  return { hash: sha256(`address ${address}`), slowing: ADDRESS_SLOWING };
}

/** Apart from signing in, so that a stranger who guesses there does not slow a member who changes the password. */
export function passwordChangeSubject(memberId: string): Subject {
  return { hash: sha256(`password change ${memberId}`), slowing: EMAIL_SLOWING };
}

/** Counts are those of the subjects, in their order. */
export function ruleOn(subjects: readonly Subject[], counts: readonly AttemptCount[], now: number): AttemptRuling {
  const rulings = subjects.map(({ slowing }, n) => {
    const { failures, lastAt } = counts[n] ?? { failures: 0, lastAt: 0 };
    // A clock that was set back must not make anyone wait longer than the rule allows. Clocks of servers differ by
    // less.
    const sinceMs = lastAt > now + slowing.waitMsMax ? slowing.forgetMs : Math.max(0, now - lastAt);
    const remembered = sinceMs >= slowing.forgetMs ? 0 : failures;
    return { waitMs: Math.max(0, waitAfterMs(slowing, remembered) - sinceMs), failures: remembered + 1 };
  });
  return {
    waitMs: Math.max(0, ...rulings.map(({ waitMs }) => waitMs)),
    failures: rulings.map(({ failures }) => failures),
  };
}

export function waitAfterMs({ freeFailures, firstWaitMs, waitMsMax }: Slowing, failures: number): number {
  const beyond = failures - freeFailures;
  return beyond < 0 ? 0 : Math.min(waitMsMax, firstWaitMs * 2 ** beyond);
}
