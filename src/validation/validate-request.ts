/**
 * Validates untrusted text: which users of a request are accepted, and why the others are not. Each user is validated
 * on its own. If the payload as a whole is unusable, the result is one message: it says what is wrong and where, and
 * never quotes the client's content, so it may be logged.
 *
 * Pure: the caller decodes the bytes (and rejects what is not UTF-8) and keeps them; nothing is stored here.
 */

import { LIMITS, type Rejection } from '../model.ts';
import { describeJsonError } from '../json/error.ts';
import { parseJson } from '../json/parse.ts';
import { isObject } from './shape.ts';
import { firstViolation } from './validate-user.ts';

export type RequestValidation = ValidatedUsers | { readonly ok: false; readonly message: string };

interface ValidatedUsers {
  readonly ok: true;
  /** All users of the request, rejected ones included. */
  readonly userCount: number;
  /** Events of the accepted users. */
  readonly eventCount: number;
  /** In order of `userIndex`. May be all users: the request then fails. */
  readonly rejections: Rejection[];
  /** Events that the client reports to have dropped before; absent where it reports none. */
  readonly droppedByClient?: number;
}

/** The member of a body in which a client reports what it had to drop. */
export const DROPPED_BY_CLIENT = 'dropped_by_client';

/** An escape that could be U+0000 or half of a surrogate pair. */
const RISKY_ESCAPE = /\\u(?:0000|[dD][89a-fA-F])/;

/** What a tenant asks for besides what makes a user valid: the message of a user that lacks it, or null. */
export type UserCheck = (user: unknown) => string | null;

export function validateRequest(text: string, check?: UserCheck): RequestValidation {
  if (text === '') return unusable('body is empty, expected a JSON object');
  let body: unknown;
  try {
    body = parseJson(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return unusable(notJsonText(text));
  }
  if (!isObject(body)) return unusable(`body must be a JSON object, not ${kindOf(body)}`);
  const { users } = body;
  if (users === undefined || users === null) return unusable('users is required and must be an array');
  if (!Array.isArray(users)) return unusable(`users must be an array, not ${kindOf(users)}`);
  if (users.length === 0) return unusable('users must not be empty');
  if (users.length > LIMITS.usersPerRequestMax) return unusable(tooManyUsersText(users.length));
  const validation = validateUsers(users, mayHoldUnstorable(text), check);
  const droppedByClient = body[DROPPED_BY_CLIENT];
  return isDropCount(droppedByClient) ? { ...validation, droppedByClient } : validation;
}

export function tooManyUsersText(count: number): string {
  return `users must hold at most ${LIMITS.usersPerRequestMax} users, not ${count}`;
}

/** Says where it is not JSON, and why. */
export function notJsonText(text: string): string {
  return `body is not valid JSON: ${describeJsonError(text) ?? 'its syntax is wrong'}`;
}

/** Anything else is ignored, like any other unknown member: a wrong count must not cost a client its events. */
function isDropCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) > 0 && (value as number) <= LIMITS.droppedByClientMax;
}

function validateUsers(users: readonly unknown[], checkCharacters: boolean, check?: UserCheck): ValidatedUsers {
  const rejections: Rejection[] = [];
  let eventCount = 0;
  for (let userIndex = 0; userIndex < users.length; userIndex++) {
    const user = users[userIndex];
    const message = firstViolation(user, checkCharacters) ?? check?.(user) ?? null;
    if (message === null) eventCount += (user as { events: unknown[] }).events.length;
    else rejections.push({ userIndex, message });
  }
  return { ok: true, userCount: users.length, eventCount, rejections };
}

/** Looks at the text once, so that strings need no second look in nearly every request. */
function mayHoldUnstorable(text: string): boolean {
  return (text.includes('\\u') && RISKY_ESCAPE.test(text)) || !text.isWellFormed();
}

function unusable(message: string): RequestValidation {
  return { ok: false, message };
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
