/**
 * Ids as clients send them: in capitals or not, and perhaps not UUIDs at all.
 */

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** In small letters, as it is stored; undefined for what is not a UUID, which is the id of nothing. */
export function uuidOf(id: string): string | undefined {
  return UUID.test(id) ? id.toLowerCase() : undefined;
}
