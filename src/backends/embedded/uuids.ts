/**
 * Trace ids, node ids and most event ids: texts outside, 16 bytes in the store. Digits are converted one by one, which
 * takes a fraction of the time that `Buffer` would, and there is one for every record, event and new person.
 */

export const UUID_BYTES = 16;
const DASH = 0x2d;
const LETTER_BITS = 0x40;
const LETTER_VALUE = 9;

/** An id in its stored form. The text must be a UUID; digits of either case. */
export function uuidBytes(uuid: string): Uint8Array {
  const bytes = new Uint8Array(UUID_BYTES);
  putUuid(uuid, bytes, 0);
  return bytes;
}

/** The same, into other bytes. */
export function putUuid(uuid: string, bytes: Uint8Array, start: number): void {
  let at = 0;
  for (let n = start; n < start + UUID_BYTES; n++) {
    if (uuid.charCodeAt(at) === DASH) at++;
    bytes[n] = (digitOf(uuid.charCodeAt(at)) << 4) | digitOf(uuid.charCodeAt(at + 1));
    at += 2;
  }
}

function digitOf(code: number): number {
  return (code & 0xf) + ((code & LETTER_BITS) === 0 ? 0 : LETTER_VALUE);
}

export function uuidText(bytes: Uint8Array): string {
  const hex = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
