/**
 * The hash of a request's body, which distinguishes a retry with the same Idempotency-Key from another request: 128
 * bits of SHA-256 over the bytes as the log has them, decompressed. A body that differs in white space or in the order
 * of its members is another body; a retry sends the same bytes. Only computed where there is an Idempotency-Key.
 */

import { hash } from 'node:crypto';

/** 128 bits in base64url, rounded up. */
const CHARACTERS = 22;

export function bodyHashOf(body: Uint8Array): string {
  return hash('sha256', body, 'base64url').slice(0, CHARACTERS);
}
