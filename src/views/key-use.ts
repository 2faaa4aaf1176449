/**
 * How a store remembers the uses of an Idempotency-Key. The newest use is under the key itself, older ones are under
 * names of their own. So a new key costs one lookup, and every body sent with a key is remembered until its window
 * ends. With the hash of the body goes whether anything was accepted with the key so far: a request without a valid user
 * does not use it up.
 *
 * Kafka's log has a record per user, and a retry stores the users that are missing. So there the uses are per user, under
 * the key and the user's index; those of a request's first user are under the key alone, where a log on disk, which has
 * a record per request, remembers the whole request. After a move to Kafka such a use counts for all of its users:
 * with the hash goes whether the record had several.
 */

import type { KeyUse } from '../store-writer.ts';

/** It cannot occur in a header, so no client can send it. A hash after it is longer than an index of a user. */
const SEPARATOR = '\u001f';
/** After the hash, in whose alphabet they are not. */
const NOTHING_ACCEPTED = '!';
const SEVERAL_USERS = '*';

/** Under which the use by one user of a request is remembered. */
export function keyOfUser(idempotencyKey: string, userIndex: number): string {
  return userIndex === 0 ? idempotencyKey : `${idempotencyKey}${SEPARATOR}${userIndex}`;
}

/** Under which a whole request is remembered. */
export function keyOfRequest(keyOfUser: string): string {
  return keyOfUser.split(SEPARATOR, 1)[0] as string;
}

/** What is remembered of the body of a request. */
export function rememberedBody(bodyHash: string, isAnythingAccepted: boolean, hasSeveralUsers: boolean): string {
  return bodyHash + (isAnythingAccepted ? '' : NOTHING_ACCEPTED) + (hasSeveralUsers ? SEVERAL_USERS : '');
}

export function isOfBody({ bodyHash: remembered }: Pick<KeyUse, 'bodyHash'>, bodyHash: string): boolean {
  return hashIn(remembered) === bodyHash;
}

export function isAnythingAccepted({ bodyHash }: Pick<KeyUse, 'bodyHash'>): boolean {
  return !bodyHash.includes(NOTHING_ACCEPTED);
}

export function hasSeveralUsers({ bodyHash }: Pick<KeyUse, 'bodyHash'>): boolean {
  return bodyHash.includes(SEVERAL_USERS);
}

/** `bodyHash` as it was sent, or as it is remembered. */
export function olderUseName(idempotencyKey: string, bodyHash: string): string {
  return `${idempotencyKey}${SEPARATOR}${hashIn(bodyHash)}`;
}

function hashIn(remembered: string): string {
  return remembered.replace(/[!*]+$/, '');
}
