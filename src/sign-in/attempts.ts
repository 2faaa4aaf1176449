/**
 * Rate-limits password guessing: a pure rule on counts. After a few free failures, each further one doubles the delay
 * before the next attempt: up to a minute per e-mail address, so that its owner is not locked out for long, and up to
 * 15 minutes per client address. An attempt counts as failed before it is made and is uncounted if it succeeds, so
 * parallel guesses count like sequential ones. The store keeps the counts, for all edges and across restarts, under
 * hashes: it stores neither strangers' e-mail addresses nor client addresses.
 */

import type { AttemptCount, AttemptDecision } from '../members.ts';
import { comparableEmail } from '../members.ts';
import { MINUTE_MS } from '../model.ts';
import { sha256 } from './token.ts';

const FIRST_WAIT_MS = 1_000;
const FORGET_MS = 60 * MINUTE_MS;

interface DelayPolicy {
  readonly freeFailures: number;
  readonly waitMsMax: number;
}

export const EMAIL_DELAYS: DelayPolicy = { freeFailures: 5, waitMsMax: MINUTE_MS };
/** More free failures, because a whole office may share an address. */
export const ADDRESS_DELAYS: DelayPolicy = { freeFailures: 20, waitMsMax: 15 * MINUTE_MS };

export interface Subject {
  readonly hash: Uint8Array;
  readonly delays: DelayPolicy;
}

export function emailSubject(email: string): Subject {
  return { hash: sha256(`email ${comparableEmail(email.trim())}`), delays: EMAIL_DELAYS };
}

export function addressSubject(address: string): Subject {
  return { hash: sha256(`address ${address}`), delays: ADDRESS_DELAYS };
}

/** Separate from sign-in, so that a stranger who guesses there does not delay a member who changes the password. */
export function passwordChangeSubject(memberId: string): Subject {
  return { hash: sha256(`password change ${memberId}`), delays: EMAIL_DELAYS };
}

export function decideAttempt(
  subjects: readonly Subject[],
  counts: readonly AttemptCount[],
  now: number,
): AttemptDecision {
  const decisions = subjects.map(({ delays }, n) => {
    const { failures, lastAt } = counts[n] ?? { failures: 0, lastAt: 0 };
    // A clock that was set back must not make anyone wait longer than the rule allows. Clocks of servers differ by
    // less.
    const sinceMs = lastAt > now + delays.waitMsMax ? FORGET_MS : Math.max(0, now - lastAt);
    const remembered = sinceMs >= FORGET_MS ? 0 : failures;
    return { waitMs: Math.max(0, delayAfterMs(delays, remembered) - sinceMs), failures: remembered + 1 };
  });
  return {
    waitMs: Math.max(0, ...decisions.map(({ waitMs }) => waitMs)),
    failures: decisions.map(({ failures }) => failures),
  };
}

export function delayAfterMs({ freeFailures, waitMsMax }: DelayPolicy, failures: number): number {
  const beyond = failures - freeFailures;
  return beyond < 0 ? 0 : Math.min(waitMsMax, FIRST_WAIT_MS * 2 ** beyond);
}
