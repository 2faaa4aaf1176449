/**
 * Rate-limits password guessing: a pure rule on counts. After a few free failures, each further one doubles the delay
 * before the next attempt: up to a minute per e-mail address, so that its owner is not locked out for long, and up to
 * 15 minutes per client address. An attempt counts as failed before it is made and is uncounted if it succeeds, so
 * parallel guesses count like sequential ones. The store keeps the counts, for all edges and across restarts, under
 * hashes: it stores neither strangers' e-mail addresses nor client addresses.
 */

import type { AttemptCount, AttemptRuling } from '../members.ts';
import { comparableEmail } from '../members.ts';
import { MINUTE_MS } from '../model.ts';
import { sha256 } from './token.ts';

export interface Slowing {
  /** Failures without any wait. */
  readonly freeFailures: number;
  readonly firstWaitMs: number;
  readonly waitMsMax: number;
  /** After so long without an attempt, all is forgotten. */
  readonly forgetMs: number;
}

export const EMAIL_SLOWING: Slowing = {
  freeFailures: 5,
  firstWaitMs: 1_000,
  waitMsMax: MINUTE_MS,
  forgetMs: 60 * MINUTE_MS,
};

/** More free failures, because a whole office may share an address. */
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

/** Separate from sign-in, so that a stranger who guesses there does not delay a member who changes the password. */
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
