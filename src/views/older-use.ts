/**
 * The name under which a store keeps a use of an Idempotency-Key that is not the newest any more; the newest is under the
 * key itself. So a new key costs one look-up, and every body sent with a key is remembered for as long as it counts.
 */

/** It cannot stand in a header, and is followed by more characters than the number that Kafka's log adds to a key. */
const SEPARATOR = '\u001f';

export function olderUseName(idempotencyKey: string, bodyHash: string): string {
  return `${idempotencyKey}${SEPARATOR}${bodyHash}`;
}
