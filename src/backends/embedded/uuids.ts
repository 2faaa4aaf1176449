/**
 * Trace ids, node ids and most event ids: texts outside, 16 bytes in the store.
 */

export const UUID_BYTES = 16;

/** An id in its stored form. The text must be a UUID; digits of either case. */
export function uuidBytes(uuid: string): Uint8Array {
  return Buffer.from(uuid.replaceAll('-', ''), 'hex');
}

export function uuidText(bytes: Uint8Array): string {
  const hex = bytes.toHex();
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
