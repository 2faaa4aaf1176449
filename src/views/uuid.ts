/**
 * UUIDs: ids as clients send them, in capitals or not, and perhaps not UUIDs at all; and the time in a trace_id.
 */

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const VERSION_AT = 14;

/** In small letters, as it is stored; undefined for what is not a UUID, which is the id of nothing. */
export function uuidOf(id: unknown): string | undefined {
  return typeof id === 'string' && UUID.test(id) ? id.toLowerCase() : undefined;
}

/** The time in a UUID of version 7, in milliseconds since 1970; undefined for any other id. */
export function timeOfUuid7(id: string): number | undefined {
  return id[VERSION_AT] === '7' ? leadingTimeOf(id) : undefined;
}

/** The first 48 bits of a UUID of any version: where version 7 has its time. */
export function leadingTimeOf(uuid: string): number {
  return Number.parseInt(uuid.slice(0, 8) + uuid.slice(9, 13), 16);
}
