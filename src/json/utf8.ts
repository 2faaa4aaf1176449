/** The text of bytes that are known to be UTF-8; other bytes become U+FFFD. */
export function decodeUtf8({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('utf8');
}
