/**
 * The name under which a store keeps an earlier use of an Idempotency-Key; the newest use is under the key itself. So a
 * new key costs one look-up, and every body sent with a key is remembered until its window ends.
 */

/**
 * It cannot occur in a header, so no client can send it. The hash after it is longer than the user index that Kafka's
 * log appends after the same character, so the two names cannot collide.
 */
const SEPARATOR = '\u001f';

export function olderUseName(idempotencyKey: string, bodyHash: string): string {
  return `${idempotencyKey}${SEPARATOR}${bodyHash}`;
}
