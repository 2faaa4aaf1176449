/**
 * How a store remembers the uses of an Idempotency-Key. The newest use is under the key itself, older ones are under
 * names of their own. So a new key costs one lookup, and every body sent with a key is remembered until its window
 * ends. With the hash of the body goes whether anything was accepted with the key so far: a request without a valid user
 * does not use it up.
 */

import type { KeyUse } from '../store-writer.ts';

/**
 * It cannot occur in a header, so no client can send it. The hash after it is longer than the user index that Kafka's
 * log appends after the same character, so the two names cannot collide.
 */
const SEPARATOR = '\u001f';
/** After the hash, in whose alphabet it is not. */
const NOTHING_ACCEPTED = '!';

/** What is remembered of the body of a request. */
export function rememberedBody(bodyHash: string, isAnythingAccepted: boolean): string {
  return isAnythingAccepted ? bodyHash : bodyHash + NOTHING_ACCEPTED;
}

export function isOfBody({ bodyHash: remembered }: Pick<KeyUse, 'bodyHash'>, bodyHash: string): boolean {
  return remembered === bodyHash || remembered === bodyHash + NOTHING_ACCEPTED;
}

export function isAnythingAccepted({ bodyHash }: Pick<KeyUse, 'bodyHash'>): boolean {
  return !bodyHash.endsWith(NOTHING_ACCEPTED);
}

/** `bodyHash` as it was sent, or as it is remembered. */
export function olderUseName(idempotencyKey: string, bodyHash: string): string {
  const hash = bodyHash.endsWith(NOTHING_ACCEPTED) ? bodyHash.slice(0, -NOTHING_ACCEPTED.length) : bodyHash;
  return `${idempotencyKey}${SEPARATOR}${hash}`;
}
