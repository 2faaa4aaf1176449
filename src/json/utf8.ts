/**
 * Decodes UTF-8: bodies of requests, and texts that the embedded store keeps as bytes.
 */

/** For bytes that are known to be UTF-8; others become U+FFFD. */
export function decodeUtf8({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('utf8');
}
