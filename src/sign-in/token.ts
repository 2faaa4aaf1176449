/**
 * The tokens of sessions and invitations: 32 random bytes as base64url text. The text grants access, so it is
 * handed out once, and only its SHA-256 is kept; with 256 bits of randomness a slow hash would add nothing.
 */

import { hash, randomBytes } from 'node:crypto';

const TOKEN_BYTES = 32;
/** 32 bytes are 43 characters, without padding. */
const TOKEN = /^[\w-]{43}$/;

export function newToken(): { readonly token: string; readonly tokenHash: Uint8Array } {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  return { token, tokenHash: sha256(token) };
}

/** Undefined for what cannot be a token, so that it is not looked up. */
export function tokenHashOf(text: unknown): Uint8Array | undefined {
  return typeof text === 'string' && TOKEN.test(text) ? sha256(text) : undefined;
}

export function sha256(text: string): Uint8Array {
  return hash('sha256', text, 'buffer');
}
